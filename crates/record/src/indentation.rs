/// Returns JSON without white space between its values as one value a line, by two spaces a level:
/// the same as `serde_json` writes, whose code for all that a document holds would be there twice.
pub(crate) fn indent_json(json: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 * json.len());
    let mut level = 0;
    let mut rest = json;
    while let [byte, after @ ..] = rest {
        let mut length = 1;
        match (byte, after) {
            (b'{' | b'[', [b'}' | b']', ..]) => length = 2,
            (b'{' | b'[', _) => level += 1,
            (b'}' | b']', _) => {
                level -= 1;
                break_line(&mut text, level);
            }
            (b'"', _) => length = string_length(rest),
            _ => {}
        }
        text.extend_from_slice(&rest[..length]);
        match byte {
            b'{' | b'[' if length == 1 => break_line(&mut text, level),
            b',' => break_line(&mut text, level),
            b':' => text.push(b' '),
            _ => {}
        }
        rest = &rest[length..];
    }
    text
}

fn break_line(text: &mut Vec<u8>, level: usize) {
    text.push(b'\n');
    text.resize(text.len() + 2 * level, b' ');
}

/// Returns the length of the string at the begin of `json`, with its quotation marks.
fn string_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json[1..].iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::indent_json;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            r#"["\\\{\[:,\]\} ]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_is_indented_as_serde_does(value in any_value()) {
            let indented = indent_json(&serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(indented, serde_json::to_vec_pretty(&value).unwrap());
        }
    }
}

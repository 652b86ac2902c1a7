//! Encodings of text, and numbers that JSON does not have.

use std::borrow::Cow;

/// Letters that are read to distinguish a number from another word: one more than `infinity` has.
const MAX_WORD: usize = 9;

const UTF_8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Returns the text of a file in UTF-8: of UTF-8 with a byte order mark as older versions of
/// `PowerShell` write it, and of UTF-16 (RFC 2781, 3.2), with a mark or with a zero in every other
/// byte of the first two characters. Anything else stays.
///
/// # Errors
/// Returns a sentence, without the name of the file, if what begins as UTF-16 is none.
pub fn text_in_utf_8(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    match bytes {
        [0xff, 0xfe, text @ ..] => from_utf_16(text, u16::from_le_bytes),
        [0xfe, 0xff, text @ ..] => from_utf_16(text, u16::from_be_bytes),
        [1..=255, 0, 1..=255, 0, ..] => from_utf_16(bytes, u16::from_le_bytes),
        [0, 1..=255, 0, 1..=255, ..] => from_utf_16(bytes, u16::from_be_bytes),
        _ => Ok(Cow::Borrowed(
            bytes.strip_prefix(&UTF_8_MARK).unwrap_or(bytes),
        )),
    }
}

fn from_utf_16(bytes: &[u8], order: fn([u8; 2]) -> u16) -> Result<Cow<'_, [u8]>, String> {
    let units = bytes.chunks_exact(2).map(|unit| order([unit[0], unit[1]]));
    let text: Result<String, _> = char::decode_utf16(units).collect();
    let text = text.ok().filter(|_| bytes.len().is_multiple_of(2));
    text.map(|text| Cow::Owned(text.into_bytes()))
        .ok_or_else(|| "it is damaged text in UTF-16".to_owned())
}

/// Returns JSON in which numbers that it does not have, as C prints them (`-nan`, `inf`), are −1
/// and spaces: as long as they were, and like all that is negative not known.
pub(super) fn with_finite_numbers(json: &[u8]) -> Cow<'_, [u8]> {
    let mut finite = Cow::Borrowed(json);
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = json.get(at) {
        let length = if is_text { 0 } else { not_finite(&json[at..]) };
        match byte {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            // No text of JSON goes on in the next line, but one around it may have a single
            // quotation mark.
            b'\n' => is_text = false,
            _ if length > 0 => {
                let number = &mut finite.to_mut()[at..at + length];
                number.fill(b' ');
                number[..2].copy_from_slice(b"-1");
            }
            _ => {}
        }
        at += length.max(1);
    }
    finite
}

/// Returns the length of the number that is none or infinite at the beginning of `json`; 0 if there
/// is another thing.
fn not_finite(json: &[u8]) -> usize {
    let signed = usize::from(matches!(json.first(), Some(b'-' | b'+')));
    let letters = json[signed..]
        .iter()
        .take(MAX_WORD)
        .take_while(|byte| byte.is_ascii_alphabetic())
        .count();
    let word = json[signed..signed + letters].to_ascii_lowercase();
    if matches!(&word[..], b"nan" | b"inf" | b"infinity") {
        signed + letters
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_in_every_encoding() {
        let text = "{\"host\":\"größer 😀\"}";
        let encoded =
            |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let (little, big) = (encoded(u16::to_le_bytes), encoded(u16::to_be_bytes));
        let marked = |mark: &[u8], text: &[u8]| [mark, text].concat();
        let all = [
            text.as_bytes().to_vec(),
            marked(&UTF_8_MARK, text.as_bytes()),
            marked(&[0xff, 0xfe], &little),
            marked(&[0xfe, 0xff], &big),
            little.clone(),
            big,
        ];
        for bytes in all {
            assert_eq!(
                text_in_utf_8(&bytes).as_deref(),
                Ok(text.as_bytes()),
                "{bytes:x?}"
            );
        }
        for damaged in [&little[..little.len() - 1], &[0xff, 0xfe, 0x00, 0xd8]] {
            assert_eq!(
                text_in_utf_8(damaged),
                Err("it is damaged text in UTF-16".to_owned())
            );
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_are_not_known_and_texts_stay() {
        for (written, read) in [
            (
                "[-nan,nan,NaN,inf,-inf,-Infinity]",
                "[-1  ,-1 ,-1 ,-1 ,-1  ,-1       ]",
            ),
            (
                "{\"a nan\":\"-nan \\\" inf\",\"b\":-nan}",
                "{\"a nan\":\"-nan \\\" inf\",\"b\":-1  }",
            ),
            ("[null,true,infinite,1e3]", "[null,true,infinite,1e3]"),
            (
                "cannot find \"x\n{\"a\":\"nan\"}",
                "cannot find \"x\n{\"a\":\"nan\"}",
            ),
        ] {
            assert_eq!(
                String::from_utf8_lossy(&with_finite_numbers(written.as_bytes())),
                read
            );
        }
    }
}

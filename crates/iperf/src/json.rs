//! JSON as iperf3 writes it, read the way iperf3 reads it: a value of the wrong type counts as
//! absent.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A switch: on only for JSON `true`. iperf3 up to 3.17 took any value as on, later ones do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "JsonScalar")]
pub(crate) struct Flag(pub bool);

/// A whole number. 2^64−1, which iperf3 up to 3.13 writes for −1, is −1 again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "JsonScalar")]
pub(crate) struct Whole(pub Option<i64>);

impl Whole {
    /// Returns the number, unless it is zero.
    pub(crate) fn if_any(number: i64) -> Self {
        Self(Some(number).filter(|number| *number != 0))
    }

    /// The number, if it counts something.
    pub(crate) fn to_count(self) -> Option<u64> {
        u64::try_from(self.0?).ok()
    }

    /// The number, zero if there is none.
    pub(crate) fn or_zero(self) -> i64 {
        self.0.unwrap_or(0)
    }

    /// True for a number other than zero.
    pub(crate) fn is_set(self) -> bool {
        self.or_zero() != 0
    }
}

/// Any number.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(from = "JsonScalar")]
pub(crate) struct Number(pub Option<f64>);

/// A text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "JsonScalar")]
pub(crate) struct Text(pub Option<String>);

/// Any value, kept as text: ours is read apart, so that a malformed one spoils nothing else.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Extension(Option<Box<RawValue>>);

impl Extension {
    /// The value as it was written, if there is one.
    pub(crate) fn json_text(&self) -> Option<&str> {
        self.0.as_ref().map(|value| value.get())
    }

    /// The value as `T`, if it is one.
    ///
    /// An empty JSON object of two bytes can become a structure of a kilobyte, so a text with more
    /// objects than any real report has is taken as malformed too.
    pub(crate) fn parse_value<T: DeserializeOwned>(&self) -> Option<T> {
        const MAX_OBJECTS: usize = 1 << 16;
        let text = self.json_text()?;
        if count_objects(text.as_bytes()) > MAX_OBJECTS {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

/// Returns an upper bound on the number of objects in a JSON text.
pub(crate) fn count_objects(json: &[u8]) -> usize {
    json.iter().copied().filter(|byte| *byte == b'{').count()
}

/// Reads an object; serde alone would take an array of the same values for one. As with iperf3,
/// texts need not be UTF-8: what is none is replaced.
pub(crate) fn parse_object<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_str(&String::from_utf8_lossy(json)).map_err(|error| {
        // It may quote a text of the other end, which has megabytes.
        error.to_string().chars().take(MAX_ERROR).collect()
    })
}

/// Letters of an error that are kept.
const MAX_ERROR: usize = 200;

/// Any JSON value, of which only the simple ones are kept.
enum JsonScalar {
    Bool(bool),
    Whole(i64),
    Fraction(f64),
    Text(String),
    Other,
}

impl From<JsonScalar> for Flag {
    fn from(value: JsonScalar) -> Self {
        Self(matches!(value, JsonScalar::Bool(true)))
    }
}

impl From<JsonScalar> for Whole {
    fn from(value: JsonScalar) -> Self {
        const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
        Self(match value {
            JsonScalar::Whole(number) => Some(number),
            // 2^64−1 written or rounded as a float.
            JsonScalar::Fraction(number) if number >= TWO_TO_63 => Some(-1),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the fraction goes, and the limits hold"
            )]
            JsonScalar::Fraction(number) => Some(number as i64),
            _ => None,
        })
    }
}

impl From<JsonScalar> for Number {
    fn from(value: JsonScalar) -> Self {
        Self(match value {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a float holds any time and share that is meant"
            )]
            JsonScalar::Whole(number) => Some(number as f64),
            JsonScalar::Fraction(number) => Some(number),
            _ => None,
        })
    }
}

impl From<JsonScalar> for Text {
    fn from(value: JsonScalar) -> Self {
        Self(match value {
            JsonScalar::Text(text) => Some(text),
            _ => None,
        })
    }
}

impl<'de> Deserialize<'de> for JsonScalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = JsonScalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Whole(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Whole(value.cast_signed()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<JsonScalar, E> {
        Ok(JsonScalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonScalar, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonScalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<JsonScalar, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(JsonScalar::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Probe {
        flag: Flag,
        whole: Whole,
        number: Number,
        text: Text,
        extension: Extension,
    }

    fn read(json: &str) -> Probe {
        parse_object(json.as_bytes()).unwrap()
    }

    #[test]
    fn only_true_is_on() {
        for (json, on) in [
            ("true", true),
            ("false", false),
            ("1", false),
            ("\"true\"", false),
            ("[true]", false),
        ] {
            assert_eq!(read(&format!("{{\"flag\":{json}}}")).flag.0, on, "{json}");
        }
    }

    #[test]
    fn minus_one_is_read_however_it_was_written() {
        for json in [
            "-1",
            "18446744073709551615",
            "18446744073709551616",
            "1.8446744073709552e19",
            "-1.0",
        ] {
            assert_eq!(
                read(&format!("{{\"whole\":{json}}}")).whole.0,
                Some(-1),
                "{json}"
            );
        }
        assert_eq!(
            read("{\"whole\":9223372036854775807}").whole.0,
            Some(i64::MAX)
        );
    }

    #[test]
    fn a_wrong_type_counts_as_absent() {
        let probe = read(
            r#"{"whole":"7","number":[{"a":[]}],"text":{"b":null},"flag":null,"unknown":{"c":1}}"#,
        );
        assert!(
            probe.whole.0.is_none()
                && probe.number.0.is_none()
                && probe.text.0.is_none()
                && !probe.flag.0
        );
    }

    #[test]
    fn what_is_not_an_object_is_malformed() {
        for json in ["[]", "", "7", "null", "{", "{\"whole\":1}}", "{\"whole\":}"] {
            assert!(parse_object::<Probe>(json.as_bytes()).is_err(), "{json}");
        }
        let deep = format!("{{\"unknown\":{}", "[".repeat(100_000));
        assert!(parse_object::<Probe>(deep.as_bytes()).is_err());
    }

    #[test]
    fn an_extension_that_would_blow_up_is_not_read() {
        let empty_objects = format!("{{\"extension\":[{}]}}", vec!["{}"; 70_000].join(","));
        assert!(
            read(&empty_objects)
                .extension
                .parse_value::<Vec<Probe>>()
                .is_none()
        );
        assert_eq!(
            read("{\"extension\":[{},{}]}")
                .extension
                .parse_value::<Vec<Probe>>()
                .unwrap()
                .len(),
            2
        );
    }
}

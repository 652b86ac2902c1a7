//! What shows that ranges are of one state of a file (RFC 9110, sections 8.8 and 13.1.5).

use super::head::ResponseHead;

/// Seconds between the last change and the answer from which the time of the change is a strong
/// validator: RFC 9110, section 8.8.2.2, wants one at least, RFC 7232 wanted sixty.
const STRONG_AFTER: i64 = 60;

/// A strong validator of a state of a file: two states of it do not share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validator {
    /// The entity tag, as the server has sent it.
    Tag(String),
    /// The time of the last change, as the server has sent it.
    Date(String),
}

impl Validator {
    /// Returns the strong validator of an answer, if it has one. The time of the last change counts
    /// only where there is no entity tag, not even a weak one.
    pub fn from_head(head: &ResponseHead) -> Option<Self> {
        if let Some(tag) = &head.etag {
            return is_strong_tag(tag).then(|| Self::Tag(tag.clone()));
        }
        let (text, changed) = head.last_modified.as_ref()?;
        let is_old = head.date.is_some_and(|now| now - changed >= STRONG_AFTER);
        is_old.then(|| Self::Date(text.clone()))
    }

    /// Returns the value of the field `If-Range`.
    pub fn field_value(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Date(text) => text,
        }
    }

    /// Returns true if an answer is of the same state. An answer to `If-Range` with a date may
    /// leave the date out (RFC 9110, section 15.3.7), but never the tag.
    pub fn is_same_state(&self, head: &ResponseHead) -> bool {
        match self {
            Self::Tag(tag) => head.etag.as_ref() == Some(tag),
            Self::Date(date) => {
                let modified = head.last_modified.as_ref();
                head.etag.is_none() && modified.is_none_or(|(text, _)| text == date)
            }
        }
    }
}

fn is_strong_tag(tag: &str) -> bool {
    tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 206 Partial\r\n{fields}\r\n");
        ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    const OLD: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                       Date: Sun, 06 Nov 1994 08:50:37 GMT\r\n";
    const YOUNG: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                         Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n";

    #[test]
    fn only_strong_validators_count() {
        let of = |fields: &str| Validator::from_head(&head(fields));
        assert_eq!(of("ETag: \"a\"\r\n"), Some(Validator::Tag("\"a\"".into())));
        let date = Validator::Date("Sun, 06 Nov 1994 08:49:37 GMT".into());
        assert_eq!(of(OLD), Some(date));
        assert_eq!(of(YOUNG), None);
        for weak in ["ETag: W/\"a\"\r\n", "ETag: a\r\n", "ETag: \"\r\n"] {
            assert_eq!(of(&format!("{weak}{OLD}")), None, "{weak}");
        }
        assert_eq!(of("Last-Modified: yesterday\r\n"), None);
    }

    #[test]
    fn another_state_is_found() {
        let tag = Validator::Tag("\"a\"".into());
        assert!(tag.is_same_state(&head("ETag: \"a\"\r\n")));
        for other in ["ETag: \"b\"\r\n", "ETag: W/\"a\"\r\n", ""] {
            assert!(!tag.is_same_state(&head(other)), "{other}");
        }
        let date = Validator::from_head(&head(OLD)).unwrap();
        assert!(date.is_same_state(&head(YOUNG)) && date.is_same_state(&head("")));
        let later = "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT\r\n";
        assert!(!date.is_same_state(&head(later)));
        assert!(!date.is_same_state(&head("ETag: \"a\"\r\n")));
    }
}

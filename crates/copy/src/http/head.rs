//! The head of an answer.

use fullpipe_http::{BodyFraming, HeadFields, MAX_FIELDS, MAX_HEAD, RuleBroken, parse_number};
use fullpipe_units::Span;
use httparse::{EMPTY_HEADER, Response, Status};
use jiff::fmt::rfc2822::DateTimeParser;
use thiserror::Error;

use super::digest::FileDigest;

/// The head of an answer, as far as a download needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// The way in which the body ends.
    pub framing: BodyFraming,
    /// Set unless the server closes the connection after this answer.
    pub keeps_connection: bool,
    /// Place of the body in the file.
    pub content_range: Option<ContentRange>,
    /// Entity tag of the file, weak or strong.
    pub etag: Option<String>,
    /// Time of the last change of the file, as it was sent and in seconds since 1970.
    pub last_modified: Option<(String, i64)>,
    /// Time of the answer in seconds since 1970.
    pub date: Option<i64>,
    /// Time after which to ask again; at once if it was given as a date.
    pub retry_after: Option<Span>,
    /// The URL at which to ask instead.
    pub location: Option<String>,
    /// Digests of the whole file.
    pub digests: Vec<FileDigest>,
}

/// The place of a body in the file (RFC 9110, section 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First and last byte; `None` if the range that was asked for is not in the file.
    pub range: Option<(u64, u64)>,
    /// Length of the file, where the server knows it.
    pub length: Option<u64>,
}

/// The error of bytes that are no head of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeadError {
    /// The syntax is broken.
    #[error("its answer is not HTTP/1.1: {0}")]
    Syntax(httparse::Error),
    /// The head does not end.
    #[error("the head of its answer is longer than 16 KiB")]
    TooLong,
    /// A field contradicts another one, or the protocol.
    #[error("{0}")]
    Rule(RuleBroken),
}

impl ResponseHead {
    /// Reads the head at the begin of `bytes`, and returns it with its length; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// Fails if it is none, is too long, or contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, HeadError> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut response = Response::new(&mut fields);
        match response.parse(bytes).map_err(HeadError::Syntax)? {
            Status::Complete(length) if length <= MAX_HEAD => {
                let head = Self::from_response(&response).map_err(HeadError::Rule)?;
                Ok(Some((head, length)))
            }
            Status::Partial if bytes.len() < MAX_HEAD => Ok(None),
            _ => Err(HeadError::TooLong),
        }
    }

    fn from_response(response: &Response<'_, '_>) -> Result<Self, RuleBroken> {
        let fields = HeadFields(response.headers);
        let status = response.code.unwrap_or_default();
        let is_1_1 = response.version == Some(1);
        let has_token = |token| fields.has_token("connection", token);
        let content_range = match fields.only("content-range")? {
            Some(text) => {
                Some(ContentRange::parse(text).ok_or("its Content-Range makes no sense")?)
            }
            None => None,
        };
        let date_of = |name| fields.only(name).map(|text| text.and_then(to_seconds));
        Ok(Self {
            status,
            framing: body_framing(fields, status)?,
            keeps_connection: if is_1_1 {
                !has_token("close")
            } else {
                has_token("keep-alive")
            },
            content_range,
            etag: fields.only("etag")?.map(str::to_owned),
            last_modified: fields
                .only("last-modified")?
                .and_then(|text| Some((text.to_owned(), to_seconds(text)?))),
            date: date_of("date")?,
            retry_after: fields.only("retry-after")?.map(|text| {
                let seconds = text.parse::<u32>().unwrap_or_default();
                Span::from_secs(seconds.into())
            }),
            location: fields.only("location")?.map(str::to_owned),
            digests: file_digests(fields),
        })
    }

    /// Returns true if this only says that an answer will follow (RFC 9110, section 15.2).
    pub const fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// Returns true if the file is at another URL.
    pub const fn is_redirection(&self) -> bool {
        matches!(self.status, 301 | 302 | 303 | 307 | 308)
    }

    /// Returns the length of the file, where it is known.
    pub fn file_length(&self) -> Option<u64> {
        match (self.content_range, self.framing) {
            (Some(range), _) => range.length,
            (None, BodyFraming::Length(length)) => Some(length),
            (None, _) => None,
        }
    }
}

/// Returns the seconds since 1970 of a date, which is one of RFC 9110, section 5.6.7, in its
/// preferred form.
fn to_seconds(text: &str) -> Option<i64> {
    let parsed = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(parsed.as_second())
}

/// Returns the way in which the body of an answer ends (RFC 9112, section 6.3).
fn body_framing(fields: HeadFields<'_>, status: u16) -> Result<BodyFraming, RuleBroken> {
    if matches!(status, 100..=199 | 204 | 304) {
        return Ok(BodyFraming::Length(0));
    }
    Ok(fields.stated_framing()?.unwrap_or(BodyFraming::UntilClose))
}

/// Returns the digests that are of the whole file: `Repr-Digest` (RFC 9530), and `Digest`
/// (RFC 3230), which it replaces.
fn file_digests(fields: HeadFields<'_>) -> Vec<FileDigest> {
    let stated = fields
        .elements("repr-digest")
        .chain(fields.elements("digest"));
    stated.filter_map(FileDigest::from_field).collect()
}

impl ContentRange {
    fn parse(text: &str) -> Option<Self> {
        let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
        let length = match length {
            "*" => None,
            length => Some(parse_number(length)?),
        };
        if range == "*" {
            return length.map(|_| Self {
                range: None,
                length,
            });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (parse_number(first)?, parse_number(last)?);
        let is_sound = first <= last && length.is_none_or(|length| last < length);
        is_sound.then_some(Self {
            range: Some((first, last)),
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same is fuzzed for longer.
        #[test]
        fn whatever_comes_is_read_or_refused(at in 0_usize..120, with in any::<[u8; 3]>()) {
            let head = "HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\
                        ETag: \"a\"\r\nRepr-Digest: sha-256=:AA==:\r\nRetry-After: 1\r\n\r\n";
            let mut bytes = head.as_bytes().to_vec();
            bytes.splice(at..at + 3, with);
            if let Ok(Some((head, length))) = ResponseHead::parse(&bytes) {
                prop_assert!(length <= bytes.len());
                let range = head.content_range.and_then(|found| found.range);
                prop_assert!(range.is_none_or(|(first, last)| first <= last));
            }
        }
    }

    fn parse(fields: &str) -> Result<ResponseHead, HeadError> {
        let text = format!("HTTP/1.1 206 Partial Content\r\n{fields}\r\nbody");
        ResponseHead::parse(text.as_bytes()).map(|found| {
            let (head, length) = found.unwrap();
            assert_eq!(&text[length..], "body");
            head
        })
    }

    #[test]
    fn a_head_says_where_its_body_belongs() {
        let head = parse(
            "Content-Range: bytes 5-9/20\r\nContent-Length: 5\r\nETag: \"x\"\r\n\
             Last-Modified: Thu, 01 Jan 1970 00:00:07 GMT\r\nConnection: Keep-Alive, Close\r\n",
        )
        .unwrap();
        let range = ContentRange {
            range: Some((5, 9)),
            length: Some(20),
        };
        assert_eq!(head.content_range, Some(range));
        assert_eq!((head.status, head.framing), (206, BodyFraming::Length(5)));
        assert_eq!(
            (head.file_length(), head.keeps_connection),
            (Some(20), false)
        );
        assert_eq!(head.last_modified.unwrap().1, 7);
    }

    #[test]
    fn a_body_ends_in_one_way() {
        let framing = |fields| parse(fields).map(|head| head.framing);
        assert_eq!(framing(""), Ok(BodyFraming::UntilClose));
        assert_eq!(
            framing("Transfer-Encoding: Chunked\r\n"),
            Ok(BodyFraming::Chunked)
        );
        assert_eq!(
            framing("Content-Length: 5\r\nContent-Length: 5\r\n"),
            Ok(BodyFraming::Length(5))
        );
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: -5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            assert!(framing(fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        for range in [
            "bytes 9-5/20",
            "bytes 5-20/20",
            "bytes -5/20",
            "bytes 5-/20",
            "bytes */*",
            "items 1-2/3",
            "bytes 5-9",
            "5-9/20",
            "",
        ] {
            assert!(
                parse(&format!("Content-Range: {range}\r\n")).is_err(),
                "{range}"
            );
        }
        let unsatisfied = parse("Content-Range: bytes */0\r\n").unwrap();
        assert_eq!(unsatisfied.file_length(), Some(0));
        assert_eq!(
            parse("Content-Range: bytes 5-9/*\r\n")
                .unwrap()
                .file_length(),
            None
        );
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let begin = "HTTP/1.1 200 OK\r\nX: ";
        assert_eq!(ResponseHead::parse(begin.as_bytes()), Ok(None));
        let long = format!("{begin}{}", "x".repeat(MAX_HEAD));
        assert_eq!(
            ResponseHead::parse(long.as_bytes()),
            Err(HeadError::TooLong)
        );
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200));
        assert!(ResponseHead::parse(many.as_bytes()).is_err());
        assert!(ResponseHead::parse(b"SSH-2.0-OpenSSH_10.2\r\n").is_err());
    }
}

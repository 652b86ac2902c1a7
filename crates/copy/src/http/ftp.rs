//! Replies of an FTP server (RFC 959, RFC 2428 and RFC 3659), and the head of an answer over HTTP
//! that says the same of a file.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use fullpipe_http::{BodyFraming, MAX_HEAD, RuleBroken};

use super::head::{ContentRange, ResponseHead};

/// A reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtpReply {
    /// Its number of three digits.
    pub code: u16,
    /// The text of its last line.
    pub text: String,
}

impl FtpReply {
    /// Reads the reply at the begin of `bytes`, and returns it with its length; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// Fails if it is none, or does not end within [`MAX_HEAD`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, RuleBroken> {
        let mut first = None;
        let mut length = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            length += line.len();
            if !line.ends_with(b"\n") {
                break;
            }
            let (digits, rest) = line.split_at(line.len().min(3));
            let code = str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok());
            let code = code.filter(|code| (100..600).contains(code));
            let is_last = !rest.starts_with(b"-");
            match (first, code) {
                (None, None) => return Err("its answer is not FTP"),
                (None, Some(code)) if !is_last => first = Some(code),
                (None, Some(code)) => return Ok(Some((Self::new(code, rest), length))),
                (Some(begun), Some(code)) if begun == code && rest.starts_with(b" ") => {
                    return Ok(Some((Self::new(code, rest), length)));
                }
                (Some(_), _) => {}
            }
        }
        if bytes.len() < MAX_HEAD {
            Ok(None)
        } else {
            Err("a reply of it is longer than 16 KiB")
        }
    }

    fn new(code: u16, rest: &[u8]) -> Self {
        let text = String::from_utf8_lossy(rest).trim().to_owned();
        Self { code, text }
    }

    /// Returns true if the command was carried out.
    pub const fn is_done(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns the port at which the server waits for the connection of data: of a reply to `EPSV`
    /// (RFC 2428, section 3), or to `PASV`, whose address is not looked at: it could be anyone's.
    pub fn data_port(&self) -> Option<u16> {
        let (_, inner) = self.text.split_once('(')?;
        let (inner, _) = inner.split_once(')')?;
        let port = if self.code == 229 {
            let delimiter = inner.chars().next()?;
            let mut parts = inner.split(delimiter).skip(3);
            parts.next()?.parse().ok()?
        } else {
            let numbers: Result<Vec<u8>, _> = inner.split(',').map(str::parse).collect();
            let [_, _, _, _, high, low] = numbers.ok()?.try_into().ok()?;
            u16::from_be_bytes([high, low])
        };
        (port > 0).then_some(port)
    }

    /// Returns the size of a file, of a reply to `SIZE` (RFC 3659, section 4).
    pub fn file_size(&self) -> Option<u64> {
        self.text.parse().ok().filter(|_| self.code == 213)
    }

    /// Returns the time of the last change of a file in seconds since 1970, of a reply to `MDTM`
    /// (RFC 3659, section 3).
    pub fn modified_seconds(&self) -> Option<i64> {
        let seconds = self.text.get(..14).filter(|_| self.code == 213)?;
        let time = DateTime::strptime("%Y%m%d%H%M%S", seconds).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?;
        Some(time.timestamp().as_second())
    }
}

/// What an FTP server says of a file.
#[derive(Clone, Default)]
pub(crate) struct FtpFile {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of the last change, as it was sent and in seconds since 1970.
    pub modified: Option<(String, i64)>,
    /// Parts of it can be had.
    pub has_parts: bool,
}

impl FtpFile {
    /// Returns the head of an answer at `now`, in seconds since 1970, that sends the part of the file
    /// that is in this `range`, or the file. The server itself does not say what time it is.
    pub(crate) fn response_head(self, range: Option<(u64, u64)>, now: i64) -> ResponseHead {
        let (status, range, framing) = match (range.filter(|_| self.has_parts), self.size) {
            (Some((first, last)), Some(size)) if first < size => {
                let last = last.min(size - 1);
                let length = BodyFraming::Length(last - first + 1);
                (206, Some((first, last)), length)
            }
            (Some(_), Some(_)) => (416, None, BodyFraming::Length(0)),
            (_, size) => (
                200,
                None,
                size.map_or(BodyFraming::UntilClose, BodyFraming::Length),
            ),
        };
        let length = self.size;
        ResponseHead {
            status,
            framing,
            keeps_connection: false,
            content_range: (status != 200).then_some(ContentRange { range, length }),
            etag: None,
            last_modified: self.modified,
            date: Some(now),
            retry_after: None,
            location: None,
            digests: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> FtpReply {
        FtpReply::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_reply_ends_with_the_line_that_has_its_code_and_a_space() {
        let long = "220-Welcome\r\n 221 no\r\n221 nor this\r\n220-nor\r\n220 now\r\n331 next\r\n";
        let (found, length) = FtpReply::parse(long.as_bytes()).unwrap().unwrap();
        assert_eq!((found.code, found.text.as_str()), (220, "now"));
        assert_eq!(&long[length..], "331 next\r\n");
        assert_eq!(reply("200\n").text, "");
        for part in [
            "",
            "2",
            "220 not yet",
            "220-a\r\n220 b",
            "220-a\r\n220-b\r\n",
        ] {
            assert_eq!(FtpReply::parse(part.as_bytes()), Ok(None), "{part}");
        }
        for none in [
            "\r\n",
            "ab\r\n",
            "999 a\r\n",
            "SSH-2.0-x\r\n",
            "20\n",
            "+20 a\n",
        ] {
            assert!(FtpReply::parse(none.as_bytes()).is_err(), "{none}");
        }
        assert!(FtpReply::parse(&[b'2'; MAX_HEAD]).is_err());
    }

    #[test]
    fn a_port_is_one_at_the_same_host() {
        let port = |text: &str| reply(text).data_port();
        assert_eq!(port("229 Extended (|||6446|)\r\n"), Some(6446));
        assert_eq!(port("229 Extended (!!!6446!)\r\n"), Some(6446));
        assert_eq!(port("227 Passive (10,0,0,1,25,46).\r\n"), Some(6446));
        for none in [
            "229 (|||0|)\r\n",
            "229 (|||65536|)\r\n",
            "229 ()\r\n",
            "229 (|||\r\n",
            "227 (1,2,3,4,5)\r\n",
            "227 (1,2,3,4,0,0)\r\n",
            "227 (1,2,3,4,256,0)\r\n",
            "227 none\r\n",
        ] {
            assert_eq!(port(none), None, "{none}");
        }
    }

    #[test]
    fn size_and_time_are_read_of_their_replies_alone() {
        assert_eq!(reply("213 4294967296\r\n").file_size(), Some(1 << 32));
        assert_eq!(reply("550 12\r\n").file_size(), None);
        let time = |text: &str| reply(text).modified_seconds();
        assert_eq!(time("213 19941106084937\r\n"), Some(784_111_777));
        assert_eq!(time("213 19941106084937.123\r\n"), Some(784_111_777));
        for none in [
            "213 1994110608493\r\n",
            "213 19941306084937\r\n",
            "550 19941106084937\r\n",
        ] {
            assert_eq!(time(none), None, "{none}");
        }
    }

    #[test]
    fn a_file_has_the_head_that_http_would_give_it() {
        let head = |size, range| {
            let file = FtpFile {
                size,
                modified: None,
                has_parts: true,
            };
            file.response_head(range, 0)
        };
        let part = head(Some(10), Some((4, 99)));
        assert_eq!((part.status, part.framing), (206, BodyFraming::Length(6)));
        assert_eq!(part.content_range.unwrap().range, Some((4, 9)));
        let whole = head(Some(10), None);
        assert_eq!((whole.status, whole.file_length()), (200, Some(10)));
        let unknown = head(None, Some((0, 9)));
        assert_eq!((unknown.status, unknown.file_length()), (200, None));
        let beyond = head(Some(0), Some((0, 9)));
        assert_eq!((beyond.status, beyond.file_length()), (416, Some(0)));
    }
}

//! The body of an answer (RFC 9112, sections 6 and 7).

use crate::RuleBroken;

/// Bytes of a line between two chunks at most.
const MAX_LINE: usize = 4096;

/// The way in which a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// After so many bytes.
    Length(u64),
    /// After the last of its chunks.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// Finds the content in the bytes of a body.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: DecoderState,
    /// Bytes of the line that is being read, without its end.
    line: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    /// So many bytes of content follow; then, in a chunked body, the end of the chunk.
    Content {
        left: u64,
        is_chunk: bool,
    },
    ChunkEnd,
    ChunkSize,
    Trailer,
    UntilClose,
    Ended,
}

/// What stands at the begin of bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyPart {
    /// So many bytes of content.
    Content(usize),
    /// So many bytes that are no content.
    Framing(usize),
    /// Nothing: the body has ended before.
    End,
}

impl BodyDecoder {
    /// Returns the decoder of a body of which nothing was read.
    pub const fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Length(0) => DecoderState::Ended,
            BodyFraming::Length(left) => DecoderState::Content {
                left,
                is_chunk: false,
            },
            BodyFraming::Chunked => DecoderState::ChunkSize,
            BodyFraming::UntilClose => DecoderState::UntilClose,
        };
        Self {
            state,
            line: Vec::new(),
        }
    }

    /// Returns true if nothing follows.
    pub fn has_ended(&self) -> bool {
        self.state == DecoderState::Ended
    }

    /// Returns true if the end of the connection would be the end of the body.
    pub fn may_end(&self) -> bool {
        matches!(self.state, DecoderState::Ended | DecoderState::UntilClose)
    }

    /// Takes the begin of `bytes`, at most `most` of content. All that it returns is taken.
    ///
    /// # Errors
    /// Fails if a chunk breaks the rules.
    pub fn take_part(&mut self, bytes: &[u8], most: usize) -> Result<BodyPart, RuleBroken> {
        let content = bytes.len().min(most);
        match &mut self.state {
            DecoderState::Ended => Ok(BodyPart::End),
            DecoderState::UntilClose => Ok(BodyPart::Content(content)),
            DecoderState::Content { left, is_chunk } => {
                let taken = content.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    let is_chunk = *is_chunk;
                    self.state = if is_chunk {
                        DecoderState::ChunkEnd
                    } else {
                        DecoderState::Ended
                    };
                }
                Ok(BodyPart::Content(taken))
            }
            _ => self.take_line(bytes),
        }
    }

    /// Takes the rest of a line, or all bytes if it does not end in them.
    fn take_line(&mut self, bytes: &[u8]) -> Result<BodyPart, RuleBroken> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend(&bytes[..end.unwrap_or(taken)]);
        if self.line.len() > MAX_LINE {
            return Err("a line between the chunks of its answer is too long");
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            self.end_line(line.strip_suffix(b"\r").unwrap_or(&line))?;
        }
        Ok(BodyPart::Framing(taken))
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), RuleBroken> {
        self.state = match self.state {
            DecoderState::ChunkEnd if line.is_empty() => DecoderState::ChunkSize,
            DecoderState::ChunkEnd => return Err("a chunk of its answer is longer than it says"),
            DecoderState::ChunkSize => match chunk_size(line) {
                None => return Err("a chunk of its answer has no size"),
                Some(0) => DecoderState::Trailer,
                Some(left) => DecoderState::Content {
                    left,
                    is_chunk: true,
                },
            },
            _ if line.is_empty() => DecoderState::Ended,
            other => other,
        };
        Ok(())
    }
}

/// Reads the size of a chunk, in hexadecimal digits; extensions after `;` are skipped.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let is_size = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = str::from_utf8(digits).ok().filter(|_| is_size)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the content of a body that comes in pieces of so many bytes, and what follows it.
    fn decode(
        framing: BodyFraming,
        body: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, bool), RuleBroken> {
        let (mut decoder, mut content, mut at) = (BodyDecoder::new(framing), Vec::new(), 0);
        while at < body.len() && !decoder.has_ended() {
            let bytes = &body[at..body.len().min(at + piece)];
            match decoder.take_part(bytes, usize::MAX)? {
                BodyPart::Content(count) => {
                    content.extend(&bytes[..count]);
                    at += count;
                }
                BodyPart::Framing(count) => at += count,
                BodyPart::End => break,
            }
        }
        Ok((content, decoder.may_end()))
    }

    #[test]
    fn chunks_are_joined_however_they_come() {
        let body = b"5\r\nhello\r\n00000a; x=y\r\n, my world\r\n0\r\nX: y\r\n\r\nnext";
        for piece in 1..body.len() {
            let decoded = decode(BodyFraming::Chunked, body, piece).unwrap();
            assert_eq!(decoded, (b"hello, my world".to_vec(), true), "{piece}");
        }
        let torn = decode(BodyFraming::Chunked, &body[..20], 7).unwrap();
        assert!(!torn.1);
    }

    #[test]
    fn chunks_that_break_the_rules_are_refused() {
        for body in [
            "x\r\n",
            "\r\n",
            "-1\r\n",
            "12345678901234567\r\n",
            "1\r\nab\r\n",
        ] {
            assert!(
                decode(BodyFraming::Chunked, body.as_bytes(), 3).is_err(),
                "{body}"
            );
        }
        let endless = vec![b'1'; MAX_LINE + 2];
        assert!(decode(BodyFraming::Chunked, &endless, 100).is_err());
    }

    #[test]
    fn a_length_ends_a_body() {
        let whole = decode(BodyFraming::Length(3), b"abcdef", 2).unwrap();
        assert_eq!(whole, (b"abc".to_vec(), true));
        assert!(!decode(BodyFraming::Length(9), b"abcdef", 2).unwrap().1);
        assert!(decode(BodyFraming::UntilClose, b"abc", 2).unwrap().1);
    }
}

//! Frames of a WebSocket (RFC 6455, section 5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::RuleBroken;

/// Payload of a message at most, in bytes: the largest that ndt7 has.
pub const MAX_MESSAGE: u64 = 1 << 24;

/// Payload of a message of text at most.
const MAX_TEXT: usize = 1 << 16;

/// Payload of a control frame at most (section 5.5).
const MAX_CONTROL: u64 = 125;

/// Bytes of a frame before its payload at most.
const MAX_HEADER: usize = 14;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// A further part of a message.
    Continuation = 0,
    /// A message of text, or its first part.
    Text = 1,
    /// A message of bytes, or its first part.
    Binary = 2,
    /// The end of what this end sends.
    Close = 8,
    /// A request for a [`Opcode::Pong`] with the same payload.
    Ping = 9,
    /// The answer.
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        [
            Self::Continuation,
            Self::Text,
            Self::Binary,
            Self::Close,
            Self::Ping,
            Self::Pong,
        ]
        .into_iter()
        .find(|opcode| *opcode as u8 == bits)
    }

    const fn is_control(self) -> bool {
        self as u8 & 8 != 0
    }
}

/// The end of a connection: a client masks the payload of its frames, a server does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebSocketRole {
    /// The end that asked for the WebSocket.
    Client,
    /// The end that accepted it.
    Server,
}

/// Returns the proof that a server has read the key of a request (section 4.2.2).
pub fn accept_key(key: &str) -> String {
    const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    STANDARD.encode(Sha1::digest(format!("{key}{SUFFIX}")))
}

/// Appends the header of an unfragmented frame with `length` bytes of payload to `into`. What
/// follows counts as masked with `mask`, where there is one.
pub fn push_frame_header(opcode: Opcode, length: u64, mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    into.push(0x80 | opcode as u8);
    match length {
        0..=125 => into.push(masked | length as u8),
        126..=0xffff => {
            into.push(masked | 0x7e);
            into.extend((length as u16).to_be_bytes());
        }
        _ => {
            into.push(masked | 0x7f);
            into.extend(length.to_be_bytes());
        }
    }
    into.extend(mask.into_iter().flatten());
}

/// Appends an unfragmented frame to `into`, with its payload masked by `mask`, where there is one.
pub fn push_frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, into: &mut Vec<u8>) {
    push_frame_header(opcode, payload.len() as u64, mask, into);
    let key = mask.unwrap_or_default().into_iter().cycle();
    into.extend(payload.iter().zip(key).map(|(byte, key)| byte ^ key));
}

/// What stands in the frames of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameEvent {
    /// Nothing that is complete.
    Nothing,
    /// So many bytes of a message of bytes, of whose content nothing is kept.
    Binary(usize),
    /// A message of text.
    Text(Vec<u8>),
    /// A [`Opcode::Ping`], with the payload that the answer is to have.
    Ping(Vec<u8>),
    /// The other end sends no more.
    Close,
}

/// Finds messages in the bytes of the other end. It holds no payload but that of text and of
/// control frames.
#[derive(Debug, Clone)]
pub struct FrameReader {
    /// True if the other end is to mask its payload.
    is_masked: bool,
    header: Vec<u8>,
    frame: Option<Frame>,
    /// The kind of the message whose last frame has not come.
    message: Option<Opcode>,
    /// Payload of that message so far.
    message_bytes: u64,
    text: Vec<u8>,
    control: Vec<u8>,
}

/// A frame whose header has come.
#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    mask: [u8; 4],
    length: u64,
    /// Payload that is still to come.
    left: u64,
}

impl FrameReader {
    /// Returns the reader of the end that plays `role`: it reads frames of the other one.
    pub const fn new(role: WebSocketRole) -> Self {
        Self {
            is_masked: matches!(role, WebSocketRole::Server),
            header: Vec::new(),
            frame: None,
            message: None,
            message_bytes: 0,
            text: Vec::new(),
            control: Vec::new(),
        }
    }

    /// Takes the begin of `bytes`, and returns how many were taken, at least one if there is one,
    /// and what they end.
    ///
    /// # Errors
    /// Fails if they break the rules. Then nothing that follows can be read.
    pub fn take_part(&mut self, bytes: &[u8]) -> Result<(usize, FrameEvent), RuleBroken> {
        if let Some(frame) = self.frame {
            let taken = bytes
                .len()
                .min(usize::try_from(frame.left).unwrap_or(usize::MAX));
            return Ok((taken, self.take_payload(frame, &bytes[..taken])?));
        }
        let (before, wanted) = (self.header.len(), header_length(&self.header));
        let taken = bytes.len().min(wanted - before);
        self.header.extend(&bytes[..taken]);
        if self.header.len() < header_length(&self.header) || taken == 0 {
            return Ok((taken, FrameEvent::Nothing));
        }
        let frame = self.begin_frame()?;
        self.header.clear();
        self.frame = Some(frame);
        if frame.left == 0 {
            return Ok((taken, self.take_payload(frame, &[])?));
        }
        Ok((taken, FrameEvent::Nothing))
    }

    /// Reads the header that has come, and checks that its frame may come here.
    fn begin_frame(&mut self) -> Result<Frame, RuleBroken> {
        let [first, second] = [self.header[0], self.header[1]];
        if first & 0x70 != 0 {
            return Err("a frame has an extension that was not agreed on");
        }
        let opcode = Opcode::from_bits(first & 15).ok_or("a frame is of no known kind")?;
        let is_last = first & 0x80 != 0;
        if (second & 0x80 != 0) != self.is_masked {
            return Err("a frame is masked where it must not be, or not where it must");
        }
        let (length, after) = match second & 0x7f {
            126 => (
                u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
                4,
            ),
            127 => {
                let stated = self.header[2..].first_chunk().copied().unwrap_or_default();
                (u64::from_be_bytes(stated), 10)
            }
            short => (short.into(), 2),
        };
        let mask = self.header[after..]
            .first_chunk()
            .copied()
            .unwrap_or_default();
        if opcode.is_control() {
            if length > MAX_CONTROL || !is_last {
                return Err("a control frame is too long or comes in parts");
            }
        } else {
            self.begin_data(opcode, length)?;
        }
        Ok(Frame {
            opcode,
            is_last,
            mask,
            length,
            left: length,
        })
    }

    fn begin_data(&mut self, opcode: Opcode, length: u64) -> Result<(), RuleBroken> {
        if (opcode == Opcode::Continuation) != self.message.is_some() {
            return Err("the parts of a message are not in a row");
        }
        let kind = *self.message.get_or_insert(opcode);
        self.message_bytes = self.message_bytes.saturating_add(length);
        let most = if kind == Opcode::Text {
            MAX_TEXT as u64
        } else {
            MAX_MESSAGE
        };
        if self.message_bytes > most {
            return Err("a message is longer than 16 MiB, or than 64 KiB of text");
        }
        Ok(())
    }

    fn take_payload(&mut self, frame: Frame, payload: &[u8]) -> Result<FrameEvent, RuleBroken> {
        let left = frame.left - payload.len() as u64;
        self.frame = (left > 0).then_some(Frame { left, ..frame });
        let kind = if frame.opcode.is_control() {
            frame.opcode
        } else {
            self.message.ok_or("a message has no begin")?
        };
        if kind == Opcode::Binary {
            self.end_data(frame, left);
            return Ok(FrameEvent::Binary(payload.len()));
        }
        let kept = if kind == Opcode::Text {
            &mut self.text
        } else {
            &mut self.control
        };
        let key = frame.mask.into_iter().cycle();
        let skipped = (frame.length - frame.left) as usize % 4;
        kept.extend(
            payload
                .iter()
                .zip(key.skip(skipped))
                .map(|(byte, key)| byte ^ key),
        );
        if left > 0 || (kind == Opcode::Text && !frame.is_last) {
            return Ok(FrameEvent::Nothing);
        }
        Ok(match kind {
            Opcode::Text => {
                self.end_data(frame, left);
                FrameEvent::Text(std::mem::take(&mut self.text))
            }
            Opcode::Ping => FrameEvent::Ping(std::mem::take(&mut self.control)),
            Opcode::Close => FrameEvent::Close,
            _ => {
                self.control.clear();
                FrameEvent::Nothing
            }
        })
    }

    fn end_data(&mut self, frame: Frame, left: u64) {
        if left == 0 && frame.is_last {
            self.message = None;
            self.message_bytes = 0;
        }
    }
}

/// Returns the length of a header that begins with `header`, as far as that can be known.
fn header_length(header: &[u8]) -> usize {
    let Some(second) = header.get(1) else {
        return 2;
    };
    let stated = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    (2 + stated + mask).min(MAX_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what is read of bytes that come in pieces, with the parts of binary messages joined.
    fn read(
        role: WebSocketRole,
        bytes: &[u8],
        piece: usize,
    ) -> Result<Vec<FrameEvent>, RuleBroken> {
        let (mut reader, mut events) = (FrameReader::new(role), Vec::new());
        for mut part in bytes.chunks(piece) {
            while !part.is_empty() {
                let (taken, event) = reader.take_part(part)?;
                assert!(taken > 0);
                part = &part[taken..];
                match (event, events.last_mut()) {
                    (FrameEvent::Nothing, _) => {}
                    (FrameEvent::Binary(more), Some(FrameEvent::Binary(bytes))) => *bytes += more,
                    (event, _) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    #[test]
    fn the_proof_of_a_key_is_that_of_the_standard() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn frames_are_read_however_they_come() {
        for (role, mask) in [
            (WebSocketRole::Client, None),
            (WebSocketRole::Server, Some([1, 2, 3, 4])),
        ] {
            let mut bytes = Vec::new();
            for length in [0, 125, 126, 70_000] {
                push_frame(Opcode::Binary, &vec![7; length], mask, &mut bytes);
            }
            push_frame(Opcode::Text, b"{\"a\":1}", mask, &mut bytes);
            push_frame(Opcode::Ping, b"p", mask, &mut bytes);
            push_frame(Opcode::Pong, b"q", mask, &mut bytes);
            push_frame(Opcode::Close, &1000_u16.to_be_bytes(), mask, &mut bytes);
            let expected = vec![
                FrameEvent::Binary(125 + 126 + 70_000),
                FrameEvent::Text(b"{\"a\":1}".to_vec()),
                FrameEvent::Ping(b"p".to_vec()),
                FrameEvent::Close,
            ];
            for piece in [1, 2, 3, 7, 64, 1 << 17] {
                assert_eq!(read(role, &bytes, piece), Ok(expected.clone()), "{piece}");
            }
        }
    }

    #[test]
    fn text_in_parts_is_joined_with_a_ping_between_them() {
        let bytes = b"\x01\x02ab\x89\x00\x80\x01c";
        let expected = vec![
            FrameEvent::Ping(Vec::new()),
            FrameEvent::Text(b"abc".to_vec()),
        ];
        assert_eq!(read(WebSocketRole::Client, bytes, 1), Ok(expected));
    }

    #[test]
    fn frames_that_break_the_rules_are_refused() {
        let huge = [&[0x82, 127][..], &(MAX_MESSAGE + 1).to_be_bytes()].concat();
        let text = [&[0x81, 127][..], &70_000_u64.to_be_bytes()].concat();
        for bytes in [
            &[0xc2, 0][..],
            &[0x83, 0],
            &[0x82, 0x80, 0, 0, 0, 0],
            &[0x89, 126, 0, 126],
            &[0x09, 0],
            &[0x80, 0],
            &[0x02, 0, 0x82, 0],
            &huge,
            &text,
        ] {
            assert!(read(WebSocketRole::Client, bytes, 1).is_err(), "{bytes:x?}");
        }
        assert!(read(WebSocketRole::Server, &[0x82, 0], 1).is_err());
        let endless: Vec<u8> = std::iter::once(0x01)
            .chain([126, 0xff, 0xff])
            .chain(vec![b'x'; 0xffff])
            .chain([0x00, 2, b'y', b'z'])
            .collect();
        assert!(read(WebSocketRole::Client, &endless, 4096).is_err());
    }

    proptest! {
        /// The same is fuzzed for longer.
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1_usize..40) {
            let _ = read(WebSocketRole::Client, &bytes, piece);
            let _ = read(WebSocketRole::Server, &bytes, piece);
        }
    }
}

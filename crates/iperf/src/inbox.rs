use std::fmt;

use fullpipe_units::ByteCount;
use serde::Serialize;

use crate::TestError;

/// The JSON messages of the protocol, each behind its length in four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonMessage {
    /// Client to server, before the data connections.
    Parameters,
    /// Server to client, both fullpipe, while data flows: behind its state byte.
    Report,
    /// Client to server and back, after the data.
    Results,
}

impl JsonMessage {
    /// The longest that is accepted: 16 KiB of parameters (iperf3 sends less than 8 KiB), 1 MiB of
    /// a report (a snapshot of 256 streams has half of that), and 16 MiB of a server's results
    /// (they may hold its whole output, or our samples).
    pub const fn max_length(self) -> ByteCount {
        match self {
            Self::Parameters => ByteCount::from_kib(16),
            Self::Report => ByteCount::from_mib(1),
            Self::Results => ByteCount::from_mib(16),
        }
    }
}

/// Returns the longest results that a server accepts from a client with so many data connections: 8
/// KiB, and twice what iperf3 writes for each. A server holds them of clients that it does not
/// know.
pub(crate) fn client_results_limit(connections: u16) -> ByteCount {
    const STREAM: u64 = 512;
    ByteCount::from_kib(8) + ByteCount::new(STREAM * u64::from(connections))
}

impl fmt::Display for JsonMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameters => "parameters",
            Self::Report => "interim results",
            Self::Results => "results",
        })
    }
}

/// `value` as JSON behind its length.
pub(crate) fn frame_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX];
    serde_json::to_writer(&mut bytes, value)
        .expect("plain structs with text keys always become JSON");
    let length = u32::try_from(bytes.len() - PREFIX).expect("messages are cut far below 4 GiB");
    bytes[..PREFIX].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Bytes that arrived and were not yet understood.
#[derive(Debug, Default)]
pub(crate) struct ControlInbox {
    held: Vec<u8>,
}

impl ControlInbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.held.first().copied()
    }

    pub(crate) fn starts_with(&self, bytes: &[u8]) -> bool {
        self.held.starts_with(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn take_bytes(&mut self, count: usize) -> Vec<u8> {
        let rest = self.held.split_off(count.min(self.held.len()));
        std::mem::replace(&mut self.held, rest)
    }

    /// Drops everything, and the memory with it.
    pub(crate) fn clear_bytes(&mut self) {
        self.held = Vec::new();
    }

    /// The JSON text of `message`, which comes next, once it is complete. Its length is judged
    /// before any of it is waited for, so no more than the limit and one call's bytes are ever
    /// held.
    pub(crate) fn take_message(
        &mut self,
        message: JsonMessage,
    ) -> Result<Option<Vec<u8>>, TestError> {
        self.take_behind(0, message, message.max_length())
    }

    /// [`ControlInbox::take_message`] of at most `limit` bytes.
    pub(crate) fn take_within(
        &mut self,
        message: JsonMessage,
        limit: ByteCount,
    ) -> Result<Option<Vec<u8>>, TestError> {
        self.take_behind(0, message, limit)
    }

    /// [`ControlInbox::take_message`] for a `message` behind the state byte that announces it.
    pub(crate) fn take_behind_state(
        &mut self,
        message: JsonMessage,
    ) -> Result<Option<Vec<u8>>, TestError> {
        self.take_behind(1, message, message.max_length())
    }

    fn take_behind(
        &mut self,
        states: usize,
        message: JsonMessage,
        limit: ByteCount,
    ) -> Result<Option<Vec<u8>>, TestError> {
        let behind = self.held.get(states..);
        let Some(prefix) = behind.and_then(<[u8]>::first_chunk::<PREFIX>) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix);
        let announced = ByteCount::new(u64::from(length));
        if announced > limit {
            return Err(TestError::Oversized {
                message,
                length: announced,
                limit,
            });
        }
        if self.held.len() < states + PREFIX + length as usize {
            return Ok(None);
        }
        self.take_bytes(states + PREFIX);
        Ok(Some(self.take_bytes(length as usize)))
    }
}

/// Bytes of the length before a message.
pub(crate) const PREFIX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_its_last_byte_and_leaves_what_follows() {
        let mut inbox = ControlInbox::default();
        let mut bytes = frame_json(&serde_json::json!({"time": 1}));
        assert_eq!(bytes, b"\x00\x00\x00\x0a{\"time\":1}");
        bytes.push(4);
        for byte in &bytes[..13] {
            inbox.push(&[*byte]);
            assert_eq!(inbox.take_message(JsonMessage::Parameters), Ok(None));
        }
        inbox.push(&bytes[13..]);
        assert_eq!(
            inbox.take_message(JsonMessage::Parameters),
            Ok(Some(b"{\"time\":1}".to_vec()))
        );
        assert_eq!(inbox.first_byte(), Some(4));
    }

    #[test]
    fn an_oversized_message_is_refused_by_its_length_alone() {
        for (message, longest) in [
            (JsonMessage::Parameters, 16_384_u32),
            (JsonMessage::Report, 1_048_576),
            (JsonMessage::Results, 16_777_216),
        ] {
            let mut inbox = ControlInbox::default();
            inbox.push(&longest.to_be_bytes());
            assert_eq!(inbox.take_message(message), Ok(None));
            inbox.clear_bytes();
            inbox.push(&(longest + 1).to_be_bytes());
            assert!(matches!(
                inbox.take_message(message),
                Err(TestError::Oversized { .. })
            ));
        }
    }
}

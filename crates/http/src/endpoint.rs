//! One end of a test of ndt7, after its WebSocket was accepted: bytes ↔ what they mean.

use fullpipe_record::TcpInfo;
use fullpipe_units::Span;

use crate::websocket::push_frame;
use crate::{
    FrameEvent, FrameReader, MESSAGE_INTERVAL, MessageSizes, Ndt7AppInfo, Ndt7Connection,
    Ndt7Message, Ndt7TcpInfo, Opcode, RuleBroken, WebSocketRole, push_frame_header,
};

/// Messages of the other end that are kept: ten a second for the longest test, and some more.
const MAX_KEPT: usize = 200;

/// Bytes of pongs that may wait to be sent.
const MAX_PONGS: usize = 4096;

/// Bytes of a message that are handed over at once. They stay in the processor's cache.
const PIECE: usize = 64 << 10;

/// One end of a test.
#[derive(Debug, Clone)]
pub struct Ndt7Endpoint {
    role: WebSocketRole,
    is_download: bool,
    reader: FrameReader,
    sizes: MessageSizes,
    /// Bytes of the message of bytes under way that are still to be sent.
    left: u64,
    /// The mask of a client's frames.
    mask: Option<[u8; 4]>,
    /// Stated in the first message of a server.
    connection: Option<Ndt7Connection>,
    message_due: Span,
    pongs: Vec<u8>,
    /// Payload of messages of bytes so far.
    bytes: u64,
    received: Vec<Ndt7Message>,
    close: CloseState,
    /// True if the other end closed the connection without a close frame.
    is_left: bool,
}

/// How far both ends have closed.
#[derive(Debug, Clone, Copy, Default)]
struct CloseState {
    is_wanted: bool,
    is_sent: bool,
    is_received: bool,
}

impl Ndt7Endpoint {
    /// Returns the server's end, which states the `connection`.
    pub fn of_server(is_download: bool, connection: Ndt7Connection) -> Self {
        Self::new(WebSocketRole::Server, is_download, None, Some(connection))
    }

    /// Returns the client's end. A proxy on the way must not know `mask` before (RFC 6455, section
    /// 10.3).
    pub fn of_client(is_download: bool, mask: [u8; 4]) -> Self {
        Self::new(WebSocketRole::Client, is_download, Some(mask), None)
    }

    fn new(
        role: WebSocketRole,
        is_download: bool,
        mask: Option<[u8; 4]>,
        connection: Option<Ndt7Connection>,
    ) -> Self {
        Self {
            role,
            is_download,
            reader: FrameReader::new(role),
            sizes: MessageSizes::default(),
            left: 0,
            mask,
            connection,
            message_due: Span::ZERO,
            pongs: Vec::new(),
            bytes: 0,
            received: Vec::new(),
            close: CloseState::default(),
            is_left: false,
        }
    }

    /// Returns true if this end sends the data.
    pub fn sends_data(&self) -> bool {
        self.is_download == (self.role == WebSocketRole::Server)
    }

    /// Takes bytes of the other end. Returns the payload of messages of bytes in them.
    ///
    /// # Errors
    /// Fails if they break the rules.
    pub fn take_input(&mut self, mut bytes: &[u8]) -> Result<u64, RuleBroken> {
        let mut payload = 0;
        while !bytes.is_empty() && !self.close.is_received {
            let (taken, event) = self.reader.take_part(bytes)?;
            bytes = &bytes[taken..];
            match event {
                FrameEvent::Binary(count) => payload += count as u64,
                FrameEvent::Text(text) => self.keep_message(&text)?,
                FrameEvent::Ping(payload) if self.pongs.len() < MAX_PONGS => {
                    push_frame(Opcode::Pong, &payload, self.mask, &mut self.pongs);
                }
                FrameEvent::Nothing | FrameEvent::Ping(_) => {}
                FrameEvent::Close => self.close.is_received = true,
            }
        }
        if self.sends_data() && payload > 0 {
            return Err("the end that receives sent a message of bytes");
        }
        self.bytes += payload;
        Ok(payload)
    }

    fn keep_message(&mut self, text: &[u8]) -> Result<(), RuleBroken> {
        let message = serde_json::from_slice(text)
            .map_err(|_| "a message of a measurement is not what ndt7 has")?;
        if self.received.len() < MAX_KEPT {
            self.received.push(message);
        }
        Ok(())
    }

    /// Ends the test: nothing but the rest of a message under way is sent before the close frame.
    pub fn close(&mut self) {
        self.close.is_wanted = true;
    }

    /// Notes that the other end has closed the connection.
    pub fn note_end(&mut self) {
        self.is_left = !self.close.is_received;
        self.close.is_received = true;
    }

    /// Returns true if the other end closed the connection without a close frame.
    pub fn was_left(&self) -> bool {
        self.is_left
    }

    /// Returns true if both ends have closed.
    pub fn has_ended(&self) -> bool {
        self.close.is_sent && self.close.is_received
    }

    /// Returns the time at which the next message of a measurement is due.
    pub fn next_due(&self) -> Span {
        self.message_due
    }

    /// Appends what is to be sent at `at` to `into`, where `info` is what the kernel counts and
    /// `data` is the payload of all messages of bytes. Returns how much of it is such payload;
    /// nothing is appended if there is nothing to send now.
    pub fn push_output(
        &mut self,
        at: Span,
        info: impl FnOnce() -> Option<TcpInfo>,
        data: &[u8],
        into: &mut Vec<u8>,
    ) -> u64 {
        if self.left > 0 {
            return self.push_data(data, into);
        }
        into.append(&mut self.pongs);
        if self.close.is_sent {
            return 0;
        }
        if self.close.is_wanted || self.close.is_received {
            push_frame(Opcode::Close, &1000_u16.to_be_bytes(), self.mask, into);
            self.close.is_sent = true;
            return 0;
        }
        if at >= self.message_due {
            self.message_due = at + MESSAGE_INTERVAL;
            self.push_message(at, info(), into);
        }
        if !self.sends_data() {
            return 0;
        }
        self.left = self.sizes.next_size();
        push_frame_header(Opcode::Binary, self.left, self.mask, into);
        self.push_data(data, into)
    }

    /// Appends a part of a message of bytes. What a client sends is masked payload: whatever its
    /// bytes are, they stand for others, which nobody reads.
    fn push_data(&mut self, data: &[u8], into: &mut Vec<u8>) -> u64 {
        let length = data.len().min(PIECE).min(self.left as usize);
        into.extend_from_slice(&data[..length]);
        self.left -= length as u64;
        self.bytes += length as u64;
        length as u64
    }

    fn push_message(&mut self, at: Span, info: Option<TcpInfo>, into: &mut Vec<u8>) {
        let (origin, test) = (
            match self.role {
                WebSocketRole::Client => "client",
                WebSocketRole::Server => "server",
            },
            if self.is_download {
                "download"
            } else {
                "upload"
            },
        );
        let message = Ndt7Message {
            app_info: Some(Ndt7AppInfo {
                elapsed_time: at.as_micros().cast_signed(),
                num_bytes: self.bytes.cast_signed(),
            }),
            connection_info: self.connection.take(),
            origin: Some(origin.to_owned()),
            test: Some(test.to_owned()),
            tcp_info: info.map(|info| Ndt7TcpInfo::from_sample(at, &info)),
        };
        // Numbers and short texts are always written.
        if let Ok(text) = serde_json::to_vec(&message) {
            push_frame(Opcode::Text, &text, self.mask, into);
        }
    }

    /// Returns the messages of the other end.
    pub fn into_received(self) -> Vec<Ndt7Message> {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: [u8; 1000] = [0x5a; 1000];

    fn ends(is_download: bool) -> [Ndt7Endpoint; 2] {
        let connection = Ndt7Connection {
            uuid: "u".to_owned(),
            ..Ndt7Connection::default()
        };
        [
            Ndt7Endpoint::of_server(is_download, connection),
            Ndt7Endpoint::of_client(is_download, [9, 8, 7, 6]),
        ]
    }

    /// Passes what each end has to send to the other one, once. Returns the payload that arrived.
    fn exchange(ends: &mut [Ndt7Endpoint; 2], millis: u64) -> u64 {
        let mut arrived = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            let mut bytes = Vec::new();
            ends[from].push_output(Span::from_millis(millis), || None, &DATA, &mut bytes);
            arrived += ends[to].take_input(&bytes).unwrap();
        }
        arrived
    }

    #[test]
    fn data_goes_one_way_and_messages_go_both() {
        for is_download in [true, false] {
            let mut ends = ends(is_download);
            let arrived: u64 = (0..1000).map(|round| exchange(&mut ends, round)).sum();
            assert!((900_000..=1_000_000).contains(&arrived), "{arrived}");
            ends[usize::from(is_download)].close();
            for round in 1000..2100 {
                exchange(&mut ends, round);
            }
            assert!(ends.iter().all(Ndt7Endpoint::has_ended), "{is_download}");
            let [by_server, by_client] = ends.map(Ndt7Endpoint::into_received);
            assert!((4..=6).contains(&by_server.len()) && (4..=6).contains(&by_client.len()));
            assert_eq!(by_client[0].connection_info.as_ref().unwrap().uuid, "u");
            assert!(by_client[1].connection_info.is_none());
            assert_eq!(by_server[0].origin.as_deref(), Some("client"));
        }
    }

    #[test]
    fn an_end_that_receives_sends_no_data_and_a_message_is_json() {
        for (opcode, payload) in [(Opcode::Binary, &b"x"[..]), (Opcode::Text, b"x")] {
            let [mut server, _] = ends(true);
            let mut bytes = Vec::new();
            push_frame(opcode, payload, Some([1; 4]), &mut bytes);
            assert!(server.take_input(&bytes).is_err());
        }
    }

    #[test]
    fn an_end_that_closes_without_a_frame_has_left() {
        for is_closed in [true, false] {
            let [mut server, mut client] = ends(true);
            if is_closed {
                client.close();
                let mut bytes = Vec::new();
                client.push_output(Span::ZERO, || None, &DATA, &mut bytes);
                server.take_input(&bytes).unwrap();
            }
            server.note_end();
            assert_eq!(server.was_left(), !is_closed);
        }
    }

    #[test]
    fn a_flood_of_pings_takes_no_memory() {
        let [mut server, _] = ends(false);
        let mut ping = Vec::new();
        push_frame(Opcode::Ping, &[7; 125], Some([1; 4]), &mut ping);
        for _ in 0..10_000 {
            server.take_input(&ping).unwrap();
        }
        let mut answer = Vec::new();
        server.push_output(Span::ZERO, || None, &DATA, &mut answer);
        assert!(answer.len() < 2 * MAX_PONGS, "{}", answer.len());
    }
}

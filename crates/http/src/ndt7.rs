//! The messages of ndt7, version 7 of the Network Diagnostic Tool (specification 0.11 of M-Lab).

use fullpipe_record::TcpInfo;
use fullpipe_units::{ByteCount, Span};
use serde::{Deserialize, Serialize};

/// The protocol inside the WebSocket.
pub const SUBPROTOCOL: &str = "net.measurementlab.ndt.v7";

/// Time for which the sending end sends.
pub const TEST_DURATION: Span = Span::from_secs(10);

/// Time between two messages of a measurement, which may come up to ten times a second.
pub const MESSAGE_INTERVAL: Span = Span::from_millis(250);

/// The first and the largest message of bytes that an end sends.
const SIZES: [u64; 2] = [1 << 13, 1 << 20];

/// A message of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ndt7Message {
    /// What the program of this end counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_info: Option<Ndt7AppInfo>,
    /// The connection, once, by the server alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_info: Option<Ndt7Connection>,
    /// `client` or `server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// `download` or `upload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// What the kernel of this end counted.
    #[serde(rename = "TCPInfo", skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<Ndt7TcpInfo>,
}

/// What the program of an end counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ndt7AppInfo {
    /// Time since the test began, in microseconds.
    pub elapsed_time: i64,
    /// Bytes of messages so far.
    pub num_bytes: i64,
}

/// The connection of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ndt7Connection {
    /// Address and port of the client.
    pub client: String,
    /// Address and port of the server.
    pub server: String,
    /// Name of the test, by which a server of fullpipe has its result.
    #[serde(rename = "UUID")]
    pub uuid: String,
}

/// What the kernel of an end counted, times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ndt7TcpInfo {
    /// Time since the test began.
    pub elapsed_time: i64,
    /// Time with data to send.
    pub busy_time: i64,
    /// Time for which the receive window of the other end was the limit.
    #[serde(rename = "RWndLimited")]
    pub rwnd_limited: i64,
    /// Time for which the send buffer was the limit.
    pub snd_buf_limited: i64,
    /// Bytes that the other end has acknowledged.
    pub bytes_acked: i64,
    /// Bytes received.
    pub bytes_received: i64,
    /// Bytes sent, with those that were retransmitted.
    pub bytes_sent: i64,
    /// Bytes retransmitted.
    pub bytes_retrans: i64,
    /// Least round-trip time.
    #[serde(rename = "MinRTT")]
    pub min_rtt: u32,
    /// Round-trip time.
    #[serde(rename = "RTT")]
    pub rtt: u32,
    /// Variation of it.
    #[serde(rename = "RTTVar")]
    pub rtt_var: u32,
    /// Congestion window in segments; zero if it is not stated.
    pub snd_cwnd: u32,
    /// Maximum segment size that is sent; zero if it is not stated.
    #[serde(rename = "SndMSS")]
    pub snd_mss: u32,
}

impl Ndt7TcpInfo {
    /// Returns the counts of `info`, taken at `at`.
    pub fn from_sample(at: Span, info: &TcpInfo) -> Self {
        let micros = |time: Option<Span>| time.unwrap_or_default().as_micros().cast_signed();
        let bytes = |count: Option<ByteCount>| count.unwrap_or_default().get().cast_signed();
        Self {
            elapsed_time: at.as_micros().cast_signed(),
            busy_time: micros(info.busy),
            rwnd_limited: micros(info.rwnd_limited),
            snd_buf_limited: micros(info.sndbuf_limited),
            bytes_acked: bytes(info.bytes_acked),
            bytes_received: bytes(info.bytes_received),
            bytes_sent: bytes(info.bytes_sent),
            bytes_retrans: bytes(info.bytes_retrans),
            min_rtt: micros(info.min_rtt) as u32,
            rtt: micros(info.rtt) as u32,
            rtt_var: micros(info.rtt_variation) as u32,
            snd_cwnd: info.cwnd.unwrap_or_default().get() as u32,
            snd_mss: bytes(info.snd_mss) as u32,
        }
    }

    /// Returns the counts as a snapshot of the kernel has them, as far as they are stated.
    pub fn to_tcp_info(self) -> TcpInfo {
        let time = |micros: i64| Some(Span::from_micros(u64::try_from(micros).ok()?));
        let bytes = |count: i64| Some(ByteCount::new(u64::try_from(count).ok()?));
        TcpInfo {
            busy: time(self.busy_time),
            rwnd_limited: time(self.rwnd_limited),
            sndbuf_limited: time(self.snd_buf_limited),
            bytes_acked: bytes(self.bytes_acked),
            bytes_received: bytes(self.bytes_received),
            bytes_sent: bytes(self.bytes_sent),
            bytes_retrans: bytes(self.bytes_retrans),
            min_rtt: time(self.min_rtt.into()).filter(|rtt| *rtt > Span::ZERO),
            rtt: time(self.rtt.into()).filter(|rtt| *rtt > Span::ZERO),
            rtt_variation: time(self.rtt_var.into()),
            snd_mss: bytes(self.snd_mss.into()).filter(|mss| *mss > ByteCount::ZERO),
            ..TcpInfo::default()
        }
    }
}

/// The sizes of the messages of bytes that an end sends: each is at most a sixteenth of what was
/// sent before, so that a slow path does not wait for the end of a large one.
#[derive(Debug, Clone, Copy)]
pub struct MessageSizes {
    size: u64,
    sent: u64,
}

impl Default for MessageSizes {
    fn default() -> Self {
        Self {
            size: SIZES[0],
            sent: 0,
        }
    }
}

impl MessageSizes {
    /// Returns the size of the next message in bytes, which then counts as sent.
    pub fn next_size(&mut self) -> u64 {
        while self.size < SIZES[1] && self.size * 2 <= self.sent / 16 {
            self.size *= 2;
        }
        self.sent += self.size;
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_grow_with_what_was_sent() {
        let mut sizes = MessageSizes::default();
        let (mut sent, mut last) = (0, 0);
        for _ in 0..1000 {
            let size = sizes.next_size();
            assert!(size >= last && (size == SIZES[0] || size * 16 <= sent));
            (sent, last) = (sent + size, size);
        }
        assert_eq!(last, SIZES[1]);
    }

    #[test]
    fn a_message_has_the_names_of_the_specification() {
        let info = TcpInfo {
            bytes_acked: Some(ByteCount::new(5)),
            min_rtt: Some(Span::from_micros(7)),
            rwnd_limited: Some(Span::from_micros(9)),
            ..TcpInfo::default()
        };
        let message = Ndt7Message {
            connection_info: Some(Ndt7Connection {
                uuid: "u".to_owned(),
                ..Ndt7Connection::default()
            }),
            tcp_info: Some(Ndt7TcpInfo::from_sample(Span::from_millis(1), &info)),
            ..Ndt7Message::default()
        };
        let text = serde_json::to_string(&message).unwrap();
        for part in [
            "\"ConnectionInfo\":{\"Client\":\"\",\"Server\":\"\",\"UUID\":\"u\"}",
            "\"TCPInfo\":{\"ElapsedTime\":1000,\"BusyTime\":0,\"RWndLimited\":9,\"SndBufLimited\":0",
            "\"BytesAcked\":5,",
            "\"MinRTT\":7,\"RTT\":0,\"RTTVar\":0",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("AppInfo") && !text.contains("Origin"));
        assert_eq!(serde_json::from_str::<Ndt7Message>(&text).unwrap(), message);
    }

    /// The server of M-Lab states all that its kernel has, and a client may state anything.
    #[test]
    fn fields_that_are_not_known_are_skipped_and_negative_ones_are_not_there() {
        let text =
            r#"{"TCPInfo":{"State":1,"BytesAcked":-5,"RTT":0,"SndCwnd":10},"BBRInfo":{"BW":1}}"#;
        let message: Ndt7Message = serde_json::from_str(text).unwrap();
        let info = message.tcp_info.unwrap().to_tcp_info();
        assert_eq!((info.bytes_acked, info.rtt), (None, None));
        assert!(serde_json::from_str::<Ndt7Message>(r#"{"TCPInfo":{"RTT":-1}}"#).is_err());
    }
}

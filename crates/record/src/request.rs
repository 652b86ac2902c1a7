use fullpipe_units::{ByteCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Direction;

/// What is asked of a socket's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Buffer {
    /// Nothing: the kernel tunes them.
    #[default]
    Automatic,
    /// `SO_SNDBUF` and `SO_RCVBUF` at both ends, as iperf's `-w`. The kernel doubles it and advertises a share of that.
    Request(ByteCount),
    /// The window that the receiver should advertise: the buffer request is chosen so that the kernel yields it.
    Window(ByteCount),
}

/// How a sending program fills its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// Non-blocking, retried at least every millisecond: the send buffer really fills.
    #[default]
    Retrying,
    /// Blocking, as ordinary programs write: woken when a third of the send buffer is free.
    Blocking,
}

/// The load asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Which end sends.
    pub direction: Direction,
    /// Parallel TCP connections.
    pub streams: u16,
    /// How long data is sent, after `omit`.
    pub duration: Span,
    /// Time at the start that the totals leave out.
    pub omit: Span,
    /// If set, the test ends after so many bytes in all, instead of after `duration`.
    pub bytes: Option<ByteCount>,
    /// Bytes of one write.
    pub block: ByteCount,
    /// Socket buffers.
    pub buffer: Buffer,
    /// Congestion control, set on each socket and read back; the kernel's default if not set.
    pub congestion: Option<String>,
    /// Largest segment, if not what the path's MTU gives.
    pub mss: Option<ByteCount>,
    /// How the sender fills its socket.
    pub writer: Writer,
    /// Length of the intervals that are reported.
    pub interval: Span,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            direction: Direction::Upload,
            streams: 1,
            duration: Span::from_secs(10),
            omit: Span::ZERO,
            bytes: None,
            block: ByteCount::from_kib(128),
            buffer: Buffer::Automatic,
            congestion: None,
            mss: None,
            writer: Writer::Retrying,
            interval: Span::from_secs(1),
        }
    }
}

use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Prediction;

/// Which quantity followed from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Solved {
    /// The window that fills the bandwidth over the round trip.
    Window,
    /// The round trip over which the window still fills the bandwidth.
    Rtt,
    /// The rate that the window gives over the round trip.
    Rate,
}

/// The Linux settings that give a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BufferAdvice {
    /// Third value of `net.ipv4.tcp_rmem` at the receiver.
    pub tcp_rmem_max: ByteCount,
    /// Third value of `net.ipv4.tcp_wmem` at the sender.
    pub tcp_wmem_max: ByteCount,
    /// `SO_RCVBUF` request, where a program fixes its buffer.
    pub so_rcvbuf: ByteCount,
    /// The largest such request that this host grants now: `net.core.rmem_max`.
    pub rmem_max: ByteCount,
}

/// Bandwidth, round trip and window, one of them from the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calculation {
    /// Which one followed.
    pub solved: Solved,
    /// Rate of the path, if it was given.
    pub bandwidth: Option<BitRate>,
    /// Round-trip time.
    pub rtt: Span,
    /// Window.
    pub window: ByteCount,
    /// Window ÷ round trip, and no more than the bandwidth.
    pub rate: BitRate,
    /// Payload of a full segment.
    pub mss: ByteCount,
    /// Payload ÷ bytes on the wire.
    pub efficiency: Ratio,
    /// What yields the window on the running kernel.
    pub buffers: BufferAdvice,
    /// What hosts with this host's settings at both ends would make of the path.
    pub prediction: Prediction,
}

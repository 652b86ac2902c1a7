use crate::prelude::*;

/// Counters of an emulated path over an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    /// The interval.
    pub interval: Span,
    /// From the sender to the receiver.
    pub forward: DirectionStatus,
    /// From the receiver to the sender.
    pub reverse: DirectionStatus,
    /// Packets that devices dropped outside of the emulated queues.
    pub device_drops: u64,
}

/// Counters of one direction of an emulated path over an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionStatus {
    /// Rate of the packets that were delivered; their size is counted by the path's framing.
    pub rate: BitRate,
    /// Bytes in the queue, or being sent, at the end of the interval.
    pub queue: ByteCount,
    /// Bytes that have left the link and have not arrived, at the end of the interval.
    pub propagating: ByteCount,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets lost on purpose.
    pub injected_losses: u64,
    /// Median lateness of the packets; `None` without packets, and where the kernel emulates the
    /// path.
    pub lateness_median: Option<Span>,
    /// 90th percentile of the lateness; `None` as above.
    pub lateness_p90: Option<Span>,
    /// 99th percentile of the lateness; `None` as above.
    pub lateness_p99: Option<Span>,
}

use fullpipe_units::{ByteCount, Span};
use hdrhistogram::Histogram;

/// What one direction of a path did between two looks, whatever carries its packets. Bytes are counted as the path's
/// framing says.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    /// What was handed over.
    pub(crate) delivered: ByteCount,
    /// What waits now or is being sent.
    pub(crate) backlog: ByteCount,
    /// What has been sent now and has not been handed over.
    pub(crate) propagating: ByteCount,
    /// Packets that found the queue full.
    pub(crate) overflowed: u64,
    /// Packets that were lost on purpose.
    pub(crate) lost: u64,
    /// Packets that later ones passed; `None` where nobody counts them.
    pub(crate) reordered: Option<u64>,
    /// Time in which the bottleneck was sending; nothing where the path has no rate.
    pub(crate) busy: Span,
    /// How well the emulated link kept its times; `None` where the kernel is the path, which does not tell.
    pub(crate) timing: Option<Timing>,
}

/// How well a direction of the emulated link kept its times.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    /// How much later than due packets were handed over, in nanoseconds.
    pub(crate) lateness: Histogram<u64>,
    /// Longest time between two looks at the device.
    pub(crate) longest_gap: Span,
    /// Packets handed over that the far device would not take, and what a device gave that is no packet.
    pub(crate) refused: u64,
}

use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Packets and their bytes, as the path's framing counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Packets on the wire.
    pub segments: SegCount,
    /// Their bytes.
    pub bytes: ByteCount,
}

impl Tally {
    pub(crate) fn add(&mut self, segments: SegCount, bytes: ByteCount) {
        self.segments += segments;
        self.bytes += bytes;
    }
}

/// What one direction of the path has done up to a moment.
///
/// What was offered was lost, overflowed, was delivered or is still on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Came in.
    pub offered: Tally,
    /// Fell to chance.
    pub lost: Tally,
    /// Found the queue full.
    pub overflowed: Tally,
    /// Went out.
    pub delivered: Tally,
    /// Bytes of the packets that the link has sent to their last bit.
    pub sent: ByteCount,
    /// Time in which the link was sending; zero on a path without a rate.
    pub busy: Span,
    /// Most bytes that were ever waiting or being sent.
    pub max_backlog: ByteCount,
}

impl Counters {
    /// Rate at which packets left while the link was busy, counted as the framing says; zero if it never was.
    pub fn rate_while_busy(&self) -> BitRate {
        BitRate::of(self.sent, self.busy)
    }
}

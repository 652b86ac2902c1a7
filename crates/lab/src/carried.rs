use fullpipe_units::{ByteCount, Span};
use hdrhistogram::Histogram;

/// Counts of one direction of a path between two snapshots, whatever carries its packets. Bytes are
/// counted as the path's framing says.
#[derive(Clone)]
pub(crate) struct DirectionCounts {
    /// Bytes handed over.
    pub delivered: ByteCount,
    /// Bytes that wait now or are being sent.
    pub backlog: ByteCount,
    /// Bytes that have been sent now and have not been handed over.
    pub propagating: ByteCount,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets that were lost on purpose.
    pub lost: u64,
    /// Packets that later ones passed; `None` where they are not counted.
    pub reordered: Option<u64>,
    /// Time in which the bottleneck was sending; nothing where the path has no rate.
    pub busy: Span,
    /// Timing of the emulated link; `None` if the kernel is the path, which does not report it.
    pub timing: Option<LinkTiming>,
}

impl DirectionCounts {
    /// Adds the counts of the time that followed.
    pub(crate) fn add_counts(&mut self, later: &Self) {
        self.delivered += later.delivered;
        (self.backlog, self.propagating) = (later.backlog, later.propagating);
        self.overflowed += later.overflowed;
        self.lost += later.lost;
        self.reordered = self
            .reordered
            .zip(later.reordered)
            .map(|(before, after)| before + after);
        self.busy += later.busy;
        if let (Some(timing), Some(later)) = (&mut self.timing, &later.timing) {
            timing.add_timing(later);
        }
    }
}

impl LinkTiming {
    pub(crate) fn add_timing(&mut self, other: &Self) {
        // All have the same bounds, so that adding cannot fail.
        let _ = self.lateness.add(&other.lateness);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.refused += other.refused;
    }
}

/// Timing of one direction of the emulated link.
#[derive(Clone)]
pub(crate) struct LinkTiming {
    /// Lateness of the packets handed over, in nanoseconds.
    pub lateness: Histogram<u64>,
    /// Longest time between two polls of the device.
    pub longest_gap: Span,
    /// Packets handed over that the far device would not take, and what a device gave that is no
    /// packet.
    pub refused: u64,
}

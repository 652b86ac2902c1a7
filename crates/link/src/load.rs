use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, SegCount};

use crate::{PacketTally, Train};

/// A train as the link sees it: its packets with all that the framing adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrainLoad {
    /// Packets.
    pub(crate) segments: SegCount,
    /// Each packet but perhaps the last.
    segment: ByteCount,
    /// All packets.
    pub(crate) total: ByteCount,
}

impl TrainLoad {
    pub(crate) fn from_train<T: Train>(train: &T, framing: Framing) -> Self {
        Self {
            segments: train.segment_count(),
            segment: train.segment_bytes() + framing.packet_overhead(),
            total: train.wire_bytes(framing),
        }
    }

    #[inline]
    pub(crate) fn to_tally(self) -> PacketTally {
        PacketTally {
            segments: self.segments,
            bytes: self.total,
        }
    }

    /// Returns the number of whole packets that `bytes` cover, counted from the first.
    #[inline]
    pub(crate) fn packets_in(self, bytes: ByteCount) -> SegCount {
        if bytes >= self.total {
            return self.segments;
        }
        let whole = bytes.get().checked_div(self.segment.get()).unwrap_or(0);
        SegCount::new(whole.min(self.segments.get().saturating_sub(1)))
    }

    /// The first `packets` of it.
    #[inline]
    pub(crate) fn first_packets(self, packets: SegCount) -> Self {
        if packets >= self.segments {
            return self;
        }
        Self {
            segments: packets,
            segment: self.segment,
            total: packets.of_size(self.segment),
        }
    }

    /// Returns the packets after the first `packets`.
    pub(crate) fn packets_after(self, packets: SegCount) -> Self {
        let first = self.first_packets(packets);
        Self {
            segments: self.segments - first.segments,
            segment: self.segment,
            total: self.total - first.total,
        }
    }

    /// Size of the first packet.
    pub(crate) fn packet_bytes(self) -> ByteCount {
        self.segment.min(self.total)
    }

    /// The last packet, where it is smaller than one before it.
    pub(crate) fn smaller_last(self) -> Option<Self> {
        let last = self.packets_after(SegCount::new(self.segments.get().saturating_sub(1)));
        (self.segments > last.segments && last.total < self.segment).then_some(last)
    }
}

use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, SegCount, Span};

use crate::Train;

/// Packets and their bytes, as the path's framing counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketTally {
    /// Packets on the wire.
    pub segments: SegCount,
    /// Bytes of the packets.
    pub bytes: ByteCount,
}

impl PacketTally {
    pub(crate) fn from_train<T: Train>(train: &T, framing: Framing) -> Self {
        Self {
            segments: train.segment_count(),
            bytes: train.wire_bytes(framing),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, more: Self) {
        *self = self.sum_with(more);
    }

    #[inline]
    pub(crate) fn subtract_packets(&mut self, less: Self) {
        *self = self.difference_from(less);
    }

    #[inline]
    pub(crate) fn sum_with(self, more: Self) -> Self {
        Self {
            segments: self.segments + more.segments,
            bytes: self.bytes + more.bytes,
        }
    }

    #[inline]
    pub(crate) fn difference_from(self, less: Self) -> Self {
        Self {
            segments: self.segments - less.segments,
            bytes: self.bytes - less.bytes,
        }
    }
}

/// Counts of one direction of the path up to a moment, stage by stage.
///
/// Everything offered or duplicated is in one of these: lost, expired, too big, policed,
/// overflowed, dropped by the queue's management, delivered, or still on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionCounters {
    /// Came in.
    pub offered: PacketTally,
    /// Fell to chance, or to the list of packets to lose.
    pub lost: PacketTally,
    /// Had no hops left at a router.
    pub expired: PacketTally,
    /// Were larger than the narrow link's MTU.
    pub too_big: PacketTally,
    /// Found too few tokens at the policer.
    pub policed: PacketTally,
    /// Found the queue full, or made room in it for others.
    pub overflowed: PacketTally,
    /// Were dropped by CoDel.
    pub aqm_dropped: PacketTally,
    /// Got an ECN mark.
    pub marked: SegCount,
    /// Got a wrong bit.
    pub corrupted: SegCount,
    /// Second copies.
    pub duplicated: PacketTally,
    /// Went out behind one that left the link later (RFC 4737, 4.1).
    pub reordered: SegCount,
    /// Went out.
    pub delivered: PacketTally,
    /// Bytes of the packets that the link has sent to their last bit.
    pub sent: ByteCount,
    /// Time in which the link was sending; zero on a path without a rate.
    pub busy: Span,
    /// Most bytes that were ever waiting or being sent.
    pub max_backlog: ByteCount,
}

use fullpipe_record::PathDirection;
use fullpipe_units::{ByteCount, SegCount};

use crate::PacketTally;
use crate::load::TrainLoad;

/// Most that a queue holds, the packet on the link included; what is not limited never overflows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimit {
    bytes: Option<ByteCount>,
    packets: Option<SegCount>,
}

impl QueueLimit {
    pub(crate) fn new(path: &PathDirection) -> Self {
        Self {
            bytes: path.queue,
            packets: path.effects.queue_packets,
        }
    }

    /// Returns the number of packets of `load`, counted from its first, that find room behind
    /// `backlog`. On an idle link one always does.
    #[inline]
    pub(crate) fn accepted_packets(self, backlog: PacketTally, load: TrainLoad) -> SegCount {
        let by_bytes = self
            .bytes
            .map(|limit| load.packets_in(limit.saturating_sub(backlog.bytes)));
        let by_packets = self
            .packets
            .map(|limit| limit.saturating_sub(backlog.segments).min(load.segments));
        let room = by_bytes
            .unwrap_or(load.segments)
            .min(by_packets.unwrap_or(load.segments));
        if backlog.segments == SegCount::ZERO {
            room.max(SegCount::new(1))
        } else {
            room
        }
    }

    /// Returns true if `backlog` is more than it allows.
    pub(crate) fn is_exceeded(self, backlog: PacketTally) -> bool {
        self.bytes.is_some_and(|limit| backlog.bytes > limit)
            || self.packets.is_some_and(|limit| backlog.segments > limit)
    }
}

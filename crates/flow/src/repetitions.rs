//! Packets that were captured twice, as by a mirror of both ports of a switch.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use fullpipe_units::{Span, Time};

use crate::packet::FlowPacket;

/// Packets that are remembered.
const REMEMBERED: usize = 16;

/// Hash of a packet that cannot be recognized, and of a place without one.
const UNKNOWN: u64 = 0;

/// Maximum time between both captures of a packet.
const MAX_LAG: Span = Span::from_millis(10);

/// The last packets of an end, each by a hash of the fields that both captures of a packet share.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentPackets {
    packets: Option<Box<PacketRing>>,
}

/// Packets in a ring.
#[derive(Debug, Clone, Default)]
struct PacketRing {
    /// The lower half of the hash of each: which of them is equal is known soonest from few bytes.
    tags: [u32; REMEMBERED],
    /// The upper half.
    rests: [u32; REMEMBERED],
    times: [Time; REMEMBERED],
    /// Place of the oldest, where it is one.
    next: usize,
}

impl RecentPackets {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.packets.is_some() {
            size_of::<PacketRing>()
        } else {
            0
        }
    }

    /// Returns true if `packet` was captured before, and remembers it otherwise.
    pub(crate) fn is_repetition(&mut self, packet: &FlowPacket) -> bool {
        // Without an identification (IPv6, or zero) only the checksum could show that a segment was
        // retransmitted.
        let is_known =
            packet.identification.is_some_and(|id| id != 0) || packet.timestamps.is_some();
        let hash = if is_known {
            packet_hash(packet)
        } else {
            UNKNOWN
        };
        let packets = self.packets.get_or_insert_default();
        if hash != UNKNOWN && packets.contains_hash(hash, packet.at) {
            return true;
        }
        packets.push(hash, packet.at);
        false
    }
}

impl PacketRing {
    fn contains_hash(&self, hash: u64, at: Time) -> bool {
        let (tag, rest) = hash_halves(hash);
        // Nearly always there is none, which is known soonest without a branch or a count for each.
        if self
            .tags
            .iter()
            .fold(0, |found, known| found | u32::from(*known == tag))
            == 0
        {
            return false;
        }
        (0..REMEMBERED).any(|place| {
            self.tags[place] == tag
                && self.rests[place] == rest
                && at.duration_since(self.times[place]) <= MAX_LAG
        })
    }

    fn push(&mut self, hash: u64, at: Time) {
        let place = self.next % REMEMBERED;
        (self.tags[place], self.rests[place]) = hash_halves(hash);
        self.times[place] = at;
        self.next = place + 1;
    }
}

fn hash_halves(hash: u64) -> (u32, u32) {
    (hash as u32, (hash >> 32) as u32)
}

/// Returns a hash of the fields that both captures of a packet share, which is not [`UNKNOWN`]. A
/// segment that is sent again differs in its identification or timestamp.
fn packet_hash(packet: &FlowPacket) -> u64 {
    let (has_times, times) = packet
        .timestamps
        .map_or((0, 0), |(value, echo)| (1, join_words(value, echo)));
    let (has_id, id) = packet.identification.map_or((0, 0), |id| (2, id));
    let mut hasher = FixedState::default().build_hasher();
    let flags = join_halves(packet.flags, packet.window);
    hasher.write_u64(join_words(packet.sequence, packet.acknowledgement));
    hasher.write_u64(join_words(packet.payload, flags));
    hasher.write_u64(join_words(
        join_halves(id, packet.checksum),
        has_times | has_id,
    ));
    hasher.write_u64(times);
    hasher.finish().max(UNKNOWN + 1)
}

#[inline]
fn join_words(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn join_halves(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u32, identification: u16, at: Time) -> FlowPacket {
        let identification = Some(identification);
        FlowPacket {
            at,
            sequence,
            identification,
            acknowledgement: 7,
            payload: 10,
            flags: 0x10,
            ..FlowPacket::EMPTY
        }
    }

    #[test]
    fn a_packet_repeats_one_of_the_last_that_is_the_same_and_not_old() {
        let mut recent = RecentPackets::default();
        let mut repeats = |sequence, identification, millis| {
            recent.is_repetition(&packet(
                sequence,
                identification,
                Time::ZERO + Span::from_millis(millis),
            ))
        };
        assert!(!repeats(10, 1, 0));
        assert!(repeats(10, 1, 10));
        assert!(!repeats(10, 1, 11), "it is too old");
        assert!(!repeats(10, 2, 11), "it was sent again");
        assert!(!repeats(20, 0, 11) && !repeats(20, 0, 11));
        for index in 0..REMEMBERED as u32 - 1 {
            assert!(!repeats(100 + index, 1, 11));
        }
        assert!(!repeats(10, 1, 11), "others came between");
    }
}

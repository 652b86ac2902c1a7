//! A segment as its connection takes it and keeps it.

use fullpipe_units::Time;
use fullpipe_wire::{CapturedSegment, flags};

use crate::key::FlowKey;

/// A segment with its number in the capture and its connection, as one thread passes it to another.
#[derive(Debug, Clone, Copy)]
pub struct NumberedSegment {
    pub(crate) key: FlowKey,
    /// Number of the segment among those of all parts of the capture.
    pub(crate) number: u64,
    pub(crate) packet: FlowPacket,
}

impl NumberedSegment {
    /// Returns segment `number` of a capture, which was captured at `at`.
    #[inline]
    pub fn new(number: u64, segment: &CapturedSegment, at: Time) -> Self {
        let (key, is_from_lower) = FlowKey::from_segment(segment);
        Self {
            key,
            number,
            packet: FlowPacket::new(segment, at, is_from_lower),
        }
    }

    /// Returns the index of the part of [`crate::FlowTable::split_parts`] that follows the
    /// segment's connection, of so many `parts`.
    #[inline]
    pub fn part_index(&self, parts: usize) -> usize {
        self.key.part_index(parts)
    }
}

/// A segment without its addresses, in less than half of its room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowPacket {
    /// Time at which it was captured.
    pub(crate) at: Time,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    /// Bytes of data.
    pub(crate) payload: u32,
    /// `TSval` and `TSecr`.
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) flags: u16,
    /// The window field as it stands there.
    pub(crate) window: u16,
    pub(crate) identification: Option<u16>,
    /// The checksum; with SACK blocks, changed by those.
    pub(crate) checksum: u16,
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) hops_left: u8,
    pub(crate) traffic_class: u8,
    pub(crate) sack_permitted: bool,
    pub(crate) multipath: bool,
    pub(crate) sack: SackReport,
    /// Bytes of headers of tunnels around it.
    pub(crate) overhead: u16,
    /// True if the lower end of its connection's key sent it.
    pub(crate) is_from_lower: bool,
}

/// The SACK blocks of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SackReport {
    Absent,
    /// The snap length cut options off, and with them any blocks.
    Cut,
    /// There are none in this SYN, of which an option was overwritten with padding on the way.
    Overwritten,
    /// They report data that arrived for the first time.
    New,
    /// The first reports data that had arrived before (DSACK).
    Duplicate,
}

impl FlowPacket {
    /// No packet, for a place that waits for one.
    pub(crate) const EMPTY: Self = Self {
        at: Time::ZERO,
        sequence: 0,
        acknowledgement: 0,
        payload: 0,
        timestamps: None,
        flags: 0,
        window: 0,
        identification: None,
        checksum: 0,
        mss: None,
        window_scale: None,
        hops_left: 0,
        traffic_class: 0,
        sack_permitted: false,
        multipath: false,
        sack: SackReport::Absent,
        overhead: 0,
        is_from_lower: false,
    };

    /// Returns a segment that was captured at `at`.
    #[inline]
    pub(crate) fn new(segment: &CapturedSegment, at: Time, is_from_lower: bool) -> Self {
        let options = &segment.options;
        Self {
            at,
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            payload: segment.payload,
            timestamps: options.timestamps,
            flags: segment.flags,
            window: segment.window,
            identification: segment.identification,
            checksum: segment.checksum ^ blocks_sum(&options.sack[..options.sack_blocks.into()]),
            mss: options.mss,
            window_scale: options.window_scale,
            hops_left: segment.hops_left,
            traffic_class: segment.traffic_class,
            sack_permitted: options.sack_permitted,
            multipath: options.multipath,
            sack: to_sack(segment),
            overhead: segment.overhead,
            is_from_lower,
        }
    }

    /// Returns true if the packet has all of these flags.
    pub(crate) fn has_flags(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Returns the sequence number behind its data.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.sequence.wrapping_add(self.payload)
    }

    /// Returns true if the packet opens a connection.
    pub(crate) fn is_first_syn(&self) -> bool {
        self.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN
    }

    /// Returns true if the packet's window is one that data may fill.
    pub(crate) fn is_scaled(&self) -> bool {
        self.flags & (flags::SYN | flags::RST) == 0
    }
}

/// Returns a sum of `blocks` that differs for nearly all others: a card of a network finishes the
/// checksum later.
#[inline]
fn blocks_sum(blocks: &[(u32, u32)]) -> u16 {
    let sum = blocks
        .iter()
        .fold(0, |sum, (from, to)| mix_number(mix_number(sum, *from), *to));
    (sum >> 16) as u16
}

/// Returns the sum with a further number.
#[inline]
fn mix_number(sum: u32, number: u32) -> u32 {
    /// 2^32 by the golden ratio (Knuth, volume 3, 6.4).
    const SPREAD: u32 = 0x9E37_79B9;
    (sum ^ number).wrapping_mul(SPREAD).rotate_left(15)
}

/// Returns true if a sequence number is not behind another.
#[inline]
fn is_up_to(position: u32, end: u32) -> bool {
    end.wrapping_sub(position).cast_signed() >= 0
}

/// Returns the kind of data that the SACK blocks of a segment report: data that had arrived before
/// if the first lies below what it acknowledges, or within the second (RFC 2883, 4).
#[inline]
fn to_sack(segment: &CapturedSegment) -> SackReport {
    let options = &segment.options;
    if options.sack_blocks == 0 {
        return match () {
            () if options.cut => SackReport::Cut,
            () if options.blanked => SackReport::Overwritten,
            () => SackReport::Absent,
        };
    }
    let [first, second, ..] = options.sack;
    let is_below = is_up_to(first.1, segment.acknowledgement);
    let is_within =
        options.sack_blocks > 1 && is_up_to(second.0, first.0) && is_up_to(first.1, second.1);
    if is_below || is_within {
        SackReport::Duplicate
    } else {
        SackReport::New
    }
}

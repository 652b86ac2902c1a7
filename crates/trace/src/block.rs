//! Packets that several threads read.

use std::ops::Range;

use fullpipe_units::Time;
use fullpipe_wire::{Captured, LinkType, read_captured};

use crate::file::CapturedPacket;

/// Bytes, and packets, of a block that is full.
const BYTES: usize = 1 << 17;
const PACKETS: usize = 1 << 11;

/// Packets in the order of a capture.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    packets: Vec<Placed>,
}

#[derive(Debug)]
struct Placed {
    range: Range<u32>,
    original: u32,
    link: LinkType,
    at: Time,
}

impl Block {
    /// Makes one with room for what fills it.
    pub(crate) fn with_room() -> Self {
        Self { bytes: Vec::with_capacity(BYTES), packets: Vec::with_capacity(PACKETS) }
    }

    /// Adds a packet. Returns whether the block is full.
    #[inline]
    pub(crate) fn add(&mut self, packet: &CapturedPacket) -> bool {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(packet.bytes);
        let range = start..self.bytes.len() as u32;
        self.packets.push(Placed { range, original: packet.original, link: packet.link, at: packet.at });
        self.bytes.len() >= BYTES || self.packets.len() == PACKETS
    }

    /// Returns the number of packets.
    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    /// Reads the packets, each with its time.
    pub(crate) fn read(&self) -> impl Iterator<Item = (Captured, Time)> + '_ {
        self.packets.iter().map(|packet| {
            let bytes = &self.bytes[packet.range.start as usize..packet.range.end as usize];
            (read_captured(packet.link, bytes, packet.original as usize), packet.at)
        })
    }
}

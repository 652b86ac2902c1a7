//! Packets that wait for being added to the state of their connection.

use crate::packet::FlowPacket;

/// Packets of a block.
pub(crate) const BLOCK: usize = 8;

/// Blocks that a connection has at most.
const MAX_BLOCKS: usize = 4;

/// Blocks that are allocated at once: an allocation for each would take most of the time, above all
/// on several threads.
const CHUNK: usize = 1024;

/// Blocks of packets of many connections, which are used again.
#[derive(Debug, Default)]
pub(crate) struct PacketBlocks {
    /// Each of [`CHUNK`] blocks at most.
    chunks: Vec<Vec<[FlowPacket; BLOCK]>>,
    free: Vec<u32>,
}

impl PacketBlocks {
    fn take_block(&mut self) -> u32 {
        if let Some(free) = self.free.pop() {
            return free;
        }
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        let last = &mut self.chunks[chunk];
        last.push([FlowPacket::EMPTY; BLOCK]);
        (chunk * CHUNK + last.len() - 1) as u32
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&[FlowPacket; BLOCK]> {
        self.chunks
            .get(number as usize / CHUNK)?
            .get(number as usize % CHUNK)
    }

    #[inline]
    fn get_mut(&mut self, number: u32) -> Option<&mut [FlowPacket; BLOCK]> {
        self.chunks
            .get_mut(number as usize / CHUNK)?
            .get_mut(number as usize % CHUNK)
    }

    /// Adds all blocks of `other`. Returns by how much their numbers are higher from then on.
    pub(crate) fn append(&mut self, mut other: Self) -> u32 {
        let shift = self.chunks.len() * CHUNK;
        self.chunks.append(&mut other.chunks);
        self.free
            .extend(other.free.into_iter().map(|block| block + shift as u32));
        shift as u32
    }
}

/// The packets of one connection that wait.
#[derive(Debug, Default)]
pub(crate) struct WaitingPackets {
    blocks: [u32; MAX_BLOCKS],
    /// Blocks that it has.
    held: u8,
    length: u8,
}

impl WaitingPackets {
    /// Packets that wait at most.
    pub(crate) const MAX: usize = MAX_BLOCKS * BLOCK;

    /// Returns the number of packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length.into()
    }

    /// Returns the bytes of its blocks.
    pub(crate) fn heap_bytes(&self) -> usize {
        usize::from(self.held) * size_of::<[FlowPacket; BLOCK]>()
    }

    /// Adds a packet to fewer than [`WaitingPackets::MAX`].
    #[inline]
    pub(crate) fn push(&mut self, packet: FlowPacket, blocks: &mut PacketBlocks) {
        let (place, index) = (self.len() / BLOCK, self.len() % BLOCK);
        if place == usize::from(self.held) {
            self.blocks[place] = blocks.take_block();
            self.held += 1;
        }
        if let Some(block) = blocks.get_mut(self.blocks[place]) {
            block[index] = packet;
            self.length += 1;
        }
    }

    /// Returns a number that is read where the next packet is written: the caches have the place
    /// from then on.
    #[inline]
    pub(crate) fn prefetch_block(&self, blocks: &PacketBlocks) -> u32 {
        let (place, index) = (self.len() / BLOCK, self.len() % BLOCK);
        let block = self.blocks.get(place).and_then(|block| blocks.get(*block));
        block.map_or(0, |block| block[index].sequence)
    }

    /// Returns the packets.
    pub(crate) fn packets<'b>(
        &self,
        blocks: &'b PacketBlocks,
    ) -> impl Iterator<Item = &'b FlowPacket> + use<'b> {
        let held = self.blocks;
        held.into_iter()
            .filter_map(|block| blocks.get(block))
            .flatten()
            .take(self.len())
    }

    /// Forgets the packets. All blocks stay.
    pub(crate) fn forget_packets(&mut self) {
        self.length = 0;
    }

    /// Forgets the packets. One block stays for others.
    pub(crate) fn clear_packets(&mut self, blocks: &mut PacketBlocks) {
        self.forget_packets();
        self.free_blocks(1, blocks);
    }

    /// Forgets the packets, and gives all blocks back.
    pub(crate) fn release_blocks(&mut self, blocks: &mut PacketBlocks) {
        self.forget_packets();
        self.free_blocks(0, blocks);
    }

    fn free_blocks(&mut self, kept: u8, blocks: &mut PacketBlocks) {
        while self.held > kept {
            self.held -= 1;
            blocks.free.push(self.blocks[usize::from(self.held)]);
        }
    }

    /// Returns the waiting packets, moved to blocks of `other`.
    pub(crate) fn copied_to(&self, blocks: &PacketBlocks, other: &mut PacketBlocks) -> Self {
        let mut moved = Self::default();
        self.packets(blocks)
            .for_each(|packet| moved.push(*packet, other));
        moved
    }

    /// Adds `shift` to the numbers of its blocks.
    pub(crate) fn shift_blocks(&mut self, shift: u32) {
        self.blocks.iter_mut().for_each(|block| *block += shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u32) -> FlowPacket {
        FlowPacket {
            sequence,
            ..FlowPacket::EMPTY
        }
    }

    fn sequences(waiting: &WaitingPackets, blocks: &PacketBlocks) -> Vec<u32> {
        waiting
            .packets(blocks)
            .map(|packet| packet.sequence)
            .collect()
    }

    #[test]
    fn packets_of_many_connections_stay_apart_and_their_blocks_are_used_again() {
        const CONNECTIONS: u32 = CHUNK as u32;
        let mut blocks = PacketBlocks::default();
        let mut all: Vec<WaitingPackets> = (0..CONNECTIONS)
            .map(|_| WaitingPackets::default())
            .collect();
        for round in 0..WaitingPackets::MAX as u32 {
            for (waiting, number) in all.iter_mut().zip(0..) {
                waiting.push(packet(round * CONNECTIONS + number), &mut blocks);
            }
        }
        for (waiting, number) in all.iter().zip(0..) {
            let expected =
                (0..WaitingPackets::MAX as u32).map(|round| round * CONNECTIONS + number);
            assert!(sequences(waiting, &blocks).into_iter().eq(expected));
        }
        assert_eq!(blocks.chunks.len(), MAX_BLOCKS);
        for waiting in &mut all {
            waiting.clear_packets(&mut blocks);
        }
        assert!(all.iter().all(|waiting| waiting.len() == 0
            && waiting.heap_bytes() == size_of::<[FlowPacket; BLOCK]>()));
        for waiting in &mut all {
            waiting.release_blocks(&mut blocks);
        }
        let mut another = WaitingPackets::default();
        (0..20).for_each(|sequence| another.push(packet(sequence), &mut blocks));
        assert_eq!(
            (blocks.chunks.len(), blocks.free.len()),
            (MAX_BLOCKS, MAX_BLOCKS * CHUNK - 3)
        );
    }

    #[test]
    fn packets_are_the_same_behind_those_of_another_part() {
        let mut parts = [PacketBlocks::default(), PacketBlocks::default()];
        let [first, second] = [0, 100].map(|begin| {
            let (mut waiting, blocks) = (
                WaitingPackets::default(),
                &mut parts[usize::from(begin > 0)],
            );
            (begin..begin + 11).for_each(|sequence| waiting.push(packet(sequence), blocks));
            waiting
        });
        let [mut blocks, other] = parts;
        let mut apart = PacketBlocks::default();
        let moved = second.copied_to(&other, &mut apart);
        let mut second = second;
        second.shift_blocks(blocks.append(other));
        assert!(sequences(&first, &blocks).into_iter().eq(0..11));
        assert!(sequences(&second, &blocks).into_iter().eq(100..111));
        assert!(sequences(&moved, &apart).into_iter().eq(100..111));
    }
}

use fullpipe_units::{ByteCount, SegCount};

use super::clock::TimestampValue;

/// Segments of one size that a sender hands to the network at once, numbered from the first of the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentBurst {
    /// Number of its first segment.
    pub first: u64,
    /// Number of segments.
    pub segments: SegCount,
    /// Time at which they were sent, by the sender's clock.
    pub stamp: TimestampValue,
    /// The latest stamp of the receiver that the sender has seen.
    pub echo: TimestampValue,
    /// True if its last segment has the PSH flag.
    pub pushes: bool,
    /// True if it carries no payload and only asks for an acknowledgement: the probe of a closed
    /// window.
    pub is_probe: bool,
}

/// An acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckSegment {
    /// The first segment that has not arrived in order.
    pub next: u64,
    /// The window from there on.
    pub window: ByteCount,
    /// Segments that arrived out of order, and one that arrived twice.
    pub blocks: SackBlocks,
    /// Time at which it was sent, by the receiver's clock.
    pub stamp: TimestampValue,
    /// The stamp of the segment that it answers (`ts_recent`).
    pub echo: TimestampValue,
}

/// Greatest number of blocks in an acknowledgement: the options of a header have 40 bytes.
const MAX_BLOCKS: usize = 4;

/// Blocks of a selective acknowledgement (RFC 2018), newest first; where segments arrived twice, a
/// block of those comes before (RFC 2883). Most acknowledgements have none, and are small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SackBlocks(Option<Box<BlockList>>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct BlockList {
    count: u8,
    /// From the acknowledged segment on, which a block of what arrived twice lies before, and
    /// length.
    blocks: [(i32, u32); MAX_BLOCKS],
}

impl SackBlocks {
    /// Adds the segments from `start` up to `end` to an acknowledgement of `next`; nothing where
    /// there is no room.
    pub(crate) fn push(&mut self, next: u64, (start, end): (u64, u64)) {
        let list = self.0.get_or_insert_default();
        if let Some(block) = list.blocks.get_mut(usize::from(list.count)) {
            *block = (
                start.wrapping_sub(next) as i32,
                end.saturating_sub(start) as u32,
            );
            list.count += 1;
        }
    }

    /// Returns the blocks of an acknowledgement of `next`, each from its first segment up to behind
    /// its last.
    pub fn block_ranges(&self, next: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter()
            .flat_map(|list| list.blocks.iter().take(usize::from(list.count)))
            .map(move |&(start, length)| {
                let start = next.wrapping_add_signed(i64::from(start));
                (start, start.saturating_add(u64::from(length)))
            })
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| usize::from(list.count))
    }

    /// Returns true if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes of the option, padding included; nothing where there are no blocks.
    #[inline]
    pub fn option_bytes(&self) -> ByteCount {
        self.0.as_ref().map_or(ByteCount::ZERO, |list| {
            ByteCount::new(4 + 8 * u64::from(list.count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_on_both_sides_of_the_acknowledged_segment() {
        let mut blocks = SackBlocks::default();
        assert_eq!(blocks.option_bytes(), ByteCount::ZERO);
        for block in [(90, 95), (120, 130), (105, 110), (140, 150), (160, 170)] {
            blocks.push(100, block);
        }
        assert_eq!(
            blocks.block_ranges(100).collect::<Vec<_>>(),
            [(90, 95), (120, 130), (105, 110), (140, 150)]
        );
        assert_eq!(
            (blocks.len(), blocks.option_bytes()),
            (4, ByteCount::new(36))
        );
    }
}

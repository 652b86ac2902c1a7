//! Segments that arrived out of order, and the blocks by which they are reported.

use std::collections::BTreeMap;

use crate::tcp::packet::SackBlocks;

/// `TCP_NUM_SACKS`.
const MAX_LISTED: usize = 4;
/// `TCP_SACK_BLOCKS_EXPECTED`: where there are more, acknowledgements are not held back.
const EXPECTED: usize = 2;

/// The queue of segments behind a hole (`out_of_order_queue`).
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// From the first segment of each run to the one behind its last.
    runs: BTreeMap<u64, u64>,
    /// The end of the last of them, while there are any.
    end: u64,
    /// Segments in all of them.
    segments: u64,
    /// `selective_acks`, the latest first.
    listed: Vec<(u64, u64)>,
    /// `duplicate_sack`.
    pub(super) duplicate: Option<(u64, u64)>,
}

impl Reassembly {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn segment_count(&self) -> u64 {
        self.segments
    }

    /// The end of the highest segment that has arrived.
    pub(super) fn highest_end(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.end)
    }

    /// Takes in the segments from `start` up to `end`. Returns the number that was not there yet,
    /// and whether a held acknowledgement is to go out first (`tcp_data_queue_ofo`,
    /// `tcp_sack_new_ofo_skb`).
    pub(super) fn add_range(&mut self, start: u64, end: u64) -> (u64, bool) {
        let added = self.insert_range(start, end);
        if added < end - start {
            self.duplicate = Some((start, end));
        }
        if added == 0 {
            return (0, false);
        }
        (added, self.record_block(start, end))
    }

    fn insert_range(&mut self, start: u64, end: u64) -> u64 {
        let added = self
            .lengthen_run(start, end)
            .unwrap_or_else(|| self.join_runs(start, end));
        self.segments += added;
        added
    }

    /// Lengthens the run that the segments continue, as most do, where they touch no other. Returns
    /// the number of those that were not there yet.
    fn lengthen_run(&mut self, start: u64, end: u64) -> Option<u64> {
        let (first, until) = self.runs.range_mut(..=end).next_back()?;
        if *first > start || *until < start {
            return None;
        }
        let added = end.saturating_sub(*until);
        *until += added;
        self.end = self.end.max(*until);
        Some(added)
    }

    /// Makes one run of the segments and of all that they touch. Returns the number of those that
    /// were not there yet.
    fn join_runs(&mut self, start: u64, end: u64) -> u64 {
        let (mut first, mut last, mut there) = (start, end, 0);
        if let Some((&before, &until)) = self.runs.range(..=start).next_back()
            && until >= start
        {
            there += until.min(end) - start;
            (first, last) = (before, last.max(until));
            self.runs.remove(&before);
        }
        while let Some((&next, &until)) = self.runs.range(first..=last).next() {
            there += until.min(end) - next.min(end);
            last = last.max(until);
            self.runs.remove(&next);
        }
        self.end = if self.is_empty() {
            last
        } else {
            self.end.max(last)
        };
        self.runs.insert(first, last);
        end - start - there
    }

    fn record_block(&mut self, start: u64, end: u64) -> bool {
        let touching = self
            .listed
            .iter()
            .position(|&(first, last)| start <= last && first <= end);
        let place = touching.unwrap_or(self.listed.len());
        let mut block = (start, end);
        if let Some(touching) = touching {
            let (first, last) = self.listed.remove(touching);
            block = (first.min(start), last.max(end));
            // `tcp_sack_maybe_coalesce`.
            self.listed.retain(|&(first, last)| {
                let apart = first > block.1 || block.0 > last;
                if !apart {
                    block = (block.0.min(first), block.1.max(last));
                }
                apart
            });
        }
        self.listed.truncate(MAX_LISTED - 1);
        self.listed.insert(0, block);
        place >= EXPECTED
    }

    /// Takes away what is in order when everything before `next` has arrived; returns the segment
    /// that is missing then (`tcp_ofo_queue`, `tcp_sack_remove`).
    pub(super) fn take_in_order(&mut self, next: u64) -> u64 {
        let mut next = next;
        while let Some(run) = self.runs.first_entry() {
            if *run.key() > next {
                break;
            }
            let (start, end) = run.remove_entry();
            self.segments -= end - start;
            next = next.max(end);
        }
        self.listed.retain(|&(start, _)| start > next);
        next
    }

    /// The blocks of an acknowledgement of `next`, at most `most`; that of what arrived twice is
    /// reported once.
    pub(super) fn sack_blocks(&mut self, next: u64, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for block in self
            .duplicate
            .take()
            .into_iter()
            .chain(self.listed.iter().copied())
            .take(most)
        {
            blocks.push(next, block);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_block_comes_first_and_blocks_grow_together() {
        let mut queue = Reassembly::default();
        for (start, end) in [(10, 12), (20, 22), (30, 32), (12, 14)] {
            queue.add_range(start, end);
        }
        assert_eq!(
            queue.sack_blocks(5, 3).block_ranges(5).collect::<Vec<_>>(),
            [(10, 14), (30, 32), (20, 22)]
        );
        queue.add_range(14, 20);
        assert_eq!(
            queue.sack_blocks(5, 3).block_ranges(5).collect::<Vec<_>>(),
            [(10, 22), (30, 32)]
        );
        assert_eq!((queue.take_in_order(10), queue.segment_count()), (22, 2));
        assert_eq!(
            queue
                .sack_blocks(22, 3)
                .block_ranges(22)
                .collect::<Vec<_>>(),
            [(30, 32)]
        );
    }

    #[test]
    fn what_arrives_twice_is_reported_once_and_first() {
        let mut queue = Reassembly::default();
        queue.add_range(10, 12);
        assert_eq!(queue.add_range(10, 12), (0, false));
        assert_eq!(
            queue.sack_blocks(5, 3).block_ranges(5).collect::<Vec<_>>(),
            [(10, 12), (10, 12)]
        );
        assert_eq!(
            queue.sack_blocks(5, 3).block_ranges(5).collect::<Vec<_>>(),
            [(10, 12)]
        );
    }

    proptest! {
        #[test]
        fn every_segment_counts_once(parts in prop::collection::vec((1_u64..200, 1_u64..20), 1..60)) {
            let mut queue = Reassembly::default();
            let mut there = std::collections::BTreeSet::new();
            for (start, count) in parts {
                let new = (start..start + count).filter(|segment| there.insert(*segment)).count() as u64;
                prop_assert_eq!(queue.add_range(start, start + count).0, new);
                prop_assert_eq!(queue.segment_count(), there.len() as u64);
                prop_assert_eq!(queue.highest_end(), there.last().map(|last| last + 1));
            }
            let next = queue.take_in_order(1);
            prop_assert!(!there.contains(&next) && (1..next).all(|segment| there.contains(&segment)) || next == 1);
        }
    }
}

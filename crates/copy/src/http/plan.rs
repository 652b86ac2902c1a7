//! The ranges of a file that are still to be asked for.

use std::collections::VecDeque;

use fullpipe_units::{BitRate, ByteCount, Span};

use crate::protocol::{CHUNK, FileChunks, block_offset};

/// The chunks of a file that are missing: those that no connection has taken, and those of each.
pub(crate) struct RangePlan {
    missing: VecDeque<FileChunks>,
    taken: Vec<TakenRange>,
    request_time: Span,
    requests: u64,
}

/// The chunks that a connection gets; none if it has no work.
#[derive(Clone, Copy)]
struct TakenRange {
    chunks: FileChunks,
    /// Another connection gets the first chunk, too.
    is_doubled: bool,
}

impl TakenRange {
    const NONE: Self = Self {
        chunks: FileChunks { first: 0, count: 0 },
        is_doubled: false,
    };
}

impl RangePlan {
    /// Returns the plan of what is missing, by so many requests of each connection at least, which
    /// take at most `request_time` each.
    pub(crate) fn new(missing: Vec<FileChunks>, request_time: Span, requests: u64) -> Self {
        Self {
            missing: missing.into(),
            taken: Vec::new(),
            request_time,
            requests,
        }
    }

    /// Takes the next chunks for the connection `worker`, which carries `rate`, one of so many. The
    /// rest stays for all. Once nothing is left, it takes half of what another one has, or the last
    /// chunk of a slow one once more: at the end none should wait for another one.
    pub(crate) fn take_range(
        &mut self,
        worker: usize,
        rate: BitRate,
        connections: usize,
    ) -> Option<FileChunks> {
        let in_time = rate.bytes_in(self.request_time).get() / CHUNK as u64;
        let fair = self.remaining_chunks() / (self.requests * connections.max(1) as u64);
        let most = in_time.min(fair).clamp(1, u32::MAX.into()) as u32;
        let chunks = match self.missing.pop_front() {
            Some(row) => {
                let count = row.count.min(most);
                self.put_back(FileChunks {
                    first: row.first + count,
                    count: row.count - count,
                });
                FileChunks { count, ..row }
            }
            None => self.take_from_another()?,
        };
        let is_doubled = self
            .taken
            .iter()
            .any(|range| range.is_doubled && range.chunks == chunks);
        if self.taken.len() <= worker {
            self.taken.resize(worker + 1, TakenRange::NONE);
        }
        self.taken[worker] = TakenRange { chunks, is_doubled };
        Some(chunks)
    }

    fn take_from_another(&mut self) -> Option<FileChunks> {
        let free = self.taken.iter_mut().filter(|range| !range.is_doubled);
        let largest = free.max_by_key(|range| range.chunks.count)?;
        let chunks = &mut largest.chunks;
        let half = chunks.count / 2;
        if half > 0 {
            chunks.count -= half;
            let first = chunks.first + chunks.count;
            return Some(FileChunks { first, count: half });
        }
        largest.is_doubled = chunks.count > 0;
        largest.is_doubled.then_some(*chunks)
    }

    /// Takes note that the first chunk of a connection has come. Returns those that it still gets.
    pub(crate) fn end_chunk(&mut self, worker: usize) -> FileChunks {
        let range = &mut self.taken[worker];
        range.chunks.first += 1;
        range.chunks.count -= 1;
        range.is_doubled = false;
        range.chunks
    }

    /// Takes chunks back that a connection could not get.
    pub(crate) fn give_back(&mut self, worker: usize) {
        let left = self.taken.get_mut(worker);
        let left = left.map(|range| std::mem::replace(range, TakenRange::NONE).chunks);
        self.put_back(left.unwrap_or(TakenRange::NONE.chunks));
    }

    fn put_back(&mut self, chunks: FileChunks) {
        if chunks.count > 0 {
            self.missing.push_front(chunks);
        }
    }

    /// Returns true if there is something that no connection has taken.
    pub(crate) fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    fn remaining_chunks(&self) -> u64 {
        self.missing
            .iter()
            .map(|chunks| u64::from(chunks.count))
            .sum()
    }
}

/// The chunks that a connection gets, and what it has of the first.
pub(crate) struct RangeWork {
    pub chunks: FileChunks,
    pub filled: Vec<u8>,
}

impl RangeWork {
    pub(crate) fn new(chunks: FileChunks) -> Self {
        let filled = Vec::with_capacity(CHUNK);
        Self { chunks, filled }
    }

    /// Returns the first and the last byte that are missing, of a file of `size`.
    pub(crate) fn missing_bytes(&self, size: ByteCount) -> (u64, u64) {
        let begin = block_offset(self.chunks.first, 0);
        let end = begin + self.chunks.byte_count(size).get();
        (begin + self.filled.len() as u64, end.saturating_sub(1))
    }

    /// Returns the bytes that are missing of the first chunk; zero if that is whole.
    pub(crate) fn missing_in_chunk(&self, size: ByteCount) -> usize {
        let first = FileChunks {
            count: 1,
            ..self.chunks
        };
        first.byte_count(size).get() as usize - self.filled.len()
    }

    /// Goes on to the next of the chunks that are left.
    pub(crate) fn next_chunk(&mut self, left: FileChunks) {
        self.chunks = left;
        self.filled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_TIME: Span = Span::from_secs(8);

    const SIZE: ByteCount = ByteCount::new(100 * CHUNK as u64 + 7);

    fn whole_plan() -> RangePlan {
        RangePlan::new(vec![FileChunks::from_size(SIZE).unwrap()], REQUEST_TIME, 2)
    }

    #[test]
    fn every_chunk_is_taken_once_and_what_is_given_back_again() {
        let (mut plan, mut next, mut counts) = (whole_plan(), 0, Vec::new());
        while plan.has_missing() {
            let chunks = plan.take_range(0, BitRate::from_mbps(100), 4).unwrap();
            assert_eq!(chunks.first, next);
            next += chunks.count;
            counts.push(chunks.count);
        }
        assert_eq!((next, counts[0], counts.last()), (101, 12, Some(&1)));
        let mut plan = whole_plan();
        let taken = plan.take_range(1, BitRate::from_mbps(100), 4).unwrap();
        assert_eq!(
            plan.end_chunk(1),
            FileChunks {
                first: 1,
                count: 11
            }
        );
        plan.give_back(1);
        plan.give_back(1);
        plan.give_back(7);
        let again = plan.take_range(0, BitRate::ZERO, 4);
        assert_eq!(
            (taken.first, again),
            (0, Some(FileChunks { first: 1, count: 1 }))
        );
    }

    #[test]
    fn a_slow_connection_takes_little() {
        let taken = whole_plan().take_range(0, BitRate::from_mbps(4), 1);
        assert_eq!(taken.unwrap().count, 3);
    }

    #[test]
    fn at_the_end_none_waits_for_a_slow_connection() {
        let missing = FileChunks {
            first: 10,
            count: 4,
        };
        let mut plan = RangePlan::new(vec![missing], REQUEST_TIME, 2);
        let mut take = |worker| plan.take_range(worker, BitRate::from_mbps(1000), 0);
        assert_eq!(
            take(0),
            Some(FileChunks {
                first: 10,
                count: 2
            })
        );
        assert_eq!(
            take(1),
            Some(FileChunks {
                first: 12,
                count: 1
            })
        );
        assert_eq!(
            take(2),
            Some(FileChunks {
                first: 13,
                count: 1
            })
        );
        assert_eq!(
            take(3),
            Some(FileChunks {
                first: 11,
                count: 1
            })
        );
        // Each last chunk once more, and then nothing.
        let mut doubled: Vec<_> = (4..8)
            .filter_map(&mut take)
            .map(|chunks| chunks.first)
            .collect();
        doubled.sort_unstable();
        assert_eq!(doubled, [10, 11, 12, 13]);
    }

    #[test]
    fn work_goes_on_where_a_connection_broke() {
        let mut work = RangeWork::new(FileChunks {
            first: 99,
            count: 2,
        });
        work.filled.extend([0; 10]);
        let begin = 99 * CHUNK as u64;
        assert_eq!(work.missing_bytes(SIZE), (begin + 10, SIZE.get() - 1));
        assert_eq!(work.missing_in_chunk(SIZE), CHUNK - 10);
        work.next_chunk(FileChunks {
            first: 100,
            count: 1,
        });
        assert_eq!((work.missing_in_chunk(SIZE), work.chunks.count), (7, 1));
    }
}

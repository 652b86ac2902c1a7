//! The ranges of a file that are still to be asked for.

use std::collections::VecDeque;

use fullpipe_units::{BitRate, ByteCount, Span};

use crate::protocol::{CHUNK, FileChunks};

/// Time that one request should take: between two of them a connection carries nothing for a round
/// trip.
const REQUEST_TIME: Span = Span::from_secs(8);

/// The chunks of a file that no connection has taken.
#[derive(Debug)]
pub(crate) struct RangePlan {
    missing: VecDeque<FileChunks>,
}

impl RangePlan {
    pub(crate) fn new(missing: Vec<FileChunks>) -> Self {
        Self {
            missing: missing.into(),
        }
    }

    /// Takes the next chunks for a connection that carries `rate`, one of `connections`. The rest
    /// stays for all: at the end none should wait for another one.
    pub(crate) fn take_range(&mut self, rate: BitRate, connections: usize) -> Option<FileChunks> {
        let in_time = rate.bytes_in(REQUEST_TIME).get() / CHUNK as u64;
        let fair = self.remaining_chunks() / (2 * connections.max(1) as u64);
        let most = in_time.min(fair).clamp(1, u32::MAX.into()) as u32;
        let mut first = self.missing.pop_front()?;
        let taken = FileChunks {
            first: first.first,
            count: first.count.min(most),
        };
        first.first += taken.count;
        first.count -= taken.count;
        if first.count > 0 {
            self.missing.push_front(first);
        }
        Some(taken)
    }

    /// Returns true if there is something to take.
    pub(crate) fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Takes chunks back that a connection could not get.
    pub(crate) fn give_back(&mut self, chunks: FileChunks) {
        if chunks.count > 0 {
            self.missing.push_front(chunks);
        }
    }

    fn remaining_chunks(&self) -> u64 {
        self.missing
            .iter()
            .map(|chunks| u64::from(chunks.count))
            .sum()
    }
}

/// The chunks that a connection gets, and what it has of the first.
#[derive(Debug)]
pub(crate) struct RangeWork {
    pub(crate) chunks: FileChunks,
    pub(crate) filled: Vec<u8>,
}

impl RangeWork {
    pub(crate) fn new(chunks: FileChunks) -> Self {
        let filled = Vec::with_capacity(CHUNK);
        Self { chunks, filled }
    }

    /// Returns the first and the last byte that are missing, of a file of `size`.
    pub(crate) fn missing_bytes(&self, size: ByteCount) -> (u64, u64) {
        let begin = u64::from(self.chunks.first) * CHUNK as u64;
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

    /// Goes on to the next chunk.
    pub(crate) fn next_chunk(&mut self) {
        self.chunks.first += 1;
        self.chunks.count -= 1;
        self.filled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: ByteCount = ByteCount::new(100 * CHUNK as u64 + 7);

    #[test]
    fn every_chunk_is_taken_once() {
        let all = FileChunks::from_size(SIZE).unwrap();
        let mut plan = RangePlan::new(vec![all]);
        let (mut taken, mut next) = (Vec::new(), 0);
        while let Some(chunks) = plan.take_range(BitRate::from_mbps(100), 4) {
            assert_eq!(chunks.first, next);
            next += chunks.count;
            taken.push(chunks.count);
        }
        assert_eq!((next, taken[0], taken.last()), (101, 12, Some(&1)));
        plan.give_back(FileChunks { first: 3, count: 2 });
        plan.give_back(FileChunks { first: 9, count: 0 });
        let again = plan.take_range(BitRate::ZERO, 4);
        assert_eq!(again, Some(FileChunks { first: 3, count: 1 }));
    }

    #[test]
    fn a_slow_connection_takes_little() {
        let all = FileChunks::from_size(SIZE).unwrap();
        let taken = RangePlan::new(vec![all]).take_range(BitRate::from_mbps(4), 1);
        assert_eq!(taken.unwrap().count, 3);
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
        work.next_chunk();
        assert_eq!((work.missing_in_chunk(SIZE), work.chunks.count), (7, 1));
    }
}

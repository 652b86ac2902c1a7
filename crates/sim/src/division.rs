//! The way in which the connections of a transfer share its bytes.

use fullpipe_units::ByteCount;

/// A way in which connections divide the bytes of a transfer that ends by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransferDivision {
    /// Each has an equal part from the start.
    #[default]
    Equal,
    /// The sender keeps one queue of chunks of this size: each connection takes the next when it
    /// has written one.
    Queue(ByteCount),
    /// The receiver asks each connection for a range of chunks of this size, as aria2 does. The
    /// first request is for all, and the others follow when it is answered; each later one is for
    /// the second half of the largest range that no connection has begun. A connection that comes
    /// to a chunk of another one takes it where nothing of it has arrived. Else it is closed, with
    /// what is still on its way, and opened again; one whose range ends there asks again at once.
    Ranges(ByteCount),
}

/// The bytes that are left for the connections.
#[derive(Debug)]
pub(crate) enum DividedTransfer {
    Equal,
    Queue(ChunkQueue),
    Ranges(FileRanges),
}

impl DividedTransfer {
    /// Of a transfer of `total` bytes.
    pub(crate) fn new(division: TransferDivision, total: Option<ByteCount>) -> Self {
        match (division, total) {
            (TransferDivision::Queue(chunk), Some(left)) => Self::Queue(ChunkQueue { left, chunk }),
            (TransferDivision::Ranges(chunk), Some(total)) => {
                Self::Ranges(FileRanges::new(total, chunk))
            }
            _ => Self::Equal,
        }
    }

    /// Returns the bytes that each of the first `connections` has to send at first; `None` where
    /// parts are equal.
    pub(crate) fn at_first(&mut self, connections: usize) -> Option<Vec<ByteCount>> {
        match self {
            Self::Equal => None,
            Self::Queue(_) => Some(vec![ByteCount::ZERO; connections]),
            Self::Ranges(ranges) => Some(ranges.at_first(connections)),
        }
    }
}

/// Chunks that no connection has taken.
#[derive(Debug)]
pub(crate) struct ChunkQueue {
    left: ByteCount,
    chunk: ByteCount,
}

impl ChunkQueue {
    /// Returns the next chunk for a connection; nothing if all are taken.
    pub(crate) fn take_chunk(&mut self) -> Option<ByteCount> {
        let chunk = self.chunk.min(self.left);
        self.left = self.left.saturating_sub(chunk);
        (chunk > ByteCount::ZERO).then_some(chunk)
    }

    /// Returns the bytes that no connection has taken.
    pub(crate) fn remaining_bytes(&self) -> ByteCount {
        self.left
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// No connection has begun the chunk.
    Free,
    /// A connection receives it.
    Begun,
    Whole,
}

/// A state of a connection at its receiving end.
#[derive(Debug, Clone, Copy)]
enum RequestState {
    /// Nothing.
    Idle,
    /// A range of which nothing has arrived.
    Waiting(ChunkRange),
    Receiving(ChunkRange),
    /// A range that another connection receives instead. This one had received so many bytes when
    /// it asked.
    Robbed(ByteCount),
}

/// A range of chunks that a connection was asked for.
#[derive(Debug, Clone, Copy)]
struct ChunkRange {
    /// The chunk that it receives.
    at: usize,
    /// The first one that it was not asked for.
    end: usize,
    /// Bytes that the connection had received before this chunk.
    before: ByteCount,
}

/// The part of a connection's range that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivedPart {
    /// Less than the whole.
    Part,
    /// All that it was asked for.
    All,
    /// All up to a chunk of another connection, or something of a chunk that another one has taken
    /// from it.
    UpToAnother,
}

/// The chunks of a file at the end that asks for them.
#[derive(Debug)]
pub(crate) struct FileRanges {
    chunks: Vec<ChunkState>,
    chunk: ByteCount,
    /// The last one.
    last: ByteCount,
    /// Of each connection.
    asked: Vec<RequestState>,
    left: usize,
}

impl FileRanges {
    fn new(total: ByteCount, chunk: ByteCount) -> Self {
        let chunk = chunk.max(ByteCount::new(1));
        let count = total.get().div_ceil(chunk.get()).max(1);
        let last = total.saturating_sub(chunk * (count - 1));
        let count = count as usize;
        Self {
            chunks: vec![ChunkState::Free; count],
            chunk,
            last,
            asked: Vec::new(),
            left: count,
        }
    }

    /// All connections know their first chunk before they ask; only the first one has asked then.
    fn at_first(&mut self, connections: usize) -> Vec<ByteCount> {
        let begun: Vec<Option<usize>> = (0..connections).map(|_| self.begin_range()).collect();
        self.asked = begun
            .into_iter()
            .map(|at| match at {
                Some(at) => RequestState::Waiting(ChunkRange {
                    at,
                    end: if at == 0 {
                        self.chunks.len()
                    } else {
                        self.next_begun(at)
                    },
                    before: ByteCount::ZERO,
                }),
                None => RequestState::Idle,
            })
            .collect();
        self.asked
            .iter()
            .map(|asked| match asked {
                RequestState::Waiting(range) => self.chunk_bytes(range.at, range.end),
                _ => ByteCount::ZERO,
            })
            .collect()
    }

    /// Returns the bytes that a connection is asked for next, which had received `read` in all;
    /// `None` if nothing is left to ask for.
    pub(crate) fn next_range(&mut self, connection: usize, read: ByteCount) -> Option<ByteCount> {
        self.asked
            .resize(self.asked.len().max(connection + 1), RequestState::Idle);
        let at = self.begin_range()?;
        let range = ChunkRange {
            at,
            end: self.next_begun(at),
            before: read,
        };
        self.asked[connection] = RequestState::Waiting(range);
        Some(self.chunk_bytes(range.at, range.end))
    }

    /// Notes that a connection has received `read` bytes in all.
    pub(crate) fn record_arrival(&mut self, connection: usize, read: ByteCount) -> ArrivedPart {
        let mut range = match self.asked.get(connection) {
            Some(RequestState::Receiving(range)) => *range,
            Some(RequestState::Waiting(range)) if read > range.before => *range,
            Some(RequestState::Robbed(before)) if read > *before => {
                return self.end_range(connection, ArrivedPart::UpToAnother);
            }
            _ => return ArrivedPart::Part,
        };
        loop {
            let whole = range.before + self.chunk_bytes(range.at, range.at + 1);
            if read < whole {
                self.asked[connection] = RequestState::Receiving(range);
                return ArrivedPart::Part;
            }
            self.chunks[range.at] = ChunkState::Whole;
            self.left -= 1;
            range = ChunkRange {
                at: range.at + 1,
                before: whole,
                ..range
            };
            if range.at == range.end {
                return self.end_range(connection, ArrivedPart::All);
            }
            if self.chunks[range.at] != ChunkState::Free && !self.rob_chunk(range.at) {
                return self.end_range(connection, ArrivedPart::UpToAnother);
            }
            self.chunks[range.at] = ChunkState::Begun;
        }
    }

    fn end_range(&mut self, connection: usize, arrived: ArrivedPart) -> ArrivedPart {
        self.asked[connection] = RequestState::Idle;
        arrived
    }

    /// Takes a chunk from a connection that waits for its first byte
    /// (`SegmentMan::getCleanSegmentIfOwnerIsIdle`). Returns whether there is one.
    fn rob_chunk(&mut self, chunk: usize) -> bool {
        for asked in &mut self.asked {
            if let RequestState::Waiting(range) = asked
                && range.at == chunk
            {
                *asked = RequestState::Robbed(range.before);
                return true;
            }
        }
        false
    }

    /// Returns true if a connection is to receive more of what it was asked for.
    pub(crate) fn is_receiving(&self, connection: usize) -> bool {
        self.asked
            .get(connection)
            .is_some_and(|asked| !matches!(asked, RequestState::Idle))
    }

    /// Returns the bytes of the chunks that are not there.
    pub(crate) fn missing_bytes(&self) -> ByteCount {
        let missing = (0..self.chunks.len()).filter(|at| self.chunks[*at] != ChunkState::Whole);
        missing.map(|at| self.chunk_bytes(at, at + 1)).sum()
    }

    /// Returns true if the file is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Begins the second half of the largest range of free chunks, or all of it where no connection
    /// receives the chunk before it (`BitfieldMan::getSparseMissingUnusedIndex`).
    fn begin_range(&mut self) -> Option<usize> {
        let count = self.chunks.len();
        let (mut best, mut from) = (None, 0);
        while let Some(start) = (from..count).find(|at| self.chunks[*at] == ChunkState::Free) {
            let end = (start..count)
                .find(|at| self.chunks[*at] != ChunkState::Free)
                .unwrap_or(count);
            let is_received = start > 0 && self.chunks[start - 1] == ChunkState::Begun;
            let at = if is_received {
                start.midpoint(end)
            } else {
                start
            };
            if best.is_none_or(|(_, size)| size < end - at) {
                best = Some((at, end - at));
            }
            from = end;
        }
        let (at, _) = best?;
        self.chunks[at] = ChunkState::Begun;
        Some(at)
    }

    fn next_begun(&self, at: usize) -> usize {
        (at + 1..self.chunks.len())
            .find(|next| self.chunks[*next] != ChunkState::Free)
            .unwrap_or(self.chunks.len())
    }

    /// Returns the bytes from one chunk to another.
    fn chunk_bytes(&self, from: usize, to: usize) -> ByteCount {
        let whole = self.chunk * (to - from) as u64;
        if to == self.chunks.len() {
            whole.saturating_sub(self.chunk) + self.last
        } else {
            whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: ByteCount = ByteCount::new(10);

    fn ranges(total: u64) -> FileRanges {
        FileRanges::new(ByteCount::new(total), CHUNK)
    }

    fn bytes(all: &[u64]) -> Vec<ByteCount> {
        all.iter().copied().map(ByteCount::new).collect()
    }

    #[test]
    fn ranges_are_halves_at_first_and_the_first_request_is_for_all() {
        // Sixteen chunks: 0, 8, 4, 12.
        assert_eq!(ranges(155).at_first(4), bytes(&[155, 40, 40, 35]));
        assert_eq!(ranges(5).at_first(3), bytes(&[5, 0, 0]));
    }

    #[test]
    fn a_connection_ends_at_the_first_chunk_of_another_and_the_other_half_is_asked_for() {
        let mut ranges = ranges(160);
        ranges.at_first(2);
        let read = ByteCount::new;
        assert_eq!(ranges.record_arrival(1, read(79)), ArrivedPart::Part);
        assert_eq!(ranges.record_arrival(1, read(80)), ArrivedPart::All);
        // Of seven chunks behind the first one, that is from the fourth on.
        assert_eq!(ranges.next_range(1, read(80)), Some(read(40)));
        assert_eq!(ranges.record_arrival(1, read(81)), ArrivedPart::Part);
        assert_eq!(ranges.record_arrival(0, read(39)), ArrivedPart::Part);
        assert_eq!(ranges.record_arrival(0, read(45)), ArrivedPart::UpToAnother);
        assert_eq!(ranges.next_range(2, read(0)), Some(read(20)));
        assert_eq!(ranges.record_arrival(2, read(1)), ArrivedPart::Part);
        assert_eq!(
            ranges.record_arrival(1, read(100)),
            ArrivedPart::UpToAnother
        );
        assert!(!ranges.is_complete());
        assert_eq!(ranges.record_arrival(2, read(20)), ArrivedPart::All);
        assert!(ranges.is_complete() && ranges.next_range(2, read(20)).is_none());
    }

    #[test]
    fn a_chunk_of_which_nothing_has_arrived_is_taken_from_the_connection_that_waits_for_it() {
        let mut ranges = ranges(40);
        let read = ByteCount::new;
        assert_eq!(ranges.at_first(2), bytes(&[40, 20]));
        assert_eq!(ranges.record_arrival(0, read(25)), ArrivedPart::Part);
        // Its first bytes come too late: it is closed, and asks for what is left.
        assert_eq!(ranges.record_arrival(1, read(0)), ArrivedPart::Part);
        assert_eq!(ranges.record_arrival(1, read(1)), ArrivedPart::UpToAnother);
        assert_eq!(ranges.next_range(2, read(0)), Some(CHUNK));
        assert_eq!(ranges.record_arrival(2, read(10)), ArrivedPart::All);
        assert_eq!(ranges.record_arrival(0, read(30)), ArrivedPart::UpToAnother);
        assert!(ranges.is_complete());
    }

    #[test]
    fn the_last_chunk_of_a_queue_is_what_is_left() {
        let mut queue = ChunkQueue {
            left: ByteCount::new(25),
            chunk: CHUNK,
        };
        assert_eq!(
            (queue.take_chunk(), queue.take_chunk()),
            (Some(CHUNK), Some(CHUNK))
        );
        assert_eq!(queue.remaining_bytes(), ByteCount::new(5));
        assert_eq!(
            (queue.take_chunk(), queue.take_chunk()),
            (Some(ByteCount::new(5)), None)
        );
        assert_eq!(queue.remaining_bytes(), ByteCount::ZERO);
    }
}

//! The way in which the connections of a transfer share its bytes.

use fullpipe_units::ByteCount;

/// A way in which connections divide the bytes of a transfer that ends by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Division {
    /// Each has an equal part from the start.
    #[default]
    Equal,
    /// The sender keeps one queue of chunks of this size: each connection takes the next when it has written one.
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
pub(crate) enum Divided {
    Equal,
    Queue(Queue),
    Ranges(Ranges),
}

impl Divided {
    /// Of a transfer of `total` bytes.
    pub(crate) fn new(division: Division, total: Option<ByteCount>) -> Self {
        match (division, total) {
            (Division::Queue(chunk), Some(left)) => Self::Queue(Queue { left, chunk }),
            (Division::Ranges(chunk), Some(total)) => Self::Ranges(Ranges::new(total, chunk)),
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
pub(crate) struct Queue {
    left: ByteCount,
    chunk: ByteCount,
}

impl Queue {
    /// Returns the next chunk for a connection; nothing if all are taken.
    pub(crate) fn take(&mut self) -> Option<ByteCount> {
        let chunk = self.chunk.min(self.left);
        self.left = self.left.saturating_sub(chunk);
        (chunk > ByteCount::ZERO).then_some(chunk)
    }

    /// Returns the bytes that no connection has taken.
    pub(crate) fn left(&self) -> ByteCount {
        self.left
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// No connection has begun the chunk.
    Free,
    /// A connection receives it.
    Begun,
    Whole,
}

/// A state of a connection at its receiving end.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// Nothing.
    Idle,
    /// A range of which nothing has arrived.
    Waiting(Range),
    Receiving(Range),
    /// A range that another connection receives instead. This one had received so many bytes when it asked.
    Robbed(ByteCount),
}

/// A range of chunks that a connection was asked for.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// The chunk that it receives.
    at: usize,
    /// The first one that it was not asked for.
    end: usize,
    /// Bytes that the connection had received before this chunk.
    before: ByteCount,
}

/// The part of a connection's range that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Less than the whole.
    Part,
    /// All that it was asked for.
    All,
    /// All up to a chunk of another connection, or something of a chunk that another one has taken from it.
    UpToAnother,
}

/// The chunks of a file at the end that asks for them.
#[derive(Debug)]
pub(crate) struct Ranges {
    chunks: Vec<Chunk>,
    chunk: ByteCount,
    /// The last one.
    last: ByteCount,
    /// Of each connection.
    asked: Vec<Asked>,
    left: usize,
}

impl Ranges {
    fn new(total: ByteCount, chunk: ByteCount) -> Self {
        let chunk = chunk.max(ByteCount::new(1));
        let count = total.get().div_ceil(chunk.get()).max(1);
        let last = total.saturating_sub(chunk * (count - 1));
        let count = count as usize;
        Self { chunks: vec![Chunk::Free; count], chunk, last, asked: Vec::new(), left: count }
    }

    /// All connections know their first chunk before they ask; only the first one has asked then.
    fn at_first(&mut self, connections: usize) -> Vec<ByteCount> {
        let begun: Vec<Option<usize>> = (0..connections).map(|_| self.begin()).collect();
        let ends = |at: usize| if at == 0 { self.chunks.len() } else { self.next_begun(at) };
        let range = |at: usize| Range { at, end: ends(at), before: ByteCount::ZERO };
        let ranges: Vec<Option<Range>> = begun.into_iter().map(|at| at.map(range)).collect();
        self.asked = ranges.iter().map(|range| range.map_or(Asked::Idle, Asked::Waiting)).collect();
        let size = |range: Range| self.size(range.at, range.end);
        ranges.into_iter().map(|range| range.map_or(ByteCount::ZERO, size)).collect()
    }

    /// Returns the bytes that a connection is asked for next, which had received `read` in all; `None` if nothing is
    /// left to ask for.
    pub(crate) fn ask(&mut self, connection: usize, read: ByteCount) -> Option<ByteCount> {
        self.asked.resize(self.asked.len().max(connection + 1), Asked::Idle);
        let at = self.begin()?;
        let range = Range { at, end: self.next_begun(at), before: read };
        self.asked[connection] = Asked::Waiting(range);
        Some(self.size(range.at, range.end))
    }

    /// Notes that a connection has received `read` bytes in all.
    pub(crate) fn arrived(&mut self, connection: usize, read: ByteCount) -> Arrived {
        let mut range = match self.asked.get(connection) {
            Some(Asked::Receiving(range)) => *range,
            Some(Asked::Waiting(range)) if read > range.before => *range,
            Some(Asked::Robbed(before)) if read > *before => return self.ends(connection, Arrived::UpToAnother),
            _ => return Arrived::Part,
        };
        loop {
            let whole = range.before + self.size(range.at, range.at + 1);
            if read < whole {
                self.asked[connection] = Asked::Receiving(range);
                return Arrived::Part;
            }
            self.chunks[range.at] = Chunk::Whole;
            self.left -= 1;
            range = Range { at: range.at + 1, before: whole, ..range };
            if range.at == range.end {
                return self.ends(connection, Arrived::All);
            }
            if self.chunks[range.at] != Chunk::Free && !self.robs(range.at) {
                return self.ends(connection, Arrived::UpToAnother);
            }
            self.chunks[range.at] = Chunk::Begun;
        }
    }

    fn ends(&mut self, connection: usize, arrived: Arrived) -> Arrived {
        self.asked[connection] = Asked::Idle;
        arrived
    }

    /// Takes a chunk from a connection that waits for its first byte (`SegmentMan::getCleanSegmentIfOwnerIsIdle`).
    /// Returns whether there is one.
    fn robs(&mut self, chunk: usize) -> bool {
        let waits = |asked: &&mut Asked| matches!(asked, Asked::Waiting(range) if range.at == chunk);
        let Some(owner) = self.asked.iter_mut().find(waits) else { return false };
        if let Asked::Waiting(range) = owner {
            *owner = Asked::Robbed(range.before);
        }
        true
    }

    /// Returns true if a connection is to receive more of what it was asked for.
    pub(crate) fn receives(&self, connection: usize) -> bool {
        self.asked.get(connection).is_some_and(|asked| !matches!(asked, Asked::Idle))
    }

    /// Returns the bytes of the chunks that are not there.
    pub(crate) fn missing(&self) -> ByteCount {
        let missing = (0..self.chunks.len()).filter(|at| self.chunks[*at] != Chunk::Whole);
        missing.map(|at| self.size(at, at + 1)).sum()
    }

    /// Returns true if the file is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Begins the second half of the largest range of free chunks, or all of it where no connection
    /// receives the chunk before it (`BitfieldMan::getSparseMissingUnusedIndex`).
    fn begin(&mut self) -> Option<usize> {
        let count = self.chunks.len();
        let (mut best, mut from) = (None, 0);
        while let Some(start) = (from..count).find(|at| self.chunks[*at] == Chunk::Free) {
            let end = (start..count).find(|at| self.chunks[*at] != Chunk::Free).unwrap_or(count);
            let is_received = start > 0 && self.chunks[start - 1] == Chunk::Begun;
            let at = if is_received { start.midpoint(end) } else { start };
            if best.is_none_or(|(_, size)| size < end - at) {
                best = Some((at, end - at));
            }
            from = end;
        }
        let (at, _) = best?;
        self.chunks[at] = Chunk::Begun;
        Some(at)
    }

    fn next_begun(&self, at: usize) -> usize {
        (at + 1..self.chunks.len()).find(|next| self.chunks[*next] != Chunk::Free).unwrap_or(self.chunks.len())
    }

    /// Returns the bytes from one chunk to another.
    fn size(&self, from: usize, to: usize) -> ByteCount {
        let whole = self.chunk * (to - from) as u64;
        if to == self.chunks.len() { whole.saturating_sub(self.chunk) + self.last } else { whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: ByteCount = ByteCount::new(10);

    fn ranges(total: u64) -> Ranges {
        Ranges::new(ByteCount::new(total), CHUNK)
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
        assert_eq!(ranges.arrived(1, read(79)), Arrived::Part);
        assert_eq!(ranges.arrived(1, read(80)), Arrived::All);
        // Of seven chunks behind the first one, that is from the fourth on.
        assert_eq!(ranges.ask(1, read(80)), Some(read(40)));
        assert_eq!(ranges.arrived(1, read(81)), Arrived::Part);
        assert_eq!(ranges.arrived(0, read(39)), Arrived::Part);
        assert_eq!(ranges.arrived(0, read(45)), Arrived::UpToAnother);
        assert_eq!(ranges.ask(2, read(0)), Some(read(20)));
        assert_eq!(ranges.arrived(2, read(1)), Arrived::Part);
        assert_eq!(ranges.arrived(1, read(100)), Arrived::UpToAnother);
        assert!(!ranges.is_complete());
        assert_eq!(ranges.arrived(2, read(20)), Arrived::All);
        assert!(ranges.is_complete() && ranges.ask(2, read(20)).is_none());
    }

    #[test]
    fn a_chunk_of_which_nothing_has_arrived_is_taken_from_the_connection_that_waits_for_it() {
        let mut ranges = ranges(40);
        let read = ByteCount::new;
        assert_eq!(ranges.at_first(2), bytes(&[40, 20]));
        assert_eq!(ranges.arrived(0, read(25)), Arrived::Part);
        // Its first bytes come too late: it is closed, and asks for what is left.
        assert_eq!(ranges.arrived(1, read(0)), Arrived::Part);
        assert_eq!(ranges.arrived(1, read(1)), Arrived::UpToAnother);
        assert_eq!(ranges.ask(2, read(0)), Some(CHUNK));
        assert_eq!(ranges.arrived(2, read(10)), Arrived::All);
        assert_eq!(ranges.arrived(0, read(30)), Arrived::UpToAnother);
        assert!(ranges.is_complete());
    }

    #[test]
    fn the_last_chunk_of_a_queue_is_what_is_left() {
        let mut queue = Queue { left: ByteCount::new(25), chunk: CHUNK };
        assert_eq!((queue.take(), queue.take()), (Some(CHUNK), Some(CHUNK)));
        assert_eq!(queue.left(), ByteCount::new(5));
        assert_eq!((queue.take(), queue.take()), (Some(ByteCount::new(5)), None));
        assert_eq!(queue.left(), ByteCount::ZERO);
    }
}

//! The chunks that the receiver wants, and which connection has sent them.
//!
//! A connection takes a chunk and sends its blocks one after the other. One that finds no other
//! chunk takes the last blocks of those that others are sending, and then sends blocks again that
//! are overdue: of many connections some are slow, and the end of a copy does not wait for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::protocol::FileChunks;

use fullpipe_sys::lock;

/// Number of the way through ssh, which carries data only when no connection is left.
pub(crate) const SSH: u16 = u16::MAX;

/// Rows of chunks that may be wanted at once.
const MAX_WANTED: usize = 1 << 23;

/// A block is overdue after so many times the time that others have taken lately.
const OVERDUE: u32 = 2;

/// Shortest time after which a block is overdue: threads wait for processors, too.
const MIN_OVERDUE: Duration = Duration::from_millis(200);

/// Weight of a block in the time that blocks have taken lately: one in so many.
const SMOOTHING: u32 = 8;

/// Time between two checks of an idle connection whether a block is overdue.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A chunk of a file, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChunkJob {
    pub file: u32,
    pub chunk: u32,
}

/// A block of a chunk that a connection is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockJob {
    pub index: u8,
    /// The receiver shall say that it has arrived.
    pub reports: bool,
}

/// The next thing to do for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextWork {
    /// A chunk, whose blocks [`CopyQueue::next_block`] has.
    Send(ChunkJob),
    /// One block of a chunk that is on its way.
    Help(ChunkJob, BlockJob),
    Nothing,
    End,
}

impl NextWork {
    /// Returns the work for one block, whose arrival is to be reported.
    const fn help_with(job: ChunkJob, index: u8) -> Self {
        let reports = true;
        Self::Help(job, BlockJob { index, reports })
    }
}

/// Shared by all connections.
#[derive(Default)]
pub(crate) struct CopyQueue {
    state: Mutex<CopyQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct CopyQueueState {
    /// The first of them counts.
    wanted: VecDeque<WantedChunks>,
    /// Chunks that connections had sent which then broke or were replaced. They come first, unless
    /// they arrive in spite of that.
    again: BTreeSet<ChunkJob>,
    sent: BTreeMap<ChunkJob, OnItsWay>,
    /// Files that were forgotten, with how often. To go through all rows each time takes too long
    /// where many fail.
    forgotten: HashMap<u32, u32>,
    /// The chunk that each connection took last.
    taken: HashMap<u16, ChunkJob>,
    lost: HashSet<u16>,
    /// Connections of which there may be data.
    all: u16,
    /// Connections from this index on are streams of one QUIC connection.
    of_one: u16,
    /// Indices of the connections that may carry data now; others stand by.
    group: Range<u16>,
    /// The number of those of the group that may; more rest.
    active: usize,
    /// The connections are known.
    has_streams: bool,
    is_over: bool,
    /// Time that blocks have taken lately until the receiver said that they were there.
    lately: Option<Duration>,
    /// Until then no block is overdue.
    none_overdue_until: Option<Instant>,
    /// Blocks that were sent again because they were overdue.
    repeated: u64,
}

/// Chunks of a file that are wanted.
struct WantedChunks {
    file: u32,
    chunks: FileChunks,
    /// The chunks count no more if the file was forgotten more often than this.
    forgotten: u32,
}

/// A chunk that was taken, and has not arrived.
struct OnItsWay {
    by: u16,
    /// The owner of each block, where one has taken it; empty until the number of blocks is known.
    blocks: Vec<Option<TakenBlock>>,
}

#[derive(Clone, Copy)]
struct TakenBlock {
    by: u16,
    at: Instant,
    has_arrived: bool,
    was_repeated: bool,
}

impl CopyQueue {
    /// Sets the number of connections, and of those that carry data, before the first asks for
    /// work.
    pub(crate) fn set_streams(&self, streams: usize, active: usize) {
        let mut state = lock(&self.state);
        (state.all, state.of_one, state.active) = (streams as u16, streams as u16, active.max(1));
        state.group = 0..state.all;
        state.has_streams = true;
        self.changed.notify_all();
    }

    /// Waits until the connections are known, or the work has ended.
    pub(crate) fn wait_for_streams(&self) {
        let known = self.changed.wait_while(lock(&self.state), |state| {
            !state.has_streams && !state.is_over
        });
        drop(known.unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds streams of one more connection, which stand by until all others are lost or
    /// [`CopyQueue::change_over`].
    pub(crate) fn stand_by(&self, streams: usize) {
        lock(&self.state).all += streams as u16;
    }

    /// Lets those that stand by carry all data from now on, also what the others have sent and has
    /// not arrived yet; returns false if there is none.
    pub(crate) fn change_over(&self) -> bool {
        let mut state = lock(&self.state);
        let group = state.group.end..state.all;
        if state.live_connections(&group) == 0 {
            return false;
        }
        state.want_again(|_| true);
        (state.group, state.active) = (group, usize::MAX);
        self.changed.notify_all();
        true
    }

    /// Adds chunks at the end. One that was sent before is sent again. Returns false if too many
    /// are wanted.
    pub(crate) fn add_chunks(&self, file: u32, chunks: FileChunks) -> bool {
        let mut state = lock(&self.state);
        if chunks.count == 1 {
            state.sent.remove(&ChunkJob {
                file,
                chunk: chunks.first,
            });
        }
        let forgotten = state.times_forgotten(file);
        state.wanted.push_back(WantedChunks {
            file,
            chunks,
            forgotten,
        });
        self.changed.notify_all();
        state.wanted.len() <= MAX_WANTED
    }

    /// Notes that a chunk has arrived; returns whether it was on its way, on a connection that has
    /// broken too.
    pub(crate) fn record_arrival(&self, job: ChunkJob) -> bool {
        let mut state = lock(&self.state);
        state.sent.remove(&job).is_some() || state.again.remove(&job)
    }

    /// Notes that all blocks of a chunk have arrived but those whose bit is set in `missing`.
    pub(crate) fn got_blocks(&self, job: ChunkJob, missing: u16) {
        let mut state = lock(&self.state);
        let CopyQueueState { sent, lately, .. } = &mut *state;
        let Some(on_its_way) = sent.get_mut(&job) else {
            return;
        };
        for (index, block) in on_its_way.blocks.iter_mut().enumerate() {
            let Some(block) = block.as_mut().filter(|block| !block.has_arrived) else {
                continue;
            };
            if missing & (1 << index) != 0 {
                continue;
            }
            block.has_arrived = true;
            // Of a block that was sent twice it is not known which copy has arrived.
            if !block.was_repeated {
                let took = block.at.elapsed();
                *lately = Some(
                    lately.map_or(took, |before| (before * (SMOOTHING - 1) + took) / SMOOTHING),
                );
            }
        }
    }

    /// Forgets what is wanted of a file up to now.
    pub(crate) fn forget_file(&self, file: u32) {
        let mut state = lock(&self.state);
        *state.forgotten.entry(file).or_default() += 1;
        state.skip_forgotten();
        let of_file = ChunkJob { file, chunk: 0 }..=ChunkJob {
            file,
            chunk: u32::MAX,
        };
        state
            .again
            .extract_if(of_file.clone(), |_| true)
            .for_each(drop);
        state.sent.extract_if(of_file, |_, _| true).for_each(drop);
    }

    /// Gives what a broken connection has carried to the others. Returns whether that is news.
    pub(crate) fn lose_connection(&self, index: u16) -> bool {
        let mut state = lock(&self.state);
        let is_new = index != SSH && state.lost.insert(index);
        if state.live_connections(&state.group) == 0 {
            (state.group, state.active) = (0..state.all, usize::MAX);
        }
        state.want_again(|on_its_way| on_its_way.is_carried_by(index));
        self.changed.notify_all();
        is_new && !state.is_over
    }

    /// Lets only the first `active` connections carry data.
    pub(crate) fn set_active(&self, active: usize) {
        lock(&self.state).active = active.max(1);
        self.changed.notify_all();
    }

    /// Returns the number of connections that carry data, and the number that could.
    pub(crate) fn active_connections(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let live = state.live_connections(&state.group);
        (state.active.min(live), live)
    }

    /// Ends the work of all connections.
    pub(crate) fn end_work(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Returns true if the work has ended.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Returns the next chunk or block for a connection, and waits for one if asked to.
    pub(crate) fn next_work(&self, index: u16, wait: bool) -> NextWork {
        let mut state = lock(&self.state);
        loop {
            if state.is_over || state.lost.contains(&index) {
                return NextWork::End;
            }
            let may_send = state.may_send(index);
            if may_send && let Some(next) = state.take_work(index) {
                return next;
            }
            if !wait {
                return NextWork::Nothing;
            }
            state = if may_send && !state.sent.is_empty() {
                self.changed
                    .wait_timeout(state, POLL_INTERVAL)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            } else {
                self.changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Returns the next block of a chunk of `count` blocks that `index` has taken; `None` if others
    /// have taken the rest, or the chunk is not wanted any more.
    pub(crate) fn next_block(&self, index: u16, job: ChunkJob, count: u8) -> Option<BlockJob> {
        let mut state = lock(&self.state);
        // One that is to rest ends its chunk before.
        let is_one_of_them = index == SSH || state.group.contains(&index);
        if state.is_over || state.lost.contains(&index) || !is_one_of_them {
            return None;
        }
        let reports = state.is_near_end();
        let blocks = &mut state.sent.get_mut(&job)?.blocks;
        let is_first = blocks.is_empty();
        blocks.resize(count.into(), None);
        let free = blocks.iter().position(Option::is_none)?;
        blocks[free] = Some(TakenBlock::taken_now(index));
        if is_first && count > 1 && state.wanted.is_empty() && state.again.is_empty() {
            // Others may help.
            self.changed.notify_all();
        }
        Some(BlockJob {
            index: free as u8,
            reports,
        })
    }

    /// Returns the number of blocks that were sent again because they were overdue.
    #[cfg(test)]
    pub(crate) fn repeated(&self) -> u64 {
        lock(&self.state).repeated
    }
}

impl OnItsWay {
    fn is_carried_by(&self, index: u16) -> bool {
        self.by == index
            || self
                .blocks
                .iter()
                .flatten()
                .any(|block| block.by == index && !block.has_arrived)
    }
}

impl TakenBlock {
    fn taken_now(by: u16) -> Self {
        Self {
            by,
            at: Instant::now(),
            has_arrived: false,
            was_repeated: false,
        }
    }
}

impl CopyQueueState {
    fn may_send(&self, index: u16) -> bool {
        if index == SSH {
            return self.live_connections(&(0..self.all)) == 0;
        }
        // The place of a connection among those of the group that are left.
        self.group.contains(&index)
            && self.live_connections(&(self.group.start..index)) < self.active
    }

    /// Wants chunks that are on their way again, before others, if `is_one` says so.
    fn want_again(&mut self, is_one: impl Fn(&OnItsWay) -> bool) {
        let ones = self.sent.extract_if(.., |_, on_its_way| is_one(on_its_way));
        self.again.extend(ones.map(|(job, _)| job));
    }

    /// Returns the number of connections of a range that are not lost.
    fn live_connections(&self, range: &Range<u16>) -> usize {
        range.len() - self.lost.iter().filter(|lost| range.contains(lost)).count()
    }

    fn take_work(&mut self, index: u16) -> Option<NextWork> {
        let Some(job) = self.take_wanted() else {
            return self
                .take_free_block(index)
                .or_else(|| self.take_overdue_block(index));
        };
        self.sent.insert(
            job,
            OnItsWay {
                by: index,
                blocks: Vec::new(),
            },
        );
        self.taken.insert(index, job);
        Some(NextWork::Send(job))
    }

    /// Takes the next chunk that is wanted.
    fn take_wanted(&mut self) -> Option<ChunkJob> {
        if let Some(job) = self.again.pop_first() {
            return Some(job);
        }
        let WantedChunks { file, chunks, .. } = self.wanted.front_mut()?;
        let job = ChunkJob {
            file: *file,
            chunk: chunks.first,
        };
        (chunks.first, chunks.count) =
            (chunks.first.wrapping_add(1), chunks.count.saturating_sub(1));
        if chunks.count == 0 {
            self.wanted.pop_front();
            self.skip_forgotten();
        }
        Some(job)
    }

    /// Drops rows that count no more, up to the first one that does.
    fn skip_forgotten(&mut self) {
        while self
            .wanted
            .front()
            .is_some_and(|row| row.forgotten < self.times_forgotten(row.file))
        {
            self.wanted.pop_front();
        }
    }

    fn times_forgotten(&self, file: u32) -> u32 {
        self.forgotten.get(&file).copied().unwrap_or(0)
    }

    /// Takes the last block of the chunk with the most blocks that no connection has taken.
    fn take_free_block(&mut self, index: u16) -> Option<NextWork> {
        let job = *self.taken.values().max_by_key(|job| {
            self.sent.get(job).map_or(0, |sent| {
                sent.blocks.iter().filter(|block| block.is_none()).count()
            })
        })?;
        let blocks = &mut self.sent.get_mut(&job)?.blocks;
        let last = blocks.iter().rposition(Option::is_none)?;
        blocks[last] = Some(TakenBlock::taken_now(index));
        Some(NextWork::help_with(job, last as u8))
    }

    /// Takes the block that has been on its way for the longest time, if it is on another
    /// connection, is overdue and was not sent again before.
    fn take_overdue_block(&mut self, index: u16) -> Option<NextWork> {
        let now = Instant::now();
        if self.none_overdue_until.is_some_and(|until| now < until) {
            return None;
        }
        let due = (self.lately? * OVERDUE).max(MIN_OVERDUE);
        let blocks = self.sent.iter_mut().flat_map(|(job, sent)| {
            (0..)
                .zip(&mut sent.blocks)
                .filter_map(|(number, block)| Some((*job, number, block.as_mut()?)))
        });
        let waiting = blocks.filter(|(.., block)| !block.has_arrived && !block.was_repeated);
        let oldest = waiting.min_by_key(|(.., block)| block.at);
        let until = oldest.as_ref().map_or(now, |(.., block)| block.at) + due;
        self.none_overdue_until = Some(until);
        let (job, number, block) = oldest.filter(|_| now >= until)?;
        // Streams of one connection are as fast as each other.
        if block.by == index || block.by.min(index) >= self.of_one {
            return None;
        }
        block.was_repeated = true;
        self.repeated += 1;
        Some(NextWork::help_with(job, number))
    }

    /// Returns true if no more chunks are wanted than connections carry data.
    fn is_near_end(&self) -> bool {
        let most = self.active.min(self.live_connections(&self.group));
        let Some(mut most) = most.checked_sub(self.again.len()) else {
            return false;
        };
        self.wanted.iter().all(|row| {
            let fits = row.chunks.count as usize <= most;
            most = most.saturating_sub(row.chunks.count as usize);
            fits
        })
    }
}

#[cfg(test)]
mod tests;

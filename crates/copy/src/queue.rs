//! The chunks that the receiver wants, and which connection has sent them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use fullpipe_transfer::Chunks;

use crate::locks::lock;

/// Number of the way through ssh, which carries data only when no connection is left.
pub(crate) const SSH: u16 = u16::MAX;

/// Rows of chunks that may be wanted at once.
const MAX_WANTED: usize = 1 << 23;

/// A chunk of a file, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Job {
    pub(crate) file: u32,
    pub(crate) chunk: u32,
}

/// The next thing to do for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Send(Job),
    Nothing,
    End,
}

/// Shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<(u32, Chunks)>,
    sent: HashMap<Job, u16>,
    lost: HashSet<u16>,
    /// Connections of which there may be data.
    all: u16,
    /// Those that may carry data now; others stand by.
    group: Range<u16>,
    /// The number of those of the group that may; more rest.
    active: usize,
    is_over: bool,
}

impl Queue {
    /// Sets the number of connections, and of those that carry data, before the first asks for work.
    pub(crate) fn set_streams(&self, streams: usize, active: usize) {
        let mut state = lock(&self.state);
        (state.all, state.active) = (streams as u16, active.max(1));
        state.group = 0..state.all;
    }

    /// Adds connections that stand by, until all others are lost or [`Queue::change_over`].
    pub(crate) fn stand_by(&self, streams: usize) {
        lock(&self.state).all += streams as u16;
    }

    /// Lets those that stand by carry all data from now on, also what the others have sent and has not arrived yet;
    /// returns false if there is none.
    pub(crate) fn change_over(&self) -> bool {
        let mut state = lock(&self.state);
        let group = state.group.end..state.all;
        if state.live(&group) == 0 {
            return false;
        }
        state.want_again(|_| true);
        (state.group, state.active) = (group, usize::MAX);
        self.changed.notify_all();
        true
    }

    /// Adds chunks at the end. One that was sent before is sent again. Returns false if too many are wanted.
    pub(crate) fn want(&self, file: u32, chunks: Chunks) -> bool {
        let mut state = lock(&self.state);
        if chunks.count == 1 {
            state.sent.remove(&Job { file, chunk: chunks.first });
        }
        state.wanted.push_back((file, chunks));
        self.changed.notify_all();
        state.wanted.len() <= MAX_WANTED
    }

    /// Notes that a chunk has arrived; returns whether it was on its way.
    pub(crate) fn got(&self, job: Job) -> bool {
        lock(&self.state).sent.remove(&job).is_some()
    }

    /// Forgets a file.
    pub(crate) fn forget(&self, file: u32) {
        let mut state = lock(&self.state);
        state.wanted.retain(|(wanted, _)| *wanted != file);
        state.sent.retain(|job, _| job.file != file);
    }

    /// Gives what a broken connection has carried to the others. Returns whether that is news.
    pub(crate) fn lose(&self, index: u16) -> bool {
        let mut state = lock(&self.state);
        let is_new = index != SSH && state.lost.insert(index);
        if state.live(&state.group) == 0 {
            (state.group, state.active) = (0..state.all, usize::MAX);
        }
        state.want_again(|by| by == index);
        self.changed.notify_all();
        is_new && !state.is_over
    }

    /// Lets only the first `active` connections carry data.
    pub(crate) fn set_active(&self, active: usize) {
        lock(&self.state).active = active.max(1);
        self.changed.notify_all();
    }

    /// Returns how many connections carry data, and how many could.
    pub(crate) fn active(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let live = state.live(&state.group);
        (state.active.min(live), live)
    }

    /// Ends the work of all connections.
    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Returns true if the work has ended.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Returns the next chunk for a connection, and waits for one if asked to.
    pub(crate) fn next(&self, index: u16, wait: bool) -> Next {
        let mut state = lock(&self.state);
        loop {
            if state.is_over || state.lost.contains(&index) {
                return Next::End;
            }
            if state.may_send(index)
                && let Some(job) = state.take()
            {
                state.sent.insert(job, index);
                return Next::Send(job);
            }
            if !wait {
                return Next::Nothing;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn may_send(&self, index: u16) -> bool {
        if index == SSH {
            return self.live(&(0..self.all)) == 0;
        }
        // The place of a connection among those of the group that are left.
        self.group.contains(&index) && self.live(&(self.group.start..index)) < self.active
    }

    /// Puts chunks that are on their way in front again, if they were sent by one of these connections.
    fn want_again(&mut self, is_one: impl Fn(u16) -> bool) {
        let mut jobs: Vec<Job> = self.sent.iter().filter(|(_, by)| is_one(**by)).map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        for job in jobs.into_iter().rev() {
            self.sent.remove(&job);
            self.wanted.push_front((job.file, Chunks { first: job.chunk, count: 1 }));
        }
    }

    /// Returns how many connections of a range are left.
    fn live(&self, range: &Range<u16>) -> usize {
        range.len() - self.lost.iter().filter(|lost| range.contains(lost)).count()
    }

    fn take(&mut self) -> Option<Job> {
        let (file, chunks) = self.wanted.front_mut()?;
        let job = Job { file: *file, chunk: chunks.first };
        (chunks.first, chunks.count) = (chunks.first.wrapping_add(1), chunks.count.saturating_sub(1));
        if chunks.count == 0 {
            self.wanted.pop_front();
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(streams: usize) -> Queue {
        let queue = Queue::default();
        queue.set_streams(streams, streams);
        queue
    }

    fn job(chunk: u32) -> Next {
        Next::Send(Job { file: 1, chunk })
    }

    #[test]
    fn what_a_broken_connection_has_sent_is_sent_again_but_for_what_arrived() {
        let queue = queue(2);
        assert!(queue.want(1, Chunks { first: 5, count: 3 }));
        assert_eq!(queue.next(0, false), job(5));
        assert_eq!(queue.next(1, false), job(6));
        assert_eq!(queue.next(1, false), job(7));
        assert!(queue.got(Job { file: 1, chunk: 6 }));
        assert_eq!(queue.next(SSH, false), Next::Nothing);
        assert!(queue.lose(1) && !queue.lose(1));
        assert_eq!((queue.next(1, false), queue.next(0, false)), (Next::End, job(7)));
        queue.lose(0);
        assert_eq!(queue.next(SSH, false), job(5));
        assert_eq!(queue.next(SSH, false), job(7));
        queue.end();
        assert_eq!(queue.next(SSH, true), Next::End);
    }

    #[test]
    fn a_chunk_that_arrived_wrong_is_sent_again_and_a_file_that_failed_is_not() {
        let queue = queue(1);
        queue.want(1, Chunks { first: 0, count: 2 });
        assert_eq!(queue.next(0, false), job(0));
        queue.want(1, Chunks { first: 0, count: 1 });
        assert!(!queue.got(Job { file: 1, chunk: 0 }));
        assert_eq!((queue.next(0, false), queue.next(0, false)), (job(1), job(0)));
        queue.want(1, Chunks { first: 4, count: 1 });
        queue.forget(1);
        assert_eq!(queue.next(0, false), Next::Nothing);
    }

    #[test]
    fn connections_beyond_those_that_may_send_rest() {
        let queue = queue(3);
        queue.want(1, Chunks { first: 0, count: 9 });
        queue.set_active(1);
        assert_eq!((queue.next(2, false), queue.next(0, false)), (Next::Nothing, job(0)));
        queue.lose(0);
        assert_eq!(queue.next(1, false), job(0));
        assert_eq!(queue.active(), (1, 2));
    }

    #[test]
    fn connections_that_stand_by_carry_data_from_the_change_on_and_when_the_others_are_lost() {
        for is_lost in [false, true] {
            let queue = queue(1);
            queue.stand_by(2);
            queue.want(1, Chunks { first: 0, count: 9 });
            assert_eq!((queue.next(1, false), queue.next(0, false)), (Next::Nothing, job(0)));
            if is_lost {
                assert!(queue.lose(0));
                assert_eq!(queue.next(2, false), job(0));
            } else {
                assert!(queue.change_over() && !queue.change_over());
                // What is on its way on the others, too: they may be slow.
                assert_eq!((queue.next(0, false), queue.next(1, false)), (Next::Nothing, job(0)));
                assert_eq!(queue.next(2, false), job(1));
                // And back again, if they break.
                queue.lose(1);
                queue.lose(2);
                assert_eq!((queue.next(0, false), queue.next(0, false)), (job(1), job(0)));
            }
            assert_eq!(queue.next(SSH, false), Next::Nothing);
        }
    }
}

//! The state that all streams of a transfer share.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_sys::lock;
use fullpipe_units::ByteCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lane::{RunningStream, StreamRole};
use super::storage::FileStorage;

/// Longest time for which a thread waits before it checks whether it should end, where nothing
/// wakes it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time for which a thread waits for its socket, whose shutdown wakes it.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

/// Bytes that are copied at once, at most: more would not stay in the processor's cache.
pub(crate) const COPIED: u64 = 128 << 10;

/// The state that all threads of a transfer heed.
pub(crate) struct TransferState {
    /// Set once no more data is to be sent.
    enough: AtomicBool,
    /// Set once nothing is to be read either.
    over: AtomicBool,
    /// Bytes that may still be sent, by all streams together; [`u64::MAX`] without a limit.
    budget: AtomicU64,
    /// The file that data comes from or goes to, where it is not made up and thrown away.
    storage: Option<Arc<FileStorage>>,
    notes: Mutex<Vec<String>>,
}

impl TransferState {
    pub(crate) fn new(budget: Option<ByteCount>, storage: Option<FileStorage>) -> Self {
        Self {
            enough: AtomicBool::new(false),
            over: AtomicBool::new(false),
            budget: AtomicU64::new(budget.map_or(u64::MAX, ByteCount::get)),
            storage: storage.map(Arc::new),
            notes: Mutex::default(),
        }
    }

    /// Lets all streams together send so many bytes more.
    pub(crate) fn limit_bytes(&self, bytes: ByteCount) {
        self.budget.store(bytes.get(), Ordering::Relaxed);
    }

    pub(crate) fn storage(&self) -> Option<&Arc<FileStorage>> {
        self.storage.as_ref()
    }

    /// Lets every sender end.
    pub(crate) fn stop_sending(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    /// Ends every thread.
    pub(crate) fn stop(&self, streams: &[RunningStream]) {
        self.stop_sending();
        self.over.store(true, Ordering::Relaxed);
        for stream in streams {
            stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns true if a thread of this role is to end.
    pub(crate) fn is_stopped(&self, role: StreamRole) -> bool {
        match role {
            StreamRole::Sender => self.enough.load(Ordering::Relaxed),
            StreamRole::Receiver => self.over.load(Ordering::Relaxed),
        }
    }

    /// Takes up to `wanted` bytes from the budget.
    pub(crate) fn take_budget(&self, wanted: u64) -> u64 {
        if self.budget.load(Ordering::Relaxed) == u64::MAX {
            return wanted;
        }
        let taken = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            });
        taken.map_or(0, |left| left.min(wanted))
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        if self.budget.load(Ordering::Relaxed) != u64::MAX {
            self.budget.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Keeps something that the user should know, once however many streams say it.
    pub(crate) fn add_note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Returns the notes so far, and forgets them.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

/// Returns a number of bytes as a length in memory, where nothing is longer than its greatest.
pub(crate) fn to_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Waits until a socket can do `what`, for as long as `timeout` at most.
pub(crate) fn wait_for_socket(socket: impl AsFd, what: PollFlags, timeout: Duration) {
    let timeout = Timespec::try_from(timeout).ok();
    // An interrupted or failed wait is one more turn of the loop.
    let _ = poll(&mut [PollFd::new(&socket, what)], timeout.as_ref());
}

/// So many of the bytes of [`fill_incompressible`].
pub(crate) fn incompressible_bytes(length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    fill_incompressible(&mut data);
    data
}

/// Fills `data` with bytes that no path can compress away: a xorshift sequence from a fixed seed.
pub(crate) fn fill_incompressible(data: &mut [u8]) {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for word in data.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_and_comes_back() {
        let shared = TransferState::new(Some(ByteCount::new(1000)), None);
        assert_eq!(shared.take_budget(600), 600);
        assert_eq!(shared.take_budget(600), 400);
        assert_eq!(shared.take_budget(600), 0);
        shared.give_back(100);
        assert_eq!(shared.take_budget(600), 100);
    }

    #[test]
    fn data_does_not_repeat_within_a_block() {
        let data = incompressible_bytes(131_072);
        assert_eq!(data.len(), 131_072);
        let words: std::collections::HashSet<&[u8]> = data.chunks(8).collect();
        assert_eq!(words.len(), 16_384);
    }

    #[test]
    fn what_every_stream_says_is_noted_once() {
        let shared = TransferState::new(None, None);
        for note in ["a", "b", "a"] {
            shared.add_note(note.to_owned());
        }
        assert_eq!(shared.take_notes(), ["a", "b"]);
    }
}

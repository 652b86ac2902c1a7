use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The thread that writes events, so that a reader who stops reading does not stop a server.
pub(super) struct LogThread<E> {
    events: SyncSender<E>,
    thread: JoinHandle<()>,
}

/// Events that may wait to be written; more are lost.
const WAITING: usize = 1024;

/// Longest time to write the last events.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl<E: Send + 'static> LogThread<E> {
    /// Begins to give events to `write`.
    pub(super) fn start(mut write: impl FnMut(&E) + Send + 'static) -> Self {
        let (events, waiting) = sync_channel::<E>(WAITING);
        Self { events, thread: thread::spawn(move || waiting.iter().for_each(|event| write(&event))) }
    }

    pub(super) fn note(&self, event: E) {
        let _ = self.events.try_send(event);
    }

    pub(super) fn finish(self) {
        drop(self.events);
        let deadline = Instant::now() + LAST_WORDS;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use super::prelude::*;

/// The thread that writes events, so that a reader who stops reading does not stop a server.
pub(super) struct LogThread<E> {
    events: SyncSender<E>,
    thread: JoinHandle<()>,
    noted: AtomicU64,
    written: Arc<AtomicU64>,
    /// The thread has been waited for in vain.
    is_stuck: AtomicBool,
    /// Longest time to write the last events, or to wait for room for one of them.
    last_words: Duration,
}

/// Events that may wait to be written; more are lost.
const WAITING: usize = 1024;

const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl<E: Send + 'static> LogThread<E> {
    /// Begins to give events to `write`.
    pub(super) fn start(mut write: impl FnMut(&E) + Send + 'static) -> Self {
        let (events, waiting) = sync_channel::<E>(WAITING);
        let written = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&written);
        let thread = thread::spawn(move || {
            for event in waiting {
                write(&event);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (noted, is_stuck) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            events,
            thread,
            noted,
            written,
            is_stuck,
            last_words: LAST_WORDS,
        }
    }

    pub(super) fn log_event(&self, event: E) {
        self.noted.fetch_add(1, Ordering::Relaxed);
        let _ = self.events.try_send(event);
    }

    /// Notes an event at the end of a program, when very many may come at once: it waits for a
    /// reader who reads.
    pub(super) fn note_last(&self, mut event: E) {
        self.noted.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.last_words;
        while let Err(TrySendError::Full(back)) = self.events.try_send(event) {
            if self.is_stuck.load(Ordering::Relaxed) || Instant::now() >= deadline {
                return self.is_stuck.store(true, Ordering::Relaxed);
            }
            event = back;
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits a while for the last events to be written, and reports how many events were not.
    pub(super) fn finish(self) {
        let left_out = self.left_out();
        if left_out > 0 {
            Terminal::print_error(&format!(
                "{} left out: nobody read in time",
                count_noun(left_out, "event")
            ));
        }
    }

    fn left_out(self) -> u64 {
        drop(self.events);
        let deadline = Instant::now() + self.last_words;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.noted.into_inner() - self.written.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn the_last_events_wait_for_a_reader_who_is_slow() {
        let reader = Arc::new(Mutex::new(()));
        let reads = reader.lock().unwrap();
        let waits = Arc::clone(&reader);
        let log = LogThread::start(move |_: &u64| drop(waits.lock()));
        let noted = thread::spawn(move || {
            (0..3 * WAITING as u64).for_each(|event| log.note_last(event));
            log.left_out()
        });
        thread::sleep(Duration::from_millis(50));
        drop(reads);
        assert_eq!(noted.join().unwrap(), 0);
    }

    #[test]
    fn a_reader_who_stopped_is_waited_for_once_and_what_was_not_written_is_counted() {
        let reader = Arc::new(Mutex::new(()));
        let reads = reader.lock().unwrap();
        let waits = Arc::clone(&reader);
        let mut log = LogThread::start(move |_: &u64| drop(waits.lock()));
        log.last_words = Duration::from_millis(50);
        let many = 3 * WAITING as u64;
        (0..many).for_each(|event| log.log_event(event));
        let began = Instant::now();
        (0..many).for_each(|event| log.note_last(event));
        assert!(
            began.elapsed() < log.last_words * many as u32 / 2,
            "it waits once"
        );
        assert_eq!(log.left_out(), 2 * many);
        drop(reads);
    }
}

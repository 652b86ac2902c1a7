use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a thread asks to be woken.
const PERIOD: Duration = Duration::from_millis(1);

/// Does `work`, and returns its result with the machine's worst lateness meanwhile: the time for
/// which a thread that only sleeps was kept from running. What a test holds against the clock
/// cannot be better than that.
pub fn lateness<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also where `work` panics: the scope waits for its threads.
        let end = Raised(&done);
        let watch = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(PERIOD);
                worst = worst.max(begun.elapsed().saturating_sub(PERIOD));
            }
            worst
        });
        let result = work();
        drop(end);
        (result, watch.join().unwrap_or_default())
    })
}

/// A flag that goes up in the end.
struct Raised<'f>(&'f AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lateness_is_always_seen() {
        let ((), late) = lateness(|| thread::sleep(Duration::from_millis(20)));
        assert!(late > Duration::ZERO);
    }

    #[test]
    #[should_panic(expected = "it failed")]
    fn work_that_panics_is_not_waited_for() {
        lateness(|| panic!("it failed"));
    }
}

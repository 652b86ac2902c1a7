use std::thread;
use std::time::{Duration, Instant};

/// Waits until `done` returns true; asks every few milliseconds, and once at the end. Returns
/// whether it did within `timeout`.
pub fn within(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

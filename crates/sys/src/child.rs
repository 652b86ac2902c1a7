use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Returns true if a child process ends within this time. It is waited for then, so that its status
/// is known.
pub fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_goes_on_does_not_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ends_within(&mut child, Duration::from_millis(10)));
        child.kill().unwrap();
        assert!(
            ends_within(&mut child, Duration::from_secs(10)) && child.try_wait().unwrap().is_some()
        );
    }
}

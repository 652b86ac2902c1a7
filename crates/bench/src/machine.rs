//! Processor time of the machine and of its processes, from `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use serde::Serialize;

/// Time for which the machine is watched before anything is run.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The machine, and how busy it is with other things.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    /// Share of all processors that were busy before anything was run.
    pub(crate) busy_before: f64,
}

impl Machine {
    /// Looks at it for half a second.
    pub(crate) fn read() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let (began, before) = (Instant::now(), busy_time());
        thread::sleep(MIN_POLL_INTERVAL);
        let busy = busy_time().saturating_sub(before).as_secs_f64();
        let share = busy / began.elapsed().as_secs_f64() / processors as f64;
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            processors,
            // The kernel counts in ticks, and may count one too many.
            busy_before: share.min(1.0),
        }
    }
}

/// Time for which processors of the machine were busy, all together, since it started: everything
/// but idling, waiting for storage, and what a hypervisor took. Softirqs are in it, which no
/// process is charged for.
pub(crate) fn busy_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    ticks(busy_ticks(&text).unwrap_or(0))
}

/// Processor time of a process and all its threads, user and system together; of one that has
/// ended, until it is reaped.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(process_ticks(&text).unwrap_or(0))
}

/// First line: user, nice, system, idle, iowait, irq, softirq, steal, and guest times, which are in
/// user and nice.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = numbers[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

/// Fields 14 and 15 of `proc_pid_stat(5)`; the second is a name in parentheses, which may hold
/// anything.
fn process_ticks(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idling_and_stolen_time_are_not_busy() {
        assert_eq!(
            busy_ticks("cpu  1 2 4 1000 1000 8 16 1000 1 0\ncpu0 1 1"),
            Some(31)
        );
        assert_eq!(busy_ticks("cpu  1 2"), None);
    }

    #[test]
    fn a_name_with_parentheses_hides_nothing() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 30 12 5 5 20 0 1 0 100";
        assert_eq!(process_ticks(stat), Some(42));
        assert_eq!(process_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_used_some_time_once_it_has_worked() {
        let mut sum = 0_u64;
        while cpu_time(std::process::id()).is_zero() {
            sum = (0..100_000).fold(sum, |sum, next| sum ^ next);
        }
        assert!(busy_time() >= cpu_time(std::process::id()), "{sum}");
    }
}

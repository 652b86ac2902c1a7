use std::thread;
use std::time::{Duration, Instant};

use crate::lateness;

/// Longest time that a repetition waits for a calm machine: other guests of a hypervisor may take
/// the processors away for some seconds.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Time for which a calm machine wakes each thread without a delay of more than [`CALM_LATENESS`].
const CALM_TIME: Duration = Duration::from_millis(500);

/// Delay that a calm machine stays below.
const CALM_LATENESS: Duration = Duration::from_millis(5);

/// Runs `measure` until a run is valid, `tries` times at most, and gives that run to the test. A
/// run that is invalid by its own checks says nothing about the program; one that is valid is
/// judged, whatever it shows. After an invalid run, the next one begins when the machine is calm,
/// or after twenty seconds.
///
/// # Panics
/// If no run was valid.
pub fn valid_within<T>(tries: u32, mut measure: impl FnMut() -> (T, Vec<String>)) -> T {
    let mut reasons = Vec::new();
    for attempt in 0..tries {
        if attempt > 0 {
            wait_for_calm();
        }
        let (result, broken) = measure();
        if broken.is_empty() {
            return result;
        }
        reasons.push(broken.join("; "));
    }
    panic!("no valid run in {tries}: {}", reasons.join(" | "));
}

fn wait_for_calm() {
    let begun = Instant::now();
    while begun.elapsed() < MAX_WAIT {
        let ((), late) = lateness(|| thread::sleep(CALM_TIME));
        if late < CALM_LATENESS {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invalid_runs_are_repeated() {
        let mut run = 0;
        let result = valid_within(3, || {
            run += 1;
            (
                run,
                if run < 2 {
                    vec!["late".to_owned()]
                } else {
                    vec![]
                },
            )
        });
        assert_eq!((result, run), (2, 2));
    }

    #[test]
    #[should_panic(expected = "no valid run in 2: late | late")]
    fn nothing_but_invalid_runs_is_a_failure() {
        valid_within(2, || ((), vec!["late".to_owned()]));
    }
}

//! Delays between login attempts after wrong passwords, for each client prefix. Time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Number of wrong passwords after which attempts are delayed: a script may run a few times with a mistyped one.
const FREE_FAILURES: u32 = 10;

/// Delay after [`FREE_FAILURES`] wrong passwords; each further one doubles it.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Time after which wrong passwords are forgotten.
const FAILURE_TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum number of client prefixes that are kept; a new one replaces the one that failed longest ago.
const MAX_PREFIXES: usize = 4096;

/// The wrong passwords of each client prefix.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: HashMap<u128, Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    latest: Instant,
}

impl Failures {
    /// Returns the delay from the latest failure to the next attempt.
    fn delay(self) -> Duration {
        match self.count.checked_sub(FREE_FAILURES) {
            None => Duration::ZERO,
            Some(doublings) => MIN_DELAY.saturating_mul(1 << doublings.min(16)).min(MAX_DELAY),
        }
    }
}

impl Backoff {
    /// Returns the time until clients with this `prefix` may try again; zero if they may at once.
    pub(super) fn remaining(&self, prefix: u128, now: Instant) -> Duration {
        let failures = self.failures.get(&prefix);
        failures.map_or(Duration::ZERO, |failures| (failures.latest + failures.delay()).saturating_duration_since(now))
    }

    /// Records a wrong password.
    pub(super) fn failed(&mut self, prefix: u128, now: Instant) {
        self.failures.retain(|_, failures| now.saturating_duration_since(failures.latest) < FAILURE_TIMEOUT);
        if self.failures.len() >= MAX_PREFIXES && !self.failures.contains_key(&prefix) {
            let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.latest).map(|(prefix, _)| *prefix);
            oldest.map(|oldest| self.failures.remove(&oldest));
        }
        let failures = self.failures.entry(prefix).or_insert(Failures { count: 0, latest: now });
        *failures = Failures { count: failures.count.saturating_add(1), latest: now };
    }

    /// Forgets the wrong passwords of a client that has sent the right one.
    pub(super) fn succeeded(&mut self, prefix: u128) {
        self.failures.remove(&prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_wrong_passwords_cause_delays() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        for _ in 0..FREE_FAILURES - 1 {
            backoff.failed(1, start);
        }
        assert_eq!(backoff.remaining(1, start), Duration::ZERO);
        let mut now = start;
        let mut attempts = 0;
        while now < start + Duration::from_hours(1) {
            now += backoff.remaining(1, now);
            backoff.failed(1, now);
            attempts += 1;
        }
        assert!((60..80).contains(&attempts), "{attempts} in an hour");
        assert_eq!(backoff.remaining(2, now), Duration::ZERO, "other clients are not delayed");
        backoff.succeeded(1);
        assert_eq!(backoff.remaining(1, now), Duration::ZERO);
    }

    #[test]
    fn the_number_of_client_prefixes_is_bounded() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        for prefix in 0..10_000 {
            backoff.failed(prefix, start + Duration::from_micros(prefix as u64));
        }
        assert_eq!(backoff.failures.len(), MAX_PREFIXES);
        backoff.failed(1, start + 2 * FAILURE_TIMEOUT);
        assert_eq!(backoff.failures.len(), 1);
    }
}

//! Delays between guesses of a password, for each client prefix. Time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Wrong passwords that cost no delay: a script may be started ten times with the wrong one.
const FREE_FAILURES: u32 = 10;

/// The delay after the first wrong password that costs one; each further one doubles it.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest delay.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// The time after which wrong passwords are forgotten.
const MEMORY: Duration = Duration::from_mins(10);

/// Client prefixes that are remembered. A new one takes the place of the one that failed longest ago.
const MAX_PREFIXES: usize = 4096;

/// Wrong passwords of the last minutes.
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
    /// Returns the delay from the latest failure to the next guess.
    fn delay(self) -> Duration {
        match self.count.checked_sub(FREE_FAILURES) {
            None => Duration::ZERO,
            Some(more) => MIN_DELAY.saturating_mul(1 << more.min(16)).min(MAX_DELAY),
        }
    }
}

impl Backoff {
    /// Returns how long clients with this `prefix` must wait before their next guess; zero if they need not.
    pub(super) fn wait(&self, prefix: u128, now: Instant) -> Duration {
        let failures = self.failures.get(&prefix);
        failures.map_or(Duration::ZERO, |failures| (failures.latest + failures.delay()).saturating_duration_since(now))
    }

    /// Counts a wrong password.
    pub(super) fn failed(&mut self, prefix: u128, now: Instant) {
        self.failures.retain(|_, failures| now.saturating_duration_since(failures.latest) < MEMORY);
        if self.failures.len() >= MAX_PREFIXES && !self.failures.contains_key(&prefix) {
            let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.latest).map(|(prefix, _)| *prefix);
            oldest.map(|oldest| self.failures.remove(&oldest));
        }
        let failures = self.failures.entry(prefix).or_insert(Failures { count: 0, latest: now });
        *failures = Failures { count: failures.count.saturating_add(1), latest: now };
    }

    /// Forgets the wrong passwords of a client that now knows the right one.
    pub(super) fn succeeded(&mut self, prefix: u128) {
        self.failures.remove(&prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_passwords_becomes_slow_and_mistakes_do_not() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        for _ in 0..FREE_FAILURES - 1 {
            backoff.failed(1, start);
        }
        assert_eq!(backoff.wait(1, start), Duration::ZERO);
        let mut now = start;
        let mut guesses = 0;
        while now < start + Duration::from_hours(1) {
            now += backoff.wait(1, now);
            backoff.failed(1, now);
            guesses += 1;
        }
        assert!((60..80).contains(&guesses), "{guesses} in an hour");
        assert_eq!(backoff.wait(2, now), Duration::ZERO, "other clients do not wait");
        backoff.succeeded(1);
        assert_eq!(backoff.wait(1, now), Duration::ZERO);
    }

    #[test]
    fn guesses_from_everywhere_take_no_memory() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        for prefix in 0..10_000 {
            backoff.failed(prefix, start + Duration::from_micros(prefix as u64));
        }
        assert_eq!(backoff.failures.len(), MAX_PREFIXES);
        backoff.failed(1, start + 2 * MEMORY);
        assert_eq!(backoff.failures.len(), 1);
    }
}

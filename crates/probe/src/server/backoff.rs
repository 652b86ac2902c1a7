//! Delays between login attempts after wrong passwords, for each client prefix and for each user.
//! Time is an argument.
//!
//! A success resets no count: it may be of another user than the one whose password is guessed. But
//! the count of a user does not delay prefixes from which that user has logged in, so that who
//! guesses keeps no user out everywhere.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Number of wrong passwords after which attempts are delayed: a script may run a few times with a
/// mistyped one.
const FREE_FAILURES: u32 = 10;

/// Delay after [`FREE_FAILURES`] wrong passwords; each further one doubles it.
const MIN_DELAY: Duration = Duration::from_secs(10);

/// Maximum delay.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Time after which wrong passwords are forgotten.
const FAILURE_TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum number of client prefixes that are kept; a new one replaces the one that failed longest
/// ago.
const MAX_PREFIXES: usize = 4096;

/// Maximum number of users' prefixes from which they have logged in that are kept; the latest are.
const MAX_KNOWN: usize = 4096;

/// The wrong passwords of each client prefix, and of each user by number.
#[derive(Default)]
pub(super) struct LoginBackoff {
    of_prefixes: HashMap<u128, LoginFailures>,
    of_users: HashMap<usize, LoginFailures>,
    /// Users with prefixes from which they have logged in.
    known: VecDeque<(usize, u128)>,
}

#[derive(Clone, Copy)]
struct LoginFailures {
    count: u32,
    latest: Instant,
}

impl LoginFailures {
    /// Returns the delay from the latest failure to the next attempt.
    fn retry_delay(self) -> Duration {
        match self.count.checked_sub(FREE_FAILURES) {
            None => Duration::ZERO,
            Some(doublings) => MIN_DELAY
                .saturating_mul(1 << doublings.min(16))
                .min(MAX_DELAY),
        }
    }
}

impl LoginBackoff {
    /// Returns the time until clients with this `prefix` may try again, as this `user` if it is
    /// known whom they name; zero if they may at once.
    pub(super) fn remaining_delay(
        &self,
        prefix: u128,
        user: Option<usize>,
        now: Instant,
    ) -> Duration {
        let of_user = self
            .user_unknown_at(prefix, user)
            .and_then(|user| self.of_users.get(&user));
        let failures = self.of_prefixes.get(&prefix).into_iter().chain(of_user);
        let delays = failures.map(|failures| {
            (failures.latest + failures.retry_delay()).saturating_duration_since(now)
        });
        delays.max().unwrap_or_default()
    }

    /// Records a wrong password.
    pub(super) fn record_failure(&mut self, prefix: u128, user: Option<usize>, now: Instant) {
        if self.of_prefixes.len() >= MAX_PREFIXES && !self.of_prefixes.contains_key(&prefix) {
            let oldest = self
                .of_prefixes
                .iter()
                .min_by_key(|(_, failures)| failures.latest)
                .map(|(prefix, _)| *prefix);
            oldest.map(|oldest| self.of_prefixes.remove(&oldest));
        }
        count_failure(&mut self.of_prefixes, prefix, now);
        if let Some(user) = self.user_unknown_at(prefix, user) {
            count_failure(&mut self.of_users, user, now);
        }
    }

    /// Records that `user` has logged in.
    pub(super) fn record_success(&mut self, prefix: u128, user: Option<usize>) {
        let Some(user) = user else { return };
        self.known.retain(|known| *known != (user, prefix));
        self.known.push_back((user, prefix));
        if self.known.len() > MAX_KNOWN {
            self.known.pop_front();
        }
    }

    /// Returns the user if it has not logged in from this prefix.
    fn user_unknown_at(&self, prefix: u128, user: Option<usize>) -> Option<usize> {
        user.filter(|user| !self.known.contains(&(*user, prefix)))
    }
}

fn count_failure<K: Eq + Hash>(failures: &mut HashMap<K, LoginFailures>, key: K, now: Instant) {
    failures.retain(|_, failures| now.saturating_duration_since(failures.latest) < FAILURE_TIMEOUT);
    let failures = failures.entry(key).or_insert(LoginFailures {
        count: 0,
        latest: now,
    });
    *failures = LoginFailures {
        count: failures.count.saturating_add(1),
        latest: now,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses as often as is permitted for an hour, each time one of the prefixes and one of the
    /// users in turn. Returns the number of guesses that were checked in the first minute, and in
    /// all.
    fn guesses(prefixes: u128, users: usize, own: Option<usize>) -> [u32; 2] {
        let (mut backoff, start) = (LoginBackoff::default(), Instant::now());
        let mut checked = [0, 0];
        for tick in 0..36_000_u32 {
            let now = start + Duration::from_millis(100) * tick;
            let (prefix, user) = (u128::from(tick) % prefixes, tick as usize % users);
            if own.is_some() && backoff.remaining_delay(prefix, own, now).is_zero() {
                backoff.record_success(prefix, own);
            }
            if backoff.remaining_delay(prefix, Some(user), now).is_zero() {
                backoff.record_failure(prefix, Some(user), now);
                checked[0] += u32::from(now < start + Duration::from_mins(1));
                checked[1] += 1;
            }
        }
        checked
    }

    #[test]
    fn in_whatever_form_passwords_are_guessed_few_are_checked() {
        for (prefixes, users, own) in [
            (1, 1, None),
            (1, 50, None),
            (1, 1, Some(7)),
            (1000, 1, None),
            (1000, 1, Some(7)),
        ] {
            let checked = guesses(prefixes, users, own);
            assert!(
                checked[0] <= 12 && checked[1] < 80,
                "{prefixes}, {users}, {own:?}: {checked:?}"
            );
        }
    }

    #[test]
    fn guesses_do_not_keep_a_user_out_from_where_that_user_has_logged_in() {
        let (mut backoff, now) = (LoginBackoff::default(), Instant::now());
        backoff.record_success(1, Some(0));
        (0..1000).for_each(|guess| backoff.record_failure(100 + guess, Some(0), now));
        assert!(!backoff.remaining_delay(2, Some(0), now).is_zero());
        assert!(
            backoff.remaining_delay(1, Some(0), now).is_zero()
                && backoff.remaining_delay(2, Some(1), now).is_zero()
        );
        assert!(backoff.remaining_delay(2, None, now).is_zero());
        // Wrong passwords from there delay no client elsewhere.
        (0..FREE_FAILURES).for_each(|_| backoff.record_failure(1, Some(0), now));
        assert!(
            !backoff.remaining_delay(1, Some(0), now).is_zero()
                && !backoff.remaining_delay(1, Some(1), now).is_zero()
        );
        assert!(
            backoff
                .remaining_delay(2, Some(0), now + MAX_DELAY)
                .is_zero()
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut backoff, start) = (LoginBackoff::default(), Instant::now());
        for prefix in 0..10_000 {
            backoff.record_failure(prefix, None, start + Duration::from_micros(prefix as u64));
            backoff.record_success(prefix, Some(0));
        }
        assert_eq!(
            (backoff.of_prefixes.len(), backoff.known.len()),
            (MAX_PREFIXES, MAX_KNOWN)
        );
        backoff.record_failure(1, None, start + 2 * FAILURE_TIMEOUT);
        assert_eq!(backoff.of_prefixes.len(), 1);
    }
}

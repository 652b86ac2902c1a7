//! The amount that a sender may write, and the time at which it may.

use std::num::NonZeroU64;
use std::thread;
use std::time::Instant;

use fullpipe_units::{BitRate, ByteCount, Span};
use rustix::thread::set_current_timer_slack;

use crate::plan::TransferPlan;
use crate::shared::POLL_INTERVAL;

/// The time that a thread may oversleep without harm on a machine that has better to do: if bursts must not be later
/// than that, it does not sleep.
const OVERSLEEP: Span = Span::from_micros(200);

/// The bytes that a sender may write: those that its rate grants, or any number.
#[derive(Debug)]
pub(crate) struct Allowance {
    pace: Option<Pace>,
    left: u64,
}

impl Allowance {
    /// As `plan` has it, from now on; at a rate, at most `most` blocks at once to make up for a delay.
    pub(crate) fn new(plan: &TransferPlan, most: u64) -> Self {
        let burst = u64::from(plan.burst.unwrap_or(1).max(1));
        let rate = plan.rate.filter(|&rate| rate > BitRate::ZERO);
        let pace = rate.map(|rate| Pace::new(rate, plan.block * burst, most / burst, Instant::now()));
        Self { left: if pace.is_some() { 0 } else { u64::MAX }, pace }
    }

    /// The bytes that may be written, of which there are some in the end; none if `stopped` meanwhile.
    pub(crate) fn wait(&mut self, stopped: impl Fn() -> bool) -> u64 {
        if let (0, Some(pace)) = (self.left, &mut self.pace) {
            self.left = pace.wait(stopped).get();
        }
        self.left
    }

    /// So many have been written.
    pub(crate) fn taken(&mut self, bytes: u64) {
        if self.pace.is_some() {
            self.left = self.left.saturating_sub(bytes);
        }
    }
}

/// When bursts are due: from the start at equal times, so that lateness does not add up.
#[derive(Debug, Clone)]
struct Pace {
    rate: BitRate,
    burst: ByteCount,
    /// Number of bursts that may go at once after a delay; what is further behind is never sent. [`u64::MAX`] to make
    /// up for any delay.
    most: u64,
    start: Instant,
    granted: ByteCount,
}

impl Pace {
    /// Grants `burst` at `start`, and then as often as `rate` says; after a delay, at most `most` of them at once.
    fn new(rate: BitRate, burst: ByteCount, most: u64, start: Instant) -> Self {
        // A sleep ends up to 50 µs late otherwise. Where the kernel refuses, it does.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Self { rate, burst, most: most.max(1), start, granted: ByteCount::ZERO }
    }

    /// Waits until a burst is due; the bytes that may be written then, none if `stopped`.
    fn wait(&mut self, stopped: impl Fn() -> bool) -> ByteCount {
        loop {
            let now = Instant::now();
            let left = self.due().saturating_duration_since(now);
            if stopped() {
                return ByteCount::ZERO;
            }
            if left.is_zero() {
                return self.grant(now);
            }
            if self.sleeps() { thread::sleep(left.min(POLL_INTERVAL)) } else { thread::yield_now() }
        }
    }

    /// When the next burst is due.
    fn due(&self) -> Instant {
        self.start + self.rate.time_for(self.granted).into()
    }

    /// Grants what is due at `now`, which is not before the next burst is.
    fn grant(&mut self, now: Instant) -> ByteCount {
        let late: Span = now.saturating_duration_since(self.due()).into();
        let bursts = 1 + self.rate.bytes_in(late).get() / self.burst.get().max(1);
        if bursts > self.most {
            self.start += self.rate.time_for(self.burst * (bursts - self.most)).into();
        }
        let grant = self.burst * bursts.min(self.most);
        self.granted += grant;
        grant
    }

    /// Returns whether the time that may be made up for is long enough to be slept through.
    fn sleeps(&self) -> bool {
        self.rate.time_for(self.burst * self.most) >= OVERSLEEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const BURST: ByteCount = ByteCount::new(1_000);

    /// One burst a millisecond.
    fn pace(most: u64) -> (Pace, Instant) {
        let start = Instant::now();
        (Pace::new(BitRate::from_mbps(8), BURST, most, start), start)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn bursts_are_due_at_equal_times_however_late_each_is() {
        let (mut pace, start) = pace(8);
        for number in 0..1_000 {
            assert_eq!(pace.due(), start + millis(number));
            assert_eq!(pace.grant(start + millis(number) + Duration::from_micros(900)), BURST);
        }
    }

    #[test]
    fn a_short_delay_is_made_up_for() {
        let (mut pace, start) = pace(8);
        assert_eq!(pace.grant(start + millis(5)), BURST * 6);
        assert_eq!(pace.due(), start + millis(6));
    }

    #[test]
    fn a_long_delay_is_not() {
        let (mut pace, start) = pace(8);
        assert_eq!(pace.grant(start + millis(1_000)), BURST * 8);
        assert_eq!(pace.due(), start + millis(1_001));
    }

    #[test]
    fn without_a_limit_any_delay_is_made_up_for() {
        let (mut pace, start) = pace(u64::MAX);
        assert_eq!(pace.grant(start + millis(1_000)), BURST * 1_001);
        assert_eq!(pace.due(), start + millis(1_001));
    }

    #[test]
    fn a_wait_ends_when_reported() {
        let mut pace = Pace::new(BitRate::from_bps(1), BURST, 1, Instant::now());
        assert_eq!(pace.wait(|| false), BURST);
        let begun = Instant::now();
        assert_eq!(pace.wait(|| begun.elapsed() > millis(10)), ByteCount::ZERO);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

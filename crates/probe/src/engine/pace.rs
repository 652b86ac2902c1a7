//! The amount that a sender may write, and the time at which it may.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_units::{BitRate, ByteCount, Span};
use rustix::thread::set_current_timer_slack;

use super::plan::TransferPlan;
use super::shared::POLL_INTERVAL;

/// The time that a thread may oversleep without harm on a machine that has better to do: if bursts
/// must not be later than that, it does not sleep.
const OVERSLEEP: Span = Span::from_micros(200);

/// Blocks that a sender of datagrams hands over in a row to make up for a delay: a queue on the
/// path that is meant for this rate holds so many, and at a high rate those that are due in
/// [`MAX_TRAIN_TIME`].
const MAX_TRAIN: u64 = 8;
const MAX_TRAIN_TIME: Span = Span::from_millis(1);

/// Longest delay that a sender of datagrams makes up for, unless [`MAX_TRAIN`] lasts longer: it
/// loads the path with twice its rate for as long.
const MAX_DELAY: Span = Span::from_millis(100);

/// Reads that a receiver which is late makes up for at once.
const MAX_LATE_READS: u64 = 10;

/// The bytes that a program may write, or read: those that its rate grants, or any number.
pub(crate) struct WriteAllowance {
    pace: Option<BurstPace>,
    left: u64,
}

impl WriteAllowance {
    /// Returns the allowance of a byte stream from now on: one that is late writes all that is due
    /// at once, as a byte stream has no shape of its own that this could spoil.
    pub(crate) fn of_bytes(plan: &TransferPlan) -> Self {
        Self::new(plan, CatchUp::AT_ONCE)
    }

    /// Returns the allowance of a stream of datagrams from now on: one that is late sends at twice
    /// its rate until it has caught up, or all that is due at once if the plan says so.
    pub(crate) fn of_datagrams(plan: &TransferPlan) -> Self {
        Self::new(
            plan,
            if plan.catches_up_at_once {
                CatchUp::AT_ONCE
            } else {
                CatchUp::of_datagrams(plan)
            },
        )
    }

    /// Returns the allowance of a receiver from now on: one that found nothing to read makes up for
    /// [`MAX_LATE_READS`] at most.
    pub(crate) fn of_reads(plan: &TransferPlan) -> Self {
        let catch_up = CatchUp {
            at_once: MAX_LATE_READS,
            behind: MAX_LATE_READS,
        };
        let pace = positive(plan.read_rate)
            .map(|rate| BurstPace::new(rate, read_chunk(rate), catch_up, Instant::now()));
        Self::from_pace(pace)
    }

    fn new(plan: &TransferPlan, catch_up: CatchUp) -> Self {
        let burst = u64::from(plan.burst.unwrap_or(1).max(1));
        let pace = positive(plan.rate).map(|rate| {
            BurstPace::new(
                rate,
                plan.block * burst,
                catch_up.in_bursts(burst),
                Instant::now(),
            )
        });
        Self::from_pace(pace)
    }

    fn from_pace(pace: Option<BurstPace>) -> Self {
        Self {
            left: if pace.is_some() { 0 } else { u64::MAX },
            pace,
        }
    }

    /// Waits until bytes may be written, and returns how many; none if `stopped` meanwhile.
    pub(crate) fn wait_for_bytes(&mut self, stopped: impl Fn() -> bool) -> u64 {
        if let (0, Some(pace)) = (self.left, &mut self.pace) {
            self.left = pace.wait_for_burst(stopped).get();
        }
        self.left
    }

    /// Notes that so many have been written or read.
    pub(crate) fn note_used(&mut self, bytes: u64) {
        if self.pace.is_some() {
            self.left = self.left.saturating_sub(bytes);
        }
    }
}

fn positive(rate: Option<BitRate>) -> Option<BitRate> {
    rate.filter(|rate| *rate > BitRate::ZERO)
}

/// Returns what a receiver reads at once at this rate: that of a millisecond, from 4 KiB on.
fn read_chunk(rate: BitRate) -> ByteCount {
    let millisecond = rate.bytes_in(Span::from_millis(1));
    millisecond.max(ByteCount::from_kib(4))
}

/// Bounds of the bursts with which a sender that is late makes up for it.
#[derive(Clone, Copy)]
struct CatchUp {
    /// Number of bursts that may go at once.
    at_once: u64,
    /// Number of bursts that a sender may be behind; what is further behind is never sent.
    behind: u64,
}

impl CatchUp {
    /// Any delay is made up for as soon as it is over (iperf3's `iperf_check_throttle`).
    const AT_ONCE: Self = Self {
        at_once: u64::MAX,
        behind: u64::MAX,
    };

    /// Returns the bounds for datagrams, in blocks.
    fn of_datagrams(plan: &TransferPlan) -> Self {
        let [train, behind] = [MAX_TRAIN_TIME, MAX_DELAY].map(|time| {
            plan.rate.map_or(0, |rate| {
                rate.bytes_in(time).get() / plan.block.get().max(1)
            })
        });
        let at_once = train.max(MAX_TRAIN);
        Self {
            at_once,
            behind: behind.max(at_once),
        }
    }

    /// Returns the bounds, of blocks, as ones of bursts of `burst` blocks.
    fn in_bursts(self, burst: u64) -> Self {
        Self {
            at_once: (self.at_once / burst).max(1),
            behind: (self.behind / burst).max(1),
        }
    }
}

/// When bursts are due: from the start at equal times, so that lateness does not add up.
#[derive(Clone)]
struct BurstPace {
    rate: BitRate,
    burst: ByteCount,
    catch_up: CatchUp,
    start: Instant,
    granted: ByteCount,
    /// Time before which nothing more goes although it is due: a late sender does not exceed twice
    /// its rate.
    resume: Instant,
}

impl BurstPace {
    /// Grants `burst` at `start`, and then as often as `rate` says; after a delay, more as
    /// `catch_up` permits.
    fn new(rate: BitRate, burst: ByteCount, catch_up: CatchUp, start: Instant) -> Self {
        // A sleep ends up to 50 µs late otherwise. Where the kernel refuses, it does.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Self {
            rate,
            burst,
            catch_up,
            start,
            granted: ByteCount::ZERO,
            resume: start,
        }
    }

    /// Waits until a burst is due; the bytes that may be written then, none if `stopped`.
    fn wait_for_burst(&mut self, stopped: impl Fn() -> bool) -> ByteCount {
        loop {
            let now = Instant::now();
            let left = self.next_due().saturating_duration_since(now);
            if stopped() {
                return ByteCount::ZERO;
            }
            if left.is_zero() {
                return self.grant_due_bytes(now);
            }
            if self.has_long_catch_up() {
                thread::sleep(left.min(POLL_INTERVAL));
            } else {
                thread::yield_now();
            }
        }
    }

    /// Returns the time at which the next burst may go.
    fn next_due(&self) -> Instant {
        self.scheduled_time().max(self.resume)
    }

    /// Returns the time at which the next burst goes if the sender is never late.
    fn scheduled_time(&self) -> Instant {
        self.start + self.rate.time_for(self.granted).into()
    }

    /// Grants what is due at `now`, which is not before the next burst is.
    fn grant_due_bytes(&mut self, now: Instant) -> ByteCount {
        let late: Span = now.saturating_duration_since(self.scheduled_time()).into();
        let bursts = 1 + self.rate.bytes_in(late).get() / self.burst.get().max(1);
        if bursts > self.catch_up.behind {
            self.start += self
                .rate
                .time_for(self.burst * (bursts - self.catch_up.behind))
                .into();
        }
        let grant = self.burst * bursts.min(self.catch_up.at_once).min(self.catch_up.behind);
        self.granted += grant;
        if bursts > self.catch_up.at_once {
            self.resume = now + Duration::from(self.rate.time_for(grant)) / 2;
        }
        grant
    }

    /// Returns true if the time that may be made up for is long enough to be slept through.
    fn has_long_catch_up(&self) -> bool {
        self.rate.time_for(self.burst * self.catch_up.at_once) >= OVERSLEEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Request;

    const BURST: ByteCount = ByteCount::new(1_000);

    /// One burst a millisecond; after a delay 8 at once, and 100 in all.
    fn pace() -> (BurstPace, Instant) {
        let start = Instant::now();
        let (rate, request) = (
            Some(BitRate::from_mbps(8)),
            Request {
                block: BURST,
                ..Request::default()
            },
        );
        let catch_up = CatchUp::of_datagrams(&TransferPlan {
            rate,
            ..TransferPlan::from_request(&request, None)
        });
        (
            BurstPace::new(BitRate::from_mbps(8), BURST, catch_up, start),
            start,
        )
    }

    fn at_once() -> (BurstPace, Instant) {
        let start = Instant::now();
        (
            BurstPace::new(BitRate::from_mbps(8), BURST, CatchUp::AT_ONCE, start),
            start,
        )
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns the bytes that are granted in the next `time` where the sender does not run for the
    /// first `lost` of each 10 ms, and the most in a single grant and in a whole millisecond.
    fn granted(
        pace: &mut BurstPace,
        start: Instant,
        time: Duration,
        lost: Duration,
    ) -> (ByteCount, ByteCount, ByteCount) {
        let (mut total, mut largest, mut now) = (ByteCount::ZERO, ByteCount::ZERO, start);
        let mut by_millisecond = vec![ByteCount::ZERO; time.as_millis() as usize + 1];
        while now < start + time {
            let into = Duration::from_nanos(Span::from(now - start).as_nanos() % 10_000_000);
            now += lost.saturating_sub(into);
            let grant = pace.grant_due_bytes(now);
            total += grant;
            largest = largest.max(grant);
            by_millisecond[(now - start).as_millis() as usize] += grant;
            now = now.max(pace.next_due());
        }
        (total, largest, by_millisecond.into_iter().max().unwrap())
    }

    #[test]
    fn bursts_are_due_at_equal_times_however_late_each_is() {
        let (mut pace, start) = pace();
        for number in 0..1_000 {
            assert_eq!(pace.next_due(), start + millis(number));
            assert_eq!(
                pace.grant_due_bytes(start + millis(number) + Duration::from_micros(900)),
                BURST
            );
        }
    }

    #[test]
    fn a_short_delay_is_made_up_for() {
        let (mut pace, start) = pace();
        assert_eq!(pace.grant_due_bytes(start + millis(5)), BURST * 6);
        assert_eq!(pace.next_due(), start + millis(6));
    }

    #[test]
    fn a_longer_delay_is_made_up_for_at_twice_the_rate() {
        let (mut pace, start) = pace();
        assert_eq!(pace.grant_due_bytes(start + millis(49)), BURST * 8);
        let mut now = start + millis(49);
        for trains in 1..=10 {
            assert_eq!(pace.next_due(), now + millis(4));
            now = pace.next_due();
            assert_eq!(pace.grant_due_bytes(now), BURST * 8, "train {trains}");
        }
        // Of 50 and 40 that were due by then, 88 are sent.
        assert_eq!(
            (pace.grant_due_bytes(now + millis(4)), pace.next_due()),
            (BURST * 6, now + millis(5))
        );
    }

    #[test]
    fn what_is_further_behind_is_never_sent() {
        let (mut pace, start) = pace();
        let (total, largest, _) = granted(
            &mut pace,
            start + millis(1_000),
            millis(1_000),
            Duration::ZERO,
        );
        assert_eq!((total, largest), (BURST * 1_099, BURST * 8));
    }

    /// A host that was busy had 37 to 93 of 100 Mbit/s sent, and no word of it.
    #[test]
    fn a_sender_that_loses_the_processor_for_3_of_10_ms_keeps_its_rate() {
        for mbps in [8, 100, 1_000] {
            let (rate, start) = (BitRate::from_mbps(mbps), Instant::now());
            let request = Request {
                block: BURST,
                ..Request::default()
            };
            let plan = TransferPlan {
                rate: Some(rate),
                ..TransferPlan::from_request(&request, None)
            };
            let catch_up = CatchUp::of_datagrams(&plan);
            let mut pace = BurstPace::new(rate, BURST, catch_up, start);
            let (total, largest, in_a_millisecond) =
                granted(&mut pace, start, millis(3_000), millis(3));
            let due = rate.bytes_in(Span::from_secs(3)).as_f64();
            assert!(
                (total.as_f64() / due - 1.0).abs() < 0.005,
                "{rate}: {total} of {due}"
            );
            assert_eq!(
                largest,
                BURST * catch_up.at_once.min(1 + 3 * mbps / 8),
                "{rate}"
            );
            let most = rate.bytes_in(Span::from_millis(2)) + BURST * catch_up.at_once;
            assert!(
                in_a_millisecond <= most,
                "{rate}: {in_a_millisecond} in a millisecond"
            );
        }
    }

    #[test]
    fn without_a_limit_any_delay_is_made_up_for_at_once() {
        let (mut pace, start) = at_once();
        assert_eq!(pace.grant_due_bytes(start + millis(1_000)), BURST * 1_001);
        assert_eq!(pace.next_due(), start + millis(1_001));
        let (mut pace, start) = at_once();
        assert_eq!(
            granted(&mut pace, start, millis(3_000), millis(3)).0,
            BURST * 3_000
        );
    }

    #[test]
    fn a_fast_sender_makes_up_for_a_millisecond_at_once() {
        let at_once = |mbps| {
            let request = Request {
                block: ByteCount::new(1_250),
                ..Request::default()
            };
            let plan = TransferPlan {
                rate: Some(BitRate::from_mbps(mbps)),
                ..TransferPlan::from_request(&request, None)
            };
            CatchUp::of_datagrams(&plan).at_once
        };
        assert_eq!([1, 80, 95, 600].map(at_once), [8, 8, 9, 60]);
    }

    #[test]
    fn a_wait_ends_when_reported() {
        let mut pace = BurstPace::new(
            BitRate::from_bps(1),
            BURST,
            CatchUp {
                at_once: 1,
                behind: 1,
            },
            Instant::now(),
        );
        assert_eq!(pace.wait_for_burst(|| false), BURST);
        let begun = Instant::now();
        assert_eq!(
            pace.wait_for_burst(|| begun.elapsed() > millis(10)),
            ByteCount::ZERO
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

//! Checks a transfer against its bounds, and measures its recent rate. Time and counts are arguments.

use std::collections::VecDeque;

use fullpipe_iperf::{ErrorNumber, Refusal};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::admission::Activity;

/// Maximum time over which a rate is averaged, as by iperf3's `--server-bitrate-limit`.
const MAX_WINDOW: Span = Span::from_secs(5);

/// Minimum time over which a rate is averaged.
const MIN_WINDOW: Span = Span::from_secs(1);

/// Rate below which a stream counts as idle.
pub(super) const IDLE_RATE: BitRate = BitRate::from_bps(64_000);

/// Minimum time between two counts that are kept.
const COUNT_INTERVAL: Span = Span::from_millis(250);

/// Time for which the bytes of a burst may exceed a limit of the rate.
const BURST_TIME: Span = Span::from_millis(500);

/// Burst that is permitted whatever the limit is: iperf3 writes as much at once by default.
const MIN_BURST: ByteCount = ByteCount::from_kib(128);

/// Returns how much of `burst` may exceed the `limit` of a rate. The client alone decides how much it writes at once:
/// all of it would be without a limit.
pub(super) fn permitted_burst(burst: ByteCount, limit: Option<BitRate>) -> ByteCount {
    limit.map_or(burst, |limit| burst.min(limit.bytes_in(BURST_TIME).max(MIN_BURST)))
}

/// The bounds of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Maximum duration; `None` if it is not bounded.
    pub(super) max_duration: Option<Span>,
    /// Maximum number of bytes; `None` if it is not bounded.
    pub(super) max_bytes: Option<ByteCount>,
    /// Maximum time without a byte.
    pub(super) stall_timeout: Span,
    /// Bytes that are left out of each rate: those that all streams write at once must not count as an excess.
    pub(super) burst: ByteCount,
    /// Rate below which the transfer counts as idle.
    pub(super) idle_rate: BitRate,
}

/// The counts of a transfer under way, and its bounds.
#[derive(Debug)]
pub(super) struct Monitor {
    bounds: Bounds,
    /// Bytes at times of the last [`MAX_WINDOW`], oldest first.
    counts: VecDeque<(Span, ByteCount)>,
    /// Time at which `bytes` last grew.
    last_growth: Span,
    bytes: ByteCount,
    /// Time at which the rate was last at least the idle rate.
    last_busy: Span,
}

impl Monitor {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: VecDeque::from([(Span::ZERO, ByteCount::ZERO)]),
            last_growth: Span::ZERO,
            bytes: ByteCount::ZERO,
            last_busy: Span::ZERO,
        }
    }

    /// Records the `bytes` carried up to the time `at`, counted from the start of the data, and returns the recent
    /// activity; `None` before [`MIN_WINDOW`].
    ///
    /// # Errors
    /// Fails if the transfer exceeds its bounds.
    pub(super) fn check(&mut self, at: Span, bytes: ByteCount) -> Result<Option<Activity>, Refusal> {
        if bytes > self.bytes {
            (self.bytes, self.last_growth) = (bytes, at);
        }
        self.check_bounds(at, bytes)?;
        Ok(self.activity(at, bytes))
    }

    fn check_bounds(&self, at: Span, bytes: ByteCount) -> Result<(), Refusal> {
        let refuse = |number, why| Err(Refusal { number, why });
        let stalled = at.saturating_sub(self.last_growth);
        match self.bounds {
            Bounds { max_duration: Some(max), .. } if at > max => {
                refuse(ErrorNumber::MAX_DURATION, format!("it lasted longer than the {max} that are permitted"))
            }
            Bounds { max_bytes: Some(max), .. } if bytes > max => {
                refuse(ErrorNumber::MAX_DURATION, format!("it carried more than the {max} that are permitted"))
            }
            Bounds { stall_timeout, .. } if stalled > stall_timeout => {
                refuse(ErrorNumber::NO_MESSAGE, format!("no data flowed for {stall_timeout}"))
            }
            _ => Ok(()),
        }
    }

    fn activity(&mut self, at: Span, bytes: ByteCount) -> Option<Activity> {
        let &(last, _) = self.counts.back()?;
        if at.saturating_sub(last) >= COUNT_INTERVAL {
            self.counts.push_back((at, bytes));
        }
        while self.counts.get(1).is_some_and(|&(second, _)| at.saturating_sub(second) >= MAX_WINDOW) {
            self.counts.pop_front();
        }
        let &(since, before) = self.counts.front()?;
        let window = at.saturating_sub(since);
        if window < MIN_WINDOW {
            return None;
        }
        let carried = bytes.saturating_sub(before);
        if BitRate::of(carried, window) >= self.bounds.idle_rate {
            self.last_busy = at;
        }
        let rate = BitRate::of(carried.saturating_sub(self.bounds.burst), window);
        Some(Activity { rate, idle: at.saturating_sub(self.last_busy) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        max_duration: Some(Span::from_secs(60)),
        max_bytes: Some(ByteCount::from_mib(100)),
        stall_timeout: Span::from_secs(20),
        burst: ByteCount::from_kib(128),
        idle_rate: IDLE_RATE,
    };

    /// Returns the rate at each update of a steady flow of `mbps`.
    fn rates(monitor: &mut Monitor, mbps: u64, millis: std::ops::Range<u64>) -> Vec<Option<BitRate>> {
        let bytes = |at: u64| ByteCount::new(at * mbps * 125);
        let rate = |activity: Option<Activity>| activity.map(|activity| activity.rate);
        millis.step_by(20).map(|at| rate(monitor.check(Span::from_millis(at), bytes(at)).unwrap())).collect()
    }

    #[test]
    fn a_steady_flow_has_its_rate() {
        let mut monitor = Monitor::new(Bounds { max_bytes: None, ..BOUNDS });
        let seen = rates(&mut monitor, 800, 0..20_000);
        assert!(seen[..50].iter().all(Option::is_none), "not before a second has passed");
        let last = seen.last().unwrap().unwrap();
        assert!((0.99..=1.0).contains(&last.relative_to(BitRate::from_mbps(800))), "{last}");
        assert!(monitor.counts.len() <= 23, "{}", monitor.counts.len());
    }

    #[test]
    fn a_flow_at_its_limit_does_not_exceed_it_although_it_comes_in_blocks() {
        let mut monitor = Monitor::new(BOUNDS);
        let block = ByteCount::from_kib(128);
        for update in 0..1000 {
            let at = Span::from_millis(update * 20);
            let due = BitRate::from_mbps(10).bytes_in(at).get() / block.get() + 1;
            let rate = monitor.check(at, ByteCount::new(due * block.get())).unwrap();
            assert!(rate.is_none_or(|activity| activity.rate <= BitRate::from_mbps(10)), "{rate:?} at {at}");
        }
    }

    #[test]
    fn a_client_that_writes_gigabytes_at_once_is_held_to_the_limit() {
        let limit = BitRate::from_mbps(10);
        let burst = permitted_burst(ByteCount::from_mib(1000), Some(limit));
        let mut monitor = Monitor::new(Bounds { burst, max_bytes: None, ..BOUNDS });
        assert!(rates(&mut monitor, 12, 0..20_000).last().unwrap().is_some_and(|rate| rate > limit));
        assert_eq!(permitted_burst(ByteCount::from_mib(1000), None), ByteCount::from_mib(1000));
        assert_eq!(permitted_burst(ByteCount::from_mib(1), Some(BitRate::from_mbps(1))), ByteCount::from_kib(128));
    }

    #[test]
    fn bytes_before_the_window_do_not_count() {
        let mut monitor = Monitor::new(Bounds { max_bytes: None, ..BOUNDS });
        monitor.check(Span::from_secs(1), ByteCount::from_mib(1000)).unwrap();
        for update in 0..600 {
            monitor.check(Span::from_millis(1000 + update * 20), ByteCount::from_mib(1000)).unwrap();
        }
        let rate = monitor.check(Span::from_secs(14), ByteCount::from_mib(1000)).unwrap();
        assert_eq!(rate.map(|activity| activity.rate), Some(BitRate::ZERO));
    }

    #[test]
    fn a_byte_now_and_then_counts_as_idle() {
        let mut monitor = Monitor::new(Bounds { max_duration: None, ..BOUNDS });
        let idle = |monitor: &mut Monitor, second: u64, bytes: u64| {
            monitor.check(Span::from_secs(second), ByteCount::new(bytes)).unwrap().unwrap().idle
        };
        assert_eq!(idle(&mut monitor, 1, 100_000), Span::ZERO);
        for second in 2..100 {
            idle(&mut monitor, second, 100_000 + second / 10);
        }
        assert!(idle(&mut monitor, 100, 100_010) > Span::from_secs(90));
        assert_eq!(idle(&mut monitor, 101, 200_000), Span::ZERO);
    }

    #[test]
    fn a_transfer_may_stall_up_to_the_timeout() {
        let mut monitor = Monitor::new(BOUNDS);
        assert!(monitor.check(Span::from_secs(20), ByteCount::ZERO).is_ok());
        assert!(monitor.check(Span::from_secs(21), ByteCount::ZERO).is_err_and(|why| why.number.get() == 144));
        let mut monitor = Monitor::new(BOUNDS);
        for second in 0..60 {
            assert!(monitor.check(Span::from_secs(second), ByteCount::new(second / 15)).is_ok(), "{second}");
        }
    }

    #[test]
    fn a_transfer_ends_at_its_bounds() {
        let mut monitor = Monitor::new(BOUNDS);
        let late = monitor.check(Span::from_millis(60_001), ByteCount::new(1)).unwrap_err();
        assert_eq!(late.number.get(), 37);
        let large = Monitor::new(BOUNDS).check(Span::from_secs(1), ByteCount::from_mib(101)).unwrap_err();
        assert_eq!(large.number.get(), 37);
        assert!(large.why.contains("100 MiB"), "{}", large.why);
    }
}

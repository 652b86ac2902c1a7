//! Compares a transfer with its bounds. Time and counts are arguments.

use std::collections::VecDeque;

use fullpipe_iperf::{ErrorNumber, Refusal};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::admission::Pace;

/// The longest time over which a rate is taken, as in iperf3's own limit.
const WINDOW: Span = Span::from_secs(5);
/// The shortest time over which a rate is taken.
const MIN_WINDOW: Span = Span::from_secs(1);

/// The rate of a stream below which it carries nearly nothing.
pub(super) const IDLE_RATE: BitRate = BitRate::from_bps(64_000);

/// The interval at which counts are kept.
const STEP: Span = Span::from_millis(250);

/// Bounds of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Its longest duration.
    pub(super) duration: Option<Span>,
    /// The most bytes that it may carry.
    pub(super) bytes: Option<ByteCount>,
    /// The longest time without a byte.
    pub(super) standstill: Span,
    /// Bytes beyond a rate that are no excess: what is written at once cannot be divided.
    pub(super) allowance: ByteCount,
    /// The rate below which it carries nearly nothing.
    pub(super) idle_rate: BitRate,
}

/// A transfer under way, as it is watched.
#[derive(Debug)]
pub(super) struct Watch {
    bounds: Bounds,
    /// Counts of the last few seconds, oldest first.
    counts: VecDeque<(Span, ByteCount)>,
    moved: Span,
    latest: ByteCount,
    /// When it was last faster than the idle rate.
    busy: Span,
}

impl Watch {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: VecDeque::from([(Span::ZERO, ByteCount::ZERO)]),
            moved: Span::ZERO,
            latest: ByteCount::ZERO,
            busy: Span::ZERO,
        }
    }

    /// Takes the `bytes` carried until `at`, counted from the start of the data. Returns the pace of the last seconds, after
    /// the first; its rate leaves the allowance out.
    ///
    /// # Errors
    /// If the transfer must end.
    pub(super) fn look(&mut self, at: Span, bytes: ByteCount) -> Result<Option<Pace>, Refusal> {
        if bytes > self.latest {
            (self.latest, self.moved) = (bytes, at);
        }
        self.judge(at, bytes)?;
        Ok(self.pace(at, bytes))
    }

    fn judge(&self, at: Span, bytes: ByteCount) -> Result<(), Refusal> {
        let refuse = |number, why| Err(Refusal { number, why });
        let still = at.saturating_sub(self.moved);
        match self.bounds {
            Bounds { duration: Some(longest), .. } if at > longest => {
                refuse(ErrorNumber::MAX_DURATION, format!("it lasted longer than the {longest} that are permitted"))
            }
            Bounds { bytes: Some(most), .. } if bytes > most => {
                refuse(ErrorNumber::MAX_DURATION, format!("it carried more than the {most} that are permitted"))
            }
            Bounds { standstill, .. } if still > standstill => {
                refuse(ErrorNumber::NO_MESSAGE, format!("no data flowed for {standstill}"))
            }
            _ => Ok(()),
        }
    }

    fn pace(&mut self, at: Span, bytes: ByteCount) -> Option<Pace> {
        let &(last, _) = self.counts.back()?;
        if at.saturating_sub(last) >= STEP {
            self.counts.push_back((at, bytes));
        }
        while self.counts.get(1).is_some_and(|&(second, _)| at.saturating_sub(second) >= WINDOW) {
            self.counts.pop_front();
        }
        let &(since, before) = self.counts.front()?;
        let window = at.saturating_sub(since);
        if window < MIN_WINDOW {
            return None;
        }
        let carried = bytes.saturating_sub(before);
        if BitRate::of(carried, window) >= self.bounds.idle_rate {
            self.busy = at;
        }
        let rate = BitRate::of(carried.saturating_sub(self.bounds.allowance), window);
        Some(Pace { rate, idle: at.saturating_sub(self.busy) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        duration: Some(Span::from_secs(60)),
        bytes: Some(ByteCount::from_mib(100)),
        standstill: Span::from_secs(20),
        allowance: ByteCount::from_kib(128),
        idle_rate: IDLE_RATE,
    };

    /// Returns the rate after each of many samples of a flow of `mbps`.
    fn rates(watch: &mut Watch, mbps: u64, millis: std::ops::Range<u64>) -> Vec<Option<BitRate>> {
        let bytes = |at: u64| ByteCount::new(at * mbps * 125);
        let rate = |pace: Option<Pace>| pace.map(|pace| pace.rate);
        millis.step_by(20).map(|at| rate(watch.look(Span::from_millis(at), bytes(at)).unwrap())).collect()
    }

    #[test]
    fn a_steady_flow_has_its_rate() {
        let mut watch = Watch::new(Bounds { bytes: None, ..BOUNDS });
        let seen = rates(&mut watch, 800, 0..20_000);
        assert!(seen[..50].iter().all(Option::is_none), "not before a second has passed");
        let last = seen.last().unwrap().unwrap();
        assert!((0.99..=1.0).contains(&last.relative_to(BitRate::from_mbps(800))), "{last}");
        assert!(watch.counts.len() <= 23, "{}", watch.counts.len());
    }

    #[test]
    fn a_flow_at_its_limit_is_not_beyond_it_although_it_comes_in_blocks() {
        let mut watch = Watch::new(BOUNDS);
        let block = ByteCount::from_kib(128);
        for look in 0..1000 {
            let at = Span::from_millis(look * 20);
            let due = BitRate::from_mbps(10).bytes_in(at).get() / block.get() + 1;
            let rate = watch.look(at, ByteCount::new(due * block.get())).unwrap();
            assert!(rate.is_none_or(|pace| pace.rate <= BitRate::from_mbps(10)), "{rate:?} at {at}");
        }
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let mut watch = Watch::new(Bounds { bytes: None, ..BOUNDS });
        watch.look(Span::from_secs(1), ByteCount::from_mib(1000)).unwrap();
        for look in 0..600 {
            watch.look(Span::from_millis(1000 + look * 20), ByteCount::from_mib(1000)).unwrap();
        }
        let rate = watch.look(Span::from_secs(14), ByteCount::from_mib(1000)).unwrap();
        assert_eq!(rate.map(|pace| pace.rate), Some(BitRate::ZERO));
    }

    #[test]
    fn a_byte_now_and_then_is_nearly_nothing() {
        let mut watch = Watch::new(Bounds { duration: None, ..BOUNDS });
        let idle = |watch: &mut Watch, second: u64, bytes: u64| {
            watch.look(Span::from_secs(second), ByteCount::new(bytes)).unwrap().unwrap().idle
        };
        assert_eq!(idle(&mut watch, 1, 100_000), Span::ZERO);
        for second in 2..100 {
            idle(&mut watch, second, 100_000 + second / 10);
        }
        assert!(idle(&mut watch, 100, 100_010) > Span::from_secs(90));
        assert_eq!(idle(&mut watch, 101, 200_000), Span::ZERO);
    }

    #[test]
    fn a_transfer_may_stand_still_for_a_while() {
        let mut watch = Watch::new(BOUNDS);
        assert!(watch.look(Span::from_secs(20), ByteCount::ZERO).is_ok());
        assert!(watch.look(Span::from_secs(21), ByteCount::ZERO).is_err_and(|why| why.number.get() == 144));
        let mut watch = Watch::new(BOUNDS);
        for second in 0..60 {
            assert!(watch.look(Span::from_secs(second), ByteCount::new(second / 15)).is_ok(), "{second}");
        }
    }

    #[test]
    fn a_transfer_ends_at_its_bounds() {
        let mut watch = Watch::new(BOUNDS);
        let late = watch.look(Span::from_millis(60_001), ByteCount::new(1)).unwrap_err();
        assert_eq!(late.number.get(), 37);
        let large = Watch::new(BOUNDS).look(Span::from_secs(1), ByteCount::from_mib(101)).unwrap_err();
        assert_eq!(large.number.get(), 37);
        assert!(large.why.contains("100 MiB"), "{}", large.why);
    }
}

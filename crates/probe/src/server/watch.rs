//! Holds a transfer against what it may do. Time and counts are arguments.

use std::collections::VecDeque;

use fullpipe_iperf::{ErrorNumber, Refusal};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Over how long a rate is taken, at most and at least: as long as iperf3 takes for its own limit, and a second.
const WINDOW: Span = Span::from_secs(5);
const MIN_WINDOW: Span = Span::from_secs(1);

/// How often a count is kept.
const STEP: Span = Span::from_millis(250);

/// What a transfer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// How long it may last.
    pub(super) duration: Option<Span>,
    /// How many bytes it may carry.
    pub(super) bytes: Option<ByteCount>,
    /// How long it may stand still.
    pub(super) standstill: Span,
    /// Bytes beyond a rate that are no excess: what is written at once cannot be divided.
    pub(super) allowance: ByteCount,
}

/// A transfer under way, as it is watched.
#[derive(Debug)]
pub(super) struct Watch {
    bounds: Bounds,
    /// Counts of the last few seconds, oldest first.
    counts: VecDeque<(Span, ByteCount)>,
    moved: Span,
    latest: ByteCount,
}

impl Watch {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: VecDeque::from([(Span::ZERO, ByteCount::ZERO)]),
            moved: Span::ZERO,
            latest: ByteCount::ZERO,
        }
    }

    /// At `at`, since the data began to flow, `bytes` have been carried. The rate of the last seconds, once it can be
    /// told; what the transfer need not carry beyond a given rate is left out.
    ///
    /// # Errors
    /// Why the transfer must end.
    pub(super) fn look(&mut self, at: Span, bytes: ByteCount) -> Result<Option<BitRate>, Refusal> {
        if bytes > self.latest {
            (self.latest, self.moved) = (bytes, at);
        }
        self.judge(at, bytes)?;
        Ok(self.rate(at, bytes))
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

    fn rate(&mut self, at: Span, bytes: ByteCount) -> Option<BitRate> {
        let &(last, _) = self.counts.back()?;
        if at.saturating_sub(last) >= STEP {
            self.counts.push_back((at, bytes));
        }
        while self.counts.get(1).is_some_and(|&(second, _)| at.saturating_sub(second) >= WINDOW) {
            self.counts.pop_front();
        }
        let &(since, before) = self.counts.front()?;
        let window = at.saturating_sub(since);
        let carried = bytes.saturating_sub(before).saturating_sub(self.bounds.allowance);
        (window >= MIN_WINDOW).then(|| BitRate::of(carried, window))
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
    };

    /// The rate that is seen after each of many looks at a flow of `mbps`.
    fn rates(watch: &mut Watch, mbps: u64, millis: std::ops::Range<u64>) -> Vec<Option<BitRate>> {
        let bytes = |at: u64| ByteCount::new(at * mbps * 125);
        millis.step_by(20).map(|at| watch.look(Span::from_millis(at), bytes(at)).unwrap()).collect()
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
            assert!(rate.is_none_or(|rate| rate <= BitRate::from_mbps(10)), "{rate:?} at {at}");
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
        assert_eq!(rate, Some(BitRate::ZERO));
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

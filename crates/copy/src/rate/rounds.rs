//! Samples of the connections of a transfer, summed up by round.

use std::collections::VecDeque;

use fullpipe_units::{ByteCount, SegCount, Span, Time};

/// The shortest time between two decisions. Over longer paths it is a round-trip time.
pub(crate) const MIN_ROUND: Span = Span::from_millis(100);

/// Round-trip times below this one are those of a host, not of a path.
const MIN_RTT: Span = Span::from_micros(100);

/// Length and number of the periods of which the base is the least round-trip time: paths change.
const PERIOD: Span = Span::from_secs(30);
const PERIODS: u64 = 10;

/// Share of the base round-trip time that the queue of a transfer may add if delay bounds it, and
/// the bounds of that. RFC 6817 permits 100 ms at most, which is the whole queue of many paths.
const TARGET: f64 = 1.0 / 16.0;
const TARGETS: (Span, Span) = (Span::from_millis(5), Span::from_millis(10));

/// Weight of one acknowledgement in the kernel's smoothed round-trip time (RFC 6298).
const SMOOTHING: f64 = 1.0 / 8.0;

/// A sample of all connections of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct StreamsSample {
    /// Bytes that were acknowledged so far, on all connections together.
    pub acknowledged: ByteCount,
    /// Segments that were retransmitted so far.
    pub retransmitted: SegCount,
    /// The shortest round-trip time of the connections since the last sample; `None` if nothing was
    /// acknowledged.
    pub rtt: Option<Span>,
    /// Payload of a full segment.
    pub mss: ByteCount,
}

/// Makes rounds of samples.
pub(crate) struct RoundTracker {
    base: VecDeque<(u64, Span)>,
    last: Span,
    round: Option<OpenRound>,
}

/// A round as it began, and its round-trip times up to now.
struct OpenRound {
    began: Time,
    acknowledged: ByteCount,
    retransmitted: SegCount,
    least: Option<Span>,
    most: Span,
}

/// A round that is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedRound {
    pub length: Span,
    /// The least and the largest round-trip time.
    pub rtt: Span,
    pub most: Span,
    /// Bytes per second that arrived.
    pub delivered: f64,
    /// Segments were retransmitted.
    pub lost: bool,
    /// Bytes of payload in a full segment.
    pub mss: f64,
}

impl RoundTracker {
    /// Returns the rounds over a path of this round-trip time.
    pub(crate) fn new(rtt: Span) -> Self {
        let rtt = rtt.max(MIN_RTT);
        Self {
            base: VecDeque::from([(0, rtt)]),
            last: rtt,
            round: None,
        }
    }

    /// The last round-trip time.
    pub(crate) const fn last_rtt(&self) -> Span {
        self.last
    }

    /// Returns the least round-trip time of the last periods.
    pub(crate) fn base_rtt(&self) -> Span {
        self.base
            .iter()
            .map(|(_, least)| *least)
            .min()
            .unwrap_or(MIN_RTT)
    }

    /// Returns the delay that the queue of a transfer may add.
    pub(crate) fn target_delay(&self) -> Span {
        self.base_rtt().scale_by(TARGET).clamp(TARGETS.0, TARGETS.1)
    }

    /// Takes a sample. Returns a round if it ends one.
    pub(crate) fn add_sample(&mut self, at: Time, sample: &StreamsSample) -> Option<FinishedRound> {
        let rtt = sample.rtt.map(|rtt| rtt.max(MIN_RTT));
        if let Some(rtt) = rtt {
            self.last = rtt;
            self.add_base_rtt(at, rtt);
        }
        let round = self.round.get_or_insert(OpenRound::from_sample(at, sample));
        if let Some(rtt) = rtt {
            round.least = Some(round.least.map_or(rtt, |least| least.min(rtt)));
            round.most = round.most.max(rtt);
        }
        let length = at.duration_since(round.began);
        let least = round.least.filter(|_| length >= self.last.max(MIN_ROUND))?;
        let acknowledged = sample.acknowledged.saturating_sub(round.acknowledged);
        let seen = FinishedRound {
            length,
            rtt: least,
            most: round.most,
            delivered: acknowledged.as_f64() / length.as_secs_f64(),
            lost: sample.retransmitted > round.retransmitted,
            mss: sample.mss.as_f64(),
        };
        self.round = Some(OpenRound::from_sample(at, sample));
        Some(seen)
    }

    fn add_base_rtt(&mut self, at: Time, rtt: Span) {
        let period = at.as_nanos() / PERIOD.as_nanos();
        match self.base.back_mut() {
            Some((last, least)) if *last == period => *least = (*least).min(rtt),
            _ => self.base.push_back((period, rtt)),
        }
        self.base.retain(|(of, _)| of + PERIODS > period);
    }
}

impl OpenRound {
    const fn from_sample(at: Time, sample: &StreamsSample) -> Self {
        let StreamsSample {
            acknowledged,
            retransmitted,
            ..
        } = *sample;
        Self {
            began: at,
            acknowledged,
            retransmitted,
            least: None,
            most: Span::ZERO,
        }
    }
}

/// Returns the mean round-trip time of the last acknowledgements, from the kernel's smoothed one
/// before and behind them. That one remembers those before for eight acknowledgements, which is
/// long where little is sent. `None` if there was none.
pub(crate) fn unsmoothed_rtt(before: Span, behind: Span, acknowledgements: u64) -> Option<Span> {
    let rest = (1.0 - SMOOTHING).powi(i32::try_from(acknowledgements).unwrap_or(i32::MAX));
    let change = (behind.as_secs_f64() - before.as_secs_f64()) / (1.0 - rest);
    (acknowledgements > 0).then(|| Span::from_secs_f64((before.as_secs_f64() + change).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_is_undone() {
        let (mut smoothed, steps) = (0.1, [0.1, 0.15, 0.2]);
        for rtt in steps {
            let before = Span::from_secs_f64(smoothed);
            (0..3).for_each(|_| smoothed += (rtt - smoothed) / 8.0);
            let found = unsmoothed_rtt(before, Span::from_secs_f64(smoothed), 3).unwrap();
            assert!((found.as_secs_f64() - rtt).abs() < 1e-6, "{found}");
        }
        assert_eq!(
            unsmoothed_rtt(Span::from_millis(1), Span::from_millis(2), 0),
            None
        );
        assert_eq!(
            unsmoothed_rtt(Span::from_millis(100), Span::ZERO, 1),
            Some(Span::ZERO)
        );
        let long = Span::from_millis(7);
        assert_eq!(
            unsmoothed_rtt(Span::from_millis(100), long, u64::MAX),
            Some(long)
        );
    }

    #[test]
    fn a_round_has_its_own_figures_and_the_base_is_forgotten_after_minutes() {
        let mut rounds = RoundTracker::new(Span::from_millis(40));
        let mut follow = |millis: u64, rtt| {
            let sample = StreamsSample {
                acknowledged: ByteCount::new(millis * 1000),
                retransmitted: SegCount::new(millis / 150),
                rtt: Some(Span::from_millis(rtt)),
                mss: ByteCount::new(1448),
            };
            let seen = rounds.add_sample(Time::from_nanos(millis * 1_000_000), &sample);
            (seen, rounds.base_rtt())
        };
        assert!(follow(0, 60).0.is_none() && follow(50, 70).0.is_none());
        let (seen, base) = follow(100, 65);
        let seen = seen.unwrap();
        let millis = |span: Span| span.as_millis_f64() as u64;
        assert_eq!(
            (millis(seen.rtt), millis(seen.most), seen.lost, millis(base)),
            (60, 70, false, 40)
        );
        assert!((seen.delivered - 1e6).abs() < 1.0, "{seen:?}");
        assert!(follow(200, 50).0.unwrap().lost);
        assert_eq!(follow(400_000, 80).1, Span::from_millis(80));
    }
}

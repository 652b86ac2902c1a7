//! A rate that falls to a lower one and stays there: an allowance that was used up.

use crate::limits::capacity::{cause_of_capacity, flow_limit, link};
use crate::limits::prelude::*;
use crate::signals::path::rtt_is_inflated_over;
use crate::signals::time_ratio;
use crate::thresholds::{MIN_RECOVERIES, SOON_AFTER_FIRST_LOSS};

candidate_sets! {
    /// A rate that fell, and is held down by losses.
    pub(crate) ALLOWANCE_OR_POLICER: [Capacity Allowance, Loss Policer],
        "a second transfer after a rest, which has the higher rate again for as many bytes";
    /// A rate that fell.
    ALLOWANCE_OR_SHARED: [Capacity Allowance, Capacity Shared],
        "a second transfer after a rest, which has the higher rate again, and the counters of \
         the device (ethtool -S)";
}

pub(crate) const CAUSE: Cause = Cause {
    received_sentence: |arrivals, _| {
        FallenRate::from_arrivals(arrivals).map_or_else(String::new, |fallen| fallen.sentence())
    },
    manual_remedies: &[
        ManualRemedy::new(
            "larger-allowance",
            Scope::Path,
            "The lower rate is what is granted for long: a larger size of the machine or of the \
         contract has a higher one.",
        ),
        ManualRemedy::new(
            "pace-below-the-lower-rate",
            Scope::Socket,
            "Data that need not hurry, paced below the lower rate (--fq-rate, SO_MAX_PACING_RATE), \
         leaves the allowance to what must, and loses nothing where it ends.",
        )
        .at_end(At::Sender),
        ManualRemedy::new(
            "read-the-counters-of-the-device",
            Scope::Host,
            "Where the device counts what exceeds an allowance, it shows it: ethtool -S DEVICE | \
         grep allowance_exceeded.",
        )
        .at_end(At::Sender),
    ],
    ..cause_of_capacity(
        &["capacity/allowance"],
        |figures, _| match FallenRate::from_figures(figures, true) {
            Some(fallen) => fallen.sentence(),
            None => format!(
                "The path let more pass at first than {}, and then no more.",
                figures.rate
            ),
        },
    )
};

/// Two rates of one transfer, the later one clearly lower, and neither of them short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FallenRate {
    /// Time from the begin to the fall.
    at: Span,
    /// Data that had passed by then, all streams together.
    passed: ByteCount,
    before: BitRate,
    after: BitRate,
    /// Share of the transfer's time after the fall.
    pub(crate) share: Ratio,
}

/// Rates of a transfer over steps of equal length.
struct RateSteps {
    step: Span,
    rates: Vec<BitRate>,
}

impl FallenRate {
    /// Returns the fall of the whole transfer's rate; `None` where there was none, or losses of the
    /// sender's own making explain it: nothing waits then. `by_device` says
    /// that a device makes those losses.
    pub(crate) fn from_figures(figures: &SenderView, by_device: bool) -> Option<Self> {
        let progress = TransferProgress::from_samples(&figures.evidence.sender_samples, Span::MAX);
        let fallen = Self::from_progress(&progress, figures.rtt?)?;
        is_held_low(figures, fallen.at, by_device).then_some(fallen)
    }

    /// Returns the fall of the rate at which data arrives; `None` where there was none, or nothing
    /// shows that a device takes packets after it.
    pub(crate) fn from_arrivals(arrivals: &ReceiverView) -> Option<Self> {
        let progress =
            TransferProgress::of_receiver(&arrivals.evidence.receiver_samples, Span::MAX);
        let fallen = Self::from_progress(&progress, arrivals.rtt?)?;
        let losses = arrivals
            .most_lost()?
            .count_after(fallen.at + SOON_AFTER_FIRST_LOSS);
        (losses as u64 >= MIN_RECOVERIES).then_some(fallen)
    }

    /// Returns the fall of the rate of a transfer.
    fn from_progress(progress: &TransferProgress, rtt: Span) -> Option<Self> {
        let steps = RateSteps::from_progress(progress, rtt)?;
        let [begin, fall] = steps.find_fall()?;
        let (at, end) = (steps.step * fall as u64, *progress.snapshot_times().last()?);
        Some(Self {
            at,
            passed: progress.mean_rate(Span::ZERO, at).bytes_in(at),
            before: median_rate(&steps.rates[begin..fall]),
            after: median_rate(&steps.rates[fall..]),
            share: time_ratio(end.saturating_sub(at), end),
        })
    }

    fn sentence(&self) -> String {
        let Self {
            at,
            passed,
            before,
            after,
            ..
        } = self;
        format!(
            "An allowance was used up: {passed} passed at {before}, and from {at} on no more than {after}. A provider's \
             credits do that, or a shaper or policer that saves up for a burst of seconds."
        )
    }
}

/// Higher ÷ lower rate of a transfer from which an allowance was used up; CUBIC keeps 0.7 of its
/// window after a loss.
const FALLEN_RATE_FACTOR: f64 = 1.5;
/// Shortest time of either rate (a choice: the bucket of a policer lasts for less).
const MIN_PLATEAU_TIME: Span = Span::from_secs(2);
/// Length of the steps over which these rates are taken.
const PLATEAU_STEP: Span = Span::from_millis(250);
/// The most steps of a transfer: one that lasts for days has longer ones, so that a judgement takes a
/// bounded time whatever the evidence says.
const MAX_PLATEAU_STEPS: u64 = 10_000;
/// Round trips of such a step, where that is longer.
const PLATEAU_ROUND_TRIPS: u64 = 2;
/// Share of the steps of the higher rate that have it.
const MIN_PLATEAU_SHARE: f64 = 0.9;

impl RateSteps {
    /// `None` of a transfer that is too short for two plateaus.
    fn from_progress(progress: &TransferProgress, rtt: Span) -> Option<Self> {
        let end = *progress.snapshot_times().last()?;
        let step = PLATEAU_STEP
            .max(rtt * PLATEAU_ROUND_TRIPS)
            .max(end / MAX_PLATEAU_STEPS);
        let count = end.as_nanos() / step.as_nanos();
        let rates: Vec<BitRate> = (0..count)
            .map(|index| progress.mean_rate(step * index, step * (index + 1)))
            .collect();
        let least = step * count >= MIN_PLATEAU_TIME * 2;
        least.then_some(Self { step, rates })
    }

    /// Returns the first step at the higher rate, and the first one after it.
    fn find_fall(&self) -> Option<[usize; 2]> {
        let tenth = (self.rates.len() - 1) / 10;
        // Either rate may have lasted for less than a tenth of a long transfer.
        let shortest = (MIN_PLATEAU_TIME.as_nanos() / self.step.as_nanos()) as usize;
        let outliers = [tenth, tenth.min(shortest / 2)];
        outliers
            .into_iter()
            .find_map(|outliers| self.find_fall_beyond(outliers))
    }

    /// Returns the same where so many of the highest and of the lowest rates are exceptions.
    fn find_fall_beyond(&self, outliers: usize) -> Option<[usize; 2]> {
        let mut sorted = self.rates.clone();
        sorted.sort_unstable();
        let (low, high) = (sorted[outliers], sorted[sorted.len() - 1 - outliers]);
        let middle = BitRate::from_bps(low.bps().midpoint(high.bps()));
        let begin = self.rates.iter().position(|rate| *rate >= middle)?;
        let fall = self.rates.iter().rposition(|rate| *rate >= middle)? + 1;
        let before = self.rates[begin..fall].iter();
        let highs = before.filter(|rate| **rate >= middle).count();
        let stays_high = highs as f64 >= (fall - begin) as f64 * MIN_PLATEAU_SHARE;
        let shorter = (fall - begin).min(self.rates.len() - fall) as u64;
        let [before, after] = [&self.rates[begin..fall], &self.rates[fall..]].map(median_rate);
        let found = stays_high
            && is_even(&self.rates[begin..fall])
            && before >= after.scale_by(FALLEN_RATE_FACTOR)
            && low > BitRate::ZERO
            && self.step * shorter >= MIN_PLATEAU_TIME;
        found.then_some([begin, fall])
    }
}

/// Upper ÷ lower quartile of the steps of the higher rate at most.
const MAX_SPREAD_OF_PLATEAU: f64 = 1.25;

/// Returns true if the middle half of the rates are about one.
pub(crate) fn is_even(rates: &[BitRate]) -> bool {
    let mut sorted = rates.to_vec();
    sorted.sort_unstable();
    let [low, high] = [1, 3].map(|quarters| sorted[(sorted.len() - 1) * quarters / 4]);
    high <= low.scale_by(MAX_SPREAD_OF_PLATEAU)
}

fn median_rate(rates: &[BitRate]) -> BitRate {
    BitRate::from_bps(median(rates.iter().map(|rate| rate.bps()).collect()).unwrap_or(0))
}

/// Returns true if the path holds the rate down after `at`: packets wait there, or a device takes
/// them; or the sender is BBR, which does not slow down for a loss.
fn is_held_low(figures: &SenderView, at: Span, by_device: bool) -> bool {
    let mut later = figures.flows.iter().map(|flow| flow.samples_from(at));
    let queue = later.any(|samples| {
        median(samples.iter().filter_map(|sample| sample.tcp.rtt).collect())
            .is_some_and(|rtt| rtt_is_inflated_over(figures, rtt))
    });
    queue || by_device || figures.is_bbr()
}

/// Finds capacity, loss or a small congestion window that is no limit of the link: the path bounds
/// each connection, or let more pass at first.
pub(crate) fn behind_rates(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let is_of_path = matches!(
        found.verdict,
        LegalVerdict::Capacity(CapacityVerdict::Link | CapacityVerdict::Shared)
            | LegalVerdict::Loss(_)
            | LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering)
            | LegalVerdict::Unknown(_)
    );
    if !is_of_path || link::carries_all(figures.rate, stated_capacity(figures)) {
        return None;
    }
    let by_device = matches!(
        found.verdict,
        LegalVerdict::Loss(LossVerdict::Policer | LossVerdict::ShallowQueue)
    );
    if let Some(fallen) = FallenRate::from_figures(figures, by_device) {
        // The bucket of a policer may last for seconds, too.
        let set = if found.is(LossVerdict::Policer) {
            &ALLOWANCE_OR_POLICER
        } else {
            &ALLOWANCE_OR_SHARED
        };
        return Some(Finding::new(CapacityVerdict::Allowance, fallen.share).one_of(set));
    }
    flow_limit::find_flow_limit(figures, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fall of rates in Mbit/s, each with the number of steps that it lasts.
    fn fall(plateaus: &[(u64, usize)]) -> Option<[usize; 2]> {
        let rates = plateaus.iter().flat_map(|(mbps, steps)| {
            // A tenth up and down from step to step.
            (0..*steps)
                .map(move |step| BitRate::from_bps(mbps * 1000 * (950 + 100 * (step as u64 % 2))))
        });
        let steps = RateSteps {
            step: PLATEAU_STEP,
            rates: rates.collect(),
        };
        steps.find_fall()
    }

    #[test]
    fn a_rate_that_falls_at_any_time_has_fallen() {
        for before in [10, 20, 200, 1980] {
            assert_eq!(
                fall(&[(50, before), (20, 2000 - before)]),
                Some([0, before]),
                "{before}"
            );
        }
    }

    #[test]
    fn a_rate_that_was_higher_for_moments_has_not_fallen() {
        assert_eq!(fall(&[(50, 3), (20, 1997)]), None);
        assert_eq!(fall(&[(20, 2000)]), None);
        let bursts = [(50, 3), (20, 200)].repeat(10);
        assert_eq!(fall(&bursts), None);
    }
}

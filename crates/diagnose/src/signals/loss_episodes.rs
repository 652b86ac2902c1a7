//! Losses as the receiving end sees them: the rate of arrival before and after each, and the
//! highest of all.

use crate::prelude::*;
use crate::signals::spread::relative_deviation;
use crate::thresholds::{MIN_EPISODES, NO_BURST_BEFORE_QUEUE, SILENCE_ROUND_TRIPS};

/// A time in which data arrives out of order: packets before it are missing.
#[derive(Default)]
struct LossEpisode {
    from: Span,
    to: Span,
    /// Segments a second that arrived before it.
    before: Option<u64>,
    /// Segments a second that arrived meanwhile: the median between its first sample and its last.
    during: Option<u64>,
    /// Segments a second that arrived after it, if none was lost meanwhile.
    after: Option<u64>,
    /// Segments that arrived out of order.
    late: u64,
    /// Round trips in which some did.
    rounds: u64,
}

impl LossEpisode {
    pub(crate) fn duration(&self) -> Span {
        self.to.saturating_sub(self.from)
    }
}

/// The losses of a connection.
pub(crate) struct LossEpisodes {
    episodes: Vec<LossEpisode>,
    highest: u64,
    rtt: Span,
}

/// Share of a window that arrives out of order below which only the end of a burst was lost
/// (measured: 0.01 to 0.02 behind a full send buffer whose bursts overflow a queue, 1 and more
/// elsewhere).
const TAIL_OF_A_WINDOW: f64 = 0.1;
/// Shortest time over which the arrival of segments is a rate.
const SHORT_RATE_TIME: Span = Span::from_millis(50);
/// Mean distance of the rates before losses from their median, as a share of it, from which chance
/// makes the losses (measured: 0.10 to 0.43 of random loss).
const MIN_SPREAD_OF_CHANCE: f64 = 0.12;
/// Largest mean distance of the rates before losses from their median of a policer, whose bucket is
/// not always full (measured: 0.04 to 0.10).
const MAX_SPREAD_OF_POLICER: f64 = 0.105;
/// Largest mean distance of the rates before losses from their median of a queue that is too short
/// (measured: 0.00 to 0.04).
const MAX_SPREAD_OF_QUEUE: f64 = 0.06;
/// Largest deviation ÷ mean of the times between losses that a device makes at one rate; by chance
/// they spread like an exponential distribution, by 1.
const MAX_SPREAD_OF_REGULAR_GAPS: f64 = 0.45;
/// Round trips of a repair without a pause that only a policer causes, who goes on discarding
/// (measured: 10.9 to 20.7; at most 8.4 behind a full link's queue, 7.9 where chance loses packets,
/// 4.4 behind a short queue).
const LONG_REPAIR_ROUND_TRIPS: u64 = 10;
/// Round trips of a repair from which the rate meanwhile can be compared: the first brings what was
/// sent before the sender knew.
const REPAIR_BEHIND_POLICER: f64 = 3.0;
/// Rate before a repair ÷ the highest from which a policer's burst may have ended then.
const MIN_SHARE_BEFORE_POLICER: f64 = 0.8;
/// Largest rate of arrival during and after a repair ÷ the rate before it where a device discards
/// what exceeds its rate (measured: 0.27 to 0.63 during it in 31 of 40 transfers behind a policer;
/// 0.75 and more behind a short queue or where chance loses packets, but for two of 20, whose many
/// losses showed chance).
const MAX_SHARE_BEHIND_POLICER: f64 = 0.65;
/// Highest rate of a transfer ÷ the median rate before its losses, from which a policer let a burst
/// pass (measured: 2.3 to 3.3).
const BURST_BEFORE_POLICER: f64 = 2.0;

impl LossEpisodes {
    /// Takes samples of one connection, by time, and its round-trip time.
    pub(crate) fn from_samples(flow: &[&Sample], rtt: Span) -> Self {
        let short = rtt.max(SHORT_RATE_TIME);

        let mut episodes = find_episodes(flow, rtt);
        let mut end_of_calm = Span::MAX;
        for episode in episodes.iter_mut().rev() {
            let settled = episode.to + rtt.scale_by(0.5);
            let end = end_of_calm.min(settled + short * 4);
            let [from, to, settled, end] = [episode.from, episode.to, settled, end]
                .map(|at| flow.partition_point(|sample| sample.at < at));
            episode.before = latest_rate(&flow[..from], short * 2);
            episode.during = median_rate(&flow[from..to]);
            let calm = flow.get(settled..end);
            episode.after = calm.and_then(|calm| latest_rate(calm, short * 2));
            end_of_calm = episode.from;
        }
        let highest = (1..=flow.len())
            .filter_map(|count| latest_rate(&flow[..count], short))
            .max()
            .unwrap_or(0);
        Self {
            episodes,
            highest,
            rtt,
        }
    }

    /// Returns the most segments a second that arrived over about a round trip.
    pub(crate) const fn max_arrival_rate(&self) -> u64 {
        self.highest
    }

    /// Returns the number of round trips in which much of a window arrived out of order. Where the
    /// last packets of a burst are lost, hardly anything is out of order.
    pub(crate) fn loss_rounds(&self) -> u64 {
        self.episodes
            .iter()
            .filter(|episode| !self.is_tail(episode))
            .map(|episode| episode.rounds)
            .sum()
    }

    /// Returns true if the sender was repairing for many round trips without a pause: it lost
    /// packets again although it had become slower. Long enough a round trip is needed to see the
    /// pauses.
    pub(crate) fn has_a_long_repair(&self) -> bool {
        let long = self.rtt * LONG_REPAIR_ROUND_TRIPS;
        self.rtt >= SHORT_RATE_TIME && self.episodes.iter().any(|one| one.duration() >= long)
    }

    fn is_tail(&self, episode: &LossEpisode) -> bool {
        let window = episode.before.unwrap_or(0) as f64 * self.rtt.as_secs_f64();
        (episode.late as f64) < window * TAIL_OF_A_WINDOW
    }

    /// Returns the rate after a loss as a share of the rate before it, the median of the losses
    /// after `ramp`; `None` where they are many: then too little time is left to see what follows
    /// each.
    pub(crate) fn retained_rate(&self, ramp: Span) -> Option<f64> {
        let rates = self
            .episodes_after(ramp)
            .filter_map(|episode| Some((episode.after? as f64, episode.before? as f64)));
        let kept = rates.map(|(after, before)| Ratio::from_quotient(after, before).get());
        median(kept.collect()).filter(|_| self.count_after(ramp) < MIN_EPISODES)
    }

    fn episodes_after(&self, ramp: Span) -> impl Iterator<Item = &LossEpisode> {
        self.episodes.iter().filter(move |one| one.from >= ramp)
    }

    /// Returns the number of times after `ramp` in which packets were missing.
    pub(crate) fn count_after(&self, ramp: Span) -> usize {
        self.episodes_after(ramp).count()
    }

    /// Returns the cause of the losses after `ramp`, where they are enough to show it; of a
    /// policer, one is.
    pub(crate) fn loss_cause(&self, ramp: Span) -> Option<LossVerdict> {
        self.cause_by_rates(ramp)
            .or_else(|| self.falls_while_repairing().then_some(LossVerdict::Policer))
    }

    /// Returns true if the rate of arrival fell from its highest while packets were missing, and
    /// stayed low.
    ///
    /// Chance takes single packets of a window; those behind them arrive as fast as before, and the
    /// sender becomes slower only when they have. A device that has let its burst pass discards
    /// what exceeds its rate at once.
    fn falls_while_repairing(&self) -> bool {
        let long = self.rtt.scale_by(REPAIR_BEHIND_POLICER);
        let high = self.highest as f64 * MIN_SHARE_BEFORE_POLICER;
        self.episodes
            .iter()
            .filter(|episode| episode.duration() >= long)
            .filter_map(|episode| Some((episode.before?, episode.during?, episode.after?)))
            .any(|(before, during, after)| {
                let most = before as f64 * MAX_SHARE_BEHIND_POLICER;
                before as f64 >= high && during as f64 <= most && after as f64 <= most
            })
    }

    /// Returns the cause that the rates before the losses after `ramp` show.
    ///
    /// Chance hits a sender that speeds up at any rate. A short queue drops packets at the same
    /// rate each time; so does a policer, roughly, but lets a burst pass first, as fast as the path
    /// behind it carries.
    fn cause_by_rates(&self, ramp: Span) -> Option<LossVerdict> {
        let (begins, rates): (Vec<Span>, Vec<u64>) = self
            .episodes_after(ramp)
            .filter(|episode| !self.is_tail(episode))
            .filter_map(|episode| Some((episode.from, episode.before?)))
            .unzip();
        if rates.len() < MIN_EPISODES {
            return None;
        }
        let middle = median(rates.clone()).filter(|rate| *rate > 0)?;
        let distances = rates.iter().map(|rate| rate.abs_diff(middle) as f64);
        let distance = distances.sum::<f64>() / rates.len() as f64;
        let [spread, burst] = [distance, self.highest as f64].map(|rate| rate / middle as f64);
        let is_regular = spread_of_gaps(&begins) <= MAX_SPREAD_OF_REGULAR_GAPS;
        match () {
            () if spread >= MIN_SPREAD_OF_CHANCE => Some(LossVerdict::Random),
            // A sender takes as long each time to grow back to the rate that a device sets.
            () if spread > MAX_SPREAD_OF_QUEUE && !is_regular => Some(LossVerdict::Random),
            () if spread <= MAX_SPREAD_OF_POLICER && burst >= BURST_BEFORE_POLICER => {
                Some(LossVerdict::Policer)
            }
            () if spread <= MAX_SPREAD_OF_QUEUE && burst <= NO_BURST_BEFORE_QUEUE => {
                Some(LossVerdict::ShallowQueue)
            }
            () => None,
        }
    }
}

/// Returns standard deviation ÷ mean of the times between `begins`, which are by time; zero of
/// fewer than three.
fn spread_of_gaps(begins: &[Span]) -> f64 {
    let gaps: Vec<f64> = begins
        .windows(2)
        .map(|pair| (pair[1].saturating_sub(pair[0])).as_secs_f64())
        .collect();
    relative_deviation(&gaps)
}

/// Returns the episodes without the rates around them.
fn find_episodes(flow: &[&Sample], rtt: Span) -> Vec<LossEpisode> {
    let round = rtt.scale_by(SILENCE_ROUND_TRIPS);
    let mut episodes: Vec<LossEpisode> = Vec::new();
    let pause = round.max(SHORT_RATE_TIME * 2);
    let mut end_of_round = Span::ZERO;
    for (at, late) in late_segments(flow) {
        if episodes.last().is_none_or(|last| at >= last.to + pause) {
            episodes.push(LossEpisode {
                from: at,
                ..LossEpisode::default()
            });
        }
        let is_new_round = at >= end_of_round;
        if let Some(episode) = episodes.last_mut() {
            episode.to = at;
            episode.late = episode.late.saturating_add(late);
            episode.rounds += u64::from(is_new_round);
        }
        if is_new_round {
            end_of_round = at + round;
        }
    }
    episodes
}

/// Returns each time at which a sample shows segments out of order, and their number.
fn late_segments(flow: &[&Sample]) -> impl Iterator<Item = (Span, u64)> {
    let pairs = flow.windows(2);
    let counts = pairs.map(|pair| {
        let late = out_of_order(pair[1]).saturating_sub(out_of_order(pair[0]));
        (pair[1].at, late)
    });
    counts.filter(|(_, late)| *late > 0)
}

pub(crate) fn out_of_order(sample: &Sample) -> u64 {
    sample.tcp.out_of_order_in.map_or(0, SegCount::get)
}

/// Returns the segments a second that arrived in the time `over` before the last of these samples,
/// or a little longer; `None` where they are too far apart.
fn latest_rate(samples: &[&Sample], over: Span) -> Option<u64> {
    const MAX_FACTOR: f64 = 2.5;
    let (last, earlier) = samples.split_last()?;
    let first = earlier
        .iter()
        .rev()
        .find(|sample| sample.at + over <= last.at)?;
    (last.at.saturating_sub(first.at) <= over.scale_by(MAX_FACTOR))
        .then(|| rate_between(first, last))?
}

/// Returns the segments a second that arrived from one sample to a later one.
fn rate_between(first: &Sample, last: &Sample) -> Option<u64> {
    let segments = (last.tcp.data_segs_in?).saturating_sub(first.tcp.data_segs_in?);
    Some((segments.as_f64() / last.at.saturating_sub(first.at).as_secs_f64()) as u64)
}

/// Returns the median of the rates between these samples, in segments a second; `None` of fewer
/// than two samples.
fn median_rate(samples: &[&Sample]) -> Option<u64> {
    median(
        samples
            .windows(2)
            .filter_map(|pair| rate_between(pair[0], pair[1]))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::ByteCount;

    const RTT: Span = Span::from_millis(20);
    /// Samples in a second.
    const RATE: u64 = 20;

    /// A connection whose arrival rises from half of each peak, in segments a sample, to the peak,
    /// over so many samples; there so many segments arrive out of order.
    fn sawtooth(teeth: &[(u64, u64)], late: u64) -> Vec<Sample> {
        let (mut arrived, mut out_of_order) = (0, 0);
        let mut samples = Vec::new();
        for (peak, length) in teeth {
            for step in 0..*length {
                arrived += peak / 2 + peak * step / (2 * length);
                out_of_order += if step == length - 1 { late } else { 0 };
                let at = Span::from_millis((samples.len() as u64 + 1) * 1000 / RATE);
                let tcp = TcpInfo {
                    data_segs_in: Some(SegCount::new(arrived)),
                    out_of_order_in: Some(SegCount::new(out_of_order)),
                    ..TcpInfo::default()
                };
                samples.push(Sample {
                    at,
                    stream: 0,
                    bytes: ByteCount::ZERO,
                    tcp,
                    memory: None,
                });
            }
        }
        samples
    }

    fn seen_at(teeth: &[(u64, u64)], late: u64) -> LossEpisodes {
        LossEpisodes::from_samples(&sawtooth(teeth, late).iter().collect::<Vec<_>>(), RTT)
    }

    /// Each tooth a second long.
    fn seen(peaks: &[u64], late: u64) -> LossEpisodes {
        seen_at(
            &peaks.iter().map(|peak| (*peak, RATE)).collect::<Vec<_>>(),
            late,
        )
    }

    #[test]
    fn losses_at_about_one_rate_are_a_policers_only_if_they_come_as_regularly() {
        let cause = |lengths: [u64; 6]| {
            let teeth: Vec<_> = [300, 100, 110, 92, 104, 98]
                .into_iter()
                .zip(lengths)
                .collect();
            seen_at(&teeth, 30).loss_cause(Span::from_secs(2))
        };
        assert_eq!(cause([30, 20, 24, 18, 22, 20]), Some(LossVerdict::Policer));
        assert_eq!(cause([30, 20, 60, 12, 44, 10]), Some(LossVerdict::Random));
    }

    #[test]
    fn a_repair_is_long_if_losses_go_on_for_many_round_trips_that_are_long_themselves() {
        let repairs = |millis: u64, samples: u64| {
            let teeth: Vec<_> = std::iter::repeat_n((100, 1), samples as usize)
                .chain([(100, 40), (100, 40)])
                .collect();
            let flow = sawtooth(&teeth, 30);
            LossEpisodes::from_samples(&flow.iter().collect::<Vec<_>>(), Span::from_millis(millis))
                .has_a_long_repair()
        };
        assert!(
            repairs(100, 25) && !repairs(100, 15),
            "samples come at half of that time"
        );
        assert!(
            !repairs(20, 60),
            "pauses of so short a round trip do not show"
        );
    }

    #[test]
    fn rates_before_losses_show_their_cause() {
        let ramp = Span::from_millis(1500);
        let cause = |peaks: &[u64]| seen(peaks, 30).loss_cause(ramp);
        assert_eq!(
            cause(&[100, 100, 102, 99, 101, 100]),
            Some(LossVerdict::ShallowQueue)
        );
        assert_eq!(
            cause(&[300, 100, 110, 92, 104, 98]),
            Some(LossVerdict::Policer),
            "after a burst"
        );
        assert_eq!(
            cause(&[200, 60, 140, 90, 200, 110]),
            Some(LossVerdict::Random)
        );
        assert_eq!(
            cause(&[170, 100, 102, 99, 101, 100]),
            None,
            "hardly a burst"
        );
        assert_eq!(cause(&[100, 100, 102, 99]), None, "too few");
        assert_eq!(cause(&[]), None);
    }

    /// Arrivals at one rate, then out of order for ten samples (25 round trips) at `meanwhile`,
    /// then in order at `afterwards`.
    fn repaired(meanwhile: u64, afterwards: u64) -> Option<LossVerdict> {
        let teeth = [
            (&[200; 30][..], 0),
            (&[meanwhile; 10], 5),
            (&[afterwards; 30], 0),
        ];
        let (mut arrived, mut out_of_order) = (0, 0);
        let mut samples = sawtooth(&[(1, 80)], 0);
        let steps = teeth
            .iter()
            .flat_map(|(rates, late)| rates.iter().map(move |rate| (rate, late)));
        for (sample, (rate, late)) in samples.iter_mut().zip(steps) {
            (arrived, out_of_order) = (arrived + rate, out_of_order + late);
            sample.tcp.data_segs_in = Some(SegCount::new(arrived));
            sample.tcp.out_of_order_in = Some(SegCount::new(out_of_order));
        }
        LossEpisodes::from_samples(&samples[..70].iter().collect::<Vec<_>>(), RTT)
            .loss_cause(Span::ZERO)
    }

    #[test]
    fn arrivals_that_fall_while_packets_are_missing_and_stay_low_show_a_policer() {
        assert_eq!(repaired(90, 80), Some(LossVerdict::Policer));
        assert_eq!(
            repaired(190, 90),
            None,
            "the sender becomes slower after the loss"
        );
        assert_eq!(
            repaired(90, 180),
            None,
            "something else was there for a moment"
        );
    }

    #[test]
    fn each_round_trip_with_losses_counts_but_not_the_end_of_a_burst() {
        assert_eq!(seen(&[100, 100, 100], 30).loss_rounds(), 3);
        assert_eq!(seen(&[100, 100, 100], 2).loss_rounds(), 0);
        assert_eq!(seen(&[100, 100, 100], 0).loss_rounds(), 0);
    }

    #[test]
    fn a_window_that_is_cut_keeps_half_of_the_rate() {
        let kept = |peaks: &[u64]| seen(peaks, 30).retained_rate(Span::ZERO);
        assert!(
            kept(&[100, 100, 100]).is_some_and(|kept| (0.5..0.6).contains(&kept)),
            "{:?}",
            kept(&[100, 100, 100])
        );
        assert_eq!(
            kept(&[100; 8]),
            None,
            "losses that follow each other leave no time"
        );
    }
}

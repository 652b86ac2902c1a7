//! Series of a transfer over time, from its samples.

use fullpipe_record::{EndReport, Sample};
use fullpipe_stats::find_level_changes;
use fullpipe_units::Time;

use super::prelude::*;

/// Points of a rate over the whole of a transfer.
const RATES: u64 = 300;

/// Part of a round trip over which a rate is taken at least: data comes in bursts of one.
const ROUND: f64 = 0.95;

/// Rates of which changes of level are sought: the time grows with their square.
const MAX_SOUGHT: usize = 1_000;

/// Samples of all streams at one time.
pub(super) struct SampleSnapshot<'s> {
    pub at: Span,
    pub samples: Vec<&'s Sample>,
}

impl SampleSnapshot<'_> {
    /// Returns the sum over the streams; `None` if a stream does not have the figure.
    pub(super) fn sum_figure<T: std::iter::Sum>(
        &self,
        figure: impl Fn(&Sample) -> Option<T>,
    ) -> Option<T> {
        self.samples.iter().map(|sample| figure(sample)).sum()
    }

    /// Returns the largest smoothed round-trip time of the streams.
    pub(super) fn largest_rtt(&self) -> Option<Span> {
        self.samples
            .iter()
            .filter_map(|sample| sample.tcp.rtt)
            .max()
    }
}

/// Returns the snapshots of the first `streams` of these samples, by time.
pub(super) fn sample_snapshots(samples: &[Sample], streams: u16) -> Vec<SampleSnapshot<'_>> {
    let own: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.stream < streams)
        .collect();
    let groups = own.chunk_by(|one, next| one.at == next.at);
    groups
        .map(|group| SampleSnapshot {
            at: group[0].at,
            samples: group.to_vec(),
        })
        .collect()
}

/// Returns the snapshots of an end, of the upload where data goes both ways.
pub(super) fn of_end<'m>(measured: &Measurement, end: &'m EndReport) -> Vec<SampleSnapshot<'m>> {
    sample_snapshots(&end.samples, measured.request.streams)
}

fn snapshots_while_sending<'m>(
    measured: &Measurement,
    end: &'m EndReport,
) -> Vec<SampleSnapshot<'m>> {
    let mut snapshots = of_end(measured, end);
    snapshots.retain(|snapshot| snapshot.at <= measured.summary.duration);
    snapshots
}

/// Returns the rate at which data arrives: by the receiver's samples, or else by the sender's, or
/// by the intervals.
pub(super) fn arrival_rates(measured: &Measurement) -> Vec<(Span, BitRate)> {
    let round = measured
        .rtt
        .idle
        .or(measured.rtt.loaded)
        .map(|rtt| rtt.median)
        .unwrap_or_default();
    let receiver = snapshots_while_sending(measured, measured.receiving_end());
    let arrived = by_bytes(&receiver, round, |sample| Some(sample.bytes));
    if arrived.len() > 1 {
        return arrived;
    }
    let sender = snapshots_while_sending(measured, measured.sending_end());
    let acknowledged = by_bytes(&sender, round, |sample| sample.tcp.bytes_acked);
    if acknowledged.len() > 1 {
        return acknowledged;
    }
    let counted = measured
        .intervals
        .iter()
        .filter(|interval| interval.direction == measured.intervals[0].direction);
    counted
        .map(|interval| (interval.to, interval.rate))
        .collect()
}

/// Returns the rate at which bytes pass, between snapshots that are at least a round trip and a
/// 300th of the whole time apart.
pub(super) fn by_bytes(
    snapshots: &[SampleSnapshot<'_>],
    round: Span,
    bytes: impl Fn(&Sample) -> Option<ByteCount>,
) -> Vec<(Span, BitRate)> {
    let step = (sampled_time(snapshots) / RATES).max(round.scale_by(ROUND));
    let start = (Span::ZERO, ByteCount::ZERO);
    let totals = figure_over_time(snapshots, bytes);
    changes_by_step(
        std::iter::once(start).chain(totals),
        step,
        |before, now, passed| Some(BitRate::from_bytes_in(now.saturating_sub(*before), passed)),
    )
}

/// Returns the time from the first snapshot to the last.
fn sampled_time(snapshots: &[SampleSnapshot<'_>]) -> Span {
    snapshots
        .last()
        .map_or(Span::ZERO, |last| last.at.saturating_sub(snapshots[0].at))
}

/// Returns what `change` makes of states and the time between them, at the end of each step; a step
/// takes longer than `step`.
pub(super) fn changes_by_step<S, C>(
    states: impl IntoIterator<Item = (Span, S)>,
    step: Span,
    change: impl Fn(&S, &S, Span) -> Option<C>,
) -> Vec<(Span, C)> {
    let mut states = states.into_iter();
    let Some(mut before) = states.next() else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    for (at, now) in states {
        let passed = at.saturating_sub(before.0);
        if passed > step {
            changes.extend(change(&before.1, &now, passed).map(|change| (at, change)));
            before = (at, now);
        }
    }
    changes
}

/// Returns the mean from the start on, at the places of rates of which each is of the time up to
/// its place.
pub(super) fn mean_so_far(rates: &[(Span, BitRate)]) -> Vec<(Span, BitRate)> {
    let (mut before, mut bits) = (Span::ZERO, 0.0);
    rates
        .iter()
        .map(|(at, rate): &(Span, BitRate)| {
            bits += rate.as_f64() * at.saturating_sub(before).as_secs_f64();
            before = *at;
            (
                *at,
                BitRate::from_bps_f64(bits / at.as_secs_f64().max(f64::MIN_POSITIVE)),
            )
        })
        .collect()
}

/// A change of level in the course of a rate.
pub(super) struct LevelChange {
    pub at: Span,
    /// Median rate since the change before it.
    pub before: BitRate,
    /// Median rate until the change after it.
    pub after: BitRate,
}

/// Returns the changes of level after the ramp of rates of which each is of the time up to its
/// place.
pub(super) fn level_changes(rates: &[(Span, BitRate)], ramp: Span) -> Vec<LevelChange> {
    let steady: Vec<(Span, BitRate)> = rates.iter().copied().filter(|(at, _)| *at > ramp).collect();
    let each = steady.len().div_ceil(MAX_SOUGHT).max(1);
    let moments: Vec<(Time, BitRate)> = steady
        .chunks(each)
        .map(|group: &[(Span, BitRate)]| {
            let sum: f64 = group.iter().map(|(_, rate)| rate.as_f64()).sum();
            (
                Time::ZERO + group[group.len() - 1].0,
                BitRate::from_bps_f64(sum / group.len() as f64),
            )
        })
        .collect();
    find_level_changes(&moments)
        .into_iter()
        .map(|found: fullpipe_stats::HistoryLevelChange| LevelChange {
            at: moments[found.index.saturating_sub(1)]
                .0
                .duration_since(Time::ZERO),
            before: found.before,
            after: found.after,
        })
        .collect()
}

/// Returns the levels between changes, from the ramp to the end; without points where there is no
/// change.
pub(super) fn level_series(changes: &[LevelChange], ramp: Span, end: Span) -> PlotSeries {
    let first = changes.first().map(|change| (ramp, change.before));
    let last = changes.last().map(|change| (end, change.after));
    let points = first
        .into_iter()
        .chain(changes.iter().map(|change| (change.at, change.after)))
        .chain(last);
    PlotSeries::new("level between changes", Steps, Orange, points).with_label("level")
}

/// Returns the part of a description that explains the levels, if there are any.
pub(super) fn level_note(changes: &[LevelChange]) -> &'static str {
    text_if(
        !changes.is_empty(),
        "; orange: the median between changes of level",
    )
}

/// Returns the round-trip times of echo requests during the load or, without those, the kernel's
/// estimates.
pub(super) fn round_trips(measured: &Measurement, hue: Hue) -> PlotSeries {
    if let Some(echoes) = &measured.rtt.echoes {
        let began = echoes.load.began;
        let during = echoes
            .samples
            .iter()
            .filter(|echo| echo.at >= began && echo.at <= echoes.load.to);
        let points = during.filter_map(|echo| Some((echo.at.saturating_sub(began), echo.rtt?)));
        return PlotSeries::new("round trips of echo requests", Dots, hue, points);
    }
    smoothed_rtt_series(&of_end(measured, measured.sending_end()), hue)
}

/// Returns the largest smoothed round-trip time of all streams in each snapshot.
pub(super) fn smoothed_rtt_series(snapshots: &[SampleSnapshot<'_>], hue: Hue) -> PlotSeries {
    let points = snapshots
        .iter()
        .filter_map(|snapshot| Some((snapshot.at, snapshot.largest_rtt()?)));
    PlotSeries::new("smoothed round-trip time", Line, hue, points)
}

/// Returns the segments that were retransmitted between snapshots.
fn sent_again(snapshots: &[SampleSnapshot<'_>]) -> Vec<(Span, u64)> {
    let totals = figure_over_time(snapshots, |one| one.tcp.total_retrans);
    let pairs = totals
        .windows(2)
        .map(|pair| (pair[1].0, pair[1].1.saturating_sub(pair[0].1).get()));
    pairs.filter(|(_, segments)| *segments > 0).collect()
}

/// Returns a figure over time, of all streams together.
pub(super) fn figure_over_time<T: std::iter::Sum>(
    snapshots: &[SampleSnapshot<'_>],
    figure: impl Fn(&Sample) -> Option<T>,
) -> Vec<(Span, T)> {
    snapshots
        .iter()
        .filter_map(|snapshot| Some((snapshot.at, snapshot.sum_figure(&figure)?)))
        .collect()
}

/// Returns the share of the time between snapshots in which a limit held, as the kernel counts it,
/// of all streams together; steps are at least a sixtieth of the whole time.
pub(super) fn limited_shares(
    snapshots: &[SampleSnapshot<'_>],
    limited: impl Fn(&Sample) -> Option<Span>,
) -> Vec<(Span, Ratio)> {
    const STEPS: u64 = 60;
    let totals = snapshots.iter().filter_map(|snapshot| {
        let total = snapshot.sum_figure(&limited)?;
        Some((snapshot.at, (total, snapshot.samples.len())))
    });
    let step = sampled_time(snapshots) / STEPS;
    changes_by_step(totals, step, |(before, _), (now, streams), passed| {
        let whole = passed.as_secs_f64() * *streams as f64;
        let share = now.saturating_sub(*before).as_secs_f64() / whole;
        Some(Ratio::new(share.min(1.0)))
    })
}

/// Returns round-trip times without load and under it as distributions, each with a figure that is
/// part of its label; `share` names the axis of the shares.
pub(super) fn rtt_distributions(
    title: &str,
    share: &str,
    [idle, loaded]: [(Vec<Span>, String); 2],
) -> Plot {
    let mut panel = Panel::new(share);
    for (name, hue, (rtts, figure)) in [("idle", Blue, idle), ("loaded", Plum, loaded)] {
        let series = PlotSeries::from_distribution(name, hue, rtts);
        panel = panel.with_series(series.with_label(&format!("{name}, {figure}")));
    }
    Plot::new(title)
        .with_axis_name("round trip")
        .with_panel(panel)
}

/// Returns a plot of rates, round trips, and the segments that were retransmitted, over one axis of
/// time.
pub(super) fn transfer_plot(rate: Panel, delay: Panel, sender: &[SampleSnapshot<'_>]) -> Plot {
    let again = sent_again(sender).into_iter();
    let again = again.map(|(at, segments)| (at, 0, segments));
    let again = PlotSeries::from_ranges("retransmitted", Orange, again);
    Plot::new("Rate and round-trip time over time")
        .with_panel(rate)
        .with_panel(delay)
        .with_panel(Panel::new("segments retransmitted").with_series(again))
}

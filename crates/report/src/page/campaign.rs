//! The runs of a sweep as Cottrell drew his: by streams, repeated, idle and loaded, over time, and
//! the processors.

use std::collections::BTreeMap;

use crate::chart::AxisQuantity;
use fullpipe_record::{SweepCell, SweepLoad, SweepReason, SweepReport, SweepRun};

use super::course::{level_changes, level_note, level_series, mean_so_far, rtt_distributions};
use super::prelude::*;
use super::published;
use crate::text::rounded_duration;
use crate::timeline::{DeviceTraffic, TimedRun, device_traffic, timed_runs};

/// Settings that are drawn, those with the most runs.
const MAX_SETTINGS: usize = 12;

/// Windows that have a panel each, those of which the runs of one setting differ most.
const MAX_WINDOWS: usize = 4;

/// Percent of their median by which runs that hardly differ do.
const HARDLY: f64 = 0.5;

/// Share of the best rate from which on runs have about the same rate.
const NEARLY: f64 = 0.9;

/// Returns the rates by streams, a line for each window; `None` without a surface.
pub(super) fn by_streams(report: &SweepReport) -> Option<PageSection> {
    let knee = report.answer.as_ref().map(|answer| answer.knee.cell.window);
    // The lines meet at the right: labels of all would say nothing.
    let labelled = [
        report.plan.windows.first().copied(),
        report.plan.windows.last().copied(),
        knee,
    ];
    let mut panel = Panel::new("rate");
    for window in report.plan.windows.iter().rev() {
        let own = report.surface.iter().filter(|of| of.cell.window == *window);
        let hue = if Some(*window) == knee { Orange } else { Blue };
        let points = own.map(|of| (u64::from(of.cell.streams), of.rate));
        let line = PlotSeries::new(&window.to_string(), Line, hue, points);
        let is_labelled = labelled.contains(&Some(*window));
        panel = panel.with_series(if is_labelled {
            line.with_label(&window.to_string())
        } else {
            line
        });
    }
    let of_knee = report
        .surface
        .iter()
        .filter(|of| Some(of.cell.window) == knee);
    let intervals = of_knee.map(|of| (u64::from(of.cell.streams), of.low, of.high));
    panel = panel.with_series(PlotSeries::from_ranges("95 % interval", Orange, intervals));
    if let Some(top) = published::published_top(report) {
        panel = panel.with_level(top, "2002, scaled");
    }
    let measured = counted_runs(report).map(|(run, rate)| (u64::from(run.cell.streams), rate));
    panel = panel.with_points("runs", Dots, Grey, measured);
    let (_, best) = fastest_run(report).filter(|_| !report.surface.is_empty())?;
    let plot = Plot::new_logarithmic("Rate by streams, for each window")
        .with_axis_name("streams")
        .with_panel(panel);
    let title = format!("Up to {best}, by streams and window");
    let method = "A line a window, by the surface fitted to all runs, orange that of the knee, with its 95 % \
                  intervals; dots: the runs.";
    Some(PageSection::new(title, method, plot))
}

/// Returns the runs that count, with their rates.
pub(super) fn counted_runs(report: &SweepReport) -> impl Iterator<Item = (&SweepRun, BitRate)> {
    report.runs.iter().filter_map(|run| Some((run, run.rate?)))
}

/// Returns the fastest run that counts, with its rate.
pub(super) fn fastest_run(report: &SweepReport) -> Option<(&SweepRun, BitRate)> {
    counted_runs(report).max_by_key(|(_, rate)| *rate)
}

/// Returns the settings that were measured more than once, with their rates, by streams × window.
pub(super) fn repeated_settings(report: &SweepReport) -> Vec<(SweepCell, Vec<BitRate>)> {
    let mut by_cell: BTreeMap<(ByteCount, u16, ByteCount), (SweepCell, Vec<BitRate>)> =
        BTreeMap::new();
    for (run, rate) in counted_runs(report) {
        let key = (
            run.cell.flight_capacity(),
            run.cell.streams,
            run.cell.window,
        );
        by_cell
            .entry(key)
            .or_insert((run.cell, Vec::new()))
            .1
            .push(rate);
    }
    by_cell
        .into_values()
        .filter(|(_, rates)| rates.len() > 1)
        .collect()
}

/// Returns the range of rates relative to their median.
pub(super) fn rate_spread(rates: &[BitRate]) -> Option<Ratio> {
    let (least, most) = (rates.iter().min()?, rates.iter().max()?);
    Some(Ratio::from_quotient(
        most.as_f64() - least.as_f64(),
        median(rates.to_vec())?.as_f64(),
    ))
}

/// Returns the range of rates relative to their median, 0 where it is not known.
fn relative_spread(rates: &[BitRate]) -> f64 {
    rate_spread(rates).map_or(0.0, Ratio::get)
}

/// Returns the settings that were measured more than once; `None` without any.
pub(super) fn repetition_section(report: &SweepReport) -> Option<PageSection> {
    let mut all = repeated_settings(report);
    let widest = all
        .iter()
        .filter_map(|(cell, rates)| Some((rate_spread(rates)?, cell)))
        .max_by(|one, other| one.0.get().total_cmp(&other.0.get()));
    let (widest, at) = widest?;
    let title = match widest.as_percent() {
        percent if percent < HARDLY => "The rates of one setting hardly differ".to_owned(),
        percent => format!("The rates of one setting differ by {percent:.0} % at most, with {at}"),
    };
    if all.len() > MAX_SETTINGS {
        retain_most_repeated(&mut all);
    }
    let mut rows = RowChart::new("Runs of one setting", ["streams × window", "median, runs"]);
    for (cell, rates) in all {
        let middle = median(rates.clone()).unwrap_or_default();
        let row = ChartRow::from_dot(&cell.to_string(), middle, Blue)
            .with_detail(&count_noun(rates.len(), "run"));
        rows = rows.with_row(row.with_dots(rates));
    }
    let method = "Settings that were measured more than once, by streams × window. Small dots: runs. Large dot: median.";
    Some(PageSection::new(title, method, rows))
}

/// Leaves only the settings with most runs, of as many those that differ most.
fn retain_most_repeated(all: &mut Vec<(SweepCell, Vec<BitRate>)>) {
    all.sort_by(|(_, one), (_, other)| {
        other
            .len()
            .cmp(&one.len())
            .then_with(|| relative_spread(other).total_cmp(&relative_spread(one)))
    });
    all.truncate(MAX_SETTINGS);
    all.sort_by_key(|(cell, _)| cell.flight_capacity());
}

/// Returns all runs by streams with their mean and their most, for a few windows, and the range of
/// the runs of one setting; `None` unless settings with several numbers of streams were measured
/// more than once, and differ.
pub(super) fn spread_by_streams(report: &SweepReport) -> Option<PageSection> {
    const MIN_NUMBERS: usize = 3;
    let repeated = repeated_settings(report);
    let spreads: Vec<(u64, Ratio)> = repeated
        .iter()
        .filter_map(|(cell, rates)| Some((cell.streams.into(), rate_spread(rates)?)))
        .collect();
    let typical = by_number(&spreads, |widths| {
        median(widths.to_vec()).unwrap_or(Ratio::ZERO)
    });
    let (widest, most) = *typical
        .iter()
        .max_by(|one, other| one.1.get().total_cmp(&other.1.get()))?;
    if typical.len() < MIN_NUMBERS || most.as_percent() < HARDLY {
        return None;
    }
    let mut plot = Plot::new_logarithmic("Runs by streams, and the spread of one setting")
        .with_axis_name("streams");
    for window in most_spread_windows(&repeated) {
        plot = plot.with_panel(of_window(report, window));
    }
    let panel = Panel::new("range ÷ median")
        .with_points("a setting", Dots, Grey, spreads)
        .with_labelled_points("median", Line, Plum, typical);
    let widest = count_noun(widest, "stream");
    let title = format!(
        "Runs of one setting differ most with {widest}: by {:.0} % in the median",
        most.as_percent()
    );
    let method = "A panel for each of the windows whose runs differ most: dots are runs, blue their mean, orange the \
                  fastest. Below: the range of the runs of each setting, of all windows, by streams.";
    Some(PageSection::new(title, method, plot.with_panel(panel)))
}

/// Returns the windows whose runs of one setting differ most.
fn most_spread_windows(repeated: &[(SweepCell, Vec<BitRate>)]) -> Vec<ByteCount> {
    let mut widths: BTreeMap<ByteCount, f64> = BTreeMap::new();
    for (cell, rates) in repeated {
        let widest = widths.entry(cell.window).or_default();
        *widest = widest.max(relative_spread(rates));
    }
    let mut windows: Vec<ByteCount> = widths.keys().copied().collect();
    windows.sort_by(|one, other| widths[other].total_cmp(&widths[one]));
    windows.truncate(MAX_WINDOWS);
    windows.sort();
    windows
}

fn of_window(report: &SweepReport, window: ByteCount) -> Panel {
    let own = counted_runs(report).filter(|(run, _)| run.cell.window == window);
    let runs: Vec<(u64, BitRate)> = own
        .map(|(run, rate)| (run.cell.streams.into(), rate))
        .collect();
    let mean = by_number(&runs, |rates| {
        BitRate::from_bps_f64(
            rates.iter().map(|rate| rate.as_f64()).sum::<f64>() / rates.len() as f64,
        )
    });
    let most = by_number(&runs, |rates| {
        rates.iter().copied().max().unwrap_or_default()
    });
    Panel::new(&format!("{window}: rate"))
        .with_points("runs", Dots, Grey, runs)
        .with_labelled_points("mean", Line, Blue, mean)
        .with_labelled_points("fastest", Line, Orange, most)
}

/// Returns the result of `figure` for the values of each number of streams.
fn by_number<T: Copy>(values: &[(u64, T)], figure: impl Fn(&[T]) -> T) -> Vec<(u64, T)> {
    let mut groups: BTreeMap<u64, Vec<T>> = BTreeMap::new();
    for (streams, value) in values {
        groups.entry(*streams).or_default().push(*value);
    }
    groups
        .into_iter()
        .map(|(streams, own)| (streams, figure(&own)))
        .collect()
}

/// Returns the processor time of both ends by streams, of the runs with about the same rate; `None`
/// unless it is known of two numbers of streams.
pub(super) fn processor_section(report: &SweepReport) -> Option<PageSection> {
    let best = counted_runs(report).map(|(_, rate)| rate).max()?;
    let least = best.scale_by(NEARLY);
    let sender = shares_by_streams(report, least, |load| load.cpu_sender);
    let receiver = shares_by_streams(report, least, |load| load.cpu_receiver);
    if by_number(&sender, |own| own[0]).len() < 2 {
        return None;
    }
    let most = max_percent(&sender);
    let title = format!("With {least} and more, the sender spends at most {most:.1} % of a core");
    let method = "Processor time of the programs of both ends by streams, of runs with at least 90 % of the best rate.";
    Some(PageSection::new(
        title,
        method,
        Plot::new_logarithmic("Processor time by streams")
            .with_axis_name("streams")
            .with_panel(processors_panel(sender, receiver)),
    ))
}

/// Returns the shares of the runs with at least that rate, each with its number of streams.
fn shares_by_streams(
    report: &SweepReport,
    least: BitRate,
    share: fn(&SweepLoad) -> Option<Ratio>,
) -> Vec<(u64, Ratio)> {
    counted_runs(report)
        .filter(|(_, rate)| *rate >= least)
        .filter_map(|(run, _)| Some((run.cell.streams.into(), share(run.load.as_ref()?)?)))
        .collect()
}

/// Returns the processor time of both ends by streams.
pub(super) fn processors_panel(sender: Vec<(u64, Ratio)>, receiver: Vec<(u64, Ratio)>) -> Panel {
    Panel::new("processor time, of one core")
        .with_labelled_points("receiver", Dots, Orange, receiver)
        .with_labelled_points("sender", Dots, Blue, sender)
}

/// Returns the course of the fastest run: the rate of each half second, and the mean so far; `None`
/// where no run has one.
pub(super) fn fastest_run_section(report: &SweepReport) -> Option<PageSection> {
    let with_load =
        counted_runs(report).filter_map(|(run, rate)| Some((run, rate, run.load.as_ref()?)));
    let (run, rate, load) = with_load.max_by_key(|(_, rate, _)| *rate)?;
    let times = (1..).map(|step| SweepLoad::STEP * step);
    let each: Vec<(Span, BitRate)> = times.zip(load.rates.iter().copied()).collect();
    let means = mean_so_far(&each);
    let (end, whole) = *means.last()?;
    let ramp = load.ramp.unwrap_or_default();
    let changes = level_changes(&each, ramp);
    let panel = Panel::new("rate")
        .with_labelled_points("mean so far", Line, Grey, means)
        .with_series(level_series(&changes, ramp, end))
        .with_labelled_points("each half second", Line, Blue, each);
    let mut plot = Plot::new("The fastest run over time").with_panel(panel);
    if ramp > Span::ZERO {
        plot = plot.with_shade(Span::ZERO, ramp, &format!("ramp {}", round_trip(ramp)));
    }
    let title = format!(
        "The fastest run, {}: {rate} after the ramp, {whole} with it",
        run.cell
    );
    let method = format!(
        "Payload that arrived in each half second, and the mean from the start on{}.",
        level_note(&changes)
    );
    Some(PageSection::new(title, &method, plot))
}

/// Returns the round trips of all runs, without and under load, on one scale; `None` where either
/// are not known.
pub(super) fn sweep_rtt_section(report: &SweepReport) -> Option<PageSection> {
    let idle: Vec<Span> = report.runs.iter().filter_map(|run| run.idle_rtt).collect();
    let loaded: Vec<Span> = report
        .runs
        .iter()
        .filter_map(|run| run.loaded_rtt)
        .collect();
    let [before, during] = [median(idle.clone())?, median(loaded.clone())?].map(round_trip);
    let plot = rtt_distributions(
        "Round trips of the runs, idle and loaded",
        "share of the runs with less",
        [
            (idle, format!("median {before}")),
            (loaded, format!("median {during}")),
        ],
    );
    let title = format!(
        "Half of the runs have round trips above {during} under load, and {before} without"
    );
    Some(PageSection::new(
        title,
        "The least round trip before each run, and the median under its load.",
        plot,
    ))
}

/// Returns the runs in the order of time, with their rests and, where the device that carried them
/// was read, what else it carried; `None` without any.
pub(super) fn timeline_section(report: &SweepReport) -> Option<PageSection> {
    let runs = timed_runs(report);
    let last = runs.last()?;
    let rtts = |of: fn(&SweepRun) -> Option<Span>| {
        let placed = runs.iter();
        placed.filter_map(move |at| Some((at.from, of(at.run)?)))
    };
    let (idle, loaded) = (rtts(|run| run.idle_rtt), rtts(|run| run.loaded_rtt));
    let delay = Panel::new("round trip")
        .with_labelled_points("under load", Dots, Plum, loaded)
        .with_labelled_points("idle", Steps, Grey, idle);
    let (finding, method, first) = match device_traffic(report, &runs) {
        Some(traffic) => of_device(&traffic, &runs),
        None => of_rates(&runs, last),
    };
    let title = format!(
        "{} in {}{finding}",
        count_noun(runs.len(), "run"),
        rounded_duration(last.to)
    );
    let orange =
        "Orange: the setting that is measured again and again, which shows a path that changes.";
    let plot = Plot::new("The campaign over time")
        .with_panel(first)
        .with_panel(delay);
    Some(PageSection::new(title, &format!("{method} {orange}"), plot))
}

/// Returns the end of the title, the method and the panel of what the device carried.
fn of_device(traffic: &DeviceTraffic, runs: &[TimedRun<'_>]) -> (String, String, Panel) {
    let method = format!(
        "All that {} carried in the direction of the data, headers included, and green what was not of the sweep; in \
         runs that is known to about 1 % of their rate.",
        traffic.device
    );
    (
        format!("; {}", traffic.of_others()),
        method,
        device_panel(traffic, runs),
    )
}

/// Returns the end of the title, the method and the panel of the rates of the runs, where no device
/// was read.
fn of_rates(runs: &[TimedRun<'_>], last: &TimedRun<'_>) -> (String, String, Panel) {
    let bars = runs
        .iter()
        .filter_map(|at| Some((at.from, at.to, at.run.rate?)));
    let panel = Panel::new("rate")
        .with_series(PlotSeries::from_bars("runs", Blue, bars))
        .with_series(reference_series(runs, |rate| rate));
    let method = "Bars: runs after their ramps, with rests between them.";
    (
        format!(", the last with {}", last.run.cell),
        method.to_owned(),
        panel,
    )
}

/// Returns the rates of the setting that is measured again and again.
fn reference_series<Y: AxisQuantity>(
    runs: &[TimedRun<'_>],
    shown: impl Fn(BitRate) -> Y,
) -> PlotSeries {
    let again = runs
        .iter()
        .filter(|at| at.run.reason == SweepReason::Reference);
    let points = again.filter_map(|at| Some((at.from, shown(at.run.rate?))));
    PlotSeries::new("reference", Dots, Orange, points).with_name_as_label()
}

/// Returns the utilisation of the device, or the rates that it carried where its speed is not
/// known.
fn device_panel(traffic: &DeviceTraffic, runs: &[TimedRun<'_>]) -> Panel {
    let name = &traffic.device;
    match traffic.speed {
        Some(speed) => traffic_panel(traffic, runs, &format!("use of {name}, {speed}"), |rate| {
            Ratio::from_quotient(rate.as_f64(), speed.as_f64())
        }),
        None => traffic_panel(traffic, runs, &format!("carried by {name}"), |rate| rate),
    }
}

fn traffic_panel<Y: AxisQuantity>(
    traffic: &DeviceTraffic,
    runs: &[TimedRun<'_>],
    name: &str,
    shown: impl Fn(BitRate) -> Y,
) -> Panel {
    let own = traffic.parts.iter().filter(|part| part.is_run);
    let all = PlotSeries::from_bars(
        "with the runs",
        Blue,
        own.map(|part| (part.from, part.to, shown(part.all))),
    );
    let other = traffic
        .parts
        .iter()
        .map(|part| (part.from, part.to, shown(part.other)));
    // Drawn in front: what remains to be seen of the bars behind is the sweep's own part.
    Panel::new(name)
        .with_series(all.with_name_as_label())
        .with_series(PlotSeries::from_bars("other traffic", Green, other).with_name_as_label())
        .with_series(reference_series(runs, shown))
}

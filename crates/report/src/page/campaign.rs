//! The runs of a sweep as Cottrell drew his: by streams, repeated, idle and loaded, and over time.

use std::collections::BTreeMap;

use fullpipe_chart::{Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{SweepCell, SweepReason, SweepReport, SweepRun};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, median};

use super::Section;
use crate::text::round_trip;

/// Settings that are drawn, those with the most runs.
const MAX_SETTINGS: usize = 12;

/// Returns the rates by streams, a line for each window; `None` without a surface.
pub(super) fn by_streams(report: &SweepReport) -> Option<Section> {
    let knee = report.answer.as_ref().map(|answer| answer.knee.cell.window);
    // The lines meet at the right: labels of all would say nothing.
    let labelled = [report.plan.windows.first().copied(), report.plan.windows.last().copied(), knee];
    let mut panel = Panel::new("rate");
    for window in report.plan.windows.iter().rev() {
        let own = report.surface.iter().filter(|of| of.cell.window == *window);
        let hue = if Some(*window) == knee { Hue::Orange } else { Hue::Blue };
        let points = own.map(|of| (u64::from(of.cell.streams), of.rate));
        let line = Series::new(&window.to_string(), Mark::Line, hue, points);
        let is_labelled = labelled.contains(&Some(*window));
        panel = panel.with(if is_labelled { line.labelled(&window.to_string()) } else { line });
    }
    let measured = counted(report).map(|(run, rate)| (u64::from(run.cell.streams), rate));
    panel = panel.with(Series::new("runs", Mark::Dots, Hue::Grey, measured));
    let best = report.surface.iter().map(|of| of.rate).max()?;
    let plot = Plot::logarithmic("Rate by streams, for each window").axis("streams").with(panel);
    let title = format!("Up to {best}, by streams and window");
    let method = "A line a window, by the surface fitted to all runs, orange that of the knee; dots: the runs.";
    Some(Section::new(title, method, plot))
}

/// Returns the runs that count, with their rates.
pub(super) fn counted(report: &SweepReport) -> impl Iterator<Item = (&SweepRun, BitRate)> {
    report.runs.iter().filter_map(|run| Some((run, run.rate?)))
}

/// Returns the settings that were measured more than once, with their rates, by streams × window.
pub(super) fn repetitions(report: &SweepReport) -> Vec<(SweepCell, Vec<BitRate>)> {
    let mut by_cell: BTreeMap<(ByteCount, u16, ByteCount), (SweepCell, Vec<BitRate>)> = BTreeMap::new();
    for (run, rate) in counted(report) {
        let key = (run.cell.product(), run.cell.streams, run.cell.window);
        by_cell.entry(key).or_insert((run.cell, Vec::new())).1.push(rate);
    }
    by_cell.into_values().filter(|(_, rates)| rates.len() > 1).collect()
}

/// Returns the range of rates relative to their median.
pub(super) fn spread(rates: &[BitRate]) -> Option<Ratio> {
    let (least, most) = (rates.iter().min()?, rates.iter().max()?);
    let middle = median(rates.to_vec())?;
    Some(Ratio::of(most.as_f64() - least.as_f64(), middle.as_f64()))
}

/// Returns the settings that were measured more than once; `None` without any.
pub(super) fn repeated(report: &SweepReport) -> Option<Section> {
    let mut all = repetitions(report);
    let widest = all
        .iter()
        .filter_map(|(cell, rates)| Some((spread(rates)?, cell)))
        .max_by(|one, other| one.0.get().total_cmp(&other.0.get()));
    let (widest, at) = widest?;
    let title = format!("The rates of one setting differ by {:.0} % at most, with {at}", widest.percent());
    if all.len() > MAX_SETTINGS {
        all.sort_by_key(|(_, rates)| std::cmp::Reverse(rates.len()));
        all.truncate(MAX_SETTINGS);
        all.sort_by_key(|(cell, _)| cell.product());
    }
    let mut rows = Rows::new("Runs of one setting", ["streams × window", "median, runs"]);
    for (cell, rates) in all {
        let middle = median(rates.clone()).unwrap_or_default();
        let row = Row::new(&cell.to_string(), &middle.to_string(), Hue::Blue);
        rows = rows.with(row.detail(&format!("{} runs", rates.len())).dots(rates).dot(middle));
    }
    let method =
        "Settings that were measured more than once, by streams × window. Small dots: runs. Large dot: median.";
    Some(Section::new(title, method, rows))
}

/// Returns the round trips of all runs, without and under load, on one scale; `None` where either are not known.
pub(super) fn distributions(report: &SweepReport) -> Option<Section> {
    let idle: Vec<Span> = report.runs.iter().filter_map(|run| run.idle_rtt).collect();
    let loaded: Vec<Span> = report.runs.iter().filter_map(|run| run.loaded_rtt).collect();
    let [before, during] = [median(idle.clone())?, median(loaded.clone())?].map(round_trip);
    let panel = Panel::new("share of the runs with less")
        .with(Series::distribution("idle", Hue::Blue, idle).labelled(&format!("idle, median {before}")))
        .with(Series::distribution("loaded", Hue::Plum, loaded).labelled(&format!("loaded, median {during}")));
    let plot = Plot::new("Round trips of the runs, idle and loaded").axis("round trip").with(panel);
    let title = format!("Half of the runs have round trips above {during} under load, and {before} without");
    Some(Section::new(title, "The least round trip before each run, and the median under its load.", plot))
}

/// Returns the runs in the order of time, with their rests; `None` without any.
pub(super) fn timeline(report: &SweepReport) -> Option<Section> {
    let mut at = Span::ZERO;
    let mut begun = Vec::new();
    for run in &report.runs {
        begun.push((at, run));
        at += run.took;
    }
    let (_, last) = *begun.last()?;
    let bars = begun.iter().filter_map(|(from, run)| {
        let loaded = *from + run.took.scaled(report.plan.duty.get());
        Some([(*from, run.rate?), (loaded, BitRate::ZERO)])
    });
    let references = begun.iter().filter(|(_, run)| run.reason == SweepReason::Reference);
    let references = references.filter_map(|(from, run)| Some((*from, run.rate?)));
    let idle = begun.iter().filter_map(|(from, run)| Some((*from, run.idle_rtt?)));
    let loaded = begun.iter().filter_map(|(from, run)| Some((*from, run.loaded_rtt?)));
    let rate = Panel::new("rate")
        .with(Series::new("runs and rests", Mark::Steps, Hue::Blue, bars.flatten()))
        .with(Series::new("reference", Mark::Dots, Hue::Orange, references).labelled("reference"));
    let delay = Panel::new("round trip")
        .with(Series::new("under load", Mark::Dots, Hue::Plum, loaded).labelled("under load"))
        .with(Series::new("idle", Mark::Steps, Hue::Grey, idle).labelled("idle"));
    let title =
        format!("{} runs in {:.0} min, the last with {}", report.runs.len(), at.as_secs_f64() / 60.0, last.cell);
    let method = "Loads and rests by their planned parts; orange: the setting that is measured again and again, which \
                  shows a path that changes.";
    Some(Section::new(title, method, Plot::new("The campaign over time").with(rate).with(delay)))
}

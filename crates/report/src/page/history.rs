//! A history: the changes on the way to a host, and their times.

use fullpipe_record::{HistoryChange, HistoryDay, HistoryPoint, HistoryReport, HistorySeries};
use fullpipe_units::Time;

use super::prelude::*;
use super::runs::time_of;
use crate::text::{no_change, ratio_change};

/// Series that are drawn; each is of one path, load and direction.
const MAX_SERIES: usize = 6;

/// Limits that have a colour of their own.
const HUES: [Hue; 4] = [Blue, Orange, Green, Plum];

/// Rows of the table of days, the newest.
const MAX_DAYS: usize = 120;

/// Returns the article on a history.
pub(super) fn history_article(report: &HistoryReport) -> Article {
    let first = report.series.first();
    let last_change = first
        .and_then(|series| series.changes.last())
        .map(|change| change.sentence.clone());
    let left_out = report.series.len().saturating_sub(MAX_SERIES);
    let more =
        (left_out > 0).then(|| format!("{left_out} more series, of fewer runs, are not shown."));
    Article {
        origin: format!("fullpipe history · {}", report.host),
        headline: history_headline(report),
        sentences: last_change
            .or_else(|| no_change(first?))
            .into_iter()
            .chain(more)
            .collect(),
        sections: report
            .series
            .iter()
            .take(MAX_SERIES)
            .flat_map(history_sections)
            .collect(),
        ..Article::default()
    }
}

/// Returns the finding of a history: the number of changes.
fn history_headline(report: &HistoryReport) -> String {
    let (host, series) = (&report.host, &report.series);
    let runs: usize = series.iter().map(|one| one.points.len()).sum();
    if runs == 0 {
        return format!("No runs towards {host} are kept");
    }
    let found: usize = series.iter().map(|one| one.changes.len()).sum();
    let is_shown = series.iter().any(|one| one.detectable.is_some());
    let counted = count_noun(runs, "run");
    let finding = match found {
        0 if !is_shown => "too few runs to show a change of the rate".to_owned(),
        0 => format!("no change of the rate in {counted}"),
        1 => format!("the rate changed once in {counted}"),
        many => format!("the rate changed {many} times in {counted}"),
    };
    format!("{host}: {finding}")
}

fn history_sections(series: &HistorySeries) -> Vec<PageSection> {
    known_sections([
        Some(rate_history_section(series)),
        history_changes_section(&series.changes),
        history_days_section(&series.days),
    ])
}

/// Returns the rates of the runs by their time, with the level between changes, and the round trips
/// below.
fn rate_history_section(series: &HistorySeries) -> PageSection {
    let (path, direction) = (&series.path_key, series.direction.name());
    let name = format!("{path}, {direction}: {}", series.request_key);
    let loaded = rtt_points(series, |point| point.rtt_loaded);
    let idle = rtt_points(series, |point| point.rtt_idle);
    let delays = Panel::new("round trip")
        .with_labelled_points("under load", Dots, Plum, loaded)
        .with_labelled_points("idle", Dots, Grey, idle);
    let plot = Plot::new("Rate and round-trip time by the time of the run")
        .with_panel(rate_history_panel(series))
        .with_panel(delays);
    let method = "A dot a run, by what limited it; line: median between changes. Times are UTC.";
    PageSection::new(name, method, plot)
}

fn rate_history_panel(series: &HistorySeries) -> Panel {
    let rates = |is_shown: &dyn Fn(&HistoryPoint) -> bool| -> Vec<_> {
        let shown = series.points.iter().filter(|point| is_shown(point));
        shown
            .filter_map(|point| Some((time_of(&point.started)?, point.rate)))
            .collect()
    };
    let mut panel = Panel::new("rate");
    for (limit, hue) in limit_kind_hues(&series.points) {
        let own = rates(&|point| point.valid && limit_kind(point) == limit);
        panel = panel.with_labelled_points(limit, Dots, hue, own);
    }
    panel
        .with_labelled_points("not valid", Dots, Grey, rates(&|point| !point.valid))
        .with_points("median between changes", Steps, Grey, median_levels(series))
}

/// Returns the round trips of the valid runs by their time.
fn rtt_points(
    series: &HistorySeries,
    rtt: fn(&HistoryPoint) -> Option<Span>,
) -> impl Iterator<Item = (Time, Span)> {
    let valid = series.points.iter().filter(|point| point.valid);
    valid.filter_map(move |point| Some((time_of(&point.started)?, rtt(point)?)))
}

/// Returns the kind of the limit of a run.
fn limit_kind(point: &HistoryPoint) -> &str {
    let limit = point.limit.as_deref().unwrap_or("unknown");
    limit.split('/').next().unwrap_or(limit)
}

/// Returns the kinds of limits, the most frequent first, with a colour each; all from the fifth on
/// are grey.
fn limit_kind_hues(points: &[HistoryPoint]) -> impl Iterator<Item = (&str, Hue)> {
    let valid = points.iter().filter(|point| point.valid);
    let kinds = count_each(valid.map(limit_kind)).into_iter();
    let hues = HUES.into_iter().chain(std::iter::repeat(Grey));
    kinds.map(|(limit, _)| limit).zip(hues)
}

/// Returns the medians between changes, as a line in steps; nothing where no change was found.
fn median_levels(series: &HistorySeries) -> Vec<(Time, BitRate)> {
    let begun = series
        .points
        .first()
        .and_then(|point| time_of(&point.started));
    let ended = series
        .points
        .last()
        .and_then(|point| time_of(&point.started));
    let first = begun.zip(series.changes.first().map(|change| change.before));
    let last = ended.zip(series.changes.last().map(|change| change.after));
    let changed = series
        .changes
        .iter()
        .filter_map(|change| Some((time_of(&change.at)?, change.after)));
    first.into_iter().chain(changed).chain(last).collect()
}

/// Returns the changes as a table; `None` without any.
fn history_changes_section(found: &[HistoryChange]) -> Option<PageSection> {
    let last = found.last()?;
    let rows = found.iter().map(|one| {
        cells![
            one.at,
            one.before,
            one.after,
            format!("{} to {}", ratio_change(one.low), ratio_change(one.high)),
            one.sentence
        ]
    });
    let title = format!("The last change: {} → {}", last.before, last.after);
    let heads = "from|before|after|95 % interval|in words";
    Some(PageSection::new(
        title,
        "Medians of the runs before and after.",
        compact_table(heads, rows),
    ))
}

/// Returns the days as a table; `None` without any.
fn history_days_section(all: &[HistoryDay]) -> Option<PageSection> {
    let shown = &all[all.len().saturating_sub(MAX_DAYS)..];
    let title = match all.len() {
        0 => return None,
        1 => "One day".to_owned(),
        count if count > MAX_DAYS => format!("The last {MAX_DAYS} of {count} days"),
        count => format!("{count} days"),
    };
    let heads = "day (UTC)|runs|median|range|idle RTT|limit";
    let table = compact_table(heads, shown.iter().map(day_cells));
    Some(PageSection::new(title, "Valid runs of each day.", table))
}

fn day_cells(day: &HistoryDay) -> [String; 6] {
    let range = format_if(day.min != day.max, || format!("{} to {}", day.min, day.max));
    cells![
        day.date,
        day.runs,
        day.rate,
        range,
        day.rtt_idle.map_text(round_trip),
        day.limit.clone().unwrap_or_default()
    ]
}

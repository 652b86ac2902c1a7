//! Several measurements next to each other: over the days, or over one axis of time.

use fullpipe_chart::{Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{Limit, Measurement};
use fullpipe_units::{BitRate, Span, Time, median};

use super::course::{rates, round_trips};
use super::transfer::{phrase, rate};
use super::{Article, Section};
use crate::text::round_trip;

/// Measurements whose courses are drawn over each other.
pub(super) const MAX_COURSES: usize = 4;

const HUES: [Hue; MAX_COURSES] = [Hue::Blue, Hue::Orange, Hue::Green, Hue::Plum];

/// A measurement with the name of its file.
type Named<'m> = (&'m str, &'m Measurement);

/// Returns the article on at least one measurement.
pub(super) fn article(runs: &[Named<'_>]) -> Article {
    let all: Vec<BitRate> = runs.iter().map(|(_, run)| rate(run)).collect();
    let (least, most) = (all.iter().min().copied().unwrap_or_default(), all.iter().max().copied().unwrap_or_default());
    let middle = median(all.clone()).unwrap_or_default();
    let mut sections = Vec::new();
    if runs.len() <= MAX_COURSES {
        sections.push(courses(runs));
    }
    sections.extend(days(runs));
    sections.push(strip(runs));
    sections.push(limits(runs));
    Article {
        origin: format!("fullpipe report · {} measurements", runs.len()),
        headline: format!("{} measurements: {least} to {most}, median {middle}", runs.len()),
        sections,
        ..Article::default()
    }
}

/// Returns the rates and round trips of a few over one axis of time.
fn courses(runs: &[Named<'_>]) -> Section {
    let (mut rate_panel, mut delay) = (Panel::new("rate"), Panel::new("round trip"));
    for ((name, run), hue) in runs.iter().zip(HUES) {
        rate_panel = rate_panel.with(Series::new(name, Mark::Line, hue, rates(run)).labelled(name));
        let loaded = run.rtt.loaded.map_or_else(String::new, |rtt| round_trip(rtt.median));
        delay = delay.with(round_trips(run, hue).named(name).labelled(&loaded));
    }
    let plot = Plot::new("Rates and round trips over time").with(rate_panel).with(delay);
    Section::new("The courses on one axis of time", "Payload that arrived, and round trips.", plot)
}

/// Returns the rates by the time at which they were measured; `None` where fewer than two times are known.
fn days(runs: &[Named<'_>]) -> Option<Section> {
    let begun = |run: &Measurement| -> Option<Time> {
        let at: jiff::Timestamp = run.started.parse().ok()?;
        u64::try_from(at.as_nanosecond()).ok().map(Time::from_nanos)
    };
    let known: Vec<(Time, &Measurement)> = runs.iter().filter_map(|(_, run)| Some((begun(run)?, *run))).collect();
    let (first, last) = (known.iter().map(|(at, _)| *at).min()?, known.iter().map(|(at, _)| *at).max()?);
    if last.since(first) < Span::from_secs(1) {
        return None;
    }
    let points = known.iter().map(|(at, run)| (*at, rate(run)));
    let delays = known.iter().filter_map(|(at, run)| Some((*at, run.rtt.loaded?.median)));
    let plot = Plot::new("Rate and round-trip time by the time of the measurement")
        .with(Panel::new("rate").with(Series::new("rate", Mark::Dots, Hue::Blue, points)))
        .with(Panel::new("round trip under load").with(Series::new("round trip", Mark::Dots, Hue::Plum, delays)));
    Some(Section::new(
        "Rate and round trip by the time of the measurement",
        "A dot a measurement; times are UTC.",
        plot,
    ))
}

/// Returns the rates of the measurements of each host.
fn strip(runs: &[Named<'_>]) -> Section {
    let mut hosts: Vec<&str> = runs.iter().map(|(_, run)| run.peer.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut rows = Rows::new("Rates by host", ["host", "median, range"]);
    for host in hosts {
        let own = runs.iter().filter(|(_, run)| run.peer.host == host).map(|(_, run)| rate(run));
        let own: Vec<BitRate> = own.collect();
        let (Some(least), Some(most)) = (own.iter().min().copied(), own.iter().max().copied()) else { continue };
        let middle = median(own.clone()).unwrap_or_default();
        let detail = format!("{least} to {most}, {} runs", own.len());
        let name = if host.is_empty() { "emulated path" } else { host };
        rows = rows.with(Row::new(name, &middle.to_string(), Hue::Blue).detail(&detail).dots(own).dot(middle));
    }
    Section::new("Spread of the rates", "Small dots: measurements. Large dot: their median.", rows)
}

/// Returns the number of measurements by limit.
fn limits(runs: &[Named<'_>]) -> Section {
    let kind = |run: &Measurement| run.limit.as_ref().map_or(Limit::Unknown, |verdict| verdict.kind);
    let mut counts: Vec<(Limit, u64)> = Vec::new();
    for (_, run) in runs {
        match counts.iter_mut().find(|(limit, _)| *limit == kind(run)) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind(run), 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut rows = Rows::new("Measurements by limit", ["limit", "measurements"]);
    for (limit, count) in &counts {
        rows = rows.with(Row::new(limit.name(), &count.to_string(), Hue::Grey).bar(*count));
    }
    let (most, count) = counts.first().copied().unwrap_or((Limit::Unknown, 0));
    let title = format!("{count} of {} are limited by {}", runs.len(), phrase(most));
    Section::new(title, "The limit that each measurement was judged to have.", rows)
}

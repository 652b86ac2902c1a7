//! Several runs next to each other: over the days, by host, limit and streams, or over one axis of
//! time.

use std::collections::BTreeSet;

use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_units::Time;

use super::campaign::processors_panel;
use super::course::{arrival_rates, round_trips};
use super::prelude::*;
use super::transfer::limit_phrase;
use crate::text::{cut_time, short_id};

/// Measurements whose courses are drawn over each other.
pub(super) const MAX_COURSES: usize = 4;

/// Rows of the table of runs.
const MAX_ROWS: usize = 200;

const HUES: [Hue; MAX_COURSES] = [Blue, Orange, Green, Plum];

/// A measurement with the name of its file.
type Named<'m> = (&'m str, &'m Measurement);

/// A run, as far as many are compared.
struct RunSummary<'r> {
    /// The file, or the document of the archive.
    name: &'r str,
    /// The other end, or the scenario.
    host: &'r str,
    started: &'r str,
    rate: BitRate,
    loaded_rtt: Option<Span>,
    retransmits: Option<SegCount>,
    limit: Limit,
    streams: Option<u16>,
    /// Processor time of the sender and of the receiver, as shares of one core.
    processors: [Option<Ratio>; 2],
}

impl<'r> RunSummary<'r> {
    fn from_measurement((name, measured): Named<'r>) -> Self {
        Self {
            name,
            host: &measured.peer.host,
            started: &measured.started,
            rate: measured.summary.steady_or_mean_rate(),
            loaded_rtt: measured.rtt.loaded.map(|rtt| rtt.median),
            retransmits: measured.summary.retransmits,
            limit: measured
                .limit
                .as_ref()
                .map_or(Limit::Unknown, |verdict| verdict.kind),
            streams: Some(measured.request.streams),
            processors: [measured.sending_end(), measured.receiving_end()]
                .map(|end| end.cpu.map(|cpu| cpu.total_share())),
        }
    }

    /// Returns a run of the archive; `None` of one that does not count, or that has no rate.
    fn from_stored(document: &'r StoredDocument, facts: &StoredFacts) -> Option<Self> {
        let limit = facts
            .limit
            .clone()
            .and_then(|name| serde_json::from_value(name.into()).ok());
        Some(Self {
            name: short_id(&document.id),
            host: if document.peer.is_empty() {
                &document.campaign
            } else {
                &document.peer
            },
            started: &document.started,
            rate: facts.steady.or(facts.rate).filter(|_| facts.valid)?,
            loaded_rtt: facts.rtt_loaded,
            retransmits: facts.retransmits,
            limit: limit.unwrap_or(Limit::Unknown),
            streams: facts.streams,
            processors: [facts.cpu_sender, facts.cpu_receiver],
        })
    }

    fn host_name(&self) -> &str {
        if self.host.is_empty() {
            "emulated path"
        } else {
            self.host
        }
    }
}

/// Returns the article on at least one measurement.
pub(super) fn runs_article(measured: &[Named<'_>]) -> Article {
    let runs: Vec<RunSummary<'_>> = measured
        .iter()
        .copied()
        .map(RunSummary::from_measurement)
        .collect();
    let courses = (measured.len() <= MAX_COURSES).then(|| rates_over_time_section(measured));
    Article {
        origin: format!(
            "fullpipe report · {}",
            count_noun(runs.len(), "measurement")
        ),
        headline: runs_headline("measurement", &runs),
        sections: courses
            .into_iter()
            .chain(comparison_sections(&runs))
            .collect(),
        ..Article::default()
    }
}

/// Returns the article on documents of the archive, by their facts.
pub(super) fn stored_article(documents: &[StoredDocument]) -> Article {
    let runs = documents.iter().flat_map(|document| {
        let facts = document.facts.iter();
        facts.filter_map(move |facts| RunSummary::from_stored(document, facts))
    });
    let runs: Vec<RunSummary<'_>> = runs.collect();
    let all: usize = documents.iter().map(|document| document.facts.len()).sum();
    let sentence = match all - runs.len() {
        0 => None,
        1 => Some("1 run is not valid or has no rate, and takes no part.".to_owned()),
        many => Some(format!(
            "{many} runs are not valid or have no rate, and take no part."
        )),
    };
    Article {
        origin: format!(
            "fullpipe report · archive, {}",
            count_noun(documents.len(), "document")
        ),
        headline: runs_headline("run", &runs),
        sentences: sentence.into_iter().collect(),
        sections: comparison_sections(&runs),
        ..Article::default()
    }
}

fn runs_headline(name: &str, runs: &[RunSummary<'_>]) -> String {
    let all: Vec<BitRate> = runs.iter().map(|run| run.rate).collect();
    match (all.iter().min(), all.iter().max(), median(all.clone())) {
        (Some(least), Some(most), _) if least == most => {
            format!("{}: {least}", count_noun(runs.len(), name))
        }
        (Some(least), Some(most), Some(middle)) => {
            format!(
                "{}: {least} to {most}, median {middle}",
                count_noun(runs.len(), name)
            )
        }
        _ => format!("No {name} has a rate"),
    }
}

/// Returns sections that compare runs; none without any run.
fn comparison_sections(runs: &[RunSummary<'_>]) -> Vec<PageSection> {
    if runs.is_empty() {
        return Vec::new();
    }
    known_sections([
        rates_by_date_section(runs),
        Some(rates_by_host_section(runs)),
        Some(runs_by_limit_section(runs)),
        processors_by_streams_section(runs),
        Some(runs_table_section(runs)),
    ])
}

/// Returns the rates and round trips of a few over one axis of time.
fn rates_over_time_section(runs: &[Named<'_>]) -> PageSection {
    let (mut rate_panel, mut delay) = (Panel::new("rate"), Panel::new("round trip"));
    for ((name, run), hue) in runs.iter().zip(HUES) {
        rate_panel = rate_panel.with_labelled_points(name, Line, hue, arrival_rates(run));
        let loaded = run.rtt.loaded.map_text(|rtt| round_trip(rtt.median));
        delay = delay.with_series(round_trips(run, hue).with_name(name).with_label(&loaded));
    }
    let plot = Plot::new("Rates and round trips over time")
        .with_panel(rate_panel)
        .with_panel(delay);
    PageSection::new(
        "The courses on one axis of time",
        "Payload that arrived, and round trips.",
        plot,
    )
}

/// Returns a time in RFC 3339 as a moment of an axis; `None` of what is none, or lies before 1970.
pub(super) fn time_of(text: &str) -> Option<Time> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_nanosecond()).ok().map(Time::from_nanos)
}

/// Returns the rates by the time at which they were measured; `None` where fewer than two times are
/// known.
fn rates_by_date_section(runs: &[RunSummary<'_>]) -> Option<PageSection> {
    let known: Vec<(Time, &RunSummary<'_>)> = runs
        .iter()
        .filter_map(|run| Some((time_of(run.started)?, run)))
        .collect();
    let (first, last) = (
        known.iter().map(|(at, _)| *at).min()?,
        known.iter().map(|(at, _)| *at).max()?,
    );
    if last.duration_since(first) < Span::from_secs(1) {
        return None;
    }
    let points = known.iter().map(|(at, run)| (*at, run.rate));
    let delays = known
        .iter()
        .filter_map(|(at, run)| Some((*at, run.loaded_rtt?)));
    let plot = Plot::new("Rate and round-trip time by the time of the measurement")
        .with_panel(Panel::new("rate").with_points("rate", Dots, Blue, points))
        .with_panel(Panel::new("round trip under load").with_points(
            "round trip",
            Dots,
            Plum,
            delays,
        ));
    Some(PageSection::new(
        "Rate and round trip by the time of the measurement",
        "A dot a measurement; times are UTC.",
        plot,
    ))
}

/// Returns the rates of the runs of each host.
fn rates_by_host_section(runs: &[RunSummary<'_>]) -> PageSection {
    let hosts: BTreeSet<&str> = runs.iter().map(RunSummary::host_name).collect();
    let mut rows = RowChart::new("Rates by host", ["host", "median, range"]);
    for host in hosts {
        let own: Vec<BitRate> = runs
            .iter()
            .filter(|run| run.host_name() == host)
            .map(|run| run.rate)
            .collect();
        let (Some(least), Some(most)) = (own.iter().min().copied(), own.iter().max().copied())
        else {
            continue;
        };
        let middle = median(own.clone()).unwrap_or_default();
        let runs = count_noun(own.len(), "run");
        let detail = if least == most {
            runs
        } else {
            format!("{least} to {most}, {runs}")
        };
        rows = rows.with_row(
            ChartRow::from_dot(host, middle, Blue)
                .with_detail(&detail)
                .with_dots(own),
        );
    }
    PageSection::new(
        "Spread of the rates",
        "Small dots: measurements. Large dot: their median.",
        rows,
    )
}

/// Returns the number of runs by limit.
fn runs_by_limit_section(runs: &[RunSummary<'_>]) -> PageSection {
    let counts = count_each(runs.iter().map(|run| run.limit));
    let bars = counts
        .iter()
        .map(|(limit, count)| ChartRow::from_bar(limit.name(), *count, Grey));
    let rows = RowChart::new("Measurements by limit", ["limit", "measurements"]).with_rows(bars);
    let (most, count) = counts.first().copied().unwrap_or((Limit::Unknown, 0));
    let title = format!(
        "{count} of {} are limited by {}",
        runs.len(),
        limit_phrase(most)
    );
    PageSection::new(
        title,
        "The limit that each measurement was judged to have.",
        rows,
    )
}

/// Returns the processor time of both ends by streams; `None` where it is not known of two numbers
/// of streams.
fn processors_by_streams_section(runs: &[RunSummary<'_>]) -> Option<PageSection> {
    let [sender, receiver] = [0, 1].map(|end: usize| {
        runs.iter()
            .filter_map(|run| Some((u64::from(run.streams?), run.processors[end]?)))
            .collect::<Vec<_>>()
    });
    let numbers: BTreeSet<u64> = sender
        .iter()
        .chain(&receiver)
        .map(|(streams, _)| *streams)
        .collect();
    if numbers.len() < 2 {
        return None;
    }
    let most = max_percent(sender.iter().chain(&receiver));
    let plot = Plot::new("Processor time by streams")
        .with_axis_name("streams")
        .with_panel(processors_panel(sender, receiver));
    let title = format!("An end spends at most {most:.0} % of a core");
    Some(PageSection::new(
        title,
        "Processor time of each end by the number of streams; a dot a measurement.",
        plot,
    ))
}

fn runs_table_section(runs: &[RunSummary<'_>]) -> PageSection {
    let heads = "|from (UTC)|host|rate|RTT|retransmitted|streams|limit";
    let title = if runs.len() > MAX_ROWS {
        format!("The first {MAX_ROWS} runs")
    } else {
        "The runs".to_owned()
    };
    let rows = runs.iter().take(MAX_ROWS).map(|run| {
        cells![
            run.name,
            cut_time(run.started, "2026-03-12 10:00:00"),
            run.host_name(),
            run.rate,
            run.loaded_rtt.map_text(round_trip),
            or_empty(run.retransmits),
            or_empty(run.streams),
            run.limit.name()
        ]
    });
    PageSection::new(title, "", compact_table(heads, rows))
}

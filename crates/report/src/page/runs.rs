//! Several runs next to each other: over the days, by host, limit and streams, or over one axis of time.

use std::collections::BTreeSet;

use fullpipe_chart::{Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{Limit, Measurement, StoredDocument, StoredFacts};
use fullpipe_units::{BitRate, Ratio, SegCount, Span, Time, counted, median};

use super::course::{rate, rates, round_trips};
use super::transfer::phrase;
use super::{Article, Section, figures};
use crate::text::{round_trip, short_id};

/// Measurements whose courses are drawn over each other.
pub(super) const MAX_COURSES: usize = 4;

/// Rows of the table of runs.
const MAX_ROWS: usize = 200;

const HUES: [Hue; MAX_COURSES] = [Hue::Blue, Hue::Orange, Hue::Green, Hue::Plum];

/// A measurement with the name of its file.
type Named<'m> = (&'m str, &'m Measurement);

/// A run, as far as many are compared.
struct Run<'r> {
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

impl<'r> Run<'r> {
    fn of((name, measured): Named<'r>) -> Self {
        let share = |cpu: Option<fullpipe_record::Cpu>| cpu.map(|cpu| cpu.total());
        Self {
            name,
            host: &measured.peer.host,
            started: &measured.started,
            rate: rate(measured),
            loaded_rtt: measured.rtt.loaded.map(|rtt| rtt.median),
            retransmits: measured.summary.retransmits,
            limit: measured.limit.as_ref().map_or(Limit::Unknown, |verdict| verdict.kind),
            streams: Some(measured.request.streams),
            processors: [share(measured.sender().cpu), share(measured.receiver().cpu)],
        }
    }

    /// Returns a run of the archive; `None` of one that does not count, or that has no rate.
    fn stored(document: &'r StoredDocument, facts: &StoredFacts) -> Option<Self> {
        let limit = facts.limit.clone().and_then(|name| serde_json::from_value(name.into()).ok());
        Some(Self {
            name: short_id(&document.id),
            host: if document.peer.is_empty() { &document.campaign } else { &document.peer },
            started: &document.started,
            rate: facts.steady.or(facts.rate).filter(|_| facts.valid)?,
            loaded_rtt: facts.rtt_loaded,
            retransmits: facts.retransmits,
            limit: limit.unwrap_or(Limit::Unknown),
            streams: facts.streams,
            processors: [facts.cpu_sender, facts.cpu_receiver],
        })
    }

    fn host(&self) -> &str {
        if self.host.is_empty() { "emulated path" } else { self.host }
    }
}

/// Returns the article on at least one measurement.
pub(super) fn article(measured: &[Named<'_>]) -> Article {
    let runs: Vec<Run<'_>> = measured.iter().copied().map(Run::of).collect();
    let courses = (measured.len() <= MAX_COURSES).then(|| courses(measured));
    Article {
        origin: format!("fullpipe report · {}", counted(runs.len(), "measurement")),
        headline: headline("measurement", &runs),
        sections: courses.into_iter().chain(compared(&runs)).collect(),
        ..Article::default()
    }
}

/// Returns the article on documents of the archive, by their facts.
pub(super) fn stored(documents: &[StoredDocument]) -> Article {
    let facts = || documents.iter().flat_map(|document| document.facts.iter().map(move |facts| (document, facts)));
    let runs: Vec<Run<'_>> = facts().filter_map(|(document, facts)| Run::stored(document, facts)).collect();
    let left_out = facts().count() - runs.len();
    let sentence = match left_out {
        0 => None,
        1 => Some("1 run is not valid or has no rate, and takes no part.".to_owned()),
        many => Some(format!("{many} runs are not valid or have no rate, and take no part.")),
    };
    Article {
        origin: format!("fullpipe report · archive, {}", counted(documents.len(), "document")),
        headline: headline("run", &runs),
        sentences: sentence.into_iter().collect(),
        sections: compared(&runs),
        ..Article::default()
    }
}

fn headline(name: &str, runs: &[Run<'_>]) -> String {
    let all: Vec<BitRate> = runs.iter().map(|run| run.rate).collect();
    match (all.iter().min(), all.iter().max(), median(all.clone())) {
        (Some(least), Some(most), _) if least == most => format!("{}: {least}", counted(runs.len(), name)),
        (Some(least), Some(most), Some(middle)) => {
            format!("{}: {least} to {most}, median {middle}", counted(runs.len(), name))
        }
        _ => format!("No {name} has a rate"),
    }
}

/// Returns sections that compare runs; none without any run.
fn compared(runs: &[Run<'_>]) -> Vec<Section> {
    if runs.is_empty() {
        return Vec::new();
    }
    let mut sections: Vec<Section> = days(runs).into_iter().collect();
    sections.push(strip(runs));
    sections.push(limits(runs));
    sections.extend(processors(runs));
    sections.push(table(runs));
    sections
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

/// Returns a time in RFC 3339 as a moment of an axis; `None` of what is none, or lies before 1970.
pub(super) fn time_of(text: &str) -> Option<Time> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_nanosecond()).ok().map(Time::from_nanos)
}

/// Returns the rates by the time at which they were measured; `None` where fewer than two times are known.
fn days(runs: &[Run<'_>]) -> Option<Section> {
    let known: Vec<(Time, &Run<'_>)> = runs.iter().filter_map(|run| Some((time_of(run.started)?, run))).collect();
    let (first, last) = (known.iter().map(|(at, _)| *at).min()?, known.iter().map(|(at, _)| *at).max()?);
    if last.since(first) < Span::from_secs(1) {
        return None;
    }
    let points = known.iter().map(|(at, run)| (*at, run.rate));
    let delays = known.iter().filter_map(|(at, run)| Some((*at, run.loaded_rtt?)));
    let plot = Plot::new("Rate and round-trip time by the time of the measurement")
        .with(Panel::new("rate").with(Series::new("rate", Mark::Dots, Hue::Blue, points)))
        .with(Panel::new("round trip under load").with(Series::new("round trip", Mark::Dots, Hue::Plum, delays)));
    Some(Section::new(
        "Rate and round trip by the time of the measurement",
        "A dot a measurement; times are UTC.",
        plot,
    ))
}

/// Returns the rates of the runs of each host.
fn strip(runs: &[Run<'_>]) -> Section {
    let hosts: BTreeSet<&str> = runs.iter().map(Run::host).collect();
    let mut rows = Rows::new("Rates by host", ["host", "median, range"]);
    for host in hosts {
        let own: Vec<BitRate> = runs.iter().filter(|run| run.host() == host).map(|run| run.rate).collect();
        let (Some(least), Some(most)) = (own.iter().min().copied(), own.iter().max().copied()) else { continue };
        let middle = median(own.clone()).unwrap_or_default();
        let runs = counted(own.len(), "run");
        let detail = if least == most { runs } else { format!("{least} to {most}, {runs}") };
        rows = rows.with(Row::new(host, &middle.to_string(), Hue::Blue).detail(&detail).dots(own).dot(middle));
    }
    Section::new("Spread of the rates", "Small dots: measurements. Large dot: their median.", rows)
}

/// Returns the number of runs by limit.
fn limits(runs: &[Run<'_>]) -> Section {
    let mut counts: Vec<(Limit, u64)> = Vec::new();
    for run in runs {
        match counts.iter_mut().find(|(limit, _)| *limit == run.limit) {
            Some((_, count)) => *count += 1,
            None => counts.push((run.limit, 1)),
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

/// Returns the processor time of both ends by streams; `None` where it is not known of two numbers of streams.
fn processors(runs: &[Run<'_>]) -> Option<Section> {
    let of = |end: usize| {
        runs.iter().filter_map(move |run| Some((u64::from(run.streams?), run.processors[end]?))).collect::<Vec<_>>()
    };
    let [sender, receiver] = [of(0), of(1)];
    let numbers: BTreeSet<u64> = sender.iter().chain(&receiver).map(|(streams, _)| *streams).collect();
    if numbers.len() < 2 {
        return None;
    }
    let most = sender.iter().chain(&receiver).map(|(_, share)| share.percent()).fold(0.0, f64::max);
    let panel = Panel::new("processor time, of one core")
        .with(Series::new("receiver", Mark::Dots, Hue::Orange, receiver).labelled("receiver"))
        .with(Series::new("sender", Mark::Dots, Hue::Blue, sender).labelled("sender"));
    let plot = Plot::new("Processor time by streams").axis("streams").with(panel);
    let title = format!("An end spends at most {most:.0} % of a core");
    Some(Section::new(title, "Processor time of each end by the number of streams; a dot a measurement.", plot))
}

fn table(runs: &[Run<'_>]) -> Section {
    let row = |run: &Run<'_>| {
        [
            run.name.to_owned(),
            run.started.chars().take(19).collect::<String>().replace('T', " "),
            run.host().to_owned(),
            run.rate.to_string(),
            run.loaded_rtt.map_or_else(String::new, round_trip),
            run.retransmits.map_or_else(String::new, |count| count.get().to_string()),
            run.streams.map_or_else(String::new, |streams| streams.to_string()),
            run.limit.name().to_owned(),
        ]
    };
    let heads = ["", "from (UTC)", "host", "rate", "RTT", "retransmitted", "streams", "limit"];
    let title = if runs.len() > MAX_ROWS { format!("The first {MAX_ROWS} runs") } else { "The runs".to_owned() };
    Section::new(title, "", figures(heads, runs.iter().take(MAX_ROWS).map(row).collect()))
}

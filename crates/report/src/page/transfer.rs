//! A measurement, and what limited it.

use fullpipe_chart::{Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{
    Diagnosis, DiagnosisReport, Evidence, Limit, Measurement, Prediction, RampReport, RttStats, Sample, TimeAccount,
    TransferTimeShare, Verdict,
};
use fullpipe_units::{BitRate, ByteCount, Span, counted};

use super::course::{
    LevelChange, Snapshot, by_bytes, bytes, estimates, level_changes, levels, mean_so_far, note, of_end, rate, rates,
    round_trips, sent_again, snapshots,
};
use super::limits::{ceilings_over_time, held_back, processors};
use super::remedy::{effect, remedies, tried};
use super::{Article, Section, figures};
use crate::text::{UseOfTime, confidence, limit_name, main_use, round_trip, uses_of_time};

/// Growth of round trips that is worth a word, as a part of the idle one.
const GROWTH: f64 = 1.1;

/// Returns the article on one measurement.
pub(super) fn article(measured: &Measurement) -> Article {
    let limit = measured.limit.as_ref();
    Article {
        origin: origin(measured),
        headline: headline(rate(measured), limit),
        sentences: limit.map(|verdict| verdict.sentence.clone()).into_iter().chain(faults(measured)).collect(),
        facts: facts(measured),
        sections: sections(measured, None, limit),
        ..Article::default()
    }
}

/// Returns the article on a diagnosis: of the measurement, or else of the first transfer that was watched; `None`
/// without any.
pub(super) fn diagnosis(measured: Option<&Measurement>, report: &DiagnosisReport) -> Option<Article> {
    let first = report.transfers.first();
    let mut article = match (measured, first) {
        (Some(measured), _) => article(measured),
        (None, Some(first)) => watched(first),
        (None, None) => Article { origin: "watched connections".to_owned(), ..Article::default() },
    };
    if let Some(time) = &report.time {
        let section = time_section(time, report.command.is_some());
        if article.headline.is_empty() {
            article.headline.clone_from(&section.title);
        }
        article.sections.insert(0, section);
    } else if article.headline.is_empty() {
        return None;
    }
    if let Some(trial) = &report.trial {
        let before = measured.map(|before| effect(before, &trial.remedy, &trial.measurement));
        article.sections.splice(0..0, std::iter::once(tried(trial)).chain(before));
    }
    article.sections.extend(first.and_then(|first| remedies(&first.remedies)));
    article.sections.extend(first.and_then(|first| evidence(&first.verdict)));
    Some(article)
}

/// Returns the account of the time that was watched.
fn time_section(account: &TimeAccount, is_command: bool) -> Section {
    let row = |(name, time, figures): UseOfTime| {
        let figure = if figures.is_empty() { seconds(time) } else { format!("{}: {figures}", seconds(time)) };
        Row::new(name, &figure, Hue::Blue).bar(time)
    };
    let rows = Rows::new("Where the time went", ["use", "time"]);
    let rows = uses_of_time(account).into_iter().map(row).fold(rows, Rows::with);
    let method = "Each moment is booked once: data under way before requests, and those before waiting for the other \
                  program. Only the first gets shorter with the rate.";
    Section::new(main_use(account, is_command), method, rows)
}

/// Returns the account of the time of a transfer; `None` where it was not booked.
pub(super) fn transfer_time(verdict: &Verdict) -> Option<Section> {
    let longest = verdict.where_time_went.first()?;
    let row = |one: &TransferTimeShare| Row::new(one.used_for.text(), &seconds(one.time), Hue::Blue).bar(one.time);
    let rows = Rows::new("Where the time of the transfer went", ["use", "time"]);
    let rows = verdict.where_time_went.iter().map(row).fold(rows, Rows::with);
    let title = format!("Most of the transfer's time: {}", longest.used_for.text());
    let method = "Each moment between two samples is booked once, by what held the data back then; the mean of all \
                  streams.";
    Some(Section::new(title, method, rows))
}

fn watched(diagnosis: &Diagnosis) -> Article {
    let transfer = diagnosis.transfer.as_ref();
    let rate = transfer.map_or(BitRate::ZERO, |transfer| transfer.rate);
    let program = transfer.and_then(|transfer| transfer.program.clone()).unwrap_or_else(|| "a connection".to_owned());
    let remote = transfer.map(|transfer| transfer.remote.clone()).unwrap_or_default();
    let course = diagnosis.evidence.as_ref().map(|evidence| of_evidence(evidence, Some(&diagnosis.verdict)));
    let mut sections = course.unwrap_or_default();
    sections.extend(ceilings(&diagnosis.verdict, rate));
    sections.extend(transfer_time(&diagnosis.verdict));
    Article {
        origin: format!("{program} ↔ {remote}"),
        headline: headline(rate, Some(&diagnosis.verdict)),
        sentences: vec![diagnosis.verdict.sentence.clone()],
        facts: transfer
            .map(|seen| vec![(seen.bytes.to_string(), "moved while watched".to_owned())])
            .unwrap_or_default(),
        sections,
        ..Article::default()
    }
}

/// Returns the limit as a phrase: `the send buffer`.
pub(super) fn phrase(kind: Limit) -> String {
    let name = limit_name(kind).unwrap_or("nothing that was shown");
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn headline(rate: BitRate, limit: Option<&Verdict>) -> String {
    match limit {
        Some(verdict) if verdict.kind != Limit::Unknown => format!("{rate}: limited by {}", phrase(verdict.kind)),
        _ => rate.to_string(),
    }
}

fn origin(measured: &Measurement) -> String {
    let peer = if measured.peer.host.is_empty() { String::new() } else { format!(" to {}", measured.peer.host) };
    let streams = counted(measured.request.streams, "stream");
    let started: String = measured.started.chars().take(19).collect();
    let when = if started.is_empty() { String::new() } else { format!(" · {} UTC", started.replace('T', " ")) };
    format!("fullpipe{peer} · {streams}{when}")
}

/// Returns why a measurement does not count, and its warnings.
pub(super) fn faults(measured: &Measurement) -> impl Iterator<Item = String> {
    let broken = measured.validity.broken.iter().map(|why| format!("Not valid: {why}."));
    let off = measured.broken_off.iter().map(|why| format!("Broken off: {why}"));
    broken.chain(off).chain(measured.warnings.iter().map(|warning| format!("Warning: {warning}")))
}

fn facts(measured: &Measurement) -> Vec<(String, String)> {
    let part = if measured.summary.steady.is_some() { "steady part" } else { "mean" };
    let mut facts = vec![(rate(measured).to_string(), format!("payload that arrived, {part}"))];
    facts.extend(inflation(measured).map(|growth| (growth, "round trip, idle and under load".to_owned())));
    if let Some(count) = measured.summary.retransmits {
        facts.push((count.get().to_string(), "segments retransmitted".to_owned()));
    } else if let Some(seen) = measured.summary.datagrams {
        facts.push((seen.lost.to_string(), format!("datagrams lost, {} arrived", seen.received)));
    }
    let summary = &measured.summary;
    facts.push((summary.received.to_string(), format!("arrived in {:.1} s", summary.duration.as_secs_f64())));
    facts
}

/// Returns the median round-trip times as `100 → 178 ms`.
fn inflation(measured: &Measurement) -> Option<String> {
    let [idle, loaded] = [measured.rtt.idle, measured.rtt.loaded].map(|rtt| rtt.map(|rtt| round_trip(rtt.median)));
    match (idle, loaded) {
        (Some(idle), Some(loaded)) => Some(from_to(&idle, &loaded)),
        (one, other) => one.or(other),
    }
}

/// Returns two figures with an arrow, their unit once if it is the same: `100 → 178 ms`.
pub(super) fn from_to(from: &str, to: &str) -> String {
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} → {to}"),
        _ => format!("{from} → {to}"),
    }
}

/// Returns the sections on one measurement.
pub(super) fn sections(
    measured: &Measurement,
    predicted: Option<&Prediction>,
    limit: Option<&Verdict>,
) -> Vec<Section> {
    let sender = of_end(measured, measured.sender());
    let mut sections = vec![over_time(measured, predicted)];
    sections.extend(flight(&sender, limit, bdp(predicted)));
    sections.extend(held_back(&sender, limit));
    sections.extend(ceilings_over_time(measured, limit));
    sections.extend(limit.and_then(|limit| ceilings(limit, rate(measured))));
    sections.extend(limit.and_then(transfer_time));
    sections.extend(distributions(measured));
    sections.extend(streams(measured));
    sections.extend(processors(measured));
    sections
}

fn bdp(predicted: Option<&Prediction>) -> Option<ByteCount> {
    predicted.and_then(|prediction| prediction.bdp)
}

/// Returns the rate and the round-trip time over time.
fn over_time(measured: &Measurement, predicted: Option<&Prediction>) -> Section {
    let mut rate_panel = Panel::new("rate");
    let steady = measured.summary.steady;
    let label = steady.map_or_else(String::new, |steady| format!("steady {}", steady.rate));
    let course = rates(measured);
    let ramp = steady.map_or(Span::ZERO, |steady| steady.ramp);
    let changes = level_changes(&course, ramp);
    let end = course.last().map_or(ramp, |(at, _)| *at);
    let mean = mean_so_far(&course);
    rate_panel = rate_panel
        .with(Series::new("mean so far", Mark::Line, Hue::Grey, mean).labelled("mean so far"))
        .with(Series::new("rate", Mark::Line, Hue::Blue, course).labelled(&label))
        .with(levels(&changes, ramp, end));
    if let Some(prediction) = predicted {
        rate_panel = rate_panel.level(prediction.kernel_model, &format!("predicted {}", prediction.kernel_model));
    }
    let loaded = measured.rtt.loaded.map_or_else(String::new, |rtt| format!("median {}", round_trip(rtt.median)));
    let mut delay = Panel::new("round trip").with(round_trips(measured, Hue::Plum).labelled(&loaded));
    if let Some(idle) = measured.rtt.idle {
        delay = delay.level(idle.median, &format!("idle {}", round_trip(idle.median)));
    }
    let again = sent_again(&of_end(measured, measured.sender()));
    let again = Series::ranges("retransmitted", Hue::Orange, again.into_iter().map(|(at, segments)| (at, 0, segments)));
    let mut plot = Plot::new("Rate and round-trip time over time").with(rate_panel).with(delay);
    plot = plot.with(Panel::new("segments retransmitted").with(again));
    if let Some(steady) = steady.filter(|steady| steady.ramp > Span::ZERO) {
        plot = plot.shade(Span::ZERO, steady.ramp, &format!("ramp {}", seconds(steady.ramp)));
    }
    let method = "Payload that arrived, and round trips on the same axis of time; dotted: predicted, and idle";
    Section::new(course_title(measured) + &changed(&changes), &format!("{method}{}.", note(&changes)), plot)
}

fn seconds(span: Span) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

/// Returns the changes of level as the end of a title.
fn changed(changes: &[LevelChange]) -> String {
    match changes {
        [] => String::new(),
        [one] => {
            format!("; at {} {}", seconds(one.at), from_to(&one.before.to_string(), &one.after.to_string()))
        }
        many => format!("; {} changes of level", many.len()),
    }
}

fn course_title(measured: &Measurement) -> String {
    let rate = match measured.summary.steady {
        Some(steady) => format!("Steady at {} after {}", steady.rate, seconds(steady.ramp)),
        None => format!("{} over the whole time", measured.summary.rate),
    };
    let Some((idle, loaded)) = measured.rtt.idle.zip(measured.rtt.loaded) else { return rate };
    let [before, during] = [idle.median, loaded.median].map(round_trip);
    if loaded.median.as_secs_f64() > idle.median.as_secs_f64() * GROWTH {
        format!("{rate}; round trips grow from {before} to {during}")
    } else {
        format!("{rate}; round trips stay at {during}")
    }
}

/// Returns the data in flight against the windows; `None` where it is not known.
fn flight(sender: &[Snapshot<'_>], limit: Option<&Verdict>, bdp: Option<ByteCount>) -> Option<Section> {
    let in_flight = bytes(sender, Sample::outstanding);
    let most = in_flight.iter().map(|(_, size)| *size).max()?;
    let advertised = bytes(sender, |sample| sample.tcp.snd_wnd);
    let congestion = bytes(sender, Sample::congestion_window);
    let window = advertised.iter().map(|(_, size)| *size).max();
    let shown = |size: Option<ByteCount>, or: &str| size.map_or_else(|| or.to_owned(), |size| size.to_string());
    let mut panel = Panel::new("data")
        .with(Series::new("in flight", Mark::Line, Hue::Blue, in_flight).labelled("in flight"))
        .with(Series::new("congestion window", Mark::Line, Hue::Green, congestion).labelled("congestion window"))
        .with(Series::new("advertised window", Mark::Steps, Hue::Orange, advertised).labelled("advertised window"));
    if let Some(bdp) = bdp {
        panel = panel.level(bdp, &format!("BDP {bdp}"));
    }
    let reaches = limit.is_some_and(|verdict| verdict.kind == Limit::ReceiveWindow);
    let window = shown(window, "not known");
    let title = if reaches {
        format!("Up to {most} in flight: all that the advertised window of {window} permits")
    } else {
        format!("Up to {most} in flight; the advertised window is {window}")
    };
    let method = "All streams together: data sent and not yet acknowledged, against the windows.";
    Some(Section::new(title, method, Plot::new("Data in flight and windows over time").with(panel)))
}

/// Returns the ceilings of a verdict, the lowest first, and the rate that was measured; `None` without ceilings.
pub(super) fn ceilings(verdict: &Verdict, measured: BitRate) -> Option<Section> {
    let mut all: Vec<(Limit, BitRate)> = verdict.ceilings.iter().map(|(kind, rate)| (*kind, *rate)).collect();
    all.sort_by_key(|(_, rate)| *rate);
    let (lowest, least) = *all.first()?;
    let mut rows = Rows::new("Ceilings", ["limit", "rate that it allows"]);
    rows = rows.with(Row::new("measured", &measured.to_string(), Hue::Blue).bar(measured));
    for (kind, rate) in all {
        let (hue, mark) = match kind {
            _ if kind == verdict.kind => (Hue::Orange, ", the limit"),
            _ if rate < measured => (Hue::Grey, ", exceeded"),
            _ => (Hue::Grey, ""),
        };
        rows = rows.with(Row::new(kind.name(), &format!("{rate}{mark}"), hue).bar(rate));
    }
    let title = match verdict.ceilings.get(&verdict.kind) {
        Some(own) if lowest != verdict.kind => format!("The ceiling of {} is the limit: {own}", phrase(verdict.kind)),
        _ => format!("Of all ceilings, that of {} is the lowest: {least}", phrase(lowest)),
    };
    Some(Section::new(title, "Payload that each limit would allow on its own, by the evidence of this transfer.", rows))
}

/// Returns the round trips of echo requests without and under load; `None` where either are not known.
fn distributions(measured: &Measurement) -> Option<Section> {
    let echoes = measured.rtt.echoes.as_ref()?;
    let load = echoes.load;
    let of = |from: Span, to: Span| -> Vec<Span> {
        let within = echoes.samples.iter().filter(|echo| echo.at >= from && echo.at < to);
        within.filter_map(|echo| echo.rtt).collect()
    };
    let (idle, loaded) = (of(Span::ZERO, load.began), of(load.from, load.to));
    let (before, during) = (measured.rtt.idle?, measured.rtt.loaded?);
    if idle.is_empty() || loaded.is_empty() {
        return None;
    }
    let panel = Panel::new("share of the round trips that are shorter")
        .with(Series::distribution("idle", Hue::Blue, idle).labelled(&format!("idle, p99 {}", round_trip(before.p99))))
        .with(
            Series::distribution("loaded", Hue::Plum, loaded)
                .labelled(&format!("loaded, p99 {}", round_trip(during.p99))),
        );
    let title = format!(
        "Half of the round trips take more than {} under load, and {} without",
        round_trip(during.median),
        round_trip(before.median)
    );
    let plot = Plot::new("Round-trip times, idle and loaded").axis("round trip").with(panel);
    Some(Section::new(title, "Echo requests before the load and during it, on one scale.", plot))
}

/// Returns the rate of each stream; `None` of a single one.
fn streams(measured: &Measurement) -> Option<Section> {
    let duration = measured.summary.duration;
    if measured.streams.len() < 2 || duration == Span::ZERO {
        return None;
    }
    let mut rows = Rows::new("Rate of each stream", ["stream", "rate"]);
    for stream in &measured.streams {
        let rate = BitRate::of(stream.received, duration);
        let again = stream.retransmits.filter(|count| count.get() > 0);
        let again = again.map_or_else(String::new, |count| format!(", {} retransmitted", count.get()));
        rows = rows.with(Row::new(&stream.stream.to_string(), &format!("{rate}{again}"), Hue::Blue).bar(rate));
    }
    let all = measured.streams.iter().map(|stream| BitRate::of(stream.received, duration));
    let (least, most) = (all.clone().min()?, all.max()?);
    let title = format!("The {} streams move {least} to {most} each", measured.streams.len());
    Some(Section::new(title, "Payload of each stream that arrived, over the whole time.", rows))
}

/// Returns the figures that decided; `None` without any.
pub(super) fn evidence(verdict: &Verdict) -> Option<Section> {
    let rows: Vec<[String; 2]> = verdict.evidence.iter().map(|(name, figure)| [name.clone(), figure.clone()]).collect();
    let title = format!("What shows it, with a confidence of {}", confidence(verdict.confidence));
    (!rows.is_empty()).then(|| Section::new(title, "", figures(["figure", "value"], rows)))
}

/// Returns the sections on a transfer that was watched or captured, of which the evidence is all that is known.
pub(super) fn of_evidence(evidence: &Evidence, limit: Option<&Verdict>) -> Vec<Section> {
    let streams = evidence.request.streams.max(1);
    let sender = snapshots(&evidence.sender_samples, u16::MAX);
    let receiver = snapshots(&evidence.receiver_samples, u16::MAX);
    let round = evidence.idle_rtt.unwrap_or_default();
    let mut passed = by_bytes(&sender, round, |sample| sample.tcp.bytes_acked.or(Some(sample.bytes)));
    if passed.len() < 2 {
        passed = by_bytes(&receiver, round, |sample| Some(sample.bytes));
    }
    let mut rate = Panel::new("rate").with(Series::new("rate", Mark::Line, Hue::Blue, passed));
    if let Some(bandwidth) = evidence.bandwidth {
        rate = rate.level(bandwidth, &format!("bandwidth {bandwidth}"));
    }
    let mut delay = Panel::new("round trip").with(estimates(&sender, Hue::Plum));
    if let Some(idle) = evidence.idle_rtt {
        delay = delay.level(idle, &format!("least {}", round_trip(idle)));
    }
    let again = sent_again(&sender).into_iter().map(|(at, segments)| (at, 0, segments));
    let plot = Plot::new("Rate and round-trip time over time")
        .with(rate)
        .with(delay)
        .with(Panel::new("segments retransmitted").with(Series::ranges("retransmitted", Hue::Orange, again)));
    let title = match streams {
        1 => "Rate and round trips over time".to_owned(),
        many => format!("Rate and round trips of {many} connections over time"),
    };
    let mut sections = vec![Section::new(title, "Data that was acknowledged, and round trips on the same axis.", plot)];
    sections.extend(flight(&sender, limit, None));
    sections.extend(sequence(&sender));
    sections.extend(held_back(&sender, limit));
    sections
}

/// Returns the time–sequence graph of the whole transfer: acknowledged data, what is in flight, and the window's edge.
fn sequence(sender: &[Snapshot<'_>]) -> Option<Section> {
    let acknowledged = bytes(sender, |sample| sample.tcp.bytes_acked);
    let (at, last) = *acknowledged.last()?;
    let edge = bytes(sender, |sample| Some(sample.tcp.bytes_acked? + sample.tcp.snd_wnd?));
    let sent = sender.iter().filter_map(|one| {
        let acked = one.sum(|sample| sample.tcp.bytes_acked)?;
        Some((one.at, acked, acked + one.sum(Sample::outstanding)?))
    });
    let panel = Panel::new("data")
        .with(Series::ranges("in flight", Hue::Blue, sent).labelled(""))
        .with(Series::new("acknowledged", Mark::Steps, Hue::Green, acknowledged).labelled("acknowledged"))
        .with(Series::new("window's edge", Mark::Steps, Hue::Orange, edge).labelled("window's edge"));
    let title = format!("Time–sequence: {last} acknowledged in {}", seconds(at));
    let method =
        "Data by its place in the stream: acknowledged, in flight (vertical lines), and the edge of the window.";
    Some(Section::new(title, method, Plot::new("Time–sequence graph").with(panel)))
}

/// Returns the article on a load that grows.
pub(super) fn ramp(report: &RampReport) -> Article {
    Article {
        origin: "fullpipe measure --ramp".to_owned(),
        headline: knee(report),
        sections: vec![by_load(report)],
        ..Article::default()
    }
}

fn knee(report: &RampReport) -> String {
    match (report.slower_from, report.loses_from) {
        (Some(slower), Some(loses)) => format!("Round trips grow from {slower} on; data is lost from {loses} on"),
        (Some(slower), None) => format!("Round trips grow from {slower} on; nothing is lost"),
        (None, Some(loses)) => format!("Data is lost from {loses} on; round trips stay"),
        (None, None) => "Neither round trips nor losses grow with the load".to_owned(),
    }
}

/// Returns carried rate, round trips and loss by offered load.
pub(super) fn by_load(report: &RampReport) -> Section {
    let delay = |figure: fn(&RttStats) -> Span| {
        report.steps.iter().filter_map(move |step| Some((step.offered, figure(step.rtt.as_ref()?))))
    };
    let carried = report.steps.iter().map(|step| (step.offered, step.carried));
    let lost = report.steps.iter().filter_map(|step| Some((step.offered, step.loss?)));
    let mut delays = Panel::new("round trip")
        .with(Series::new("p99", Mark::Line, Hue::Grey, delay(|rtt| rtt.p99)).labelled("p99"))
        .with(Series::new("median", Mark::Line, Hue::Plum, delay(|rtt| rtt.median)).labelled("median"));
    if let Some(idle) = report.idle {
        delays = delays.level(idle.median, &format!("idle {}", round_trip(idle.median)));
    }
    let plot = Plot::new("Rate, round-trip time and loss by offered load")
        .axis("offered load")
        .with(Panel::new("carried").with(Series::new("carried", Mark::Line, Hue::Blue, carried)))
        .with(delays)
        .with(Panel::new("lost").with(Series::new("lost", Mark::Line, Hue::Orange, lost)));
    Section::new(knee(report), "A point for each step: carried rate, round trips and loss by offered load.", plot)
}

//! A measurement, and what limited it.

use fullpipe_record::{
    Diagnosis, DiagnosisReport, Evidence, Prediction, RampReport, RttStats, Sample, TimeAccount,
    Verdict,
};

use super::course::{
    LevelChange, SampleSnapshot, arrival_rates, by_bytes, figure_over_time, level_changes,
    level_note, level_series, mean_so_far, of_end, round_trips, rtt_distributions,
    sample_snapshots, smoothed_rtt_series, transfer_plot,
};
use super::limits::{ceilings_over_time, held_back, processor_time_section};
use super::prelude::*;
use super::remedy::{effect_section, remedies_section, trial_section};
use crate::chart::join_figures;
use crate::text::{
    confidence_percent, cut_time, limit_name, main_use, sorted_ceilings, uses_of_time,
};

/// Growth of round trips that is worth a word, as a part of the idle one.
const GROWTH: f64 = 1.1;

/// Returns the article on one measurement.
pub(super) fn transfer_article(measured: &Measurement) -> Article {
    let limit = measured.limit.as_ref();
    Article {
        origin: transfer_origin(measured),
        headline: transfer_headline(measured.summary.steady_or_mean_rate(), limit),
        sentences: limit
            .map(|verdict| verdict.sentence.clone())
            .into_iter()
            .chain(measurement_faults(measured))
            .collect(),
        facts: transfer_facts(measured),
        sections: transfer_sections(measured, None, limit),
        ..Article::default()
    }
}

/// Returns the article on a diagnosis: of the measurement, or else of the first transfer that was
/// watched; `None` without any.
pub(super) fn diagnosis_article(
    measured: Option<&Measurement>,
    report: &DiagnosisReport,
) -> Option<Article> {
    let first = report.transfers.first();
    let mut article = match (measured, first) {
        (Some(measured), _) => transfer_article(measured),
        (None, Some(first)) => watched_article(first),
        (None, None) => Article {
            origin: "watched connections".to_owned(),
            ..Article::default()
        },
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
        let before =
            measured.map(|before| effect_section(before, &trial.remedy, &trial.measurement));
        article
            .sections
            .splice(0..0, std::iter::once(trial_section(trial)).chain(before));
    }
    article
        .sections
        .extend(first.and_then(|first| remedies_section(&first.remedies)));
    article
        .sections
        .extend(first.and_then(|first| evidence_section(&first.verdict)));
    Some(article)
}

/// Returns the account of the time that was watched.
fn time_section(account: &TimeAccount, is_command: bool) -> PageSection {
    let bars = uses_of_time(account)
        .into_iter()
        .map(|(name, time, figures)| {
            let figure = if figures.is_empty() {
                seconds(time)
            } else {
                format!("{}: {figures}", seconds(time))
            };
            ChartRow::new(name, &figure, Blue).with_bar(time)
        });
    let rows = RowChart::new("Where the time went", ["use", "time"]).with_rows(bars);
    let method = "Each moment is booked once: data under way before requests, and those before waiting for the other \
                  program. Only the first gets shorter with the rate.";
    PageSection::new(main_use(account, is_command), method, rows)
}

/// Returns the account of the time of a transfer; `None` where it was not booked.
fn transfer_time(verdict: &Verdict) -> Option<PageSection> {
    let longest = verdict.where_time_went.first()?;
    let bars = verdict
        .where_time_went
        .iter()
        .map(|one| ChartRow::new(one.used_for.text(), &seconds(one.time), Blue).with_bar(one.time));
    let rows =
        RowChart::new("Where the time of the transfer went", ["use", "time"]).with_rows(bars);
    let title = format!("Most of the transfer's time: {}", longest.used_for.text());
    let method = "Each moment between two samples is booked once, by what held the data back then; the mean of all \
                  streams.";
    Some(PageSection::new(title, method, rows))
}

fn watched_article(diagnosis: &Diagnosis) -> Article {
    let transfer = diagnosis.transfer.as_ref();
    let rate = transfer.map_or(BitRate::ZERO, |transfer| transfer.rate);
    let program = transfer
        .and_then(|transfer| transfer.program.clone())
        .unwrap_or_else(|| "a connection".to_owned());
    let remote = transfer
        .map(|transfer| transfer.remote.clone())
        .unwrap_or_default();
    Article {
        origin: format!("{program} ↔ {remote}"),
        headline: transfer_headline(rate, Some(&diagnosis.verdict)),
        sentences: vec![diagnosis.verdict.sentence.clone()],
        facts: transfer
            .map(|seen| vec![fact(seen.bytes, "moved while watched")])
            .unwrap_or_default(),
        sections: watched_sections(diagnosis, rate),
        ..Article::default()
    }
}

/// Returns the sections on a transfer that was watched or captured, with this rate.
pub(super) fn watched_sections(diagnosis: &Diagnosis, rate: BitRate) -> Vec<PageSection> {
    let verdict = &diagnosis.verdict;
    let evidence = diagnosis.evidence.as_ref();
    let course = evidence.map(|evidence| of_evidence(evidence, Some(verdict)));
    let mut sections = course.unwrap_or_default();
    sections.extend(ceilings_section(verdict, rate));
    sections.extend(transfer_time(verdict));
    sections
}

/// Returns the limit as a phrase: `the send buffer`.
pub(super) fn limit_phrase(kind: Limit) -> String {
    let name = limit_name(kind).unwrap_or("nothing that was shown");
    let mut letters = name.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().chain(letters).collect())
        .unwrap_or_default()
}

fn transfer_headline(rate: BitRate, limit: Option<&Verdict>) -> String {
    match limit {
        Some(verdict) if verdict.kind != Limit::Unknown => {
            format!("{rate}: limited by {}", limit_phrase(verdict.kind))
        }
        _ => rate.to_string(),
    }
}

fn transfer_origin(measured: &Measurement) -> String {
    let host = &measured.peer.host;
    let peer = format_if(!host.is_empty(), || format!(" to {host}"));
    let streams = count_noun(measured.request.streams, "stream");
    let started = cut_time(&measured.started, "2026-03-12 10:00:00");
    let when = format_if(!started.is_empty(), || format!(" · {started} UTC"));
    format!("fullpipe{peer} · {streams}{when}")
}

/// Returns why a measurement does not count, and its warnings.
pub(super) fn measurement_faults(measured: &Measurement) -> impl Iterator<Item = String> {
    let broken = measured
        .validity
        .broken
        .iter()
        .map(|why| format!("Not valid: {why}."));
    let off = measured
        .broken_off
        .iter()
        .map(|why| format!("Broken off: {why}"));
    broken.chain(off).chain(
        measured
            .warnings
            .iter()
            .map(|warning| format!("Warning: {warning}")),
    )
}

fn transfer_facts(measured: &Measurement) -> Vec<(String, String)> {
    let summary = &measured.summary;
    let part = summary.steady.map_or("mean", |_| "steady part");
    let mut facts = vec![fact(
        summary.steady_or_mean_rate(),
        format!("payload that arrived, {part}"),
    )];
    facts.extend(
        rtt_inflation(measured).map(|growth| fact(growth, "round trip, idle and under load")),
    );
    if let Some(count) = summary.retransmits {
        facts.push(fact(count.get(), "segments retransmitted"));
    } else if let Some(seen) = summary.datagrams {
        facts.push(fact(
            seen.lost,
            format!("datagrams lost, {} arrived", seen.received),
        ));
    }
    facts.push(fact(
        summary.received,
        format!("arrived in {:.1} s", summary.duration.as_secs_f64()),
    ));
    facts
}

/// Returns the median round-trip times as `100 → 178 ms`.
fn rtt_inflation(measured: &Measurement) -> Option<String> {
    let [idle, loaded] =
        [measured.rtt.idle, measured.rtt.loaded].map(|rtt| rtt.map(|rtt| round_trip(rtt.median)));
    match (idle, loaded) {
        (Some(idle), Some(loaded)) => Some(from_to(&idle, &loaded)),
        (one, other) => one.or(other),
    }
}

/// Returns two figures with an arrow, their unit once if it is the same: `100 → 178 ms`.
pub(super) fn from_to(from: &str, to: &str) -> String {
    join_figures(from, "→", to)
}

/// Returns the sections on one measurement.
pub(super) fn transfer_sections(
    measured: &Measurement,
    predicted: Option<&Prediction>,
    limit: Option<&Verdict>,
) -> Vec<PageSection> {
    let sender = of_end(measured, measured.sending_end());
    let bdp = predicted.and_then(|prediction| prediction.bdp);
    let rate = measured.summary.steady_or_mean_rate();
    known_sections([
        Some(over_time(measured, predicted)),
        flight_section(&sender, limit, bdp),
        held_back(&sender, limit),
        ceilings_over_time(measured, limit),
        limit.and_then(|limit| ceilings_section(limit, rate)),
        limit.and_then(transfer_time),
        echo_rtt_section(measured),
        stream_rates_section(measured),
        processor_time_section(measured),
    ])
}

/// Returns the rate and the round-trip time over time.
fn over_time(measured: &Measurement, predicted: Option<&Prediction>) -> PageSection {
    let steady = measured.summary.steady;
    let course = arrival_rates(measured);
    let ramp = steady.map_or(Span::ZERO, |steady| steady.ramp);
    let changes = level_changes(&course, ramp);
    let end = course.last().map_or(ramp, |(at, _)| *at);
    let label = steady.map_text(|steady| format!("steady {}", steady.rate));
    let mut rate_panel = Panel::new("rate")
        .with_labelled_points("mean so far", Line, Grey, mean_so_far(&course))
        .with_series(PlotSeries::new("rate", Line, Blue, course).with_label(&label))
        .with_series(level_series(&changes, ramp, end));
    if let Some(Prediction { kernel_model, .. }) = predicted {
        rate_panel = rate_panel.with_level(*kernel_model, &format!("predicted {kernel_model}"));
    }
    let delay = rtt_panel(measured);
    let mut plot = transfer_plot(rate_panel, delay, &of_end(measured, measured.sending_end()));
    if ramp > Span::ZERO {
        plot = plot.with_shade(Span::ZERO, ramp, &format!("ramp {}", seconds(ramp)));
    }
    let method = "Payload that arrived, and round trips on the same axis of time; dotted: predicted, and idle";
    PageSection::new(
        course_title(measured) + &level_changes_suffix(&changes),
        &format!("{method}{}.", level_note(&changes)),
        plot,
    )
}

/// Returns the round trips under load, and the level of those without.
fn rtt_panel(measured: &Measurement) -> Panel {
    let loaded = measured.rtt.loaded;
    let label = loaded.map_text(|rtt| format!("median {}", round_trip(rtt.median)));
    let panel =
        Panel::new("round trip").with_series(round_trips(measured, Plum).with_label(&label));
    match measured.rtt.idle {
        Some(idle) => panel.with_level(idle.median, &format!("idle {}", round_trip(idle.median))),
        None => panel,
    }
}

fn seconds(span: Span) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

/// Returns the changes of level as the end of a title.
fn level_changes_suffix(changes: &[LevelChange]) -> String {
    match changes {
        [] => String::new(),
        [one] => {
            format!(
                "; at {} {}",
                seconds(one.at),
                from_to(&one.before.to_string(), &one.after.to_string())
            )
        }
        many => format!("; {} changes of level", many.len()),
    }
}

fn course_title(measured: &Measurement) -> String {
    let rate = match measured.summary.steady {
        Some(steady) => format!("Steady at {} after {}", steady.rate, seconds(steady.ramp)),
        None => format!("{} over the whole time", measured.summary.rate),
    };
    let Some((idle, loaded)) = measured.rtt.idle.zip(measured.rtt.loaded) else {
        return rate;
    };
    let [before, during] = [idle.median, loaded.median].map(round_trip);
    if loaded.median.as_secs_f64() > idle.median.as_secs_f64() * GROWTH {
        format!("{rate}; round trips grow from {before} to {during}")
    } else {
        format!("{rate}; round trips stay at {during}")
    }
}

/// Returns the data in flight against the windows; `None` where it is not known.
fn flight_section(
    sender: &[SampleSnapshot<'_>],
    limit: Option<&Verdict>,
    bdp: Option<ByteCount>,
) -> Option<PageSection> {
    let in_flight = figure_over_time(sender, Sample::outstanding_bytes);
    let most = in_flight.iter().map(|(_, size)| *size).max()?;
    let advertised = figure_over_time(sender, |sample| sample.tcp.snd_wnd);
    let congestion = figure_over_time(sender, Sample::congestion_window);
    let window = advertised.iter().map(|(_, size)| *size).max();
    let mut panel = Panel::new("data")
        .with_labelled_points("in flight", Line, Blue, in_flight)
        .with_labelled_points("congestion window", Line, Green, congestion)
        .with_labelled_points("advertised window", Steps, Orange, advertised);
    if let Some(bdp) = bdp {
        panel = panel.with_level(bdp, &format!("BDP {bdp}"));
    }
    let reaches = limit.is_some_and(|verdict| verdict.kind == Limit::ReceiveWindow);
    let window = text_or(window, "not known");
    let title = if reaches {
        format!("Up to {most} in flight: all that the advertised window of {window} permits")
    } else {
        format!("Up to {most} in flight; the advertised window is {window}")
    };
    let method = "All streams together: data sent and not yet acknowledged, against the windows.";
    Some(PageSection::new(
        title,
        method,
        Plot::new("Data in flight and windows over time").with_panel(panel),
    ))
}

/// Returns the ceilings of a verdict, the lowest first, and the rate that was measured; `None`
/// without ceilings.
fn ceilings_section(verdict: &Verdict, measured: BitRate) -> Option<PageSection> {
    let all = sorted_ceilings(verdict);
    let (lowest, least) = *all.first()?;
    let mut rows = RowChart::new("Ceilings", ["limit", "rate that it allows"]);
    rows = rows.with_row(ChartRow::from_bar("measured", measured, Blue));
    for (kind, rate) in all {
        let (hue, mark) = match kind {
            _ if kind == verdict.kind => (Orange, ", the limit"),
            _ if rate < measured => (Grey, ", exceeded"),
            _ => (Grey, ""),
        };
        rows =
            rows.with_row(ChartRow::new(kind.name(), &format!("{rate}{mark}"), hue).with_bar(rate));
    }
    let title = match verdict.ceilings.get(&verdict.kind) {
        Some(own) if lowest != verdict.kind => {
            format!(
                "The ceiling of {} is the limit: {own}",
                limit_phrase(verdict.kind)
            )
        }
        _ => format!(
            "Of all ceilings, that of {} is the lowest: {least}",
            limit_phrase(lowest)
        ),
    };
    Some(PageSection::new(
        title,
        "Payload that each limit would allow on its own, by the evidence of this transfer.",
        rows,
    ))
}

/// Returns the round trips of echo requests without and under load; `None` where either are not
/// known.
fn echo_rtt_section(measured: &Measurement) -> Option<PageSection> {
    let echoes = measured.rtt.echoes.as_ref()?;
    let load = echoes.load;
    let times = [Span::ZERO..load.began, load.from..load.to];
    let [idle, loaded] = times.map(|time| -> Vec<Span> {
        let within = echoes.samples.iter().filter(|echo| time.contains(&echo.at));
        within.filter_map(|echo| echo.rtt).collect()
    });
    let (before, during) = (measured.rtt.idle?, measured.rtt.loaded?);
    if idle.is_empty() || loaded.is_empty() {
        return None;
    }

    let [without, under] = [before, during].map(|rtt| round_trip(rtt.median));
    let title =
        format!("Half of the round trips take more than {under} under load, and {without} without");
    let [before, during] = [before, during].map(|rtt| format!("p99 {}", round_trip(rtt.p99)));
    let plot = rtt_distributions(
        "Round-trip times, idle and loaded",
        "share of the round trips that are shorter",
        [(idle, before), (loaded, during)],
    );
    Some(PageSection::new(
        title,
        "Echo requests before the load and during it, on one scale.",
        plot,
    ))
}

/// Returns the rate of each stream; `None` of a single one.
fn stream_rates_section(measured: &Measurement) -> Option<PageSection> {
    let (streams, duration) = (&measured.streams, measured.summary.duration);
    if streams.len() < 2 || duration == Span::ZERO {
        return None;
    }
    let mut rows = RowChart::new("Rate of each stream", ["stream", "rate"]);
    for stream in streams {
        let rate = BitRate::from_bytes_in(stream.received, duration);
        let again = stream.retransmits.filter(|count| count.get() > 0);
        let again = again.map_text(|count| format!(", {} retransmitted", count.get()));
        let figure = format!("{rate}{again}");
        let row = ChartRow::new(&stream.stream.to_string(), &figure, Blue);
        rows = rows.with_row(row.with_bar(rate));
    }
    let all = streams
        .iter()
        .map(|stream| BitRate::from_bytes_in(stream.received, duration));
    let (least, most) = (all.clone().min()?, all.max()?);
    let title = format!("The {} streams move {least} to {most} each", streams.len());
    let method = "Payload of each stream that arrived, over the whole time.";
    Some(PageSection::new(title, method, rows))
}

/// Returns the figures that decided; `None` without any.
pub(super) fn evidence_section(verdict: &Verdict) -> Option<PageSection> {
    let rows: Vec<[String; 2]> = verdict
        .evidence
        .iter()
        .map(|(name, figure)| cells![name, figure])
        .collect();
    let title = format!(
        "What shows it, with a confidence of {}",
        confidence_percent(verdict.confidence)
    );
    (!rows.is_empty()).then(|| PageSection::new(title, "", compact_table("figure|value", rows)))
}

/// Returns the sections on a transfer that was watched or captured, of which the evidence is all
/// that is known.
fn of_evidence(evidence: &Evidence, limit: Option<&Verdict>) -> Vec<PageSection> {
    let streams = evidence.request.streams.max(1);
    let sender = sample_snapshots(&evidence.sender_samples, u16::MAX);
    let receiver = sample_snapshots(&evidence.receiver_samples, u16::MAX);
    let round = evidence.idle_rtt.unwrap_or_default();
    let mut passed = by_bytes(&sender, round, |sample| {
        sample.tcp.bytes_acked.or(Some(sample.bytes))
    });
    if passed.len() < 2 {
        passed = by_bytes(&receiver, round, |sample| Some(sample.bytes));
    }
    let mut rate = Panel::new("rate").with_points("rate", Line, Blue, passed);
    if let Some(bandwidth) = evidence.bandwidth {
        rate = rate.with_level(bandwidth, &format!("bandwidth {bandwidth}"));
    }
    let mut delay = Panel::new("round trip").with_series(smoothed_rtt_series(&sender, Plum));
    if let Some(idle) = evidence.idle_rtt {
        delay = delay.with_level(idle, &format!("least {}", round_trip(idle)));
    }
    let plot = transfer_plot(rate, delay, &sender);
    let title = match streams {
        1 => "Rate and round trips over time".to_owned(),
        many => format!("Rate and round trips of {many} connections over time"),
    };
    let method = "Data that was acknowledged, and round trips on the same axis.";
    known_sections([
        Some(PageSection::new(title, method, plot)),
        flight_section(&sender, limit, None),
        time_sequence_section(&sender),
        held_back(&sender, limit),
    ])
}

/// Returns the time–sequence graph of the whole transfer: acknowledged data, what is in flight, and
/// the window's edge.
fn time_sequence_section(sender: &[SampleSnapshot<'_>]) -> Option<PageSection> {
    let acknowledged = figure_over_time(sender, |sample| sample.tcp.bytes_acked);
    let (at, last) = *acknowledged.last()?;
    let edge = figure_over_time(sender, |sample| {
        Some(sample.tcp.bytes_acked? + sample.tcp.snd_wnd?)
    });
    let sent = sender.iter().filter_map(|one| {
        let acked = one.sum_figure(|sample| sample.tcp.bytes_acked)?;
        Some((
            one.at,
            acked,
            acked + one.sum_figure(Sample::outstanding_bytes)?,
        ))
    });
    let panel = Panel::new("data")
        .with_series(PlotSeries::from_ranges("in flight", Blue, sent).with_label(""))
        .with_labelled_points("acknowledged", Steps, Green, acknowledged)
        .with_labelled_points("window's edge", Steps, Orange, edge);
    let title = format!("Time–sequence: {last} acknowledged in {}", seconds(at));
    let method = "Data by its place in the stream: acknowledged, in flight (vertical lines), and the edge of the window.";
    Some(PageSection::new(
        title,
        method,
        Plot::new("Time–sequence graph").with_panel(panel),
    ))
}

/// Returns the article on a load that grows.
pub(super) fn ramp_article(report: &RampReport) -> Article {
    Article {
        origin: "fullpipe measure --ramp".to_owned(),
        headline: knee_sentence(report),
        sections: vec![by_load(report)],
        ..Article::default()
    }
}

fn knee_sentence(report: &RampReport) -> String {
    match (report.slower_from, report.loses_from) {
        (Some(slower), Some(loses)) => {
            format!("Round trips grow from {slower} on; data is lost from {loses} on")
        }
        (Some(slower), None) => format!("Round trips grow from {slower} on; nothing is lost"),
        (None, Some(loses)) => format!("Data is lost from {loses} on; round trips stay"),
        (None, None) => "Neither round trips nor losses grow with the load".to_owned(),
    }
}

fn rtt_by_load(
    report: &RampReport,
    figure: fn(&RttStats) -> Span,
) -> impl Iterator<Item = (BitRate, Span)> {
    let steps = report.steps.iter();
    steps.filter_map(move |step| Some((step.offered, figure(step.rtt.as_ref()?))))
}

/// Returns carried rate, round trips and loss by offered load.
pub(super) fn by_load(report: &RampReport) -> PageSection {
    let carried = report.steps.iter().map(|step| (step.offered, step.carried));
    let lost = report
        .steps
        .iter()
        .filter_map(|step| Some((step.offered, step.loss?)));
    let p99 = rtt_by_load(report, |rtt| rtt.p99);
    let median = rtt_by_load(report, |rtt| rtt.median);
    let mut delays = Panel::new("round trip")
        .with_labelled_points("p99", Line, Grey, p99)
        .with_labelled_points("median", Line, Plum, median);
    if let Some(idle) = report.idle {
        delays = delays.with_level(idle.median, &format!("idle {}", round_trip(idle.median)));
    }
    let plot = Plot::new("Rate, round-trip time and loss by offered load")
        .with_axis_name("offered load")
        .with_panel(Panel::new("carried").with_points("carried", Line, Blue, carried))
        .with_panel(delays)
        .with_panel(Panel::new("lost").with_points("lost", Line, Orange, lost));
    PageSection::new(
        knee_sentence(report),
        "A point for each step: carried rate, round trips and loss by offered load.",
        plot,
    )
}

//! Captures.

use fullpipe_record::{
    CaptureReport, CapturedTransfer, FlowDirection, FlowPair, FlowReport, LossCourse, OneWayDelay,
};

use super::prelude::*;
use super::remedy::remedies_section;
use super::transfer::{evidence_section, limit_phrase, watched_sections};
use crate::text::{field_name, losses_between};

/// Connections in the table.
const MAX_FLOWS: usize = 100;

/// Returns the article on a capture, or on two of the same connections.
pub(super) fn capture_article(report: &CaptureReport) -> Article {
    let first = report.transfers.first();
    let headline = match first {
        Some(transfer) => {
            let rate = text_or(transfer_rate(report, transfer), "The largest transfer");
            format!(
                "{rate}: limited by {}",
                limit_phrase(transfer.diagnosis.verdict.kind)
            )
        }
        None => format!(
            "{}, none of them explained",
            count_noun(report.flows.len(), "connection")
        ),
    };
    let mut sections: Vec<PageSection> = first
        .map(|transfer| explanation_sections(report, transfer))
        .unwrap_or_default();
    sections.extend(report.pairs.first().into_iter().flat_map(pair_sections));
    sections.push(flows_section(report));
    let sentences = first.map(|transfer| transfer.diagnosis.verdict.sentence.clone());
    Article {
        origin: format!("fullpipe trace · {}", report.name),
        headline,
        sentences: sentences
            .into_iter()
            .chain(report.notes.iter().cloned())
            .collect(),
        facts: capture_facts(report),
        sections,
        ..Article::default()
    }
}

/// Returns the steady rate of a transfer, or that of its largest connection.
fn transfer_rate(report: &CaptureReport, transfer: &CapturedTransfer) -> Option<BitRate> {
    let steady = transfer
        .diagnosis
        .evidence
        .as_ref()
        .and_then(|evidence| evidence.steady)
        .map(|steady| steady.rate);
    let flow = report
        .flows
        .iter()
        .find(|flow| transfer.flows.first() == Some(&flow.number));
    steady.or_else(|| flow.map(|flow| flow.ends[flow.sender_index()].rate))
}

fn capture_facts(report: &CaptureReport) -> Vec<(String, String)> {
    let data: ByteCount = report.flows.iter().map(FlowReport::total_bytes).sum();
    vec![
        fact(report.flows.len(), "connections"),
        fact(
            data,
            format!("of data in {:.1} s", report.duration.as_secs_f64()),
        ),
        fact(report.packets, "packets"),
    ]
}

fn explanation_sections(report: &CaptureReport, transfer: &CapturedTransfer) -> Vec<PageSection> {
    let verdict = &transfer.diagnosis.verdict;
    let rate = transfer_rate(report, transfer).unwrap_or_default();
    let mut sections = watched_sections(&transfer.diagnosis, rate);
    sections.extend(remedies_section(&transfer.diagnosis.remedies));
    sections.extend(evidence_section(verdict));
    sections
}

/// Returns the sections on a connection in two captures: delay, losses and changed fields.
fn pair_sections(pair: &FlowPair) -> Vec<PageSection> {
    let known = pair.directions.iter().filter(|direction| direction.in_both);
    let mut sections: Vec<PageSection> = delay_section(pair).into_iter().collect();
    sections.extend(
        known.filter_map(|direction| loss_section(direction, direction.loss_course.as_ref()?)),
    );
    sections.push(field_changes_section(pair));
    sections
}

/// Returns the one-way delay of both directions; `None` where neither is known.
fn delay_section(pair: &FlowPair) -> Option<PageSection> {
    let directions = pair.directions.iter();
    let known = directions.filter_map(|direction| Some((direction, direction.delay?)));
    let known: Vec<(&FlowDirection, OneWayDelay)> = known.collect();
    let worst = known.iter().map(|(_, delay)| delay.most).max()?;
    let mut rows = RowChart::new(
        "One-way delay above the least",
        ["from", "median, p95, most"],
    );
    for (direction, delay) in known {
        let [median, p95, most] = [delay.median, delay.p95, delay.most].map(round_trip);
        let row =
            ChartRow::new(&direction.from, &median, Plum).with_detail(&format!("{p95}, {most}"));
        rows = rows.with_row(
            row.with_dot(delay.median)
                .with_interval(Span::ZERO, delay.p95)
                .with_prediction(delay.most),
        );
    }
    let title = format!(
        "Between the captures, packets wait for up to {}",
        round_trip(worst)
    );
    let method = "One-way delay above the least of its direction. Dot: median. Line: to the 95th percentile. Tick: most.";
    Some(PageSection::new(title, method, rows))
}

fn loss_section(direction: &FlowDirection, course: &LossCourse) -> Option<PageSection> {
    let bins = course
        .lost
        .iter()
        .enumerate()
        .filter(|(_, lost)| **lost > ByteCount::ZERO);
    let ranges = bins.map(|(index, lost)| (course.width * index as u64, ByteCount::ZERO, *lost));
    let series = PlotSeries::from_ranges("lost", Orange, ranges);
    let plot = Plot::new("Data that was lost over time")
        .with_panel(Panel::new("lost").with_series(series));
    let title = format!(
        "{}, of what {} sent",
        losses_between(direction, "the captures")?,
        direction.from
    );
    (!course.lost.is_empty()).then(|| {
        PageSection::new(
            title,
            "Data that passed the nearer capture and not the other.",
            plot,
        )
    })
}

/// Returns the fields that a device changed.
fn field_changes_section(pair: &FlowPair) -> PageSection {
    let mut rows = Vec::new();
    for direction in &pair.directions {
        rows.extend(direction.changes.iter().map(|change| {
            cells![
                direction.from,
                field_name(change.field),
                change.before,
                change.after
            ]
        }));
    }
    let title = match rows.len() {
        0 => "No field was changed between the captures".to_owned(),
        1 => "A field was changed between the captures".to_owned(),
        many => format!("{many} fields were changed between the captures"),
    };
    PageSection::new(
        title,
        "",
        compact_table("packets from|field|before|after", rows),
    )
}

fn flows_section(report: &CaptureReport) -> PageSection {
    let mut largest: Vec<&FlowReport> = report.flows.iter().collect();
    largest.sort_by_key(|flow| std::cmp::Reverse(flow.total_bytes()));
    let heads = "no|connection|data|rate|retransmitted|round trip|window";
    let rows = largest.into_iter().take(MAX_FLOWS).map(flow_cells);
    PageSection::new(
        "Connections, those with most data first",
        "Each byte of data is counted once.",
        compact_table(heads, rows),
    )
}

fn flow_cells(flow: &FlowReport) -> [String; 7] {
    let (sender, receiver) = (
        &flow.ends[flow.sender_index()],
        &flow.ends[1 - flow.sender_index()],
    );
    let window = receiver.window.filter(|window| !window.is_unscaled);
    cells![
        flow.number,
        format!("{} → {}", sender.address, receiver.address),
        sender.moved_bytes(),
        sender.rate,
        sender.retransmitted_packets,
        or_empty(sender.rtt.map(|rtt| round_trip(rtt.median))),
        or_empty(window.map(|window| window.settled))
    ]
}

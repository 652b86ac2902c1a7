//! Programs that moved the same file, side by side.

use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{ProgramBatch, ProgramRow, ProgramsReport};

use super::prelude::*;

/// Returns the line of one transfer.
pub fn program_moved(moved: &ProgramMoved) -> String {
    let ProgramMoved {
        batch,
        program,
        run,
    } = moved;
    let what = match (&run.failed, run.goodput, run.validity.broken.first()) {
        (Some(why), ..) => format!("failed: {why}"),
        (None, Some(goodput), Some(why)) => format!("{goodput}; does not count: {why}"),
        (None, Some(goodput), None) => goodput.to_string(),
        (None, None, _) => "no figures".to_owned(),
    };
    paragraph(
        &format!("{batch}: {program}, round {}: {what}", run.round),
        0,
    )
}

/// Returns the report: a table for each set of settings, the findings, and the programs that did
/// not take part.
pub fn programs_text(report: &ProgramsReport) -> String {
    let name = report
        .scenario
        .as_ref()
        .map_text(|name| format!("{name}: "));
    let mut text = heading_line(&format!("{name}{}", report.title));
    text += &paragraph(
        &format!(
            "Each program moves {} of random bytes. Rates are medians in Mbit/s; CPU is the share of a processor in \
             percent, of the sending and of the receiving end.",
            report.size
        ),
        2,
    );
    let mut rows = report.batches.iter().flat_map(|batch| &batch.rows);
    if rows.any(|row| row.predicted_range.is_some()) {
        text += &paragraph(
            "Where a prediction is a range, four fifths of simulated transfers lie in it.",
            2,
        );
    }
    if !report.command.is_empty() {
        text += &paragraph(&format!("command: {}", report.command.join(" ")), 2);
    }
    for batch in &report.batches {
        text += &of_batch(batch);
    }
    text += "\n";
    text + &program_findings(report)
}

/// Returns the findings, and the programs that did not take part.
fn program_findings(report: &ProgramsReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text += &bold_paragraph(finding, 2);
    }
    for left_out in &report.left_out {
        let skipped = format!(
            "{} skipped: {}.",
            left_out.program,
            left_out.why.trim_end_matches('.')
        );
        text += &dim_paragraph(&skipped, 2);
    }
    if report.interrupted {
        text += &failure_paragraph(
            "Interrupted: these are the transfers that were complete.",
            2,
        );
    }
    text
}

fn of_batch(batch: &ProgramBatch) -> String {
    let mut table = TextTable::new("program|>whole|>steady|>predicted|>start|>RTT|>CPU|limit");
    for row in &batch.rows {
        table.push_row(program_cells(row));
    }
    let failures: String = batch.rows.iter().filter_map(failure_reason).collect();
    format!(
        "\n  {}\n{}{failures}",
        bold_text(&batch.name),
        table.render(2)
    )
}

/// Returns why a program has no figures.
fn failure_reason(row: &ProgramRow) -> Option<String> {
    let mut runs = row.runs.iter().rev();
    let why = runs
        .find_map(|run| run.failed.as_ref().or(run.validity.broken.first()))
        .filter(|_| row.goodput.is_none())?;
    Some(paragraph(&format!("{}: {why}", row.program), 2))
}

fn program_cells(row: &ProgramRow) -> [String; 8] {
    let verdict = row.verdict.as_ref();
    let limit = match row.goodput {
        None => Some("failed"),
        Some(_) => verdict.map(|verdict| verdict.kind.name()),
    };
    [
        row.program.clone(),
        rate_interval_cell(row),
        or_dash(row.steady.map(whole_megabits)),
        predicted_rate(row),
        or_dash(
            row.start_up
                .map(|time: Span| format!("{:.1} s", time.as_secs_f64())),
        ),
        or_dash(row.rtt.map(round_trip)),
        of_processors(row),
        or_dash(limit),
    ]
}

/// Returns a rate in whole Mbit/s.
pub(crate) fn whole_megabits(rate: BitRate) -> String {
    format!("{:.0}", rate.as_mbps())
}

/// Returns the predicted rate or, where it falls to chance, its range.
fn predicted_rate(row: &ProgramRow) -> String {
    let range = row
        .predicted_range
        .map(|[low, high]| format!("{}–{}", whole_megabits(low), whole_megabits(high)));
    or_dash(range.or_else(|| row.predicted.map(whole_megabits)))
}

/// Returns the rate of the whole with its interval.
fn rate_interval_cell(row: &ProgramRow) -> String {
    let spread = row
        .spread
        .map_text(|[least, most]| format!(" ({}–{})", whole_megabits(least), whole_megabits(most)));
    or_dash(row.goodput.map(|rate| whole_megabits(rate) + &spread))
}

/// Returns the share of a processor that the sending and the receiving end use.
fn of_processors(row: &ProgramRow) -> String {
    let both = [row.sender_cpu, row.receiver_cpu];
    if both == [None, None] {
        return UNKNOWN.to_owned();
    }
    let percents = both.map(|cpu| or_dash(cpu.map(|cpu| format!("{:.0}", cpu.as_percent()))));
    percents.join("/")
}

//! Programs that moved the same file, side by side.

use fullpipe_record::{ProgramBatch, ProgramRow, ProgramRun, ProgramsReport};

use super::prelude::*;
use super::published;

/// Returns the article on a comparison of programs.
pub(super) fn programs_article(report: &ProgramsReport) -> Article {
    let found = report.findings.first().map(|finding| {
        finding
            .split_once(". ")
            .map_or(&finding[..], |(first, _)| first)
    });
    let headline = found
        .unwrap_or("No program is far behind the fastest")
        .to_owned();
    let left_out = report
        .left_out
        .iter()
        .map(|left_out| format!("{} skipped: {}.", left_out.program, left_out.why));
    Article {
        origin: format!("{}, {} a transfer", programs_origin(report), report.size),
        headline,
        sentences: report.findings.iter().cloned().chain(left_out).collect(),
        sections: programs_sections(report),
        ..Article::default()
    }
}

fn programs_origin(report: &ProgramsReport) -> String {
    match &report.scenario {
        Some(scenario) => format!("fullpipe lab compare, {scenario}"),
        None => format!("fullpipe compare, {}", report.title),
    }
}

fn programs_sections(report: &ProgramsReport) -> Vec<PageSection> {
    let rates = report.batches.iter().map(batch_rates_section);
    rates
        .chain(published::of_programs(report))
        .chain([program_runs_section(report)])
        .collect()
}

/// Returns the rates under one set of settings.
fn batch_rates_section(batch: &ProgramBatch) -> PageSection {
    let title = format!("Rates by program: {}", batch.name);
    let rows = RowChart::new(&title, ["program", "rate"])
        .with_rows(batch.rows.iter().map(program_rate_row));
    let fastest = batch
        .rows
        .iter()
        .filter(|row| row.goodput.is_some())
        .max_by_key(|row| row.goodput);
    let title = fastest.and_then(|row| {
        Some(format!(
            "{}: {} is the fastest, {}",
            batch.name, row.program, row.goodput?
        ))
    });
    let method =
        "Size of the file ÷ time from start to end; the line marks the predicted steady rate.";
    PageSection::new(title.unwrap_or_else(|| batch.name.clone()), method, rows)
}

fn program_rate_row(row: &ProgramRow) -> ChartRow {
    let limit = row
        .verdict
        .as_ref()
        .map_or("no limit was named", |verdict| verdict.kind.name());
    let figure = text_or(row.goodput, "no valid run");
    let steady = row.steady.map_text(|rate| format!(", steady {rate}"));
    let predicted = row.predicted.map_text(|rate| format!(", predicted {rate}"));
    let range = row
        .predicted_range
        .map_text(|[low, high]| format!(" ({low} to {high})"));
    let drawn = ChartRow::new(&row.program, &figure, Blue)
        .with_detail(&format!("{limit}{steady}{predicted}{range}"));
    let drawn = row
        .predicted
        .map_or(drawn.clone(), |rate| drawn.with_prediction(rate));
    row.goodput
        .map_or(drawn.clone(), |rate| drawn.with_bar(rate))
}

/// Returns the table of every transfer.
fn program_runs_section(report: &ProgramsReport) -> PageSection {
    let mut rows = Vec::new();
    for batch in &report.batches {
        for row in &batch.rows {
            let runs = row.runs.iter();
            rows.extend(runs.map(|run| run_cells(&batch.name, &row.program, run)));
        }
    }
    let heads =
        "settings|program|round|whole|steady|top second|start|round trip|CPU|limit or reason";
    let method = "Top second: the highest rate over a second. CPU: processor time of the sending and the receiving end.";
    PageSection::new("Every transfer", method, compact_table(heads, rows))
}

fn cpu_cell(run: &ProgramRun) -> String {
    let both = [run.sender_cpu, run.receiver_cpu];
    if both == [None, None] {
        return String::new();
    }
    let seconds = both.map(|time| or_dash(time.map(|time| format!("{:.1}", time.as_secs_f64()))));
    format!("{} s", seconds.join(" / "))
}

fn run_cells(batch: &str, program: &str, run: &ProgramRun) -> [String; 10] {
    let limit = run
        .verdict
        .as_ref()
        .map(|verdict| verdict.name().to_owned());
    let reason = run
        .failed
        .clone()
        .or_else(|| run.validity.broken.first().cloned())
        .or(limit);
    cells![
        batch,
        program,
        run.round,
        or_empty(run.goodput),
        or_empty(run.steady),
        or_empty(run.top),
        or_empty(run.start_up),
        run.rtt.map_text(round_trip),
        cpu_cell(run),
        reason.unwrap_or_default()
    ]
}

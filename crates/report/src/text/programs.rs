//! Programs that moved the same file, side by side.

use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{ProgramBatch, ProgramRow, ProgramRun, ProgramsReport};
use fullpipe_units::{BitRate, Ratio, Span};

use super::measurement::round_trip;
use super::style::{TextStyle, heading_line, wrap_text};
use super::table::{ColumnAlignment, TextTable, or_dash};

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
    wrap_text(
        &format!("{batch}: {program}, round {}: {what}", run.round),
        0,
        str::to_owned,
    )
}

/// Returns the report: a table for each set of settings, the findings, and the programs that did
/// not take part.
pub fn programs_text(report: &ProgramsReport, style: TextStyle) -> String {
    let name = report
        .scenario
        .as_ref()
        .map_or_else(String::new, |name| format!("{name}: "));
    let mut text = heading_line(style, &format!("{name}{}", report.title));
    text += &wrap_text(
        &format!(
            "Each program moves {} of random bytes. Rates are medians in Mbit/s; CPU is the share of a processor in \
             percent, of the sending and of the receiving end.",
            report.size
        ),
        2,
        str::to_owned,
    );
    if report
        .batches
        .iter()
        .flat_map(|batch| &batch.rows)
        .any(|row| row.predicted_range.is_some())
    {
        text += &wrap_text(
            "Where a prediction is a range, four fifths of simulated transfers lie in it.",
            2,
            str::to_owned,
        );
    }
    if !report.command.is_empty() {
        text += &wrap_text(
            &format!("command: {}", report.command.join(" ")),
            2,
            str::to_owned,
        );
    }
    for batch in &report.batches {
        text += &of_batch(batch, style);
    }
    text += "\n";
    for finding in &report.findings {
        text += &wrap_text(finding, 2, |line| style.bold(line));
    }
    for left_out in &report.left_out {
        let skipped = format!(
            "{} skipped: {}.",
            left_out.program,
            left_out.why.trim_end_matches('.')
        );
        text += &wrap_text(&skipped, 2, |line| style.dim(line));
    }
    if report.interrupted {
        text += &wrap_text(
            "Interrupted: these are the transfers that were complete.",
            2,
            |line| style.mark_failure(line),
        );
    }
    text
}

fn of_batch(batch: &ProgramBatch, style: TextStyle) -> String {
    let right = ColumnAlignment::Right;
    let mut table = TextTable::new(&[
        ("program", ColumnAlignment::Left),
        ("whole", right),
        ("steady", right),
        ("predicted", right),
        ("start", right),
        ("RTT", right),
        ("CPU", right),
        ("limit", ColumnAlignment::Left),
    ]);
    for row in &batch.rows {
        table.push_row(program_cells(row));
    }
    let failures: String = batch.rows.iter().filter_map(failure_reason).collect();
    format!(
        "\n  {}\n{}{failures}",
        style.bold(&batch.name),
        table.render(2, |head| style.dim(head))
    )
}

/// Returns why a program has no figures.
fn failure_reason(row: &ProgramRow) -> Option<String> {
    let broken = |run: &ProgramRun| {
        run.failed
            .clone()
            .or_else(|| run.validity.broken.first().cloned())
    };
    let why = row
        .runs
        .iter()
        .rev()
        .find_map(broken)
        .filter(|_| row.goodput.is_none())?;
    Some(wrap_text(
        &format!("{}: {why}", row.program),
        2,
        str::to_owned,
    ))
}

fn program_cells(row: &ProgramRow) -> [String; 8] {
    let rate = |rate: Option<BitRate>| or_dash(rate.map(whole_megabits));
    let limit = row
        .verdict
        .as_ref()
        .map(|verdict| verdict.kind.name().to_owned());
    let limit = if row.goodput.is_none() {
        Some("failed".to_owned())
    } else {
        limit
    };
    [
        row.program.clone(),
        rate_interval_cell(row),
        rate(row.steady),
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
fn whole_megabits(rate: BitRate) -> String {
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
    let spread = row.spread.map_or_else(String::new, |[least, most]| {
        format!(" ({}–{})", whole_megabits(least), whole_megabits(most))
    });
    or_dash(row.goodput.map(|rate| whole_megabits(rate) + &spread))
}

/// Returns the share of a processor that the sending and the receiving end use.
fn of_processors(row: &ProgramRow) -> String {
    let share = |cpu: Option<Ratio>| or_dash(cpu.map(|cpu| format!("{:.0}", cpu.as_percent())));
    match (row.sender_cpu, row.receiver_cpu) {
        (None, None) => or_dash(None),
        (sender, receiver) => format!("{}/{}", share(sender), share(receiver)),
    }
}

use std::collections::BTreeSet;

use fullpipe_record::{Buffer, LabCrossTraffic, LabReport, LabStep, Verdict};

use super::capture::agreement_clause;
use super::diagnosis::confidence_percent;
use super::prelude::*;
use super::ramp::ramp_of_step;

/// One scenario: what each step fixes, then what was predicted, published and measured.
pub fn lab_report(report: &LabReport) -> String {
    let mut text = heading_line(&report.scenario);
    text += &scenario_summary(report);
    text += &paragraph(&report.title, 2);
    if let Some(source) = &report.source {
        text += &dim_paragraph(source, 2);
    }
    if report.interrupted {
        text += &failure_paragraph("Interrupted: these are the steps that were done.", 2);
    }
    text += &window_table(report);
    text += "\n";
    text += &rate_table(report);
    if report.steps.iter().any(|step| {
        step.datagrams.is_some() || step.cross_traffic.iter().any(|load| load.loss.is_some())
    }) {
        text += "\n";
        text += &datagram_table(report);
    }
    for step in &report.steps {
        text += &step_remarks(step);
    }
    for note in prediction_notes(report) {
        text += &dim_paragraph(note, 2);
    }
    for missed in &report.missed {
        text += &failure_paragraph(missed, 2);
    }
    text
}

/// One line a scenario, and how many runs did not count.
pub fn lab_summary(reports: &[LabReport]) -> String {
    let mut text = String::new();
    for report in reports {
        let verdict = outcome_mark(report.passed);
        text += &format!("{verdict}  {}\n", report.scenario);
    }
    let (runs, invalid) = total_run_counts(reports);
    let share = Ratio::from_quotient(invalid as f64, runs as f64);
    let mut counts = format!(
        "{invalid} of {runs} runs did not count ({:.0} %).",
        share.as_percent()
    );
    let without = reports
        .iter()
        .flat_map(|report| &report.steps)
        .filter(|step| step.runs.is_empty())
        .count();
    if without > 0 {
        counts += &format!(" {} had no run.", count_noun(without, "step"));
    }
    text + &dim_paragraph(&counts, 0)
}

/// Returns the runs of all scenarios, and those of them that do not count.
pub(crate) fn total_run_counts(reports: &[LabReport]) -> (usize, usize) {
    let counts = reports.iter().map(LabReport::run_counts);
    counts.fold((0, 0), |(all, bad), of| (all + of.0, bad + of.1))
}

/// Returns the result of a scenario in one line; the details follow it.
fn scenario_summary(report: &LabReport) -> String {
    let missed = report
        .steps
        .iter()
        .filter(|step| step.passed == Some(false))
        .count();
    let (runs, invalid) = report.run_counts();
    let mut line = format!(
        "{}, {}",
        count_noun(report.steps.len(), "step"),
        count_noun(runs, "run")
    );
    if missed > 0 {
        line += &format!(", {} missed a bound", count_noun(missed, "step"));
    }
    if invalid > 0 {
        line += &format!(", {} did not count", count_noun(invalid, "run"));
    }
    let outcome = outcome_mark(report.passed);
    format!("  {outcome}: {line}\n")
}

/// Returns the table of the path, buffers and windows of each step.
fn window_table(report: &LabReport) -> String {
    let mut table = TextTable::new("step|>bandwidth|>RTT|>BDP|>-w|>buffer|>max window|>seen");
    for step in &report.steps {
        let path = step.path.as_ref().unwrap_or(&report.path);
        let asked = match step.request.buffer {
            Buffer::Automatic => None,
            Buffer::Request(size) | Buffer::Window(size) => Some(size),
        };
        let window = step
            .prediction
            .find_ceiling(Limit::ReceiveWindow)
            .and_then(|ceiling| ceiling.window);
        table.push_row(cells![
            step.name,
            or_dash(path.forward.rate),
            path.rtt(),
            bytes_cell(step.prediction.bdp),
            bytes_cell(asked),
            bytes_cell(step.buffer),
            bytes_cell(window),
            bytes_cell(step.window_seen)
        ]);
    }
    table.without_unknown().render(2)
}

fn rate_table(report: &LabReport) -> String {
    let mut table =
        TextTable::new("step|>textbook|>model|>published|>measured|>÷ textbook|>÷ model|");
    for step in &report.steps {
        table.push_row(cells![
            step.name,
            megabits_cell(step.prediction.textbook),
            megabits_cell(step.prediction.kernel_model),
            megabits_cell(step.published.and_then(|published| published.rate)),
            megabits_cell(step.measured),
            accuracy_percent(step.accuracy_textbook),
            accuracy_percent(step.accuracy),
            outcome_label(step, "INVALID", "")
        ]);
        for load in &step.cross_traffic {
            let published = megabits_cell(load.published.and_then(|published| published.rate));
            let measured = megabits_cell(load.measured);
            table.push_row(cells![
                cross_traffic(load),
                "",
                "",
                published,
                measured,
                "",
                "",
                ""
            ]);
        }
    }
    table.render(2) + &dim_text("  Rates in Mbit/s of payload.\n")
}

/// Loss and jitter: predicted, published, measured.
fn datagram_table(report: &LabReport) -> String {
    let mut table = TextTable::new(
        "datagrams|>offered|>lost: textbook|>model|>published|>measured|>jitter|>published",
    );
    for step in &report.steps {
        if let Some(seen) = step.datagrams {
            let published = step.published.unwrap_or_default();
            table.push_row(cells![
                step.name,
                megabits_cell(seen.offered),
                percent_cell(seen.loss_textbook),
                percent_cell(seen.loss_kernel_model),
                percent_cell(published.loss),
                percent_cell(seen.loss),
                seen.jitter,
                or_dash(published.jitter)
            ]);
        }
        for load in step.cross_traffic.iter().filter(|load| load.loss.is_some()) {
            table.push_row(cross_datagram_row(load));
        }
    }
    table.without_unknown().render(2)
}

fn cross_datagram_row(load: &LabCrossTraffic) -> [String; 8] {
    let published = load.published.unwrap_or_default();
    let rate = load.request.rate;
    let offered = rate.map(|rate| rate.scale_by(f64::from(load.request.streams)));
    cells![
        cross_traffic(load),
        megabits_cell(offered),
        UNKNOWN,
        UNKNOWN,
        percent_cell(published.loss),
        percent_cell(load.loss),
        or_dash(load.jitter),
        or_dash(published.jitter)
    ]
}

/// Returns the name of a load of cross traffic: `+ 10 × UDP`.
fn cross_traffic(load: &LabCrossTraffic) -> String {
    let transport = load.request.transport.name();
    match load.phases {
        0 | 1 => format!("+ {} × {transport}", load.request.streams),
        phases => format!("+ {transport}, {phases} times"),
    }
}

/// The verdicts on a step by the kernel's figures and by its packets, what it filled, its curve,
/// what it missed, and which runs did not count.
fn step_remarks(step: &LabStep) -> String {
    let mut remarks = Vec::new();
    remarks.extend(notable_verdict(step).map(|verdict| verdict.sentence.clone()));
    remarks.extend(capture_remark(step));
    remarks.extend(reordering_remark(step));
    let filled = step.filled;
    remarks.extend(filled.map(|filled| format!("all loads together fill {filled} of the link")));
    let mut text = String::new();
    for remark in remarks {
        text += &paragraph(&format!("{}: {remark}", step.name), 2);
    }
    if let Some(ramp) = &step.ramp {
        text += &ramp_of_step(&step.name, ramp);
    }
    for missed in &step.missed {
        text += &failure_paragraph(&format!("{}: {missed}", step.name), 2);
    }
    for reason in step.runs.iter().flat_map(|run| &run.validity.broken) {
        let line = format!("{}: a run did not count: {reason}", step.name);
        text += &dim_paragraph(&line, 2);
    }
    text
}

/// Returns the number of reordered datagrams if the link reordered any: measured, injected,
/// published.
fn reordering_remark(step: &LabStep) -> Option<String> {
    let seen = step.datagrams?;
    let planted = seen.reordered_by_link.filter(|planted| *planted > 0)?;
    let published = step.published.and_then(|published| published.reordered);
    let published = published.map_text(|count| format!(", {count} were published"));
    Some(format!(
        "{} datagrams came out of order; the link let {planted} be passed{published}",
        seen.reordered
    ))
}

/// Returns the verdict on the last run that counts; `None` if the step passed and the verdict names
/// the limit that was predicted, as the table says that already.
fn notable_verdict(step: &LabStep) -> Option<&Verdict> {
    let verdict = last_valid(step)?.limit.as_ref()?;
    let repeats = step.passed == Some(true) && verdict.kind == step.prediction.limit;
    (!repeats).then_some(verdict)
}

/// Returns the last run that counts.
fn last_valid(step: &LabStep) -> Option<&Measurement> {
    step.runs.iter().rev().find(|run| run.validity.is_valid())
}

/// Returns the limit that the captures of the last run that counts show, and whether its verdict is
/// the same.
fn capture_remark(step: &LabStep) -> Option<String> {
    let capture = last_valid(step)?.capture.as_ref()?;
    let limit = capture.limit.as_ref()?;
    Some(format!(
        "by its packets: {} {}; confidence {}.",
        limit.sentence,
        agreement_clause(capture),
        confidence_percent(limit.confidence)
    ))
}

/// Returns the assumptions of the predictions, each once.
fn prediction_notes(report: &LabReport) -> BTreeSet<&String> {
    report
        .steps
        .iter()
        .flat_map(|step| &step.prediction.notes)
        .collect()
}

/// Returns whether a step met its bounds, or one of these if it has no measurement or no bound.
pub(crate) fn outcome_label(
    step: &LabStep,
    unmeasured: &'static str,
    unbound: &'static str,
) -> &'static str {
    match step.passed {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None if step.measured.is_none() => unmeasured,
        None => unbound,
    }
}

pub(super) fn outcome_mark(passed: bool) -> String {
    if passed {
        success_text("passed")
    } else {
        failure_text("failed")
    }
}

fn bytes_cell(size: Option<ByteCount>) -> String {
    or_dash(size.map(ByteCount::get))
}

pub(crate) fn megabits_cell(rate: impl Into<Option<BitRate>>) -> String {
    or_dash(rate.into().map(|rate| format!("{:.2}", rate.as_mbps())))
}

pub(crate) fn percent_cell(share: impl Into<Option<Ratio>>) -> String {
    or_dash(
        share
            .into()
            .map(|share| format!("{:.2} %", share.as_percent())),
    )
}

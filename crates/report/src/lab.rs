use fullpipe_record::{LabReport, LabStep};
use fullpipe_units::BitRate;

use crate::measurement::accuracy;
use crate::style::{Style, heading, wrapped};
use crate::table::{Align, Table, or_dash};

/// One scenario: the source's columns, then what was predicted and measured.
pub fn lab_report(report: &LabReport, style: Style) -> String {
    let mut text = heading(style, &report.scenario);
    text += &wrapped(&report.title, 2, str::to_owned);
    if let Some(source) = &report.source {
        text += &wrapped(source, 2, |line| style.dim(line));
    }
    if report.interrupted {
        text += &wrapped("Interrupted: these are the steps that were done.", 2, |line| style.bad(line));
    }
    text += &windows(report, style);
    text += "\n";
    text += &rates(report, style);
    for step in &report.steps {
        for missed in &step.missed {
            text += &wrapped(&format!("{}: {missed}", step.name), 2, |line| style.bad(line));
        }
        let invalid: Vec<&String> = step.runs.iter().flat_map(|run| &run.validity.broken).collect();
        for reason in invalid {
            text += &wrapped(&format!("{}: a run did not count: {reason}", step.name), 2, |line| style.dim(line));
        }
    }
    for missed in &report.missed {
        text += &wrapped(missed, 2, |line| style.bad(line));
    }
    text
}

/// One line a scenario.
pub fn lab_summary(reports: &[LabReport], style: Style) -> String {
    let mut text = String::new();
    for report in reports {
        let verdict = if report.passed { style.good("passed") } else { style.bad("failed") };
        text += &format!("{verdict}  {}\n", report.scenario);
    }
    text
}

/// What each step fixes, in the columns of seed 001's table.
fn windows(report: &LabReport, style: Style) -> String {
    let mut table = Table::new(&[
        ("step", Align::Left),
        ("bandwidth", Align::Right),
        ("RTT", Align::Right),
        ("BDP", Align::Right),
        ("-w", Align::Right),
        ("buffer", Align::Right),
        ("max window", Align::Right),
        ("seen", Align::Right),
    ]);
    let bytes = |size: Option<fullpipe_units::ByteCount>| or_dash(size.map(|size| size.get().to_string()));
    for step in &report.steps {
        let asked = match step.request.buffer {
            fullpipe_record::Buffer::Automatic => None,
            fullpipe_record::Buffer::Request(size) | fullpipe_record::Buffer::Window(size) => Some(size),
        };
        let window = step.prediction.ceiling(fullpipe_record::Limit::ReceiveWindow).and_then(|ceiling| ceiling.window);
        table.row([
            step.name.clone(),
            or_dash(report.path.forward.rate.map(|rate| rate.to_string())),
            report.rtt.to_string(),
            bytes(step.prediction.bdp),
            bytes(asked),
            bytes(step.buffer),
            bytes(window),
            bytes(step.window_seen),
        ]);
    }
    table.render(2, |head| style.dim(head))
}

fn rates(report: &LabReport, style: Style) -> String {
    let mut table = Table::new(&[
        ("step", Align::Left),
        ("plain", Align::Right),
        ("refined", Align::Right),
        ("published", Align::Right),
        ("measured", Align::Right),
        ("of plain", Align::Right),
        ("of refined", Align::Right),
        ("", Align::Left),
    ]);
    for step in &report.steps {
        table.row([
            step.name.clone(),
            megabits(Some(step.prediction.plain)),
            megabits(Some(step.prediction.refined)),
            megabits(step.published.map(|published| published.rate)),
            megabits(step.measured),
            accuracy(step.accuracy_plain),
            accuracy(step.accuracy),
            outcome(step).to_owned(),
        ]);
    }
    table.render(2, |head| style.dim(head)) + &style.dim("  Rates in Mbit/s of payload.\n")
}

fn outcome(step: &LabStep) -> &'static str {
    match step.passed {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None if step.measured.is_none() => "INVALID",
        None => "",
    }
}

pub(crate) fn megabits(rate: Option<BitRate>) -> String {
    or_dash(rate.map(|rate| format!("{:.2}", rate.as_mbps())))
}

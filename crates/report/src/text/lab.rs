use std::collections::BTreeSet;

use fullpipe_record::{Buffer, LabCrossTraffic, LabReport, LabStep, Limit, Measurement, Transport, Verdict};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, counted};

use super::capture::agreement;
use super::diagnosis::confidence;
use super::measurement::accuracy;
use super::ramp::ramp_of_step;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// One scenario: what each step fixes, then what was predicted, published and measured.
pub fn lab_report(report: &LabReport, style: Style) -> String {
    let mut text = heading(style, &report.scenario);
    text += &summary(report, style);
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
    if report
        .steps
        .iter()
        .any(|step| step.datagrams.is_some() || step.cross_traffic.iter().any(|load| load.loss.is_some()))
    {
        text += "\n";
        text += &datagrams(report, style);
    }
    for step in &report.steps {
        text += &remarks(step, style);
    }
    for note in notes(report) {
        text += &wrapped(note, 2, |line| style.dim(line));
    }
    for missed in &report.missed {
        text += &wrapped(missed, 2, |line| style.bad(line));
    }
    text
}

/// One line a scenario, and how many runs did not count.
pub fn lab_summary(reports: &[LabReport], style: Style) -> String {
    let mut text = String::new();
    for report in reports {
        let verdict = if report.passed { style.good("passed") } else { style.bad("failed") };
        text += &format!("{verdict}  {}\n", report.scenario);
    }
    let (runs, invalid) = reports.iter().map(LabReport::runs).fold((0, 0), |(all, bad), of| (all + of.0, bad + of.1));
    let share = Ratio::of(invalid as f64, runs as f64);
    let mut counts = format!("{invalid} of {runs} runs did not count ({:.0} %).", share.percent());
    let without = reports.iter().flat_map(|report| &report.steps).filter(|step| step.runs.is_empty()).count();
    if without > 0 {
        counts += &format!(" {} had no run.", counted(without, "step"));
    }
    text + &wrapped(&counts, 0, |line| style.dim(line))
}

/// Returns the result of a scenario in one line; the details follow it.
fn summary(report: &LabReport, style: Style) -> String {
    let missed = report.steps.iter().filter(|step| step.passed == Some(false)).count();
    let (runs, invalid) = report.runs();
    let mut line = format!("{}, {}", counted(report.steps.len(), "step"), counted(runs, "run"));
    if missed > 0 {
        line += &format!(", {} missed a bound", counted(missed, "step"));
    }
    if invalid > 0 {
        line += &format!(", {} did not count", counted(invalid, "run"));
    }
    let outcome = if report.passed { style.good("passed") } else { style.bad("failed") };
    format!("  {outcome}: {line}\n")
}

/// Returns the table of the path, buffers and windows of each step.
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
    let bytes = |size: Option<ByteCount>| or_dash(size.map(|size| size.get().to_string()));
    for step in &report.steps {
        let path = step.path.as_ref().unwrap_or(&report.path);
        let asked = match step.request.buffer {
            Buffer::Automatic => None,
            Buffer::Request(size) | Buffer::Window(size) => Some(size),
        };
        let window = step.prediction.ceiling(Limit::ReceiveWindow).and_then(|ceiling| ceiling.window);
        table.row([
            step.name.clone(),
            or_dash(path.forward.rate.map(|rate| rate.to_string())),
            path.rtt().to_string(),
            bytes(step.prediction.bdp),
            bytes(asked),
            bytes(step.buffer),
            bytes(window),
            bytes(step.window_seen),
        ]);
    }
    table.without_unknown().render(2, |head| style.dim(head))
}

fn rates(report: &LabReport, style: Style) -> String {
    let mut table = Table::new(&[
        ("step", Align::Left),
        ("textbook", Align::Right),
        ("model", Align::Right),
        ("published", Align::Right),
        ("measured", Align::Right),
        ("÷ textbook", Align::Right),
        ("÷ model", Align::Right),
        ("", Align::Left),
    ]);
    for step in &report.steps {
        table.row([
            step.name.clone(),
            megabits(Some(step.prediction.textbook)),
            megabits(Some(step.prediction.kernel_model)),
            megabits(step.published.and_then(|published| published.rate)),
            megabits(step.measured),
            accuracy(step.accuracy_textbook),
            accuracy(step.accuracy),
            outcome(step).to_owned(),
        ]);
        for load in &step.cross_traffic {
            let published = megabits(load.published.and_then(|published| published.rate));
            let row = ["", "", &published, &megabits(load.measured), "", "", ""].map(str::to_owned);
            table.row([vec![cross_traffic(load)], row.to_vec()].concat());
        }
    }
    table.render(2, |head| style.dim(head)) + &style.dim("  Rates in Mbit/s of payload.\n")
}

/// Loss and jitter: predicted, published, measured.
fn datagrams(report: &LabReport, style: Style) -> String {
    let mut table = Table::new(&[
        ("datagrams", Align::Left),
        ("offered", Align::Right),
        ("lost: textbook", Align::Right),
        ("model", Align::Right),
        ("published", Align::Right),
        ("measured", Align::Right),
        ("jitter", Align::Right),
        ("published", Align::Right),
    ]);
    let jitter = |jitter: Option<Span>| or_dash(jitter.map(|jitter| jitter.to_string()));
    for step in &report.steps {
        if let Some(seen) = step.datagrams {
            let published = step.published.unwrap_or_default();
            table.row([
                step.name.clone(),
                megabits(Some(seen.offered)),
                percent(Some(seen.loss_textbook)),
                percent(seen.loss_kernel_model),
                percent(published.loss),
                percent(Some(seen.loss)),
                seen.jitter.to_string(),
                jitter(published.jitter),
            ]);
        }
        for load in step.cross_traffic.iter().filter(|load| load.loss.is_some()) {
            let published = load.published.unwrap_or_default();
            let offered = load.request.rate.map(|rate| rate.scaled(f64::from(load.request.streams)));
            table.row([
                cross_traffic(load),
                megabits(offered),
                or_dash(None),
                or_dash(None),
                percent(published.loss),
                percent(load.loss),
                jitter(load.jitter),
                jitter(published.jitter),
            ]);
        }
    }
    table.without_unknown().render(2, |head| style.dim(head))
}

/// Returns the name of a load of cross traffic: `+ 10 × UDP`.
fn cross_traffic(load: &LabCrossTraffic) -> String {
    let transport = match load.request.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    match load.phases {
        0 | 1 => format!("+ {} × {transport}", load.request.streams),
        phases => format!("+ {transport}, {phases} times"),
    }
}

/// The verdicts on a step by the kernel's figures and by its packets, what it filled, its curve, what it missed, and
/// which runs did not count.
fn remarks(step: &LabStep, style: Style) -> String {
    let about = |said: &str| format!("{}: {said}", step.name);
    let mut text = String::new();
    if let Some(verdict) = verdict(step) {
        text += &wrapped(&about(&verdict.sentence), 2, str::to_owned);
    }
    if let Some(packets) = packets(step) {
        text += &wrapped(&about(&packets), 2, str::to_owned);
    }
    if let Some(order) = order(step) {
        text += &wrapped(&about(&order), 2, str::to_owned);
    }
    if let Some(filled) = step.filled {
        text += &wrapped(&about(&format!("all loads together fill {filled} of the link")), 2, str::to_owned);
    }
    if let Some(ramp) = &step.ramp {
        text += &ramp_of_step(&step.name, ramp, style);
    }
    for missed in &step.missed {
        text += &wrapped(&about(missed), 2, |line| style.bad(line));
    }
    for reason in step.runs.iter().flat_map(|run| &run.validity.broken) {
        text += &wrapped(&about(&format!("a run did not count: {reason}")), 2, |line| style.dim(line));
    }
    text
}

/// Returns the number of reordered datagrams if the link reordered any: measured, injected, published.
fn order(step: &LabStep) -> Option<String> {
    let seen = step.datagrams?;
    let planted = seen.reordered_by_link.filter(|planted| *planted > 0)?;
    let published = step.published.and_then(|published| published.reordered);
    let published = published.map(|count| format!(", {count} were published")).unwrap_or_default();
    Some(format!("{} datagrams came out of order; the link let {planted} be passed{published}", seen.reordered))
}

/// Returns the verdict on the last run that counts; `None` if the step passed and the verdict names the limit that was
/// predicted, as the table says that already.
fn verdict(step: &LabStep) -> Option<&Verdict> {
    let verdict = last_valid(step)?.limit.as_ref()?;
    let repeats = step.passed == Some(true) && verdict.kind == step.prediction.limit;
    (!repeats).then_some(verdict)
}

/// Returns the last run that counts.
fn last_valid(step: &LabStep) -> Option<&Measurement> {
    step.runs.iter().rev().find(|run| run.validity.is_valid())
}

/// Returns the limit that the captures of the last run that counts show, and whether its verdict is the same.
fn packets(step: &LabStep) -> Option<String> {
    let capture = last_valid(step)?.capture.as_ref()?;
    let limit = capture.limit.as_ref()?;
    Some(format!(
        "by its packets: {} {}; confidence {}.",
        limit.sentence,
        agreement(capture),
        confidence(limit.confidence)
    ))
}

/// Returns the assumptions of the predictions, each once.
fn notes(report: &LabReport) -> BTreeSet<&String> {
    report.steps.iter().flat_map(|step| &step.prediction.notes).collect()
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

fn percent(share: Option<Ratio>) -> String {
    or_dash(share.map(|share| format!("{:.2} %", share.percent())))
}

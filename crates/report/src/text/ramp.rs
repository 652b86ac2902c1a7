use fullpipe_record::{RampReport, RampStep, RttStats};
use fullpipe_units::{BitRate, Ratio};

use super::measurement::round_trip;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// Columns of the longest bar.
const MAX_BAR: f64 = 10.0;

/// Returns the line of a step.
pub fn ramp_step(step: &RampStep) -> String {
    let median = or_dash(step.rtt.map(|rtt| round_trip(rtt.median)));
    let broken = if step.broken_off.is_some() { ", broken off" } else { "" };
    format!("{} offered: {} arrive, RTT {median}, lost {}{broken}", step.offered, step.carried, loss(step.loss))
}

/// A path under a growing load: a line a step, round-trip times as bars, and where they begin to grow.
pub fn ramp(report: &RampReport, style: Style) -> String {
    let mut text = heading(style, "Load, round-trip time and loss");
    text += &table(report, style);
    for sentence in sentences(report) {
        text += &wrapped(&sentence, 2, |line| style.bold(line));
    }
    for (offered, why) in report.steps.iter().filter_map(|step| Some((step.offered, step.broken_off.as_ref()?))) {
        text += &wrapped(
            &format!("The test at {offered} broke off and counts as far as it came, and the ramp ended with it: {why}"),
            2,
            |line| style.bad(line),
        );
    }
    if report.interrupted {
        text += &wrapped("Interrupted: these are the steps that were done.", 2, |line| style.bad(line));
    }
    text
}

/// Returns the table and the sentences of a ramp, under the name of a step.
pub(crate) fn ramp_of_step(name: &str, report: &RampReport, style: Style) -> String {
    let sentences = sentences(report).into_iter().map(|sentence| wrapped(&sentence, 2, str::to_owned));
    format!("\n{}{}{}", wrapped(name, 2, |line| style.bold(line)), table(report, style), sentences.collect::<String>())
}

fn table(report: &RampReport, style: Style) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("offered", right),
        ("", right),
        ("arrived", right),
        ("lost", right),
        ("RTT median", right),
        ("p99", right),
        ("", Align::Left),
    ]);
    let longest =
        report.steps.iter().filter_map(|step| step.rtt).map(|rtt| rtt.median.as_secs_f64()).fold(0.0, f64::max);
    for step in &report.steps {
        table.row([
            step.offered.to_string(),
            share(step.offered, report.full),
            step.carried.to_string(),
            loss(step.loss),
            or_dash(step.rtt.map(|rtt| round_trip(rtt.median))),
            or_dash(step.rtt.map(|rtt| round_trip(rtt.p99))),
            step.rtt.map_or_else(String::new, |rtt| bar(rtt, longest)),
        ]);
    }
    table.render(2, |head| style.dim(head))
}

fn share(offered: BitRate, full: Option<BitRate>) -> String {
    let share = full.filter(|full| *full > BitRate::ZERO).map(|full| offered.bps() as f64 / full.bps() as f64);
    share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
}

fn loss(loss: Option<Ratio>) -> String {
    or_dash(loss.map(|loss| format!("{:.2} %", loss.percent())))
}

fn bar(rtt: RttStats, longest: f64) -> String {
    let columns = if longest > 0.0 { rtt.median.as_secs_f64() / longest * MAX_BAR } else { 0.0 };
    "█".repeat((columns.round() as usize).max(1))
}

fn sentences(report: &RampReport) -> Vec<String> {
    let idle = report.idle.map_or_else(String::new, |idle| format!(" ({} without load)", round_trip(idle.median)));
    let slower = match report.slower_from {
        Some(rate) => format!("Round trips grow longer from {rate} on{idle}."),
        None => format!("No load here made round trips longer{idle}."),
    };
    let loses = match report.loses_from {
        Some(rate) => format!("More than a thousandth is lost from {rate} on."),
        None => "No load here lost more than a thousandth.".to_owned(),
    };
    vec![slower, loses]
}

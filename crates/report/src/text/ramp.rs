use fullpipe_record::{RampReport, RampStep, RttStats};

use super::lab::percent_cell;
use super::prelude::*;

/// Columns of the longest bar.
const MAX_BAR: f64 = 10.0;

/// Returns the line of a step.
pub fn ramp_step(step: &RampStep) -> String {
    let median = or_dash(step.rtt.map(|rtt| round_trip(rtt.median)));
    let broken = text_if(step.broken_off.is_some(), ", broken off");
    format!(
        "{} offered: {} arrive, RTT {median}, lost {}{broken}",
        step.offered,
        step.carried,
        percent_cell(step.loss)
    )
}

/// A path under a growing load: a line a step, round-trip times as bars, and where they begin to
/// grow.
pub fn ramp_text(report: &RampReport) -> String {
    let mut text = heading_line("Load, round-trip time and loss");
    text += &ramp_table(report);
    for sentence in ramp_sentences(report) {
        text += &bold_paragraph(&sentence, 2);
    }
    for (offered, why) in report
        .steps
        .iter()
        .filter_map(|step| Some((step.offered, step.broken_off.as_ref()?)))
    {
        text += &failure_paragraph(
            &format!(
                "The test at {offered} broke off and counts as far as it came, and the ramp ended with it: {why}"
            ),
            2,
        );
    }
    if report.interrupted {
        text += &failure_paragraph("Interrupted: these are the steps that were done.", 2);
    }
    text
}

/// Returns the table and the sentences of a ramp, under the name of a step.
pub(crate) fn ramp_of_step(name: &str, report: &RampReport) -> String {
    let sentences = ramp_sentences(report)
        .into_iter()
        .map(|sentence| paragraph(&sentence, 2));
    format!(
        "\n{}{}{}",
        bold_paragraph(name, 2),
        ramp_table(report),
        sentences.collect::<String>()
    )
}

fn ramp_table(report: &RampReport) -> String {
    let mut table = TextTable::new(">offered|>|>arrived|>lost|>RTT median|>p99|");
    let longest = report
        .steps
        .iter()
        .filter_map(|step| step.rtt)
        .map(|rtt| rtt.median.as_secs_f64())
        .fold(0.0, f64::max);
    for step in &report.steps {
        table.push_row(cells![
            step.offered,
            offered_share(step.offered, report.full),
            step.carried,
            percent_cell(step.loss),
            or_dash(step.rtt.map(|rtt| round_trip(rtt.median))),
            or_dash(step.rtt.map(|rtt| round_trip(rtt.p99))),
            step.rtt.map_text(|rtt| rtt_bar(rtt, longest))
        ]);
    }
    table.render(2)
}

fn offered_share(offered: BitRate, full: Option<BitRate>) -> String {
    let share = full
        .filter(|full| *full > BitRate::ZERO)
        .map(|full| offered.bps() as f64 / full.bps() as f64);
    share.map_text(|share| format!("{:.0} %", share * 100.0))
}

fn rtt_bar(rtt: RttStats, longest: f64) -> String {
    let columns = if longest > 0.0 {
        rtt.median.as_secs_f64() / longest * MAX_BAR
    } else {
        0.0
    };
    "█".repeat((columns.round() as usize).max(1))
}

fn ramp_sentences(report: &RampReport) -> Vec<String> {
    let idle = report
        .idle
        .map_text(|idle| format!(" ({} without load)", round_trip(idle.median)));
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

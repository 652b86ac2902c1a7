use fullpipe_record::{GridAccuracy, GridAgreement, GridCell, GridReport, GridRun};

use super::lab::{megabits_cell, outcome_mark};
use super::prelude::*;

/// A grid, cell by cell, and how good the predictions were.
pub fn grid_report(report: &GridReport) -> String {
    let mut text = heading_line(&report.title);
    text += &cell_table(report);
    let run = measured_head(report);
    let what = format!(
        "Steady rates in Mbit/s of payload; ! where {run} is outside of the interval of the formula."
    );
    text += &dim_paragraph(&what, 2);
    text += &clock_comparison(report);
    text += "\n";
    for cell in &report.cells {
        for reason in &cell.broken {
            let path = path_cell(cell);
            let line = format!("{path}, {}: a run did not count: {reason}", cell.bound);
            text += &dim_paragraph(&line, 2);
        }
    }
    for sentence in grid_sentences(report) {
        text += &bold_paragraph(&sentence, 2);
    }
    if report.interrupted {
        text += &failure_paragraph("Interrupted: these are the cells that were done.", 2);
    }
    for missed in &report.missed {
        text += &failure_paragraph(missed, 2);
    }
    let verdict = outcome_mark(report.passed);
    let cells = count_noun(report.cells.len(), "cell");
    text + &format!("{verdict}  {}, {cells} in {}\n", report.name, report.took)
}

/// Returns the accuracy of the predictions, and the agreement of simulation and kernel.
fn grid_sentences(report: &GridReport) -> Vec<String> {
    let accuracies = [
        ("Limited by a window, a buffer or the link", &report.by_rule),
        ("Limited by loss", &report.by_loss),
    ];
    let agreements = [
        ("without random loss", &report.simulated_without_loss),
        ("with random loss", &report.simulated_with_loss),
    ];
    accuracies
        .into_iter()
        .filter_map(|(what, of)| Some(accuracy_summary(what, of.as_ref()?)))
        .chain(
            agreements
                .into_iter()
                .filter_map(|(paths, of)| Some(agreement_sentence(paths, of.as_ref()?))),
        )
        .collect()
}

/// Returns the head of the rates of the runs.
fn measured_head(report: &GridReport) -> &'static str {
    if report.is_virtual {
        "simulated"
    } else {
        "measured"
    }
}

fn accuracy_summary(what: &str, of: &GridAccuracy) -> String {
    format!(
        "{what}: {}, off by {} in the median and {} at the 95th percentile; {} within their interval.",
        count_noun(of.cells, "cell"),
        of.median,
        of.p95,
        of.inside
    )
}

fn agreement_sentence(paths: &str, of: &GridAgreement) -> String {
    format!(
        "The simulation against this kernel, {paths}: {}, rates off by {} in the median and {} at the 90th \
         percentile, retransmissions by {} and {}.",
        count_noun(of.cells, "cell"),
        of.rate_median,
        of.rate_p90,
        of.retransmits_median,
        of.retransmits_p90
    )
}

/// The steady rates: by the formula, simulated, and of the kernel, where there are such.
fn cell_table(report: &GridReport) -> String {
    let both = !report.is_virtual && is_simulated(report);
    let rates = if both {
        "simulated|>kernel"
    } else {
        measured_head(report)
    };
    let place = if both { COMPACT_HEAD } else { "path" };
    let mut table = TextTable::new(&format!(
        "{place}|bound by|control|>formula|>{rates}|>accuracy|"
    ));
    for cell in &report.cells {
        let place = if both {
            compact_path(cell)
        } else {
            path_cell(cell)
        };
        let mut row = vec![place, bound_cell(cell), control_cell(cell)];
        row.push(megabits_cell(cell.prediction.kernel_model));
        if both {
            row.push(megabits_cell(cell.simulated.and_then(|run| run.steady)));
        }
        row.push(megabits_cell(cell.measured));
        row.push(accuracy_percent(cell.accuracy));
        let is_outside = cell.inside == Some(false);
        row.push(text_if(is_outside, "!").to_owned());
        table.push_row(row);
    }
    // The columns of both need all of the width.
    table.render(if both { 0 } else { 2 })
}

/// The whole runs of both clocks, next to each other; nothing where there is only one.
fn clock_comparison(report: &GridReport) -> String {
    if report.is_virtual || !is_simulated(report) {
        return String::new();
    }
    let mut table = TextTable::new(&format!(
        "{COMPACT_HEAD}|bound by|control|>simulated|>kernel|>÷|>resent"
    ));
    for cell in &report.cells {
        let both = cell.simulated.zip(cell.kernel);
        table.push_row([
            compact_path(cell),
            bound_cell(cell),
            control_cell(cell),
            megabits_cell(cell.simulated.map(|run| run.rate)),
            megabits_cell(cell.kernel.map(|run| run.rate)),
            or_dash(both.and_then(rate_quotient)),
            or_dash(both.map(retransmission_pair)),
        ]);
    }
    let title =
        "The whole runs: rates in Mbit/s; segments retransmitted, simulated and by the kernel";
    heading_line(title) + &table.render(0)
}

/// Returns simulated by kernel's rate; `None` where the kernel's is zero.
fn rate_quotient((simulated, kernel): (GridRun, GridRun)) -> Option<String> {
    let is_known = kernel.rate > BitRate::ZERO;
    is_known.then(|| format!("{:.3}", simulated.rate.relative_to(kernel.rate)))
}

fn retransmission_pair((simulated, kernel): (GridRun, GridRun)) -> String {
    let [simulated, kernel] = [simulated, kernel].map(|run| or_dash(run.retransmits));
    format!("{simulated} / {kernel}")
}

fn is_simulated(report: &GridReport) -> bool {
    report.cells.iter().any(|cell| cell.simulated.is_some())
}

fn bound_cell(cell: &GridCell) -> String {
    cell.bound.replace(" BDP", "")
}

fn path_cell(cell: &GridCell) -> String {
    format!(
        "{} × {}",
        cell.path.forward.rate.unwrap_or(BitRate::ZERO),
        cell.path.rtt()
    )
}

/// The head of [`compact_path`].
const COMPACT_HEAD: &str = "Mbit/s × RTT";

fn compact_path(cell: &GridCell) -> String {
    format!(
        "{} × {}",
        cell.path.forward.rate.unwrap_or(BitRate::ZERO).as_mbps(),
        cell.path.rtt()
    )
}

fn control_cell(cell: &GridCell) -> String {
    let name = cell.request.congestion.as_deref().unwrap_or_default();
    match cell.request.streams {
        1 => name.to_owned(),
        streams => format!("{streams} × {name}"),
    }
}

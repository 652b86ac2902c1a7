use fullpipe_record::{GridAccuracy, GridAgreement, GridCell, GridReport, GridRun};
use fullpipe_units::{BitRate, count_noun};

use super::lab::megabits_cell;
use super::measurement::accuracy_percent;
use super::style::{TextStyle, heading_line, wrap_text};
use super::table::{ColumnAlignment, TextTable, or_dash};

/// A grid, cell by cell, and how good the predictions were.
pub fn grid_report(report: &GridReport, style: TextStyle) -> String {
    let mut text = heading_line(style, &report.title);
    text += &cell_table(report, style);
    let run = if report.is_virtual {
        "simulated"
    } else {
        "measured"
    };
    let what = format!(
        "Steady rates in Mbit/s of payload; ! where {run} is outside of the interval of the formula."
    );
    text += &wrap_text(&what, 2, |line| style.dim(line));
    text += &clock_comparison(report, style);
    text += "\n";
    for cell in &report.cells {
        for reason in &cell.broken {
            let line = format!(
                "{}, {}: a run did not count: {reason}",
                path_cell(cell),
                cell.bound
            );
            text += &wrap_text(&line, 2, |line| style.dim(line));
        }
    }
    if let Some(by_rule) = &report.by_rule {
        text += &wrap_text(
            &accuracy_summary("Limited by a window, a buffer or the link", by_rule),
            2,
            |line| style.bold(line),
        );
    }
    if let Some(by_loss) = &report.by_loss {
        text += &wrap_text(&accuracy_summary("Limited by loss", by_loss), 2, |line| {
            style.bold(line)
        });
    }
    for (paths, agreement) in [
        ("without random loss", &report.simulated_without_loss),
        ("with random loss", &report.simulated_with_loss),
    ] {
        if let Some(agreement) = agreement {
            text += &wrap_text(&agreement_sentence(paths, agreement), 2, |line| {
                style.bold(line)
            });
        }
    }
    if report.interrupted {
        text += &wrap_text(
            "Interrupted: these are the cells that were done.",
            2,
            |line| style.mark_failure(line),
        );
    }
    for missed in &report.missed {
        text += &wrap_text(missed, 2, |line| style.mark_failure(line));
    }
    let verdict = if report.passed {
        style.mark_success("passed")
    } else {
        style.mark_failure("failed")
    };
    text + &format!(
        "{verdict}  {}, {} in {}\n",
        report.name,
        count_noun(report.cells.len(), "cell"),
        report.took
    )
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
fn cell_table(report: &GridReport, style: TextStyle) -> String {
    let both = !report.is_virtual && is_simulated(report);
    let middle = if report.is_virtual {
        "simulated"
    } else {
        "measured"
    };
    let heads = if both {
        vec!["formula", "simulated", "kernel"]
    } else {
        vec!["formula", middle]
    };
    let place = if both { COMPACT_HEAD } else { "path" };
    let mut head = vec![
        (place, ColumnAlignment::Left),
        ("bound by", ColumnAlignment::Left),
        ("control", ColumnAlignment::Left),
    ];
    head.extend(heads.into_iter().map(|name| (name, ColumnAlignment::Right)));
    head.extend([
        ("accuracy", ColumnAlignment::Right),
        ("", ColumnAlignment::Left),
    ]);
    let mut table = TextTable::new(&head);
    for cell in &report.cells {
        let mark = match cell.inside {
            Some(false) => "!",
            _ => "",
        };
        let simulated = both.then(|| megabits_cell(cell.simulated.and_then(|run| run.steady)));
        let place = if both {
            compact_path(cell)
        } else {
            path_cell(cell)
        };
        let first = [
            place,
            bound_cell(cell),
            control_cell(cell),
            megabits_cell(Some(cell.prediction.kernel_model)),
        ];
        let last = [
            megabits_cell(cell.measured),
            accuracy_percent(cell.accuracy),
            mark.to_owned(),
        ];
        table.push_row(
            first
                .into_iter()
                .chain(simulated)
                .chain(last)
                .collect::<Vec<_>>(),
        );
    }
    // The columns of both need all of the width.
    table.render(if both { 0 } else { 2 }, |head| style.dim(head))
}

/// The whole runs of both clocks, next to each other; nothing where there is only one.
fn clock_comparison(report: &GridReport, style: TextStyle) -> String {
    if report.is_virtual || !is_simulated(report) {
        return String::new();
    }
    let mut table = TextTable::new(&[
        (COMPACT_HEAD, ColumnAlignment::Left),
        ("bound by", ColumnAlignment::Left),
        ("control", ColumnAlignment::Left),
        ("simulated", ColumnAlignment::Right),
        ("kernel", ColumnAlignment::Right),
        ("÷", ColumnAlignment::Right),
        ("resent", ColumnAlignment::Right),
    ]);
    let ratio = |both: Option<(GridRun, GridRun)>| {
        let (simulated, kernel) = both.filter(|(_, kernel)| kernel.rate > BitRate::ZERO)?;
        Some(format!("{:.3}", simulated.rate.relative_to(kernel.rate)))
    };
    let again = |run: GridRun| or_dash(run.retransmits.map(|count| count.get().to_string()));
    for cell in &report.cells {
        let both = cell.simulated.zip(cell.kernel);
        let rate = |run: Option<GridRun>| megabits_cell(run.map(|run| run.rate));
        table.push_row([
            compact_path(cell),
            bound_cell(cell),
            control_cell(cell),
            rate(cell.simulated),
            rate(cell.kernel),
            or_dash(ratio(both)),
            or_dash(
                both.map(|(simulated, kernel)| format!("{} / {}", again(simulated), again(kernel))),
            ),
        ]);
    }
    let title =
        "The whole runs: rates in Mbit/s; segments retransmitted, simulated and by the kernel";
    heading_line(style, title) + &table.render(0, |head| style.dim(head))
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

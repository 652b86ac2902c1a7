use fullpipe_record::{GridAccuracy, GridCell, GridReport};
use fullpipe_units::BitRate;

use super::lab::megabits;
use super::measurement::accuracy;
use super::style::{Style, heading, wrapped};
use super::table::{Align, Table};

/// A grid, cell by cell, and how good the predictions were.
pub fn grid_report(report: &GridReport, style: Style) -> String {
    let mut text = heading(style, &report.title);
    text += &cells(&report.cells, style);
    text += &style.dim("  Rates in Mbit/s of payload; ! where measured is outside of the interval.\n\n");
    for cell in &report.cells {
        for reason in &cell.broken {
            let line = format!("{}, {}: a run did not count: {reason}", path(cell), cell.bound);
            text += &wrapped(&line, 2, |line| style.dim(line));
        }
    }
    if let Some(by_rule) = &report.by_rule {
        text += &wrapped(&summary("Limited by a window, a buffer or the link", by_rule), 2, |line| style.bold(line));
    }
    if let Some(by_loss) = &report.by_loss {
        text += &wrapped(&summary("Limited by loss", by_loss), 2, |line| style.bold(line));
    }
    if report.interrupted {
        text += &wrapped("Interrupted: these are the cells that were done.", 2, |line| style.bad(line));
    }
    for missed in &report.missed {
        text += &wrapped(missed, 2, |line| style.bad(line));
    }
    let verdict = if report.passed { style.good("passed") } else { style.bad("failed") };
    text + &format!("{verdict}  {}, {} cells in {}\n", report.name, report.cells.len(), report.took)
}

fn summary(what: &str, of: &GridAccuracy) -> String {
    format!(
        "{what}: {} cells, off by {} in the median and {} at the 95th percentile; {} within their interval.",
        of.cells, of.median, of.p95, of.inside
    )
}

fn cells(cells: &[GridCell], style: Style) -> String {
    let mut table = Table::new(&[
        ("path", Align::Left),
        ("bound by", Align::Left),
        ("control", Align::Left),
        ("predicted", Align::Right),
        ("measured", Align::Right),
        ("accuracy", Align::Right),
        ("", Align::Left),
    ]);
    for cell in cells {
        let mark = match cell.inside {
            Some(false) => "!",
            _ => "",
        };
        table.row([
            path(cell),
            cell.bound.replace(" BDP", ""),
            control(cell),
            megabits(Some(cell.prediction.kernel_model)),
            megabits(cell.measured),
            accuracy(cell.accuracy),
            mark.to_owned(),
        ]);
    }
    table.render(2, |head| style.dim(head))
}

fn path(cell: &GridCell) -> String {
    format!("{} × {}", cell.path.forward.rate.unwrap_or(BitRate::ZERO), cell.path.rtt())
}

fn control(cell: &GridCell) -> String {
    let name = cell.request.congestion.as_deref().unwrap_or_default();
    match cell.request.streams {
        1 => name.to_owned(),
        streams => format!("{streams} × {name}"),
    }
}

//! The comparison as text: a line for each cell, and what all of them come to.

use std::fmt::Write;

use super::cell::{Cell, Figure, range};
use super::course::{Course, medians};
use super::ranks::{holm, rank, uniform_p};
use crate::statistics::quantile;
use fullpipe_units::median;

/// The heading of the lines of cells.
pub(crate) const HEAD: &str = "cell                              goodput of the kernel, simulated (range), error | \
                               retransmissions likewise | distance of the windows, kernel's own\n";

/// Errors above which a cell without losses that fall to chance is named.
const GOODPUT: f64 = 0.03;
const RETRANSMITS: f64 = 0.25;

/// One cell in a line.
pub(crate) fn cell_line(cell: &Cell) -> String {
    let part = |figure: Figure, digits: usize| {
        let kernel: Vec<String> = cell.kernel.iter().map(|run| format!("{:.digits$}", figure.of(run))).collect();
        let simulated = medians(&cell.simulated).map_or(f64::NAN, |medians| figure.choose(medians));
        let [low, high] = range(&cell.simulated, figure);
        let error = 100.0 * cell.error(figure);
        let mark = if cell.is_inside(figure) { " inside" } else { "" };
        format!("{:>20} {simulated:8.digits$} ({low:.digits$}..{high:.digits$}) {error:+6.1} %{mark}", kernel.join(" "))
    };
    let percent = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    format!(
        "{:<28} {} | {} | {} {}\n",
        cell.name,
        part(Figure::Goodput, 2),
        part(Figure::Retransmits, 0),
        percent(cell.distance()),
        percent(cell.own_distance())
    )
}

/// All cells together.
pub(crate) fn summary(cells: &[Cell]) -> String {
    let (lossy, exact): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.has_loss);
    let mut text = String::new();
    if !exact.is_empty() {
        text.push_str(&without_chance(&exact));
    }
    if !lossy.is_empty() {
        text.push_str(&with_chance(&lossy));
    }
    text
}

fn without_chance(cells: &[&Cell]) -> String {
    let mut text = format!("\n{} cells without losses that fall to chance\n", cells.len());
    for (name, figure, bounds) in
        [("goodput", Figure::Goodput, "1 %, 3 %"), ("retransmissions", Figure::Retransmits, "5 %, 25 %")]
    {
        let errors: Vec<f64> = cells.iter().map(|cell| cell.error(figure).abs()).collect();
        let own: Vec<f64> = cells.iter().flat_map(|cell| own_errors(cell, figure)).collect();
        let [middle, high] = percentiles(&errors);
        let [own_middle, own_high] = percentiles(&own);
        let _ = writeln!(
            text,
            "  {name}: off by {middle:.1} % in the median, {high:.1} % at the 90th percentile (must be {bounds}); \
             single kernel runs by {own_middle:.1} %, {own_high:.1} % off the median of their cell"
        );
    }
    for control in controls(cells) {
        let of_control = cells.iter().filter(|cell| cell.control == control);
        let distances: Vec<f64> = of_control.clone().filter_map(|cell| cell.distance()).collect();
        let own: Vec<f64> = of_control.filter_map(|cell| cell.own_distance()).collect();
        let [middle, high] = percentiles(&distances);
        let _ = writeln!(
            text,
            "  windows of {control}: {middle:.1} % apart in the median, {high:.1} % at the 90th percentile; kernel \
             runs from each other {:.1} %",
            percentiles(&own)[0]
        );
    }
    let is_off = |cell: &Cell, figure, bound| cell.error(figure).abs() > bound;
    let off = |cell: &&&Cell| is_off(cell, Figure::Goodput, GOODPUT) || is_off(cell, Figure::Retransmits, RETRANSMITS);
    for cell in cells.iter().filter(off) {
        let inside = (!is_off(cell, Figure::Goodput, GOODPUT) || cell.is_inside(Figure::Goodput))
            && (!is_off(cell, Figure::Retransmits, RETRANSMITS) || cell.is_inside(Figure::Retransmits));
        let note = if inside { ", inside the kernel's own spread" } else { "" };
        let [goodput, again] = [Figure::Goodput, Figure::Retransmits].map(|figure| 100.0 * cell.error(figure));
        let _ = writeln!(text, "  off: {}: goodput {goodput:+.1} %, retransmissions {again:+.1} %{note}", cell.name);
    }
    text
}

fn with_chance(cells: &[&Cell]) -> String {
    let ranks = |cell: &Cell| {
        let simulated: Vec<f64> = cell.simulated.iter().map(|course| course.goodput).collect();
        cell.kernel.iter().map(|run| rank(run.goodput, &simulated)).collect::<Vec<f64>>()
    };
    let mut text = format!("\n{} cells with losses that fall to chance: the kernel's ranks\n", cells.len());
    for cell in cells {
        let shown: Vec<String> = ranks(cell).iter().map(|rank| format!("{:.0} %", 100.0 * rank)).collect();
        let _ = writeln!(text, "  {:<28} {}", cell.name, shown.join(" "));
    }
    let groups = controls(cells);
    let pooled = groups.iter().map(|control| {
        let of_control = cells.iter().filter(|cell| cell.control == *control);
        of_control.flat_map(|cell| ranks(cell)).collect::<Vec<f64>>()
    });
    let pooled: Vec<Vec<f64>> = pooled.collect();
    let probabilities = holm(&pooled.iter().map(|ranks| uniform_p(ranks)).collect::<Vec<_>>());
    for ((control, ranks), p) in groups.iter().zip(&pooled).zip(probabilities) {
        let _ = writeln!(
            text,
            "  {control}: {} runs, mean rank {:.0} %, p {p:.3} after Holm (must be above 0.05)",
            ranks.len(),
            100.0 * mean(ranks)
        );
    }
    let all: Vec<f64> = pooled.concat();
    let biases: Vec<f64> = cells.iter().filter_map(|cell| bias(&cell.kernel, &cell.simulated)).collect();
    let _ = writeln!(
        text,
        "  all: {} runs, mean rank {:.0} %, p {:.3}; mean bias {:+.1} % (must be within 3 %)",
        all.len(),
        100.0 * mean(&all),
        uniform_p(&all),
        100.0 * mean(&biases)
    );
    text
}

/// Returns the pairs of cells whose goodput with whole trains differs from that with single segments.
pub(crate) fn trains_summary(trains: &[Cell], segments: &[Cell]) -> String {
    let mut text = String::from("\nwhole trains against single segments: goodput\n");
    for (name, has_loss, bounds) in [("without loss", false, "0.3 %, 2 %"), ("with loss", true, "1 %, 3 %")] {
        let pairs = trains.iter().zip(segments).filter(|(trains, _)| trains.has_loss == has_loss);
        let off = pairs.filter_map(|(trains, segments)| {
            let [whole, single] = [medians(&trains.simulated)?[0], medians(&segments.simulated)?[0]];
            Some((trains.name.as_str(), whole / single - 1.0))
        });
        let off: Vec<(&str, f64)> = off.collect();
        let errors: Vec<f64> = off.iter().map(|(_, error)| error.abs()).collect();
        let [middle, high] = percentiles(&errors);
        let _ = writeln!(
            text,
            "  {} cells {name}: {middle:.2} % in the median, {high:.2} % at the 90th percentile (must be {bounds})",
            off.len()
        );
        for (name, error) in off.iter().filter(|(_, error)| error.abs() > 0.02) {
            let _ = writeln!(text, "  off: {name}: {:+.1} %", 100.0 * error);
        }
    }
    text
}

/// Returns the errors of the kernel's runs against the median of their cell.
fn own_errors(cell: &Cell, figure: Figure) -> Vec<f64> {
    let Some(middle) = medians(&cell.kernel).map(|medians| figure.choose(medians)).filter(|_| cell.kernel.len() > 1)
    else {
        return Vec::new();
    };
    cell.kernel.iter().map(|run| (figure.of(run) - middle).abs() / middle.max(1.0)).collect()
}

fn bias(kernel: &[Course], simulated: &[Course]) -> Option<f64> {
    let mean_of = |courses: &[Course]| mean(&courses.iter().map(|course| course.goodput).collect::<Vec<_>>());
    let kernel = mean_of(kernel);
    (kernel > 0.0).then(|| mean_of(simulated) / kernel - 1.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Median and 90th percentile, in percent.
fn percentiles(shares: &[f64]) -> [f64; 2] {
    [median(shares.to_vec()), quantile(shares, 0.9)].map(|share| 100.0 * share.unwrap_or(f64::NAN))
}

fn controls(cells: &[&Cell]) -> Vec<String> {
    let mut controls: Vec<String> = cells.iter().map(|cell| cell.control.clone()).collect();
    controls.sort();
    controls.dedup();
    controls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::course::course;

    fn cell(name: &str, has_loss: bool, kernel: &[f64], simulated: &[f64]) -> Cell {
        let runs = |rates: &[f64]| rates.iter().map(|rate| course(*rate, 10.0, &[(0.0, 5.0)])).collect();
        let (name, control) = (name.to_owned(), "cubic".to_owned());
        Cell { name, control, has_loss, kernel: runs(kernel), simulated: runs(simulated) }
    }

    #[test]
    fn a_cell_that_is_off_is_named_and_excused_by_the_kernels_own_spread() {
        let far = cell("far", false, &[90.0, 90.1, 90.2], &[80.0]);
        let wide = cell("wide", false, &[70.0, 90.0, 91.0], &[80.0]);
        let text = summary(&[far, wide, cell("good", false, &[50.0; 3], &[50.1])]);
        assert!(text.contains("off: far: goodput -11.2 %, retransmissions +0.0 %\n"), "{text}");
        assert!(text.contains("off: wide: goodput -11.1 %, retransmissions +0.0 %, inside"), "{text}");
        assert!(!text.contains("good:"), "{text}");
    }

    #[test]
    fn runs_with_losses_are_ranked() {
        let simulated: Vec<f64> = (0..60).map(f64::from).collect();
        let text = summary(&[cell("lossy", true, &[14.5, 29.5, 41.5], &simulated)]);
        assert!(text.contains("lossy                        25 % 50 % 70 %"), "{text}");
        assert!(text.contains("mean bias +3.5 %"), "{text}");
    }

    #[test]
    fn trains_are_held_against_segments() {
        let text = trains_summary(
            &[cell("a", false, &[], &[101.0]), cell("b", true, &[], &[95.0])],
            &[cell("a", false, &[], &[100.0]), cell("b", true, &[], &[100.0])],
        );
        assert!(text.contains("1 cells without loss: 1.00 % in the median"), "{text}");
        assert!(text.contains("off: b: -5.0 %"), "{text}");
    }
}

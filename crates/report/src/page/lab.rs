//! Scenarios and grids: measured against predictions and bounds.

use std::collections::BTreeSet;

use crate::chart::RateChange;
use fullpipe_record::{GridReport, LabReport, LabStep};

use super::prelude::*;
use super::published;
use super::transfer::{by_load, transfer_sections};
use crate::text::{outcome_label, total_run_counts};

/// Steps up to which each has charts of its own.
const MAX_DETAILED: usize = 3;

/// Titles of scenarios, and warnings, that a page begins with.
const MAX_SENTENCES: usize = 12;

/// Returns the article on scenarios that were run.
pub(super) fn lab_article(reports: &[LabReport]) -> Article {
    let steps: Vec<(&LabReport, &LabStep)> = reports
        .iter()
        .flat_map(|report| report.steps.iter().map(move |step| (report, step)))
        .collect();
    let passed = reports.iter().filter(|report| report.passed).count();
    let mut all = vec![acceptance_section(&steps)];
    all.extend(accuracy_section(&steps));
    all.extend(next_to_source(&steps));
    all.extend(reports.iter().filter_map(published::of_scenario));
    all.extend(step_rates_section(&steps));
    if steps.len() <= MAX_DETAILED {
        all.extend(
            steps
                .iter()
                .flat_map(|(_, step)| step_detail_sections(step)),
        );
    }
    let titles = reports
        .iter()
        .map(|report| format!("{}: {}", report.scenario, report.title));
    let (runs, invalid) = total_run_counts(reports);
    Article {
        origin: "fullpipe lab run".to_owned(),
        headline: lab_headline(reports, passed),
        sentences: titles
            .take(MAX_SENTENCES)
            .chain(run_warnings(&steps))
            .collect(),
        facts: vec![
            fact(format!("{passed} of {}", reports.len()), "scenarios passed"),
            fact(steps.len(), "steps"),
            fact(runs, format!("runs, {invalid} did not count")),
        ],
        sections: all,
        ..Article::default()
    }
}

fn lab_headline(reports: &[LabReport], passed: usize) -> String {
    match (reports, passed) {
        ([], _) => "No scenario was run".to_owned(),
        ([one], 1) => format!("{}: passed", one.scenario),
        ([one], _) => format!("{}: failed", one.scenario),
        (all, passed) if passed == all.len() => format!("{passed} scenarios passed, none failed"),
        (all, passed) => format!("{} of {} scenarios failed", all.len() - passed, all.len()),
    }
}

/// Returns the warnings of all runs, each once: that they were simulated, for one.
fn run_warnings(steps: &[(&LabReport, &LabStep)]) -> Vec<String> {
    let runs = steps.iter().flat_map(|(_, step)| &step.runs);
    let all: BTreeSet<&String> = runs.flat_map(|run| &run.warnings).collect();
    all.into_iter()
        .take(MAX_SENTENCES)
        .map(|warning| format!("Warning: {warning}"))
        .collect()
}

/// Returns the table of all steps.
fn acceptance_section(steps: &[(&LabReport, &LabStep)]) -> PageSection {
    let failed = steps
        .iter()
        .filter(|(_, step)| step.passed == Some(false))
        .count();
    let title = match failed {
        0 => "Every step with a bound met it".to_owned(),
        many => format!("{} missed a bound", count_noun(many, "step")),
    };
    let heads = "scenario|step|predicted|published|measured|of predicted|bounds|missed";
    let rows = steps.iter().map(|(report, step)| step_cells(report, step));
    PageSection::new(
        title,
        "Payload; predicted by the rules of the kernel before the step ran.",
        compact_table(heads, rows),
    )
}

fn step_cells(report: &LabReport, step: &LabStep) -> [String; 8] {
    let accuracy = step.accuracy;
    [
        report.scenario.clone(),
        step.name.clone(),
        step.prediction.kernel_model.to_string(),
        or_empty(step.published.and_then(|published| published.rate)),
        or_empty(step.measured),
        accuracy.map_text(tenths_of_percent),
        outcome_label(step, "invalid", "no bound").to_owned(),
        step.missed.join("; "),
    ]
}

/// Returns measured by predicted of each step; `None` where nothing was measured.
fn accuracy_section(steps: &[(&LabReport, &LabStep)]) -> Option<PageSection> {
    let mut rows = RowChart::new("Measured by predicted", ["step", "difference"]);
    let mut errors = Vec::new();
    for (report, step) in steps {
        let Some(accuracy) = step.accuracy else {
            continue;
        };
        errors.push((accuracy.get() - 1.0).abs());
        let name = format!("{} · {}", report.scenario, step.name);
        rows = rows.with_row(accuracy_row(&name, accuracy, step.passed));
    }
    let title = format!(
        "Half of the steps are within {:.1} % of the prediction",
        half_within(errors, 0.1)?
    );
    Some(PageSection::new(
        title,
        "Measured by predicted; on the line in the middle they are equal.",
        rows,
    ))
}

/// Returns the measured rates next to those that the source of a scenario has; `None` where no step
/// has both.
fn next_to_source(steps: &[(&LabReport, &LabStep)]) -> Option<PageSection> {
    let mut rows = RowChart::new(
        "Measured and published rates",
        ["step", "measured, published"],
    );
    let mut differences = Vec::new();
    for (report, step) in steps {
        let Some((measured, published)) = step.measured.zip(
            step.published
                .and_then(|source| source.rate)
                .filter(|rate| *rate > BitRate::ZERO),
        ) else {
            continue;
        };
        differences.push((measured.relative_to(published) - 1.0).abs());
        let name = format!("{} · {}", report.scenario, step.name);
        let row = ChartRow::from_bar(&name, measured, Blue)
            .with_detail(&format!("published {published}"));
        rows = rows.with_row(row.with_prediction(published));
    }
    let title = format!(
        "Half of the steps are within {:.0} % of the published rate",
        half_within(differences, 1.0)?
    );
    Some(PageSection::new(
        title,
        "Bars: measured here. Ticks: the figure of the source.",
        rows,
    ))
}

/// Returns the percentage within which half of the `differences` are, rounded up to a multiple of
/// `unit`; `None` if there are none.
fn half_within(differences: Vec<f64>, unit: f64) -> Option<f64> {
    let middle = median(differences)? * 100.0;
    Some((middle / unit).ceil().max(1.0) * unit)
}

/// Returns a row with a dot at measured by predicted, orange outside of the bounds.
fn accuracy_row(name: &str, accuracy: Ratio, is_within: Option<bool>) -> ChartRow {
    let percent = match (accuracy.get() - 1.0) * 100.0 {
        near if near.abs() < 0.05 => "0 %".to_owned(),
        percent => format!("{percent:+.1} %").replace('-', "−"),
    };
    let hue = if is_within == Some(false) {
        Orange
    } else {
        Blue
    };
    ChartRow::new(name, &percent, hue).with_dot(RateChange(accuracy))
}

/// Returns the valid runs of each step with their median, next to the prediction; `None` if every
/// step has one run.
fn step_rates_section(steps: &[(&LabReport, &LabStep)]) -> Option<PageSection> {
    // Each run of a ramp has another load.
    let steps = steps.iter().filter(|(_, step)| step.ramp.is_none());
    let rates: Vec<Vec<BitRate>> = steps.clone().map(|(_, step)| valid_rates(step)).collect();
    if rates.iter().all(|runs| runs.len() < 2) {
        return None;
    }
    let mut rows = RowChart::new("Rates of the runs", ["step", "median, runs"]);
    for ((report, step), runs) in steps.zip(rates) {
        let Some(middle) = median(runs.clone()) else {
            continue;
        };
        let name = format!("{} · {}", report.scenario, step.name);
        let row = ChartRow::from_dot(&name, middle, Blue)
            .with_detail(&count_noun(runs.len(), "run"))
            .with_dots(runs);
        rows = rows.with_row(row.with_prediction(step.prediction.kernel_model));
    }
    Some(PageSection::new(
        "Runs of each step",
        "Small dots: runs. Large dot: median. Tick: predicted.",
        rows,
    ))
}

fn valid_rates(step: &LabStep) -> Vec<BitRate> {
    let counted = step.runs.iter().filter(|run| run.validity.is_valid());
    counted
        .map(|run| run.summary.steady_or_mean_rate())
        .collect()
}

/// Returns the charts of the last run of a step that counts.
fn step_detail_sections(step: &LabStep) -> Vec<PageSection> {
    let last: Option<&Measurement> = step.runs.iter().rev().find(|run| run.validity.is_valid());
    let Some(run) = last else { return Vec::new() };
    let mut sections = match &step.ramp {
        Some(ramp) => vec![by_load(ramp)],
        None => transfer_sections(run, Some(&step.prediction), run.limit.as_ref()),
    };
    for section in &mut sections {
        section.title = format!("{}: {}", step.name, section.title);
    }
    sections
}

/// Returns the article on a grid.
pub(super) fn grid_article(report: &GridReport) -> Article {
    let outcome = if report.passed { "passed" } else { "failed" };
    let paths = count_noun(report.cells.len(), "path");
    Article {
        origin: "fullpipe lab grid".to_owned(),
        headline: format!("{}: {outcome}, {paths}", report.name),
        sentences: std::iter::once(&report.title)
            .chain(&report.missed)
            .cloned()
            .collect(),
        facts: grid_facts(report),
        sections: grid_sections(report),
        ..Article::default()
    }
}

fn grid_facts(report: &GridReport) -> Vec<(String, String)> {
    let accuracies = [("rule", report.by_rule), ("loss", report.by_loss)];
    let facts = accuracies.into_iter().filter_map(|(name, accuracy)| {
        let accuracy = accuracy?;
        let error = tenths_of_percent(accuracy.median);
        let paths = count_noun(accuracy.cells, "path");
        Some((
            error,
            format!("median error over {paths} that a {name} limits"),
        ))
    });
    facts.collect()
}

fn grid_sections(report: &GridReport) -> Vec<PageSection> {
    let method = "A dot a path; on the line both are equal.";
    let cells = report.cells.iter();
    let measured = cells
        .clone()
        .filter_map(|cell| Some((cell.prediction.kernel_model, cell.measured?)));
    let mut all = vec![PageSection::new(
        "Measured by predicted rate of each path",
        method,
        rate_comparison_plot("predicted", "measured", measured.collect()),
    )];
    let both: Vec<(BitRate, BitRate)> = cells
        .filter_map(|cell| Some((cell.kernel.as_ref()?.rate, cell.simulated.as_ref()?.rate)))
        .collect();
    if !both.is_empty() {
        all.push(PageSection::new(
            "Simulated by kernel's rate of each path",
            method,
            rate_comparison_plot("kernel", "simulated", both),
        ));
    }
    let mut rows = RowChart::new("Measured by predicted", ["path", "difference"]);
    for cell in &report.cells {
        if let Some(accuracy) = cell.accuracy {
            let name = format!("{}, {}", cell.bound, cell.path.rtt());
            rows = rows.with_row(accuracy_row(&name, accuracy, cell.inside));
        }
    }
    all.push(PageSection::new(
        "Error of each prediction",
        "Orange: outside of the predicted interval.",
        rows,
    ));
    all
}

/// Returns dots of one rate by another, and the line on which both are equal.
fn rate_comparison_plot(across: &str, up: &str, rates: Vec<(BitRate, BitRate)>) -> Plot {
    let most = rates.iter().map(|(x, _)| *x).max().unwrap_or_default();
    let equal = [(BitRate::ZERO, BitRate::ZERO), (most, most)];
    let panel = Panel::new(up)
        .with_labelled_points("equal", Line, Grey, equal)
        .with_points(up, Dots, Blue, rates);
    Plot::new(&format!("{up} by {across} rate"))
        .with_axis_name(across)
        .with_panel(panel)
}

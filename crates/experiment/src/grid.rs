//! Grids: many paths, a measurement on each, and how good the predictions were.

use std::time::Instant;

use fullpipe_lab::Backend;
use fullpipe_model::predict;
use fullpipe_record::event::CellBegan;
use fullpipe_record::{Event, GridAccuracy, GridCell, GridReport, HostSettings, LabStep, Limit, Prediction};
use fullpipe_scenario::{Grid, GridBounds, Scenario, Step};
use fullpipe_units::{Ratio, Span};

use crate::duration::needed;
use crate::error::ExperimentError;
use crate::steps::run_scenario;
use crate::target::Interrupt;

/// Measures every cell of `grid`, each in a lab of its own over `backend`, between hosts with `settings` but for what
/// the cell changes, for as long as its prediction needs to be judged. A cell runs until a run is valid, three times at
/// most.
///
/// An interrupt ends it after the cells that are done, which are kept.
///
/// # Errors
/// If a lab cannot be made, a measurement fails, or it is interrupted before a cell is done.
pub fn run_grid(
    grid: &Grid,
    settings: &HostSettings,
    backend: Backend,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<GridReport, ExperimentError> {
    let begun = Instant::now();
    let mut cells: Vec<GridCell> = Vec::new();
    let mut interrupted = false;
    for (index, cell) in grid.cells.iter().enumerate() {
        let cell = timed(cell, settings, grid.longest);
        observe(&Event::CellBegan(began(index, grid, &cell)));
        match run_scenario(&cell, backend, Ratio::ONE, None, interrupt, observe) {
            Ok(mut report) if !report.interrupted => {
                let Some(step) = report.steps.pop() else { continue };
                let done = judged(&cell, step);
                observe(&Event::Cell(Box::new(done.clone())));
                cells.push(done);
            }
            Ok(_) | Err(ExperimentError::Interrupted) if !cells.is_empty() => {
                interrupted = true;
                break;
            }
            Ok(_) => return Err(ExperimentError::Interrupted),
            Err(error) => return Err(error),
        }
    }
    Ok(report(grid, cells, begun.elapsed().into(), interrupted))
}

fn began(index: usize, grid: &Grid, cell: &Scenario) -> CellBegan {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    CellBegan {
        number: count(index + 1),
        cells: count(grid.cells.len()),
        name: cell.name.clone(),
        duration: cell.steps[0].request.duration,
    }
}

/// Returns the minimum duration of a grid, with the settings of the hosts.
pub fn grid_duration(grid: &Grid, settings: &HostSettings) -> Span {
    let durations = grid.cells.iter().map(|cell| timed(cell, settings, grid.longest).steps[0].request.duration);
    durations.fold(Span::ZERO, |sum, duration| sum + duration)
}

/// The cell with the duration that its prediction needs.
fn timed(cell: &Scenario, settings: &HostSettings, longest: Span) -> Scenario {
    let mut timed = cell.clone();
    for step in &mut timed.steps {
        let prediction = predicted(cell, step, settings);
        step.request.duration = needed(&prediction, &cell.path, step.request.streams).min(longest);
    }
    timed
}

fn predicted(cell: &Scenario, step: &Step, settings: &HostSettings) -> Prediction {
    let [sender, receiver] = [&cell.sender, &cell.receiver].map(|changes| settings.changed_by(changes));
    predict(&cell.path, &sender, &receiver, &step.request)
}

fn judged(cell: &Scenario, step: LabStep) -> GridCell {
    let valid = step.runs.iter().find(|run| run.validity.is_valid());
    let prediction = step.prediction;
    GridCell {
        bound: cell.title.clone(),
        path: cell.path.clone(),
        inside: step.measured.map(|rate| (prediction.low..=prediction.high).contains(&rate)),
        measured: step.measured,
        accuracy: step.accuracy,
        losses: valid.and_then(|run| run.validity.injected_losses),
        broken: step.runs.iter().flat_map(|run| run.validity.broken.clone()).collect(),
        request: step.request,
        prediction,
    }
}

fn report(grid: &Grid, cells: Vec<GridCell>, took: Span, interrupted: bool) -> GridReport {
    let by_rule = accuracy(&cells, |limit| limit != Limit::Loss);
    let by_loss = accuracy(&cells, |limit| limit == Limit::Loss);
    let missed = missed(&grid.bounds, by_rule, by_loss);
    let complete = !interrupted && cells.iter().all(|cell| cell.measured.is_some());
    GridReport {
        name: grid.name.clone(),
        title: grid.title.clone(),
        passed: complete && missed.is_empty(),
        cells,
        by_rule,
        by_loss,
        missed,
        took,
        interrupted,
    }
}

/// Returns the accuracy of the predictions whose limit `of` accepts.
fn accuracy(cells: &[GridCell], of: impl Fn(Limit) -> bool) -> Option<GridAccuracy> {
    let cells = cells.iter().filter(|cell| of(cell.prediction.limit));
    ranked(cells.filter_map(|cell| Some((cell.accuracy?, cell.inside?))).collect())
}

/// Of measured ÷ predicted, and whether it was within the interval, of each cell.
fn ranked(cells: Vec<(Ratio, bool)>) -> Option<GridAccuracy> {
    let inside = cells.iter().filter(|(_, inside)| *inside).count();
    let mut errors: Vec<f64> = cells.into_iter().map(|(accuracy, _)| (accuracy.get() - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let nearest_rank =
        |share: f64| errors.get(((errors.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    Some(GridAccuracy {
        cells: u32::try_from(errors.len()).unwrap_or(u32::MAX),
        median: Ratio::new(nearest_rank(0.5)?),
        p95: Ratio::new(nearest_rank(0.95)?),
        inside: Ratio::of(inside as f64, errors.len() as f64),
    })
}

/// The bounds that the cells miss, each in a sentence.
fn missed(bounds: &GridBounds, by_rule: Option<GridAccuracy>, by_loss: Option<GridAccuracy>) -> Vec<String> {
    let at_most = |what: &str, bound: Option<Ratio>, got: Option<Ratio>| match (bound, got) {
        (Some(bound), Some(got)) if got > bound => Some(format!("{what} is {got}; the bound is {bound} at most")),
        _ => None,
    };
    let inside = match (bounds.inside, by_loss) {
        (Some(bound), Some(got)) if got.inside < bound => Some(format!(
            "{} of the cells that loss limits are within their interval; the bound is {bound} at least",
            got.inside
        )),
        _ => None,
    };
    [
        at_most("the median error where a rule limits", bounds.median, by_rule.map(|of| of.median)),
        at_most("the 95th percentile where a rule limits", bounds.p95, by_rule.map(|of| of.p95)),
        inside,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_scenario::builtin_grid;

    fn builtin() -> Grid {
        let (name, text) = builtin_grid();
        Grid::parse(name, text).unwrap()
    }

    #[test]
    fn the_builtin_grid_has_sixty_paths_of_every_kind() {
        let grid = builtin();
        assert!(grid.cells.len() >= 60, "{}", grid.cells.len());
        let settings = HostSettings::of_linux_6_18();
        let limits: Vec<Limit> =
            grid.cells.iter().map(|cell| predicted(cell, &cell.steps[0], &settings).limit).collect();
        for (kind, at_least) in
            [(Limit::ReceiveWindow, 20), (Limit::SendBuffer, 8), (Limit::Capacity, 12), (Limit::Loss, 12)]
        {
            let count = limits.iter().filter(|limit| **limit == kind).count();
            assert!(count >= at_least, "{}: {count}", kind.name());
        }
    }

    #[test]
    fn errors_are_ranked_and_intervals_counted() {
        let cells = |count: u32| (1..=count).map(|n| (Ratio::new(1.0 + f64::from(n) / 100.0), n % 2 == 0)).collect();
        assert_eq!(ranked(cells(0)), None);
        let of_twenty = ranked(cells(20)).unwrap();
        let figures = [of_twenty.median, of_twenty.p95, of_twenty.inside].map(|of| format!("{:.3}", of.get()));
        assert_eq!((of_twenty.cells, figures), (20, ["0.100", "0.190", "0.500"].map(str::to_owned)));
        assert_eq!(ranked(vec![(Ratio::new(0.9), true)]).map(|one| format!("{:.2}", one.p95.get())).unwrap(), "0.10");
    }

    #[test]
    fn what_misses_a_bound_is_said() {
        let got = GridAccuracy { cells: 9, median: Ratio::new(0.02), p95: Ratio::new(0.1), inside: Ratio::new(0.8) };
        let bounds =
            GridBounds { median: Some(Ratio::new(0.03)), p95: Some(Ratio::new(0.08)), inside: Some(Ratio::new(0.9)) };
        let missed = missed(&bounds, Some(got), Some(got));
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].starts_with("the 95th percentile") && missed[1].starts_with("80 % of the cells"));
    }
}

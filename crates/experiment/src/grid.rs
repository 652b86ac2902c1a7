//! Grids: many paths, a measurement on each, and how good the predictions were.

use std::collections::BTreeMap;
use std::time::Instant;

use fullpipe_lab::Backend;
use fullpipe_model::predict;
use fullpipe_record::event::CellBegan;
use fullpipe_record::{
    Event, GridAccuracy, GridAgreement, GridCell, GridReport, GridRun, HostSettings, LabStep,
    Limit, Measurement, Prediction,
};
use fullpipe_scenario::{GridBounds, Scenario, ScenarioGrid, ScenarioStep};
use fullpipe_sim::{Simulation, SimulationPlan};
use fullpipe_units::{Ratio, Span, median};

use crate::duration::required_duration;
use crate::error::ExperimentError;
use crate::simulated::row_id;
use crate::steps::{run_scenario, run_scenario_virtually};
use crate::target::Interrupt;

/// The hosts and the path of every cell.
#[derive(Debug, Clone, Copy)]
pub enum GridPlace {
    /// A lab of its own over this backend.
    Lab {
        /// Of the path.
        backend: Backend,
        /// True to simulate each valid run, too, with the settings that were read and the load that
        /// was carried out.
        simulated: bool,
    },
    /// Virtual time, between hosts with the default settings of Linux 6.18.
    Virtual,
}

/// Cells that were simulated before, by their identifiers.
pub type KnownCells = BTreeMap<String, GridCell>;

/// Measures every cell of `grid` in `place`, between hosts with `settings` but for what the cell
/// changes, for as long as its prediction needs to be judged. A cell runs until a run is valid,
/// three times at most. Cells in virtual time that are `known` are taken as they are.
///
/// An interrupt ends it after the cells that are done, which are kept.
///
/// # Errors
/// If a lab cannot be made, a measurement fails, or it is interrupted before a cell is done.
pub fn run_grid(
    grid: &ScenarioGrid,
    settings: &HostSettings,
    (place, known): (GridPlace, &KnownCells),
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<GridReport, ExperimentError> {
    let begun = Instant::now();
    let mut cells: Vec<GridCell> = Vec::new();
    let mut interrupted = false;
    for (index, cell) in grid.cells.iter().enumerate() {
        let cell = with_required_duration(cell, settings, grid.longest);
        let id = cell_id(&cell, place);
        if let Some(done) = known.get(&id) {
            cells.push(done.clone());
            continue;
        }
        observe(&Event::CellBegan(cell_began_event(index, grid, &cell)));
        let run = match place {
            GridPlace::Lab { backend, .. } => {
                run_scenario(&cell, backend, Ratio::ONE, None, interrupt, observe)
            }
            GridPlace::Virtual => run_scenario_virtually(&cell, Ratio::ONE, interrupt, observe),
        };
        match run {
            Ok(mut report) if !report.interrupted => {
                let Some(step) = report.steps.pop() else {
                    continue;
                };
                let done = GridCell {
                    id,
                    ..judge_cell(&cell, step, place)
                };
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
    let report = grid_report(grid, cells, begun.elapsed().into(), interrupted);
    Ok(GridReport {
        is_virtual: matches!(place, GridPlace::Virtual),
        ..report
    })
}

fn cell_began_event(index: usize, grid: &ScenarioGrid, cell: &Scenario) -> CellBegan {
    let [number, cells] =
        [index + 1, grid.cells.len()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    CellBegan {
        number,
        cells,
        name: cell.name.clone(),
        duration: cell.steps[0].request.duration,
    }
}

/// Returns the minimum duration of a grid, with the settings of the hosts.
pub fn grid_duration(grid: &ScenarioGrid, settings: &HostSettings) -> Span {
    let durations = grid.cells.iter().map(|cell| {
        with_required_duration(cell, settings, grid.longest).steps[0]
            .request
            .duration
    });
    durations.fold(Span::ZERO, |sum, duration| sum + duration)
}

/// Returns the identifiers of the cells of a grid in virtual time, in their order.
pub fn virtual_cell_ids(grid: &ScenarioGrid, settings: &HostSettings) -> Vec<String> {
    let cells = grid.cells.iter();
    cells
        .map(|cell| with_required_duration(cell, settings, grid.longest))
        .map(|cell| cell_id(&cell, GridPlace::Virtual))
        .collect()
}

/// Returns the identifier of a cell in virtual time, where the hosts have the settings of
/// [`GridPlace::Virtual`]. What a kernel does follows from more than the cell.
fn cell_id(cell: &Scenario, place: GridPlace) -> String {
    match place {
        GridPlace::Virtual => row_id(&cell),
        GridPlace::Lab { .. } => String::new(),
    }
}

/// The cell with the duration that its prediction needs.
fn with_required_duration(cell: &Scenario, settings: &HostSettings, longest: Span) -> Scenario {
    let mut timed = cell.clone();
    for step in &mut timed.steps {
        let prediction = predict_cell(cell, step, settings);
        step.request.duration =
            required_duration(&prediction, &cell.path, step.request.streams).min(longest);
    }
    timed
}

fn predict_cell(cell: &Scenario, step: &ScenarioStep, settings: &HostSettings) -> Prediction {
    let [sender, receiver] =
        [&cell.sender, &cell.receiver].map(|changes| settings.changed_by(changes));
    predict(&cell.path, &sender, &receiver, &step.request)
}

fn judge_cell(cell: &Scenario, step: LabStep, place: GridPlace) -> GridCell {
    let valid = step.runs.iter().find(|run| run.validity.is_valid());
    let mut broken: Vec<String> = step
        .runs
        .iter()
        .flat_map(|run| run.validity.broken.clone())
        .collect();
    let ours = valid.map(grid_run);
    let (kernel, simulated) = match place {
        GridPlace::Lab {
            simulated: false, ..
        } => (ours, None),
        GridPlace::Lab {
            simulated: true, ..
        } => (
            ours,
            valid.and_then(|run| simulated_like(cell, run, &mut broken)),
        ),
        GridPlace::Virtual => {
            // What is not modelled has not run.
            broken.extend(step.missed.iter().filter(|_| step.runs.is_empty()).cloned());
            (None, ours)
        }
    };
    let prediction = step.prediction;
    GridCell {
        id: String::new(),
        bound: cell.title.clone(),
        path: cell.path.clone(),
        inside: step
            .measured
            .map(|rate| (prediction.low..=prediction.high).contains(&rate)),
        measured: step.measured,
        accuracy: step.accuracy,
        losses: valid.and_then(|run| run.validity.injected_losses),
        kernel,
        simulated,
        broken,
        request: step.request,
        prediction,
    }
}

fn grid_run(measurement: &Measurement) -> GridRun {
    let summary = &measurement.summary;
    GridRun {
        rate: summary.rate,
        steady: summary.steady.map(|steady| steady.rate),
        retransmits: summary.retransmits,
    }
}

/// Returns the simulation of what `run` measured on the path of `cell`; if there can be none, adds
/// the reason to `broken`.
fn simulated_like(cell: &Scenario, run: &Measurement, broken: &mut Vec<String>) -> Option<GridRun> {
    let (sender, receiver) = run
        .sending_end()
        .settings
        .clone()
        .zip(run.receiving_end().settings.clone())?;
    let plan = SimulationPlan::new(
        cell.path.clone(),
        [sender, receiver],
        run.carried_out().clone(),
        cell.seed,
    );
    match Simulation::new(plan) {
        Ok(simulation) => Some(grid_run(&simulation.run_to_measurement())),
        Err(refused) => {
            broken.push(refused.to_string());
            None
        }
    }
}

fn grid_report(
    grid: &ScenarioGrid,
    cells: Vec<GridCell>,
    took: Span,
    interrupted: bool,
) -> GridReport {
    let by_rule = prediction_accuracy(&cells, |limit| limit != Limit::Loss);
    let by_loss = prediction_accuracy(&cells, |limit| limit == Limit::Loss);
    let missed = missed_bounds(&grid.bounds, by_rule, by_loss);
    let complete = !interrupted && cells.iter().all(|cell| cell.measured.is_some());
    GridReport {
        name: grid.name.clone(),
        title: grid.title.clone(),
        passed: complete && missed.is_empty(),
        simulated_without_loss: run_agreement(&cells, |loss| loss == Ratio::ZERO),
        simulated_with_loss: run_agreement(&cells, |loss| loss > Ratio::ZERO),
        is_virtual: false,
        cells,
        by_rule,
        by_loss,
        missed,
        took,
        interrupted,
    }
}

/// Returns the accuracy of the predictions whose limit `of` accepts.
fn prediction_accuracy(cells: &[GridCell], of: impl Fn(Limit) -> bool) -> Option<GridAccuracy> {
    let cells = cells.iter().filter(|cell| of(cell.prediction.limit));
    quotient_accuracy(
        cells
            .filter_map(|cell| Some((cell.accuracy?, cell.inside?)))
            .collect(),
    )
}

/// Of measured ÷ predicted, and whether it was within the interval, of each cell.
fn quotient_accuracy(cells: Vec<(Ratio, bool)>) -> Option<GridAccuracy> {
    let inside = cells.iter().filter(|(_, inside)| *inside).count();
    let errors =
        QuotientErrors::from_quotients(cells.into_iter().map(|(accuracy, _)| accuracy.get()));
    Some(GridAccuracy {
        cells: errors.count(),
        median: errors.median()?,
        p95: errors.quantile(0.95)?,
        inside: Ratio::from_quotient(inside as f64, f64::from(errors.count())),
    })
}

/// Returns the agreement of the two runs of each cell whose random loss `of` accepts.
fn run_agreement(cells: &[GridCell], of: impl Fn(Ratio) -> bool) -> Option<GridAgreement> {
    let cells = cells
        .iter()
        .filter(|cell| of(cell.path.forward.loss.unwrap_or(Ratio::ZERO)));
    let both: Vec<(GridRun, GridRun)> = cells
        .filter_map(|cell| cell.simulated.zip(cell.kernel))
        .collect();
    let rates = QuotientErrors::from_quotients(
        both.iter()
            .map(|(simulated, kernel)| simulated.rate.relative_to(kernel.rate)),
    );
    let again = QuotientErrors::from_quotients(both.iter().map(|(simulated, kernel)| {
        let [simulated, kernel] =
            [simulated, kernel].map(|run| run.retransmits.unwrap_or_default().get());
        // None of both is no error.
        if simulated == kernel {
            1.0
        } else {
            simulated as f64 / kernel.max(1) as f64
        }
    }));
    Some(GridAgreement {
        cells: rates.count(),
        rate_median: rates.median()?,
        rate_p90: rates.quantile(0.9)?,
        retransmits_median: again.median()?,
        retransmits_p90: again.quantile(0.9)?,
    })
}

/// Distances of quotients from one, in rising order.
struct QuotientErrors(Vec<f64>);

impl QuotientErrors {
    fn from_quotients(quotients: impl Iterator<Item = f64>) -> Self {
        let mut errors: Vec<f64> = quotients.map(|quotient| (quotient - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        Self(errors)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn median(&self) -> Option<Ratio> {
        median(self.0.clone()).map(Ratio::new)
    }

    /// By nearest rank.
    fn quantile(&self, share: f64) -> Option<Ratio> {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().map(Ratio::new)
    }
}

/// The bounds that the cells miss, each in a sentence.
fn missed_bounds(
    bounds: &GridBounds,
    by_rule: Option<GridAccuracy>,
    by_loss: Option<GridAccuracy>,
) -> Vec<String> {
    let inside = match (bounds.inside, by_loss) {
        (Some(bound), Some(got)) if got.inside < bound => Some(format!(
            "{} of the cells that loss limits are within their interval; the bound is {bound} at least",
            got.inside
        )),
        _ => None,
    };
    let errors = [
        ("median error", bounds.median, by_rule.map(|of| of.median)),
        ("95th percentile", bounds.p95, by_rule.map(|of| of.p95)),
    ];
    errors
        .into_iter()
        .filter_map(|(what, bound, got)| {
            let (bound, got) = (bound?, got?);
            (got > bound).then(|| {
                format!("the {what} where a rule limits is {got}; the bound is {bound} at most")
            })
        })
        .chain(inside)
        .collect()
}

#[cfg(test)]
mod tests;

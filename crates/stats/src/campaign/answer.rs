use fullpipe_record::{SweepAnswer, SweepCell, SweepEstimate};
use fullpipe_units::BitRate;

use super::grid::{Index, SweepGrid};
use super::judged::{JudgedCells, SURE};
use super::shape::rate_shape;

/// Deviations on either side of a 95 % interval.
const INTERVAL: f64 = 1.96;

/// Chances between which a cell may be the knee.
const MAY_DO: f64 = 0.1;
const DOES: f64 = 0.975;

/// Chance from which on a cell with several runs is the answer of a campaign whose budget ended
/// first.
const LIKELY: f64 = 0.8;
const RUNS_OF_LIKELY: usize = 2;

/// Chance from which on a cell does rather than not.
const RATHER: f64 = 0.5;

/// The certainty of an answer.
#[derive(Clone, Copy)]
pub(crate) struct AnswerCertainty {
    /// No cheaper setting is undecided.
    pub(crate) sure: bool,
    /// The whole grid is measured, each setting once or twice.
    pub(crate) is_whole: bool,
}

/// Chance and runs from which on a cell does.
type Enough = (f64, usize);

/// Returns the answer that the runs give.
pub(crate) fn sweep_answer(
    grid: &SweepGrid,
    judged: &JudgedCells,
    flight: f64,
    certainty: AnswerCertainty,
) -> SweepAnswer {
    let cells = grid.all_cells();
    let AnswerCertainty { sure, is_whole } = certainty;
    let (knee, enough) = if sure {
        (judged.knee_cell(), (SURE, 0))
    } else {
        likely_knee(judged)
    };
    // Of settings that have one run each, hardly any is sure: the others are judged as the knee is.
    let enough = if is_whole { enough } else { (SURE, 0) };
    let estimates = cell_estimates(grid, judged);
    let frontier: Vec<Index> = (0..grid.streams().len())
        .filter_map(|streams| {
            (0..grid.windows().len())
                .map(|window| grid.index_at(window, streams))
                .find(|cell| *cell == knee || has_enough(judged, *cell, enough))
        })
        .collect();
    let narrowest = frontier
        .iter()
        .copied()
        .min_by_key(|cell| (cells[*cell].window, cells[*cell].streams));
    let by_cost = judged.cells_by_cost().iter().copied();
    let may_do = cheapest_with(judged, (MAY_DO, 0));
    let does = cheapest_with(judged, (DOES, 0)).unwrap_or(judged.best_cell());
    let cheapest = by_cost
        .clone()
        .find(|cell| *cell == knee || Some(*cell) == may_do);
    let dearest = by_cost.rev().find(|cell| *cell == knee || *cell == does);
    SweepAnswer {
        knee: estimates[knee],
        sure,
        shape: rate_shape(grid, judged, flight),
        best: estimates[judged.best_cell()],
        cheapest: cells[cheapest.unwrap_or(knee)],
        dearest: cells[dearest.unwrap_or(knee)],
        fewest_streams: estimates[frontier.first().copied().unwrap_or(knee)],
        smallest_window: estimates[narrowest.unwrap_or(knee)],
        frontier: frontier.into_iter().map(|cell| estimates[cell]).collect(),
    }
}

/// Returns the estimates of all cells, in the order of [`SweepGrid::all_cells`].
pub(crate) fn cell_estimates(grid: &SweepGrid, judged: &JudgedCells) -> Vec<SweepEstimate> {
    let cells = grid.all_cells();
    (0..cells.len())
        .map(|cell| cell_estimate(&cells, judged, cell))
        .collect()
}

/// Returns the cheapest cell that has enough.
fn cheapest_with(judged: &JudgedCells, enough: Enough) -> Option<Index> {
    let mut cells = judged.cells_by_cost().iter().copied();
    cells.find(|cell| has_enough(judged, *cell, enough))
}

fn cell_estimate(cells: &[SweepCell], judged: &JudgedCells, cell: Index) -> SweepEstimate {
    let rate =
        |deviations: f64| BitRate::from_bps_f64(libm::exp(judged.rate_logarithm(cell, deviations)));
    SweepEstimate {
        cell: cells[cell],
        rate: rate(0.0),
        low: rate(-INTERVAL),
        high: rate(INTERVAL),
        runs: u32::try_from(judged.runs_of_cell(cell)).unwrap_or(u32::MAX),
    }
}

/// Returns the cheapest cell that was measured more than once and is likely to do, or else the
/// cheapest measured one that does rather than not, and what was enough: the fastest may be so by
/// luck alone, and dear.
fn likely_knee(judged: &JudgedCells) -> (Index, Enough) {
    let likely = [(LIKELY, RUNS_OF_LIKELY), (RATHER, 1)];
    likely
        .into_iter()
        .find_map(|enough| Some((cheapest_with(judged, enough)?, enough)))
        .unwrap_or((judged.best_cell(), (RATHER, 1)))
}

fn has_enough(judged: &JudgedCells, cell: Index, (chance, runs): Enough) -> bool {
    judged.near_best_chance(cell) >= chance && judged.runs_of_cell(cell) >= runs
}

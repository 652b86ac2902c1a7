use fullpipe_record::{SweepAnswer, SweepCell, SweepEstimate};
use fullpipe_units::BitRate;

use crate::grid::{Grid, Index};
use crate::judged::{Judged, SURE};
use crate::shape::shape;

/// Deviations on either side of a 95 % interval.
const INTERVAL: f64 = 1.96;

/// Chances between which a cell may be the knee.
const MAY_DO: f64 = 0.1;
const DOES: f64 = 0.975;

/// Chance from which on a cell with several runs is the answer of a campaign whose budget ended first.
const LIKELY: f64 = 0.8;
const RUNS_OF_LIKELY: usize = 2;

/// Chance from which on a cell does rather than not.
const RATHER: f64 = 0.5;

/// The certainty of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Certainty {
    /// No cheaper setting is undecided.
    pub(crate) sure: bool,
    /// The whole grid is measured, each setting once or twice.
    pub(crate) is_whole: bool,
}

/// Chance and runs from which on a cell does.
type Enough = (f64, usize);

/// Returns the answer that the runs give.
pub(crate) fn answer(grid: &Grid, judged: &Judged, flight: f64, certainty: Certainty) -> SweepAnswer {
    let cells = grid.cells();
    let estimate = |cell: Index| estimate(&cells, judged, cell);
    let with = |chance: f64| judged.order().iter().copied().find(move |cell| judged.chance(*cell) >= chance);
    let Certainty { sure, is_whole } = certainty;
    let (knee, enough) = if sure { (judged.knee(), (SURE, 0)) } else { likely_knee(judged) };
    // Of settings that have one run each, hardly any is sure: the others are judged as the knee is.
    let enough = if is_whole { enough } else { (SURE, 0) };
    let does = |cell: &Index| *cell == knee || has(judged, *cell, enough);
    let smallest_window = |streams| (0..grid.windows().len()).map(|window| grid.at(window, streams)).find(does);
    let frontier: Vec<Index> = (0..grid.streams().len()).filter_map(smallest_window).collect();
    let narrowest = frontier.iter().copied().min_by_key(|cell| (cells[*cell].window, cells[*cell].streams));
    let dearest = with(DOES).unwrap_or(judged.best());
    let position = |cell: Index| judged.order().iter().position(|of| *of == cell);
    SweepAnswer {
        knee: estimate(knee),
        sure,
        shape: shape(grid, judged, flight),
        best: estimate(judged.best()),
        cheapest: cells[with(MAY_DO).filter(|cell| position(*cell) < position(knee)).unwrap_or(knee)],
        dearest: cells[if position(dearest) > position(knee) { dearest } else { knee }],
        fewest_streams: estimate(frontier.first().copied().unwrap_or(knee)),
        smallest_window: estimate(narrowest.unwrap_or(knee)),
        frontier: frontier.into_iter().map(estimate).collect(),
    }
}

/// Returns the estimates of all cells, in the order of [`Grid::cells`].
pub(crate) fn estimates(grid: &Grid, judged: &Judged) -> Vec<SweepEstimate> {
    let cells = grid.cells();
    (0..cells.len()).map(|cell| estimate(&cells, judged, cell)).collect()
}

fn estimate(cells: &[SweepCell], judged: &Judged, cell: Index) -> SweepEstimate {
    let rate = |deviations: f64| BitRate::from_bps_f64(libm::exp(judged.logarithm(cell, deviations)));
    SweepEstimate {
        cell: cells[cell],
        rate: rate(0.0),
        low: rate(-INTERVAL),
        high: rate(INTERVAL),
        runs: u32::try_from(judged.count(cell)).unwrap_or(u32::MAX),
    }
}

/// Returns the cheapest cell that was measured more than once and is likely to do, or else the cheapest measured one
/// that does rather than not, and what was enough: the fastest may be so by luck alone, and dear.
fn likely_knee(judged: &Judged) -> (Index, Enough) {
    let likely = [(LIKELY, RUNS_OF_LIKELY), (RATHER, 1)];
    let cheapest = |enough| Some((judged.order().iter().copied().find(|cell| has(judged, *cell, enough))?, enough));
    likely.into_iter().find_map(cheapest).unwrap_or((judged.best(), (RATHER, 1)))
}

fn has(judged: &Judged, cell: Index, (chance, runs): Enough) -> bool {
    judged.chance(cell) >= chance && judged.count(cell) >= runs
}

use fullpipe_record::{SweepCell, SweepShape};

use crate::grid::{Grid, Index};
use crate::judged::Judged;

/// Share of the best rate below which a level is a lower one.
const LOWER: f64 = 0.88;

/// Rates that differ by less, in logarithms, are of one level.
const SAME: f64 = 0.08;

/// Rates that differ by less may be of one level, until both cells have several runs.
const MAYBE_SAME: f64 = 0.25;

/// Streams of the further cell of a level, relative to the nearer.
const WIDER: u16 = 3;

/// Share of the flight that a window permits from which on the window limits the rate.
pub(crate) const BY_WINDOW: f64 = 0.8;

/// Share of proportional growth, in logarithms, from which on a rate still grows.
const GROWING: f64 = 0.6;

/// On a flat surface at most one in so many measured cells is far from the best: bursts of other traffic.
const MAX_FAR: usize = 4;

/// Runs of both cells that show a level, or that there is none.
const RUNS_OF_LEVEL: usize = 3;

/// Returns the form of the rates; `flight` is the best rate times the round-trip time, in bytes.
pub(crate) fn shape(grid: &Grid, judged: &Judged, flight: f64) -> SweepShape {
    if is_flat(judged) {
        SweepShape::Flat
    } else if is_beyond(grid, judged, flight) {
        SweepShape::BeyondGrid
    } else if level(grid, judged, flight).is_some_and(|level| level.is_shown) {
        SweepShape::TwoPlateaus
    } else {
        SweepShape::Knee
    }
}

/// Returns true if the cheapest cell of all was measured and is near the best, and hardly any measured one is not.
fn is_flat(judged: &Judged) -> bool {
    let cheapest = judged.order()[0];
    judged.cells() > 1 && judged.count(cheapest) > 0 && !is_far(judged, cheapest) && hardly_any_is_far(judged)
}

/// Returns the cheapest cell of all where the surface may be flat, and only that cell would show it.
pub(crate) fn cheapest_of_flat(judged: &Judged) -> Option<Index> {
    let cheapest = judged.order()[0];
    (hardly_any_is_far(judged) && judged.count(cheapest) < RUNS_OF_LEVEL).then_some(cheapest)
}

fn hardly_any_is_far(judged: &Judged) -> bool {
    let far = judged.measured().filter(|cell| is_far(judged, *cell)).count();
    far * MAX_FAR <= judged.measured().count()
}

fn is_far(judged: &Judged, cell: Index) -> bool {
    judged.logarithm(cell, 0.0) - judged.logarithm(judged.best(), 0.0) < libm::log(LOWER)
}

/// Returns true if the best rate is the last on an axis of the grid and grows up to there, or if its windows limit it
/// where both axes end.
fn is_beyond(grid: &Grid, judged: &Judged, flight: f64) -> bool {
    let cells = grid.cells();
    let last = cells.len() - 1;
    let by_window = judged.best() == last && flight >= BY_WINDOW * cells[last].product().as_f64();
    by_window || grows_to_the_end(grid, judged, last)
}

fn grows_to_the_end(grid: &Grid, judged: &Judged, last: Index) -> bool {
    let (windows, streams) = (grid.windows().len(), grid.streams().len());
    if windows < 2 || streams < 2 || judged.best() != last {
        return false;
    }
    let growth = |before: Index| judged.logarithm(last, 0.0) - judged.logarithm(before, 0.0);
    let cells = grid.cells();
    let proportional =
        |before: Index| libm::log(cells[last].product().as_f64()) - libm::log(cells[before].product().as_f64());
    let still = |before: Index| growth(before) >= GROWING * proportional(before);
    still(grid.at(windows - 2, streams - 1)) || still(grid.at(windows - 1, streams - 2))
}

/// A level below the best rate.
pub(crate) struct Level {
    /// The two cells of the level, as indices into the grid.
    pub(crate) cells: [Index; 2],
    /// True if both cells have enough runs.
    pub(crate) is_shown: bool,
}

impl Level {
    /// Returns the cell that a run would show more of.
    pub(crate) fn next(&self, judged: &Judged) -> Option<Index> {
        if self.is_shown {
            return None;
        }
        self.cells.into_iter().min_by_key(|cell| judged.count(*cell))
    }
}

/// Returns the lower level that three times as many streams do not leave, if there may be one: windows do not limit it.
pub(crate) fn level(grid: &Grid, judged: &Judged, flight: f64) -> Option<Level> {
    let cells = grid.cells();
    let best = judged.best();
    let below = |cell: Index| judged.logarithm(cell, 0.0) - judged.logarithm(best, 0.0);
    let pairs_of = |known: Index| {
        let is_ample =
            move |near: Index| flight * libm::exp(below(known)) < BY_WINDOW * grid.cells()[near].product().as_f64();
        let wider = wider(grid, cells[known]).map(|far| [known, far]);
        let narrower = narrower(grid, cells[known]).map(|near| [near, known]);
        [wider, narrower].into_iter().flatten().filter(move |[near, _]| is_ample(*near))
    };
    let mut low: Vec<Index> = judged.measured().filter(|cell| below(*cell) <= libm::log(LOWER)).collect();
    low.sort_by_key(|cell| cells[*cell].streams);
    let pairs = low.into_iter().flat_map(pairs_of);
    let levels = pairs.filter(|[_, far]| cells[*far].streams < cells[best].streams && below(*far) < libm::log(LOWER));
    let levels = levels.filter(|pair| !is_left(&cells, judged, *pair));
    let levels: Vec<Level> = levels.filter_map(|pair| level_of(judged, pair)).collect();
    let shown = levels.iter().position(|level| level.is_shown).unwrap_or(0);
    levels.into_iter().nth(shown)
}

/// Returns true if as few streams are faster with another window: then it is not the streams that leave the level.
fn is_left(cells: &[SweepCell], judged: &Judged, [near, far]: [Index; 2]) -> bool {
    let Some(level) = [near, far].into_iter().filter_map(|cell| judged.typical(cell)).max_by(f64::total_cmp) else {
        return true;
    };
    let mut as_few = judged.measured().filter(|cell| cells[*cell].streams <= cells[far].streams);
    as_few.any(|cell| judged.logarithm(cell, 0.0) - level > SAME)
}

/// Returns the level of two cells, unless their rates differ.
fn level_of(judged: &Judged, cells: [Index; 2]) -> Option<Level> {
    let have = |runs: usize| cells.iter().all(|cell| judged.count(*cell) >= runs);
    let [near, far] = cells.map(|cell| judged.typical(cell));
    let Some(difference) = near.zip(far).map(|(near, far)| (near - far).abs()) else {
        return Some(Level { cells, is_shown: false });
    };
    let is_shown = have(RUNS_OF_LEVEL);
    (difference < if is_shown { SAME } else { MAYBE_SAME }).then_some(Level { cells, is_shown })
}

/// Returns the cell with the same window and three times the streams.
fn wider(grid: &Grid, cell: SweepCell) -> Option<Index> {
    let streams = grid.streams().iter().copied().find(|streams| *streams >= cell.streams.saturating_mul(WIDER))?;
    grid.index(SweepCell { streams, ..cell })
}

/// Returns the cell with the same window and a third of the streams.
fn narrower(grid: &Grid, cell: SweepCell) -> Option<Index> {
    let streams = grid.streams().iter().copied().rfind(|streams| streams.saturating_mul(WIDER) <= cell.streams)?;
    grid.index(SweepCell { streams, ..cell })
}

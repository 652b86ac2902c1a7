use fullpipe_record::{SweepCell, SweepShape};

use super::grid::{Index, SweepGrid};
use super::judged::JudgedCells;

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

/// On a flat surface at most one in so many measured cells is far from the best: bursts of other
/// traffic.
const MAX_FAR: usize = 4;

/// Runs of both cells that show a level, or that there is none.
const RUNS_OF_LEVEL: usize = 3;

/// Returns the form of the rates; `flight` is the best rate times the round-trip time, in bytes.
pub(crate) fn rate_shape(grid: &SweepGrid, judged: &JudgedCells, flight: f64) -> SweepShape {
    if is_flat(judged) {
        SweepShape::Flat
    } else if is_beyond(grid, judged, flight) {
        SweepShape::BeyondGrid
    } else if lower_level(grid, judged, flight).is_some_and(|level| level.is_shown) {
        SweepShape::TwoPlateaus
    } else {
        SweepShape::Knee
    }
}

/// Returns true if the cheapest cell of all was measured and is near the best, and hardly any
/// measured one is not.
fn is_flat(judged: &JudgedCells) -> bool {
    let cheapest = judged.cells_by_cost()[0];
    judged.cell_count() > 1
        && judged.runs_of_cell(cheapest) > 0
        && !is_far(judged, cheapest)
        && hardly_any_is_far(judged)
}

/// Returns the cheapest cell of all where the surface may be flat, and only that cell would show
/// it.
pub(crate) fn cheapest_of_flat(judged: &JudgedCells) -> Option<Index> {
    let cheapest = judged.cells_by_cost()[0];
    (hardly_any_is_far(judged) && judged.runs_of_cell(cheapest) < RUNS_OF_LEVEL).then_some(cheapest)
}

fn hardly_any_is_far(judged: &JudgedCells) -> bool {
    let far = judged
        .measured_cells()
        .filter(|cell| is_far(judged, *cell))
        .count();
    far * MAX_FAR <= judged.measured_cells().count()
}

fn is_far(judged: &JudgedCells, cell: Index) -> bool {
    relative_logarithm(judged, cell, judged.best_cell()) < libm::log(LOWER)
}

/// Returns the logarithm of a cell's rate, relative to that of another.
fn relative_logarithm(judged: &JudgedCells, cell: Index, to: Index) -> f64 {
    judged.rate_logarithm(cell, 0.0) - judged.rate_logarithm(to, 0.0)
}

/// Returns true if the best rate is the last on an axis of the grid and grows up to there, or if
/// its windows limit it where both axes end.
fn is_beyond(grid: &SweepGrid, judged: &JudgedCells, flight: f64) -> bool {
    let cells = grid.all_cells();
    let last = cells.len() - 1;
    let by_window =
        judged.best_cell() == last && flight >= BY_WINDOW * cells[last].flight_capacity().as_f64();
    by_window || grows_to_the_end(grid, judged, last)
}

fn grows_to_the_end(grid: &SweepGrid, judged: &JudgedCells, last: Index) -> bool {
    let (windows, streams) = (grid.windows().len(), grid.streams().len());
    if windows < 2 || streams < 2 || judged.best_cell() != last {
        return false;
    }
    let cells = grid.all_cells();
    [(windows - 2, streams - 1), (windows - 1, streams - 2)]
        .into_iter()
        .map(|(window, streams)| grid.index_at(window, streams))
        .any(|before| {
            let [last_capacity, capacity] =
                [last, before].map(|cell| libm::log(cells[cell].flight_capacity().as_f64()));
            relative_logarithm(judged, last, before) >= GROWING * (last_capacity - capacity)
        })
}

/// A level below the best rate.
pub(crate) struct LowerLevel {
    /// The two cells of the level, as indices into the grid.
    pub(crate) cells: [Index; 2],
    /// True if both cells have enough runs.
    pub(crate) is_shown: bool,
}

impl LowerLevel {
    /// Returns the cell that a run would show more of.
    pub(crate) fn next_cell(&self, judged: &JudgedCells) -> Option<Index> {
        if self.is_shown {
            return None;
        }
        self.cells
            .into_iter()
            .min_by_key(|cell| judged.runs_of_cell(*cell))
    }
}

/// Returns the lower level that three times as many streams do not leave, if there may be one:
/// windows do not limit it.
pub(crate) fn lower_level(
    grid: &SweepGrid,
    judged: &JudgedCells,
    flight: f64,
) -> Option<LowerLevel> {
    let cells = grid.all_cells();
    let best = judged.best_cell();
    let mut low: Vec<Index> = judged
        .measured_cells()
        .filter(|cell| relative_logarithm(judged, *cell, best) <= libm::log(LOWER))
        .collect();
    low.sort_by_key(|cell| cells[*cell].streams);
    let pairs = low.into_iter().flat_map(|known| {
        let flight = flight * libm::exp(relative_logarithm(judged, known, best));
        ample_pairs(grid, &cells, known, flight)
    });
    let levels =
        pairs.filter(|[_, far]| cells[*far].streams < cells[best].streams && is_far(judged, *far));
    let levels = levels.filter(|pair| !is_left(&cells, judged, *pair));
    let levels: Vec<LowerLevel> = levels.filter_map(|pair| level_of(judged, pair)).collect();
    let shown = levels.iter().position(|level| level.is_shown).unwrap_or(0);
    levels.into_iter().nth(shown)
}

/// Returns a cell and that with three times its streams, and the one with a third of its streams and
/// the cell, where windows do not limit bytes in flight of `flight`.
fn ample_pairs(
    grid: &SweepGrid,
    cells: &[SweepCell],
    known: Index,
    flight: f64,
) -> impl Iterator<Item = [Index; 2]> {
    let wider = more_streams_cell(grid, cells[known]).map(|far| [known, far]);
    let narrower = fewer_streams_cell(grid, cells[known]).map(|near| [near, known]);
    [wider, narrower]
        .into_iter()
        .flatten()
        .filter(move |[near, _]| flight < BY_WINDOW * cells[*near].flight_capacity().as_f64())
}

/// Returns true if as few streams are faster with another window: then it is not the streams that
/// leave the level.
fn is_left(cells: &[SweepCell], judged: &JudgedCells, [near, far]: [Index; 2]) -> bool {
    let Some(level) = [near, far]
        .into_iter()
        .filter_map(|cell| judged.median_logarithm(cell))
        .max_by(f64::total_cmp)
    else {
        return true;
    };
    let mut as_few = judged
        .measured_cells()
        .filter(|cell| cells[*cell].streams <= cells[far].streams);
    as_few.any(|cell| judged.rate_logarithm(cell, 0.0) - level > SAME)
}

/// Returns the level of two cells, unless their rates differ.
fn level_of(judged: &JudgedCells, cells: [Index; 2]) -> Option<LowerLevel> {
    let [near, far] = cells.map(|cell| judged.median_logarithm(cell));
    let Some(difference) = near.zip(far).map(|(near, far)| (near - far).abs()) else {
        return Some(LowerLevel {
            cells,
            is_shown: false,
        });
    };
    let is_shown = cells
        .iter()
        .all(|cell| judged.runs_of_cell(*cell) >= RUNS_OF_LEVEL);
    (difference < if is_shown { SAME } else { MAYBE_SAME })
        .then_some(LowerLevel { cells, is_shown })
}

/// Returns the cell with the same window and three times the streams.
fn more_streams_cell(grid: &SweepGrid, cell: SweepCell) -> Option<Index> {
    let streams = grid
        .streams()
        .iter()
        .copied()
        .find(|streams| *streams >= cell.streams.saturating_mul(WIDER))?;
    grid.cell_index(SweepCell { streams, ..cell })
}

/// Returns the cell with the same window and a third of the streams.
fn fewer_streams_cell(grid: &SweepGrid, cell: SweepCell) -> Option<Index> {
    let streams = grid
        .streams()
        .iter()
        .copied()
        .rfind(|streams| streams.saturating_mul(WIDER) <= cell.streams)?;
    grid.cell_index(SweepCell { streams, ..cell })
}

//! Cells judged by the surface: the fastest, and the chance of each to come near it.

use fullpipe_record::SweepRun;
use fullpipe_units::median;

use super::grid::{Index, SweepGrid};
use super::left_out::{AttemptCounts, waiting_setting};
use super::surface::{CellPlane, Observation, RateSurface};

/// Share of the fastest cell's rate that is enough.
pub(crate) const ENOUGH: f64 = 0.95;

/// Chance from which on a cell is said to do.
pub(crate) const SURE: f64 = 0.93;

/// Standard deviation of a run, in logarithms, before a cell has several.
const USUAL_NOISE: f64 = 0.04;

/// Runs beyond the first of their cells that weigh as much as that.
const USUAL_WEIGHT: f64 = 3.0;

/// Deviations of a run from its cell's median, in logarithms, that are not counted further: bursts
/// of other traffic.
const MAX_DEVIATION: f64 = 0.15;

/// The constant around which the surface is fitted lies so far below the fastest: most of a grid is
/// slope.
const LEVEL: f64 = 0.7;

/// The cells of a grid by what runs show.
pub(crate) struct JudgedCells {
    counts: Vec<usize>,
    /// The median of each cell's runs, in logarithms.
    typical: Vec<Option<f64>>,
    /// The best rate of a cell's runs.
    fastest: Option<f64>,
    noise: f64,
    means: Vec<f64>,
    deviations: Vec<f64>,
    chances: Vec<f64>,
    /// Cells that may not be measured now: those that are left out, the one that waits, and those
    /// next to them.
    skipped: Vec<Index>,
    /// Cheapest first: by product, then by streams.
    order: Vec<Index>,
    /// True if a run of a cell counts that is not left out.
    pub(crate) has_best: bool,
    best: Index,
    knee: Index,
}

impl JudgedCells {
    pub(crate) fn from_runs(grid: &SweepGrid, plane: &CellPlane, runs: &[SweepRun]) -> Self {
        let seen = counted_observations(grid, runs);
        let counts = cell_run_counts(plane.len(), &seen);
        let typical = cell_medians(plane.len(), &seen);
        let level = fastest_level(&seen, &typical);
        let noise = estimate_noise(&seen, &typical);
        let surface = RateSurface::fit_runs(plane, &seen, level - LEVEL, noise);
        let left_out: Vec<Index> = AttemptCounts::from_runs(runs)
            .left_out()
            .filter_map(|cell| grid.cell_index(cell))
            .collect();
        let measured =
            (0..plane.len()).filter(|cell| counts[*cell] > 0 && !left_out.contains(cell));
        let fastest =
            measured.max_by(|a, b| surface.cell_mean(*a).total_cmp(&surface.cell_mean(*b)));
        let best = fastest.unwrap_or(0);
        let chances: Vec<f64> = (0..plane.len())
            .map(|cell| {
                if left_out.contains(&cell) {
                    0.0
                } else {
                    chance_near_best(&surface, cell, best)
                }
            })
            .collect();
        let order = order_by_cost(grid);
        let knee = order
            .iter()
            .copied()
            .find(|cell| counts[*cell] > 0 && chances[*cell] >= SURE)
            .unwrap_or(best);
        Self {
            fastest: fastest_median(&typical).map(libm::exp),
            noise,
            means: (0..plane.len())
                .map(|cell| surface.cell_mean(cell))
                .collect(),
            deviations: (0..plane.len())
                .map(|cell| surface.cell_deviation(cell))
                .collect(),
            skipped: skipped_cells(grid, runs, &counts, &left_out),
            counts,
            typical,
            chances,
            order,
            has_best: fastest.is_some(),
            best,
            knee,
        }
    }

    /// Returns the standard deviation of a run, in logarithms; and the uncertainty of it, relative
    /// to that before any cell has several runs.
    pub(crate) fn run_noise(&self) -> (f64, f64) {
        let repeats = self.run_count() - self.measured_cells().count();
        (
            self.noise,
            (USUAL_WEIGHT / (USUAL_WEIGHT + repeats as f64)).sqrt(),
        )
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of runs that count.
    pub(crate) fn run_count(&self) -> usize {
        self.counts.iter().sum()
    }

    pub(crate) fn runs_of_cell(&self, cell: Index) -> usize {
        self.counts[cell]
    }

    /// Returns the logarithm of the median of a cell's runs.
    pub(crate) fn median_logarithm(&self, cell: Index) -> Option<f64> {
        self.typical[cell]
    }

    /// Returns the cells, those with the least product first, then those with the fewest streams.
    pub(crate) fn cells_by_cost(&self) -> &[Index] {
        &self.order
    }

    /// Returns true if a cell may be measured now.
    pub(crate) fn may_run(&self, cell: Index) -> bool {
        !self.skipped.contains(&cell)
    }

    /// Returns true if any cell may be measured.
    pub(crate) fn can_go_on(&self) -> bool {
        self.skipped.len() < self.cell_count()
    }

    /// Returns the measured cell that is expected to be the fastest, of those that are not left
    /// out.
    pub(crate) fn best_cell(&self) -> Index {
        self.best
    }

    /// Returns the cheapest measured cell that does.
    pub(crate) fn knee_cell(&self) -> Index {
        self.knee
    }

    /// Returns the chance that a cell has 95 % of the fastest cell's rate; 0 for one that is left
    /// out.
    pub(crate) fn near_best_chance(&self, cell: Index) -> f64 {
        self.chances[cell]
    }

    /// Returns the measured cells.
    pub(crate) fn measured_cells(&self) -> impl Iterator<Item = Index> {
        (0..self.cell_count()).filter(|cell| self.counts[*cell] > 0)
    }

    /// Returns the logarithm of a cell's rate, `deviations` above the expected one.
    pub(crate) fn rate_logarithm(&self, cell: Index, deviations: f64) -> f64 {
        self.means[cell] + deviations * self.deviations[cell]
    }

    /// Returns the rate of a cell in bits per second.
    pub(crate) fn expected_rate(&self, cell: Index) -> f64 {
        libm::exp(self.means[cell])
    }

    /// Returns the rate in bits per second that the fastest cell has shown, by its median run.
    pub(crate) fn fastest_rate(&self) -> Option<f64> {
        self.fastest
    }
}

/// Returns the runs that count.
pub(crate) fn counted_observations(grid: &SweepGrid, runs: &[SweepRun]) -> Vec<Observation> {
    runs.iter()
        .filter_map(|run| run_observation(grid, run))
        .collect()
}

fn run_observation(grid: &SweepGrid, run: &SweepRun) -> Option<Observation> {
    Some((
        grid.cell_index(run.cell)?,
        libm::log(run.rate?.as_f64().max(1.0)),
    ))
}

/// Returns the cells that may not be measured now.
fn skipped_cells(
    grid: &SweepGrid,
    runs: &[SweepRun],
    counts: &[usize],
    left_out: &[Index],
) -> Vec<Index> {
    let waiting = waiting_setting(runs).and_then(|cell| grid.cell_index(cell));
    (0..counts.len())
        .filter(|cell| {
            Some(*cell) == waiting
                || left_out.contains(cell)
                || is_doubtful(grid, *cell, counts, left_out)
        })
        .collect()
}

/// Returns true if a cell is next to one that is left out, and no run of it or next to it counts:
/// it may be too much as well.
fn is_doubtful(grid: &SweepGrid, cell: Index, counts: &[usize], left_out: &[Index]) -> bool {
    let mut near = (0..counts.len()).filter(|other| grid.are_neighbours(cell, *other));
    near.clone().any(|other| left_out.contains(&other))
        && !near.any(|other| counts[other] > 0 && !left_out.contains(&other))
}

fn cell_run_counts(cells: usize, seen: &[Observation]) -> Vec<usize> {
    let mut counts = vec![0; cells];
    for (cell, _) in seen {
        counts[*cell] += 1;
    }
    counts
}

/// Returns the median of each cell's runs.
fn cell_medians(cells: usize, seen: &[Observation]) -> Vec<Option<f64>> {
    (0..cells)
        .map(|cell| {
            let runs = seen.iter().filter(|(of, _)| *of == cell);
            median(runs.map(|(_, rate)| *rate).collect())
        })
        .collect()
}

fn fastest_median(typical: &[Option<f64>]) -> Option<f64> {
    typical.iter().copied().flatten().max_by(f64::total_cmp)
}

/// Returns the standard deviation of a run: the usual one, corrected by the cells that have
/// several.
fn estimate_noise(seen: &[Observation], typical: &[Option<f64>]) -> f64 {
    let squares: f64 = seen
        .iter()
        .map(|(cell, rate)| typical[*cell].map_or(0.0, |middle| (rate - middle).abs()))
        .map(|deviation| deviation.min(MAX_DEVIATION))
        .map(|of| of * of)
        .sum();
    let repeats = seen.len() - typical.iter().flatten().count();
    ((USUAL_NOISE * USUAL_NOISE * USUAL_WEIGHT + squares) / (USUAL_WEIGHT + repeats as f64)).sqrt()
}

/// Returns the level of the fastest runs: with few of them the fastest cell, with many the median
/// of the four fastest.
fn fastest_level(seen: &[Observation], typical: &[Option<f64>]) -> f64 {
    const FEW: usize = 6;
    if seen.len() <= FEW {
        return fastest_median(typical).unwrap_or(0.0);
    }
    let mut rates: Vec<f64> = seen.iter().map(|(_, rate)| *rate).collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    f64::midpoint(rates[1], rates[2])
}

/// Returns the chance that `cell` has enough of the rate of `best`.
fn chance_near_best(surface: &RateSurface<'_>, cell: Index, best: Index) -> f64 {
    if cell == best {
        return 1.0;
    }
    let margin = surface.cell_mean(cell) - surface.cell_mean(best) - libm::log(ENOUGH);
    0.5 * libm::erfc(-margin / (surface.deviation_between(cell, best) * std::f64::consts::SQRT_2))
}

/// Returns all cells, cheapest first: by product, then by streams.
pub(crate) fn order_by_cost(grid: &SweepGrid) -> Vec<Index> {
    let cells = grid.all_cells();
    let mut order: Vec<Index> = (0..cells.len()).collect();
    order.sort_by_key(|cell| (cells[*cell].flight_capacity(), cells[*cell].streams));
    order
}

//! A smooth surface through measured rates: a Gaussian process on their logarithms, over the
//! logarithms of window, streams and their product (Rasmussen and Williams, Gaussian Processes for
//! Machine Learning, algorithm 2.1).

use std::sync::OnceLock;

use crate::correlation::dot_product;

use super::grid::{Index, SweepGrid};
use super::random::SeededRandom;

/// A kernel exp(−d²/2l²) with its standard deviation and its length in doublings.
struct CovarianceKernel {
    deviation: f64,
    length: f64,
}

/// Bends of the surface from one setting to the next.
const NEAR: CovarianceKernel = CovarianceKernel {
    deviation: 0.20,
    length: 2.2,
};
/// Bends along streams × window, which many limits follow.
const PRODUCT: CovarianceKernel = CovarianceKernel {
    deviation: 0.12,
    length: 1.5,
};
/// The slope of the whole.
const FAR: CovarianceKernel = CovarianceKernel {
    deviation: 0.25,
    length: 6.0,
};

/// Variance of the logarithm of a cell's rate, before any run.
const VARIANCE: f64 = NEAR.deviation * NEAR.deviation
    + PRODUCT.deviation * PRODUCT.deviation
    + FAR.deviation * FAR.deviation;

/// Residuals further below the surface, in deviations of a run, count as so far: a burst of other
/// traffic makes a run slower, and nothing makes one faster.
const MAX_RESIDUAL: f64 = 2.5;

/// Passes that clip residuals.
const PASSES: usize = 2;

/// Waves of which a surface that may be is made, for each kernel.
const WAVES: usize = 12;

/// Runs that one can choose from: a measured cell and the logarithm of its rate.
pub(crate) type Observation = (Index, f64);

/// Places of all cells in doublings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellPlane {
    points: Vec<[f64; 2]>,
    /// Covariances of a cell with all cells, once they are needed: of the measured cells, again and
    /// again.
    rows: Vec<OnceLock<Vec<f64>>>,
}

impl CellPlane {
    pub(crate) fn from_grid(grid: &SweepGrid) -> Self {
        let cells = grid.all_cells().into_iter();
        let points: Vec<[f64; 2]> = cells
            .map(|cell| [cell.window.as_f64(), f64::from(cell.streams)].map(libm::log2))
            .collect();
        Self {
            rows: vec![OnceLock::new(); points.len()],
            points,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns logarithms of all cells' rates as they may be before any run, around 0 and `scale`
    /// of the usual height.
    pub(crate) fn draw_logarithms(&self, scale: f64, random: &mut SeededRandom) -> Vec<f64> {
        let [near, product, far] = [(&NEAR, false), (&PRODUCT, true), (&FAR, false)]
            .map(|(kernel, of)| random_waves(kernel, of, random));
        self.points
            .iter()
            .map(|point| scale * (near(point) + product(point) + far(point)))
            .collect()
    }

    /// Returns the covariances of a cell with all cells.
    fn covariance_row(&self, cell: Index) -> &[f64] {
        self.rows[cell].get_or_init(|| {
            (0..self.len())
                .map(|other| self.covariance(cell, other))
                .collect()
        })
    }

    /// Returns the covariance of the logarithms of two cells' rates, before any run.
    fn covariance(&self, a: Index, b: Index) -> f64 {
        let [window, streams] = [0, 1].map(|axis| self.points[a][axis] - self.points[b][axis]);
        let apart = window * window + streams * streams;
        let product = window + streams;
        NEAR.covariance(apart) + PRODUCT.covariance(product * product) + FAR.covariance(apart)
    }
}

impl CovarianceKernel {
    /// Returns the covariance at a distance of which this is the square.
    fn covariance(&self, squared: f64) -> f64 {
        self.deviation * self.deviation * libm::exp(-0.5 * squared / (self.length * self.length))
    }
}

/// Returns a function of the place with the covariances of `kernel`: waves of random direction and
/// length (Rahimi and Recht, Random features for large-scale kernel machines, 2007).
fn random_waves(
    kernel: &CovarianceKernel,
    is_of_product: bool,
    random: &mut SeededRandom,
) -> impl Fn(&[f64; 2]) -> f64 + use<> {
    let height = kernel.deviation * (2.0 / WAVES as f64).sqrt();
    let waves: Vec<(f64, f64, f64)> = (0..WAVES)
        .map(|_| {
            let [window, streams] = [(); 2].map(|()| random.next_normal() / kernel.length);
            let streams = if is_of_product { window } else { streams };
            (window, streams, std::f64::consts::TAU * random.next_unit())
        })
        .collect();
    move |point| {
        waves
            .iter()
            .map(|(x, y, phase)| libm::cos(x * point[0] + y * point[1] + phase))
            .sum::<f64>()
            * height
    }
}

/// The surface through some runs.
pub(crate) struct RateSurface<'p> {
    plane: &'p CellPlane,
    means: Vec<f64>,
    /// L⁻¹k of each cell: what the runs explain of its variance.
    explained: Vec<Vec<f64>>,
}

impl<'p> RateSurface<'p> {
    /// Fits the surface to `runs`, whose logarithms have the standard deviation `noise`, around the
    /// constant `level`.
    pub(crate) fn fit_runs(
        plane: &'p CellPlane,
        runs: &[Observation],
        level: f64,
        noise: f64,
    ) -> Self {
        let lower = cholesky_factor(plane, runs, noise);
        let rows: Vec<&[f64]> = runs
            .iter()
            .map(|(run, _)| plane.covariance_row(*run))
            .collect();
        let covariances: Vec<Vec<f64>> = (0..plane.len())
            .map(|cell| rows.iter().map(|row| row[cell]).collect())
            .collect();
        let mut residuals: Vec<f64> = runs.iter().map(|(_, rate)| rate - level).collect();
        let mut means = Vec::new();
        for pass in 0..=PASSES {
            let weights = solve_upper(&lower, solve_lower(&lower, &residuals));
            means = covariances
                .iter()
                .map(|known| level + dot_product(known, &weights))
                .collect::<Vec<f64>>();
            if pass < PASSES {
                residuals = runs
                    .iter()
                    .map(|(cell, rate)| rate.max(means[*cell] - MAX_RESIDUAL * noise) - level)
                    .collect();
            }
        }
        let explained = covariances
            .iter()
            .map(|known| solve_lower(&lower, known))
            .collect();
        Self {
            plane,
            means,
            explained,
        }
    }

    /// Returns the expected logarithm of the rate of `cell`.
    pub(crate) fn cell_mean(&self, cell: Index) -> f64 {
        self.means[cell]
    }

    /// Returns the standard deviation of that.
    pub(crate) fn cell_deviation(&self, cell: Index) -> f64 {
        self.covariance(cell, cell).max(1e-9).sqrt()
    }

    /// Returns the standard deviation of the difference of two cells.
    pub(crate) fn deviation_between(&self, a: Index, b: Index) -> f64 {
        let variance = self.covariance(a, a) + self.covariance(b, b) - 2.0 * self.covariance(a, b);
        variance.max(1e-9).sqrt()
    }

    fn covariance(&self, a: Index, b: Index) -> f64 {
        let before = if a == b {
            VARIANCE
        } else {
            self.plane.covariance_row(b)[a]
        };
        before - dot_product(&self.explained[a], &self.explained[b])
    }
}

/// Returns the Cholesky factor of the covariance of the runs, row by row.
fn cholesky_factor(plane: &CellPlane, runs: &[Observation], noise: f64) -> Vec<Vec<f64>> {
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(runs.len());
    for (row, (cell, _)) in runs.iter().enumerate() {
        let mut line: Vec<f64> = Vec::with_capacity(row + 1);
        for (column, (other, _)) in runs[..row].iter().enumerate() {
            let above = &lower[column];
            let rest = plane.covariance_row(*other)[*cell] - dot_product(&line, &above[..column]);
            line.push(rest / above[column]);
        }
        let rest = VARIANCE + noise * noise - dot_product(&line, &line);
        line.push(rest.max(1e-12).sqrt());
        lower.push(line);
    }
    lower
}

fn solve_lower(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(right.len());
    for (row, value) in right.iter().enumerate() {
        let rest = value - dot_product(&lower[row][..row], &solved);
        solved.push(rest / lower[row][row]);
    }
    solved
}

fn solve_upper(lower: &[Vec<f64>], mut right: Vec<f64>) -> Vec<f64> {
    for row in (0..right.len()).rev() {
        let rest: f64 = (row + 1..right.len())
            .map(|below| lower[below][row] * right[below])
            .sum();
        right[row] = (right[row] - rest) / lower[row][row];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;

    fn grid() -> SweepGrid {
        SweepGrid::from_ranges(ByteCount::from_kib(8)..=ByteCount::from_mib(4), 1..=90).unwrap()
    }

    #[test]
    fn the_surface_passes_through_runs_without_noise_and_is_sure_of_them() {
        let plane = CellPlane::from_grid(&grid());
        let runs = [(0, 1.0), (64, 2.0), (129, 2.1)];
        let surface = RateSurface::fit_runs(&plane, &runs, 1.5, 0.001);
        for (cell, rate) in runs {
            assert!(
                (surface.cell_mean(cell) - rate).abs() < 0.01,
                "{cell}: {}",
                surface.cell_mean(cell)
            );
            assert!(surface.cell_deviation(cell) < 0.002);
        }
        assert!(surface.cell_deviation(9) > 0.1, "no run is near");
    }

    #[test]
    fn without_runs_the_level_is_expected() {
        let plane = CellPlane::from_grid(&grid());
        let surface = RateSurface::fit_runs(&plane, &[], 3.0, 0.07);
        assert_eq!(surface.means, vec![3.0; 130]);
        assert!(
            (surface.cell_deviation(5) - (0.2_f64 * 0.2 + 0.12 * 0.12 + 0.25 * 0.25).sqrt()).abs()
                < 1e-9
        );
    }

    #[test]
    fn one_run_far_below_the_others_of_a_cell_bends_the_surface_little() {
        let plane = CellPlane::from_grid(&grid());
        let alike = [(64, 2.0), (64, 2.02), (64, 1.98), (64, 2.0)];
        let burst = [&alike[..], &[(64, 1.4)]].concat();
        let [without, with] = [&alike[..], &burst]
            .map(|runs| RateSurface::fit_runs(&plane, runs, 2.0, 0.07).cell_mean(64));
        assert!((without - with).abs() < 0.05, "{without} {with}");
    }

    #[test]
    fn the_difference_of_two_neighbours_is_surer_than_each() {
        let plane = CellPlane::from_grid(&grid());
        let surface = RateSurface::fit_runs(&plane, &[(0, 1.0)], 1.0, 0.07);
        assert!(surface.deviation_between(64, 65) < surface.cell_deviation(64));
    }
}

use fullpipe_units::{BitRate, Time, median};

use crate::MIN_NOISE;
use crate::changes::{MIN_RUNS_WITH_CHANGE, level_ends, pattern, running};
use crate::correlation::dot_product;

/// Returns the runs on either side in the running median from which bursts deviate. It must keep
/// steps: where a level may have eight runs, a median of nine does.
fn around_bursts(runs: usize) -> usize {
    (runs / 8).clamp(4, 8)
}

/// Returns the runs on either side in the running median that slow movements follow; in a short
/// history it has to follow the steps too, or they would count as noise.
fn around_movements(runs: usize) -> usize {
    (runs / 14).clamp(around_bursts(runs), 25)
}

/// Deviations from the running median are cut to so many standard deviations: bursts are no change.
const CUT: f64 = 2.0;

/// Standard deviation by median deviation, of normal values.
const BY_MEDIAN_DEVIATION: f64 = 1.4826;

/// Runs up to which runs may be like each other.
const ALIKE: usize = 8;

/// Largest correlation of a run with the next one that is reckoned with.
const MAX_CORRELATION: f64 = 0.8;

/// The course of a history, in logarithms of the rate.
pub(super) struct LogRateHistory {
    /// Without the patterns of day and week.
    pub(super) logs: Vec<f64>,
    /// Logarithms without the patterns of day and week, and with the bursts cut.
    pub(super) calm: Vec<f64>,
    /// Standard deviation of single runs, without bursts.
    pub(super) deviation: f64,
    /// Variance of means of `calm` apart from slow movements, times the number of runs in them.
    variance: f64,
}

impl LogRateHistory {
    /// Returns the course of runs in the order of time; `None` of too few to have a change.
    pub(super) fn from_runs(runs: &[(Time, BitRate)]) -> Option<Self> {
        if runs.len() < MIN_RUNS_WITH_CHANGE {
            return None;
        }
        // A run in which nothing arrived has a rate without a logarithm, and is cut like a burst.
        let logs = runs
            .iter()
            .map(|(_, rate)| libm::log(rate.as_f64().max(1.0)))
            .collect();
        let times: Vec<Time> = runs.iter().map(|(at, _)| *at).collect();
        let logs = pattern::without_patterns(&times, logs);
        let level = running::running_medians(&logs, around_bursts(logs.len()));
        let from_level: Vec<f64> = logs
            .iter()
            .zip(&level)
            .map(|(log, level)| log - level)
            .collect();
        let deviation = (BY_MEDIAN_DEVIATION
            * median(from_level.iter().map(|away| away.abs()).collect())?)
        .max(MIN_NOISE);
        let calm: Vec<f64> = from_level
            .iter()
            .zip(level)
            .map(|(away, level)| level + away.clamp(-CUT * deviation, CUT * deviation))
            .collect();
        let variance = variance_apart_from_movements(&calm).max(MIN_NOISE * MIN_NOISE);
        Some(Self {
            logs,
            calm,
            deviation,
            variance,
        })
    }

    /// Returns the variance of means of runs, times their number, if the level changes at `cuts`
    /// and nowhere else.
    ///
    /// The larger of two estimates. Few runs: the variance around the levels, and their correlation
    /// with the next run as that of all later ones (autoregression of the first order), freed of
    /// the bias that short series have by (1 + 3φ) ÷ n for each level (Marriott and Pope,
    /// Biometrika 41, 1954). Many runs: the covariances with eight later ones, apart from slow
    /// movements, which also knows bursts that last.
    pub(super) fn variance_of_means(&self, cuts: &[usize]) -> f64 {
        let ends = level_ends(cuts, self.calm.len());
        let levels = ends
            .windows(2)
            .map(|ends| from_mean(&self.calm[ends[0]..ends[1]]));
        let (squares, products) = levels.fold((0.0, 0.0), |(squares, products), away| {
            (
                squares + dot_product(&away, &away),
                products + dot_product(&away, &away[1..]),
            )
        });
        let (runs, levels) = (self.calm.len() as f64, (ends.len() - 1) as f64);
        let found = if squares > 0.0 {
            products / squares
        } else {
            0.0
        };
        let correlation =
            ((found + levels / runs) / (1.0 - 3.0 * levels / runs)).clamp(0.0, MAX_CORRELATION);
        let variance = squares / (runs - levels) * (1.0 + correlation) / (1.0 - correlation);
        variance.max(self.variance)
    }
}

fn from_mean(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| value - mean).collect()
}

/// Returns the variance of means of `values` times their number, apart from slow movements: the
/// variance and twice the covariances with later values, which count less the farther away they are
/// (Newey and West, Econometrica 55, 1987).
fn variance_apart_from_movements(values: &[f64]) -> f64 {
    let slow = running::running_medians(values, around_movements(values.len()));
    let fast: Vec<f64> = values
        .iter()
        .zip(slow)
        .map(|(value, slow)| value - slow)
        .collect();
    let alike: f64 = (1..=ALIKE)
        .map(|lag| {
            let weight = 1.0 - lag as f64 / (ALIKE + 1) as f64;
            2.0 * weight * covariance(&fast, lag)
        })
        .sum();
    // Values that alternate have means that are surer than that, but not for certain.
    covariance(&fast, 0) + alike.max(0.0)
}

/// Returns the covariance of values around zero with those that come `lag` later.
fn covariance(values: &[f64], lag: usize) -> f64 {
    dot_product(values, &values[lag..]) / values.len() as f64
}

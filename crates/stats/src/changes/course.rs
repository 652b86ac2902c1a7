use fullpipe_units::{BitRate, Time};

use crate::MIN_NOISE;
use crate::changes::partition::MIN_AT_END;
use crate::changes::{pattern, running};
use crate::order_statistics::median;

/// Runs on either side in the running median from which bursts deviate, and in the one that slow movements follow.
const AROUND_BURSTS: usize = 8;
const AROUND_MOVEMENTS: usize = 25;

/// Deviations from the running median are cut to so many standard deviations: bursts are no change.
const CUT: f64 = 2.0;

/// Standard deviation by median deviation, of normal values.
const BY_MEDIAN_DEVIATION: f64 = 1.4826;

/// Runs up to which runs may be like each other.
const ALIKE: usize = 8;

/// The course of a history, in logarithms of the rate.
pub(super) struct Course {
    /// Without the patterns of day and week.
    pub(super) logs: Vec<f64>,
    /// The same with the bursts cut.
    pub(super) calm: Vec<f64>,
    /// Standard deviation of single runs, without bursts.
    pub(super) deviation: f64,
    /// Variance of means of `calm`, times the number of runs in them.
    pub(super) variance: f64,
}

impl Course {
    /// Returns the course of runs in the order of time; `None` of too few to have a change.
    pub(super) fn of(runs: &[(Time, BitRate)]) -> Option<Self> {
        if runs.len() < 2 * MIN_AT_END {
            return None;
        }
        // A run in which nothing arrived has a rate without a logarithm, and is cut like a burst.
        let logs = runs.iter().map(|(_, rate)| libm::log(rate.as_f64().max(1.0))).collect();
        let times: Vec<Time> = runs.iter().map(|(at, _)| *at).collect();
        let logs = pattern::without_patterns(&times, logs);
        let level = running::medians(&logs, AROUND_BURSTS);
        let from_level: Vec<f64> = logs.iter().zip(&level).map(|(log, level)| log - level).collect();
        let sizes: Vec<f64> = from_level.iter().map(|away| away.abs()).collect();
        let deviation = (BY_MEDIAN_DEVIATION * median(&sizes)?).max(MIN_NOISE);
        let cut = |away: &f64| away.clamp(-CUT * deviation, CUT * deviation);
        let calm: Vec<f64> = from_level.iter().zip(level).map(|(away, level)| level + cut(away)).collect();
        let variance = variance_of_means(&calm).max(MIN_NOISE * MIN_NOISE);
        Some(Self { logs, calm, deviation, variance })
    }
}

/// Returns the variance of means of `values` times their number, apart from slow movements: the variance and twice the
/// covariances with later values, which count less the farther away they are (Newey and West, Econometrica 55, 1987).
fn variance_of_means(values: &[f64]) -> f64 {
    let slow = running::medians(values, AROUND_MOVEMENTS);
    let fast: Vec<f64> = values.iter().zip(slow).map(|(value, slow)| value - slow).collect();
    let covariance =
        |lag: usize| fast.iter().zip(&fast[lag..]).map(|(one, later)| one * later).sum::<f64>() / fast.len() as f64;
    let weight = |lag: usize| 1.0 - lag as f64 / (ALIKE + 1) as f64;
    let alike: f64 = (1..=ALIKE).map(|lag| 2.0 * weight(lag) * covariance(lag)).sum();
    // Values that alternate have means that are surer than that, but not for certain.
    covariance(0) + alike.max(0.0)
}

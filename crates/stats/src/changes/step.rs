use fullpipe_units::{Ratio, median};

use crate::NORMAL_975;
use crate::changes::course::LogRateHistory;
use crate::changes::level_ends;
use crate::changes::partition::{MIN_AT_END, cost_of_change};
use crate::correlation::dot_product;

/// Least change, as a logarithm: 3 %.
const MIN_STEP: f64 = 0.03;

/// Least change, in standard deviations of single runs.
const MIN_DEVIATIONS: f64 = 0.75;

/// Standard errors by which a change stands out from a smooth course: by chance in 1 % of all
/// cases.
const STANDS_OUT: f64 = 2.576;

/// Places at which a change is tried.
const MAX_TRIED: usize = 32;

/// Degree of the polynomial that a smooth course through two levels is.
const DEGREE: usize = 3;

/// Returns the place in `cuts` of the change that falls shortest of what a change must be; `None`
/// if none does.
pub(super) fn weakest_cut(course: &LogRateHistory, cuts: &[usize]) -> Option<usize> {
    let error = course.variance_of_means(cuts).sqrt();
    level_ends(cuts, course.calm.len())
        .windows(3)
        .map(|ends| change_strength(course, [ends[0], ends[1], ends[2]], error))
        .enumerate()
        .filter(|(_, strength)| *strength < 1.0)
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(place, _)| place)
}

/// Returns the size of the change at `cut`, between levels that reach from `from` and up to `to`,
/// as a multiple of what it must be. `error` is the standard error of the mean of runs, times the
/// root of their number.
fn change_strength(course: &LogRateHistory, [from, cut, to]: [usize; 3], error: f64) -> f64 {
    let [before, after] = [&course.logs[from..cut], &course.logs[cut..to]]
        .map(|logs| median(logs.to_vec()).unwrap_or(0.0));
    let step = after - before;
    let [levels, curved] = estimate_steps(&course.calm[from..to], cut - from);
    let size = step.abs() / least_size(course);
    let apart = levels.size.abs() / (least_errors(course) * levels.error * error);
    size.min(apart)
        .min(curved.size * step.signum() / (STANDS_OUT * curved.error * error))
}

/// Returns the share by which the rate must change once, with at least [`MIN_AT_END`] runs on
/// either side, to be found in `course`, in which there is no change: at the place where that takes
/// most, with 97.5 % of the chances.
pub(super) fn detectable_step(course: &LogRateHistory) -> Ratio {
    let runs = course.calm.len();
    let places = (MIN_AT_END..=runs - MIN_AT_END).step_by(runs.div_ceil(MAX_TRIED));
    let least = places.map(|cut| {
        let [levels, curved] = estimate_steps(&course.calm, cut);
        let by_level = (least_errors(course) + NORMAL_975) * levels.error;
        by_level.max((STANDS_OUT + NORMAL_975) * curved.error)
            * course.variance_of_means(&[cut]).sqrt()
    });
    Ratio::new(libm::expm1(least.fold(least_size(course), f64::max)))
}

/// Returns the least change, as a logarithm.
fn least_size(course: &LogRateHistory) -> f64 {
    MIN_STEP.max(MIN_DEVIATIONS * course.deviation)
}

/// Returns the standard errors by which two levels must differ.
fn least_errors(course: &LogRateHistory) -> f64 {
    cost_of_change(course.calm.len()).sqrt()
}

/// The size of a step, with its standard error for values of variance 1.
struct StepEstimate {
    size: f64,
    error: f64,
}

/// Returns the step at `cut` between two levels, and the one in a course that is otherwise a
/// polynomial (least squares).
fn estimate_steps(values: &[f64], cut: usize) -> [StepEstimate; 2] {
    let mut power = vec![1.0; values.len()];
    // Gram and Schmidt: each power without the lower ones, and the step without all of them.
    let mut smooth: Vec<Vec<f64>> = Vec::new();
    for _ in 0..=DEGREE {
        let next = orthogonal_part(power.clone(), &smooth);
        smooth.push(next);
        for (index, power) in power.iter_mut().enumerate() {
            *power *= 2.0 * index as f64 / values.len() as f64 - 1.0;
        }
    }
    [&smooth[..1], &smooth[..]].map(|others| {
        let step = orthogonal_part(
            (0..values.len())
                .map(|index| f64::from(u8::from(index >= cut)))
                .collect(),
            others,
        );
        let square = dot_product(&step, &step);
        StepEstimate {
            size: dot_product(&step, values) / square,
            error: 1.0 / square.sqrt(),
        }
    })
}

/// Returns the part of `values` that is at right angles to each of `others`.
fn orthogonal_part(values: Vec<f64>, others: &[Vec<f64>]) -> Vec<f64> {
    others.iter().fold(values, |values, other| {
        let share = dot_product(&values, other) / dot_product(other, other);
        values
            .iter()
            .zip(other)
            .map(|(value, other)| value - share * other)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_stands_out_from_a_cubic_and_a_cubic_is_no_step() {
        let cubic = |index: usize| libm::pow(index as f64 - 20.0, 3.0) / 9000.0;
        let with_step = |size: f64| {
            let step = |index: usize| if index >= 30 { size } else { 0.0 };
            estimate_steps(
                &(0..60)
                    .map(|index| cubic(index) + step(index))
                    .collect::<Vec<_>>(),
                30,
            )
        };
        for size in [0.0, 1.0, 2.0] {
            let [_, curved] = with_step(size);
            assert!((curved.size - size).abs() < 1e-9, "{size}: {}", curved.size);
        }
        let [levels, curved] = with_step(1.0);
        // Legendre's polynomials of degree 1 and 3 take 3 ÷ 4 and 7 ÷ 64 of a step in the middle of
        // many values.
        let left = 9.0 / 64.0 * 60.0 / 4.0;
        assert!(
            (curved.error - 1.0 / f64::sqrt(left)).abs() < 0.01,
            "{}",
            curved.error
        );
        assert!(
            (levels.error - f64::sqrt(2.0 / 30.0)).abs() < 1e-9,
            "{}",
            levels.error
        );
    }
}

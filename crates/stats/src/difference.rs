use fullpipe_units::Ratio;

use crate::magnitude::{Magnitude, natural_log, ratio_from_log};
use crate::order_statistics::IntervalEstimate;
use crate::{MIN_NOISE, NORMAL_80, NORMAL_975, rank_sum, signed_rank, student};

/// By how much B differs from A, as a ratio, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioDifference {
    /// Estimate of B ÷ A.
    pub ratio: Ratio,
    /// Lower end of the interval.
    pub low: Ratio,
    /// Upper end.
    pub high: Ratio,
}

/// The statement that an interval permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// The interval lies on one side of 1, and not within [`SAME_WITHIN`] of it.
    Different,
    /// The interval lies within [`SAME_WITHIN`] of 1.
    Same,
    /// Neither: a difference may be there and was not shown.
    NoneShown,
}

/// Differences up to this share have no consequence: 2 %.
pub const SAME_WITHIN: f64 = 0.02;

impl RatioDifference {
    fn of_logs(located: IntervalEstimate) -> Self {
        let IntervalEstimate {
            estimate,
            low,
            high,
        } = located;
        Self {
            ratio: ratio_from_log(estimate),
            low: ratio_from_log(low),
            high: ratio_from_log(high),
        }
    }

    /// Returns the statement that the interval permits.
    pub fn conclusion(&self) -> Conclusion {
        let (low, high) = (self.low.get(), self.high.get());
        if low >= 1.0 - SAME_WITHIN && high <= 1.0 + SAME_WITHIN {
            Conclusion::Same
        } else if low > 1.0 || high < 1.0 {
            Conclusion::Different
        } else {
            Conclusion::NoneShown
        }
    }

    /// Returns the share by which B must have differed for four of five such campaigns to show it:
    /// half the interval, and the distance that leaves four of five estimates beyond it (normal
    /// theory; 1.43 times half the interval).
    pub fn detectable_share(&self) -> Ratio {
        let half = natural_log(self.high)
            .zip(natural_log(self.low))
            .map_or(f64::INFINITY, |(high, low)| (high - low) / 2.0);
        Ratio::new(libm::expm1(half * (1.0 + NORMAL_80 / NORMAL_975)))
    }
}

/// Returns the difference of pairs of runs, `(A, B)` each, that were measured next to each other in
/// random order.
///
/// Of the logarithms of B ÷ A: the Hodges–Lehmann estimate with the interval of Wilcoxon's signed
/// ranks (Hollander, Wolfe and Chicken, 3.2 and 3.3), from six pairs on; the mean with Student's
/// interval below, for which runs have a noise of 0.4 % at least. The order of each pair is what
/// makes it exact: drift and bursts fall on A and B alike. Pairs with a value of zero have no ratio
/// and are left out; `None` if fewer than two are left.
pub fn paired_difference<T: Magnitude>(pairs: &[(T, T)]) -> Option<RatioDifference> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter_map(|(a, b)| Some(natural_log(*b)? - natural_log(*a)?))
        .collect();
    signed_rank::signed_rank_estimate(&logs)
        .or_else(|| mean_of(&logs))
        .map(RatioDifference::of_logs)
}

/// Returns the difference of two samples of runs that were not measured in pairs.
///
/// Of the logarithms: the Hodges–Lehmann estimate with the interval of the rank sum test
/// (Hollander, Wolfe and Chicken, 4.2 and 4.3); where the samples are too small for that, the
/// difference of means with Welch's interval (Biometrika 34, 1947), the degrees of freedom rounded
/// down, for which runs have a noise of 0.4 % at least. It holds if all runs saw the same
/// conditions: what changed between the samples, time included, cannot be distinguished from a
/// difference. Values of zero are left out; `None` if fewer than two are left of either sample.
pub fn unpaired_difference<T: Magnitude>(a: &[T], b: &[T]) -> Option<RatioDifference> {
    let [a, b] = [a, b].map(|values| {
        let logs = values.iter().filter_map(|value| natural_log(*value));
        logs.collect::<Vec<_>>()
    });
    rank_sum::rank_sum_estimate(&a, &b)
        .or_else(|| welch_estimate(&a, &b))
        .map(RatioDifference::of_logs)
}

/// Returns the mean of differences of two runs each, with Student's interval.
fn mean_of(values: &[f64]) -> Option<IntervalEstimate> {
    let (mean, square) = mean_and_square_error(values)?;
    let square = square.max(2.0 * least_square_error(values.len()));
    let half = student::student_quantile(0.975, values.len() - 1) * square.sqrt();
    Some(IntervalEstimate {
        estimate: mean,
        low: mean - half,
        high: mean + half,
    })
}

fn welch_estimate(a: &[f64], b: &[f64]) -> Option<IntervalEstimate> {
    let ((mean_a, square_a), (mean_b, square_b)) =
        (mean_and_square_error(a)?, mean_and_square_error(b)?);
    let (square_a, square_b) = (
        square_a.max(least_square_error(a.len())),
        square_b.max(least_square_error(b.len())),
    );
    let square = square_a + square_b;
    let freedom = square * square
        / (square_a * square_a / (a.len() - 1) as f64 + square_b * square_b / (b.len() - 1) as f64);
    let (estimate, half) = (
        mean_b - mean_a,
        student::student_quantile(0.975, freedom as usize) * square.sqrt(),
    );
    Some(IntervalEstimate {
        estimate,
        low: estimate - half,
        high: estimate + half,
    })
}

/// Returns the square of the standard error of the mean of so many runs that hardly differ: a few
/// that agree do not show that there is no noise.
fn least_square_error(runs: usize) -> f64 {
    MIN_NOISE * MIN_NOISE / runs as f64
}

/// Returns the mean and the square of its standard error; `None` of fewer than two values.
pub(crate) fn mean_and_square_error(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    (values.len() > 1).then(|| (mean, squares / (count - 1.0) / count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::BitRate;

    fn rates(of: &[u64]) -> Vec<BitRate> {
        of.iter().map(|mbps| BitRate::from_mbps(*mbps)).collect()
    }

    fn difference(low: f64, high: f64) -> RatioDifference {
        RatioDifference {
            ratio: Ratio::new(f64::midpoint(low, high)),
            low: Ratio::new(low),
            high: Ratio::new(high),
        }
    }

    #[test]
    fn an_interval_permits_one_of_three_statements() {
        assert_eq!(difference(1.008, 1.054).conclusion(), Conclusion::Different);
        assert_eq!(difference(0.8, 0.99).conclusion(), Conclusion::Different);
        assert_eq!(difference(0.991, 1.033).conclusion(), Conclusion::NoneShown);
        assert_eq!(difference(0.985, 1.012).conclusion(), Conclusion::Same);
        assert_eq!(
            difference(1.002, 1.012).conclusion(),
            Conclusion::Same,
            "a difference that matters to nobody"
        );
    }

    #[test]
    fn students_sleep_is_what_he_found() {
        // Student, Biometrika 6 (1908), 20: additional sleep of ten people by the second drug over
        // that by the first, 1.58 h with a standard error of 0.389 h; and the first five of them,
        // as exponents of ratios.
        let hours: [f64; 5] = [1.2, 2.4, 1.3, 1.3, 0.0];
        let (mean, square) =
            mean_and_square_error(&[1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]).unwrap();
        assert!(
            (mean - 1.58).abs() < 1e-9 && (square.sqrt() - 0.389).abs() < 1e-3,
            "{mean}, {square}"
        );
        let pairs: Vec<(Ratio, Ratio)> = hours
            .iter()
            .map(|hours| (Ratio::ONE, ratio_from_log(*hours)))
            .collect();
        let found = paired_difference(&pairs).unwrap();
        let half = 2.776 * (0.723_f64 / 5.0).sqrt();
        assert!(
            (libm::log(found.ratio.get()) - 1.24).abs() < 1e-9,
            "{found:?}"
        );
        assert!(
            (libm::log(found.high.get()) - 1.24 - half).abs() < 1e-3,
            "{found:?}"
        );
    }

    #[test]
    fn pairs_cancel_what_happens_to_both() {
        let hours = [100, 200, 50, 400, 100, 130, 80, 260];
        let pair = |mbps: &u64| {
            (
                BitRate::from_mbps(*mbps),
                BitRate::from_mbps(mbps * 11 / 10),
            )
        };
        let pairs: Vec<_> = hours.iter().map(pair).collect();
        let found = paired_difference(&pairs).unwrap();
        assert!(
            (found.ratio.get() - 1.1).abs() < 1e-9 && found.conclusion() == Conclusion::Different,
            "{found:?}"
        );
        let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        assert_eq!(
            unpaired_difference(&a, &b).unwrap().conclusion(),
            Conclusion::NoneShown
        );
    }

    #[test]
    fn too_few_runs_have_no_interval() {
        let one = rates(&[100]);
        assert_eq!(unpaired_difference(&one, &one), None);
        assert_eq!(paired_difference(&[(one[0], one[0])]), None);
        assert_eq!(paired_difference::<BitRate>(&[]), None);
        let with_zeros = [
            (BitRate::ZERO, one[0]),
            (one[0], BitRate::ZERO),
            (one[0], one[0]),
        ];
        assert_eq!(paired_difference(&with_zeros), None);
    }

    #[test]
    fn a_few_runs_that_agree_have_an_interval_as_wide_as_usual_noise() {
        let same = rates(&[100, 100, 100]);
        let none = unpaired_difference(&same, &same).unwrap();
        assert!(
            none.ratio == Ratio::ONE && none.conclusion() == Conclusion::Same,
            "{none:?}"
        );
        assert_eq!(
            unpaired_difference(&same, &rates(&[200, 200]))
                .unwrap()
                .conclusion(),
            Conclusion::Different
        );
        // Student's table: 4.303 × 0.4 % of two runs each, 12.706 × 0.4 % of two pairs, 2.776 × 0.4
        // % × √(2 ÷ 5) of five; and what has a spread on one side only.
        let two = |mbps: u64| rates(&[mbps, mbps]);
        let pairs = |count: usize| {
            paired_difference(&vec![
                (BitRate::from_mbps(100), BitRate::from_mbps(103));
                count
            ])
            .unwrap()
        };
        for (found, half) in [
            (unpaired_difference(&two(100), &two(103)).unwrap(), 0.01721),
            (pairs(2), 0.05082),
            (pairs(5), 0.00702),
            (
                unpaired_difference(&two(100), &rates(&[102, 104])).unwrap(),
                0.0,
            ),
        ] {
            let (low, high) = (libm::log(found.low.get()), libm::log(found.high.get()));
            assert!(high - low > 0.014, "{found:?}");
            assert!(
                half == 0.0 || ((high - low) / 2.0 - half).abs() < 2e-5,
                "{found:?}"
            );
        }
        assert_eq!(pairs(2).conclusion(), Conclusion::NoneShown);
    }

    #[test]
    fn three_runs_each_are_compared_by_welch() {
        // (ln 110 ± …) by hand: means 4.6052 and 4.7003, square errors 0.000833 and 0.000689, 3.97
        // → 3 degrees.
        let found = unpaired_difference(&rates(&[95, 100, 105]), &rates(&[105, 110, 115])).unwrap();
        assert!((found.ratio.get() - 1.1002).abs() < 1e-3, "{found:?}");
        assert!(found.low.get() < 1.0 && found.high.get() > 1.2, "{found:?}");
    }

    #[test]
    fn the_detectable_difference_is_one_and_a_half_times_half_the_interval() {
        let found = difference(libm::exp(-0.067), libm::exp(0.067)).detectable_share();
        assert!((found.get() - 0.1005).abs() < 5e-4, "{found}");
    }
}

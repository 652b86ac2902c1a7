//! Medians, quantiles, and how sure a ratio or a share is.

use std::collections::BTreeMap;
use std::fmt::Write;

use fullpipe_units::median;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Serialize;

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// Lower and upper end; `None` where there were too few rounds to say.
    pub(crate) interval: Option<[f64; 2]>,
}

/// Fewer rounds say nothing about the next one.
const MIN_ROUNDS: usize = 3;

/// Enough that the ends of an interval are known to a hundredth of its width.
const RESAMPLES: usize = 10_000;

/// The same rounds give the same interval.
const SEED: u64 = 1;

/// Quantile of the normal distribution that 95 % of it lie below.
const ONE_SIDED_95: f64 = 1.645;

/// The smallest value that a share of `share` of all values does not exceed (nearest rank). `None`
/// of nothing.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let rank = (share * values.len() as f64).ceil() as usize;
    sorted(values).get(rank.saturating_sub(1)).copied()
}

/// The median of the rounds' ratios. Its interval is where the middle 95 % of the medians lie when
/// rounds are drawn again, with replacement, from those that were run (percentile bootstrap; Efron
/// and Tibshirani, An Introduction to the Bootstrap, §13.3). `None` without rounds.
pub(crate) fn ratio(of_rounds: &[f64]) -> Option<Ratio> {
    let interval = || {
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let mut draw = || of_rounds[(random.next_u64() % of_rounds.len() as u64) as usize];
        let mut again = || median((0..of_rounds.len()).map(|_| draw()).collect());
        let medians: Vec<f64> = (0..RESAMPLES).filter_map(|_| again()).collect();
        Some([quantile(&medians, 0.025)?, quantile(&medians, 0.975)?])
    };
    let enough = of_rounds.len() >= MIN_ROUNDS;
    Some(Ratio {
        median: median(of_rounds.to_vec())?,
        interval: enough.then(interval).flatten(),
    })
}

/// Returns a line for each planted verdict, with how often it was named and what was named in its
/// place.
pub(crate) fn confusion<'r>(cases: impl Iterator<Item = (&'r str, String)>) -> String {
    let mut counts: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for (expected, said) in cases {
        *counts.entry(expected).or_default().entry(said).or_default() += 1;
    }
    let mut text = String::new();
    for (expected, said) in &counts {
        let total: usize = said.values().sum();
        let right = said.get(*expected).copied().unwrap_or(0);
        let others = said.iter().filter(|(name, _)| name != expected);
        let others: Vec<String> = others
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let _ = writeln!(
            text,
            "  {expected:<40} {right:>3} of {total:<3} {}",
            others.join(", ")
        );
    }
    text
}

/// Returns the lower end of the interval that holds the true share in 95 % of all cases (Wilson,
/// 1927).
pub(crate) fn lower_bound(right: usize, all: usize) -> f64 {
    let (count, share) = (all as f64, right as f64 / all as f64);
    let square = ONE_SIDED_95 * ONE_SIDED_95;
    let middle = share + square / (2.0 * count);
    let width =
        ONE_SIDED_95 * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
    (middle - width) / (1.0 + square / count)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {}

    #[test]
    fn the_lower_bound_is_wilsons() {
        // By hand: (0.95 + 0.01353 − 0.03832) ÷ 1.02706.
        assert!(
            (lower_bound(95, 100) - 0.9008).abs() < 1e-4,
            "{}",
            lower_bound(95, 100)
        );
        assert!(lower_bound(150, 150) > 0.98 && lower_bound(0, 10).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(
            (quantile(&values, 0.9), quantile(&values, 1.0)),
            (Some(18.0), Some(20.0))
        );
        assert_eq!(
            (
                quantile(&values, 0.0),
                quantile(&[7.0], 0.9),
                quantile(&[], 0.5)
            ),
            (Some(1.0), Some(7.0), None)
        );
    }

    #[test]
    fn the_interval_of_seven_rounds_is_what_order_statistics_say() {
        // The median of seven draws from 1..=7 is at most k with the probability that four of them
        // are, which is binomial: below 2 in 1.0 % of the resamples, below 3 in 11 %. So the middle
        // 95 % of them reach from 2 to 6.
        let rounds = [5.0, 2.0, 7.0, 1.0, 4.0, 6.0, 3.0];
        assert_eq!(
            ratio(&rounds),
            Some(Ratio {
                median: 4.0,
                interval: Some([2.0, 6.0])
            })
        );
        assert_eq!(ratio(&rounds), ratio(&rounds));
    }

    #[test]
    fn rounds_that_agree_leave_no_doubt_and_too_few_say_nothing() {
        assert_eq!(
            ratio(&[2.0; 7]),
            Some(Ratio {
                median: 2.0,
                interval: Some([2.0, 2.0])
            })
        );
        assert_eq!(
            ratio(&[2.0, 4.0]),
            Some(Ratio {
                median: 3.0,
                interval: None
            })
        );
        assert_eq!(ratio(&[]), None);
    }
}

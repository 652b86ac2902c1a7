//! The rank sum test of Wilcoxon, Mann and Whitney, turned into an interval (Moses'; Hollander,
//! Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, 4.1 to 4.3).

use crate::order_statistics::{IntervalEstimate, lower_tail, median_interval};

/// Up to here in both samples the distribution is counted, beyond it is normal to three digits.
const MAX_COUNTED: usize = 40;

/// Returns the Hodges–Lehmann estimate by how much `b` lies above `a`, and its interval, between
/// differences of one of each; `None` if the samples are so small that no interval holds at 95 % (3
/// and 3, say). Takes n × m numbers of memory.
pub(crate) fn rank_sum_estimate(a: &[f64], b: &[f64]) -> Option<IntervalEstimate> {
    let differences = b
        .iter()
        .flat_map(|second| a.iter().map(move |first| second - first))
        .collect();
    median_interval(differences, critical_rank_sum(a.len(), b.len())?)
}

/// Returns the number of sorted differences that lie outside the interval at each end: the largest
/// U with a probability of 2.5 % or less below or at it.
fn critical_rank_sum(a: usize, b: usize) -> Option<usize> {
    if a.max(b) > MAX_COUNTED && a.min(b) > 5 {
        let (n, m) = (a as f64, b as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return Some((n * m / 2.0 - crate::NORMAL_975 * deviation - 0.5).max(0.0) as usize);
    }
    lower_tail(&rank_sum_distribution(a, b))
}

/// Returns the probability of each U: the number of pairs, one of each sample, of which the second
/// is larger.
///
/// U is the rank sum of the first sample less its least possible value, so the ways to reach it are
/// those to choose `a` of the ranks with that sum.
fn rank_sum_distribution(a: usize, b: usize) -> Vec<f64> {
    // ways[chosen][excess]: the excess of a rank is the number of ranks before it that were not
    // chosen.
    let mut ways = vec![vec![0.0; a * b + 1]; a + 1];
    ways[0][0] = 1.0;
    for rank in 0..a + b {
        for chosen in (0..a.min(rank + 1)).rev() {
            let passed = rank - chosen;
            for excess in (passed..=a * b).rev() {
                ways[chosen + 1][excess] += ways[chosen][excess - passed];
            }
        }
    }
    let all: f64 = ways[a].iter().sum();
    ways[a].iter().map(|count| count / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_mann_and_whitneys_table() {
        // Siegel and Castellan's and Zar's table B.11 of U, 5 % of both tails.
        let table = [
            (4, 4, 0),
            (5, 5, 2),
            (6, 6, 5),
            (8, 8, 13),
            (10, 10, 23),
            (5, 10, 8),
            (12, 15, 49),
            (20, 20, 127),
        ];
        for (a, b, critical) in table {
            assert_eq!(
                (critical_rank_sum(a, b), critical_rank_sum(b, a)),
                (Some(critical), Some(critical)),
                "{a} and {b}"
            );
        }
        assert_eq!(
            (
                critical_rank_sum(3, 3),
                critical_rank_sum(1, 10),
                critical_rank_sum(0, 9)
            ),
            (None, None, None)
        );
        assert_eq!(critical_rank_sum(3, 5), Some(0));
    }

    #[test]
    fn all_ways_to_choose_are_counted() {
        assert_eq!(
            rank_sum_distribution(2, 2),
            [1.0, 1.0, 2.0, 1.0, 1.0].map(|ways| ways / 6.0)
        );
    }

    #[test]
    fn water_diffuses_across_the_chorioamnion_as_published() {
        // Hollander, Wolfe and Chicken, table 4.1, examples 4.3 and 4.4: 0.305, from -0.15 to 0.76
        // at 96 %.
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let earlier = [1.15, 0.88, 0.90, 0.74, 1.21];
        let found = rank_sum_estimate(&earlier, &at_term).unwrap();
        assert!((found.estimate - 0.305).abs() < 1e-9, "{found:?}");
        assert!(
            (found.low + 0.15).abs() < 1e-9 && (found.high - 0.76).abs() < 1e-9,
            "{found:?}"
        );
    }

    #[test]
    fn beyond_the_counted_ones_the_normal_distribution_goes_on() {
        let (counted, normal) = (
            critical_rank_sum(40, 40).unwrap(),
            critical_rank_sum(40, 41).unwrap(),
        );
        assert!(
            normal > counted && normal - counted < 40,
            "{counted}, {normal}"
        );
    }
}

/// Runs that the first and the last level have at least.
pub(super) const MIN_AT_END: usize = 8;

/// Most runs that must lie between two changes, and the share of all runs: what ends sooner is a
/// burst, of which a long history has more and longer ones.
const MAX_BETWEEN: usize = 20;
const SHARE_BETWEEN: usize = 8;

/// Returns the least number of runs between two changes of `count` runs.
fn min_between(count: usize) -> usize {
    (count / SHARE_BETWEEN).clamp(MIN_AT_END, MAX_BETWEEN)
}

/// Returns the cost of a change among `count` runs, in variances: 4 ln n, twice that of Schwarz's
/// criterion (Yao, Statistics & Probability Letters 6, 1988). A mean that differs from another by
/// the root of it, in standard errors, does so by chance in less than one of 200 histories of
/// independent normal runs, whichever of the n places is taken.
pub(super) fn cost_of_change(count: usize) -> f64 {
    4.0 * libm::log(count as f64)
}

/// Returns the places, in order, at which the level of `values` changes so that the squares of the
/// deviations from the levels and the costs of the changes together are least (optimal
/// partitioning; Jackson et al., IEEE Signal Processing Letters 12, 2005).
pub(super) fn partition_levels(values: &[f64], variance: f64) -> Vec<usize> {
    let count = values.len();
    let cost = cost_of_change(count) * variance;
    let squares = PrefixSums::from_values(values);
    // Least cost of the values up to each place, and the change before it.
    let mut least = vec![(f64::INFINITY, 0); count + 1];
    least[0] = (-cost, 0);
    for to in MIN_AT_END..=count {
        // The first level and the last one may be shorter.
        let choices = (0..=to - MIN_AT_END)
            .filter(|from| *from == 0 || to == count || to - from >= min_between(count));
        let costs =
            choices.map(|from| (least[from].0 + squares.around_mean(from, to) + cost, from));
        least[to] = costs
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or(least[to]);
    }
    let mut cuts: Vec<usize> = std::iter::successors(Some(count), |place| {
        Some(least[*place].1).filter(|before| *before > 0)
    })
    .skip(1)
    .collect();
    cuts.reverse();
    cuts
}

/// Running sums of values and of their squares.
struct PrefixSums {
    sums: Vec<(f64, f64)>,
}

impl PrefixSums {
    fn from_values(values: &[f64]) -> Self {
        // Around the first value: small numbers keep more digits.
        let first = values.first().copied().unwrap_or(0.0);
        let mut sums = vec![(0.0, 0.0)];
        let mut last = (0.0, 0.0);
        for value in values {
            let away = value - first;
            last = (last.0 + away, last.1 + away * away);
            sums.push(last);
        }
        Self { sums }
    }

    /// Returns the sum of the squared deviations from the mean of the values from one place to
    /// another.
    fn around_mean(&self, from: usize, to: usize) -> f64 {
        let (sum, square) = (
            self.sums[to].0 - self.sums[from].0,
            self.sums[to].1 - self.sums[from].1,
        );
        square - sum * sum / (to - from) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_where_they_are_long_enough() {
        let level = |length: usize, value: f64| std::iter::repeat_n(value, length);
        let of = |levels: &[(usize, f64)]| {
            let values: Vec<f64> = levels
                .iter()
                .flat_map(|(length, value)| level(*length, *value))
                .collect();
            partition_levels(&values, 0.01)
        };
        assert_eq!(of(&[(30, 0.0), (25, 1.0), (10, 0.0)]), [30, 55]);
        assert_eq!(of(&[(8, 0.0), (50, 1.0)]), [8]);
        assert_eq!(of(&[(60, 0.0)]), [0; 0]);
        let of_burst = of(&[(60, 0.0), (5, 1.0), (60, 0.0)]);
        assert!(
            of_burst
                .windows(2)
                .all(|cuts| cuts[1] - cuts[0] >= min_between(125)),
            "{of_burst:?}"
        );
    }
}

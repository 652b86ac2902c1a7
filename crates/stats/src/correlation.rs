use crate::magnitude::Magnitude;

/// Rank correlation of two quantities, with its 95 % interval; −1 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlation {
    /// Spearman's coefficient.
    pub coefficient: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Correlation {
    /// Returns true if the interval lies on one side of zero.
    pub fn is_shown(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Fewer pairs have an interval from −1 to 1.
const MIN_PAIRS: usize = 5;

/// Returns Spearman's rank correlation of pairs of runs' quantities (American Journal of Psychology
/// 15, 1904); values that are equal share the mean of their ranks. `None` of fewer than five pairs,
/// and if one quantity does not vary.
///
/// The interval is that of Fisher's z with the variance (1 + r² ÷ 2) ÷ (n − 3) (Bonett and Wright,
/// Psychometrika 65, 2000), which holds for |r| up to 0.95 and any monotonous relation.
pub fn rank_correlation<X: Magnitude, Y: Magnitude>(pairs: &[(X, Y)]) -> Option<Correlation> {
    if pairs.len() < MIN_PAIRS {
        return None;
    }
    let x = rank_values(&pairs.iter().map(|(x, _)| x.magnitude()).collect::<Vec<_>>());
    let y = rank_values(&pairs.iter().map(|(_, y)| y.magnitude()).collect::<Vec<_>>());
    let coefficient = product_moment(&x, &y)?;
    // Of a perfect order, z is infinite.
    let z = libm::atanh(coefficient.clamp(-0.999_999, 0.999_999));
    let half = crate::NORMAL_975
        * ((1.0 + coefficient * coefficient / 2.0) / (pairs.len() - 3) as f64).sqrt();
    Some(Correlation {
        coefficient,
        low: libm::tanh(z - half),
        high: libm::tanh(z + half),
    })
}

/// Returns Spearman's partial rank correlation of the first two of three quantities of runs, with
/// the third held fixed (Kendall and Gibbons, Rank Correlation Methods, 8.1: the formula for
/// product moments, of ranks). `None` of fewer than five runs, if one of the first two does not
/// vary, and if the third has the same ranks as one of them.
pub(crate) fn partial_rank_correlation<X: Magnitude, Y: Magnitude, Z: Magnitude>(
    runs: &[(X, Y, Z)],
) -> Option<f64> {
    let xy = rank_coefficient(runs.iter().map(|(x, y, _)| (*x, *y)))?;
    // What does not vary explains nothing.
    let xz = rank_coefficient(runs.iter().map(|(x, _, z)| (*x, *z))).unwrap_or(0.0);
    let yz = rank_coefficient(runs.iter().map(|(_, y, z)| (*y, *z))).unwrap_or(0.0);
    let left = ((1.0 - xz * xz) * (1.0 - yz * yz)).sqrt();
    (left > 1e-9).then(|| ((xy - xz * yz) / left).clamp(-1.0, 1.0))
}

fn rank_coefficient<X: Magnitude, Y: Magnitude>(
    pairs: impl Iterator<Item = (X, Y)>,
) -> Option<f64> {
    rank_correlation(&pairs.collect::<Vec<_>>()).map(|found| found.coefficient)
}

/// Returns the rank of each value from 1; equal values share the mean of theirs.
fn rank_values(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        for index in equal {
            ranks[*index] = before as f64 + (equal.len() + 1) as f64 / 2.0;
        }
        before += equal.len();
    }
    ranks
}

/// Returns Pearson's coefficient; `None` if one of the two does not vary.
fn product_moment(x: &[f64], y: &[f64]) -> Option<f64> {
    // The mean of ranks from 1 to n.
    let mean = (x.len() + 1) as f64 / 2.0;
    let [x, y] = [x, y].map(|ranks| ranks.iter().map(|rank| rank - mean).collect::<Vec<_>>());
    let scale = (dot_product(&x, &x) * dot_product(&y, &y)).sqrt();
    (scale > 0.0).then(|| (dot_product(&x, &y) / scale).clamp(-1.0, 1.0))
}

/// Returns the sum of the products of the values of two lists, as far as the shorter one goes.
pub(crate) fn dot_product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::SegCount;

    fn of(pairs: &[(u64, u64)]) -> Option<Correlation> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(x, y)| (SegCount::new(*x), SegCount::new(*y)))
            .collect();
        rank_correlation(&pairs)
    }

    #[test]
    fn coefficients_are_those_published() {
        // Kendall and Gibbons, Rank Correlation Methods, 5th edition, 1.2: ability in mathematics
        // and in music of ten boys.
        let mathematics = [7, 4, 3, 10, 6, 2, 9, 8, 1, 5];
        let music = [5, 7, 3, 10, 1, 9, 6, 2, 8, 4];
        let pairs: Vec<(u64, u64)> = mathematics.into_iter().zip(music).collect();
        assert!(
            (of(&pairs).unwrap().coefficient + 0.103).abs() < 1e-3,
            "{:?}",
            of(&pairs)
        );
    }

    #[test]
    fn two_quantities_that_follow_a_third_do_not_correlate_at_the_same_third() {
        let runs = |noise: fn(u64) -> (u64, u64)| -> Vec<_> {
            let run = |z: u64| (z * 10 + noise(z).0, z * z + noise(z).1, z);
            (1..=40)
                .map(run)
                .map(|(x, y, z)| (SegCount::new(x), SegCount::new(y), SegCount::new(z)))
                .collect()
        };
        let apart = runs(|z| (z * 7919 % 101, z * 104_729 % 97));
        let pairs: Vec<_> = apart.iter().map(|(x, y, _)| (*x, *y)).collect();
        assert!(rank_correlation(&pairs).unwrap().coefficient > 0.9);
        assert!(
            partial_rank_correlation(&apart).unwrap().abs() < 0.3,
            "{:?}",
            partial_rank_correlation(&apart)
        );
        let together = runs(|z| (z * 7919 % 101, z * 7919 % 101 * 10));
        assert!(
            partial_rank_correlation(&together).unwrap() > 0.9,
            "{:?}",
            partial_rank_correlation(&together)
        );
        let same: Vec<_> = apart.iter().map(|(_, y, z)| (*y, *y, *z)).collect();
        assert_eq!(partial_rank_correlation(&same[..4]), None);
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(
            rank_values(&[3.0, 1.0, 3.0, 2.0, 3.0]),
            [4.0, 1.0, 4.0, 2.0, 4.0]
        );
    }

    #[test]
    fn a_perfect_order_is_shown_and_what_does_not_vary_has_none() {
        let rising: Vec<(u64, u64)> = (1..=6).map(|x| (x, x * x * x)).collect();
        let found = of(&rising).unwrap();
        assert!(
            (found.coefficient - 1.0).abs() < 1e-12 && found.is_shown(),
            "{found:?}"
        );
        assert_eq!(of(&[(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]), None);
        assert_eq!(of(&rising[..4]), None);
    }
}

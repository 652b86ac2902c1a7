//! Ranks of the kernel's runs among simulated ones, which are uniform if both come from one distribution.

/// Returns the share of `simulated` below `value`; ties count half.
pub(crate) fn rank(value: f64, simulated: &[f64]) -> f64 {
    let below = simulated.iter().filter(|other| **other < value).count() as f64;
    let same = simulated.iter().filter(|other| other.total_cmp(&value).is_eq()).count() as f64;
    (below + same / 2.0) / simulated.len().max(1) as f64
}

/// Returns the probability that so many uniform ranks lie as far from a uniform distribution as these, or farther
/// (Kolmogorov and Smirnov; Stephens' approximation for few of them, Press et al., Numerical Recipes, 14.3.3).
pub(crate) fn uniform_p(ranks: &[f64]) -> f64 {
    let mut sorted = ranks.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let away = |(index, rank): (usize, &f64)| {
        let below = index as f64 / count;
        (rank - below).abs().max((rank - below - 1.0 / count).abs())
    };
    let distance = sorted.iter().enumerate().map(away).fold(0.0, f64::max);
    let root = count.sqrt();
    let scaled = (root + 0.12 + 0.11 / root) * distance;
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(k * k) * scaled * scaled).exp()
    };
    // Below this the series converges slowly, and its sum is 1 to six digits.
    if scaled < 0.3 { 1.0 } else { (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0) }
}

/// Returns the probabilities as they count when all of them are judged together (Holm, 1979).
pub(crate) fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut adjusted = vec![0.0; probabilities.len()];
    let mut largest = 0.0_f64;
    for (place, index) in order.into_iter().enumerate() {
        let times = (probabilities.len() - place) as f64;
        largest = largest.max((probabilities[index] * times).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_count_half() {
        assert!((rank(2.0, &[1.0, 2.0, 2.0, 3.0]) - 0.5).abs() < 1e-12);
        assert!((rank(9.0, &[1.0, 2.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn even_ranks_are_likely_and_ranks_at_one_end_are_not() {
        let even: Vec<f64> = (0..30).map(|index| (f64::from(index) + 0.5) / 30.0).collect();
        assert!(uniform_p(&even) > 0.999);
        let low: Vec<f64> = even.iter().map(|rank| rank / 2.0).collect();
        assert!(uniform_p(&low) < 1e-5, "{}", uniform_p(&low));
        // The critical distance of twenty at 5 % is 0.294 (Massey, 1951).
        let ranks: Vec<f64> = (0..20).map(|index| (f64::from(index) + 1.0) / 20.0 * (1.0 - 0.294)).collect();
        assert!((uniform_p(&ranks) - 0.05).abs() < 0.01, "{}", uniform_p(&ranks));
    }

    #[test]
    fn the_smallest_of_three_counts_three_times() {
        let adjusted = holm(&[0.04, 0.01, 0.3]);
        let expected = [0.08, 0.03, 0.3];
        assert!(adjusted.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{adjusted:?}");
    }
}

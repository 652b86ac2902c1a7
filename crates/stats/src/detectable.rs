use fullpipe_units::Ratio;

use crate::search::first_index;
use crate::signed_rank::MIN_PAIRS;
use crate::student;

/// Standard error of the Hodges–Lehmann estimate by that of the mean, of normal values: √(π ÷ 3)
/// (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963).
const RELATIVE_ERROR: f64 = 1.023_326_707_946_488_5;

/// Pairs beyond which the answer is "more than that".
const MAX_PAIRS: usize = 10_000;

/// Returns the difference, as a share, that four of five campaigns of so many pairs (2 or more)
/// show. `noise` is the standard deviation of single runs as a share; a few runs with bursts count
/// as a larger one.
///
/// Normal theory: the ends of the interval and the estimates that lie beyond it are quantiles of
/// Student's distribution (0.975 and 0.8), times √2 × noise ÷ √pairs. Of campaigns of 6 pairs,
/// whose interval holds in 97 %, two of three show it.
pub fn detectable_difference(noise: Ratio, pairs: usize) -> Ratio {
    let freedom = pairs.max(2) - 1;
    let quantiles =
        student::student_quantile(0.975, freedom) + student::student_quantile(0.8, freedom);
    let error =
        noise.get() * std::f64::consts::SQRT_2 * RELATIVE_ERROR / (pairs.max(2) as f64).sqrt();
    Ratio::new(-libm::expm1(-quantiles * error))
}

/// Returns the least number of pairs, 6 or more, with which four of five campaigns show
/// `difference`; `None` if it is more than 10 000.
pub fn pairs_needed(noise: Ratio, difference: Ratio) -> Option<usize> {
    // It falls with the number of pairs.
    let pairs = first_index(MIN_PAIRS, MAX_PAIRS + 1, |pairs| {
        detectable_difference(noise, pairs) <= difference
    });
    (pairs <= MAX_PAIRS).then_some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_difference_takes_about_four_times_the_pairs() {
        let noise = Ratio::new(0.075);
        let (ten, five) = (
            pairs_needed(noise, Ratio::new(0.10)),
            pairs_needed(noise, Ratio::new(0.05)),
        );
        assert_eq!((ten, five), (Some(11), Some(38)));
        assert_eq!(pairs_needed(noise, Ratio::new(1e-6)), None);
        assert_eq!(pairs_needed(Ratio::ZERO, Ratio::new(0.01)), Some(6));
    }

    #[test]
    fn more_pairs_show_less() {
        let shown: Vec<Ratio> = (2..100)
            .map(|pairs| detectable_difference(Ratio::new(0.06), pairs))
            .collect();
        assert!(shown.windows(2).all(|pair| pair[1] < pair[0]), "{shown:?}");
    }
}

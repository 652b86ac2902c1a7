//! Student's t distribution with a whole number of degrees of freedom.

/// Beyond so many degrees of freedom the quantiles are those of this many, to three digits those of
/// the normal distribution.
const MAX_FREEDOM: usize = 1_000;

/// Returns the value that `share` (0.5 to below 1) of the distribution with `freedom` degrees (1 or
/// more) lies below.
pub(crate) fn student_quantile(share: f64, freedom: usize) -> f64 {
    let freedom = freedom.clamp(1, MAX_FREEDOM);
    let central = 2.0 * share - 1.0;
    let (mut low, mut high) = (0.0, 1e6);
    // Until the two ends are neighbours: a thousand-billionth of the quantile.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if central_probability(middle, freedom) < central {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the probability that |T| is at most `t` (Abramowitz and Stegun, Handbook of Mathematical
/// Functions, 26.7.3 and 26.7.4).
fn central_probability(t: f64, freedom: usize) -> f64 {
    let degrees = freedom as f64;
    let root = (degrees + t * t).sqrt();
    let (sine, cosine) = (t / root, degrees.sqrt() / root);
    let odd = freedom % 2 == 1;
    let terms = (freedom - usize::from(odd)) / 2;
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    for index in 1..=terms {
        sum += term;
        let (above, below) = if odd {
            (2 * index, 2 * index + 1)
        } else {
            (2 * index - 1, 2 * index)
        };
        term *= cosine * cosine * above as f64 / below as f64;
    }
    if odd {
        (libm::atan(t / degrees.sqrt()) + sine * sum) * std::f64::consts::FRAC_2_PI
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_table() {
        // Fisher and Yates, Statistical Tables, table III: 5 % and 40 % of both tails together.
        let table = [
            (1, 12.706, 1.376),
            (2, 4.303, 1.061),
            (4, 2.776, 0.941),
            (9, 2.262, 0.883),
            (10, 2.228, 0.879),
        ];
        for (freedom, both_tails, one_tail) in table {
            assert!(
                (student_quantile(0.975, freedom) - both_tails).abs() < 6e-4,
                "{freedom}"
            );
            assert!(
                (student_quantile(0.8, freedom) - one_tail).abs() < 6e-4,
                "{freedom}"
            );
        }
        assert!(
            (student_quantile(0.975, 30) - 2.042).abs() < 6e-4
                && (student_quantile(0.975, 120) - 1.980).abs() < 6e-4
        );
        assert!((student_quantile(0.975, usize::MAX) - 1.962).abs() < 6e-4);
    }
}

//! Error rates of the rank correlation.

use crate::noise::{Random, percent, rate};
use fullpipe_stats::rank_correlation;

/// Returns the share of samples of `count` pairs in which a correlation is shown; `slope` makes
/// one, in deviations.
fn shown(count: usize, slope: f64) -> f64 {
    percent(2_000, |seed| {
        let mut random = Random::new(seed);
        let mut pair = || {
            let x = random.normal();
            (rate(x), rate(slope * x + random.normal()))
        };
        let pairs: Vec<_> = (0..count).map(|_| pair()).collect();
        rank_correlation(&pairs).expect("both vary").is_shown()
    })
}

#[test]
fn independent_quantities_are_rarely_correlated() {
    for count in [6, 10, 30, 100] {
        assert!(
            shown(count, 0.0) <= 6.5,
            "{count} pairs: {} %",
            shown(count, 0.0)
        );
    }
}

#[test]
fn a_correlation_is_shown() {
    assert!(shown(30, 1.0) >= 90.0, "{} %", shown(30, 1.0));
    assert!(shown(10, -3.0) >= 90.0, "{} %", shown(10, -3.0));
}

//! Error rates of the alarm that a campaign's reference cell gives, in simulated campaigns of ten references.

use crate::noise::{Noise, Random, percent, rate};
use fullpipe_stats::{Advice, reference_advice};
use fullpipe_units::BitRate;

const REFERENCES: usize = 10;

/// Returns the number of references with which the alarm comes, if it does; those from `at` on are multiplied by
/// `factor`.
fn alarm(noise: Noise, seed: u64, at: usize, factor: f64) -> Option<usize> {
    // An hour's campaign: a reference every six minutes.
    let logs = noise.runs(REFERENCES, 0.06, 240.0, &mut Random::new(seed));
    let changed = |(index, log): (usize, f64)| rate(log).scaled(if index < at { 1.0 } else { factor });
    let rates: Vec<BitRate> = logs.into_iter().enumerate().map(changed).collect();
    (1..=REFERENCES).find(|count| reference_advice(&rates[..*count]) == Advice::Changed)
}

#[test]
fn an_alarm_is_rarely_false() {
    for noise in Noise::ALL {
        let alarms = percent(2_000, |seed| alarm(noise, seed, 0, 1.0).is_some());
        assert!(alarms <= 4.0, "{noise:?}: {alarms} % of the campaigns have a false alarm");
    }
}

#[test]
fn a_fall_by_a_third_is_noticed_with_the_third_reference() {
    for noise in Noise::ALL {
        let noticed = percent(2_000, |seed| {
            let at = 3 + seed as usize % 5;
            alarm(noise, seed, at, 0.7).is_some_and(|count| count <= at + 3)
        });
        // Noise of 12 % hides some.
        let least = if noise == Noise::Restless { 85.0 } else { 95.0 };
        assert!(noticed >= least, "{noise:?}: {noticed} % noticed");
    }
}

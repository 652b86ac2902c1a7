//! Error rates of differences between simulated runs.

use crate::noise::{Noise, Random, percent, rate};
use fullpipe_stats::{
    Conclusion, PairOrder, RatioDifference, detectable_difference, pair_orders, paired_difference,
    pairs_needed, unpaired_difference, within_run,
};
use fullpipe_units::{BitRate, Ratio};

/// Noise of a run; with the bursts it is that of a busy wide-area path.
const DEVIATION: f64 = 0.06;

/// Runs in a day: pairs see day and night.
const PER_DAY: f64 = 100.0;

/// Returns the difference of `pairs` pairs in random order, of which B has `effect` times the rate
/// of A.
fn of_pairs(noise: Noise, pairs: usize, effect: f64, seed: u64) -> RatioDifference {
    let runs = noise.runs(2 * pairs, DEVIATION, PER_DAY, &mut Random::new(seed));
    let pair = |(order, runs): (PairOrder, &[f64])| match order {
        PairOrder::Ab => (rate(runs[0]), rate(runs[1]).scale_by(effect)),
        PairOrder::Ba => (rate(runs[1]), rate(runs[0]).scale_by(effect)),
    };
    let orders = pair_orders(pairs, seed ^ 0x5eed).into_iter();
    let pairs: Vec<_> = orders.zip(runs.chunks(2)).map(pair).collect();
    paired_difference(&pairs).expect("there are pairs")
}

fn is_claimed(difference: RatioDifference) -> bool {
    difference.conclusion() == Conclusion::Different
}

/// Returns the percentage of campaigns that find B slower.
fn found(noise: Noise, pairs: usize, effect: f64) -> f64 {
    percent(1_000, |seed| {
        let difference = of_pairs(noise, pairs, effect, 10_000 + seed);
        is_claimed(difference) && difference.high < Ratio::ONE
    })
}

#[test]
fn pairs_of_equals_rarely_differ_whatever_the_noise() {
    for noise in Noise::ALL {
        for pairs in [4, 6, 12, 24] {
            let claimed = percent(1_000, |seed| is_claimed(of_pairs(noise, pairs, 1.0, seed)));
            // 5 % are 50 ± 7 campaigns.
            assert!(claimed <= 7.1, "{noise:?}, {pairs} pairs: {claimed} %");
        }
    }
}

#[test]
fn pairs_find_what_they_should() {
    assert!(
        found(Noise::Bursts, 24, 0.95) >= 60.0,
        "{}",
        found(Noise::Bursts, 24, 0.95)
    );
    assert!(
        found(Noise::Bursts, 12, 0.90) >= 78.0,
        "{}",
        found(Noise::Bursts, 12, 0.90)
    );
    for noise in [
        Noise::Normal,
        Noise::Heavy,
        Noise::Drift,
        Noise::Wave,
        Noise::Alike,
        Noise::LongBursts,
    ] {
        let (five, ten) = (found(noise, 24, 0.95), found(noise, 12, 0.90));
        assert!(five >= 70.0 && ten >= 90.0, "{noise:?}: {five} %, {ten} %");
    }
}

#[test]
fn the_forecast_is_found_in_four_of_five_campaigns() {
    let noise = Ratio::new(DEVIATION);
    for pairs in [8, 12, 24] {
        let shown = found(
            Noise::Normal,
            pairs,
            1.0 - detectable_difference(noise, pairs).get(),
        );
        assert!((72.0..88.0).contains(&shown), "{pairs} pairs: {shown} %");
    }
    // Bursts in 4 % of the runs are like a quarter more noise.
    let shown = found(
        Noise::Bursts,
        12,
        1.0 - detectable_difference(Ratio::new(0.075), 12).get(),
    );
    assert!((70.0..88.0).contains(&shown), "{shown} %");
    assert_eq!(
        pairs_needed(noise, detectable_difference(noise, 24)),
        Some(24)
    );
}

#[test]
fn a_then_b_claims_differences_that_drift_makes_and_pairs_do_not() {
    let drifting = |seed: u64| {
        let mut random = Random::new(seed);
        (0..24)
            .map(|index| rate(0.06 * random.normal() + 0.12 * f64::from(index) / 24.0))
            .collect::<Vec<_>>()
    };
    let one_after_the_other = percent(500, |seed| {
        let runs = drifting(seed);
        is_claimed(unpaired_difference(&runs[..12], &runs[12..]).expect("there are runs"))
    });
    let in_pairs = percent(500, |seed| {
        is_claimed(of_pairs(Noise::Drift, 12, 1.0, seed))
    });
    assert!(
        one_after_the_other > 40.0 && in_pairs <= 7.5,
        "{one_after_the_other} %, {in_pairs} %"
    );
}

#[test]
fn samples_of_equals_rarely_differ() {
    for noise in [Noise::Normal, Noise::Heavy, Noise::Saturated] {
        for (a, b) in [(2, 3), (3, 3), (5, 4), (12, 12), (30, 6), (50, 50)] {
            let claimed = percent(1_000, |seed| {
                let runs = noise.runs(a + b, DEVIATION, PER_DAY, &mut Random::new(seed));
                let rates: Vec<BitRate> = runs.into_iter().map(rate).collect();
                is_claimed(unpaired_difference(&rates[..a], &rates[a..]).expect("there are runs"))
            });
            assert!(claimed <= 7.1, "{noise:?}, {a} and {b} runs: {claimed} %");
        }
    }
}

#[test]
fn an_interval_within_a_run_holds_as_often_as_documented() {
    // 200 samples that are like those before them for a 50th, a tenth and half of the run: 94, 90
    // and 61 %.
    for (alike, from, to) in [(0.8, 91.0, 96.0), (0.95, 85.0, 93.0), (0.99, 54.0, 68.0)] {
        let holds = percent(1_000, |seed| {
            let mut random = Random::new(seed);
            let mut last = random.normal();
            let mut next = || {
                last = alike * last + (1.0 - alike * alike).sqrt() * random.normal();
                BitRate::from_mbps(100).scale_by(1.0 + 0.08 * last)
            };
            let samples: Vec<BitRate> = (0..200).map(|_| next()).collect();
            let interval = within_run(&samples).expect("there are samples");
            (interval.low..=interval.high).contains(&BitRate::from_mbps(100))
        });
        assert!((from..to).contains(&holds), "{alike}: {holds} %");
    }
}

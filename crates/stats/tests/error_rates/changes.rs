//! Error rates of the changes found in simulated histories: 90 days with 4 runs a day and 8 % noise.

use crate::noise::{Noise, Random, percent, rate};
use fullpipe_stats::changes;
use fullpipe_units::{BitRate, Span, Time};

const DAYS: usize = 90;
const PER_DAY: usize = 4;
/// Few, so that it takes a second; of 400 the figures are those in the comments.
const HISTORIES: u64 = 100;

/// Returns a history; from the run `at` on, its rates are multiplied by `factor`.
fn history(noise: Noise, seed: u64, at: usize, factor: f64) -> Vec<(Time, BitRate)> {
    let mut random = Random::new(seed);
    let logs = noise.runs(DAYS * PER_DAY, 0.08, PER_DAY as f64, &mut random);
    let time = |index: usize, early: f64| {
        Time::ZERO + Span::from_secs_f64(86_400.0 * (index as f64 + 0.2 * early) / PER_DAY as f64)
    };
    let run = |(index, log): (usize, f64)| {
        (time(index, random.share()), rate(log).scaled(if index < at { 1.0 } else { factor }))
    };
    logs.into_iter().enumerate().map(run).collect()
}

/// Returns the changes that are found in a quiet history, in the mean.
fn false_changes(noise: Noise) -> f64 {
    let found = |seed| changes(&history(noise, seed, 0, 1.0)).len();
    (0..HISTORIES).map(found).sum::<usize>() as f64 / HISTORIES as f64
}

/// Returns the share of changes by −10 % that are found within three days, on days 30 to 70.
fn found(noise: Noise) -> f64 {
    percent(HISTORIES, |seed| {
        let at = PER_DAY * (30 + seed as usize % 41);
        let found = changes(&history(noise, 1_000_000 + seed, at, 0.9));
        found.iter().any(|change| change.index.abs_diff(at) <= 3 * PER_DAY)
    })
}

/// Asserts that quiet histories have at most `most_false` changes, and that `least_found` percent of them are found.
fn assert_rates(noise: Noise, most_false: f64, least_found: f64) {
    let (wrong, found) = (false_changes(noise), found(noise));
    assert!(wrong <= most_false && found >= least_found, "{noise:?}: {wrong:.3} false changes, {found:.1} % found");
}

#[test]
fn bursts_and_heavy_tails_are_no_changes() {
    assert_rates(Noise::Normal, 0.02, 95.0); // 0.000, 99 %
    assert_rates(Noise::Bursts, 0.02, 93.0); // 0.000, 97 %
    assert_rates(Noise::Heavy, 0.02, 95.0); // 0.000, 100 %
    assert_rates(Noise::Saturated, 0.02, 95.0); // 0.003, 100 %
}

#[test]
fn days_and_weeks_are_no_changes() {
    assert_rates(Noise::Week, 0.02, 93.0); // 0.000, 99 %
}

#[test]
fn drift_is_no_change() {
    assert_rates(Noise::Drift, 0.06, 92.0); // 0.015, 98 %
    assert_rates(Noise::Wave, 0.2, 85.0); // 0.087, 92 %
}

#[test]
fn runs_that_are_like_those_before_them_show_less_and_raise_no_alarm() {
    assert_rates(Noise::LongBursts, 0.1, 80.0); // 0.048, 89 %
    assert_rates(Noise::Alike, 0.03, 65.0); // 0.003, 78 %
    assert_rates(Noise::Restless, 0.03, 75.0); // 0.000, 85 %
}

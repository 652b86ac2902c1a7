//! Error rates of the changes found in simulated histories: 90 days with 4 runs a day and 8 %
//! noise, and short ones with a run a day and 4 % noise.

use crate::noise::{Noise, Random, percent, rate};
use fullpipe_stats::{detectable_change, find_level_changes};
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
        (
            time(index, random.share()),
            rate(log).scale_by(if index < at { 1.0 } else { factor }),
        )
    };
    logs.into_iter().enumerate().map(run).collect()
}

/// Returns the changes that are found in a quiet history, in the mean.
fn false_changes(noise: Noise) -> f64 {
    let found = |seed| find_level_changes(&history(noise, seed, 0, 1.0)).len();
    (0..HISTORIES).map(found).sum::<usize>() as f64 / HISTORIES as f64
}

/// Returns the share of changes by −10 % that are found within three days, on days 30 to 70.
fn found(noise: Noise) -> f64 {
    percent(HISTORIES, |seed| {
        let at = PER_DAY * (30 + seed as usize % 41);
        let found = find_level_changes(&history(noise, 1_000_000 + seed, at, 0.9));
        found
            .iter()
            .any(|change| change.index.abs_diff(at) <= 3 * PER_DAY)
    })
}

/// Asserts that quiet histories have at most `most_false` changes, and that `least_found` percent
/// of them are found.
fn assert_rates(noise: Noise, most_false: f64, least_found: f64) {
    let (wrong, found) = (false_changes(noise), found(noise));
    assert!(
        wrong <= most_false && found >= least_found,
        "{noise:?}: {wrong:.3} false changes, {found:.1} % found"
    );
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

/// Returns a history of one run a day with 4 % noise, whose rate is multiplied by a factor from
/// each of the `steps` on.
fn daily(noise: Noise, seed: u64, count: usize, steps: &[(usize, f64)]) -> Vec<(Time, BitRate)> {
    let mut random = Random::new(seed);
    let logs = noise.runs(count, 0.04, 1.0, &mut random);
    let factor = |index: usize| {
        steps
            .iter()
            .filter(|(at, _)| index >= *at)
            .map(|(_, factor)| factor)
            .product::<f64>()
    };
    let time = |index: usize, early: f64| {
        Time::ZERO + Span::from_secs_f64(86_400.0 * (index as f64 + 0.2 * early))
    };
    let run = |(index, log)| {
        (
            time(index, random.share()),
            rate(log).scale_by(factor(index)),
        )
    };
    logs.into_iter().enumerate().map(run).collect()
}

/// Returns true if `found` are changes within two runs of the places of `steps`, and no others.
fn are_at(found: &[fullpipe_stats::HistoryLevelChange], steps: &[(usize, f64)]) -> bool {
    found.len() == steps.len()
        && found
            .iter()
            .zip(steps)
            .all(|(change, (at, _))| change.index.abs_diff(*at) <= 2)
}

/// Returns the percentage of daily histories of 20 to 40 runs that show a step by 20 to 40 %, with
/// 8 runs or more on either side, where it is.
fn found_in_short(noise: Noise) -> f64 {
    percent(400, |seed| {
        let mut random = Random::new(7_000_000 + seed);
        let count = 20 + (21.0 * random.share()) as usize;
        let at = 8 + ((count - 15) as f64 * random.share()) as usize;
        let size = 0.2 + 0.2 * random.share();
        let steps = [(
            at,
            if random.happens(0.5) {
                1.0 - size
            } else {
                1.0 + size
            },
        )];
        are_at(
            &find_level_changes(&daily(noise, 8_000_000 + seed, count, &steps)),
            &steps,
        )
    })
}

#[test]
fn short_daily_histories_show_their_step() {
    assert!(
        found_in_short(Noise::Normal) >= 95.0,
        "{} %",
        found_in_short(Noise::Normal)
    ); // 99 %
    assert!(
        found_in_short(Noise::Heavy) >= 95.0,
        "{} %",
        found_in_short(Noise::Heavy)
    ); // 99 %
    assert!(
        found_in_short(Noise::Bursts) >= 90.0,
        "{} %",
        found_in_short(Noise::Bursts)
    ); // 94 %
    assert!(
        found_in_short(Noise::Alike) >= 80.0,
        "{} %",
        found_in_short(Noise::Alike)
    ); // 87 %
}

#[test]
fn daily_histories_without_a_step_show_none() {
    for noise in Noise::ALL {
        // Of 90 days, 0.002 with normal noise and 0.10 with drift by 6 % and with slow waves.
        let most = if matches!(noise, Noise::Drift | Noise::Wave) {
            0.2
        } else {
            0.1
        };
        for days in [20, 40, 90] {
            let found: usize = (0..HISTORIES)
                .map(|seed| find_level_changes(&daily(noise, 9_000_000 + seed, days, &[])).len())
                .sum();
            assert!(
                found as f64 <= most * HISTORIES as f64,
                "{noise:?}, {days} days: {found} false changes"
            );
        }
    }
}

#[test]
fn two_changes_of_a_short_history_are_found_around_outages_and_gaps() {
    for steps in [[(12, 0.7), (24, 1.43)], [(10, 0.75), (26, 0.75)]] {
        let shown = percent(100, |seed| {
            let mut runs = daily(Noise::Normal, 10_000_000 + seed, 36, &steps);
            // A day without an answer, one on which hardly anything arrived, and a week in which
            // nobody measured.
            runs[4].1 = BitRate::ZERO;
            runs[18].1 = runs[18].1.scale_by(0.1);
            runs.iter_mut()
                .skip(20)
                .for_each(|(at, _)| *at = *at + Span::from_secs(7 * 86_400));
            are_at(&find_level_changes(&runs), &steps)
        });
        assert!(shown >= 90.0, "{steps:?}: {shown} %");
    }
}

#[test]
fn the_change_that_would_have_been_found_is_found() {
    for (days, noise) in [
        (20, Noise::Normal),
        (30, Noise::Heavy),
        (40, Noise::Alike),
        (90, Noise::Bursts),
    ] {
        let shown = percent(HISTORIES, |seed| {
            let quiet = daily(noise, 11_000_000 + seed, days, &[]);
            let least = detectable_change(&quiet).expect("there are 16 runs").get();
            assert!(
                (0.03..2.0).contains(&least),
                "{noise:?}, {days} days: {least}"
            );
            let mut random = Random::new(12_000_000 + seed);
            let at = 8 + ((days - 15) as f64 * random.share()) as usize;
            let step = (
                at,
                if random.happens(0.5) {
                    1.0 / (1.0 + least)
                } else {
                    1.0 + least
                },
            );
            !find_level_changes(&daily(noise, 11_000_000 + seed, days, &[step])).is_empty()
        });
        assert!(shown >= 85.0, "{noise:?}, {days} days: {shown} %"); // 96, 90, 99, 99 %
    }
}

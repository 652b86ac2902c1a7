//! Changes in a series of runs, in words.

use std::collections::BTreeMap;

use fullpipe_record::{HistoryChange, HistoryPoint};
use fullpipe_stats::{
    HistoryLevelChange, detectable_change, find_level_changes as changes_of_level,
};
use fullpipe_units::{BitRate, Ratio, Span, Time, median};

use crate::columns::parse_nanoseconds;

/// Runs that are searched for changes, the newest: time grows with the square of their number, and
/// these take a tenth of a second.
const MAX_RUNS: usize = 3000;

/// Round-trip times without load differ if one is longer than the other by this factor.
const LONGER: f64 = 1.2;

/// Returns the changes of the rate in a series of runs that is in the order of time, or the one
/// that they would have shown; invalid runs take no part.
pub(crate) fn rate_changes(points: &[HistoryPoint]) -> (Vec<HistoryChange>, Option<Ratio>) {
    let valid: Vec<&HistoryPoint> = points.iter().filter(|point| point.valid).collect();
    let runs = &valid[valid.len().saturating_sub(MAX_RUNS)..];
    let rates: Vec<(Time, BitRate)> = runs.iter().map(|run| (point_time(run), run.rate)).collect();
    let found = changes_of_level(&rates);
    let ends: Vec<usize> = found
        .iter()
        .map(|change| change.index)
        .chain([runs.len()])
        .collect();
    let mut from = 0;
    let mut described = Vec::new();
    for (change, to) in found.iter().zip(ends.into_iter().skip(1)) {
        described.push(describe_change(
            change,
            &runs[from..change.index],
            &runs[change.index..to],
        ));
        from = change.index;
    }
    let detectable = if described.is_empty() {
        detectable_change(&rates)
    } else {
        None
    };
    (described, detectable)
}

/// Returns the time since 1970; runs from before then were not made by any of the programs.
fn point_time(run: &HistoryPoint) -> Time {
    Time::from_nanos(parse_nanoseconds(&run.started).max(0).cast_unsigned())
}

fn describe_change(
    change: &HistoryLevelChange,
    before: &[&HistoryPoint],
    after: &[&HistoryPoint],
) -> HistoryChange {
    let at = after
        .first()
        .map_or_else(String::new, |run| run.started.clone());
    let reasons = [limit_change(before, after), round_trips(before, after)]
        .into_iter()
        .flatten()
        .fold(String::new(), |text, reason| text + "; " + &reason);
    let sentence = format!(
        "Since {} about {}: {} → {}{reasons}.",
        minute_of(&at),
        change_extent(change),
        change.before,
        change.after
    );
    let difference = change.difference;
    HistoryChange {
        at,
        before: change.before,
        after: change.after,
        low: difference.low,
        high: difference.high,
        sentence,
    }
}

/// Returns a time down to its minute: `2026-03-12 10:00`.
fn minute_of(time: &str) -> String {
    let minute = time.chars().take("2026-03-12T10:00".len());
    minute.collect::<String>().replace('T', " ")
}

/// Returns the change of the rate with its interval: `31 % slower (27 to 35 %)`.
fn change_extent(change: &HistoryLevelChange) -> String {
    let difference = change.difference;
    let (word, least, greatest) = if difference.ratio.get() < 1.0 {
        ("slower", difference.high, difference.low)
    } else {
        ("faster", difference.low, difference.high)
    };
    let [middle, least, greatest] =
        [difference.ratio, least, greatest].map(|ratio| (ratio.get() - 1.0).abs() * 100.0);
    format!("{middle:.0} % {word} ({least:.0} to {greatest:.0} %, 95 %)")
}

fn limit_change(before: &[&HistoryPoint], after: &[&HistoryPoint]) -> Option<String> {
    let (before, after) = (usual_limit(before)?, usual_limit(after)?);
    (before != after).then(|| format!("the limit changed from {before} to {after}"))
}

fn round_trips(before: &[&HistoryPoint], after: &[&HistoryPoint]) -> Option<String> {
    let [before, after] = [before, after]
        .map(|runs| median::<Span>(runs.iter().filter_map(|run| run.rtt_idle).collect()));
    let (before, after) = (before?, after?);
    let differ = before.max(after) > before.min(after).scale_by(LONGER);
    differ.then(|| format!("the round trip without load changed from {before} to {after}"))
}

/// Returns the limit that most of the runs had.
pub(crate) fn usual_limit<'r>(runs: &[&'r HistoryPoint]) -> Option<&'r str> {
    let mut limits: BTreeMap<&str, usize> = BTreeMap::new();
    for limit in runs.iter().filter_map(|run| run.limit.as_deref()) {
        *limits.entry(limit).or_default() += 1;
    }
    limits
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(limit, _)| limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};

    fn series(rates: impl Iterator<Item = (u64, &'static str, u64, bool)>) -> Vec<HistoryPoint> {
        let start: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let runs = (0..)
            .zip(rates)
            .map(|(number, (mbps, limit, rtt, valid))| HistoryPoint {
                id: String::new(),
                started: (start + SignedDuration::from_hours(6 * number)).to_string(),
                rate: BitRate::from_mbps(mbps),
                rtt_idle: Some(Span::from_millis(rtt)),
                rtt_loaded: None,
                limit: Some(limit.to_owned()),
                valid,
            });
        runs.collect()
    }

    #[test]
    fn a_step_is_described_with_what_else_changed() {
        let runs = series((0..100).map(|number| match number {
            // An invalid run is none.
            50 => (1, "unknown", 1, false),
            0..60 => (610 + number % 5, "capacity/link", 20, true),
            _ => (420 + number % 5, "loss/random", 31, true),
        }));
        let (found, detectable) = rate_changes(&runs);
        let [change] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(detectable, None);
        assert_eq!(change.at, "2026-03-16T00:00:00Z");
        assert_eq!(
            change.sentence,
            "Since 2026-03-16 00:00 about 31 % slower (31 to 31 %, 95 %): 612 Mbit/s → 422 Mbit/s; the limit changed \
             from capacity/link to loss/random; the round trip without load changed from 20 ms to 31 ms."
        );
        assert!(
            change.low <= change.high && change.high.get() < 0.7,
            "{change:?}"
        );
    }

    #[test]
    fn a_series_without_a_step_has_no_change_and_says_which_one_it_would_have_shown() {
        let runs = series((0..100).map(|number| {
            (
                600 + number * 37 % 53,
                "capacity/link",
                20,
                number % 20 != 7,
            )
        }));
        let few = &runs[..16];
        let (found, detectable) = rate_changes(&runs);
        assert_eq!(found, []);
        assert!(
            detectable.is_some_and(|least| (0.03..0.1).contains(&least.get())),
            "{detectable:?}"
        );
        assert_eq!(
            (rate_changes(few), rate_changes(&[])),
            ((vec![], None), (vec![], None)),
            "one of the few is invalid"
        );
    }

    #[test]
    fn a_month_of_daily_runs_shows_the_step_in_it() {
        // After the 18th from 620 to 430 Mbit/s, and half of the runs before and after.
        for (before, all) in [(18, 30), (15, 30), (20, 30), (22, 44)] {
            let noise = |number: u64| 1000 + number * 7919 % 141 - 70;
            let level = |number: u64| if number < before { 620 } else { 430 };
            let run = |number: u64| {
                (
                    level(number) * noise(number) / 1000,
                    "capacity/link",
                    20,
                    true,
                )
            };
            let found = rate_changes(&series((0..all).map(run))).0;
            assert_eq!(found.len(), 1, "{before} of {all}: {found:?}");
        }
    }
}

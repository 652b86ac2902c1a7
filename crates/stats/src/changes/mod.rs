//! Changes of level in a history of runs.

mod course;
mod partition;
mod pattern;
mod running;
mod step;

use fullpipe_units::{BitRate, Ratio, Time, median};

use crate::changes::course::LogRateHistory;
use crate::difference::{RatioDifference, unpaired_difference};

/// A change of level in a history of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistoryLevelChange {
    /// Time of the first run after it.
    pub at: Time,
    /// Number of runs before it.
    pub index: usize,
    /// Median rate since the change before it.
    pub before: BitRate,
    /// Median rate until the change after it.
    pub after: BitRate,
    /// After ÷ before with its interval, of the nearest hundred runs on each side.
    pub difference: RatioDifference,
}

/// Runs without which no change can be distinguished from noise: 8 before it and 8 after it.
pub const MIN_RUNS_WITH_CHANGE: usize = 2 * partition::MIN_AT_END;

/// Runs on each side of a change of which the interval is taken: more narrow it little, and take
/// memory by the square.
const COMPARED: usize = 100;

/// Returns the changes of level in a history of `runs`, of which each has its time and its rate, in
/// the order of time.
///
/// The logarithms of the rates are freed of their pattern by hour (from 14 days on) and by weekday
/// (from 28 days on), and bursts are cut. What is left is divided into constant levels by optimal
/// partitioning (Jackson et al., IEEE Signal Processing Letters 12, 2005) with at least 8 runs at
/// either end, and an eighth of the runs, 8 to 20, between two changes. Of these changes the
/// weakest is dropped until each one
///
/// * is 3 % and 0.75 standard deviations of single runs or more,
/// * lies between levels that differ by √(4 ln n) standard errors or more, so that one of 200
///   histories of independent normal runs has a false change at most,
/// * stands out at the level of 1 % from a smooth course, a cubic, through both levels: slow drift
///   is no change.
///
/// The standard error is that of means around the levels that are left, of runs that may be like
/// those before them.
///
/// Of daily histories of 20 to 40 runs with 4 % noise and a step of 20 to 40 % that has 8 runs or
/// more on either side, 99 % show it where it is; of 1000 histories of 90 daily runs without one, 2
/// have a false one. With 4 runs a day for 90 days, 8 % noise with bursts, and 10 % between day and
/// night, none of 500 histories had one, and of changes by −10 % 95 % were found within three days.
/// `tests/error_rates/` has other kinds of noise. Time grows with the square of the number of runs:
/// 10 000 take a second.
pub fn find_level_changes(runs: &[(Time, BitRate)]) -> Vec<HistoryLevelChange> {
    let runs = in_order(runs);
    let Some(course) = LogRateHistory::from_runs(&runs) else {
        return Vec::new();
    };
    let mut cuts = partition::partition_levels(&course.calm, course.deviation * course.deviation);
    while let Some(weakest) = step::weakest_cut(&course, &cuts) {
        cuts.remove(weakest);
    }
    level_ends(&cuts, runs.len())
        .windows(3)
        .filter_map(|ends| level_change(&runs, [ends[0], ends[1], ends[2]]))
        .collect()
}

/// Returns the change, as a share, that [`find_level_changes`] would have found in these `runs`, in
/// which it found none, if it had 8 runs or more on either side; `None` of fewer than
/// [`MIN_RUNS_WITH_CHANGE`].
pub fn detectable_change(runs: &[(Time, BitRate)]) -> Option<Ratio> {
    LogRateHistory::from_runs(&in_order(runs)).map(|course| step::detectable_step(&course))
}

fn in_order(runs: &[(Time, BitRate)]) -> Vec<(Time, BitRate)> {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|(at, _)| *at);
    runs
}

/// Returns the places at which levels of `count` runs begin and end that change at `cuts`.
fn level_ends(cuts: &[usize], count: usize) -> Vec<usize> {
    [&[0][..], cuts, &[count]].concat()
}

fn level_change(
    runs: &[(Time, BitRate)],
    [from, cut, to]: [usize; 3],
) -> Option<HistoryLevelChange> {
    let [before, after] = [&runs[from..cut], &runs[cut..to]]
        .map(|runs| runs.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
    let difference = unpaired_difference(
        &before[before.len().saturating_sub(COMPARED)..],
        &after[..after.len().min(COMPARED)],
    )?;
    Some(HistoryLevelChange {
        at: runs[cut].0,
        index: cut,
        before: median(before)?,
        after: median(after)?,
        difference,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    fn history(rates: impl Iterator<Item = u64>) -> Vec<(Time, BitRate)> {
        let hours = |index: u64| Time::ZERO + Span::from_secs(6 * 3600) * index;
        rates
            .enumerate()
            .map(|(index, mbps)| (hours(index as u64), BitRate::from_mbps(mbps)))
            .collect()
    }

    #[test]
    fn a_step_is_found_where_it_is_and_as_large_as_it_is() {
        let runs = history((0..200).map(|index| {
            if index < 120 {
                600 + index % 7
            } else {
                420 + index % 5
            }
        }));
        let found = find_level_changes(&runs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].index, found[0].at), (120, runs[120].0));
        assert_eq!(
            (found[0].before, found[0].after),
            (BitRate::from_mbps(603), BitRate::from_mbps(422))
        );
        assert!(
            (found[0].difference.ratio.get() - 422.0 / 603.0).abs() < 0.005,
            "{found:?}"
        );
        let mut shuffled = runs;
        shuffled.reverse();
        assert_eq!(
            find_level_changes(&shuffled),
            found,
            "the order in which they are given does not matter"
        );
    }

    #[test]
    fn what_does_not_change_has_no_change() {
        assert_eq!(find_level_changes(&history((0..100).map(|_| 500))), []);
        assert_eq!(
            find_level_changes(&history((0..100).map(|_| 0))),
            [],
            "nothing arrived"
        );
        assert_eq!(
            find_level_changes(&history((0..100).map(|index| if index % 9 == 0 {
                0
            } else {
                500
            }))),
            [],
            "some failed"
        );
        assert_eq!(
            (
                find_level_changes(&history([1, 500].into_iter())),
                find_level_changes(&[])
            ),
            (vec![], vec![])
        );
    }

    #[test]
    fn too_few_runs_can_show_no_change() {
        let least =
            |runs: u64| detectable_change(&history((0..runs).map(|index| 500 + index * 70 % 90)));
        assert_eq!(least(15), None);
        assert!(
            least(16)
                .zip(least(100))
                .is_some_and(|(few, many)| few > many),
            "{:?}, {:?}",
            least(16),
            least(100)
        );
    }

    #[test]
    fn an_outage_and_its_end_are_two_changes() {
        let found = find_level_changes(&history((0..300).map(|index| {
            if (100..160).contains(&index) {
                50
            } else {
                500 + index % 9
            }
        })));
        assert_eq!(
            found.iter().map(|change| change.index).collect::<Vec<_>>(),
            [100, 160]
        );
    }
}

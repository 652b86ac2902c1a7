//! Changes of level in a history of runs.

mod course;
mod partition;
mod pattern;
mod running;
mod step;

use fullpipe_units::{BitRate, Time};

use crate::changes::course::Course;
use crate::difference::{Difference, unpaired};
use crate::order_statistics::median;

/// A change of level in a history of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Time of the first run after it.
    pub at: Time,
    /// Number of runs before it.
    pub index: usize,
    /// Median rate since the change before it.
    pub before: BitRate,
    /// Median rate until the change after it.
    pub after: BitRate,
    /// After ÷ before with its interval, of the nearest hundred runs on each side.
    pub difference: Difference,
}

/// Runs on each side of a change of which the interval is taken: more narrow it little, and take memory by the square.
const COMPARED: usize = 100;

/// Returns the changes of level in a history of `runs`, of which each has its time and its rate, in the order of time.
///
/// The logarithms of the rates are freed of their pattern by hour (from 14 days on) and by weekday (from 28 days on),
/// and bursts are cut. What is left is divided into constant levels by optimal partitioning (Jackson et al., IEEE
/// Signal Processing Letters 12, 2005): each change costs 4 ln n times the variance, and there are at least 20 runs
/// between two changes, and 8 at either end. Each change must also be 3 % and 0.75 standard deviations of single runs
/// or more, and stand out from a smooth course through both levels: slow drift is none. The variance is that of means,
/// so that runs may be like those before them.
///
/// With 4 runs a day for 90 days, 8 % noise with bursts, and 10 % between day and night, none of 400 histories without
/// a change had a false one, and of changes by −10 % 97 % were found within three days. `tests/error_rates/changes.rs`
/// has other kinds of noise. Time grows with the square of the number of runs: 10 000 take a second.
pub fn changes(runs: &[(Time, BitRate)]) -> Vec<Change> {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|(at, _)| *at);
    let Some(course) = Course::of(&runs) else { return Vec::new() };
    let mut cuts = partition::partition(&course.calm, course.variance);
    while let Some(weakest) = step::weakest(&course, &cuts) {
        cuts.remove(weakest);
    }
    let ends: Vec<usize> = [0].into_iter().chain(cuts).chain([runs.len()]).collect();
    ends.windows(3).filter_map(|ends| change(&runs, [ends[0], ends[1], ends[2]])).collect()
}

fn change(runs: &[(Time, BitRate)], [from, cut, to]: [usize; 3]) -> Option<Change> {
    let rates = |runs: &[(Time, BitRate)]| runs.iter().map(|(_, rate)| *rate).collect::<Vec<_>>();
    let (before, after) = (rates(&runs[from..cut]), rates(&runs[cut..to]));
    let difference = unpaired(&before[before.len().saturating_sub(COMPARED)..], &after[..after.len().min(COMPARED)])?;
    let middle = |rates: &[BitRate]| {
        median(&rates.iter().map(|rate| rate.as_f64()).collect::<Vec<_>>()).map(BitRate::from_bps_f64)
    };
    Some(Change { at: runs[cut].0, index: cut, before: middle(&before)?, after: middle(&after)?, difference })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    fn history(rates: impl Iterator<Item = u64>) -> Vec<(Time, BitRate)> {
        let hours = |index: u64| Time::ZERO + Span::from_secs(6 * 3600) * index;
        rates.enumerate().map(|(index, mbps)| (hours(index as u64), BitRate::from_mbps(mbps))).collect()
    }

    #[test]
    fn a_step_is_found_where_it_is_and_as_large_as_it_is() {
        let runs = history((0..200).map(|index| if index < 120 { 600 + index % 7 } else { 420 + index % 5 }));
        let found = changes(&runs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].index, found[0].at), (120, runs[120].0));
        assert_eq!((found[0].before, found[0].after), (BitRate::from_mbps(603), BitRate::from_mbps(422)));
        assert!((found[0].difference.ratio.get() - 422.0 / 603.0).abs() < 0.005, "{found:?}");
        let mut shuffled = runs;
        shuffled.reverse();
        assert_eq!(changes(&shuffled), found, "the order in which they are given does not matter");
    }

    #[test]
    fn what_does_not_change_has_no_change() {
        assert_eq!(changes(&history((0..100).map(|_| 500))), []);
        assert_eq!(changes(&history((0..100).map(|_| 0))), [], "nothing arrived");
        assert_eq!(changes(&history((0..100).map(|index| if index % 9 == 0 { 0 } else { 500 }))), [], "some failed");
        assert_eq!((changes(&history([1, 500].into_iter())), changes(&[])), (vec![], vec![]));
    }

    #[test]
    fn an_outage_and_its_end_are_two_changes() {
        let found =
            changes(&history((0..300).map(|index| if (100..160).contains(&index) { 50 } else { 500 + index % 9 })));
        assert_eq!(found.iter().map(|change| change.index).collect::<Vec<_>>(), [100, 160]);
    }
}

//! The bytes that were seen, as intervals.

use std::collections::BTreeMap;

/// Maximum number of intervals. Beyond it the lowest gap is given up: nothing fills one that so
/// many others follow.
const MAX_INTERVALS: usize = 1 << 16;

/// Intervals of which each is kept where room is short.
const KEPT: usize = 256;

/// Disjoint intervals of positions, none of which touches the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct SequenceIntervals {
    /// The highest of them. Nearly every connection has no other.
    highest: Option<[u64; 2]>,
    /// Intervals below the highest one: the end of each by its begin.
    lower: BTreeMap<u64, u64>,
    /// Bytes of gaps that were given up.
    given_up: u64,
}

/// Effect of an interval on those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AddedInterval {
    /// Bytes of it that were there before.
    pub(crate) known: u64,
    /// True if it ends at or below bytes that were there before.
    pub(crate) is_below: bool,
}

impl SequenceIntervals {
    /// Returns about the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        // A tree that grows at its end has nodes that are half full.
        self.lower.len() * 2 * size_of::<[u64; 2]>()
    }

    /// Gives up the lowest gaps until few are left.
    pub(crate) fn reduce_memory(&mut self) {
        while self.lower.len() >= KEPT {
            self.give_up_lowest();
        }
    }

    /// Adds the bytes from `start` to `end`.
    pub(crate) fn add_interval(&mut self, start: u64, end: u64) -> AddedInterval {
        match &mut self.highest {
            // Nearly every packet continues it.
            Some(highest) if highest[1] == start => {
                highest[1] = end;
                AddedInterval::default()
            }
            Some(highest) if highest[0] <= start && end <= highest[1] => AddedInterval {
                known: end - start,
                is_below: false,
            },
            Some(highest) if highest[1] > start => self.add_below(start, end),
            highest => {
                self.lower
                    .extend(highest.replace([start, end]).map(<(u64, u64)>::from));
                self.limit_gaps();
                AddedInterval::default()
            }
        }
    }

    fn add_below(&mut self, start: u64, end: u64) -> AddedInterval {
        let is_below = self.highest.is_some_and(|highest| highest[0] >= end);
        self.lower.extend(self.highest.map(<(u64, u64)>::from));
        let (mut known, mut joined) = (0, [start, end]);
        while let Some((&from, &to)) = self
            .lower
            .range(..=end)
            .next_back()
            .filter(|(_, to)| **to >= start)
        {
            known += to.min(end).saturating_sub(from.max(start));
            joined = [joined[0].min(from), joined[1].max(to)];
            self.lower.remove(&from);
        }
        self.lower.insert(joined[0], joined[1]);
        self.highest = self.lower.pop_last().map(<[u64; 2]>::from);
        self.limit_gaps();
        AddedInterval { known, is_below }
    }

    fn limit_gaps(&mut self) {
        if self.lower.len() >= MAX_INTERVALS {
            self.give_up_lowest();
        }
    }

    /// Joins the lowest two. The bytes between them count as missing for ever.
    fn give_up_lowest(&mut self) {
        let Some((start, end)) = self.lower.pop_first() else {
            return;
        };
        let joined = if let Some((next, to)) = self.lower.pop_first() {
            self.lower.insert(start, to);
            next
        } else if let Some(highest) = &mut self.highest {
            std::mem::replace(&mut highest[0], start)
        } else {
            return;
        };
        self.given_up += joined - end;
    }

    /// Returns all intervals in ascending order.
    fn iter_intervals(&self) -> impl Iterator<Item = [u64; 2]> {
        self.lower
            .iter()
            .map(|(start, end)| [*start, *end])
            .chain(self.highest)
    }

    /// Returns the number of bytes below `position` that lie above the first interval's begin and
    /// in none.
    pub(crate) fn missing_below(&self, position: u64) -> u64 {
        let Some([first, _]) = self.iter_intervals().next() else {
            return 0;
        };
        let covered: u64 = self
            .iter_intervals()
            .map(|[from, to]| to.min(position).saturating_sub(from))
            .sum();
        position
            .saturating_sub(first)
            .saturating_sub(covered.saturating_sub(self.given_up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hole_that_is_filled_is_below_and_a_repetition_is_known() {
        let mut seen = SequenceIntervals::default();
        assert_eq!(seen.add_interval(0, 10), AddedInterval::default());
        assert_eq!(seen.add_interval(20, 30), AddedInterval::default());
        assert_eq!(seen.missing_below(30), 10);
        assert_eq!(
            seen.add_interval(10, 20),
            AddedInterval {
                known: 0,
                is_below: true
            }
        );
        assert_eq!(seen.missing_below(30), 0);
        assert_eq!(
            seen.add_interval(5, 15),
            AddedInterval {
                known: 10,
                is_below: false
            }
        );
        assert_eq!(
            seen.add_interval(25, 40),
            AddedInterval {
                known: 5,
                is_below: false
            }
        );
        assert_eq!(seen.iter_intervals().collect::<Vec<_>>(), [[0, 40]]);
        assert_eq!(seen.missing_below(50), 10);
    }

    proptest! {
        #[test]
        fn the_intervals_are_those_of_a_list_of_bytes(parts in prop::collection::vec((0_u64..200, 1_u64..40), 1..60)) {
            let (mut seen, mut bytes) = (SequenceIntervals::default(), std::collections::BTreeSet::new());
            for (start, length) in parts {
                let known = (start..start + length).filter(|byte| bytes.contains(byte)).count() as u64;
                prop_assert_eq!(seen.add_interval(start, start + length).known, known);
                bytes.extend(start..start + length);
            }
            let all: Vec<[u64; 2]> = seen.iter_intervals().collect();
            let covered: u64 = all.iter().map(|[from, to]| to - from).sum();
            prop_assert_eq!(covered, bytes.len() as u64);
            prop_assert!(all.windows(2).all(|pair| pair[0][1] < pair[1][0]));
        }
    }

    #[test]
    fn thousands_of_holes_at_a_time_are_repaired_without_a_byte_that_was_known() {
        let mut seen = SequenceIntervals::default();
        for round in 0..10 {
            let begin = round * 20_000;
            (0..5_000).for_each(|index| {
                assert_eq!(
                    seen.add_interval(begin + index * 4, begin + index * 4 + 2)
                        .known,
                    0
                );
            });
            let repairs = (0..4_999)
                .map(|index| seen.add_interval(begin + index * 4 + 2, begin + index * 4 + 4));
            assert!(repairs.into_iter().all(|added| added
                == AddedInterval {
                    known: 0,
                    is_below: true
                }));
            seen.add_interval(begin + 19_998, begin + 20_000);
        }
        assert_eq!(
            (seen.iter_intervals().collect::<Vec<_>>(), seen.heap_bytes()),
            (vec![[0, 200_000]], 0)
        );
    }

    #[test]
    fn the_lowest_of_too_many_holes_are_given_up_and_stay_missing() {
        let mut seen = SequenceIntervals::default();
        let count = MAX_INTERVALS as u64 + 1_000;
        (0..count).for_each(|index| _ = seen.add_interval(index * 3, index * 3 + 1));
        assert_eq!(seen.iter_intervals().count(), MAX_INTERVALS);
        assert_eq!(seen.missing_below(u64::MAX / 2), u64::MAX / 2 - count);
        // A hole among the others is filled.
        assert_eq!(
            seen.add_interval(count * 3 - 5, count * 3 - 3),
            AddedInterval {
                known: 0,
                is_below: true
            }
        );
        seen.reduce_memory();
        assert_eq!(
            (
                seen.iter_intervals().count(),
                seen.missing_below(count * 3 - 2)
            ),
            (KEPT, (count - 1) * 2 - 2)
        );
        assert_eq!(
            seen.add_interval(count * 3 - 10, count * 3 - 8).known,
            1,
            "the last ones stay"
        );
    }
}

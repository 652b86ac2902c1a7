//! The bytes that were seen, as intervals.

/// Maximum number of intervals. Beyond it those with the smallest gap between them are joined.
const MAX_INTERVALS: usize = 256;

/// Disjoint intervals of positions in ascending order, none of which touches the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals {
    all: Vec<[u64; 2]>,
}

/// Effect of an interval on those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Added {
    /// Bytes of it that were there before.
    pub(crate) known: u64,
    /// True if it ends at or below bytes that were there before.
    pub(crate) is_below: bool,
}

impl Intervals {
    /// Returns the bytes that they take.
    pub(crate) fn room(&self) -> usize {
        self.all.capacity() * size_of::<[u64; 2]>()
    }

    /// Adds the bytes from `start` to `end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) -> Added {
        match self.all.last_mut() {
            // Nearly every packet continues the last one.
            Some(last) if last[1] == start => {
                last[1] = end;
                Added::default()
            }
            Some(last) if last[1] > start => self.add_below(start, end),
            _ => {
                self.all.push([start, end]);
                self.bound();
                Added::default()
            }
        }
    }

    fn add_below(&mut self, start: u64, end: u64) -> Added {
        let first = self.all.partition_point(|interval| interval[1] < start);
        let after = self.all.partition_point(|interval| interval[0] <= end);
        let is_below = self.all.last().is_some_and(|last| last[0] >= end);
        let touched = &self.all[first..after];
        let known = touched.iter().map(|[from, to]| (*to).min(end).saturating_sub((*from).max(start))).sum();
        let joined =
            touched.iter().fold([start, end], |[from, to], interval| [from.min(interval[0]), to.max(interval[1])]);
        self.all.splice(first..after, [joined]);
        self.bound();
        Added { known, is_below }
    }

    fn bound(&mut self) {
        if self.all.len() > MAX_INTERVALS {
            let gap = |index: &usize| self.all[index + 1][0] - self.all[*index][1];
            if let Some(index) = (0..self.all.len() - 1).min_by_key(gap) {
                self.all[index][1] = self.all[index + 1][1];
                self.all.remove(index + 1);
            }
        }
    }

    /// Returns the number of bytes below `position` that lie above the first interval's begin and in none.
    pub(crate) fn missing_below(&self, position: u64) -> u64 {
        let Some(first) = self.all.first() else { return 0 };
        let covered: u64 = self.all.iter().map(|[from, to]| (*to).min(position).saturating_sub(*from)).sum();
        position.saturating_sub(first[0]).saturating_sub(covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hole_that_is_filled_is_below_and_a_repetition_is_known() {
        let mut seen = Intervals::default();
        assert_eq!(seen.add(0, 10), Added::default());
        assert_eq!(seen.add(20, 30), Added::default());
        assert_eq!(seen.missing_below(30), 10);
        assert_eq!(seen.add(10, 20), Added { known: 0, is_below: true });
        assert_eq!(seen.missing_below(30), 0);
        assert_eq!(seen.add(5, 15), Added { known: 10, is_below: false });
        assert_eq!(seen.add(25, 40), Added { known: 5, is_below: false });
        assert_eq!(seen.all, [[0, 40]]);
        assert_eq!(seen.missing_below(50), 10);
    }

    proptest! {
        #[test]
        fn the_intervals_are_those_of_a_list_of_bytes(parts in prop::collection::vec((0_u64..200, 1_u64..40), 1..60)) {
            let (mut seen, mut bytes) = (Intervals::default(), std::collections::BTreeSet::new());
            for (start, length) in parts {
                let known = (start..start + length).filter(|byte| bytes.contains(byte)).count() as u64;
                prop_assert_eq!(seen.add(start, start + length).known, known);
                bytes.extend(start..start + length);
            }
            let covered: u64 = seen.all.iter().map(|[from, to]| to - from).sum();
            prop_assert_eq!(covered, bytes.len() as u64);
            prop_assert!(seen.all.windows(2).all(|pair| pair[0][1] < pair[1][0]));
        }

        #[test]
        fn any_number_of_holes_is_kept_in_bounds(starts in prop::collection::vec(0_u64..1_000_000, 1..2000)) {
            let mut seen = Intervals::default();
            for start in starts {
                seen.add(start * 3, start * 3 + 1);
            }
            prop_assert!(seen.all.len() <= MAX_INTERVALS);
        }
    }
}

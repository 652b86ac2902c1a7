//! The bytes that were seen, as intervals.

/// Maximum number of intervals. Beyond it those with the smallest gap between them are joined.
const MAX_INTERVALS: usize = 256;

/// Disjoint intervals of positions in ascending order, none of which touches the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals {
    /// The highest of them. Nearly every connection has no other.
    highest: Option<[u64; 2]>,
    /// Those below it.
    lower: Vec<[u64; 2]>,
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
        self.lower.capacity() * size_of::<[u64; 2]>()
    }

    /// Adds the bytes from `start` to `end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) -> Added {
        match &mut self.highest {
            // Nearly every packet continues it.
            Some(highest) if highest[1] == start => {
                highest[1] = end;
                Added::default()
            }
            Some(highest) if highest[1] > start => self.add_below(start, end),
            highest => {
                self.lower.extend(highest.replace([start, end]));
                self.bound();
                Added::default()
            }
        }
    }

    fn add_below(&mut self, start: u64, end: u64) -> Added {
        let is_below = self.highest.is_some_and(|highest| highest[0] >= end);
        self.lower.extend(self.highest);
        let first = self.lower.partition_point(|interval| interval[1] < start);
        let after = self.lower.partition_point(|interval| interval[0] <= end);
        let touched = &self.lower[first..after];
        let known = touched.iter().map(|[from, to]| (*to).min(end).saturating_sub((*from).max(start))).sum();
        let joined =
            touched.iter().fold([start, end], |[from, to], interval| [from.min(interval[0]), to.max(interval[1])]);
        self.lower.splice(first..after, [joined]);
        self.highest = self.lower.pop();
        self.bound();
        Added { known, is_below }
    }

    fn bound(&mut self) {
        if self.lower.len() >= MAX_INTERVALS {
            let next = |index: usize| self.lower.get(index + 1).or(self.highest.as_ref()).copied();
            let gap = |index: &usize| next(*index).map(|next| next[0] - self.lower[*index][1]);
            let Some(index) = (0..self.lower.len()).min_by_key(gap) else { return };
            let [start, _] = self.lower.remove(index);
            if let Some(joined) = self.lower.get_mut(index).or(self.highest.as_mut()) {
                joined[0] = start;
            }
        }
    }

    /// Returns them all.
    fn all(&self) -> impl Iterator<Item = &[u64; 2]> {
        self.lower.iter().chain(&self.highest)
    }

    /// Returns the number of bytes below `position` that lie above the first interval's begin and in none.
    pub(crate) fn missing_below(&self, position: u64) -> u64 {
        let Some(first) = self.all().next() else { return 0 };
        let covered: u64 = self.all().map(|[from, to]| (*to).min(position).saturating_sub(*from)).sum();
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
        assert_eq!(seen.all().collect::<Vec<_>>(), [&[0, 40]]);
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
            let all: Vec<[u64; 2]> = seen.all().copied().collect();
            let covered: u64 = all.iter().map(|[from, to]| to - from).sum();
            prop_assert_eq!(covered, bytes.len() as u64);
            prop_assert!(all.windows(2).all(|pair| pair[0][1] < pair[1][0]));
        }

        #[test]
        fn any_number_of_holes_is_kept_in_bounds(starts in prop::collection::vec(0_u64..1_000_000, 1..2000)) {
            let mut seen = Intervals::default();
            for start in starts {
                seen.add(start * 3, start * 3 + 1);
            }
            prop_assert!(seen.all().count() <= MAX_INTERVALS);
        }
    }
}

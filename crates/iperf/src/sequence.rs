//! Record of the datagrams of a stream that have arrived.

use std::collections::VecDeque;

use fullpipe_record::Datagrams;

/// Numbers below the highest of which it is known whether they have arrived.
const WINDOW: u64 = 65_536;

/// Bits of a word of the map.
const WORD: u64 = 64;

/// Words of the map.
const WORDS: usize = (WINDOW / WORD) as usize;

/// Runs that are kept; each is broken by a loss or a datagram out of order. With more of them
/// within the window, an extent is counted from the oldest that is left, and reported too small.
const MAX_RUNS: usize = 4096;

/// Counts the numbered datagrams of a stream as they arrive. They are numbered from 1, in steps of
/// one.
///
/// Takes the same memory whatever numbers come, at most 120 KB, and as good as the same time.
#[derive(Debug, Clone)]
pub struct SequenceCounter {
    /// True if numbers have 64 bits; those of 32 begin anew at 2³².
    wide: bool,
    highest: u64,
    /// A bit for each number within the window, at its place modulo the window.
    seen: Box<[u64]>,
    /// Arrivals that were the highest so far, and one above the other: oldest first.
    runs: VecDeque<InOrderRun>,
    counts: Datagrams,
}

/// Datagrams that arrived in order, without a gap, each the highest so far.
#[derive(Debug, Clone, Copy)]
struct InOrderRun {
    /// Number of the first.
    first: u64,
    /// Number of the last.
    last: u64,
    /// Number of different ones that had arrived before the first.
    position: u64,
}

impl SequenceCounter {
    /// Returns the counts of a stream of which nothing has arrived; its numbers have 64 bits if
    /// `wide`, 32 otherwise.
    pub fn new(wide: bool) -> Self {
        let seen = vec![0; WORDS].into();
        Self {
            wide,
            highest: 0,
            seen,
            runs: VecDeque::new(),
            counts: Datagrams::default(),
        }
    }

    /// Notes that a datagram with this number on it has arrived.
    pub fn record_datagram(&mut self, number: u64) {
        // What would be below zero is as late as can be.
        let number = if self.wide {
            number
        } else {
            widen_number(low_half(number), self.highest).unwrap_or(0)
        };
        if number > self.highest {
            self.in_front(number);
        } else {
            self.record_late(number);
        }
    }

    /// Returns the counts of the datagrams so far, but for figures that need a clock or the kernel.
    pub fn datagram_counts(&self) -> Datagrams {
        Datagrams {
            lost: self.highest.saturating_sub(self.counts.received),
            ..self.counts
        }
    }

    fn in_front(&mut self, number: u64) {
        let skipped = number - self.highest - 1;
        self.counts.lost_like_iperf3 = self.counts.lost_like_iperf3.saturating_add(skipped);
        self.clear_skipped(skipped);
        self.extend_runs(number);
        self.highest = number;
        self.mark_seen(number);
        self.counts.received += 1;
    }

    fn record_late(&mut self, number: u64) {
        self.counts.out_of_order_like_iperf3 += 1;
        self.counts.lost_like_iperf3 = self.counts.lost_like_iperf3.saturating_sub(1);
        if number == 0 || self.highest - number >= WINDOW {
            self.counts.late += 1;
        } else if self.is_marked(number) {
            self.counts.duplicated += 1;
        } else {
            self.counts.reordered += 1;
            self.counts.reordering_extent = self
                .counts
                .reordering_extent
                .max(self.reordering_extent(number));
            self.mark_seen(number);
            self.counts.received += 1;
        }
    }

    /// Returns the reordering extent of `number`, which arrives late: the number of different
    /// datagrams since the first with a higher number came. That one was the highest so far, and so
    /// begins a run.
    fn reordering_extent(&self, number: u64) -> u64 {
        let later = self.runs.partition_point(|run| run.first < number);
        self.runs
            .get(later)
            .map_or(0, |run| self.counts.received - run.position)
    }

    /// Adds the new highest `number`, the next to arrive, to the last run or a new one.
    fn extend_runs(&mut self, number: u64) {
        let position = self.counts.received;
        match self.runs.back_mut() {
            Some(run)
                if run.last + 1 == number && run.position + (number - run.first) == position =>
            {
                run.last = number;
            }
            _ => {
                if self.runs.len() == MAX_RUNS {
                    self.runs.pop_front();
                }
                self.runs.push_back(InOrderRun {
                    first: number,
                    last: number,
                    position,
                });
            }
        }
    }

    /// Empties the places of the `skipped` numbers above the highest, which held older ones.
    fn clear_skipped(&mut self, skipped: u64) {
        if skipped >= WINDOW {
            self.seen.fill(0);
            return;
        }
        let (mut number, end) = (self.highest + 1, self.highest + 1 + skipped);
        while number < end {
            let (word, bit) = bit_position(number);
            let length = (WORD - bit).min(end - number);
            self.seen[word] &= !(u64::MAX >> (WORD - length) << bit);
            number += length;
        }
    }

    fn mark_seen(&mut self, number: u64) {
        let (word, bit) = bit_position(number);
        self.seen[word] |= 1 << bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = bit_position(number);
        self.seen[word] >> bit & 1 == 1
    }
}

/// The word and the bit of a number.
fn bit_position(number: u64) -> (usize, u64) {
    ((number % WINDOW / WORD) as usize, number % WORD)
}

/// The number nearest to `highest` that has these last 32 bits; none where that would be below
/// zero.
fn widen_number(low: u32, highest: u64) -> Option<u64> {
    let ahead = low.wrapping_sub(low_half(highest)).cast_signed();
    highest.checked_add_signed(ahead.into())
}

const fn low_half(number: u64) -> u32 {
    (number & 0xFFFF_FFFF) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(wide: bool, numbers: impl IntoIterator<Item = u64>) -> Datagrams {
        let mut sequence = SequenceCounter::new(wide);
        numbers
            .into_iter()
            .for_each(|number| sequence.record_datagram(number));
        sequence.datagram_counts()
    }

    #[test]
    fn each_kind_of_disorder_is_distinguished_from_the_others() {
        let numbers = [1, 2, 2, 5, 3, 6, 2, 10, 9, 8];
        let expected = Datagrams {
            received: 8,
            lost: 2,
            duplicated: 2,
            reordered: 3,
            reordering_extent: 2,
            lost_like_iperf3: 1,
            out_of_order_like_iperf3: 5,
            ..Datagrams::default()
        };
        assert_eq!(counts(true, numbers), expected);
        assert_eq!(counts(false, numbers), expected);
    }

    #[test]
    fn an_extent_reaches_back_to_the_first_that_was_later() {
        let extent = |numbers: &[u64]| counts(true, numbers.iter().copied()).reordering_extent;
        assert_eq!(extent(&[1, 2, 3, 5, 4, 6]), 1);
        assert_eq!(extent(&[1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11]), 6);
        assert_eq!(extent(&[1, 2, 3, 7, 8, 4, 9, 5, 10, 6]), 6);
        assert_eq!(extent(&[1, 2, 3, 4]), 0);
    }

    #[test]
    fn duplicates_hide_losses_only_where_iperf3_counts() {
        let found = counts(true, [1, 2, 2, 2, 5, 5]);
        assert_eq!((found.lost, found.duplicated), (2, 3));
        assert_eq!(
            (found.lost_like_iperf3, found.out_of_order_like_iperf3),
            (1, 3)
        );
    }

    #[test]
    fn numbers_of_32_bits_go_on_beyond_their_end() {
        let end = 1 << 32;
        // Up to shortly before the end in steps that 32 bits can distinguish from steps back.
        let ascent = [1, 1 << 30, 1 << 31, 3 << 30, end - 70_000];
        let around =
            (end - 69_999..end + 70_000).filter(|number| *number != end && *number != end + 5);
        let found = counts(
            false,
            ascent
                .into_iter()
                .chain(around)
                .chain([end + 5])
                .map(|number| number % end),
        );
        let (received, highest) = (5 + 139_999 - 2, end + 69_999);
        let expected = Datagrams {
            received,
            lost: highest - received,
            late: 1,
            lost_like_iperf3: highest - received - 1,
            out_of_order_like_iperf3: 1,
            ..Datagrams::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sender_of_more_than_32_bits_of_datagrams_loses_none() {
        let mut sequence = SequenceCounter::new(false);
        sequence.highest = (1 << 32) - 1_000;
        sequence.counts.received = sequence.highest;
        for number in sequence.highest + 1..sequence.highest + 200_001 {
            sequence.record_datagram(number & 0xffff_ffff);
        }
        let expected = Datagrams {
            received: (1 << 32) + 199_000,
            ..Datagrams::default()
        };
        assert_eq!(sequence.datagram_counts(), expected);
    }

    #[test]
    fn hostile_numbers_cost_no_memory() {
        let mut sequence = SequenceCounter::new(true);
        for round in 0..100_000_u64 {
            sequence.record_datagram((1 << 63) + round * 65_000);
            sequence.record_datagram(round);
            sequence.record_datagram(0);
        }
        sequence.record_datagram(u64::MAX);
        sequence.record_datagram(u64::MAX);
        let found = sequence.datagram_counts();
        assert_eq!(
            (found.received, found.late, found.duplicated),
            (100_001, 200_000, 1)
        );
        assert_eq!(found.lost, u64::MAX - 100_001);
        assert!(sequence.runs.len() <= MAX_RUNS);
    }

    #[test]
    fn what_is_behind_the_window_is_late() {
        let late = |number| counts(true, [1, WINDOW + 10, number]).late;
        assert_eq!((late(10), late(11)), (1, 0));
    }

    /// The definitions, word by word, at any cost of memory and time.
    fn by_definition(numbers: &[u64]) -> Datagrams {
        let mut firsts: Vec<u64> = Vec::new();
        let mut found = Datagrams::default();
        let mut highest = 0;
        for &number in numbers {
            if number > highest {
                found.lost_like_iperf3 += number - highest - 1;
            } else {
                found.lost_like_iperf3 = found.lost_like_iperf3.saturating_sub(1);
                found.out_of_order_like_iperf3 += 1;
            }
            if number == 0 || number + WINDOW <= highest {
                found.late += 1;
            } else if firsts.contains(&number) {
                found.duplicated += 1;
            } else {
                if let Some(later) = firsts.iter().position(|first| *first > number) {
                    found.reordered += 1;
                    found.reordering_extent =
                        found.reordering_extent.max((firsts.len() - later) as u64);
                }
                firsts.push(number);
            }
            highest = highest.max(number);
        }
        Datagrams {
            received: firsts.len() as u64,
            lost: highest - firsts.len() as u64,
            ..found
        }
    }

    /// Numbers as a bad network gives them: steps from the highest so far.
    fn disorder() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            6 => Just(1_i64),
            3 => -20_i64..20,
            1 => -200_i64..200,
            1 => -70_000_i64..70_000,
            1 => -65_540_i64..-65_530,
            1 => 65_530_i64..65_540,
        ];
        proptest::collection::vec(step, 0..150).prop_map(|steps| {
            let mut highest = 0_u64;
            let number = |step| {
                let number = highest.saturating_add_signed(step);
                highest = highest.max(number);
                number
            };
            steps.into_iter().map(number).collect()
        })
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_definitions(numbers in disorder()) {
            prop_assert_eq!(counts(true, numbers.iter().copied()), by_definition(&numbers));
        }

        #[test]
        fn both_widths_count_alike(numbers in disorder()) {
            prop_assert_eq!(counts(true, numbers.iter().copied()), counts(false, numbers.iter().copied()));
        }

        #[test]
        fn every_arrival_is_counted_once(numbers in proptest::collection::vec(any::<u64>(), 0..200), wide: bool) {
            let found = counts(wide, numbers.iter().copied());
            prop_assert_eq!(found.received + found.duplicated + found.late, numbers.len() as u64);
        }
    }
}

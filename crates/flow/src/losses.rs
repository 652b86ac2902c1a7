//! Data that passed one of two captures and not the other.

use fullpipe_record::{FlowEnd, LossCourse};
use fullpipe_units::{ByteCount, Span, Time};

use crate::passages::ComparedPassages;

/// Number of equal times in the course of losses.
const LOSS_BINS: usize = 40;

/// The losses of one direction between the capture near its sender and the other.
///
/// A packet counts as lost if it passed the nearer capture, did not pass the other, and must have
/// passed that while it lasted. What was under way when the other capture began or ended is left
/// out.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathLosses {
    pub(crate) lost: ByteCount,
    /// Data that passed the nearer capture and must have passed the other while that lasted, unless
    /// it was lost.
    pub(crate) compared: ByteCount,
    /// Lost bytes by the time at which they passed the nearer capture.
    by_time: Vec<(Time, u64)>,
}

impl PathLosses {
    /// Returns the losses if both captures hold all of the data, in the capture near the sender and
    /// in the other.
    pub(crate) fn from_totals([near, far]: [&FlowEnd; 2]) -> Self {
        // What was acknowledged arrived, whether it was captured or not.
        let lost = (near.bytes + near.missing_bytes).saturating_sub(far.bytes + far.missing_bytes);
        Self {
            lost,
            compared: near.bytes,
            by_time: Vec::new(),
        }
    }

    /// Returns the losses of `data`, where each capture lasted from the first to the second time of
    /// its own clock.
    pub(crate) fn from_cells(
        ends: [&FlowEnd; 2],
        data: Option<ComparedPassages<'_>>,
        captured: [[Time; 2]; 2],
    ) -> Self {
        let Some(data) = data else {
            return Self::default();
        };
        let is_reordered = ends[1].reordered_packets > ends[0].reordered_packets;
        let mut times: Vec<[Time; 2]> = data.packet_times().chain(data.end_times()).collect();
        leave_out_later_copies(&mut times, 0, captured[0][1]);
        let pairs: Vec<[i128; 2]> = times.into_iter().map(|times| times.map(nanos_of)).collect();
        let turned: Vec<[i128; 2]> = pairs.iter().map(|[near, far]| [*far, *near]).collect();
        let certain = CertainTimes::from_pairs(pairs, captured[1].map(nanos_of), is_reordered);
        let turned = CertainTimes::from_pairs(turned, captured[0].map(nanos_of), is_reordered);
        let (Some(certain), Some(turned)) = (certain, turned) else {
            return Self::default();
        };
        let [near, far] = data.data_spans().map(|span| span.map(nanos_of));
        if certain.contains_times(near, data.has_syn())
            && turned.contains_times(far, data.has_syn())
        {
            return Self {
                by_time: data
                    .iter_cells()
                    .map(|cell| (cell.near_times()[0], cell.passed_bytes()[1]))
                    .collect(),
                ..Self::from_totals(ends)
            };
        }
        let mut losses = Self::default();
        for cell in data.iter_cells() {
            if certain.contains_times(cell.near_times().map(nanos_of), false) {
                let [passed, lost] = cell.passed_bytes();
                losses.compared += ByteCount::new(passed);
                losses.lost += ByteCount::new(lost);
                losses.by_time.push((cell.near_times()[0], lost));
            }
        }
        losses.lost = losses.lost.saturating_sub(ends[1].missing_bytes);
        losses
    }
}

/// Leaves out the times of packets that passed one of two captures so late that the other, at index
/// `ended`, may have ended before: what passed that may have been lost, and what came may be a
/// later copy.
pub(crate) fn leave_out_later_copies(times: &mut Vec<[Time; 2]>, ended: usize, end: Time) {
    let delays = times
        .iter()
        .map(|times| nanos_ahead([times[ended], times[1 - ended]]));
    let least = delays.min().unwrap_or_default();
    times.retain(|times| nanos_of(times[1 - ended]) <= nanos_of(end) + least);
}

/// Times of one capture between which all that passed it also passed the other one while that
/// lasted, unless it was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CertainTimes {
    from: i128,
    to: i128,
}

impl CertainTimes {
    /// Returns the certain times by those at which packets passed both captures, of which the
    /// `other` lasted from the first to the second time of its own clock. `None` without any.
    ///
    /// Two rules hold, each alone: what passed between two packets that passed both did so, too,
    /// but for those that overtook others; and all packets take times between the least and the
    /// most that were seen, clocks included.
    fn from_pairs(mut pairs: Vec<[i128; 2]>, other: [i128; 2], is_reordered: bool) -> Option<Self> {
        let [first, last] = value_range(pairs.iter().map(|[one, _]| *one))?;
        let [least, most] = value_range(pairs.iter().map(|[one, other]| other - one))?;
        pairs.sort_unstable();
        let overtook = is_reordered || !pairs.is_sorted_by_key(|[_, other]| *other);
        // No packet overtakes another one by more than their delays differ.
        let overtaken = if overtook { most - least } else { 0 };
        Some(Self {
            from: (first + overtaken).min(other[0] - least),
            to: (last - overtaken).max(other[1] - most),
        })
    }

    /// Returns true if everything in a time lies within it; at the begin, also where that
    /// `has_begin` is known.
    fn contains_times(self, [first, last]: [i128; 2], has_begin: bool) -> bool {
        (has_begin || self.from <= first) && last <= self.to
    }
}

/// Returns the least and the most of `values`; `None` without any.
fn value_range<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<[T; 2]> {
    values
        .map(|value| [value; 2])
        .reduce(|[least, most], [value, _]| [least.min(value), most.max(value)])
}

fn nanos_of(time: Time) -> i128 {
    time.as_nanos().into()
}

/// Returns the nanoseconds by which the second time is ahead of the first.
pub(crate) fn nanos_ahead([one, other]: [Time; 2]) -> i128 {
    nanos_of(other) - nanos_of(one)
}

/// Returns losses over time; `None` without any.
pub(crate) fn loss_course(losses: &PathLosses) -> Option<LossCourse> {
    let times = losses.by_time.iter().map(|(at, _)| *at);
    let [begin, end] = value_range(times).filter(|_| losses.lost > ByteCount::ZERO)?;
    let width = Span::from_nanos(end.duration_since(begin).as_nanos() / LOSS_BINS as u64 + 1);
    let mut lost = vec![ByteCount::ZERO; LOSS_BINS];
    for (at, bytes) in &losses.by_time {
        lost[(at.duration_since(begin).as_nanos() / width.as_nanos()) as usize] +=
            ByteCount::new(*bytes);
    }
    Some(LossCourse { width, lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that pass the first capture each millisecond, and the second one this many later.
    fn pairs(delays: impl Fn(i128) -> i128) -> Vec<[i128; 2]> {
        (0..100).map(|at| [at, at + delays(at)]).collect()
    }

    #[test]
    fn in_a_queue_that_grows_what_passed_before_a_packet_that_arrived_is_certain() {
        // The second capture ended when the last of them arrived: the most delay alone would say at
        // zero.
        let growing = CertainTimes::from_pairs(pairs(|at| at), [0, 198], false).unwrap();
        assert_eq!(growing, CertainTimes { from: 0, to: 99 });
        let shrinking =
            CertainTimes::from_pairs(pairs(|at| 99 - at / 2), [99, 149], false).unwrap();
        assert_eq!((shrinking.from, shrinking.to), (0, 99));
    }

    #[test]
    fn long_after_all_delays_everything_is_certain_and_packets_that_overtake_make_less_so() {
        assert_eq!(
            CertainTimes::from_pairs(pairs(|_| 10), [-50, 1_000], false).unwrap(),
            CertainTimes { from: -60, to: 990 }
        );
        let overtaking =
            CertainTimes::from_pairs(pairs(|at| 10 + at % 2 * 5), [10, 109], false).unwrap();
        assert_eq!(overtaking, CertainTimes { from: 0, to: 94 });
        let known = CertainTimes::from_pairs(pairs(|at| 10 + at / 20), [10, 113], true).unwrap();
        assert_eq!((known.from, known.to), (0, 99), "by the delays alone");
        assert_eq!(CertainTimes::from_pairs(Vec::new(), [0, 9], false), None);
    }
}

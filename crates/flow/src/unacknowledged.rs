//! Data on its way, and the round-trip times that its acknowledgements give.

use std::collections::VecDeque;

use fullpipe_units::{Span, Time};

/// Maximum number of segments on the way that are kept. Beyond it the oldest gives no round-trip
/// time.
const MAX_SEGMENTS: usize = 65_536;

/// Segments that one of before may hold, or that move for one that came late: the longest train
/// (BIG TCP) has fewer.
const MAX_AT_ONCE: usize = 512;

#[derive(Debug, Clone, Copy)]
struct UnacknowledgedSegment {
    end: u64,
    at: Time,
    /// Set if some of its bytes were sent more than once: their acknowledgement shows nothing (Karn
    /// and Partridge, 1987).
    is_ambiguous: bool,
}

impl UnacknowledgedSegment {
    /// Takes note that some of its bytes were retransmitted.
    fn mark_repeated(&mut self, at: Time) {
        (self.at, self.is_ambiguous) = (at, true);
    }
}

/// Segments that are not acknowledged yet, in order of their bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnacknowledgedSegments {
    segments: VecDeque<UnacknowledgedSegment>,
    /// All below this position count as ambiguous, since a segment held more than [`MAX_AT_ONCE`]
    /// of before.
    ambiguous_below: u64,
}

impl UnacknowledgedSegments {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<UnacknowledgedSegment>()
    }

    /// Forgets all but the newest segments, as if the others gave no round-trip time.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 4;
        self.segments
            .drain(..self.segments.len().saturating_sub(KEPT));
        self.segments.shrink_to_fit();
    }

    /// Takes note of a segment from `start` to `end`; `repeats` where some of its bytes were seen
    /// before.
    pub(crate) fn record_sent_segment(&mut self, [start, end]: [u64; 2], at: Time, repeats: bool) {
        let sent = UnacknowledgedSegment {
            end,
            at,
            is_ambiguous: repeats,
        };
        match self.segments.back() {
            Some(last) if last.end >= end => {
                let index = self.segments.partition_point(|segment| segment.end < end);
                let moved = index.min(self.segments.len() - index);
                match self.segments.get_mut(index) {
                    Some(same) if same.end == end || repeats || moved > MAX_AT_ONCE => {
                        same.mark_repeated(at);
                    }
                    _ => self.segments.insert(index, sent),
                }
                if repeats {
                    self.repeat_within([start, end], index, at);
                }
            }
            _ => self.segments.push_back(sent),
        }
        if self.segments.len() > MAX_SEGMENTS {
            self.segments.pop_front();
        }
    }

    /// Takes note of the repetition from `start` to `end` of segments before the one at `index`.
    fn repeat_within(&mut self, [start, end]: [u64; 2], index: usize, at: Time) {
        let nearest = index.saturating_sub(MAX_AT_ONCE);
        if nearest > 0
            && self
                .segments
                .get(nearest - 1)
                .is_some_and(|segment| segment.end > start)
        {
            self.ambiguous_below = self.ambiguous_below.max(end);
        }
        let near = self.segments.range_mut(nearest..index).rev();
        near.take_while(|segment| segment.end > start)
            .for_each(|segment| segment.mark_repeated(at));
    }

    /// Takes note of an acknowledgement of everything below `position`. Returns the round-trip time
    /// of the acknowledgement where it is sure: for the segment that ends there, unless it or one
    /// below it was retransmitted.
    pub(crate) fn record_acknowledgement(&mut self, position: u64, at: Time) -> Option<Span> {
        let mut latest_below = Time::ZERO;
        let mut last: Option<UnacknowledgedSegment> = None;
        while let Some(segment) = self
            .segments
            .front()
            .filter(|segment| segment.end <= position)
        {
            latest_below = latest_below.max(last.map_or(Time::ZERO, |last| last.at));
            last = Some(*segment);
            self.segments.pop_front();
        }
        let last = last.filter(|last| {
            last.end == position
                && !last.is_ambiguous
                && last.end > self.ambiguous_below
                && last.at >= latest_below
        })?;
        Some(at.duration_since(last.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn only_the_segment_that_an_acknowledgement_ends_is_measured() {
        let mut sent = UnacknowledgedSegments::default();
        sent.record_sent_segment([0, 100], at(0), false);
        sent.record_sent_segment([100, 200], at(1), false);
        assert_eq!(
            sent.record_acknowledgement(200, at(41)),
            Some(Span::from_millis(40))
        );
        sent.record_sent_segment([200, 300], at(50), false);
        assert_eq!(sent.record_acknowledgement(250, at(60)), None);
        assert_eq!(
            sent.record_acknowledgement(300, at(90)),
            Some(Span::from_millis(40))
        );
    }

    #[test]
    fn nothing_is_measured_after_a_repetition_below() {
        let mut sent = UnacknowledgedSegments::default();
        sent.record_sent_segment([0, 100], at(0), false);
        sent.record_sent_segment([100, 200], at(1), false);
        sent.record_sent_segment([0, 100], at(50), true);
        assert_eq!(sent.record_acknowledgement(200, at(90)), None);
        sent.record_sent_segment([200, 300], at(100), false);
        sent.record_sent_segment([200, 300], at(150), true);
        assert_eq!(sent.record_acknowledgement(300, at(190)), None);
    }

    #[test]
    fn a_repetition_of_all_that_is_on_its_way_takes_no_longer_and_leaves_nothing_to_measure() {
        // Each would take a step a segment: minutes in all.
        let mut sent = UnacknowledgedSegments::default();
        let count = MAX_SEGMENTS as u64;
        (0..count).for_each(|index| {
            sent.record_sent_segment([index * 2, index * 2 + 1], at(index), false);
        });
        (0..200_000).for_each(|index| {
            sent.record_sent_segment([0, count * 2 - 1], at(count + index), true);
        });
        // What comes late in the middle would move half of them.
        (0..200_000).for_each(|index| {
            sent.record_sent_segment(
                [count + index % 9, count + index % 9 + 1],
                at(count + index),
                false,
            );
        });
        assert!(sent.segments.len() <= MAX_SEGMENTS);
        assert_eq!(
            (1..50).find_map(|index| sent.record_acknowledgement(index * 2 + 1, at(1 << 30))),
            None
        );
        sent.record_sent_segment([count * 2, count * 2 + 1], at(1 << 20), false);
        assert_eq!(
            sent.record_acknowledgement(count * 2 + 1, at((1 << 20) + 7)),
            Some(Span::from_millis(7))
        );
    }

    #[test]
    fn a_repetition_of_several_segments_at_once_leaves_none_of_them_to_measure() {
        let mut sent = UnacknowledgedSegments::default();
        sent.record_sent_segment([0, 100], at(0), false);
        sent.record_sent_segment([100, 200], at(1), false);
        sent.record_sent_segment([0, 200], at(50), true);
        assert_eq!(sent.record_acknowledgement(100, at(90)), None);
        assert_eq!(sent.record_acknowledgement(200, at(90)), None);
    }
}

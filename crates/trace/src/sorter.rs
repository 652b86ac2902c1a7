//! Segments in the order of their times.

use fullpipe_units::Time;
use fullpipe_wire::CapturedSegment;

/// Segments that are held back at least: at first, and once one was late.
const FEW: usize = 32;
pub(crate) const MANY: usize = 1 << 15;

/// Passes segments on in the order of their times.
#[derive(Default)]
pub(crate) struct SegmentSorter {
    /// True if segments are held back until no earlier one is to be expected.
    holds: bool,
    held: Vec<HeldSegment>,
    newest: Time,
    /// Segments that are passed on at a time, once there are twice as many.
    part: usize,
    /// True once a segment was late.
    is_disordered: bool,
    /// True once a segment came that belongs before one that was not held back.
    pub has_passed_later: bool,
}

#[derive(Clone, Copy)]
struct HeldSegment {
    at: Time,
    segment: CapturedSegment,
}

impl SegmentSorter {
    /// Returns a sorter for segments of which any may be late.
    pub(crate) fn new() -> Self {
        Self {
            holds: true,
            part: FEW,
            ..Self::default()
        }
    }

    /// Returns a sorter that holds no segment back until one is late. It is faster by a tenth.
    pub(crate) fn of_ordered() -> Self {
        Self {
            holds: false,
            ..Self::new()
        }
    }

    /// Returns a sorter for segments of which some are late.
    pub(crate) fn of_disordered() -> Self {
        Self {
            part: MANY,
            is_disordered: true,
            ..Self::new()
        }
    }

    /// Takes the next segment of the file, and passes it on, or earlier ones.
    #[inline]
    pub(crate) fn add_segment(
        &mut self,
        segment: &CapturedSegment,
        at: Time,
        pass: &mut impl FnMut(&CapturedSegment, Time),
    ) {
        let is_late = at < self.newest;
        if !self.holds && !is_late {
            self.newest = at;
            return pass(segment, at);
        }
        self.hold_segment(segment, at, is_late, pass);
    }

    #[cold]
    fn hold_segment(
        &mut self,
        segment: &CapturedSegment,
        at: Time,
        is_late: bool,
        pass: &mut impl FnMut(&CapturedSegment, Time),
    ) {
        self.has_passed_later |= !self.holds;
        self.holds = true;
        self.is_disordered |= is_late;
        self.newest = self.newest.max(at);
        self.held.push(HeldSegment {
            at,
            segment: *segment,
        });
        if self.held.len() >= 2 * self.part {
            self.pass_part(pass);
        }
    }

    fn pass_part(&mut self, pass: &mut impl FnMut(&CapturedSegment, Time)) {
        if self.is_disordered {
            if self.part < MANY {
                self.part = MANY;
                return;
            }
            self.sort_held();
        }
        for held in &self.held[..self.part] {
            pass(&held.segment, held.at);
        }
        self.held.drain(..self.part);
    }

    /// Sorts those that are held; equal ones stay in their order.
    fn sort_held(&mut self) {
        self.held.sort_by_key(|held| held.at);
    }

    /// Passes on the rest.
    pub(crate) fn finish_sorting(mut self, pass: &mut impl FnMut(&CapturedSegment, Time)) {
        if self.is_disordered {
            self.sort_held();
        }
        for held in &self.held {
            pass(&held.segment, held.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_wire::{CapturedContent, LinkType, read_captured};

    /// Returns the sequence numbers of segments with these times, in the order in which they are
    /// passed on.
    fn sorted(times: &[u64]) -> Vec<usize> {
        let header = [
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 19, 0, 1,
        ];
        let (mut sorter, mut passed) = (SegmentSorter::new(), Vec::new());
        let mut pass = |segment: &CapturedSegment, _: Time| passed.push(segment.sequence as usize);
        for (number, at) in (0_u32..).zip(times) {
            let [a, b, c, d] = number.to_be_bytes();
            let tcp = [
                0x9C, 0x40, 0x14, 0x51, a, b, c, d, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
            ];
            let bytes = [&header[..], &tcp].concat();
            let CapturedContent::Tcp(segment) = read_captured(LinkType::RAW, &bytes, 40) else {
                panic!("no segment")
            };
            sorter.add_segment(&segment, Time::from_nanos(*at), &mut pass);
        }
        sorter.finish_sorting(&mut pass);
        passed
    }

    #[test]
    fn segments_are_passed_on_in_the_order_of_their_times() {
        let count = 5 * MANY as u64 + 7;
        let in_order: Vec<u64> = (0..count).map(|number| number / 2).collect();
        assert!(
            sorted(&in_order).is_sorted(),
            "equal times stay in the order of the file"
        );
        // One that is late by few segments, and then any by many.
        let late = |number: u64| match number {
            1000 => 2 * 970 - 1,
            0..2000 => 2 * number,
            _ => 2 * (number + MANY as u64 - number * number % (MANY as u64 / 2)) + number % 2,
        };
        let jumbled: Vec<u64> = (0..count).map(late).collect();
        let passed: Vec<u64> = sorted(&jumbled)
            .into_iter()
            .map(|number| jumbled[number])
            .collect();
        assert!(passed.is_sorted() && passed.len() == jumbled.len());
    }
}

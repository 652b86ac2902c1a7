//! One connection in two captures: what was lost and changed between them, and how long it took.

use fullpipe_record::{CapturePoint, FlowDirection, FlowEnd, FlowPair, FlowReport};
use fullpipe_units::{Ratio, Time};

use crate::changes::compare_ends;
use crate::clocks::{ClockFigures, CommonPackets};
use crate::losses::{PathLosses, leave_out_later_copies, loss_course};
use crate::passages::{ComparedPassages, PacketTimes, PassageGrids};
use crate::sizes::segment_count;

/// One connection as both captures show it. Its ends are numbered as in the first.
#[derive(Clone, Copy)]
struct FlowInCaptures<'c> {
    flows: [&'c FlowReport; 2],
    times: [Option<&'c PacketTimes>; 2],
    /// True if the ends of the second stand in the other order.
    is_turned: bool,
}

impl<'c> FlowInCaptures<'c> {
    fn new(
        one: &'c FlowReport,
        other: &'c FlowReport,
        times: [Option<&'c PacketTimes>; 2],
    ) -> Self {
        let [first, second] = end_addresses(other);
        Self {
            flows: [one, other],
            times,
            is_turned: end_addresses(one) == [second, first] && first != second,
        }
    }

    /// Returns the index of an end in the capture at `index`.
    fn end_index(&self, index: usize, end: usize) -> usize {
        end ^ usize::from(self.is_turned && index == 1)
    }

    fn flow_end(&self, index: usize, end: usize) -> &'c FlowEnd {
        &self.flows[index].ends[self.end_index(index, end)]
    }

    /// Returns the end at which the capture at `index` was taken.
    fn taken_at(&self, index: usize) -> Option<usize> {
        match self.flows[index].point? {
            CapturePoint::First => Some(self.end_index(index, 0)),
            CapturePoint::Second => Some(self.end_index(index, 1)),
            CapturePoint::Between => None,
        }
    }

    /// Returns the data of an end, or else the acknowledgements of it.
    fn compared_passages(
        &self,
        captures: [usize; 2],
        end: usize,
        kind: usize,
    ) -> Option<ComparedPassages<'c>> {
        let [near, far] = captures.map(|index| -> Option<&'c PassageGrids> {
            Some(&self.times[index]?.ends[self.end_index(index, end)][kind])
        });
        ComparedPassages::new([near?, far?])
    }

    /// Returns the losses of the data of an end between the capture near it and the other.
    fn path_losses(&self, captures: [usize; 2], end: usize) -> PathLosses {
        let ends = captures.map(|index| self.flow_end(index, end));
        let [Some(near), Some(far)] = captures.map(|index| self.times[index]) else {
            return PathLosses::from_totals(ends);
        };
        PathLosses::from_cells(
            ends,
            self.compared_passages(captures, end, 0),
            [near.captured, far.captured],
        )
    }

    /// Returns the times at which packets of an end passed the first capture and the second.
    fn packet_times(&self, end: usize) -> Vec<[Time; 2]> {
        let parts = [
            self.compared_passages([0, 1], end, 0),
            self.compared_passages([0, 1], 1 - end, 1),
        ];
        let mut times: Vec<[Time; 2]> = parts
            .into_iter()
            .flatten()
            .flat_map(ComparedPassages::packet_times)
            .collect();
        for (index, packets) in self.times.iter().enumerate() {
            if let Some(packets) = packets {
                leave_out_later_copies(&mut times, index, packets.captured[1]);
            }
        }
        times
    }

    /// Returns true if the SYNs of both ends have the same scales in both captures.
    fn has_same_scales(&self) -> bool {
        let [first, second] = [0, 1].map(|index| {
            [0, 1].map(|end| self.flow_end(index, end).syn.map(|syn| syn.window_scale))
        });
        first == second
    }

    /// Compares what an end sent, if the capture at index `nearer` is nearer to the first end.
    fn compare_direction(&self, nearer: Option<usize>, end: usize) -> FlowDirection {
        // What an end sends passes the capture near it first.
        let near = nearer.map_or(0, |index| index ^ end);
        let ends = [self.flow_end(near, end), self.flow_end(1 - near, end)];
        let losses = self.path_losses([near, 1 - near], end);
        FlowDirection {
            ends_at_receiver: self.taken_at(1 - near) == Some(1 - end),
            ..flow_direction(ends, &losses, self.has_same_scales())
        }
    }
}

/// Compares a connection in two captures.
pub(crate) fn compare_flows(
    (one, times): (&FlowReport, Option<&PacketTimes>),
    (other, other_times): (&FlowReport, Option<&PacketTimes>),
) -> FlowPair {
    let both = FlowInCaptures::new(one, other, [times, other_times]);
    let packets = CommonPackets::new([both.packet_times(0), both.packet_times(1)]);
    let nearer = by_hops(&both)
        .or_else(|| packets.nearer_to_first())
        .or_else(|| by_place(&both));
    let clocks = nearer.map_or_else(ClockFigures::default, |nearer| {
        packets.compare_clocks(nearer)
    });
    FlowPair {
        numbers: [one.number, other.number],
        nearer_to_first: nearer,
        clock_skew: clocks.skew,
        clock_offset: clocks.offset,
        directions: [0, 1].map(|end| FlowDirection {
            delay: clocks.delays[end],
            ..both.compare_direction(nearer, end)
        }),
    }
}

pub(crate) fn end_addresses(flow: &FlowReport) -> [&str; 2] {
    flow.ends.each_ref().map(|end| end.address.as_str())
}

/// Returns the index of the capture that is nearer to the first end: its SYN has more hops left
/// there, and the other's has fewer.
fn by_hops(both: &FlowInCaptures<'_>) -> Option<usize> {
    (0..2).find_map(|end| {
        let [one, other] =
            [0, 1].map(|index| both.flow_end(index, end).syn.map(|syn| syn.hops_left));
        let (one, other) = one.zip(other)?;
        (one != other).then_some(end ^ usize::from(one < other))
    })
}

/// Returns the index of the capture that is nearer to the first end, where a capture was taken at
/// one of the ends.
fn by_place(both: &FlowInCaptures<'_>) -> Option<usize> {
    both.taken_at(0)
        .or_else(|| both.taken_at(1).map(|end| 1 - end))
}

/// Compares what an end sent, in the capture near it and in the other, between which there were
/// `losses`.
fn flow_direction(
    [near, far]: [&FlowEnd; 2],
    losses: &PathLosses,
    same_scales: bool,
) -> FlowDirection {
    if near.packets == 0 || far.packets == 0 {
        return FlowDirection {
            from: near.address.clone(),
            ..FlowDirection::default()
        };
    }
    let segment_size = near.segment_size.get();
    FlowDirection {
        from: near.address.clone(),
        in_both: true,
        lost_bytes: losses.lost,
        lost_segments: segment_count(losses.lost.get(), segment_size),
        lost: Ratio::from_quotient(losses.lost.as_f64(), losses.compared.as_f64().max(1.0)),
        undecided_bytes: near.bytes.saturating_sub(losses.compared),
        loss_course: loss_course(losses),
        lost_before: near.lost_before,
        repeated: segment_count(far.retransmitted_bytes.get(), segment_size),
        reordered_packets: far.reordered_packets.saturating_sub(near.reordered_packets),
        routers: near
            .syn
            .zip(far.syn)
            .and_then(|(near, far)| near.hops_left.checked_sub(far.hops_left)),
        changes: compare_ends([near, far], same_scales),
        ..FlowDirection::default()
    }
}

//! The connections of a capture.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter;
use std::net::SocketAddr;

use foldhash::fast::RandomState;
use fullpipe_units::Time;
use fullpipe_wire::{CapturedSegment, flags};

use crate::finish::{EndedFlow, ExplainedTransfers, FinishedFlows, LeftOut, SettledFlows};
use crate::flow::FirstPacket;
use crate::followed::FollowedFlow;
use crate::key::FlowKey;
use crate::packet::{FlowPacket, NumberedSegment};
use crate::places::{FlowIndex, HashMark};
use crate::waiting::PacketBlocks;

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy)]
struct MemoryLimits {
    /// Connection attempts that wait for an answer. Beyond it the older half is only counted.
    attempts: usize,
    /// Connections that are followed. Beyond it those that were silent longest are finished.
    followed: usize,
    /// Finished connections. Beyond it those with least data are left out.
    finished: usize,
    /// Bytes that the data on its way, its timestamps and the courses of all connections may take.
    /// Beyond it those of the smaller ones are thinned out.
    room: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        // A table for so many attempts is full to seven eighths.
        Self {
            attempts: 7 << 14,
            followed: 1 << 17,
            finished: 1 << 16,
            room: 192 << 20,
        }
    }
}

impl MemoryLimits {
    /// Returns the limits of one of so many parts.
    fn of_one(self, parts: usize) -> Self {
        let [attempts, followed, finished, room] =
            [self.attempts, self.followed, self.finished, self.room]
                .map(|all| (all / parts.max(1)).max(1));
        Self {
            attempts,
            followed,
            finished,
            room,
        }
    }
}

/// Connections so far, by keyed hashes: whoever sends the packets must not choose their places.
#[derive(Debug, Default)]
pub struct FlowTable {
    limits: MemoryLimits,
    /// True if no other capture is compared with this one.
    is_alone: bool,
    /// Number and time of the first segment.
    begin: Option<(u64, Time)>,
    /// Segments so far.
    count: u64,
    /// Places of the latest connection of each key.
    latest: FlowIndex,
    /// The connection of the segment before.
    last: Option<LastFlow>,
    followed: Vec<FollowedFlow>,
    /// Packets of the connections that wait.
    blocks: PacketBlocks,
    /// Segments of another connection than the one before them, which wait for being followed.
    queue: Vec<NumberedSegment>,
    /// Counts each change of the places of connections.
    changes: u64,
    /// Connections that were finished before the end.
    finished: Vec<EndedFlow>,
    /// Bytes that the states of those that are followed take beyond their own size.
    room: usize,
    /// SYNs without an answer so far: a flood of them must not take the room of connections.
    attempts: HashMap<FlowKey, SynAttempt, RandomState>,
    /// Networks of the connections, the first [`MAX_NETWORKS`] of them: both directions of a
    /// connection may pass in different ones.
    networks: Vec<u32>,
    unanswered: u64,
    left_out: LeftOut,
}

/// Networks in which the other direction of a connection is searched.
const MAX_NETWORKS: usize = 16;

/// Maximum number of times that a SYN is seen again. Linux sends it six times more
/// (`tcp_syn_retries`).
const MAX_REPEATS: usize = 16;

/// A SYN that waits for its answer.
#[derive(Debug)]
struct SynAttempt {
    syn: FlowPacket,
    /// Times at which the SYN was retransmitted.
    again: Vec<Time>,
}

impl SynAttempt {
    /// Returns the SYN as often as it was sent.
    fn packets(&self) -> impl Iterator<Item = FlowPacket> {
        let again = self.again.iter().map(|at| FlowPacket {
            at: *at,
            ..self.syn
        });
        iter::once(self.syn).chain(again)
    }

    /// Returns true if `packet` came from the other end, or may have for a socket that is connected
    /// to itself.
    fn is_from_other(&self, key: &FlowKey, packet: &FlowPacket) -> bool {
        packet.is_from_lower != self.syn.is_from_lower || key.is_to_itself()
    }

    /// Returns true if `packet` is the SYN of the other end, which opens the same connection at the
    /// same time.
    fn is_crossed_by(&self, packet: &FlowPacket) -> bool {
        packet.is_first_syn() && packet.is_from_lower != self.syn.is_from_lower
    }

    /// Returns true if `packet` is the answer to the SYN.
    fn is_answered_by(&self, key: &FlowKey, packet: &FlowPacket) -> bool {
        self.is_from_other(key, packet)
            && packet.acknowledgement == self.syn.sequence.wrapping_add(1)
    }

    /// Returns true if `packet` is of the connection that the SYN opens, by its numbers: the
    /// answer, or another SYN that crosses it, or what follows where those were not captured. An
    /// acknowledgement of an older connection between the same ports is none (RFC 9293, 3.10.7.4).
    fn is_followed_by(&self, key: &FlowKey, packet: &FlowPacket) -> bool {
        let acknowledges =
            packet.has_flags(flags::ACK) && self.is_shortly_before(packet.acknowledgement);
        let is_from_other =
            self.is_from_other(key, packet) && (acknowledges || !packet.has_flags(flags::ACK));
        self.is_crossed_by(packet)
            || is_from_other
            || packet.is_from_lower == self.syn.is_from_lower
                && self.is_shortly_before(packet.sequence)
    }

    /// Returns true if `number` is one of the first data behind the SYN.
    fn is_shortly_before(&self, number: u32) -> bool {
        /// Data of which nothing was captured behind a SYN that was.
        const NEAR: u32 = 1 << 24;
        (1..=NEAR).contains(&number.wrapping_sub(self.syn.sequence))
    }
}

/// Segments that wait for being followed at most.
const QUEUED: usize = 32;

/// The place of a connection, and its ends, by which a segment is known sooner than by a key.
#[derive(Debug, Clone, Copy)]
struct LastFlow {
    place: usize,
    /// The lower end and the higher one.
    ends: [SocketAddr; 2],
    network: u32,
}

impl LastFlow {
    /// Returns the entry of the connection at a place, of which the last packet had this key.
    fn new(place: usize, key: &FlowKey) -> Self {
        Self {
            place,
            ends: key.end_addresses(),
            network: key.network,
        }
    }

    /// Returns the connection's place, and true if its lower end sent `segment`; `None` for a
    /// segment of another connection.
    #[inline]
    fn sender_of_segment(&self, segment: &CapturedSegment) -> Option<(usize, bool)> {
        let [lower, higher] = &self.ends;
        let is_from_lower = segment.source == *lower && segment.destination == *higher;
        let is_its = is_from_lower || segment.source == *higher && segment.destination == *lower;
        (is_its && segment.network == self.network).then_some((self.place, is_from_lower))
    }
}

/// Returns true if `packet` is the answer to a SYN. Only another connection between the same ports
/// has one that waits.
fn is_syn_answer(
    attempts: &HashMap<FlowKey, SynAttempt, RandomState>,
    key: &FlowKey,
    packet: &FlowPacket,
) -> bool {
    attempts
        .get(key)
        .is_some_and(|attempt| attempt.is_answered_by(key, packet))
}

impl FlowTable {
    /// Returns the table of a capture that is compared with no other: the times of their packets
    /// are not kept.
    #[must_use]
    pub fn without_packet_times() -> Self {
        Self {
            is_alone: true,
            ..Self::default()
        }
    }

    /// Adds a segment that was captured at `at`.
    #[inline]
    pub fn add_segment(&mut self, segment: &CapturedSegment, at: Time) {
        let number = self.count;
        self.begin.get_or_insert((number, at));
        self.count = number + 1;
        let last = self.last.as_ref().filter(|_| self.queue.is_empty());
        if let Some((place, is_from_lower)) = last.and_then(|last| last.sender_of_segment(segment))
        {
            if !self.goes_on(
                place,
                &FlowPacket::new(segment, at, is_from_lower),
                FollowedFlow::add_next,
            ) {
                self.begin_flow(&NumberedSegment::new(number, segment, at));
            }
            return;
        }
        let segment = NumberedSegment::new(number, segment, at);
        self.queue.push(segment);
        if self.queue.len() >= QUEUED {
            self.follow_queued();
        }
    }

    /// Adds segments of a part of a capture, in their order.
    pub fn add_all(&mut self, segments: &[NumberedSegment]) {
        self.follow_queued();
        for part in segments.chunks(QUEUED) {
            if let (Some(first), Some(last)) = (part.first(), part.last()) {
                self.begin.get_or_insert((first.number, first.packet.at));
                self.count = last.number + 1;
            }
            self.follow_segments(part);
        }
    }

    /// Follows the segments that wait.
    fn follow_queued(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        self.follow_segments(&queue);
        queue.clear();
        self.queue = queue;
    }

    /// Follows [`QUEUED`] segments at most.
    fn follow_segments(&mut self, segments: &[NumberedSegment]) {
        // What each of these reads is in no cache where there are many connections: none waits for
        // another, and the less is done with each, the more of them are read at a time.
        let (mut marks, mut places) = ([HashMark::ZERO; QUEUED], [None; QUEUED]);
        for (mark, segment) in marks.iter_mut().zip(segments) {
            *mark = self.latest.key_mark(&segment.key);
        }
        for (place, mark) in places.iter_mut().zip(&marks[..segments.len()]) {
            *place = self.latest.likely_index(*mark);
        }
        for (place, segment) in places.iter_mut().zip(segments) {
            *place = place.filter(|place| self.is_at(*place, &segment.key));
        }
        let waiting = places
            .iter()
            .filter_map(|place| self.followed.get((*place)?))
            .map(FollowedFlow::waiting_packets);
        std::hint::black_box(
            waiting.fold(0, |sum, waiting| sum ^ waiting.prefetch_block(&self.blocks)),
        );
        let (changes, mut last) = (self.changes, None);
        for (place, segment) in places.into_iter().zip(segments) {
            let place = place
                .filter(|_| changes == self.changes)
                .or_else(|| self.find_flow(&segment.key));
            last = place
                .filter(|place| self.goes_on(*place, &segment.packet, FollowedFlow::add_packet));
            if last.is_none() {
                self.begin_flow(segment);
            }
        }
        let last = last
            .zip(segments.last())
            .map(|(place, segment)| LastFlow::new(place, &segment.key));
        self.last = last.or(self.last);
    }

    /// Returns true if the connection of `key` is at this place.
    #[inline]
    fn is_at(&self, place: usize, key: &FlowKey) -> bool {
        self.followed
            .get(place)
            .is_some_and(|flow| flow.has_key(key))
    }

    /// Returns the place of the latest connection of `key`.
    fn find_flow(&self, key: &FlowKey) -> Option<usize> {
        self.latest.find_index(key, |place| self.is_at(place, key))
    }

    /// Adds a segment to the connection at a place by `add`. Returns false if it belongs to another
    /// one between the same ports.
    #[inline]
    fn goes_on(
        &mut self,
        place: usize,
        packet: &FlowPacket,
        add: impl Fn(&mut FollowedFlow, &FlowPacket, &mut PacketBlocks) -> isize,
    ) -> bool {
        let Some(flow) = self.followed.get_mut(place) else {
            return false;
        };
        if flow.is_over(packet) {
            flow.expect_another();
            return false;
        }
        if flow.expects_another && is_syn_answer(&self.attempts, flow.key(), packet) {
            return false;
        }
        let growth = add(flow, packet, &mut self.blocks);
        if growth != 0 {
            self.room = self.room.saturating_add_signed(growth);
            if self.room > self.limits.room {
                self.bound_room();
            }
        }
        true
    }

    /// Takes the first segment of a connection, or of one of its directions, or one that may become
    /// that.
    fn begin_flow(&mut self, segment: &NumberedSegment) {
        self.note_network(segment.key.network);
        if segment.packet.is_first_syn()
            && self
                .attempts
                .get(&segment.key)
                .is_none_or(|attempt| !attempt.is_crossed_by(&segment.packet))
        {
            self.keep_syn(segment);
        } else if let Some(key) = self.key_of_other_direction(segment) {
            self.join_flow(&key, segment);
        } else {
            self.open_flow(segment.key, segment);
        }
    }

    fn note_network(&mut self, network: u32) {
        if self.networks.len() < MAX_NETWORKS && !self.networks.contains(&network) {
            self.networks.push(network);
        }
    }

    /// Returns the key of the connection whose other direction passes in the network of `segment`,
    /// as a VLAN may carry one direction alone: one that this goes on with or answers. `None`
    /// without any or with several, as of different hosts with the same addresses.
    fn key_of_other_direction(&self, segment: &NumberedSegment) -> Option<FlowKey> {
        let NumberedSegment { key, packet, .. } = segment;
        if self.networks.len() < 2 || self.attempts.contains_key(key) {
            return None;
        }
        let others = self
            .networks
            .iter()
            .filter(|network| **network != key.network);
        let mut found = others
            .map(|network| key.in_network(*network))
            .filter(|other| {
                is_syn_answer(&self.attempts, other, packet)
                    || self.find_flow(other).is_some_and(|place| {
                        let flow = &self.followed[place];
                        flow.other_key().is_none() && flow.may_be_answered_by(packet, &self.blocks)
                    })
            });
        found.next().filter(|_| found.next().is_none())
    }

    /// Adds a segment to the connection of `key`, or the one that its SYN opens, and has all others
    /// of its network go there, too.
    fn join_flow(&mut self, key: &FlowKey, segment: &NumberedSegment) {
        if is_syn_answer(&self.attempts, key, &segment.packet) {
            self.open_flow(*key, segment);
        } else if let Some(place) = self.find_flow(key) {
            self.goes_on(place, &segment.packet, FollowedFlow::add_packet);
        }
        let Some(place) = self.find_flow(key) else {
            return;
        };
        self.followed[place].join_network(segment.key.network);
        self.set_place(&segment.key, place);
    }

    /// Has segments of `key` go to the connection at a place.
    fn set_place(&mut self, key: &FlowKey, place: usize) {
        let followed = &self.followed;
        self.latest.set_index(key, place, |place| {
            followed.get(place).is_some_and(|flow| flow.has_key(key))
        });
    }

    /// Keeps a SYN until it is answered.
    fn keep_syn(&mut self, segment: &NumberedSegment) {
        if self.attempts.len() >= self.limits.attempts {
            self.forget_older_half();
        }
        let syn = segment.packet;
        let attempt = SynAttempt {
            syn,
            again: Vec::new(),
        };
        match self.attempts.entry(segment.key) {
            Entry::Vacant(place) => {
                place.insert(attempt);
            }
            Entry::Occupied(place) => {
                let kept = place.into_mut();
                if kept.syn.sequence != syn.sequence || kept.syn.is_from_lower != syn.is_from_lower
                {
                    *kept = attempt;
                    self.unanswered += 1;
                } else if kept.again.len() < MAX_REPEATS {
                    kept.again.push(syn.at);
                }
            }
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<Time> = self
            .attempts
            .values()
            .map(|attempt| attempt.syn.at)
            .collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        let before = self.attempts.len();
        self.attempts.retain(|_, attempt| attempt.syn.at > middle);
        // Among the places of those that were removed it would grow to twice its size.
        self.attempts.shrink_to_fit();
        self.unanswered += (before - self.attempts.len()) as u64;
    }

    /// Begins the connection of `key` with `segment`, and with the SYN before it if that is there.
    fn open_flow(&mut self, key: FlowKey, segment: &NumberedSegment) {
        self.changes += 1;
        if self.followed.len() >= self.limits.followed {
            self.finish_silent();
        }
        let NumberedSegment { number, packet, .. } = *segment;
        let attempt = self.take_attempt(&key, &packet);
        let first = attempt.as_ref().map_or(packet, |attempt| attempt.syn);
        let mut flow = FollowedFlow::new(FirstPacket::new(key, &first), number, !self.is_alone);
        flow.note_crossed(&packet);
        if self.attempts.contains_key(&key) {
            flow.expect_another();
        }
        for packet in attempt.iter().flat_map(SynAttempt::packets).chain([packet]) {
            self.room = self
                .room
                .saturating_add_signed(flow.add_packet(&packet, &mut self.blocks));
        }
        let place = self.followed.len();
        self.set_place(&key, place);
        self.last = Some(LastFlow::new(place, &segment.key));
        self.followed.push(flow);
    }

    /// Takes the SYN that opens the connection of `packet`.
    fn take_attempt(&mut self, key: &FlowKey, packet: &FlowPacket) -> Option<SynAttempt> {
        if !self.attempts.get(key)?.is_followed_by(key, packet) {
            return None;
        }
        self.attempts.remove(key)
    }

    /// Thins out the connections with least data, and never the largest; and where that is too
    /// little, finishes some.
    fn bound_room(&mut self) {
        let mut by_size: Vec<usize> = (0..self.followed.len()).collect();
        by_size
            .sort_by_cached_key(|index| Reverse(self.followed[*index].data_so_far(&self.blocks)));
        self.room = 0;
        for index in by_size {
            let flow = &mut self.followed[index];
            if self.room > 0 && self.room + flow.heap_bytes() > self.limits.room / 4 {
                self.left_out.thinned += u64::from(flow.reduce_memory());
            }
            self.room += flow.heap_bytes();
        }
        if self.room > self.limits.room / 8 * 7 {
            self.finish_silent();
        }
    }

    /// Finishes the half of the connections that were silent longest, but the largest.
    fn finish_silent(&mut self) {
        const KEPT: usize = 16;
        self.changes += 1;
        let mut times: Vec<Time> = self.followed.iter().map(FollowedFlow::last_time).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let mut sizes: Vec<u64> = self
            .followed
            .iter()
            .map(|flow| flow.data_so_far(&self.blocks))
            .collect();
        let kept = KEPT.min(sizes.len() - 1);
        let (_, large, _) = sizes.select_nth_unstable_by_key(kept, |size| Reverse(*size));
        let large = *large;
        let mut places = vec![None; self.followed.len()];
        let (mut index, mut next) = (0, 0);
        let (finished, blocks) = (&mut self.finished, &mut self.blocks);
        self.followed.retain_mut(|flow| {
            let stays = flow.last_time() > *middle || flow.data_so_far(blocks) > large;
            if stays {
                places[index] = Some(next);
                next += 1;
            } else {
                finished.push(EndedFlow {
                    first: flow.first_packet(),
                    report: flow.take_report(blocks).0,
                });
                flow.release_blocks(blocks);
            }
            index += 1;
            stays
        });
        self.left_out.finished_early += (index - next) as u64;
        self.latest.move_all(|place| places[place]);
        self.last = None;
        self.room = self.followed.iter().map(FollowedFlow::heap_bytes).sum();
        self.leave_out_smallest();
    }

    fn leave_out_smallest(&mut self) {
        while self.finished.len() > self.limits.finished {
            let middle = self.finished.len() / 2;
            self.finished
                .select_nth_unstable_by_key(middle, |ended| Reverse(ended.report.total_bytes()));
            self.left_out.missing += (self.finished.len() - middle) as u64;
            self.finished.truncate(middle);
        }
    }

    /// Returns the number of connections that are followed.
    pub fn flow_count(&self) -> usize {
        self.followed.len()
    }

    /// Returns the number of segments so far.
    pub fn segment_count(&self) -> u64 {
        self.count
    }

    /// Returns the table in so many parts, each with its share of the bounds. A part is given the
    /// further segments of its own connections, see [`NumberedSegment::part_index`], and what they
    /// find is joined by [`SettledFlows::finish_parts`].
    pub fn split_parts(mut self, parts: usize) -> Vec<Self> {
        self.follow_queued();
        let limits = self.limits.of_one(parts);
        let mut all: Vec<Self> = (0..parts)
            .map(|_| Self {
                limits,
                is_alone: self.is_alone,
                begin: self.begin,
                count: self.count,
                networks: self.networks.clone(),
                ..Self::default()
            })
            .collect();
        let mut places = Vec::with_capacity(self.followed.len());
        for mut flow in self.followed {
            let number = flow.key().part_index(parts);
            flow.move_waiting(&self.blocks, &mut all[number].blocks);
            places.push((number, all[number].followed.len()));
            all[number].room += flow.heap_bytes();
            all[number].followed.push(flow);
        }
        for (number, place) in self.latest.flow_indices().map(|place| places[place]) {
            all[number].index_flow(place);
        }
        for (key, attempt) in self.attempts {
            all[key.part_index(parts)].attempts.insert(key, attempt);
        }
        if let Some(first) = all.first_mut() {
            (first.finished, first.unanswered, first.left_out) =
                (self.finished, self.unanswered, self.left_out);
        }
        all
    }

    /// Has segments go to the connection at a place by each of its keys, unless a later one has it.
    fn index_flow(&mut self, place: usize) {
        let flow = &self.followed[place];
        for key in [Some(*flow.key()), flow.other_key()].into_iter().flatten() {
            // One with two keys is met twice, and another may have one of them since.
            if self.find_flow(&key).is_none_or(|known| known < place) {
                self.set_place(&key, place);
            }
        }
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be
    /// `explained`.
    pub fn finish_flows(self, explained: ExplainedTransfers<'_>) -> FinishedFlows {
        SettledFlows::finish_parts(vec![self.settle_flows()], explained)
    }

    /// Returns the connections once no further segment comes, see [`SettledFlows::finish_parts`].
    pub fn settle_flows(mut self) -> SettledFlows {
        self.follow_queued();
        // SYNs of other connections came between theirs and its answer, but most are in order.
        self.followed.sort_by_key(FollowedFlow::first_packet);
        SettledFlows {
            begin: self.begin,
            followed: self.followed,
            blocks: self.blocks,
            finished: self.finished,
            unanswered: self.unanswered + self.attempts.len() as u64,
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests;

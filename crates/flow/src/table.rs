//! The connections of a capture.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use foldhash::fast::RandomState;
use fullpipe_record::{Evidence, FlowReport, Measurement};
use fullpipe_units::Time;
use fullpipe_wire::Segment;

use crate::evidence::{evidence, transfer};
use crate::flow::{Begin, Flow, is_first_syn};
use crate::followed::Followed;
use crate::key::Key;
use crate::packet::Packet;
use crate::pairs::number_of;
use crate::passages::PacketTimes;
use crate::places::Places;
use crate::waiting::{Blocks, Waiting};

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connection attempts that wait for an answer. Beyond it the older half is only counted.
    attempts: usize,
    /// Connections that are followed. Beyond it those that were silent longest are finished.
    followed: usize,
    /// Finished connections. Beyond it those with least data are left out.
    finished: usize,
    /// Bytes that the data on its way, its timestamps and the courses of all connections may take. Beyond it those of
    /// the smaller ones are thinned out.
    room: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // A table for so many attempts is full to seven eighths.
        Self { attempts: 7 << 14, followed: 1 << 17, finished: 1 << 16, room: 192 << 20 }
    }
}

impl Limits {
    /// Returns those of one of so many parts.
    fn of_one(self, parts: usize) -> Self {
        let share = |all: usize| (all / parts.max(1)).max(1);
        Self {
            attempts: share(self.attempts),
            followed: share(self.followed),
            finished: share(self.finished),
            room: share(self.room),
        }
    }
}

/// Connections so far, by keyed hashes: whoever sends the packets must not choose their places.
#[derive(Debug, Default)]
pub struct Flows {
    limits: Limits,
    /// True if no other capture is compared with this one.
    is_alone: bool,
    /// Number and time of the first segment.
    begin: Option<(u64, Time)>,
    /// Segments so far.
    count: u64,
    /// Places of the latest connection of each key.
    latest: Places,
    /// The connection of the segment before.
    last: Option<Last>,
    followed: Vec<Followed>,
    /// Their packets that wait.
    blocks: Blocks,
    /// Segments of another connection than the one before them, which wait for being followed.
    queue: Vec<Numbered>,
    /// Counts each change of the places of connections.
    changes: u64,
    /// Those that were finished before the end.
    finished: Vec<Ended>,
    /// Bytes that the states of those that are followed take beyond their own size.
    room: usize,
    /// SYNs that nobody answered yet: a flood of them must not take the room of connections.
    attempts: HashMap<Key, Attempt, RandomState>,
    unanswered: u64,
    left_out: LeftOut,
}

/// Maximum number of times that a SYN is seen again. Linux sends it six times more (`tcp_syn_retries`).
const MAX_REPEATS: usize = 16;

/// A SYN that waits for its answer.
#[derive(Debug)]
struct Attempt {
    at: Time,
    syn: Segment,
    /// Times at which it was sent again.
    again: Vec<Time>,
}

/// Segments that wait for being followed at most.
const QUEUED: usize = 32;

/// A segment with its number in the capture.
#[derive(Debug, Clone, Copy)]
pub struct Numbered {
    /// Its number among those of all parts of the capture.
    pub number: u64,
    /// Time at which it was captured.
    pub at: Time,
    /// The segment.
    pub segment: Segment,
}

/// The place of a connection, and its ends.
#[derive(Debug, Clone, Copy)]
struct Last {
    place: usize,
    ends: [SocketAddr; 2],
    network: u32,
}

impl Last {
    fn new(place: usize, flow: &Followed) -> Self {
        Self { place, ends: flow.addresses(), network: flow.network() }
    }

    /// Returns its place, and true if its first end sent `segment`; `None` for a segment of another connection.
    #[inline]
    fn sender(&self, segment: &Segment) -> Option<(usize, bool)> {
        let [first, second] = &self.ends;
        let is_from_first = segment.source == *first && segment.destination == *second;
        let is_its = is_from_first || segment.source == *second && segment.destination == *first;
        (is_its && segment.network == self.network).then_some((self.place, is_from_first))
    }
}

/// A connection that was finished before the end of the capture.
#[derive(Debug)]
struct Ended {
    /// Time of its first packet, and the number of the segment with which it was opened.
    first: (Time, u64),
    report: FlowReport,
}

/// Everything that was found.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The connections, by their first packet.
    pub flows: Vec<FlowReport>,
    /// The times of packets of each, in the same order; none of [`Flows::alone`].
    pub times: Vec<PacketTimes>,
    /// Connection attempts that nobody answered.
    pub unanswered: u64,
    /// The transfers that were asked for, those with most data first.
    pub transfers: Vec<TransferEvidence>,
    /// Connections that bounded memory left out, or parts of them.
    pub left_out: LeftOut,
}

/// Connections of which less is known, or nothing, because there were too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Those that are missing: each had less data than those that are there.
    pub missing: u64,
    /// Those that were finished when they had been silent longest; what they sent later counts as another one.
    pub finished_early: u64,
    /// Those that lack round-trip times and the course of their data.
    pub thinned: u64,
}

/// Connections that carried one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferEvidence {
    /// Their numbers, the one with most data first.
    pub flows: Vec<u64>,
    /// Their evidence.
    pub evidence: Evidence,
}

/// The transfers of which evidence is returned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Explained<'f> {
    /// As many of the largest.
    Largest(usize),
    /// The one over a connection between these; without such a connection, as behind address translation, the largest.
    Between([SocketAddr; 2]),
    /// The one that a connection of this number belongs to.
    Flow(u64),
    /// The one that this connection of another capture belongs to.
    Same(&'f FlowReport),
}

impl Explained<'static> {
    /// Returns the transfer of a test: the connection with its data, though one that controls it may carry more.
    pub fn of_test(measurement: &Measurement) -> Self {
        measurement.connection().map_or(Self::Largest(1), Self::Between)
    }
}

/// Returns which of so many parts of [`Flows::split`] follows the connection of `segment`.
pub fn part_of(segment: &Segment, parts: usize) -> usize {
    part([segment.source, segment.destination], parts)
}

/// Returns the part of a connection between these addresses, in any order.
fn part(addresses: [SocketAddr; 2], parts: usize) -> usize {
    /// 2^64 by the golden ratio: neighbours are spread evenly (Knuth, volume 3, 6.4).
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let number = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()) << 16 | u64::from(address.port()),
        IpAddr::V6(ip) => {
            (ip.to_bits() as u64 ^ (ip.to_bits() >> 64) as u64).rotate_left(16) ^ u64::from(address.port())
        }
    };
    let [one, other] = addresses.map(number);
    let hash = one.wrapping_add(other).wrapping_mul(SPREAD);
    (((hash >> 32) * parts as u64) >> 32) as usize
}

/// Returns true if `segment` is the answer to a SYN. Only another connection between the same ports has one that waits.
fn answers(attempts: &HashMap<Key, Attempt, RandomState>, segment: &Segment) -> bool {
    attempts.get(&Key::of(segment)).is_some_and(|Attempt { syn, .. }| {
        segment.source == syn.destination && segment.acknowledgement == syn.sequence.wrapping_add(1)
    })
}

/// Returns the evidence of the transfers over `flows` that are to be explained, whose connections have `numbers`.
/// `reports` are those of all connections.
fn transfers(
    flows: &mut [Followed],
    blocks: &mut Blocks,
    numbers: &[u64],
    reports: &[FlowReport],
    explained: Explained<'_>,
) -> Vec<TransferEvidence> {
    let by_size = |flows: &[Followed], index: &usize| (Reverse(flows[*index].data()), numbers[*index]);
    let mut candidates: Vec<usize> = (0..flows.len()).collect();
    candidates.sort_by_cached_key(|index| by_size(flows, index));
    let wanted = if let Explained::Largest(count) = explained { count } else { 1 };
    match explained {
        Explained::Largest(_) => {}
        Explained::Between(ends) => {
            if flows.iter().any(|flow| flow.is_between(ends)) {
                candidates.retain(|index| flows[*index].is_between(ends));
            }
        }
        Explained::Flow(number) => candidates.retain(|index| numbers[*index] == number),
        Explained::Same(flow) => {
            let number = number_of(flow, reports);
            candidates.retain(|index| Some(numbers[*index]) == number);
        }
    }
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for index in candidates {
        if found.len() == wanted {
            break;
        }
        if known.contains(&index) {
            continue;
        }
        let mut members = transfer(index, flows);
        members.retain(|member| !known.contains(member));
        members.sort_by_key(|member| by_size(flows, member));
        known.extend(members.iter().copied());
        for member in &members {
            flows[*member].catch_up(blocks);
        }
        let of_one: Vec<&Flow> = members.iter().filter_map(|member| flows[*member].flow()).collect();
        let flows = members.iter().map(|member| numbers[*member]).collect();
        found.extend(evidence(&of_one).map(|evidence| TransferEvidence { flows, evidence }));
    }
    found
}

impl Flows {
    /// Returns those of a capture that is compared with no other: the times of their packets are not kept.
    #[must_use]
    pub fn alone() -> Self {
        Self { is_alone: true, ..Self::default() }
    }

    /// Adds a segment that was captured at `at`.
    pub fn add(&mut self, segment: &Segment, at: Time) {
        let number = self.count;
        self.begin.get_or_insert((number, at));
        self.count = number + 1;
        let last = self.last.as_ref().filter(|_| self.queue.is_empty());
        if let Some((place, is_from_first)) = last.and_then(|last| last.sender(segment)) {
            if !self.goes_on(place, segment, is_from_first, at, Followed::add_next) {
                self.begin(Key::of(segment), number, segment, at);
            }
            return;
        }
        self.queue.push(Numbered { number, at, segment: *segment });
        if self.queue.len() >= QUEUED {
            self.follow_queued();
        }
    }

    /// Adds segments of a part of a capture, in their order.
    pub fn add_all(&mut self, segments: &[Numbered]) {
        self.follow_queued();
        for part in segments.chunks(QUEUED) {
            if let (Some(first), Some(last)) = (part.first(), part.last()) {
                self.begin.get_or_insert((first.number, first.at));
                self.count = last.number + 1;
            }
            self.follow(part);
        }
    }

    /// Follows the segments that wait.
    fn follow_queued(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        self.follow(&queue);
        queue.clear();
        self.queue = queue;
    }

    /// Follows [`QUEUED`] segments at most.
    fn follow(&mut self, segments: &[Numbered]) {
        // What each of these reads is in no cache where there are many connections: none waits for another.
        let mut likely = [None; QUEUED];
        for (place, Numbered { segment, .. }) in likely.iter_mut().zip(segments) {
            *place = self.latest.likely(&Key::of(segment));
        }
        let waiting = likely.iter().filter_map(|place| self.followed.get((*place)?)).map(Followed::waiting);
        std::hint::black_box(waiting.clone().map(Waiting::len).sum::<usize>());
        std::hint::black_box(waiting.fold(0, |sum, waiting| sum ^ waiting.touch(&self.blocks)));
        let changes = self.changes;
        for (place, Numbered { number, at, segment }) in likely.into_iter().zip(segments) {
            let place = place.filter(|_| changes == self.changes);
            let sender = self.sender(place, segment).or_else(|| self.sender(self.find(&Key::of(segment)), segment));
            let goes_on = |(place, is_from_first)| self.goes_on(place, segment, is_from_first, *at, Followed::add);
            if !sender.is_some_and(goes_on) {
                self.begin(Key::of(segment), *number, segment, *at);
            }
        }
    }

    /// Returns `place` and whether the first end of the connection there sent `segment`, unless it belongs to another.
    #[inline]
    fn sender(&mut self, place: Option<usize>, segment: &Segment) -> Option<(usize, bool)> {
        let place = place?;
        self.last = Some(Last::new(place, self.followed.get(place)?));
        self.last.as_ref()?.sender(segment)
    }

    /// Returns the place of the latest connection of `key`.
    fn find(&self, key: &Key) -> Option<usize> {
        self.latest.find(key, |place| self.followed.get(place).is_some_and(|flow| flow.key() == *key))
    }

    /// Adds a segment to the connection at a place by `add`. Returns false if it belongs to another one between the
    /// same ports.
    #[inline]
    fn goes_on(
        &mut self,
        place: usize,
        segment: &Segment,
        is_from_first: bool,
        at: Time,
        add: impl Fn(&mut Followed, Packet, &mut Blocks) -> isize,
    ) -> bool {
        let Some(flow) = self.followed.get_mut(place) else { return false };
        let packet = Packet::new(segment, at, is_from_first);
        if flow.is_over(&packet) || !self.attempts.is_empty() && answers(&self.attempts, segment) {
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

    /// Takes the first segment of a connection, or one that may become that.
    fn begin(&mut self, key: Key, number: u64, segment: &Segment, at: Time) {
        if is_first_syn(segment) { self.attempt(key, segment, at) } else { self.open(key, number, segment, at) }
    }

    /// Keeps a SYN until it is answered.
    fn attempt(&mut self, key: Key, segment: &Segment, at: Time) {
        if self.attempts.len() >= self.limits.attempts {
            self.forget_older_half();
        }
        let new = || Attempt { at, syn: *segment, again: Vec::new() };
        match self.attempts.entry(key) {
            Entry::Vacant(place) => {
                place.insert(new());
            }
            Entry::Occupied(place) => {
                let kept = place.into_mut();
                if kept.syn.sequence != segment.sequence || kept.syn.source != segment.source {
                    *kept = new();
                    self.unanswered += 1;
                } else if kept.again.len() < MAX_REPEATS {
                    kept.again.push(at);
                }
            }
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<Time> = self.attempts.values().map(|attempt| attempt.at).collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        let before = self.attempts.len();
        self.attempts.retain(|_, attempt| attempt.at > middle);
        // Among the places of those that were removed it would grow to twice its size.
        self.attempts.shrink_to_fit();
        self.unanswered += (before - self.attempts.len()) as u64;
    }

    /// Begins a connection with `segment`, and with the SYN before it if that is there.
    fn open(&mut self, key: Key, number: u64, segment: &Segment, at: Time) {
        self.changes += 1;
        if self.followed.len() >= self.limits.followed {
            self.finish_silent();
        }
        let attempt = self.attempts.remove(&key);
        let (first_at, first) = attempt.as_ref().map_or((at, *segment), |attempt| (attempt.at, attempt.syn));
        let mut flow = Followed::new(Begin::new(&first, first_at), number, !self.is_alone);
        let mut add = |segment: &Segment, at: Time| {
            let packet = Packet::new(segment, at, flow.is_from_first(segment));
            self.room = self.room.saturating_add_signed(flow.add(packet, &mut self.blocks));
        };
        if let Some(attempt) = &attempt {
            let times = std::iter::once(&attempt.at).chain(&attempt.again);
            times.for_each(|time| add(&first, *time));
        }
        add(segment, at);
        let followed = &self.followed;
        let is_its = |place: usize| followed.get(place).is_some_and(|flow| flow.key() == key);
        self.latest.set(&key, followed.len(), is_its);
        self.last = Some(Last::new(followed.len(), &flow));
        self.followed.push(flow);
    }

    /// Thins out the connections with least data, and never the largest; and where that is too little, finishes some.
    fn bound_room(&mut self) {
        let mut by_size: Vec<usize> = (0..self.followed.len()).collect();
        by_size.sort_by_cached_key(|index| Reverse(self.followed[*index].data_so_far(&self.blocks)));
        self.room = 0;
        for index in by_size {
            let flow = &mut self.followed[index];
            if self.room > 0 && self.room + flow.room() > self.limits.room / 4 {
                self.left_out.thinned += u64::from(flow.thin());
            }
            self.room += flow.room();
        }
        if self.room > self.limits.room / 8 * 7 {
            self.finish_silent();
        }
    }

    /// Finishes the half of the connections that were silent longest, but the largest.
    fn finish_silent(&mut self) {
        const KEPT: usize = 16;
        self.changes += 1;
        let mut times: Vec<Time> = self.followed.iter().map(Followed::last).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let mut sizes: Vec<u64> = self.followed.iter().map(|flow| flow.data_so_far(&self.blocks)).collect();
        let kept = KEPT.min(sizes.len() - 1);
        let (_, large, _) = sizes.select_nth_unstable_by_key(kept, |size| Reverse(*size));
        let large = *large;
        let mut places = vec![None; self.followed.len()];
        let (mut index, mut next) = (0, 0);
        let (finished, blocks) = (&mut self.finished, &mut self.blocks);
        self.followed.retain_mut(|flow| {
            let stays = flow.last() > *middle || flow.data_so_far(blocks) > large;
            if stays {
                places[index] = Some(next);
                next += 1;
            } else {
                finished.push(Ended { first: flow.first(), report: flow.report(blocks).0 });
                flow.end(blocks);
            }
            index += 1;
            stays
        });
        self.left_out.finished_early += (index - next) as u64;
        self.latest.move_all(|place| places[place]);
        self.last = None;
        self.room = self.followed.iter().map(Followed::room).sum();
        self.leave_out_smallest();
    }

    fn leave_out_smallest(&mut self) {
        while self.finished.len() > self.limits.finished {
            let middle = self.finished.len() / 2;
            self.finished.select_nth_unstable_by_key(middle, |ended| Reverse(ended.report.bytes()));
            self.left_out.missing += (self.finished.len() - middle) as u64;
            self.finished.truncate(middle);
        }
    }

    /// Returns the number of connections that are followed.
    pub fn connections(&self) -> usize {
        self.followed.len()
    }

    /// Returns the number of segments so far.
    pub fn segments(&self) -> u64 {
        self.count
    }

    /// Returns it in so many parts, each with its share of the bounds. A part is given the further segments of its own
    /// connections, see [`part_of`], and what they find is joined by [`Settled::join`].
    pub fn split(mut self, parts: usize) -> Vec<Self> {
        self.follow_queued();
        let limits = self.limits.of_one(parts);
        let new = || Self { limits, is_alone: self.is_alone, begin: self.begin, count: self.count, ..Self::default() };
        let mut all: Vec<Self> = (0..parts).map(|_| new()).collect();
        let mut places = Vec::with_capacity(self.followed.len());
        for mut flow in self.followed {
            let number = part(flow.addresses(), parts);
            flow.move_waiting(&self.blocks, &mut all[number].blocks);
            places.push((number, all[number].followed.len()));
            all[number].room += flow.room();
            all[number].followed.push(flow);
        }
        for (number, place) in self.latest.all().map(|place| places[place]) {
            let part = &mut all[number];
            part.latest.set(&part.followed[place].key(), place, |_| false);
        }
        for (key, attempt) in self.attempts {
            all[part_of(&attempt.syn, parts)].attempts.insert(key, attempt);
        }
        if let Some(first) = all.first_mut() {
            (first.finished, first.unanswered, first.left_out) = (self.finished, self.unanswered, self.left_out);
        }
        all
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be `explained`.
    pub fn finish(self, explained: Explained<'_>) -> Finished {
        self.settle().finish(explained)
    }

    /// Returns the figures of its connections, to be joined with those of other parts of a capture.
    pub fn settle(mut self) -> Settled {
        self.follow_queued();
        let (mut reports, mut times) = (Vec::with_capacity(self.followed.len()), Vec::new());
        for flow in &mut self.followed {
            let (report, of_packets) = flow.report(&mut self.blocks);
            reports.push(report);
            times.extend(of_packets);
        }
        Settled {
            begin: self.begin,
            followed: self.followed,
            blocks: self.blocks,
            reports,
            times,
            finished: self.finished,
            unanswered: self.unanswered + self.attempts.len() as u64,
            left_out: self.left_out,
        }
    }
}

/// The figures of connections whose packets were all added.
#[derive(Debug, Default)]
pub struct Settled {
    begin: Option<(u64, Time)>,
    followed: Vec<Followed>,
    blocks: Blocks,
    /// Figures of each of them, and the times of its packets if they are kept.
    reports: Vec<FlowReport>,
    times: Vec<PacketTimes>,
    finished: Vec<Ended>,
    unanswered: u64,
    left_out: LeftOut,
}

impl Settled {
    /// Returns both parts of the same capture.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.begin = [self.begin, other.begin].into_iter().flatten().min();
        let shift = self.blocks.append(other.blocks);
        let shifted = |mut flow: Followed| {
            flow.shift_blocks(shift);
            flow
        };
        self.followed.extend(other.followed.into_iter().map(shifted));
        self.reports.extend(other.reports);
        self.times.extend(other.times);
        self.finished.extend(other.finished);
        self.unanswered += other.unanswered;
        self.left_out.missing += other.left_out.missing;
        self.left_out.finished_early += other.left_out.finished_early;
        self.left_out.thinned += other.left_out.thinned;
        self
    }

    /// Returns everything that was found, with the evidence of the transfers that are to be `explained`.
    pub fn finish(mut self, explained: Explained<'_>) -> Finished {
        let begin = self.begin.map_or(Time::ZERO, |(_, at)| at);
        let firsts = self.followed.iter().map(Followed::first).chain(self.finished.iter().map(|ended| ended.first));
        let firsts: Vec<(Time, u64)> = firsts.collect();
        let mut order: Vec<usize> = (0..firsts.len()).collect();
        // Each part has most of its own in order.
        order.sort_by_key(|index| firsts[*index]);
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, index)| places[*index] = place);
        let numbers: Vec<u64> = places.iter().map(|place| *place as u64 + 1).collect();
        let mut flows = self.reports;
        flows.extend(self.finished.into_iter().map(|ended| ended.report));
        for ((flow, number), (first, _)) in flows.iter_mut().zip(&numbers).zip(&firsts) {
            (flow.number, flow.begin) = (*number, first.since(begin));
        }
        let mut times = self.times;
        if !times.is_empty() {
            times.resize_with(flows.len(), PacketTimes::default);
        }
        arrange(&mut flows, &mut times, places);
        let transfers = transfers(&mut self.followed, &mut self.blocks, &numbers, &flows, explained);
        Finished { flows, times, unanswered: self.unanswered, transfers, left_out: self.left_out }
    }
}

/// Moves each connection, with its times if they are kept, to its place among all.
fn arrange(flows: &mut [FlowReport], times: &mut [PacketTimes], mut places: Vec<usize>) {
    for index in 0..places.len() {
        while places[index] != index {
            let place = places[index];
            flows.swap(index, place);
            if !times.is_empty() {
                times.swap(index, place);
            }
            places.swap(index, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use fullpipe_units::Span;
    use fullpipe_wire::{SegmentOptions, flags};

    const MSS: u32 = 1000;

    /// A capture in which a packet passes each millisecond.
    struct Capture {
        flows: Flows,
        at: Time,
    }

    impl Capture {
        fn new(limits: Limits) -> Self {
            Self { flows: Flows { limits, ..Flows::default() }, at: Time::ZERO }
        }

        /// Adds packet `index` of full segments of a connection.
        fn data(&mut self, connection: u16, index: u32) {
            self.at = self.at + Span::from_millis(1);
            let segment = self.segment(connection, index);
            self.flows.add(&segment, self.at);
            self.flows.follow_queued();
        }

        /// Adds a SYN that nobody answers.
        fn syn(&mut self, connection: u16) {
            let segment = self.segment(connection, 0);
            self.flows.add(&Segment { flags: flags::SYN, payload: 0, ..segment }, self.at);
            self.flows.follow_queued();
        }

        fn segment(&self, connection: u16, index: u32) -> Segment {
            let now = (self.at.as_nanos() / 1_000_000) as u32;
            Segment {
                source: SocketAddr::from(([192, 0, 2, 1], connection)),
                destination: SocketAddr::from(([198, 51, 100, 2], 5201)),
                network: 0,
                overhead: 0,
                sequence: index * MSS,
                acknowledgement: 1,
                flags: flags::ACK,
                window: 1000,
                payload: MSS,
                options: SegmentOptions { timestamps: Some((now, 1)), ..SegmentOptions::default() },
                identification: Some(index as u16 + 1),
                hops_left: 64,
                traffic_class: 0,
                checksum: 0,
                checksum_is_unfinished: false,
            }
        }
    }

    #[test]
    fn connections_beyond_the_limit_are_finished_when_they_are_silent_and_the_smallest_are_left_out() {
        let mut capture = Capture::new(Limits { followed: 40, finished: 100, ..Limits::default() });
        (0..30).for_each(|index| capture.data(1, index));
        for connection in 2..502 {
            let packets = if connection % 5 == 0 { 2 } else { 1 };
            (0..packets).for_each(|index| capture.data(connection, index));
            assert!(capture.flows.followed.len() <= 40 && capture.flows.finished.len() <= 100);
        }
        let Finished { flows, transfers, left_out, .. } = capture.flows.finish(Explained::Largest(1));
        assert_eq!(flows.len() as u64 + left_out.missing, 501);
        assert!(left_out.missing >= 300 && left_out.finished_early >= 400, "{left_out:?}");
        assert!(flows.iter().zip(1..).all(|(flow, number)| flow.number == number));
        assert!(flows.windows(2).all(|pair| pair[0].begin <= pair[1].begin));
        assert_eq!(transfers[0].flows, [1], "the largest stays, though it is silent");
        assert_eq!(flows[0].ends[0].unique_bytes.get(), 30_000);
        let larger = flows.iter().filter(|flow| flow.bytes().get() == 2_000).count();
        assert!(larger * 2 > flows.len(), "a fifth of all: {larger} of {}", flows.len());
    }

    #[test]
    fn parts_find_what_the_whole_finds_whoever_waits() {
        const PARTS: usize = 3;
        let capture = Capture::new(Limits::default());
        let segments: Vec<(Segment, Time)> = (0..6_000_u32)
            .map(|number| {
                let connection = 1 + (number * 41 % 97) as u16;
                // Some are sent again, some go back, and some SYNs get no answer.
                let segment = capture.segment(connection, number / 97 - number / 97 % 5 * u32::from(number % 7 == 0));
                let [source, destination] = [segment.source, segment.destination];
                let segment = match number % 11 {
                    0 => Segment { source: destination, destination: source, payload: 100, ..segment },
                    1 if number > 5_000 => Segment { flags: flags::SYN, payload: 0, ..segment },
                    _ => segment,
                };
                // Several packets have the same time.
                (segment, Time::from_nanos(u64::from(number / 4) * 1_000_000))
            })
            .collect();
        let mut whole = Flows::default();
        let mut alone = Flows::alone();
        let mut one_by_one = Flows::default();
        let mut beginning = Flows::default();
        for (segment, at) in &segments {
            whole.add(segment, *at);
            alone.add(segment, *at);
            one_by_one.add(segment, *at);
            one_by_one.follow_queued();
        }
        let (first, rest) = segments.split_at(1_000);
        for (segment, at) in first {
            beginning.add(segment, *at);
        }
        let mut parts = beginning.split(PARTS);
        for (number, (segment, at)) in (1_000..).zip(rest) {
            parts[part_of(segment, PARTS)].add_all(&[Numbered { number, at: *at, segment: *segment }]);
        }
        assert!(parts.iter().all(|part| part.connections() > 10), "each has its share");
        let joined = parts.into_iter().rev().map(Flows::settle).reduce(Settled::join).unwrap_or_default();
        let whole = whole.finish(Explained::Largest(3));
        assert!(whole.flows.len() >= 97 && whole.unanswered > 0, "{}", whole.flows.len());
        let others = [one_by_one.finish(Explained::Largest(3)), joined.finish(Explained::Largest(3))];
        let alone = alone.finish(Explained::Largest(3));
        assert!(alone.times.is_empty() && others.iter().all(|other| other.times.len() == whole.flows.len()));
        for other in others.into_iter().chain([alone]) {
            assert_eq!(other.flows, whole.flows);
            assert_eq!(other.transfers, whole.transfers);
            assert_eq!((other.unanswered, other.left_out), (whole.unanswered, whole.left_out));
        }
    }

    #[test]
    fn a_flood_of_syns_takes_no_more_room_than_is_allowed() {
        let attempts = 7 << 6;
        let mut capture = Capture::new(Limits { attempts, ..Limits::default() });
        for connection in 0..5_000 {
            capture.at = capture.at + Span::from_micros(1);
            capture.syn(connection);
            assert!(capture.flows.attempts.capacity() <= attempts, "after {connection}");
        }
        assert_eq!(capture.flows.finish(Explained::Largest(1)).unanswered, 5_000);
    }

    #[test]
    fn a_connection_takes_less_than_two_kilobytes_until_it_has_many_packets() {
        let mut capture = Capture::new(Limits::default());
        capture.syn(1);
        let answer = Segment { acknowledgement: 1, payload: 0, ..capture.segment(1, 0) };
        let answer = Segment { source: answer.destination, destination: answer.source, ..answer };
        capture.flows.add(&answer, capture.at);
        capture.flows.follow_queued();
        (0..29).for_each(|index| capture.data(1, index));
        let flow = &capture.flows.followed[0];
        let taken = size_of_val(flow) + flow.waiting().room();
        assert!(taken < 2 << 10 && flow.flow().is_none(), "{taken}");
        capture.data(1, 29);
        let flow = &capture.flows.followed[0];
        assert!(flow.waiting().len() == 0 && flow.flow().is_some());
    }

    #[test]
    fn small_connections_are_thinned_out_and_the_largest_keeps_its_course() {
        let room = 1 << 20;
        let mut capture = Capture::new(Limits { room, ..Limits::default() });
        for round in 0..400 {
            (0..8).for_each(|index| capture.data(1, round * 8 + index));
            (2..32).for_each(|connection| capture.data(connection, round));
            assert!(capture.flows.followed.iter().map(Followed::room).sum::<usize>() <= room);
        }
        let Finished { flows, transfers, left_out, .. } = capture.flows.finish(Explained::Largest(1));
        assert_eq!((flows.len(), left_out.missing, left_out.finished_early), (31, 0, 0));
        assert!((20..=30).contains(&left_out.thinned), "{left_out:?}");
        assert_eq!(flows[1].ends[0].unique_bytes.get(), 400_000, "its data is counted all the same");
        // All are one transfer, the largest connection first.
        let samples = &transfers[0].evidence.sender_samples;
        let of = |stream: u16| samples.iter().filter(|sample| sample.stream == stream).count();
        assert!(of(0) > 50 && of(0) > 4 * of(1), "{} and {}", of(0), of(1));
    }
}

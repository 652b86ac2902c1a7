//! A connection that is followed, with the packets that wait to be added to it.

use std::net::{IpAddr, SocketAddr};

use fullpipe_record::FlowReport;
use fullpipe_units::{ByteCount, Time};
use fullpipe_wire::Segment;

use crate::flow::{Begin, Flow};
use crate::packet::Packet;
use crate::passages::PacketTimes;

/// Packets of a connection that wait at most. Of many connections no cache holds the state, so it is read and written
/// once for all of these.
const WAITING: usize = 8;

/// The same of a connection without a state: one that has no more packets takes no room for a state before it ends.
const FIRST_WAITING: usize = 32;

/// A connection so far.
#[derive(Debug)]
pub(crate) struct Followed {
    waiting: Vec<Packet>,
    last: Time,
    /// Bytes that its state takes beyond its own size, with the packets that wait for it.
    room: usize,
    /// The state before the packets that wait.
    flow: Option<Box<Flow>>,
    begin: Begin,
    /// Number of the segment with which it was opened.
    order: u64,
    /// Data of each end, once its figures were returned.
    sent: [u64; 2],
    /// True once details were left out.
    is_thinned: bool,
    /// Packets that were added at once since the room was counted last.
    uncounted: u8,
}

impl Followed {
    /// Returns a connection without a packet, which is opened with segment number `order`.
    pub(crate) fn new(begin: Begin, order: u64) -> Self {
        Self {
            waiting: Vec::new(),
            last: begin.at,
            room: 0,
            flow: None,
            begin,
            order,
            sent: [0; 2],
            is_thinned: false,
            uncounted: 0,
        }
    }

    /// Adds a packet behind another one of this connection, whose state is in the caches. Returns by how many bytes
    /// that has grown beyond its own size since that was counted last.
    #[inline]
    pub(crate) fn add_next(&mut self, packet: Packet) -> isize {
        let Some(flow) = self.flow.as_mut().filter(|_| self.waiting.is_empty()) else { return self.add(packet) };
        self.last = self.last.max(packet.at);
        flow.add(&packet);
        self.uncounted += 1;
        if usize::from(self.uncounted) < WAITING { 0 } else { self.growth() }
    }

    /// Adds a packet. Returns by how many bytes its state has grown beyond its own size since that was counted last.
    #[inline]
    pub(crate) fn add(&mut self, packet: Packet) -> isize {
        self.last = self.last.max(packet.at);
        if self.waiting.len() == self.waiting.capacity() {
            // Two sizes leave fewer holes in memory than doublings do.
            self.waiting.reserve_exact(if self.waiting.is_empty() { WAITING } else { FIRST_WAITING - WAITING });
        }
        self.waiting.push(packet);
        if self.waiting.len() < if self.flow.is_some() { WAITING } else { FIRST_WAITING } {
            return 0;
        }
        self.caught_up();
        if self.waiting.capacity() > WAITING {
            // The whole room of the first is free for the state of another.
            self.waiting = Vec::with_capacity(WAITING);
        }
        self.growth()
    }

    fn growth(&mut self) -> isize {
        let before = self.room;
        self.count_room();
        self.uncounted = 0;
        self.room.cast_signed() - before.cast_signed()
    }

    /// Returns its state with all packets.
    fn caught_up(&mut self) -> &mut Flow {
        let flow = self.flow.get_or_insert_with(|| Box::new(Flow::new(&self.begin)));
        self.waiting.drain(..).for_each(|packet| flow.add(&packet));
        flow
    }

    /// Adds all packets to its state.
    pub(crate) fn catch_up(&mut self) {
        self.caught_up();
    }

    /// Returns its state as it was after [`Followed::catch_up`].
    pub(crate) fn flow(&self) -> Option<&Flow> {
        self.flow.as_deref()
    }

    /// Returns the number of packets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn count_room(&mut self) {
        let waiting = self.waiting.capacity() * size_of::<Packet>();
        self.room = self.flow.as_ref().map_or(0, |flow| flow.room() + waiting);
    }

    /// Returns the bytes that its state took beyond its own size when that was counted last.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Leaves out the details that take most room. Returns true the first time.
    pub(crate) fn thin(&mut self) -> bool {
        let Some(flow) = &mut self.flow else { return false };
        flow.thin();
        self.count_room();
        !std::mem::replace(&mut self.is_thinned, true)
    }

    /// Returns its figures without its number, and as if the capture began with it; and the times of its packets. The
    /// state of a small connection is forgotten again: its packets take less room.
    pub(crate) fn report(&mut self) -> (FlowReport, PacketTimes) {
        let mut small;
        let begin = self.begin;
        let flow = if self.flow.is_some() {
            self.caught_up()
        } else {
            small = Flow::new(&self.begin);
            self.waiting.iter().for_each(|packet| small.add(packet));
            &mut small
        };
        let (report, times, sent) = (flow.report(&begin), flow.take_times(), flow.sent());
        self.sent = sent.map(ByteCount::get);
        (report, times)
    }

    /// Returns true if the first end sent `segment`.
    pub(crate) fn is_from_first(&self, segment: &Segment) -> bool {
        self.begin.is_from_first(segment)
    }

    /// Returns true if `segment` opens another connection between the same ports.
    pub(crate) fn is_over(&self, segment: &Segment) -> bool {
        self.begin.is_over(segment)
    }

    /// Returns the time of its first packet, and the number of the segment with which it was opened.
    pub(crate) fn first(&self) -> (Time, u64) {
        (self.begin.at, self.order)
    }

    /// Returns the time of its last packet.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Returns the data of the end that sent more so far, where that of packets that wait counts as often as it was
    /// sent.
    pub(crate) fn data_so_far(&self) -> u64 {
        let mut sent = self.flow.as_ref().map_or([0; 2], |flow| flow.sent().map(ByteCount::get));
        for packet in &self.waiting {
            sent[usize::from(!packet.is_from_first)] += u64::from(packet.payload);
        }
        sent[0].max(sent[1])
    }

    /// Returns the addresses of its ends.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        self.begin.addresses
    }

    /// Returns the addresses of its ends and the port of the server.
    pub(crate) fn hosts(&self) -> (IpAddr, IpAddr, u16) {
        let [first, second] = self.begin.addresses;
        (first.ip(), second.ip(), second.port())
    }

    /// Returns true if its ends are these, in either order.
    pub(crate) fn is_between(&self, ends: [SocketAddr; 2]) -> bool {
        let [one, other] = ends;
        [[one, other], [other, one]].contains(&self.begin.addresses)
    }

    /// Returns the index of the end that sent more data, once its figures were returned.
    pub(crate) fn sender(&self) -> usize {
        usize::from(self.sent[1] > self.sent[0])
    }

    /// Returns the data of that end.
    pub(crate) fn data(&self) -> u64 {
        self.sent[self.sender()]
    }

    /// Returns the data of the other end.
    pub(crate) fn data_back(&self) -> u64 {
        self.sent[1 - self.sender()]
    }

    /// Returns true if most of the shorter of both lay within the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let common = self.last.min(other.last).since(self.begin.at.max(other.begin.at));
        let shorter = self.last.since(self.begin.at).min(other.last.since(other.begin.at));
        common * 2 >= shorter
    }
}

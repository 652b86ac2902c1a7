//! A connection.

use std::net::{IpAddr, SocketAddr};

use fullpipe_record::{BurstRate, CapturePoint, FlowReport};
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use fullpipe_wire::{Segment, flags};

use crate::end::End;
use crate::passages::PacketTimes;
use crate::sending::Sending;

/// Minimum round-trip time at which the times of a capture show where it was taken.
const MIN_RTT: Span = Span::from_micros(200);

/// Maximum share of the round trip between an end and a capture that was taken there.
const MAX_SHARE: f64 = 0.1;

/// A connection so far.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Addresses of the end that opened it, or else sent the first packet, and of the other.
    addresses: [SocketAddr; 2],
    first: Time,
    last: Time,
    initial_sequence: Option<u32>,
    overhead: u16,
    /// Bytes that it took beyond its own size when that was counted last, and packets since then.
    room: usize,
    uncounted: u8,
    /// True once details were left out.
    is_thinned: bool,
    /// Time at which the first end acknowledged the other's SYN.
    opened: Option<Time>,
    ends: [End; 2],
}

impl Flow {
    /// Returns a connection without a packet, whose first one is `segment`.
    pub(crate) fn new(segment: &Segment, at: Time) -> Self {
        let answers = segment.has(flags::SYN | flags::ACK);
        Self {
            // The receiver of an answer to a SYN opened the connection, though its SYN was not captured.
            addresses: if answers {
                [segment.destination, segment.source]
            } else {
                [segment.source, segment.destination]
            },
            first: at,
            last: at,
            initial_sequence: is_first_syn(segment).then_some(segment.sequence),
            overhead: segment.overhead,
            room: 0,
            uncounted: 0,
            is_thinned: false,
            opened: None,
            ends: [End::default(), End::default()],
        }
    }

    /// Returns true if `segment` opens another connection between the same ports.
    pub(crate) fn is_over(&self, segment: &Segment) -> bool {
        is_first_syn(segment) && self.initial_sequence != Some(segment.sequence)
    }

    /// Returns the time of its first packet.
    pub(crate) fn first(&self) -> Time {
        self.first
    }

    /// Returns the time of its last packet.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Returns the bytes that it took beyond its own size when that was counted last.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Counts a packet. Returns by how many bytes it has grown beyond its own size since that was counted last.
    pub(crate) fn growth(&mut self) -> isize {
        /// Packets of a connection after which it is counted.
        const INTERVAL: u8 = 4;
        self.uncounted += 1;
        if self.uncounted < INTERVAL {
            return 0;
        }
        self.uncounted = 0;
        let before = self.room;
        self.room = self.ends.iter().map(End::room).sum();
        self.room.cast_signed() - before.cast_signed()
    }

    /// Leaves out the details that take most room. Returns true the first time.
    pub(crate) fn thin(&mut self) -> bool {
        self.ends.iter_mut().for_each(End::thin);
        self.room = self.ends.iter().map(End::room).sum();
        !std::mem::replace(&mut self.is_thinned, true)
    }

    /// Returns true if its first end sent `segment`.
    pub(crate) fn is_from_first(&self, segment: &Segment) -> bool {
        self.addresses[0] == segment.source
    }

    /// Adds a packet that the first end sent, or else the second.
    pub(crate) fn add(&mut self, segment: &Segment, at: Time, from_first: bool) {
        self.last = self.last.max(at);
        if from_first && segment.has(flags::ACK) {
            self.opened.get_or_insert(at);
        }
        let [first, second] = &mut self.ends;
        let (end, other) = if from_first { (first, second) } else { (second, first) };
        if !end.count(segment, at) {
            return;
        }
        other.answers.toward(segment, at);
        let answered = end.answers.from(segment, at);
        let echo = other.echoes.seen_by(segment, other.least_rtt(), at);
        end.place(segment, echo, end.agreement(other), at);
        let window = is_scaled(segment).then_some(segment.window);
        if segment.has(flags::ACK) {
            let on_way = other.has_data_on_way();
            let position = other.is_acknowledged(segment, answered, at);
            end.acknowledges(segment, position, on_way);
            if reports_duplicate(segment) {
                other.arrived_twice();
            }
            end.echoes.acknowledges(segment, position, window, at);
        }
        if let Some(scale) = scale(segment, end, other) {
            end.advertises(u32::from(segment.window) << scale, at);
        }
        if let Some(window) = window {
            other.is_allowed(window);
        }
    }

    /// Returns the addresses of its ends and the port of the server.
    pub(crate) fn hosts(&self) -> (IpAddr, IpAddr, u16) {
        let [first, second] = self.addresses;
        (first.ip(), second.ip(), second.port())
    }

    /// Returns true if its ends are these, in either order.
    pub(crate) fn is_between(&self, ends: [SocketAddr; 2]) -> bool {
        let [one, other] = ends;
        [[one, other], [other, one]].contains(&self.addresses)
    }

    /// Returns the index of the end that sent more data.
    pub(crate) fn sender(&self) -> usize {
        usize::from(self.ends[1].sent_bytes() > self.ends[0].sent_bytes())
    }

    /// Returns the data of that end.
    pub(crate) fn data(&self) -> u64 {
        self.ends[self.sender()].sent_bytes().get()
    }

    /// Returns the data of the other end.
    pub(crate) fn data_back(&self) -> u64 {
        self.ends[1 - self.sender()].sent_bytes().get()
    }

    /// Returns true if most of the shorter of both lay within the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let common = self.last.min(other.last).since(self.first.max(other.first));
        let shorter = self.last.since(self.first).min(other.last.since(other.first));
        common * 2 >= shorter
    }

    /// Returns the sender and the receiver.
    pub(crate) fn ends(&self) -> (&End, &End) {
        let [first, second] = &self.ends;
        if self.sender() == 0 { (first, second) } else { (second, first) }
    }

    /// Returns the course of the sender's data; `None` without any.
    pub(crate) fn sending(&self) -> Option<&Sending> {
        self.ends().0.sending()
    }

    /// Returns the time that the handshake took at the end that opened the connection, or as much of it as passed.
    pub(crate) fn handshake_time(&self) -> Option<Span> {
        let begin = self.initial_sequence.map(|_| self.first)?;
        Some(self.opened?.since(begin)).filter(|span| *span > Span::ZERO)
    }

    /// Returns the part of a round trip that the sender's samples lack: between the capture and the sender; or, by the
    /// echoes, between the capture and the receiver.
    pub(crate) fn rest(&self, by_echo: bool) -> Option<Span> {
        let (sender, receiver) = self.ends();
        if by_echo { shortest(receiver, sender) } else { sender.answers.shortest() }
    }

    /// Returns its figures. `number` is its number, and `begin` the time of the capture's first packet.
    pub(crate) fn report(&self, number: u64, begin: Time) -> FlowReport {
        let duration = self.last.since(self.first);
        let point = self.point();
        let [first, second] = &self.ends;
        let [first_address, second_address] = self.addresses.map(|address| address.to_string());
        FlowReport {
            number,
            begin: self.first.since(begin),
            duration,
            point,
            has_handshake: self.initial_sequence.is_some(),
            overhead: ByteCount::new(self.overhead.into()),
            ends: [
                first.report(second, first_address, duration, self.bursts(0, point)),
                second.report(first, second_address, duration, self.bursts(1, point)),
            ],
        }
    }

    /// Takes the times of its packets.
    pub(crate) fn take_times(&mut self) -> PacketTimes {
        PacketTimes { ends: self.ends.each_mut().map(End::take_passages) }
    }

    /// Returns the rate of bursts of an end's data, with headers and what Ethernet adds to each segment. A rate below
    /// that of the whole connection shows no burst.
    fn bursts(&self, end: usize, point: Option<CapturePoint>) -> Option<BurstRate> {
        const ETHERNET: f64 = 38.0;
        let (own, other) = (&self.ends[end], &self.ends[1 - end]);
        let is_here = point == Some([CapturePoint::First, CapturePoint::Second][end]);
        let mut bursts = own.sending()?.bursts(is_here)?;
        let ip = if self.addresses[end].is_ipv6() { 40.0 } else { 20.0 };
        let segment = own.segment_size(other).as_f64();
        let options = own.option_bytes().as_f64();
        let is_faster = bursts.rate >= BitRate::of(own.unique_bytes(), self.last.since(self.first));
        bursts.rate = bursts.rate.scaled((segment + 20.0 + options + ip + ETHERNET) / segment);
        is_faster.then_some(bursts)
    }

    /// Returns where it was captured: at an end that answers at once what passes.
    pub(crate) fn point(&self) -> Option<CapturePoint> {
        let [first, second] = &self.ends;
        let (to_first, to_second) = (shortest(first, second)?, shortest(second, first)?);
        let whole = to_first + to_second;
        let share = to_first.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
        (whole >= MIN_RTT).then_some(match share {
            share if share < MAX_SHARE => CapturePoint::First,
            share if share > 1.0 - MAX_SHARE => CapturePoint::Second,
            _ => CapturePoint::Between,
        })
    }
}

/// Returns the shortest time in which `end` answered `other`: an acknowledgement answers too, where there are no
/// timestamps.
fn shortest(end: &End, other: &End) -> Option<Span> {
    [end.answers.shortest(), other.least_rtt()].into_iter().flatten().min()
}

/// Returns the shift of the window of `segment`, which one of `end` sent to `other`: none in a SYN (RFC 7323, 2.2), and
/// none unless both offered one. Returns `None` if both SYNs were not seen.
fn scale(segment: &Segment, end: &End, other: &End) -> Option<u8> {
    let agreed = end.window_scale().zip(other.window_scale()).map_or(0, |(own, _)| own);
    (is_scaled(segment) && end.has_syn() && other.has_syn()).then_some(agreed)
}

/// Returns true for an acknowledgement of data that had arrived before: its first SACK block lies below what it
/// acknowledges, or within the second (RFC 2883, 4).
fn reports_duplicate(segment: &Segment) -> bool {
    let options = &segment.options;
    let [first, second, ..] = options.sack;
    let is_up_to = |position: u32, end: u32| end.wrapping_sub(position).cast_signed() >= 0;
    let is_below = options.sack_blocks > 0 && is_up_to(first.1, segment.acknowledgement);
    is_below || (options.sack_blocks > 1 && is_up_to(second.0, first.0) && is_up_to(first.1, second.1))
}

/// Returns true for a segment whose window is one that data may fill.
fn is_scaled(segment: &Segment) -> bool {
    segment.flags & (flags::SYN | flags::RST) == 0
}

/// Returns true for the segment that opens a connection.
pub(crate) fn is_first_syn(segment: &Segment) -> bool {
    segment.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN
}

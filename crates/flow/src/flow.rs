//! A connection.

use std::net::SocketAddr;

use fullpipe_record::{At, BurstRate, CapturePoint, FlowEnd, FlowReport, StallTimes};
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use fullpipe_wire::flags;

use crate::end::EndState;
use crate::key::FlowKey;
use crate::packet::{FlowPacket, SackReport};
use crate::passages::PacketTimes;
use crate::sending::SentData;

/// Minimum round-trip time at which the times of a capture show where it was taken.
const MIN_RTT: Span = Span::from_micros(200);

/// Maximum share of the round trip between an end and a capture that was taken there.
const MAX_SHARE: f64 = 0.1;

/// The first packet of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstPacket {
    pub(crate) key: FlowKey,
    pub(crate) at: Time,
    /// The sequence number of its SYN; of one that passed behind its answer, by that.
    initial_sequence: Option<u32>,
    /// The sequence number of the other end's SYN, where both open the connection at the same time
    /// (RFC 9293, 3.5).
    crossed_sequence: Option<u32>,
    /// True if its first packet is a SYN.
    pub(crate) has_syn: bool,
    /// Bytes of headers of tunnels around it.
    overhead: u16,
    /// True if the first end is the lower one: the one that opened it, or else sent the first
    /// packet.
    first_is_lower: bool,
}

impl FirstPacket {
    /// Returns the begin of a connection whose first packet is `packet`.
    pub(crate) fn new(key: FlowKey, packet: &FlowPacket) -> Self {
        // The receiver of an answer to a SYN opened the connection, though its SYN was not
        // captured.
        let is_answer = packet.has_flags(flags::SYN | flags::ACK) && !key.is_to_itself();
        let has_syn = packet.is_first_syn();
        let answered = packet.acknowledgement.wrapping_sub(1);
        Self {
            key,
            at: packet.at,
            initial_sequence: if has_syn {
                Some(packet.sequence)
            } else {
                is_answer.then_some(answered)
            },
            crossed_sequence: None,
            has_syn,
            overhead: packet.overhead,
            first_is_lower: packet.is_from_lower != is_answer,
        }
    }

    /// Returns true if `packet` is the SYN of another connection between the same ports.
    #[inline]
    pub(crate) fn is_over(&self, packet: &FlowPacket) -> bool {
        let own = if self.is_from_first(packet) {
            self.initial_sequence
        } else {
            self.crossed_sequence
        };
        packet.is_first_syn() && own != Some(packet.sequence)
    }

    /// Takes note of a SYN of the other end, which opens the same connection.
    pub(crate) fn note_crossed(&mut self, packet: &FlowPacket) {
        if packet.is_first_syn() && !self.is_from_first(packet) {
            self.crossed_sequence = Some(packet.sequence);
        }
    }

    /// Returns true if the first end sent `packet`.
    pub(crate) fn is_from_first(&self, packet: &FlowPacket) -> bool {
        packet.is_from_lower == self.first_is_lower
    }

    /// Returns the addresses of the first end and of the other.
    pub(crate) fn end_addresses(&self) -> [SocketAddr; 2] {
        let [lower, higher] = self.key.end_addresses();
        if self.first_is_lower {
            [lower, higher]
        } else {
            [higher, lower]
        }
    }
}

/// A connection so far.
#[derive(Debug, Clone)]
pub(crate) struct FlowState {
    first: Time,
    last: Time,
    /// True if its first packet is a SYN.
    begins_with_syn: bool,
    /// Time at which the first end acknowledged the other's SYN.
    opened: Option<Time>,
    /// True if the first end is the lower one of the key.
    first_is_lower: bool,
    ends: [EndState; 2],
}

impl FlowState {
    /// Returns a connection without a packet. With `keeps_times`, the times of its packets are
    /// kept.
    pub(crate) fn new(begin: &FirstPacket, keeps_times: bool) -> Self {
        Self {
            first: begin.at,
            last: begin.at,
            begins_with_syn: begin.has_syn,
            opened: None,
            first_is_lower: begin.first_is_lower,
            ends: [EndState::new(keeps_times), EndState::new(keeps_times)],
        }
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.ends.iter().map(EndState::heap_bytes).sum()
    }

    /// Leaves out the details that take most room.
    pub(crate) fn reduce_memory(&mut self) {
        self.ends.iter_mut().for_each(EndState::reduce_memory);
    }

    /// Adds a packet.
    pub(crate) fn add_packet(&mut self, packet: &FlowPacket) {
        self.last = self.last.max(packet.at);
        let is_from_first = packet.is_from_lower == self.first_is_lower;
        if is_from_first && packet.has_flags(flags::ACK) {
            self.opened.get_or_insert(packet.at);
        }
        let [first, second] = &mut self.ends;
        let (end, other) = if is_from_first {
            (first, second)
        } else {
            (second, first)
        };
        let without_data;
        let packet = if end.keeps_alive(packet) || end.probes_window(packet) {
            without_data = FlowPacket {
                payload: 0,
                ..*packet
            };
            &without_data
        } else {
            packet
        };
        if !end.count_packet(packet) {
            return;
        }
        other.answers.record_arriving_segment(packet);
        let answered = end.answers.record_sent_segment(packet);
        let echo = other.echoes.seen_by(packet, other.least_rtt());
        end.place_packet(packet, echo, end.segment_parameters(other));
        let window = packet.is_scaled().then_some(packet.window);
        if packet.has_flags(flags::ACK) {
            let on_way = other.has_data_on_way();
            let position = other.is_acknowledged(packet, answered);
            end.record_sent_acknowledgement(packet, position, on_way);
            if packet.sack == SackReport::Duplicate {
                other.arrived_twice();
            }
            end.echoes.record_acknowledgement(packet, position, window);
        }
        if let Some(window) = window {
            // Without a scale it is as it stands in the header.
            let shift = end.syn_scale(other).shift().unwrap_or(0);
            end.record_window(u32::from(window) << shift, packet.at);
            other.is_allowed(window, packet.at);
        }
    }

    /// Returns the number that each end acknowledged last.
    pub(crate) fn acknowledged_numbers(&self) -> [Option<u32>; 2] {
        self.ends.each_ref().map(EndState::last_acknowledgement)
    }

    /// Returns the number behind the highest one that each end sent.
    pub(crate) fn next_sequences(&self) -> [Option<u32>; 2] {
        self.ends.each_ref().map(EndState::next_sequence)
    }

    /// Returns the data that each end sent.
    pub(crate) fn sent_bytes(&self) -> [ByteCount; 2] {
        self.ends.each_ref().map(EndState::sent_bytes)
    }

    /// Returns the index of the end that sent more data.
    pub(crate) fn sender_index(&self) -> usize {
        usize::from(self.ends[1].sent_bytes() > self.ends[0].sent_bytes())
    }

    /// Returns the sender and the receiver.
    pub(crate) fn sender_and_receiver(&self) -> (&EndState, &EndState) {
        let sender = self.sender_index();
        (&self.ends[sender], &self.ends[1 - sender])
    }

    /// Returns the course of the sender's data; `None` without any.
    pub(crate) fn sender_data(&self) -> Option<&SentData> {
        self.sender_and_receiver().0.sent_data()
    }

    /// Returns the end whose packets alone were seen.
    pub(crate) fn only_seen_end(&self) -> Option<At> {
        let (sender, receiver) = self.sender_and_receiver();
        match (sender.is_silent(), receiver.is_silent()) {
            (false, true) => Some(At::Sender),
            (true, false) => Some(At::Receiver),
            _ => None,
        }
    }

    /// Returns the time that the handshake took at the end that opened the connection, or as much
    /// of it as passed; `None` if a part of it was retransmitted, since the time without an answer
    /// is no round trip.
    pub(crate) fn handshake_time(&self) -> Option<Span> {
        let was_sent_once = self.ends.iter().all(|end| end.syn_count() <= 1);
        let opened = self
            .opened
            .filter(|_| self.begins_with_syn && was_sent_once)?;
        Some(opened.duration_since(self.first)).filter(|span| *span > Span::ZERO)
    }

    /// Returns the part of a round trip that the sender's samples lack: between the capture and the
    /// sender; or, by the echoes, between the capture and the receiver.
    pub(crate) fn missing_rtt(&self, by_echo: bool) -> Option<Span> {
        let (sender, receiver) = self.sender_and_receiver();
        if by_echo {
            shortest_response(receiver, sender)
        } else {
            sender.answers.shortest_response()
        }
    }

    /// Returns the figures of the connection without its number, and as if the capture began with
    /// it.
    pub(crate) fn to_report(&self, begin: &FirstPacket) -> FlowReport {
        let duration = self.duration();
        let point = self.capture_point();
        let addresses = begin.end_addresses();
        FlowReport {
            number: 0,
            begin: Span::ZERO,
            duration,
            point,
            has_handshake: self.ends[0].syn_count() > 0,
            overhead: ByteCount::new(begin.overhead.into()),
            ends: [0, 1].map(|end| FlowEnd {
                stalls: self.stalls(end),
                ..self.ends[end].to_flow_end(
                    &self.ends[1 - end],
                    addresses[end].to_string(),
                    duration,
                    self.burst_rate(begin, end, point),
                )
            }),
        }
    }

    /// Returns the times in which the end of this index sent none of its data.
    pub(crate) fn stalls(&self, end: usize) -> StallTimes {
        self.ends[end].stalls([self.opened.unwrap_or(self.first), self.last])
    }

    fn duration(&self) -> Span {
        self.last.duration_since(self.first)
    }

    /// Takes the times of its packets, if they are kept.
    pub(crate) fn take_times(&mut self) -> Option<PacketTimes> {
        let [first, second] = self.ends.each_mut().map(EndState::take_passages);
        Some(PacketTimes {
            ends: [first?, second?],
            captured: [self.first, self.last],
        })
    }

    /// Returns the rate of bursts of an end's data, with headers and what Ethernet adds to each
    /// segment. A rate below that of the whole connection shows no burst.
    fn burst_rate(
        &self,
        begin: &FirstPacket,
        end: usize,
        point: Option<CapturePoint>,
    ) -> Option<BurstRate> {
        const ETHERNET: f64 = 38.0;
        let (own, other) = (&self.ends[end], &self.ends[1 - end]);
        let is_here = point == Some([CapturePoint::First, CapturePoint::Second][end]);
        let mut bursts = own.sent_data()?.burst_rate(is_here)?;
        let ip = if begin.key.is_v6 { 40.0 } else { 20.0 };
        let segment = own.segment_size(other).as_f64();
        let options = own.option_bytes().as_f64();
        let is_faster = bursts.rate >= BitRate::from_bytes_in(own.unique_bytes(), self.duration());
        bursts.rate = bursts
            .rate
            .scale_by((segment + 20.0 + options + ip + ETHERNET) / segment);
        is_faster.then_some(bursts)
    }

    /// Returns the place of the capture on the path: at an end that answers at once what passes, or
    /// between. `None` if the round trip is too short to judge.
    pub(crate) fn capture_point(&self) -> Option<CapturePoint> {
        let [first, second] = &self.ends;
        let (to_first, to_second) = (
            shortest_response(first, second)?,
            shortest_response(second, first)?,
        );
        let whole = to_first + to_second;
        let share = to_first.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
        (whole >= MIN_RTT).then_some(match share {
            share if share < MAX_SHARE => CapturePoint::First,
            share if share > 1.0 - MAX_SHARE => CapturePoint::Second,
            _ => CapturePoint::Between,
        })
    }
}

/// Returns the shortest time in which `end` answered `other`: an acknowledgement answers too, where
/// there are no timestamps.
fn shortest_response(end: &EndState, other: &EndState) -> Option<Span> {
    [end.answers.shortest_response(), other.least_rtt()]
        .into_iter()
        .flatten()
        .min()
}

//! A connection.

use std::net::SocketAddr;

use fullpipe_record::{CapturePoint, FlowReport};
use fullpipe_units::{ByteCount, Span, Time};
use fullpipe_wire::{Segment, flags};

use crate::end::End;

/// Minimum round-trip time at which the times of a capture show where it was taken.
const MIN_RTT: Span = Span::from_micros(200);

/// Maximum share of the round trip between an end and a capture that was taken there.
const MAX_SHARE: f64 = 0.1;

/// A connection so far.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Addresses of its first packet, the sender's first.
    addresses: [SocketAddr; 2],
    first: Time,
    last: Time,
    initial_sequence: Option<u32>,
    overhead: u16,
    ends: [End; 2],
}

impl Flow {
    /// Returns a connection without a packet, whose first end sent `segment`.
    pub(crate) fn new(segment: &Segment, at: Time) -> Self {
        Self {
            addresses: [segment.source, segment.destination],
            first: at,
            last: at,
            initial_sequence: is_first_syn(segment).then_some(segment.sequence),
            overhead: segment.overhead,
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

    /// Returns true if its first end sent `segment`.
    pub(crate) fn is_from_first(&self, segment: &Segment) -> bool {
        self.addresses[0] == segment.source
    }

    /// Adds a packet that the first end sent, or else the second.
    pub(crate) fn add(&mut self, segment: &Segment, at: Time, from_first: bool) {
        self.last = self.last.max(at);
        let [first, second] = &mut self.ends;
        let (end, other) = if from_first { (first, second) } else { (second, first) };
        if !end.count(segment, at) {
            return;
        }
        other.answers.toward(segment, at);
        end.answers.from(segment, at);
        end.place(segment, at);
        if segment.has(flags::ACK) {
            let on_way = other.has_data_on_way();
            let position = other.is_acknowledged(segment.acknowledgement, at);
            end.acknowledges(segment, position, on_way);
        }
        if let Some(scale) = scale(segment, end, other) {
            end.advertises(u64::from(segment.window) << scale, at);
        }
    }

    /// Returns its figures. `number` is its number, and `begin` the time of the capture's first packet.
    pub(crate) fn report(self, number: u64, begin: Time) -> FlowReport {
        let duration = self.last.since(self.first);
        let point = self.point();
        let [first, second] = self.addresses.map(|address| address.to_string());
        FlowReport {
            number,
            begin: self.first.since(begin),
            duration,
            point,
            has_handshake: self.initial_sequence.is_some(),
            overhead: ByteCount::new(self.overhead.into()),
            ends: [self.ends[0].report(first, duration), self.ends[1].report(second, duration)],
        }
    }

    /// Returns where it was captured: at an end that answers at once what passes.
    fn point(&self) -> Option<CapturePoint> {
        let [first, second] = &self.ends;
        // An acknowledgement answers too, where there are no timestamps.
        let shortest = |end: &End, other: &End| {
            let both = [end.answers.shortest(), other.least_rtt()];
            both.into_iter().flatten().min()
        };
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

/// Returns the shift of the window of `segment`, which one of `end` sent to `other`: none in a SYN (RFC 7323, 2.2), and
/// none unless both offered one. Returns `None` if both SYNs were not seen.
fn scale(segment: &Segment, end: &End, other: &End) -> Option<u8> {
    const MAX_SCALE: u8 = 14;
    let agreed = end.window_scale().zip(other.window_scale()).map_or(0, |(own, _)| own.min(MAX_SCALE));
    let is_scaled = segment.flags & (flags::SYN | flags::RST) == 0;
    (is_scaled && end.has_syn() && other.has_syn()).then_some(agreed)
}

/// Returns true for the segment that opens a connection.
pub(crate) fn is_first_syn(segment: &Segment) -> bool {
    segment.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN
}

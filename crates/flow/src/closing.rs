//! The end of a connection, after which its ports may be those of another one.

use fullpipe_units::{Span, Time};
use fullpipe_wire::flags;

use crate::packet::FlowPacket;

/// Time after which the ports of a closed connection are free again (Linux, `TCP_TIMEWAIT_LEN`).
const TIME_WAIT: Span = Span::from_secs(60);

/// Maximum time by which the packets of a handshake pass in another order.
const REORDERED: Span = Span::from_millis(10);

/// Maximum distance of a number from the last one of its end: no sender has more in flight.
const NEAR: i32 = 1 << 28;

/// The handshake and the end of a connection, as far as they passed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionClosing {
    /// Sequence number and acknowledgement of the answer to its SYN.
    answer: Option<[u32; 2]>,
    /// The number behind the last one of each end, once it sent a FIN, or either end a RST.
    ends: [Option<u32>; 2],
    is_reset: bool,
}

impl ConnectionClosing {
    /// Takes note of a packet with SYN or FIN, which the first end sent if `is_from_first`.
    pub(crate) fn record_packet(&mut self, packet: &FlowPacket, is_from_first: bool) {
        if packet.has_flags(flags::SYN | flags::ACK) {
            self.answer
                .get_or_insert([packet.sequence, packet.acknowledgement]);
        }
        if packet.has_flags(flags::FIN) {
            self.ends[usize::from(!is_from_first)] = Some(packet.next_sequence().wrapping_add(1));
        }
    }

    /// Takes note of a RST, before which each end had sent everything below a number. Those are
    /// what counts: a forged one ends nothing.
    pub(crate) fn record_reset(&mut self, next: [Option<u32>; 2]) {
        self.is_reset = true;
        for (end, next) in self.ends.iter_mut().zip(next) {
            *end = end.or(next);
        }
    }

    /// Takes note of a packet without SYN, FIN and RST. Where data goes on behind a RST, that ended
    /// nothing, and the numbers go on with it.
    #[inline]
    pub(crate) fn go_on(&mut self, packet: &FlowPacket, is_from_first: bool) {
        if self.is_reset {
            let own = usize::from(!is_from_first);
            advance_end(&mut self.ends[own], packet.next_sequence());
            if packet.has_flags(flags::ACK) {
                advance_end(&mut self.ends[1 - own], packet.acknowledgement);
            }
        }
    }

    /// Returns true if `packet`, which opens nothing, is one of another connection between the same
    /// ports, whose SYN was not captured. The last one before it was captured at `last`.
    pub(crate) fn is_over(&self, packet: &FlowPacket, is_from_first: bool, last: Time) -> bool {
        let own = usize::from(!is_from_first);
        let (Some(own), Some(other)) = (self.ends[own], self.ends[1 - own]) else {
            return false;
        };
        if packet.has_flags(flags::RST) {
            return false;
        }
        let waited = !self.is_reset
            && !packet.has_flags(flags::FIN)
            && packet.at.duration_since(last) > TIME_WAIT;
        waited
            || self.is_far(packet.sequence, own)
            || packet.has_flags(flags::ACK) && self.is_far(packet.acknowledgement, other)
    }

    /// Returns true if `packet` is the answer to the SYN of another connection than the one whose
    /// first packet was captured at `begin`, and has the SYN if `has_syn`.
    pub(crate) fn answers_another(&self, packet: &FlowPacket, begin: Time, has_syn: bool) -> bool {
        packet.has_flags(flags::SYN | flags::ACK)
            && match self.answer {
                // Where both ends open it at the same time, both send an answer (RFC 9293, 3.5).
                Some([sequence, acknowledgement]) => {
                    let same = [acknowledgement, sequence.wrapping_add(1)];
                    sequence != packet.sequence && !same.contains(&packet.acknowledgement)
                }
                None => !has_syn && packet.at.duration_since(begin) > REORDERED,
            }
    }

    /// Returns true if `number` is none of an end that stopped before `end`: behind a FIN there is
    /// nothing, and behind a RST what was on its way.
    fn is_far(&self, number: u32, end: u32) -> bool {
        let beyond = number.wrapping_sub(end).cast_signed();
        let most = if self.is_reset { NEAR } else { 0 };
        !(-NEAR..=most).contains(&beyond)
    }
}

/// Moves the end of what was sent up to `number`, if it is known and lies before.
fn advance_end(end: &mut Option<u32>, number: u32) {
    if end.is_some_and(|end| number.wrapping_sub(end).cast_signed() > 0) {
        *end = Some(number);
    }
}

//! The round trip between the place of the capture and an end.

use std::collections::VecDeque;

use fullpipe_units::{Span, Time};

use crate::packet::FlowPacket;

/// Maximum number of timestamps that wait for their echo.
const MAX_WAITING: usize = 4096;

/// The shortest time in which an end answered what passed on its way to it.
///
/// Every segment with a new timestamp asks, and the first one that echoes it answers (RFC 7323,
/// 4.1), whatever data is on the way; in a handshake, where timestamps may be missing, the next
/// segment answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseTimer {
    /// Timestamps on their way to the end, each with the time of its first segment.
    waiting: VecDeque<(u32, Time)>,
    /// The newest timestamp that ever was: one that was answered does not ask again, though its
    /// segments still come.
    newest: Option<u32>,
    shortest: Option<Span>,
}

impl ResponseTimer {
    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<(u32, Time)>()
    }

    /// Forgets all but the newest.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 4;
        self.waiting
            .drain(..self.waiting.len().saturating_sub(KEPT));
        self.waiting.shrink_to_fit();
    }

    /// Takes note of a segment on its way to the end.
    pub(crate) fn record_arriving_segment(&mut self, packet: &FlowPacket) {
        let Some((value, _)) = packet.timestamps else {
            return;
        };
        if self.newest.is_none_or(|newest| is_newer(value, newest)) {
            self.newest = Some(value);
            self.waiting.push_back((value, packet.at));
            if self.waiting.len() > MAX_WAITING {
                self.waiting.pop_front();
            }
        }
    }

    /// Takes note of a segment from the end. Returns the time that it took to answer, if this is
    /// the first answer.
    pub(crate) fn record_sent_segment(&mut self, packet: &FlowPacket) -> Option<Span> {
        let (_, echo) = packet.timestamps?;
        while self
            .waiting
            .front()
            .is_some_and(|(value, _)| is_newer(echo, *value))
        {
            self.waiting.pop_front();
        }
        let (_, sent) = self.waiting.pop_front_if(|(value, _)| *value == echo)?;
        let span = packet.at.duration_since(sent);
        self.shortest = Some(self.shortest.map_or(span, |shortest| shortest.min(span)));
        Some(span)
    }

    /// Returns the shortest time; `None` without an answer.
    pub(crate) fn shortest_response(&self) -> Option<Span> {
        self.shortest
    }
}

/// Compares timestamps as sequence numbers (RFC 7323, 5.2).
pub(crate) fn is_newer(value: u32, than: u32) -> bool {
    value.wrapping_sub(than).cast_signed() > 0
}

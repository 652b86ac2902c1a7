//! The state of a sender as the timestamps that it echoes show it, or else the time that its
//! answers take.

use std::collections::VecDeque;

use fullpipe_units::{Span, Time};

use crate::loops::is_newer;
use crate::packet::FlowPacket;

/// Maximum number of timestamps that are remembered.
const MAX_REMEMBERED: usize = 4096;

/// The acknowledgements of one timestamp; without timestamps, one of them.
#[derive(Debug, Clone, Copy)]
struct TimestampEcho {
    value: Option<u32>,
    /// Times of the first and the last.
    times: [Time; 2],
    /// Positions that the first and the last acknowledge.
    positions: [u64; 2],
    window: Option<u16>,
}

/// State of the path that a sender had seen when it sent a segment, which echoes the timestamp of
/// the newest acknowledgement (RFC 7323, 4.1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct EchoedState {
    /// Everything below was acknowledged; the middle of what the acknowledgements of one timestamp
    /// say.
    pub(crate) acknowledged: u64,
    /// The window that it was allowed, as it stands in the header.
    pub(crate) window: Option<u16>,
    /// From the first of those acknowledgements to this segment, if it is the first that echoes
    /// them.
    pub(crate) first_after: Option<Span>,
    /// From the last of them to this segment.
    pub(crate) after_last: Span,
    /// The least time of an answer, where no timestamp shows this one's.
    pub(crate) least: Option<Span>,
}

/// Acknowledgements by their timestamps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Echoes {
    ticks: VecDeque<TimestampEcho>,
    echoed: Option<u32>,
}

impl Echoes {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.ticks.capacity() * size_of::<TimestampEcho>()
    }

    /// Forgets all but the newest.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 4;
        self.ticks.drain(..self.ticks.len().saturating_sub(KEPT));
        self.ticks.shrink_to_fit();
    }

    /// Takes note of an acknowledgement up to `position`, with the window that data may fill.
    pub(crate) fn record_acknowledgement(
        &mut self,
        packet: &FlowPacket,
        position: u64,
        window: Option<u16>,
    ) {
        let at = packet.at;
        let value = packet.timestamps.map(|(value, _)| value);
        match self.ticks.back_mut() {
            Some(last) if last.value == value && value.is_some() => {
                last.times[1] = at;
                last.positions[1] = last.positions[1].max(position);
                last.window = window;
            }
            Some(last)
                if last
                    .value
                    .zip(value)
                    .is_some_and(|(last, value)| !is_newer(value, last)) => {}
            _ => {
                self.ticks.push_back(TimestampEcho {
                    value,
                    times: [at; 2],
                    positions: [position; 2],
                    window,
                });
                if self.ticks.len() > MAX_REMEMBERED {
                    self.ticks.pop_front();
                }
            }
        }
    }

    /// Returns the newest data that the sender of `packet` had seen; `None` where it echoes nothing
    /// that was captured. Without timestamps it had seen the data that passed here as long ago as
    /// its fastest answer takes, `least`.
    pub(crate) fn seen_by(
        &mut self,
        packet: &FlowPacket,
        least: Option<Span>,
    ) -> Option<EchoedState> {
        let at = packet.at;
        let Some((_, echo)) = packet.timestamps else {
            return self.seen_before(least?, at);
        };
        while self
            .ticks
            .front()
            .is_some_and(|tick| tick.value.is_none_or(|value| is_newer(echo, value)))
        {
            self.ticks.pop_front();
        }
        let tick = self.ticks.front().filter(|tick| tick.value == Some(echo))?;
        let is_first = self.echoed != Some(echo);
        self.echoed = Some(echo);
        Some(EchoedState {
            first_after: is_first.then(|| at.duration_since(tick.times[0])),
            ..tick.echo_at(at)
        })
    }

    fn seen_before(&mut self, least: Span, at: Time) -> Option<EchoedState> {
        while self
            .ticks
            .get(1)
            .is_some_and(|tick| tick.is_seen(least, at))
        {
            self.ticks.pop_front();
        }
        let tick = self.ticks.front().filter(|tick| tick.is_seen(least, at))?;
        Some(EchoedState {
            least: Some(least),
            ..tick.echo_at(at)
        })
    }
}

impl TimestampEcho {
    /// Returns true if all of its data had passed at `at` as long ago as an answer takes.
    fn is_seen(&self, least: Span, at: Time) -> bool {
        at.duration_since(self.times[1]) >= least
    }

    fn echo_at(&self, at: Time) -> EchoedState {
        let [first, last] = self.positions;
        EchoedState {
            acknowledged: first + (last - first) / 2,
            window: self.window,
            first_after: None,
            after_last: at.duration_since(self.times[1].min(at)),
            least: None,
        }
    }
}

//! The state of a sender as the timestamps that it echoes show it.

use std::collections::VecDeque;

use fullpipe_units::{Span, Time};
use fullpipe_wire::Segment;

use crate::loops::is_newer;

/// Maximum number of timestamps that are remembered.
const MAX_REMEMBERED: usize = 4096;

/// The acknowledgements of one timestamp.
#[derive(Debug, Clone, Copy)]
struct Tick {
    value: u32,
    /// Times of the first and the last.
    times: [Time; 2],
    /// Positions that the first and the last acknowledge.
    positions: [u64; 2],
    window: Option<u16>,
}

/// What a sender had seen when it sent a segment (RFC 7323, 4.1: a segment echoes the timestamp of the newest
/// acknowledgement).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Echo {
    /// Everything below was acknowledged; the middle of what the acknowledgements of one timestamp say.
    pub(crate) acknowledged: u64,
    /// The window that it was allowed, as it stands in the header.
    pub(crate) window: Option<u16>,
    /// From the first of those acknowledgements to this segment, if it is the first that echoes them.
    pub(crate) first_after: Option<Span>,
    /// From the last of them to this segment.
    pub(crate) after_last: Span,
}

/// Acknowledgements by their timestamps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Echoes {
    ticks: VecDeque<Tick>,
    echoed: Option<u32>,
}

impl Echoes {
    /// Takes note of an acknowledgement up to `position`, with the window that data may fill.
    pub(crate) fn acknowledges(&mut self, segment: &Segment, position: u64, window: Option<u16>, at: Time) {
        let Some((value, _)) = segment.options.timestamps else { return };
        match self.ticks.back_mut() {
            Some(last) if last.value == value => {
                last.times[1] = at;
                last.positions[1] = last.positions[1].max(position);
                last.window = window;
            }
            Some(last) if !is_newer(value, last.value) => {}
            _ => {
                self.ticks.push_back(Tick { value, times: [at; 2], positions: [position; 2], window });
                if self.ticks.len() > MAX_REMEMBERED {
                    self.ticks.pop_front();
                }
            }
        }
    }

    /// Returns what the sender of `segment` had seen; `None` where it echoes nothing that was captured.
    pub(crate) fn seen_by(&mut self, segment: &Segment, at: Time) -> Option<Echo> {
        let (_, echo) = segment.options.timestamps?;
        while self.ticks.front().is_some_and(|tick| is_newer(echo, tick.value)) {
            self.ticks.pop_front();
        }
        let tick = self.ticks.front().filter(|tick| tick.value == echo)?;
        let is_first = self.echoed != Some(echo);
        self.echoed = Some(echo);
        let [first, last] = tick.positions;
        Some(Echo {
            acknowledged: first + (last - first) / 2,
            window: tick.window,
            first_after: is_first.then(|| at.since(tick.times[0])),
            after_last: at.since(tick.times[1].min(at)),
        })
    }
}

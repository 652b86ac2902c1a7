//! Times in which an end sends none of its data.

use fullpipe_record::StallTimes;
use fullpipe_units::{Span, Time};

/// The stalls of an end so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stalls {
    times: StallTimes,
    /// Time since which the window is closed.
    closed_since: Option<Time>,
    /// Time with a closed window since the last segment with data.
    closed: Span,
}

impl Stalls {
    /// Takes note of a window that the other end allows, as it stands in the header: zero is zero
    /// at any scale.
    #[inline]
    pub(crate) fn note_window(&mut self, window: u16, at: Time) {
        match self.closed_since {
            None if window == 0 => self.closed_since = Some(at),
            Some(since) if window > 0 => {
                self.closed += at.duration_since(since);
                self.closed_since = None;
            }
            _ => {}
        }
    }

    /// Books the time before a segment with data. Returns the part of it in which the window was
    /// closed.
    #[inline]
    pub(crate) fn book_closed_window(&mut self, at: Time) -> Span {
        if self.closed_since.is_none() && self.closed == Span::ZERO {
            return Span::ZERO;
        }
        let since = self
            .closed_since
            .as_mut()
            .map(|since| at.duration_since(std::mem::replace(since, at)));
        let closed = std::mem::take(&mut self.closed) + since.unwrap_or_default();
        self.times.closed_window += closed;
        closed
    }

    /// Books a silence that a timeout ended.
    pub(crate) fn book_timeout(&mut self, silence: Span) {
        self.times.timeouts += silence;
        self.times.timeout_count += 1;
    }

    /// Books a silence in which there was nothing to send.
    pub(crate) fn book_no_data(&mut self, silence: Span) {
        self.times.no_data += silence;
    }

    /// Returns the times of a connection that was open from the first of `opened` to the last
    /// packet at the second, of an end whose data began at the first of `data` and moved last at
    /// the second; `is_done` once all of it was acknowledged.
    pub(crate) fn times(mut self, opened: [Time; 2], data: [Time; 2], is_done: bool) -> StallTimes {
        let is_closed = self.closed_since.is_some();
        self.book_closed_window(opened[1]);
        let after_data = if is_done && !is_closed {
            opened[1].duration_since(data[1])
        } else {
            Span::ZERO
        };
        StallTimes {
            before_data: data[0].duration_since(opened[0]),
            after_data,
            ..self.times
        }
    }
}

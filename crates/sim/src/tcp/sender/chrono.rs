//! The times for which a connection was busy, and what held it back (`tcp_chrono_start`, since
//! 4.10).

use fullpipe_units::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SenderLimit {
    /// Data was outstanding or waiting.
    Busy,
    /// The other end's window held it back.
    Window,
    /// The send buffer was full and all of it sent.
    Buffer,
}

/// Three stop watches of which at most one runs; that of being busy is the sum of all.
#[derive(Debug, Clone)]
pub(super) struct LimitChronograph {
    running: Option<SenderLimit>,
    since: u64,
    spent: [u64; 3],
}

impl LimitChronograph {
    pub(super) const fn new(now: u64) -> Self {
        Self {
            running: None,
            since: now,
            spent: [0; 3],
        }
    }

    /// A limit takes precedence over the ones before it.
    pub(super) fn start(&mut self, limit: SenderLimit, now: u64) {
        if Some(limit) > self.running {
            self.set_running(Some(limit), now);
        }
    }

    /// Ends `limit`: the connection is busy, or, if `idle`, is not.
    pub(super) fn stop(&mut self, limit: SenderLimit, idle: bool, now: u64) {
        if idle {
            self.set_running(None, now);
        } else if self.running == Some(limit) && limit != SenderLimit::Busy {
            self.set_running(Some(SenderLimit::Busy), now);
        }
    }

    fn set_running(&mut self, running: Option<SenderLimit>, now: u64) {
        if let Some(limit) = self.running {
            self.spent[limit as usize] += now.saturating_sub(self.since);
        }
        self.since = now;
        self.running = running;
    }

    /// Busy, held by the window, held by the buffer; up to `now`.
    pub(super) fn limit_times(&self, now: u64) -> [Span; 3] {
        let mut spent = self.spent;
        if let Some(limit) = self.running {
            spent[limit as usize] += now.saturating_sub(self.since);
        }
        let [busy, window, buffer] = spent;
        [busy + window + buffer, window, buffer].map(|nanos| Span::from_micros(nanos / 1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_connection_back_is_part_of_its_busy_time() {
        let mut chrono = LimitChronograph::new(0);
        chrono.start(SenderLimit::Busy, 1_000_000);
        chrono.start(SenderLimit::Window, 2_000_000);
        chrono.start(SenderLimit::Busy, 2_500_000);
        chrono.stop(SenderLimit::Buffer, false, 2_600_000);
        chrono.stop(SenderLimit::Window, false, 4_000_000);
        chrono.stop(SenderLimit::Busy, true, 9_000_000);
        assert_eq!(
            chrono.limit_times(20_000_000),
            [8, 2, 0].map(Span::from_millis)
        );
    }
}

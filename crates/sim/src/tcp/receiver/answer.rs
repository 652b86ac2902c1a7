//! When an acknowledgement is sent, and the window that it offers.

use fullpipe_units::{ByteCount, Span, Time};

use super::{MIN_DELAY, Receiver};
use crate::tcp::packet::AckSegment;

/// Greatest delay (`HZ / 2` and `TCP_DELACK_MAX` leave 200 ms).
pub(super) const MAX_DELAY: u64 = 200_000;
/// `TCP_FASTRETRANS_THRESH`: so many acknowledgements of the same segment are never held back.
const NEVER_HELD: u64 = 3;
/// `tcp_comp_sack_nr`, `tcp_comp_sack_delay_ns` and `tcp_comp_sack_slack_ns`, since 4.18.
const MAX_HELD: u64 = 44;
const MAX_HOLD: u64 = 1_000_000;
const HOLD_SLACK: u64 = 100_000;

impl Receiver {
    /// `__tcp_ack_snd_check`.
    pub(super) fn acknowledge_if_due(&mut self, now: Time) -> Option<AckSegment> {
        let unacknowledged = (self.next - self.acknowledged) * self.mss;
        let second = unacknowledged > self.mss && self.select_window() >= self.window;
        if second || self.quick > 0 || self.at_once {
            return Some(self.send_ack(now));
        }
        if self.queue.is_empty() {
            self.delay_ack(now);
            return None;
        }
        self.hold_ack(now)
    }

    /// Joins acknowledgements that only report more of the same (`tcp_comp_sack_…`).
    fn hold_ack(&mut self, now: Time) -> Option<AckSegment> {
        if self.held >= MAX_HELD {
            return Some(self.send_ack(now));
        }
        if self.repeated.0 != self.next {
            self.repeated = (self.next, 0);
        }
        if self.repeated.1 < NEVER_HELD {
            self.repeated.1 += 1;
            return Some(self.send_ack(now));
        }
        self.held += 1;
        if self.held_until.is_none() {
            let rtt8 = if self.tuning.rtt8 == 0 {
                self.handshake_rtt8
            } else {
                self.tuning.rtt8.min(self.handshake_rtt8.max(1))
            };
            let delay = (rtt8 * (1_000 >> 3) / 20).min(MAX_HOLD);
            self.held_until = Some(now + Span::from_nanos(delay + HOLD_SLACK));
        }
        None
    }

    /// `tcp_send_delayed_ack`.
    fn delay_ack(&mut self, now: Time) {
        if self.delayed_until.is_none() {
            let least = self.clock.ticks_in(MIN_DELAY);
            let by_rtt = self.clock.ticks_in(self.handshake_rtt8 >> 3).max(least);
            let delay = self.delay.min(by_rtt).min(self.clock.ticks_in(MAX_DELAY));
            self.delayed_until = Some(self.clock.timer_expiry(now, delay));
        }
    }

    /// Returns true if reading has at least doubled the window (`tcp_cleanup_rbuf`).
    pub(super) fn has_doubled_window(&mut self) -> bool {
        let now = self.offered_window();
        if 2 * now > self.clamp {
            return false;
        }
        let new = self.select_window();
        new > 0 && new >= 2 * now
    }

    /// `tcp_receive_window`.
    pub(super) fn offered_window(&self) -> u64 {
        (self.acknowledged * self.mss + self.window).saturating_sub(self.next * self.mss)
    }

    /// `__tcp_select_window`.
    fn select_window(&mut self) -> u64 {
        let allowed = self.window_of(self.buffer);
        let whole = self.clamp.min(allowed);
        let mss = self.mss.min(whole);
        let mut free = self.window_of(self.buffer.saturating_sub(self.allocated));
        if mss == 0 {
            return 0;
        }
        if free < whole >> 1 {
            self.quick = 0;
            free = free >> self.window_scale << self.window_scale;
            if free < allowed >> 4 || free < mss {
                return 0;
            }
        }
        free = free.min(self.threshold);
        if self.window_scale > 0 {
            return self.in_units(free);
        }
        if self.window + mss <= free || self.window > free {
            free / mss * mss
        } else if mss == whole && free > self.window + (whole >> 1) {
            free
        } else {
            self.window
        }
    }

    /// Rounds a window up to what a header can carry.
    pub(super) const fn in_units(&self, window: u64) -> u64 {
        let unit = 1 << self.window_scale;
        (window + unit - 1) & !(unit - 1)
    }

    /// `tcp_send_ack` and `tcp_select_window`: what was offered is never taken back.
    pub(super) fn send_ack(&mut self, now: Time) -> AckSegment {
        let offered = self.offered_window();
        let new = self.select_window();
        self.window = if new < offered {
            self.in_units(offered)
        } else {
            new
        };
        self.acknowledged = self.next;
        if self.pending {
            self.quick = self.quick.saturating_sub(1);
        }
        self.pending = false;
        self.at_once = false;
        self.pushed = false;
        self.held = 0;
        self.held_until = None;
        self.delayed_until = None;
        self.counts.acks += 1;
        AckSegment {
            next: self.next,
            window: ByteCount::new(
                self.window.min(self.max_window) >> self.window_scale << self.window_scale,
            ),
            blocks: self.queue.sack_blocks(self.next, self.max_blocks),
            stamp: self.clock.timestamp_at(now),
            echo: self.recent,
        }
    }
}

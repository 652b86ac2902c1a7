//! The one timer of a connection: timeout, loss probe, reordered segments, closed window.

use fullpipe_units::Time;

use super::{RecoveryState, Sender};
use crate::tcp::rate::RoundTrip;

/// `tcp_retries2`.
const MAX_TIMEOUTS: u32 = 15;
/// `TCP_TIMEOUT_MIN`, in ticks.
const MIN_TIMEOUT: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimerKind {
    /// `ICSK_TIME_RETRANS`.
    Timeout,
    /// `ICSK_TIME_LOSS_PROBE`.
    LossProbe,
    /// `ICSK_TIME_REO_TIMEOUT`.
    Reordered,
    /// `ICSK_TIME_PROBE0`.
    ClosedWindow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SenderTimer {
    pub(super) kind: TimerKind,
    pub(super) at: Time,
}

impl Sender {
    /// Returns when [`Self::wake_timer`] is to be called at the latest, and [`Self::next_burst`] after
    /// it; none where nothing is due.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        let pace = self
            .waits_for_pace
            .then(|| self.clock.moment_at(self.departs_at));
        Time::earlier_deadline(self.timer.map(|timer| timer.at), pace)
    }

    /// Lets the timer go off if its time has come.
    #[inline]
    pub fn wake_timer(&mut self, now: Time) {
        if let Some(timer) = self.timer.take_if(|timer| timer.at <= now) {
            self.go_off(now, timer.kind);
        }
    }

    fn go_off(&mut self, now: Time, kind: TimerKind) {
        self.pass.pending = true;
        match kind {
            TimerKind::Timeout => self.time_out(now),
            TimerKind::LossProbe => self.probe_due = true,
            TimerKind::Reordered => self.reordered_are_late(now),
            TimerKind::ClosedWindow => self.probe_window(now),
        }
    }

    /// `tcp_retransmit_timer`.
    fn time_out(&mut self, now: Time) {
        if self.board.packets_out() == 0 {
            return;
        }
        if self.is_hopeless(now) {
            self.is_dead = true;
            self.pass.pending = false;
            return;
        }
        self.enter_loss(now);
        self.timeouts += 1;
        self.backoff += 1;
        let longest = self.clock.ticks_in(RoundTrip::MAX_TIMEOUT);
        self.timeout = (self.timeout << 1).min(longest);
        self.arm_timer(now, TimerKind::Timeout, self.timeout);
    }

    /// Returns true if the connection has given up: nothing was acknowledged for 15 timeouts
    /// (`tcp_retries2`).
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// `retransmits_timed_out`: for as long as so many timeouts, each twice as long as the one
    /// before, would take.
    fn is_hopeless(&self, now: Time) -> bool {
        let doubling = (RoundTrip::MAX_TIMEOUT / RoundTrip::MIN_TIMEOUT).ilog2();
        let longest = u64::from(MAX_TIMEOUTS - doubling) * RoundTrip::MAX_TIMEOUT;
        let micros = ((2 << doubling) - 1) * RoundTrip::MIN_TIMEOUT + longest;
        self.timeouts > 0
            && self
                .resent_at
                .is_some_and(|at| self.clock.timestamp_at(now).millis_since(at) >= micros / 1_000)
    }

    fn probe_window(&mut self, now: Time) {
        if self.board.packets_out() > 0 || !self.has_unsent() {
            return;
        }
        self.pass.window_probe = true;
        self.backoff += 1;
        self.watch_window(now);
    }

    /// Asks for the window again if it is closed (`tcp_check_probe_timer`).
    pub(super) fn watch_window(&mut self, now: Time) {
        let longest = self.clock.ticks_in(RoundTrip::MAX_TIMEOUT);
        let base = self
            .timeout
            .max(self.clock.ticks_in(RoundTrip::MIN_TIMEOUT));
        self.arm_timer(
            now,
            TimerKind::ClosedWindow,
            (base << self.backoff.min(16)).min(longest),
        );
    }

    /// `tcp_set_xmit_timer`.
    pub(super) fn set_timer(&mut self, now: Time) {
        if !self.schedule_probe(now, true) {
            self.rearm_retransmission(now);
        }
    }

    /// `tcp_rearm_rto`.
    pub(super) fn rearm_retransmission(&mut self, now: Time) {
        if self.board.packets_out() == 0 {
            self.timer = None;
            return;
        }
        let pending = self.timer.map(|timer| timer.kind);
        let ticks = if matches!(pending, Some(TimerKind::Reordered | TimerKind::LossProbe)) {
            self.clock.ticks_in(self.until_timeout(now).max(1))
        } else {
            self.timeout
        };
        self.arm_timer(now, TimerKind::Timeout, ticks);
    }

    /// `tcp_schedule_loss_probe`. A probe comes after two round trips, where the timeout does not
    /// come first.
    pub(super) fn schedule_probe(&mut self, now: Time, advancing: bool) -> bool {
        if self.board.packets_out() == 0 || !self.may_probe() {
            return false;
        }
        let spare = if self.board.packets_out() == 1 {
            RoundTrip::MIN_TIMEOUT
        } else {
            self.clock.micros_in(MIN_TIMEOUT)
        };
        let ticks = self.clock.ticks_in((self.rtt.smoothed8 >> 2) + spare);
        let timeout = if advancing {
            self.timeout
        } else {
            self.clock.ticks_in(self.until_timeout(now))
        };
        let ticks = if timeout > 0 {
            ticks.min(timeout)
        } else {
            ticks
        };
        self.arm_timer(now, TimerKind::LossProbe, ticks);
        true
    }

    /// Returns true if a loss probe may be sent: recovery is not on.
    pub(super) fn may_probe(&self) -> bool {
        matches!(self.state, RecoveryState::Open | RecoveryState::Reduced)
    }

    /// Waits for segments that may be reordered (`tcp_rack_mark_lost`).
    pub(super) fn wait_for_reordered(&mut self, now: Time, micros: u64) {
        let ticks = self
            .clock
            .ticks_in(micros + self.clock.micros_in(MIN_TIMEOUT));
        self.arm_timer(now, TimerKind::Reordered, ticks);
    }

    /// Microseconds until the timeout of the first outstanding segment (`tcp_rto_delta_us`); zero
    /// if it is over.
    fn until_timeout(&self, now: Time) -> u64 {
        let timeout = self.clock.micros_in(self.timeout);
        let sent = self.board.head_sent_at();
        sent.map_or(timeout, |at| {
            (at + timeout).saturating_sub(self.clock.micros_at(now))
        })
    }

    /// `tcp_reset_xmit_timer`: paced segments leave later.
    pub(super) fn arm_timer(&mut self, now: Time, kind: TimerKind, ticks: u64) {
        let pace = if self.is_paced() {
            self.departs_at.saturating_sub(self.clock.nanos_at(now)) / 1_000
        } else {
            0
        };
        let ticks = ticks
            + if pace > 0 && kind != TimerKind::Reordered {
                self.clock.ticks_in(pace)
            } else {
                0
            };
        self.timer = Some(SenderTimer {
            kind,
            at: self.clock.timer_expiry(now, ticks),
        });
    }

    pub(super) fn timer_kind(&self) -> Option<TimerKind> {
        self.timer.map(|timer| timer.kind)
    }
}

//! The states of loss recovery (`tcp_fastretrans_alert`), the reduction of the window, and its
//! undoing.

use fullpipe_units::Time;

use super::{INITIAL_REORDERING, RecoveryState, Sender};
use crate::tcp::control::ControlState;
use crate::tcp::packet::AckSegment;
use crate::tcp::rack::{AckTally, RackState};
use crate::tcp::scoreboard::LossRule;
use crate::tcp::window::CongestionWindow;

impl Sender {
    /// `tcp_ack_is_dubious`.
    pub(super) fn is_dubious(&self, tally: &AckTally) -> bool {
        self.state != RecoveryState::Open
            || tally.data_sacked
            || tally.duplicate
            || !(tally.advanced || tally.window_changed)
    }

    /// `tcp_fastretrans_alert`.
    pub(super) fn process_losses(
        &mut self,
        now: Time,
        prior_acknowledged: u64,
        tally: &mut AckTally,
    ) {
        if self.state == RecoveryState::Open {
            self.resent_at = None;
        } else if self.board.acknowledged_segments() >= self.high {
            self.end_episode();
        }
        match self.state {
            RecoveryState::Recovery => self.go_on_recovering(now, prior_acknowledged, tally),
            RecoveryState::Loss => {
                self.process_loss(now, tally);
                if self.state != RecoveryState::Loss {
                    self.count_timeout_time(tally.now);
                }
                let lost_again = self.identify_losses(now, tally);
                if self.state == RecoveryState::Open || lost_again {
                    self.enter_if_lost();
                }
            }
            RecoveryState::Open | RecoveryState::Disorder | RecoveryState::Reduced => {
                if self.state <= RecoveryState::Disorder {
                    self.undo_by_duplicates(now);
                }
                self.identify_losses(now, tally);
                self.enter_if_lost();
            }
        }
    }

    /// The conditions under which a state ends.
    fn end_episode(&mut self) {
        match self.state {
            RecoveryState::Reduced if self.board.acknowledged_segments() != self.high => {
                self.end_reduction();
                self.state = RecoveryState::Open;
            }
            RecoveryState::Recovery => {
                self.undo_recovery();
                let recovering = std::mem::replace(&mut self.state, RecoveryState::Open);
                self.end_reduction_of(recovering);
            }
            RecoveryState::Open
            | RecoveryState::Disorder
            | RecoveryState::Reduced
            | RecoveryState::Loss => {}
        }
    }

    fn go_on_recovering(&mut self, now: Time, prior_acknowledged: u64, tally: &mut AckTally) {
        if tally.advanced && self.undo_partly(now, prior_acknowledged, tally) {
            return;
        }
        if self.undo_by_duplicates(now) {
            self.try_to_open();
        }
        self.identify_losses(now, tally);
        if self.state != RecoveryState::Recovery && self.board.lost > 0 {
            self.enter_recovery();
        }
    }

    fn enter_if_lost(&mut self) {
        if self.board.lost > 0 {
            self.enter_recovery();
        } else {
            self.try_to_open();
        }
    }

    /// `tcp_enter_recovery`.
    fn enter_recovery(&mut self) {
        if !self.any_resent() {
            self.resent_at = None;
        }
        self.prior_ssthresh = 0;
        self.begin_undo();
        if !self.is_reducing() {
            self.prior_ssthresh = self.current_ssthresh();
            self.begin_reduction();
        }
        self.state = RecoveryState::Recovery;
        self.counts.recoveries += 1;
    }

    /// `tcp_init_cwnd_reduction`.
    fn begin_reduction(&mut self) {
        self.high = self.board.next_segment();
        self.probe = None;
        self.window.count = 0;
        self.prior_cwnd = self.window.cwnd;
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.window.ssthresh = self.control.on_loss(&self.window);
    }

    /// Proportional rate reduction (RFC 6937; `tcp_cwnd_reduction`, since 5.19 with the slow start
    /// part only where nothing more was lost).
    pub(super) fn reduce_window(&mut self, acked: u64, lost: u64, advanced: bool) {
        if acked == 0 || self.prior_cwnd == 0 {
            return;
        }
        let in_flight = self.board.in_flight();
        self.prr_delivered += acked;
        let (delivered, sent) = (self.prr_delivered.cast_signed(), self.prr_out.cast_signed());
        let room = self.window.ssthresh.cast_signed() - in_flight.cast_signed();
        let may_send = if room < 0 {
            let share = u128::from(self.window.ssthresh) * u128::from(self.prr_delivered);
            (share.div_ceil(u128::from(self.prior_cwnd)) as u64).cast_signed() - sent
        } else {
            let grown = i64::from(advanced && lost == 0);
            ((delivered - sent).max(acked.cast_signed()) + grown).min(room)
        };
        // Recovery begins with a retransmission in any case.
        let may_send = may_send.max(i64::from(self.prr_out == 0));
        self.window.cwnd = in_flight.saturating_add_signed(may_send).max(1);
    }

    /// `tcp_end_cwnd_reduction`, in the state that it ends.
    fn end_reduction(&mut self) {
        self.end_reduction_of(self.state);
    }

    fn end_reduction_of(&mut self, state: RecoveryState) {
        let set = self.window.ssthresh < CongestionWindow::UNSET;
        if !self.control.is_bbr()
            && set
            && (state == RecoveryState::Reduced || self.undo_from.is_some())
        {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// `tcp_in_cwnd_reduction`.
    pub(super) fn is_reducing(&self) -> bool {
        matches!(self.state, RecoveryState::Reduced | RecoveryState::Recovery)
    }

    /// `tcp_current_ssthresh`.
    pub(super) fn current_ssthresh(&self) -> u64 {
        if self.is_reducing() {
            self.window.ssthresh
        } else {
            self.window
                .ssthresh
                .max((self.window.cwnd >> 1) + (self.window.cwnd >> 2))
        }
    }

    /// `tcp_rack_mark_lost`. Returns whether retransmissions were lost again.
    fn identify_losses(&mut self, now: Time, tally: &mut AckTally) -> bool {
        if self.board.packets_out() == 0 || !self.rack.advanced {
            return false;
        }
        self.rack.advanced = false;
        let (again, wait) = self.mark_losses(tally.now);
        if let Some(wait) = wait {
            self.wait_for_reordered(now, wait);
            tally.set_timer = false;
        }
        again > 0
    }

    /// Marks what is lost. Returns how many retransmissions are, and for how long others are waited
    /// for.
    fn mark_losses(&mut self, micros: u64) -> (u64, Option<u64>) {
        let rule = LossRule {
            newest: self.rack.newest,
            now: micros,
            after: self.rack.rtt + self.reordering_wait(),
        };
        let marked = self.board.detect_losses(rule);
        self.counts.lost += marked.lost;
        (marked.again, marked.wait)
    }

    /// `tcp_rack_reo_wnd`: none until something was reordered, if recovery is on or three segments
    /// arrived out of order.
    fn reordering_wait(&self) -> u64 {
        if self.reorder_events == 0
            && (self.state >= RecoveryState::Recovery || self.board.sacked >= self.reordering)
        {
            return 0;
        }
        ((self.min_rtt.best_value() >> 2) * self.rack.steps).min(self.rtt.smoothed_rtt())
    }

    /// The timer of reordered segments went off (`tcp_rack_reo_timeout`).
    pub(super) fn reordered_are_late(&mut self, now: Time) {
        let in_flight = self.board.in_flight();
        let lost = self.counts.lost;
        let (_, wait) = self.mark_losses(self.clock.micros_at(now));
        if self.board.in_flight() != in_flight && self.state != RecoveryState::Recovery {
            self.enter_recovery();
            if !self.control.is_bbr() {
                self.reduce_window(1, self.counts.lost - lost, false);
            }
        }
        // Rounding may let the timer of ticks come before the last of them is late.
        match wait {
            Some(wait) => self.wait_for_reordered(now, wait),
            None => self.rearm_retransmission(now),
        }
    }

    /// A timeout (`tcp_enter_loss`).
    pub(super) fn enter_loss(&mut self, now: Time) {
        let micros = self.clock.micros_at(now);
        let new = self.state < RecoveryState::Recovery;
        let rule = LossRule {
            newest: self.rack.newest,
            now: micros,
            after: self.rack.rtt,
        };
        self.counts.lost += self.board.lose_all(rule);
        let first = self.timeouts == 0;
        if self.state <= RecoveryState::Disorder
            || self.high <= self.board.acknowledged_segments()
            || (self.state == RecoveryState::Loss && first)
        {
            self.prior_ssthresh = self.current_ssthresh();
            self.prior_cwnd = self.window.cwnd;
            self.window.ssthresh = self.control.on_loss(&self.window);
            self.begin_undo();
        }
        self.window.cwnd = self.board.in_flight() + 1;
        self.window.count = 0;
        self.used.1 = self.clock.ticks_at(now);
        if self.state <= RecoveryState::Disorder && self.board.sacked >= INITIAL_REORDERING {
            self.reordering = self.reordering.min(INITIAL_REORDERING);
        }
        self.state = RecoveryState::Loss;
        let (moment, situation) = (self.moment_at(now), self.bbr_situation(now));
        match &mut self.control {
            ControlState::Reno => {}
            ControlState::Cubic(cubic) => cubic.timed_out(&moment),
            ControlState::Bbr(bbr) => bbr.timed_out(&situation),
        }
        self.high = self.board.next_segment();
        self.probe = None;
        self.frto = new || !first;
        self.new_data_first = false;
        self.counts.timeouts += 1;
        if self.counts.timed_out_at.is_none() {
            self.counts.timed_out_at = Some(micros);
            self.counts.timeout_recoveries += 1;
        }
    }

    /// Retransmits what is in flight: a router says that it was too big, and what follows is
    /// smaller. The window stays as it is (`tcp_simple_retransmit`).
    pub fn send_all_again(&mut self, now: Time) {
        if self.board.packets_out() == 0 {
            return;
        }
        let rule = LossRule {
            newest: self.rack.newest,
            now: self.clock.micros_at(now),
            after: 0,
        };
        self.counts.lost += self.board.lose_all(rule);
        if self.state != RecoveryState::Loss {
            self.high = self.board.next_segment();
            self.window.ssthresh = self.current_ssthresh();
            self.prior_ssthresh = 0;
            self.undo_from = None;
            self.state = RecoveryState::Loss;
        }
        self.frto = false;
        self.pass.pending = true;
    }

    /// `tcp_process_loss`.
    fn process_loss(&mut self, now: Time, tally: &AckTally) {
        let recovered = self.board.acknowledged_segments() >= self.high;
        // RFC 5682, 3.b: what was sent only once, before the timeout, has arrived.
        if tally.advanced && self.may_undo() || self.frto && tally.original {
            return self.undo_loss(now);
        }
        if self.frto {
            if self.board.next_segment() > self.high {
                if tally.data_sacked || !tally.advanced {
                    self.frto = false;
                }
            } else if tally.advanced && !recovered {
                self.high = self.board.next_segment();
                if self.has_sendable() {
                    self.new_data_first = true;
                    return;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.undo_recovery();
            self.state = RecoveryState::Open;
        }
    }

    fn count_timeout_time(&mut self, micros: u64) {
        if let Some(at) = self.counts.timed_out_at.take() {
            self.counts.timeout_time += micros - at;
        }
    }

    /// `tcp_init_undo`.
    fn begin_undo(&mut self) {
        self.undo_from = Some(self.board.acknowledged_segments());
        let probe = u64::from(self.probe.is_some_and(|(_, again)| again));
        self.undo_left = Some(self.board.retransmitted + probe).filter(|left| *left > 0);
    }

    /// `tcp_may_undo`: all retransmissions were needless, or the answer is to a segment sent before
    /// them.
    fn may_undo(&self) -> bool {
        self.undo_from.is_some() && (self.undo_left == Some(0) || self.was_delayed())
    }

    /// `tcp_packet_delayed`.
    fn was_delayed(&self) -> bool {
        self.resent_at
            .is_none_or(|at| self.last_echo.is_some_and(|echo| echo < at))
    }

    /// `tcp_undo_cwnd_reduction`.
    fn undo_reduction(&mut self, unmark: bool) {
        if unmark {
            self.board.forget_losses();
        }
        if self.prior_ssthresh > 0 {
            if !self.control.is_bbr() {
                self.window.cwnd = self.window.cwnd.max(self.prior_cwnd);
            }
            self.window.ssthresh = self.window.ssthresh.max(self.prior_ssthresh);
        }
        self.undo_from = None;
        self.rack.advanced = true;
    }

    fn report_undo(&mut self, now: Time) {
        let situation = self.bbr_situation(now);
        if let ControlState::Bbr(bbr) = &mut self.control {
            bbr.undo_reduction(&situation);
        }
    }

    /// `tcp_try_undo_recovery`, but for the state that follows.
    fn undo_recovery(&mut self) {
        if self.may_undo() {
            self.undo_reduction(false);
        } else {
            self.rack.persist = self.rack.persist.saturating_sub(1);
        }
    }

    /// `tcp_try_undo_loss`.
    fn undo_loss(&mut self, now: Time) {
        self.undo_reduction(true);
        self.report_undo(now);
        self.timeouts = 0;
        self.state = RecoveryState::Open;
    }

    /// `tcp_try_undo_dsack`.
    fn undo_by_duplicates(&mut self, now: Time) -> bool {
        if self.undo_from.is_none() || self.undo_left != Some(0) {
            return false;
        }
        self.rack.persist = (self.rack.persist + 1).min(RackState::RECOVERIES);
        self.undo_reduction(false);
        self.report_undo(now);
        true
    }

    /// `tcp_try_undo_partial`. Returns true if nothing more is to be marked or retransmitted for
    /// now.
    fn undo_partly(&mut self, now: Time, prior_acknowledged: u64, tally: &AckTally) -> bool {
        if self.undo_from.is_none() || !self.was_delayed() {
            return false;
        }
        self.check_reordering(
            prior_acknowledged,
            self.board.highest_sacked().max(tally.rack.newest.1),
        );
        if self.board.retransmitted > 0 {
            self.pass.new_only = true;
            return true;
        }
        if !self.any_resent() {
            self.resent_at = None;
        }
        self.undo_reduction(true);
        self.report_undo(now);
        self.try_keep_open();
        false
    }

    /// `tcp_try_to_open`.
    fn try_to_open(&mut self) {
        if !self.any_resent() {
            self.resent_at = None;
        }
        if self.state != RecoveryState::Reduced {
            self.try_keep_open();
        }
    }

    /// `tcp_try_keep_open`.
    fn try_keep_open(&mut self) {
        let out_of_order = self.board.sacked + self.board.lost > 0 || self.any_resent();
        let state = if out_of_order {
            RecoveryState::Disorder
        } else {
            RecoveryState::Open
        };
        if self.state != state {
            self.state = state;
            self.high = self.board.next_segment();
        }
    }

    /// `tcp_any_retrans_done`.
    fn any_resent(&self) -> bool {
        self.board.retransmitted > 0 || self.board.head_was_resent()
    }

    /// The answer to a loss probe shows that something was lost, or not (`tcp_process_tlp_ack`).
    pub(super) fn take_probe_answer(&mut self, ack: &AckSegment, tally: &AckTally) {
        let Some((high, again)) = self.probe else {
            return;
        };
        if ack.next < high {
            return;
        }
        if !again || tally.probe_duplicate {
            self.probe = None;
        } else if ack.next > high {
            self.begin_reduction();
            self.state = RecoveryState::Reduced;
            self.end_reduction();
            self.try_keep_open();
        } else if !(tally.advanced || tally.window_changed || tally.data_sacked) {
            self.probe = None;
        }
    }
}

//! The decision what to send next (`tcp_write_xmit`, `tcp_xmit_retransmit_queue`).

use fullpipe_units::{SegCount, Time};

use super::chrono::SenderLimit;
use super::timers::TimerKind;
use super::{RecoveryState, Sender};
use crate::tcp::clock::HostClock;
use crate::tcp::control::{Bbr, ControlState};
use crate::tcp::packet::SegmentBurst;

/// `sk_gso_max_size` of ordinary devices, headers taken off.
pub(super) const MAX_TRAIN_BYTES: u64 = 65_536 - 1 - 320;
/// Nanoseconds after the last transmission in which a train may wait for more.
const DEFER_FOR: u64 = 1_000_000;
/// Nanoseconds before the next acknowledgement in which a train may wait for more: since 6.18, and
/// stable releases of October 2025; half a round trip before (295ce1eb36ae).
const ACK_IS_NEAR: u64 = 1_000_000;
/// `tcp_tso_win_divisor`.
const WINDOW_DIVISOR: u64 = 3;
/// Segments at the start of a connection that are not paced.
const UNPACED: u64 = 10;

/// One pass over what may be sent, from the event that permits it until nothing more may be.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a result of its own")]
pub(super) struct SendPass {
    /// True if something has happened since the last pass ended.
    pub(super) pending: bool,
    /// True if the other end is to be asked for its window.
    pub(super) window_probe: bool,
    /// True if nothing is to be retransmitted in this pass.
    pub(super) new_only: bool,
    /// New segments sent in this pass.
    sent: u64,
    /// Limits that deferring found.
    limited_by_congestion: bool,
    limited_by_receiver: bool,
}

impl Sender {
    /// Returns the next segments to send at `now`; `None` until something else happens. A caller
    /// calls it until then.
    pub fn next_burst(&mut self, now: Time) -> Option<SegmentBurst> {
        if self.waits_for_pace && self.departs_at <= self.clock.nanos_at(now) {
            self.waits_for_pace = false;
            self.pass.pending = true;
        }
        if !self.pass.pending {
            return None;
        }
        self.clock.read(now);
        if std::mem::take(&mut self.pass.window_probe) {
            return Some(SegmentBurst {
                is_probe: true,
                ..self.make_burst(self.board.acknowledged_segments(), 1, now)
            });
        }
        if std::mem::take(&mut self.probe_due)
            && let Some(burst) = self.send_loss_probe(now)
        {
            return Some(burst);
        }
        let lost_first = !self.new_data_first && !self.pass.new_only && self.board.has_to_resend();
        let burst = if lost_first {
            self.retransmit_lost(now)
        } else {
            None
        };
        if let Some(burst) = burst.or_else(|| self.send_new(now)) {
            return Some(burst);
        }
        if std::mem::take(&mut self.new_data_first) && self.board.next_segment() <= self.high {
            // Nothing new could be sent: the usual recovery (RFC 5682, 2.b).
            self.frto = false;
            if let Some(burst) = self.retransmit_lost(now) {
                return Some(burst);
            }
        }
        self.end_pass(now);
        None
    }

    /// Returns the train with which data would begin at `now`: half of the window at most.
    pub fn first_train(&self, now: Time) -> SegmentBurst {
        self.make_burst(0, self.longest_burst().min(self.window.cwnd >> 1), now)
    }

    /// Returns true if new data could be sent as far as the other end's window goes.
    pub(super) fn has_sendable(&self) -> bool {
        self.has_unsent() && self.window_segments() > 0
    }

    fn make_burst(&self, first: u64, segments: u64, now: Time) -> SegmentBurst {
        SegmentBurst {
            first,
            segments: SegCount::new(segments),
            stamp: self.clock.timestamp_at(now),
            echo: self.echo,
            // Trains (`__tcp_transmit_skb`, since 5.1), and the end of what is written
            // (`tcp_push`).
            pushes: segments > 1 || !self.has_unsent(),
            is_probe: false,
        }
    }

    fn end_pass(&mut self, now: Time) {
        let SendPass {
            sent,
            limited_by_congestion,
            limited_by_receiver,
            ..
        } = self.pass;
        self.pass = SendPass::default();
        let nanos = self.clock.nanos_at(now);
        if sent > 0 || self.has_unsent() {
            if limited_by_receiver {
                self.chrono.start(SenderLimit::Window, nanos);
            } else {
                self.chrono.stop(SenderLimit::Window, false, nanos);
            }
            let limited = limited_by_congestion || self.board.in_flight() >= self.window.cwnd;
            if sent > 0 || limited {
                self.validate_window(now, limited);
            }
        }
        if sent > 0 {
            self.schedule_probe(now, false);
        }
        if self.board.packets_out() == 0 {
            if self.has_unsent() && !self.waits_for_pace && self.timer_kind().is_none() {
                self.watch_window(now);
            }
            if !self.has_unsent() {
                self.chrono.stop(SenderLimit::Busy, true, nanos);
            }
        }
        self.check_space(now);
    }

    /// The longest train (`tcp_tso_autosize`): what the pace gives in a millisecond, and more on
    /// short ways.
    fn longest_burst(&self) -> u64 {
        let mut bytes = self.pacing_rate >> 10;
        let shift = self.min_rtt.best_value() >> 9;
        if shift < 32 {
            bytes += MAX_TRAIN_BYTES >> shift;
        }
        let least = self.control.as_bbr().map_or(2, Bbr::min_train);
        (bytes.min(MAX_TRAIN_BYTES) / self.mss)
            .max(least)
            .min(self.longest_train)
    }

    fn must_wait_for_pace(&mut self, now: Time) -> bool {
        let waits = self.is_paced() && self.departs_at > self.clock.nanos_at(now);
        self.waits_for_pace |= waits;
        waits
    }

    fn retransmit_lost(&mut self, now: Time) -> Option<SegmentBurst> {
        let room = self.window.cwnd.saturating_sub(self.board.in_flight());
        if room == 0 || !self.board.has_to_resend() || self.must_wait_for_pace(now) {
            return None;
        }
        let most = room.min(self.longest_burst());
        let micros = self.clock.micros_at(now);
        let delivery = &mut self.delivery;
        let (first, count) = self
            .board
            .retransmit_lost(most, || delivery.record_sent_segment(micros, false))?;
        self.resent_at.get_or_insert(HostClock::stamp_at(micros));
        self.undo_left = Some(self.undo_left.unwrap_or(0) + count);
        self.counts.retransmitted += count;
        if first == self.board.acknowledged_segments()
            && self.timer_kind() != Some(TimerKind::Reordered)
        {
            self.arm_timer(now, TimerKind::Timeout, self.timeout);
        }
        self.record_departure(now, count);
        Some(self.make_burst(first, count, now))
    }

    /// Sends what shows whether the end of a flight was lost: new data, or the last segment again
    /// (`tcp_send_loss_probe`).
    fn send_loss_probe(&mut self, now: Time) -> Option<SegmentBurst> {
        let burst = if self.probe.is_some() {
            None
        } else if self.has_sendable() {
            let burst = self.transmit_new(now, 1);
            self.probe = Some((self.board.next_segment(), false));
            Some(burst)
        } else {
            let sent = self
                .delivery
                .record_sent_segment(self.clock.micros_at(now), false);
            self.board.resend_last(sent).map(|(first, count)| {
                self.counts.retransmitted += count;
                self.probe = Some((self.board.next_segment(), true));
                self.record_departure(now, count);
                self.make_burst(first, count, now)
            })
        };
        self.rearm_retransmission(now);
        burst
    }

    fn send_new(&mut self, now: Time) -> Option<SegmentBurst> {
        let unsent = self.unsent_segments();
        if unsent == 0 || self.must_wait_for_pace(now) {
            return None;
        }
        let room = self.window.cwnd.saturating_sub(self.board.in_flight());
        if room == 0 {
            return None;
        }
        let longest = self.longest_burst();
        // At least two trains are to be in flight (`tcp_cwnd_test`).
        let quota = room.min((self.window.cwnd >> 1).max(1)).min(longest);
        let packet = self.head_packet(quota).min(unsent);
        let window = self.window_segments();
        if window == 0 {
            self.pass.limited_by_receiver = true;
            return None;
        }
        if packet > 1 && self.defers_train(now, room, packet, packet == unsent, longest) {
            return None;
        }
        let count = quota.min(packet).min(window);
        self.head[0] = self.head[0].saturating_sub(count);
        Some(self.transmit_new(now, count))
    }

    fn transmit_new(&mut self, now: Time, count: u64) -> SegmentBurst {
        let idle = self.board.packets_out() == 0;
        if self.board.in_flight() == 0 {
            self.restart_control(now);
        }
        let sent = self
            .delivery
            .record_sent_segment(self.clock.micros_at(now), idle);
        let first = self.board.next_segment();
        self.board.push_segments(count, sent);
        self.pass.sent += count;
        self.record_departure(now, count);
        // The end of the pass sets the timer anew, unless recovery is on.
        if !self.may_probe() && (idle || self.timer_kind() == Some(TimerKind::LossProbe)) {
            self.rearm_retransmission(now);
        }
        self.make_burst(first, count, now)
    }

    /// `CA_EVENT_TX_START`.
    fn restart_control(&mut self, now: Time) {
        let ticks = self.clock.ticks_at(now);
        let situation = self.bbr_situation(now);
        let program = self.delivery.limited_until > 0;
        match &mut self.control {
            ControlState::Bbr(bbr) if program => {
                self.window.cwnd = bbr.restart_after_idle(&situation);
                self.pacing_rate = bbr.pacing_rate;
            }
            ControlState::Cubic(cubic) => {
                cubic.restart_after_idle(ticks.saturating_sub(self.last_sent), ticks);
            }
            ControlState::Reno | ControlState::Bbr(_) => {}
        }
    }

    /// Notes that `count` segments leave now, and when the next may (`tcp_update_skb_after_send`,
    /// since 5.0).
    fn record_departure(&mut self, now: Time, count: u64) {
        if self.is_reducing() {
            self.prr_out += count;
        }
        let nanos = self.clock.nanos_at(now);
        let before = self.departs_at;
        self.departs_at = before.max(nanos);
        if self.is_paced() && self.pacing_rate > 0 && self.counts.data_segments_out >= UNPACED {
            let length =
                u128::from(count * self.mss) * 1_000_000_000 / u128::from(self.pacing_rate);
            let length = u64::try_from(length).unwrap_or(u64::MAX >> 1);
            // A late timer is made up for, up to half of the train.
            self.departs_at += length - (length / 2).min(self.departs_at - before);
        }
        self.counts.data_segments_out += count;
        self.counts.last_data_at = self.clock.micros_at(now);
        self.last_sent = self.clock.ticks_at(now);
    }

    /// Segments of the packet at the head of the queue. Packets are cut and joined as trains need
    /// (`tso_fragment`, `tcp_grow_skb` since 6.10), and waiting for more depends on their borders.
    fn head_packet(&mut self, quota: u64) -> u64 {
        let whole = self.buffer.packet_segments;
        if self.head[0] == 0 {
            self.head = [
                if self.head[1] == 0 {
                    whole
                } else {
                    self.head[1]
                },
                whole,
            ];
        }
        while self.head[0] < quota {
            let moved = (quota - self.head[0]).min(self.head[1]);
            self.head[0] += moved;
            self.head[1] -= moved;
            if self.head[1] == 0 {
                self.head[1] = whole;
            }
        }
        self.head[0]
    }

    /// Segments that the other end's window still permits.
    fn window_segments(&self) -> u64 {
        self.window_segments
            .saturating_sub(self.board.next_segment())
    }

    /// Waits with a train that could become longer, while acknowledgements are about to come
    /// (`tcp_tso_should_defer`).
    fn defers_train(
        &mut self,
        now: Time,
        room: u64,
        packet: u64,
        is_last: bool,
        longest: u64,
    ) -> bool {
        let nanos = self.clock.nanos_at(now);
        if self.state >= RecoveryState::Recovery
            || nanos.saturating_sub(self.departs_at) > DEFER_FOR
        {
            return false;
        }
        let receiver = self
            .window_end
            .saturating_sub(self.board.next_segment() * self.mss);
        let congestion = room * self.mss;
        let limit = receiver.min(congestion);
        let packet = packet * self.mss;
        if limit >= longest * self.mss || (!is_last && limit >= packet) {
            return false;
        }
        let part = self.snd_wnd.min(self.window.cwnd * self.mss) / WINDOW_DIVISOR;
        if limit >= part {
            return false;
        }
        let Some(head) = self.board.head_sent_at() else {
            return false;
        };
        // The acknowledgement of the oldest segment must be near.
        let srtt = self.rtt.smoothed8 * 125;
        if head * 1_000 + srtt > nanos + (srtt >> 1).min(ACK_IS_NEAR) {
            return false;
        }
        if congestion < receiver {
            self.pass.limited_by_congestion |= congestion <= packet;
        } else {
            self.pass.limited_by_receiver |= receiver <= packet;
        }
        true
    }
}

//! The news of an acknowledgement: what it delivers, and how long that took.

use fullpipe_units::Time;

use super::{MAX_REORDERING, MIN_RTT_SECONDS, RecoveryState, Sender};
use crate::tcp::clock::HostClock;
use crate::tcp::control::ControlState;
use crate::tcp::packet::AckSegment;
use crate::tcp::rack::AckTally;
use crate::tcp::rate::RateSample;

impl Sender {
    pub(super) fn tally_ack(&self, now: Time, ack: &AckSegment) -> AckTally {
        AckTally {
            now: self.clock.micros_at(now),
            min_rtt: self.min_rtt.best_value(),
            rack: self.rack,
            sample: RateSample::new(self.board.in_flight()),
            first_sent: self.delivery.first_sent,
            high: self.high,
            echo: self.timestamps.then_some(ack.echo),
            reordered_from: u64::MAX,
            advanced: ack.next > self.board.acknowledged_segments(),
            ..AckTally::default()
        }
    }

    /// An acknowledgement that a later one overtook counts for what arrived twice, at most.
    pub(super) fn take_old(&mut self, now: Time, ack: &AckSegment) {
        let mut tally = self.tally_ack(now, ack);
        let acknowledged = self.board.acknowledged_segments();
        if ack
            .blocks
            .block_ranges(ack.next)
            .next()
            .is_some_and(|(_, end)| end <= ack.next)
        {
            self.take_blocks(ack, acknowledged, &mut tally);
            self.rack.duplicate_seen = tally.rack.duplicate_seen;
        }
    }

    /// `tcp_may_update_window`, `tcp_ack_update_window`: its end may be before the one that was
    /// announced, as where a device changes the scale.
    pub(super) fn take_window(&mut self, ack: &AckSegment, tally: &mut AckTally) {
        let window = ack.window.get();
        if tally.advanced || window > self.snd_wnd || window == 0 {
            tally.window_changed = window != self.snd_wnd;
            self.snd_wnd = window;
            self.window_end = ack.next * self.mss + window;
            self.window_segments = self.window_end / self.mss;
        }
    }

    /// `tcp_sacktag_write_queue`.
    pub(super) fn take_blocks(
        &mut self,
        ack: &AckSegment,
        prior_acknowledged: u64,
        tally: &mut AckTally,
    ) {
        if ack.blocks.is_empty() {
            return;
        }
        let mut blocks = [(0, 0); 4];
        for (slot, block) in blocks.iter_mut().zip(ack.blocks.block_ranges(ack.next)) {
            *slot = block;
        }
        let [first, second, ..] = blocks;
        let count = ack.blocks.len();
        let repeated =
            first.0 < ack.next || (count > 1 && first.0 >= second.0 && first.1 <= second.1);
        if repeated {
            self.take_duplicate(first, prior_acknowledged, tally);
        }
        let news = &mut blocks[usize::from(repeated)..count];
        news.sort_unstable();
        for &(start, end) in news.iter() {
            let end = end.min(self.board.next_segment());
            if end > start.max(self.board.acknowledged_segments()) {
                self.take_block(start, end, tally);
            }
        }
        if tally.data_sacked && (self.state != RecoveryState::Loss || self.undo_from.is_some()) {
            self.check_reordering(tally.reordered_from, self.board.highest_sacked());
            tally.reordered_from = u64::MAX;
        }
    }

    fn take_block(&mut self, start: u64, end: u64, tally: &mut AckTally) {
        let mut highest = self.board.highest_sacked();
        self.board.sack_range(start, end, |part| {
            tally.record_sacked(&part, highest);
            highest = highest.max(part.end);
        });
    }

    /// `tcp_check_dsack` and `tcp_dsack_seen`.
    fn take_duplicate(
        &mut self,
        (start, end): (u64, u64),
        prior_acknowledged: u64,
        tally: &mut AckTally,
    ) {
        let segments = end.saturating_sub(start);
        if segments == 0 || segments * self.mss > self.snd_wnd.max(self.mss) {
            return;
        }
        tally.probe_duplicate = segments == 1 && self.probe.is_some_and(|(high, _)| high == end);
        self.counts.duplicates += segments;
        if self.counts.duplicates > self.counts.retransmitted {
            return;
        }
        if self.reorder_events > 0 && !tally.probe_duplicate {
            tally.rack.duplicate_seen = true;
        }
        tally.duplicate = true;
        tally.duplicates = segments;
        if end <= prior_acknowledged && self.undo_from.is_some_and(|from| end > from) {
            self.undo_left = self.undo_left.map(|left| left.saturating_sub(segments));
        }
    }

    /// `tcp_clean_rtx_queue`, and the round-trip times that follow.
    pub(super) fn take_number(
        &mut self,
        now: Time,
        ack: &AckSegment,
        prior_highest: u64,
        tally: &mut AckTally,
    ) {
        if tally.advanced {
            self.board.acknowledge_before(ack.next, |part| {
                tally.record_acknowledged(&part, HostClock::stamp_at(part.sent.at));
            });
            self.buffer.acknowledged = ack.next * self.mss;
        }
        // What arrived twice was delivered, too (`sack_delivered`).
        tally.sample.acked += tally.duplicates;
        self.delivery.delivered += tally.sample.acked;
        self.take_round_trip(now, tally);
        if tally.advanced {
            tally.set_timer = true;
            self.timeouts = 0;
            if tally.reordered_from < prior_highest {
                self.check_reordering(tally.reordered_from, prior_highest);
            }
            if self.board.packets_out() == 0 {
                self.timer = None;
            }
        } else if let (Some((first, _)), Some(head)) = (tally.sacked, self.board.head_sent_at()) {
            // Not for what was sent after the first segment was last sent, or the timeout would
            // never come.
            tally.set_timer = first < head;
        }
    }

    /// `tcp_ack_update_rtt`.
    fn take_round_trip(&mut self, now: Time, tally: &mut AckTally) {
        let micros = self.clock.micros_at(now);
        let acked = tally.acked.filter(|_| !tally.again);
        let [by_number, by_block] = [acked, tally.sacked].map(|times| {
            let (first, last) = times?;
            Some([first, last].map(|at| micros.saturating_sub(at).max(1)))
        });
        let measured = match (by_number.or(by_block), by_block.or(by_number)) {
            (Some([sample, _]), Some([_, latest])) => Some((sample, latest)),
            _ => self.round_trip_by_stamp(now, tally),
        };
        tally.sample.rtt = measured.map(|(_, latest)| latest);
        if let Some((sample, latest)) = measured {
            self.learn_round_trip(now, sample, latest);
        }
    }

    /// Of segments that were sent twice, the stamp shows which copy was answered, in milliseconds.
    fn round_trip_by_stamp(&self, now: Time, tally: &AckTally) -> Option<(u64, u64)> {
        let echo = tally.echo.filter(|_| tally.advanced)?;
        let sample = self.clock.timestamp_at(now).millis_since(echo).max(1) * 1_000;
        Some((sample, sample))
    }

    /// A round trip was measured: the timeout is as if there never was one.
    fn learn_round_trip(&mut self, now: Time, sample: u64, latest: u64) {
        self.min_rtt.lower_min(
            MIN_RTT_SECONDS * self.clock.ticks_per_second(),
            self.clock.ticks_at(now),
            latest,
        );
        self.rtt.add_sample(
            sample,
            self.board.acknowledged_segments(),
            self.board.next_segment(),
        );
        self.timeout = self.clock.ticks_in(self.rtt.retransmission_timeout());
        self.backoff = 0;
        let moment = self.moment_at(now);
        if let ControlState::Cubic(cubic) = &mut self.control {
            cubic.measure_rtt(latest, &mut self.window, &moment);
        }
    }

    /// `tcp_check_sack_reordering`.
    pub(super) fn check_reordering(&mut self, from: u64, highest: u64) {
        if from >= highest {
            return;
        }
        self.reordering = self.reordering.max((highest - from).min(MAX_REORDERING));
        self.reorder_events += 1;
    }
}

//! The least round-trip time, and the probe that renews it.

use super::{Bbr, BbrDecision, BbrMode, BbrSituation, MIN_WINDOW};
use crate::tcp::rate::RateSample;

/// Seconds for which a least round-trip time counts (`bbr_min_rtt_win_sec`).
const MIN_RTT_SECONDS: u64 = 10;
/// Milliseconds with the least window (`bbr_probe_rtt_mode_ms`).
const PROBE_RTT_MILLIS: u64 = 200;

impl Bbr {
    /// `bbr_update_min_rtt`.
    pub(super) fn update_min_rtt(
        &mut self,
        sample: &RateSample,
        now: &BbrSituation,
        steering: &mut BbrDecision,
    ) {
        let expired = now.ticks > self.min_rtt_at + MIN_RTT_SECONDS * self.hz;
        if let Some(rtt) = sample.rtt
            && (rtt <= self.min_rtt || expired)
        {
            (self.min_rtt, self.min_rtt_at) = (rtt, now.ticks);
        }
        if expired && !self.idle_restart && self.mode != BbrMode::ProbeRtt {
            self.mode = BbrMode::ProbeRtt;
            self.save_window_in_probe(now.cwnd);
            self.probe_rtt_until = None;
        }
        if self.mode == BbrMode::ProbeRtt {
            steering.ignore_rates = true;
            steering.cwnd = self.stay_in_probe_rtt(now, steering.cwnd);
        }
        if sample.rate.is_some_and(|(delivered, _)| delivered > 0) {
            self.idle_restart = false;
        }
    }

    /// `bbr_save_cwnd` when the mode is already that of the probe, which never counts as good.
    fn save_window_in_probe(&mut self, cwnd: u64) {
        self.prior_cwnd = self.prior_cwnd.max(cwnd);
    }

    fn stay_in_probe_rtt(&mut self, now: &BbrSituation, cwnd: u64) -> u64 {
        if self.probe_rtt_until.is_none() {
            if now.in_flight <= MIN_WINDOW {
                self.probe_rtt_until =
                    Some(now.ticks + (PROBE_RTT_MILLIS * self.hz).div_ceil(1_000));
                self.probe_rtt_round_done = false;
                self.round_until = now.delivered;
            }
            return cwnd;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.end_probe_rtt(now, cwnd)
        } else {
            cwnd
        }
    }

    /// `bbr_check_probe_rtt_done`.
    pub(super) fn end_probe_rtt(&mut self, now: &BbrSituation, cwnd: u64) -> u64 {
        if self.probe_rtt_until.is_none_or(|until| now.ticks <= until) {
            return cwnd;
        }
        self.min_rtt_at = now.ticks;
        if self.full {
            self.probe_bandwidth(now);
        } else {
            self.mode = BbrMode::Startup;
        }
        cwnd.max(self.prior_cwnd)
    }
}

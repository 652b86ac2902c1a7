mod bandwidth;
mod min_rtt;

use self::bandwidth::LongTerm;
use crate::tcp::filter::MinMaxFilter;
use crate::tcp::rate::RateSample;
use crate::tcp::window::CongestionWindow;

/// Bandwidths are segments a microsecond, times 2^24 (`BW_SCALE`).
const BANDWIDTH_SCALE: u32 = 24;
/// Gains are 256ths (`BBR_UNIT`).
const UNIT: u64 = 256;
/// 2 ÷ ln 2: doubles the rate in a round trip (`bbr_high_gain`).
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
const WINDOW_GAIN: u64 = 2 * UNIT;
/// `bbr_pacing_gain`: probes, drains what the probe queued, cruises.
const CYCLE: [u64; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];
/// `bbr_cwnd_min_target`.
const MIN_WINDOW: u64 = 4;
/// Rounds without growth by a quarter after which the pipe is full (`bbr_full_bw_cnt`).
const FULL_ROUNDS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BbrMode {
    #[default]
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// The state of loss recovery as BBR distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RecoveryPhase {
    /// Open, disorder or reduced: no recovery.
    #[default]
    Fine,
    /// `TCP_CA_Recovery`.
    Recovering,
    /// `TCP_CA_Loss`.
    TimedOut,
}

/// State of the connection after an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BbrSituation {
    /// Of the host's clock.
    pub(crate) micros: u64,
    pub(crate) ticks: u64,
    /// Nanoseconds until the next train may be sent (`tcp_wstamp_ns` − now).
    pub(crate) departs_in: u64,
    pub(crate) delivered: u64,
    /// When the last of those was (`delivered_mstamp`).
    pub(crate) delivered_at: u64,
    /// Segments ever marked as lost (`tp->lost`).
    pub(crate) lost: u64,
    pub(crate) in_flight: u64,
    pub(crate) cwnd: u64,
    pub(crate) outcome: RecoveryPhase,
    /// Microseconds; none before the first sample.
    pub(crate) smoothed_rtt: u64,
}

/// The values that BBR sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BbrDecision {
    pub(crate) cwnd: u64,
    /// Set when startup ends.
    pub(crate) ssthresh: Option<u64>,
    /// True if the rates of what is in flight shall not count (`app_limited` while the least
    /// round-trip time is probed).
    pub(crate) ignore_rates: bool,
}

/// BBR version 1 (`tcp_bbr.c`, the same from 4.9 to 6.18 but for the allowance for joined
/// acknowledgements, which came with 5.1). Its version 3, which is not in the kernel, is not
/// modelled.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's own flags")]
pub(crate) struct Bbr {
    hz: u64,
    mss: u64,
    max_pacing_rate: u64,
    random: u64,
    mode: BbrMode,
    /// Bytes a second (`sk_pacing_rate`).
    pub(crate) pacing_rate: u64,
    min_rtt: u64,
    /// A tick.
    min_rtt_at: u64,
    /// A tick; none until the window has become small.
    probe_rtt_until: Option<u64>,
    probe_rtt_round_done: bool,
    bandwidth: MinMaxFilter,
    rounds: u64,
    round_start: bool,
    /// Delivered segments at which a round ends (`next_rtt_delivered`).
    round_until: u64,
    cycle_at: u64,
    cycle: usize,
    pacing_gain: u64,
    window_gain: u64,
    before: RecoveryPhase,
    conserving: bool,
    idle_restart: bool,
    prior_cwnd: u64,
    full: bool,
    full_bandwidth: u64,
    full_count: u32,
    ack_epoch: u64,
    ack_epoch_acked: u64,
    extra: [u64; 2],
    extra_rounds: u32,
    extra_index: usize,
    long: LongTerm,
}

impl Bbr {
    /// Of a connection whose handshake took `rtt` microseconds (`bbr_init`).
    pub(crate) fn new(
        hz: u64,
        mss: u64,
        max_pacing_rate: u64,
        seed: u64,
        rtt: u64,
        situation: &BbrSituation,
    ) -> Self {
        let mut bbr = Self {
            hz,
            mss,
            max_pacing_rate,
            random: seed,
            min_rtt: rtt.max(1),
            min_rtt_at: situation.ticks,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            ack_epoch: situation.micros,
            ..Self::default()
        };
        bbr.long.begin_interval(situation);
        let first = (situation.cwnd << BANDWIDTH_SCALE) / situation.smoothed_rtt.max(1);
        bbr.pacing_rate = bbr.pacing_rate(first, HIGH_GAIN);
        bbr
    }

    /// Takes an acknowledgement in (`bbr_main`).
    pub(crate) fn process_ack(&mut self, sample: &RateSample, now: &BbrSituation) -> BbrDecision {
        let mut steering = BbrDecision {
            cwnd: now.cwnd,
            ssthresh: None,
            ignore_rates: false,
        };
        self.update_bandwidth(sample, now);
        self.update_aggregation(sample, now);
        self.update_cycle(sample, now);
        self.check_full(sample);
        steering.ssthresh = self.check_drain(now);
        self.update_min_rtt(sample, now, &mut steering);
        self.update_gains();
        let bandwidth = self.bandwidth_estimate();
        let rate = self.pacing_rate(bandwidth, self.pacing_gain);
        if self.full || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
        steering.cwnd = self.update_window(sample, now, steering.cwnd, bandwidth);
        steering
    }

    /// `bbr_min_tso_segs`.
    pub(crate) const fn min_train(&self) -> u64 {
        if self.pacing_rate < 1_200_000 / 8 {
            1
        } else {
            2
        }
    }

    /// `bbr_save_cwnd`, when recovery begins.
    pub(crate) fn save_window(&mut self, cwnd: u64) {
        self.prior_cwnd = if self.before == RecoveryPhase::Fine && self.mode != BbrMode::ProbeRtt {
            cwnd
        } else {
            self.prior_cwnd.max(cwnd)
        };
    }

    /// `bbr_set_state`: a timeout ends a round.
    pub(crate) fn timed_out(&mut self, now: &BbrSituation) {
        self.before = RecoveryPhase::TimedOut;
        self.full_bandwidth = 0;
        self.round_start = true;
        let mut sample = RateSample::new(0);
        sample.losses = 1;
        self.sample_long_term(&sample, now);
    }

    /// `bbr_undo_cwnd`.
    pub(crate) fn undo_reduction(&mut self, now: &BbrSituation) {
        self.full_bandwidth = 0;
        self.full_count = 0;
        self.long.reset_sampling(now);
    }

    /// Data comes after the program had left the connection without (`bbr_cwnd_event`). Returns the
    /// window.
    pub(crate) fn restart_after_idle(&mut self, now: &BbrSituation) -> u64 {
        self.idle_restart = true;
        self.ack_epoch = now.micros;
        self.ack_epoch_acked = 0;
        if self.mode == BbrMode::ProbeBandwidth {
            let rate = self.pacing_rate(self.bandwidth_estimate(), UNIT);
            if self.full || rate > self.pacing_rate {
                self.pacing_rate = rate;
            }
        } else if self.mode == BbrMode::ProbeRtt {
            return self.end_probe_rtt(now, now.cwnd);
        }
        now.cwnd
    }

    fn max_bandwidth(&self) -> u64 {
        self.bandwidth.best_value()
    }

    /// `bbr_bw`.
    fn bandwidth_estimate(&self) -> u64 {
        if self.long.in_use {
            self.long.bandwidth
        } else {
            self.max_bandwidth()
        }
    }

    /// `bbr_rate_bytes_per_sec`: one percent below the estimate.
    fn bytes_per_second(&self, bandwidth: u64, gain: u64) -> u64 {
        let rate = (u128::from(bandwidth) * u128::from(self.mss) * u128::from(gain)) >> 8;
        u64::try_from((rate * (1_000_000 / 100 * 99)) >> BANDWIDTH_SCALE).unwrap_or(u64::MAX)
    }

    fn pacing_rate(&self, bandwidth: u64, gain: u64) -> u64 {
        self.bytes_per_second(bandwidth, gain)
            .min(self.max_pacing_rate)
    }

    /// `bbr_tso_segs_goal`.
    fn train_segments(&self) -> u64 {
        const MAX_BYTES: u64 = 65_536 - 1 - 320;
        let bytes = (self.pacing_rate >> 10).min(MAX_BYTES);
        (bytes / self.mss).max(self.min_train()).min(0x7f)
    }

    /// `bbr_bdp`.
    fn bdp(&self, bandwidth: u64, gain: u64) -> u64 {
        let segments = (u128::from(bandwidth) * u128::from(self.min_rtt) * u128::from(gain)) >> 8;
        segments.div_ceil(1 << BANDWIDTH_SCALE) as u64
    }

    /// `bbr_quantization_budget`.
    fn with_budget(&self, cwnd: u64) -> u64 {
        let even = (cwnd + 3 * self.train_segments() + 1) & !1;
        if self.mode == BbrMode::ProbeBandwidth && self.cycle == 0 {
            even + 2
        } else {
            even
        }
    }

    /// `bbr_inflight`.
    fn in_flight_for(&self, bandwidth: u64, gain: u64) -> u64 {
        self.with_budget(self.bdp(bandwidth, gain))
    }

    /// `bbr_packets_in_net_at_edt`.
    fn in_flight_at_departure(&self, in_flight: u64, now: &BbrSituation) -> u64 {
        let delivered = (u128::from(self.bandwidth_estimate())
            * u128::from(now.departs_in / 1_000))
            >> BANDWIDTH_SCALE;
        let leaving = if self.pacing_gain > UNIT {
            self.train_segments()
        } else {
            0
        };
        (in_flight + leaving).saturating_sub(delivered as u64)
    }

    /// `bbr_update_cycle_phase`.
    fn update_cycle(&mut self, sample: &RateSample, now: &BbrSituation) {
        if self.mode == BbrMode::ProbeBandwidth && self.is_next_phase(sample, now) {
            self.advance_cycle(now);
        }
    }

    fn is_next_phase(&self, sample: &RateSample, now: &BbrSituation) -> bool {
        let whole = now.delivered_at.saturating_sub(self.cycle_at) > self.min_rtt;
        if self.pacing_gain == UNIT {
            return whole;
        }
        let in_flight = self.in_flight_at_departure(sample.prior_in_flight, now);
        let bandwidth = self.max_bandwidth();
        if self.pacing_gain > UNIT {
            return whole
                && (sample.losses > 0
                    || in_flight >= self.in_flight_for(bandwidth, self.pacing_gain));
        }
        whole || in_flight <= self.in_flight_for(bandwidth, UNIT)
    }

    fn advance_cycle(&mut self, now: &BbrSituation) {
        self.cycle = (self.cycle + 1) & (CYCLE.len() - 1);
        self.cycle_at = now.delivered_at;
    }

    /// `bbr_reset_probe_bw_mode`: any phase but the one that drains.
    fn probe_bandwidth(&mut self, now: &BbrSituation) {
        self.mode = BbrMode::ProbeBandwidth;
        // Knuth's generator; its high bits are random enough for one of seven.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.cycle = CYCLE.len() - 1 - ((self.random >> 33) % 7) as usize;
        self.advance_cycle(now);
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full(&mut self, sample: &RateSample) {
        if self.full || !self.round_start || sample.app_limited {
            return;
        }
        if self.max_bandwidth() >= (self.full_bandwidth * (UNIT * 5 / 4)) >> 8 {
            self.full_bandwidth = self.max_bandwidth();
            self.full_count = 0;
            return;
        }
        self.full_count += 1;
        self.full = self.full_count >= FULL_ROUNDS;
    }

    /// `bbr_check_drain`.
    fn check_drain(&mut self, now: &BbrSituation) -> Option<u64> {
        let mut ssthresh = None;
        if self.mode == BbrMode::Startup && self.full {
            ssthresh = Some(self.in_flight_for(self.max_bandwidth(), UNIT));
            self.mode = BbrMode::Drain;
        }
        if self.mode == BbrMode::Drain
            && self.in_flight_at_departure(now.in_flight, now)
                <= self.in_flight_for(self.max_bandwidth(), UNIT)
        {
            self.probe_bandwidth(now);
        }
        ssthresh
    }

    /// `bbr_update_gains`.
    fn update_gains(&mut self) {
        let cruise = if self.long.in_use {
            UNIT
        } else {
            CYCLE[self.cycle & (CYCLE.len() - 1)]
        };
        (self.pacing_gain, self.window_gain) = match self.mode {
            BbrMode::Startup => (HIGH_GAIN, HIGH_GAIN),
            BbrMode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            BbrMode::ProbeBandwidth => (cruise, WINDOW_GAIN),
            BbrMode::ProbeRtt => (UNIT, UNIT),
        };
    }

    /// `bbr_set_cwnd`.
    fn update_window(
        &mut self,
        sample: &RateSample,
        now: &BbrSituation,
        cwnd: u64,
        bandwidth: u64,
    ) -> u64 {
        let mut cwnd = cwnd;
        if sample.acked > 0 {
            cwnd = self.recovery_window(sample, now, cwnd);
            if !self.conserving {
                let target = self.bdp(bandwidth, self.window_gain) + self.aggregation_window();
                let target = self.with_budget(target);
                if self.full {
                    cwnd = (cwnd + sample.acked).min(target);
                } else if cwnd < target || now.delivered < CongestionWindow::INITIAL {
                    cwnd += sample.acked;
                }
                cwnd = cwnd.max(MIN_WINDOW);
            }
        }
        if self.mode == BbrMode::ProbeRtt {
            cwnd.min(MIN_WINDOW)
        } else {
            cwnd
        }
    }

    /// `bbr_set_cwnd_to_recover_or_restore`.
    fn recovery_window(&mut self, sample: &RateSample, now: &BbrSituation, cwnd: u64) -> u64 {
        let mut cwnd = if sample.losses > 0 {
            cwnd.saturating_sub(sample.losses).max(1)
        } else {
            cwnd
        };
        let conserved = now.in_flight + sample.acked;
        if now.outcome == RecoveryPhase::Recovering && self.before != RecoveryPhase::Recovering {
            self.conserving = true;
            self.round_until = now.delivered;
            cwnd = conserved;
        } else if self.before != RecoveryPhase::Fine && now.outcome == RecoveryPhase::Fine {
            cwnd = cwnd.max(self.prior_cwnd);
            self.conserving = false;
        }
        self.before = now.outcome;
        if self.conserving {
            cwnd.max(conserved)
        } else {
            cwnd
        }
    }
}

#[cfg(test)]
mod tests;

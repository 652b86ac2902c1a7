//! The bandwidths that BBR knows: the greatest of late, that of a policer, and what joined
//! acknowledgements add.

use super::{BANDWIDTH_SCALE, Bbr, BbrMode, BbrSituation, UNIT};
use crate::tcp::rate::RateSample;

/// Round trips for which a bandwidth counts (`bbr_bw_rtts`).
const BANDWIDTH_ROUNDS: u64 = 10;
/// `bbr_extra_acked_win_rtts`.
const EXTRA_ROUNDS: u32 = 5;
/// `bbr_ack_epoch_acked_reset_thresh`.
const MAX_EPOCH_ACKED: u64 = 1 << 20;
/// `bbr_extra_acked_max_us`.
const MAX_EXTRA_MICROS: u64 = 100_000;
/// Rounds of an interval of the long-term estimate, at least (`bbr_lt_intvl_min_rtts`); at most
/// four times that.
const LONG_MIN_ROUNDS: u64 = 4;
/// Lost ÷ delivered in 256ths above which such an interval counts (`bbr_lt_loss_thresh`).
const LONG_LOSS: u64 = 50;
/// Rounds for which the long-term estimate is used (`bbr_lt_bw_max_rtts`).
const LONG_MAX_ROUNDS: u64 = 48;
/// Bytes a second by which two such estimates may differ (`bbr_lt_bw_diff`).
const LONG_DIFFERENCE: u64 = 4_000 / 8;

/// The long-term estimate, by which BBR notices a policer.
#[derive(Debug, Clone, Default)]
pub(super) struct LongTerm {
    sampling: bool,
    pub(super) in_use: bool,
    rounds: u64,
    pub(super) bandwidth: u64,
    /// Begin of the interval: milliseconds, segments delivered and lost.
    at: u64,
    delivered: u64,
    lost: u64,
}

impl Bbr {
    pub(super) fn update_bandwidth(&mut self, sample: &RateSample, now: &BbrSituation) {
        self.round_start = false;
        let (Some((delivered, interval)), Some(prior)) = (sample.rate, sample.prior_delivered())
        else {
            return;
        };
        if prior >= self.round_until {
            self.round_until = now.delivered;
            self.rounds += 1;
            self.round_start = true;
            self.conserving = false;
        }
        self.sample_long_term(sample, now);
        let bandwidth = (delivered << BANDWIDTH_SCALE) / interval;
        if !sample.app_limited || bandwidth >= self.max_bandwidth() {
            self.bandwidth
                .raise_max(BANDWIDTH_ROUNDS, self.rounds, bandwidth);
        }
    }

    /// `bbr_lt_bw_sampling`.
    pub(super) fn sample_long_term(&mut self, sample: &RateSample, now: &BbrSituation) {
        if self.long.in_use {
            if self.mode == BbrMode::ProbeBandwidth && self.round_start {
                self.long.rounds += 1;
                if self.long.rounds >= LONG_MAX_ROUNDS {
                    self.long.reset_sampling(now);
                    self.probe_bandwidth(now);
                }
            }
            return;
        }
        let Some(bandwidth) = self.long.sample_bandwidth(sample, self.round_start, now) else {
            return;
        };
        let before = self.long.bandwidth;
        if before > 0 {
            let difference = bandwidth.abs_diff(before);
            if difference * UNIT <= UNIT / 8 * before
                || self.bytes_per_second(difference, UNIT) <= LONG_DIFFERENCE
            {
                self.long.bandwidth = u64::midpoint(bandwidth, before);
                self.long.in_use = true;
                self.pacing_gain = UNIT;
                self.long.rounds = 0;
                return;
            }
        }
        self.long.bandwidth = bandwidth;
        self.long.begin_interval(now);
    }

    /// `bbr_update_ack_aggregation`.
    pub(super) fn update_aggregation(&mut self, sample: &RateSample, now: &BbrSituation) {
        if sample.acked == 0 || sample.rate.is_none() {
            return;
        }
        if self.round_start {
            self.extra_rounds = (self.extra_rounds + 1).min(0x1f);
            if self.extra_rounds >= EXTRA_ROUNDS {
                self.extra_rounds = 0;
                self.extra_index ^= 1;
                self.extra[self.extra_index & 1] = 0;
            }
        }
        let epoch = now.delivered_at.saturating_sub(self.ack_epoch);
        let mut expected =
            ((u128::from(self.bandwidth_estimate()) * u128::from(epoch)) >> BANDWIDTH_SCALE) as u64;
        if self.ack_epoch_acked <= expected
            || self.ack_epoch_acked + sample.acked >= MAX_EPOCH_ACKED
        {
            self.ack_epoch_acked = 0;
            self.ack_epoch = now.delivered_at;
            expected = 0;
        }
        self.ack_epoch_acked = (self.ack_epoch_acked + sample.acked).min(MAX_EPOCH_ACKED - 1);
        let extra = (self.ack_epoch_acked - expected).min(now.cwnd);
        let most = &mut self.extra[self.extra_index & 1];
        *most = (*most).max(extra);
    }

    /// `bbr_ack_aggregation_cwnd`.
    pub(super) fn aggregation_window(&self) -> u64 {
        if !self.full {
            return 0;
        }
        let most = ((u128::from(self.bandwidth_estimate()) * u128::from(MAX_EXTRA_MICROS))
            >> BANDWIDTH_SCALE) as u64;
        self.extra.iter().copied().max().unwrap_or(0).min(most)
    }
}

impl LongTerm {
    /// `bbr_reset_lt_bw_sampling_interval`.
    pub(super) fn begin_interval(&mut self, now: &BbrSituation) {
        self.at = now.delivered_at / 1_000;
        self.delivered = now.delivered;
        self.lost = now.lost;
        self.rounds = 0;
    }

    /// `bbr_reset_lt_bw_sampling`.
    pub(super) fn reset_sampling(&mut self, now: &BbrSituation) {
        *self = Self::default();
        self.begin_interval(now);
    }

    /// Returns the bandwidth of an interval that is over and lost much.
    fn sample_bandwidth(
        &mut self,
        sample: &RateSample,
        round_start: bool,
        now: &BbrSituation,
    ) -> Option<u64> {
        if !self.sampling {
            if sample.losses == 0 {
                return None;
            }
            self.begin_interval(now);
            self.sampling = true;
        }
        if sample.app_limited {
            self.reset_sampling(now);
            return None;
        }
        self.rounds += u64::from(round_start);
        if self.rounds < LONG_MIN_ROUNDS {
            return None;
        }
        if self.rounds > 4 * LONG_MIN_ROUNDS {
            self.reset_sampling(now);
            return None;
        }
        let (lost, delivered) = (now.lost - self.lost, now.delivered - self.delivered);
        if sample.losses == 0 || delivered == 0 || lost << 8 < LONG_LOSS * delivered {
            return None;
        }
        let millis = (now.delivered_at / 1_000).saturating_sub(self.at);
        if millis == 0 {
            return None;
        }
        Some((delivered << BANDWIDTH_SCALE) / (millis * 1_000))
    }
}

/// The moment at which a segment was sent, and what had been delivered by then
/// (`tcp_rate_skb_sent`). Times are microseconds of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SentRecord {
    pub(crate) at: u64,
    /// Segments delivered before.
    pub(crate) delivered: u64,
    /// When the last of those was.
    delivered_at: u64,
    /// When the first segment of the window was sent that was being delivered then.
    window_began: u64,
    app_limited: bool,
}

/// The rate of delivery (`tcp_rate.c`, since 4.9).
#[derive(Debug, Clone, Default)]
pub(crate) struct DeliveryRate {
    /// Segments delivered (`tp->delivered`).
    pub(crate) delivered: u64,
    /// `delivered_mstamp`.
    pub(crate) delivered_at: u64,
    /// `first_tx_mstamp`.
    pub(crate) first_sent: u64,
    /// The number of delivered segments at which a stretch ends that the program limited
    /// (`tp->app_limited`).
    pub(crate) limited_until: u64,
    /// The last good sample: segments, microseconds, and whether the program limited it.
    pub(crate) last: Option<(u64, u64, bool)>,
}

/// One sample of the rate, and the figures of the acknowledgement that gave it
/// (`struct rate_sample`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateSample {
    /// The segment sent last of those that this acknowledgement delivers: its record and its end.
    newest: Option<(SentRecord, u64)>,
    send_interval: u64,
    /// Segments delivered and microseconds, of a valid sample.
    pub(crate) rate: Option<(u64, u64)>,
    pub(crate) app_limited: bool,
    /// Segments that this acknowledgement newly delivered.
    pub(crate) acked: u64,
    /// Segments that it showed to be lost.
    pub(crate) losses: u64,
    /// In flight before it.
    pub(crate) prior_in_flight: u64,
    /// Round-trip time of the segment sent last, in microseconds.
    pub(crate) rtt: Option<u64>,
}

impl RateSample {
    pub(crate) fn new(prior_in_flight: u64) -> Self {
        Self {
            prior_in_flight,
            ..Self::default()
        }
    }

    /// Delivered before the newest segment was sent (`prior_delivered`); none without a segment.
    pub(crate) fn prior_delivered(&self) -> Option<u64> {
        self.newest.map(|(sent, _)| sent.delivered)
    }

    /// `tcp_rate_skb_delivered`.
    pub(crate) fn record_delivery(&mut self, first_sent: &mut u64, sent: SentRecord, end: u64) {
        let newer = self
            .newest
            .is_none_or(|(_, last_end)| (sent.at, end) > (*first_sent, last_end));
        if newer {
            self.newest = Some((sent, end));
            self.app_limited = sent.app_limited;
            *first_sent = sent.at;
            self.send_interval = sent.at.saturating_sub(sent.window_began);
        }
    }
}

impl DeliveryRate {
    /// The record of a segment that is sent at `at` (`tcp_rate_skb_sent`), with nothing outstanding
    /// before if `idle`.
    pub(crate) fn record_sent_segment(&mut self, at: u64, idle: bool) -> SentRecord {
        if idle {
            self.first_sent = at;
            self.delivered_at = at;
        }
        SentRecord {
            at,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            window_began: self.first_sent,
            app_limited: self.limited_until > 0,
        }
    }

    /// Finishes the sample of an acknowledgement at `now` (`tcp_rate_gen`).
    pub(crate) fn finish_sample(&mut self, sample: &mut RateSample, now: u64, min_rtt: u64) {
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        if sample.acked > 0 {
            self.delivered_at = now;
        }
        let Some((newest, _)) = sample.newest else {
            return;
        };
        let delivered = self.delivered - newest.delivered;
        let interval = sample
            .send_interval
            .max(now.saturating_sub(newest.delivered_at));
        if interval == 0 || interval < min_rtt {
            return;
        }
        sample.rate = Some((delivered, interval));
        let is_faster = self.last.is_none_or(|(before, span, _)| {
            u128::from(delivered) * u128::from(span) >= u128::from(before) * u128::from(interval)
        });
        if !sample.app_limited || is_faster {
            self.last = Some((delivered, interval, sample.app_limited));
        }
    }

    /// Notes that the program leaves the connection without data (`tcp_rate_check_app_limited`).
    pub(crate) fn mark_app_limited(&mut self, in_flight: u64) {
        self.limited_until = (self.delivered + in_flight).max(1);
    }
}

/// Round-trip times and the timeout that follows from them, in microseconds (`tcp_rtt_estimator`).
#[derive(Debug, Clone)]
pub(crate) struct RoundTrip {
    /// `srtt_us`: eight times the smoothed round-trip time.
    pub(crate) smoothed8: u64,
    /// `mdev_us`: four times the mean deviation.
    mean_deviation: u64,
    /// `mdev_max_us`.
    max_deviation: u64,
    /// `rttvar_us`.
    pub(crate) variation: u64,
    /// `rtt_seq`: the segment whose acknowledgement ends the period of the greatest deviation.
    period_end: u64,
}

impl RoundTrip {
    /// `TCP_RTO_MIN`: 200 ms.
    pub(crate) const MIN_TIMEOUT: u64 = 200_000;
    /// `TCP_RTO_MAX`: 120 s.
    pub(crate) const MAX_TIMEOUT: u64 = 120_000_000;

    /// From the round trip of the handshake.
    pub(crate) fn new(handshake: u64) -> Self {
        let deviation = handshake * 2;
        let variation = deviation.max(Self::MIN_TIMEOUT);
        Self {
            smoothed8: (handshake * 8).max(1),
            mean_deviation: deviation,
            max_deviation: variation,
            variation,
            period_end: 0,
        }
    }

    /// Takes a sample while `acknowledged` segments are acknowledged of `next`.
    pub(crate) fn add_sample(&mut self, sample: u64, acknowledged: u64, next: u64) {
        let error = sample.cast_signed() - (self.smoothed8 >> 3).cast_signed();
        self.smoothed8 = self.smoothed8.saturating_add_signed(error).max(1);
        let mut change = error.abs() - (self.mean_deviation >> 2).cast_signed();
        // A shorter round trip raises the deviation by less.
        if error < 0 && change > 0 {
            change >>= 3;
        }
        self.mean_deviation = self.mean_deviation.saturating_add_signed(change);
        if self.mean_deviation > self.max_deviation {
            self.max_deviation = self.mean_deviation;
            self.variation = self.variation.max(self.max_deviation);
        }
        if acknowledged > self.period_end {
            if self.max_deviation < self.variation {
                self.variation -= (self.variation - self.max_deviation) >> 2;
            }
            self.period_end = next;
            self.max_deviation = Self::MIN_TIMEOUT;
        }
    }

    /// The smoothed round-trip time.
    pub(crate) const fn smoothed_rtt(&self) -> u64 {
        self.smoothed8 >> 3
    }

    /// The timeout without backoff (`__tcp_set_rto`).
    pub(crate) fn retransmission_timeout(&self) -> u64 {
        (self.smoothed_rtt() + self.variation).min(Self::MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_gives_itself_and_the_least_variation() {
        let mut rtt = RoundTrip::new(100_000);
        assert_eq!(rtt.retransmission_timeout(), 300_000);
        for ack in 1..200 {
            rtt.add_sample(100_000, ack, ack + 10);
        }
        assert_eq!(
            (rtt.smoothed_rtt(), rtt.retransmission_timeout()),
            (100_000, 300_000)
        );
    }

    #[test]
    fn a_variation_raises_the_timeout_at_once_and_lowers_it_slowly() {
        let mut rtt = RoundTrip::new(10_000);
        rtt.add_sample(1_000_000, 1, 10);
        let raised = rtt.retransmission_timeout();
        assert!(raised > 350_000, "{raised}");
        for ack in 2..30 {
            rtt.add_sample(10_000, 10 * ack, 10 * (ack + 1));
        }
        assert!(
            rtt.retransmission_timeout() < raised / 3 * 2 + 60_000,
            "{}",
            rtt.retransmission_timeout()
        );
    }

    #[test]
    fn a_rate_is_of_the_slower_of_sending_and_arriving() {
        let mut delivery = DeliveryRate::default();
        let first = delivery.record_sent_segment(1_000, true);
        let second = delivery.record_sent_segment(3_000, false);
        for (sent, end, now) in [(first, 10, 101_000), (second, 20, 106_000)] {
            let mut sample = RateSample::new(20);
            sample.acked = 10;
            delivery.delivered += 10;
            let mut first_sent = delivery.first_sent;
            sample.record_delivery(&mut first_sent, sent, end);
            delivery.first_sent = first_sent;
            delivery.finish_sample(&mut sample, now, 100_000);
            assert_eq!(sample.prior_delivered(), Some(0));
        }
        assert_eq!(delivery.last, Some((20, 105_000, false)));
    }
}

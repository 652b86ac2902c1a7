//! Reno with timeouts (Padhye, Firoiu, Towsley, Kurose 1998): the rate that is *sent*,
//! retransmissions included.
//!
//! The model knows loss that comes in bursts to the end of a round, the timeouts that follow, and
//! the largest window. Checked against the full form in the GÉANT performance guide and the
//! approximation in RFC 3819 §8.5. The model holds for Reno over a round-trip time that does not
//! depend on the window, so not where the flow itself fills a long queue.

use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::window;

/// A connection as these formulas see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PftkFlow {
    /// Payload of a segment.
    pub mss: ByteCount,
    /// Round-trip time, without what the flow itself queues.
    pub rtt: Span,
    /// T₀, the first retransmission timeout; Linux keeps at least 200 ms above the round-trip time.
    pub rto: Span,
    /// b, how many segments each growth of the window by one acknowledges: 2 with delayed
    /// acknowledgements as in the papers, 1 where each is counted (RFC 3465), as Linux does. None
    /// is taken as 1.
    pub acknowledged_together: u16,
    /// The largest window that the receiver or a buffer allows.
    pub max_window: Option<ByteCount>,
}

impl PftkFlow {
    pub(crate) fn segments_per_ack(&self) -> f64 {
        f64::from(self.acknowledged_together.max(1))
    }

    /// The largest window in segments, and no bound where there is none.
    pub(crate) fn max_segments(&self) -> f64 {
        self.max_window.map_or(f64::INFINITY, |bytes| {
            (bytes.as_f64() / self.mss.as_f64()).max(1.0)
        })
    }

    /// One largest window per round trip.
    fn window_rate(&self) -> BitRate {
        self.max_window.map_or(window::UNBOUNDED, |bytes| {
            window::rate_of_window(bytes, self.rtt)
        })
    }

    fn bit_rate(&self, segments_per_second: f64) -> BitRate {
        BitRate::from_bps_f64(segments_per_second * self.mss.as_f64() * 8.0)
    }
}

/// The full model (eq. 31): what `flow` sends under `loss`, the share of packets that begin a loss
/// event.
///
/// Without loss it is the largest window per round trip; where all is lost it is nothing. More loss
/// never gives more as long as a timeout is longer than a round trip, but for a step where the
/// largest window begins to bind: the paper's two branches differ there by (2 − b) ÷ 4 of a round
/// trip in some b · W/2, at most 1.4 percent at 35 segments.
pub fn pftk_rate(flow: &PftkFlow, loss: Ratio) -> BitRate {
    edge_rate(flow, loss).unwrap_or_else(|p| {
        let epoch = LossEpoch::from_loss(flow, p);
        let sent = (1.0 - p) / p + epoch.peak + epoch.timeout / (1.0 - p);
        flow.bit_rate(sent / epoch.seconds).min(flow.window_rate())
    })
}

/// The approximation: min(W ÷ RTT, 1 ÷ (RTT · √(2bp/3) + T₀ · min(1, 3√(3bp/8)) · p(1 + 32p²))).
///
/// Within a few percent of [`pftk_rate()`] up to 5 % loss where the largest window is far away.
pub fn pftk_approximation(flow: &PftkFlow, loss: Ratio) -> BitRate {
    edge_rate(flow, loss).unwrap_or_else(|p| {
        let doubled = (3.0 * (3.0 * flow.segments_per_ack() * p / 8.0).sqrt()).min(1.0);
        flow.bit_rate(1.0 / seconds_a_segment(flow, p, doubled))
            .min(flow.window_rate())
    })
}

/// TFRC's rate (RFC 5348 §3.1): the approximation with b = 1 and a timeout of four round trips,
/// which RFC 5348 recommends, and without the bound of one on the share of timeouts.
pub fn tfrc_rate(loss: Ratio, mss: ByteCount, rtt: Span) -> BitRate {
    let flow = PftkFlow {
        mss,
        rtt,
        rto: rtt * 4,
        acknowledged_together: 1,
        max_window: None,
    };
    edge_rate(&flow, loss).unwrap_or_else(|p| {
        let doubled = 3.0 * (3.0 * p / 8.0).sqrt();
        flow.bit_rate(1.0 / seconds_a_segment(&flow, p, doubled))
    })
}

/// The rate where there is no loss or nothing else; elsewhere the loss, kept large enough that 1 ÷
/// p is finite.
fn edge_rate(flow: &PftkFlow, loss: Ratio) -> Result<BitRate, f64> {
    match loss {
        _ if loss >= Ratio::ONE || flow.mss == ByteCount::ZERO => Ok(BitRate::ZERO),
        Ratio::ZERO => Ok(flow.window_rate()),
        _ => Err(loss.get().max(f64::MIN_POSITIVE)),
    }
}

fn seconds_a_segment(flow: &PftkFlow, p: f64, timeouts: f64) -> f64 {
    let by_duplicates = flow.rtt.as_secs_f64() * (2.0 * flow.segments_per_ack() * p / 3.0).sqrt();
    by_duplicates + flow.rto.as_secs_f64() * timeouts * p * (1.0 + 32.0 * p * p)
}

/// From one loss event to the next.
pub(crate) struct LossEpoch {
    /// Mean window, in segments, at which it ends.
    pub(crate) peak: f64,
    /// Q: how probable it is that it ends in a timeout.
    pub(crate) timeout: f64,
    /// Mean length of the epoch in seconds.
    pub(crate) seconds: f64,
}

impl LossEpoch {
    /// For 0 < `p` < 1.
    pub(crate) fn from_loss(flow: &PftkFlow, p: f64) -> Self {
        let b = flow.segments_per_ack();
        let unbound = unbound_window(b, p);
        let peak = unbound.min(flow.max_segments());
        let rounds = if unbound < flow.max_segments() {
            b * peak / 2.0 + 1.0
        } else {
            b * peak / 8.0 + (1.0 - p) / (p * peak) + 2.0
        };
        let timeout = timeout_share(p, peak);
        Self {
            peak,
            timeout,
            seconds: rounds * flow.rtt.as_secs_f64() + timeout * timeout_seconds(flow, p),
        }
    }
}

/// W(p), eq. 13: the window at which a loss comes, if no largest window holds it down.
fn unbound_window(b: f64, p: f64) -> f64 {
    let least = (2.0 + b) / (3.0 * b);
    least + (8.0 * (1.0 - p) / (3.0 * b * p) + least * least).sqrt()
}

/// Q(p, w): the share of losses, in a window of `w` segments, that end in a timeout because fewer
/// than three acknowledgements follow.
pub(crate) fn timeout_share(p: f64, w: f64) -> f64 {
    let first_three = some_of(3.0, p);
    (first_three * (1.0 + (1.0 - first_three) * some_of(w - 3.0, p)) / some_of(w, p)).min(1.0)
}

/// Mean length of a run of timeouts, each twice as long as the one before up to the sixth (eq. 28):
/// T₀ · f(p) ÷ (1 − p).
pub(crate) fn timeout_seconds(flow: &PftkFlow, p: f64) -> f64 {
    let backed_off = 1.0 + p * (1.0 + p * (2.0 + p * (4.0 + p * (8.0 + p * (16.0 + p * 32.0)))));
    flow.rto.as_secs_f64() * backed_off / (1.0 - p)
}

/// Returns the probability that of `n` packets at least one is lost: 1 − (1 − p)ⁿ, exact for the
/// smallest p too.
pub(crate) fn some_of(n: f64, p: f64) -> f64 {
    -libm::expm1(n * libm::log1p(-p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(b: u16, rto_millis: u64) -> PftkFlow {
        PftkFlow {
            mss: ByteCount::new(1460),
            rtt: Span::from_millis(100),
            rto: Span::from_millis(rto_millis),
            acknowledged_together: b,
            max_window: None,
        }
    }

    fn significant(rate: BitRate, digits: usize) -> String {
        format!("{:.*e}", digits - 1, rate.as_mbps())
    }

    #[test]
    fn five_losses_over_a_tenth_of_a_second() {
        let delayed = flow(2, 1000);
        let quick = flow(1, 400);
        let bounded = PftkFlow {
            max_window: Some(delayed.mss.scale_by(45.0)),
            ..delayed
        };
        for (loss, printed) in [
            (1e-6, [101.1, 101.1, 143.0, 5.253, 143.0]),
            (1e-4, [10.06, 10.09, 14.26, 4.968, 14.29]),
            (1e-3, [3.102, 3.128, 4.457, 3.102, 4.483]),
            (1e-2, [0.812, 0.8252, 1.296, 0.812, 1.312]),
            (5e-2, [0.2173, 0.2042, 0.4426, 0.2173, 0.4305]),
        ] {
            let p = Ratio::new(loss);
            let got = [
                pftk_rate(&delayed, p),
                pftk_approximation(&delayed, p),
                pftk_rate(&quick, p),
                pftk_rate(&bounded, p),
                tfrc_rate(p, quick.mss, quick.rtt),
            ];
            for (got, printed) in got.into_iter().zip(printed) {
                assert_eq!(significant(got, 4), format!("{printed:.3e}"), "at {loss}");
            }
        }
    }

    #[test]
    fn timeouts_cost_two_thirds_of_the_textbook_at_five_percent() {
        let flow = flow(2, 1000);
        let textbook = window::rate_of_window(
            super::super::mathis_window(Ratio::new(0.05), flow.mss),
            flow.rtt,
        );
        assert_eq!(
            format!(
                "{:.2}",
                pftk_rate(&flow, Ratio::new(0.05)).relative_to(textbook)
            ),
            "0.34"
        );
    }

    /// A round of w packets, each lost with p and all after it lost too, then as many as arrived,
    /// lost likewise: a timeout follows unless three of those arrive.
    #[test]
    fn the_share_of_timeouts_is_the_sum_over_how_a_round_ends() {
        let power = |base: f64, n: u32| libm::pow(base, f64::from(n));
        for (p, w) in [(1e-3, 8), (1e-2, 12), (0.1, 20), (0.3, 4)] {
            let arrived_of = |n: u32, k: u32| {
                if k == n {
                    power(1.0 - p, n)
                } else {
                    power(1.0 - p, k) * p
                }
            };
            let timeouts: f64 = (0..w)
                .map(|arrived| {
                    let few: f64 = (0..=arrived.min(2))
                        .map(|next| arrived_of(arrived, next))
                        .sum();
                    let round = power(1.0 - p, arrived) * p / (1.0 - power(1.0 - p, w));
                    round * few
                })
                .sum();
            assert!(
                (timeouts - timeout_share(p, f64::from(w))).abs() < 1e-12,
                "{p}, {w}: {timeouts}"
            );
        }
    }

    #[test]
    fn formulas_at_their_ends() {
        let free = flow(2, 1000);
        let bound = PftkFlow {
            max_window: Some(ByteCount::new(65_535)),
            ..free
        };
        for formula in [pftk_rate, pftk_approximation] {
            assert_eq!(formula(&free, Ratio::ZERO), window::UNBOUNDED);
            assert_eq!(
                formula(&bound, Ratio::ZERO),
                window::rate_of_window(ByteCount::new(65_535), bound.rtt)
            );
            assert_eq!(formula(&free, Ratio::ONE), BitRate::ZERO);
            assert_eq!(
                formula(
                    &PftkFlow {
                        mss: ByteCount::ZERO,
                        ..free
                    },
                    Ratio::ZERO
                ),
                BitRate::ZERO
            );
            assert_eq!(formula(&free, Ratio::new(5e-324)), window::UNBOUNDED);
        }
        assert_eq!(
            tfrc_rate(Ratio::ZERO, free.mss, free.rtt),
            window::UNBOUNDED
        );
        assert_eq!(tfrc_rate(Ratio::ONE, free.mss, free.rtt), BitRate::ZERO);
    }

    prop_compose! {
        fn flows()(
            mss in 1_u64..65_536, rtt in 1_u64..10_000_000_000, above in 1_000_000_u64..60_000_000_000, b in 0_u16..4,
            max in proptest::option::of(1_u64..1_000_000_000),
        ) -> PftkFlow {
            PftkFlow {
                mss: ByteCount::new(mss),
                rtt: Span::from_nanos(rtt),
                rto: Span::from_nanos(rtt + above),
                acknowledged_together: b,
                max_window: max.map(ByteCount::new),
            }
        }
    }

    proptest! {
        #[test]
        fn more_loss_is_never_faster(flow in flows(), exponent in -9_f64..0.0, more in 1_f64..3.0) {
            let (less, more) = (libm::pow(10.0, exponent), libm::pow(10.0, exponent) * more);
            let falls = |formula: fn(&PftkFlow, Ratio) -> BitRate, slack: f64| {
                formula(&flow, Ratio::new(less)).scale_by(slack).bps() + 1 >= formula(&flow, Ratio::new(more)).bps()
            };
            prop_assert!(falls(pftk_approximation, 1.0 + 1e-9));
            prop_assert!(falls(|flow, loss| tfrc_rate(loss, flow.mss, flow.rtt), 1.0 + 1e-9));
            // Where the largest window begins to bind: see the step above, which is the larger the
            // smaller the window.
            let step = if flow.max_window.is_some() { 1.0 / flow.max_segments() } else { 1e-9 };
            prop_assert!(falls(pftk_rate, 1.0 + step));
        }

        #[test]
        fn a_longer_way_a_later_timeout_or_a_smaller_window_is_never_faster(
            flow in flows(), exponent in -9_f64..0.0, longer in 0_u64..1_000_000_000,
        ) {
            let loss = Ratio::new(libm::pow(10.0, exponent));
            let longer = Span::from_nanos(longer);
            for formula in [pftk_rate, pftk_approximation] {
                let rate = formula(&flow, loss).scale_by(1.0 + 1e-9).bps() + 1;
                for worse in [PftkFlow { rtt: flow.rtt + longer, ..flow }, PftkFlow { rto: flow.rto + longer, ..flow }] {
                    prop_assert!(rate >= formula(&worse, loss).bps());
                }
            }
            let half = PftkFlow { max_window: flow.max_window.map(|window| window.scale_by(0.5)), ..flow };
            prop_assert!(pftk_approximation(&flow, loss) >= pftk_approximation(&half, loss));
        }

        #[test]
        fn any_input_gives_a_rate(
            mss: u64, rtt: u64, rto: u64, b: u16, max: Option<u64>, loss in proptest::num::f64::ANY,
        ) {
            let flow = PftkFlow {
                mss: ByteCount::new(mss),
                rtt: Span::from_nanos(rtt),
                rto: Span::from_nanos(rto),
                acknowledged_together: b,
                max_window: max.map(ByteCount::new),
            };
            let loss = Ratio::new(loss);
            let _ = tfrc_rate(loss, flow.mss, flow.rtt);
            for rate in [pftk_rate(&flow, loss), pftk_approximation(&flow, loss)] {
                prop_assert!(rate <= flow.window_rate());
            }
        }
    }
}

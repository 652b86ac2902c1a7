//! Reno with timeouts (Padhye, Firoiu, Towsley, Kurose 1998): the rate that is *sent*,
//! retransmissions included, where each segment is acknowledged (b = 1, RFC 3465), as Linux counts.
//!
//! The model knows loss that comes in bursts to the end of a round, and the timeouts that follow.
//! Checked against the full form in the GÉANT performance guide. The model holds for Reno over a
//! round-trip time that does not depend on the window, so not where the flow itself fills a long
//! queue.

use crate::prelude::*;
use crate::window;

/// A connection as the model sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PftkFlow {
    /// Payload of a segment.
    pub mss: ByteCount,
    /// Round-trip time, without what the flow itself queues.
    pub rtt: Span,
    /// T₀, the first retransmission timeout; Linux keeps at least 200 ms above the round-trip time.
    pub rto: Span,
}

/// Returns what `flow` sends under `loss`, the share of packets that begin a loss event (eq. 31).
///
/// Without loss it has no bound; where all is lost it is nothing. More loss never gives more as long
/// as a timeout is longer than a round trip.
pub fn pftk_rate(flow: &PftkFlow, loss: Ratio) -> BitRate {
    if loss >= Ratio::ONE || flow.mss == ByteCount::ZERO {
        return BitRate::ZERO;
    }
    if loss == Ratio::ZERO {
        return window::UNBOUNDED;
    }
    // Large enough that 1 ÷ p is finite.
    let p = loss.get().max(f64::MIN_POSITIVE);
    let peak = peak_window(p);
    let timeout = timeout_share(p, peak);
    let sent = (1.0 - p) / p + peak + timeout / (1.0 - p);
    let seconds = (peak / 2.0 + 1.0) * flow.rtt.as_secs_f64() + timeout * timeout_seconds(flow, p);
    BitRate::from_bps_f64(sent / seconds * flow.mss.as_f64() * 8.0).min(window::UNBOUNDED)
}

/// W(p), eq. 13: the window at which a loss comes, in segments.
fn peak_window(p: f64) -> f64 {
    1.0 + (8.0 * (1.0 - p) / (3.0 * p) + 1.0).sqrt()
}

/// Q(p, w): the share of losses, in a window of `w` segments, that end in a timeout because fewer
/// than three acknowledgements follow.
fn timeout_share(p: f64, w: f64) -> f64 {
    let first_three = some_of(3.0, p);
    (first_three * (1.0 + (1.0 - first_three) * some_of(w - 3.0, p)) / some_of(w, p)).min(1.0)
}

/// Mean length of a run of timeouts, each twice as long as the one before up to the sixth (eq. 28):
/// T₀ · f(p) ÷ (1 − p).
fn timeout_seconds(flow: &PftkFlow, p: f64) -> f64 {
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

    fn flow(rto_millis: u64) -> PftkFlow {
        PftkFlow {
            mss: ByteCount::new(1460),
            rtt: Span::from_millis(100),
            rto: Span::from_millis(rto_millis),
        }
    }

    #[test]
    fn five_losses_over_a_tenth_of_a_second() {
        for (loss, printed) in [
            (1e-6, 143.0),
            (1e-4, 14.26),
            (1e-3, 4.457),
            (1e-2, 1.296),
            (5e-2, 0.4426),
        ] {
            let got = pftk_rate(&flow(400), Ratio::new(loss)).as_mbps();
            assert_eq!(format!("{got:.3e}"), format!("{printed:.3e}"), "at {loss}");
        }
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
    fn the_rate_at_its_ends() {
        let free = flow(1000);
        assert_eq!(pftk_rate(&free, Ratio::ZERO), window::UNBOUNDED);
        assert_eq!(pftk_rate(&free, Ratio::new(5e-324)), window::UNBOUNDED);
        assert_eq!(pftk_rate(&free, Ratio::ONE), BitRate::ZERO);
        let empty = PftkFlow {
            mss: ByteCount::ZERO,
            ..free
        };
        assert_eq!(pftk_rate(&empty, Ratio::ZERO), BitRate::ZERO);
    }

    prop_compose! {
        fn flows()(
            mss in 1_u64..65_536, rtt in 1_u64..10_000_000_000, above in 1_000_000_u64..60_000_000_000,
        ) -> PftkFlow {
            PftkFlow {
                mss: ByteCount::new(mss),
                rtt: Span::from_nanos(rtt),
                rto: Span::from_nanos(rtt + above),
            }
        }
    }

    proptest! {
        #[test]
        fn more_loss_is_never_faster(flow in flows(), exponent in -9_f64..0.0, more in 1_f64..3.0) {
            let less = libm::pow(10.0, exponent);
            let rate = |loss| pftk_rate(&flow, Ratio::new(loss));
            prop_assert!(rate(less).scale_by(1.0 + 1e-9).bps() + 1 >= rate(less * more).bps());
        }

        #[test]
        fn a_longer_way_or_a_later_timeout_is_never_faster(
            flow in flows(), exponent in -9_f64..0.0, longer in 0_u64..1_000_000_000,
        ) {
            let loss = Ratio::new(libm::pow(10.0, exponent));
            let longer = Span::from_nanos(longer);
            let rate = pftk_rate(&flow, loss).scale_by(1.0 + 1e-9).bps() + 1;
            for worse in [PftkFlow { rtt: flow.rtt + longer, ..flow }, PftkFlow { rto: flow.rto + longer, ..flow }] {
                prop_assert!(rate >= pftk_rate(&worse, loss).bps());
            }
        }

        #[test]
        fn any_input_gives_a_rate(mss: u64, rtt: u64, rto: u64, loss in proptest::num::f64::ANY) {
            let flow = PftkFlow {
                mss: ByteCount::new(mss),
                rtt: Span::from_nanos(rtt),
                rto: Span::from_nanos(rto),
            };
            prop_assert!(pftk_rate(&flow, Ratio::new(loss)) <= window::UNBOUNDED);
        }
    }
}

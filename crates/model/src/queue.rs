//! The delay, the size and the drops of a queue before the bottleneck: drop-tail, an unresponsive
//! rival, a policer.
//!
//! All rates and bytes of one call count at the same layer, on the wire where a queue counts that.

use crate::loss::CongestionControl;
use crate::prelude::*;
use crate::window;

/// The round-trip time while `queued` bytes wait before a link of `rate`: rtt + queued ÷ rate;
/// [`Span::MAX`] where the link passes nothing.
///
/// With the queue's whole size it is the round-trip time when drop-tail drops: window ceilings take
/// this one, the BDP takes `rtt`.
pub fn loaded_rtt(rtt: Span, queued: ByteCount, rate: BitRate) -> Span {
    rtt + rate.time_for(queued)
}

/// The share of a link that one stream fills with a drop-tail queue of `queue` bytes, in steady
/// state.
///
/// With q = queue ÷ bdp and w = β(1 + q), the window after a back-off in BDPs: one for w ≥ 1, else
/// ((1 + q)² − w²) ÷ (2(1 − w) + (1 + q)² − 1). It is the area of a sawtooth with one segment more
/// per round trip: below the BDP that sends the window per base round-trip time, above it the link
/// is full and round trips grow with the queue. Without a queue it gives (1 + β) ÷ 2: 0.75 for
/// Reno, 0.85 for β = 0.7.
///
/// Exact for Reno; for CUBIC a lower bound, as its window stays near the peak: without a queue it
/// fills (3 + β) ÷ 4 = 0.925 where the way is long enough for its own curve. BBR does not fall
/// back.
pub fn link_utilisation(control: CongestionControl, queue: ByteCount, bdp: ByteCount) -> Ratio {
    let backoff = control.backoff_factor();
    let peak = 1.0 + queue.as_f64() / bdp.as_f64();
    let trough = backoff * peak;
    if bdp == ByteCount::ZERO || trough >= 1.0 {
        return Ratio::ONE;
    }
    Ratio::from_quotient(
        peak * peak - trough * trough,
        2.0 * (1.0 - trough) + peak * peak - 1.0,
    )
}

/// The shares of a flow that does not back off and of TCP at a drop-tail bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnresponsiveShares {
    /// Rate of that flow that arrives.
    pub delivered: BitRate,
    /// The share of it that is dropped.
    pub lost: Ratio,
    /// Rate that is left for TCP.
    pub left: BitRate,
}

/// UDP offered at a steady rate to a link of `capacity`: it passes up to the capacity, loses
/// (offered − capacity) ÷ offered beyond, and leaves TCP the rest, which is nothing once it offers
/// the capacity (one segment per timeout at most).
///
/// With a TCP stream that fills the queue it loses somewhat more, as both are dropped alike.
pub fn unresponsive_shares(offered: BitRate, capacity: BitRate) -> UnresponsiveShares {
    let delivered = offered.min(capacity);
    let dropped = offered.as_f64() - delivered.as_f64();
    let left = BitRate::from_bps(capacity.bps() - delivered.bps());
    UnresponsiveShares {
        delivered,
        lost: Ratio::from_quotient(dropped, offered.as_f64()),
        left,
    }
}

/// The rate of one stream through a token bucket that fills with `rate` up to `bucket` bytes and
/// drops what finds no token: rate · min(1, (1 + β)/2 · (1 + √(2b) ÷ B)), with b and B the bucket
/// and the BDP in segments.
///
/// A policer does not queue, so round trips do not grow: the window climbs by one segment per round
/// trip until what it sends above the rate, ½(W − B)² segments, has emptied the bucket. With no
/// bucket that is the drop-tail without a queue; with b = (B(1 − β) ÷ (1 + β))² ÷ 2 or more the
/// tokens saved below the rate make up for those spent above. An upper estimate: a window that
/// overshoots in slow start loses a whole flight, and BBR makes its own estimate of a policer.
pub fn policed_rate(
    control: CongestionControl,
    rate: BitRate,
    bucket: ByteCount,
    rtt: Span,
    mss: ByteCount,
) -> BitRate {
    let [bdp, bucket] = [window::bdp(rate, rtt), bucket].map(|bytes| bytes.as_f64() / mss.as_f64());
    let over = (2.0 * bucket).sqrt() / bdp;
    let share = f64::midpoint(1.0, control.backoff_factor()) * (1.0 + over);
    // f64::min passes over what is undefined: no BDP, so nothing to save up for.
    rate.scale_by(share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BDP: ByteCount = ByteCount::new(12_500_000);
    const ALL: [CongestionControl; 3] = [
        CongestionControl::Reno,
        CongestionControl::Cubic,
        CongestionControl::Bbr,
    ];

    #[test]
    fn a_gigabit_queues_a_bdp_in_a_round_trip() {
        let (rtt, rate) = (Span::from_millis(100), BitRate::from_mbps(1000));
        assert_eq!(loaded_rtt(rtt, BDP, rate), Span::from_millis(200));
        assert_eq!(loaded_rtt(rtt, BDP, BitRate::ZERO), Span::MAX);
    }

    #[test]
    fn a_queue_of_no_half_and_all_of_the_bdp() {
        for (control, shares) in [
            (CongestionControl::Reno, ["0.750", "0.964", "1.000"]),
            (CongestionControl::Cubic, ["0.850", "1.000", "1.000"]),
            (CongestionControl::Bbr, ["1.000"; 3]),
        ] {
            let got = [0.0, 0.5, 1.0].map(|q| {
                format!(
                    "{:.3}",
                    link_utilisation(control, BDP.scale_by(q), BDP).get()
                )
            });
            assert_eq!(got, shares, "{}", control.display_name());
        }
        assert_eq!(
            link_utilisation(CongestionControl::Reno, BDP, ByteCount::ZERO),
            Ratio::ONE
        );
    }

    /// One round trip a step: the window's worth of segments, or as much as the link passes while
    /// they last.
    #[test]
    fn the_sawtooth_sends_what_the_formula_says() {
        let bdp = 2000.0_f64;
        for control in [CongestionControl::Reno, CongestionControl::Cubic] {
            for share in [0.0, 0.1, 0.3, 0.42, 0.6, 0.9, 1.0, 2.0] {
                let queue = bdp * share;
                let (mut window, mut sent, mut time) =
                    (control.backoff_factor() * (bdp + queue), 0.0, 0.0);
                while window < bdp + queue {
                    sent += window;
                    time += window.max(bdp);
                    window += 1.0;
                }
                let bytes = |segments: f64| ByteCount::from_f64(segments * 1000.0);
                let formula = link_utilisation(control, bytes(queue), bytes(bdp)).get();
                assert!(
                    (sent / time - formula).abs() < 1e-3,
                    "{} at {share}: {formula}",
                    control.display_name()
                );
            }
        }
    }

    #[test]
    fn datagrams_of_1470_bytes_offered_to_100_megabits() {
        let on_the_wire = |payload: u64| BitRate::from_mbps(payload).scale_by(1498.0 / 1470.0);
        let capacity = BitRate::from_mbps(100);
        for (offered, lost) in [(110, "10.8"), (291, "66.3"), (50, "0.0")] {
            let offered = on_the_wire(offered);
            let got = unresponsive_shares(offered, capacity);
            assert_eq!(format!("{:.1}", got.lost.as_percent()), lost);
            assert_eq!(got.delivered, offered.min(capacity));
        }
        assert_eq!(
            unresponsive_shares(BitRate::from_mbps(30), capacity).left,
            BitRate::from_mbps(70)
        );
        assert_eq!(unresponsive_shares(capacity, capacity).left, BitRate::ZERO);
        assert_eq!(
            unresponsive_shares(BitRate::ZERO, BitRate::ZERO).lost,
            Ratio::ZERO
        );
    }

    /// The measurement from which the figures above come lost 10 515 of 93 962.
    #[test]
    fn a_loss_of_11_2_percent_was_110_and_a_half_megabits_offered() {
        let offered =
            BitRate::from_mbps(100).scale_by(1.0 / (1.0 - 10_515.0 / 93_962.0) * 1470.0 / 1498.0);
        assert_eq!(format!("{:.1}", offered.as_mbps()), "110.5");
    }

    #[test]
    fn a_policer_of_no_some_and_enough_depth() {
        let (rate, rtt, mss) = (
            BitRate::from_mbps(100),
            Span::from_millis(100),
            ByteCount::new(1250),
        );
        // A BDP of 1000 segments, of which a third above the rate is 333²/2 tokens.
        for (bytes, mbps) in [
            (0, 75.0),
            (1250 * 5000, 82.5),
            (1250 * 55_556, 100.0),
            (u64::MAX, 100.0),
        ] {
            let got = policed_rate(
                CongestionControl::Reno,
                rate,
                ByteCount::new(bytes),
                rtt,
                mss,
            );
            assert!((got.as_mbps() - mbps).abs() < 1e-3, "{bytes} B: {got}");
        }
        assert_eq!(
            policed_rate(CongestionControl::Bbr, rate, ByteCount::ZERO, rtt, mss),
            rate
        );
    }

    #[test]
    fn a_token_bucket_passes_what_the_formula_says() {
        let bdp = 1000.0_f64;
        for control in [CongestionControl::Reno, CongestionControl::Cubic] {
            for bucket in [50.0, 1000.0, 10_000.0, 100_000.0] {
                let (mut window, mut tokens, mut sent) = (bdp, bucket, 0.0);
                let rounds = 400_000;
                for _ in 0..rounds {
                    tokens = f64::min(tokens + bdp - window, bucket);
                    sent += window;
                    window = if tokens < 0.0 {
                        window * control.backoff_factor()
                    } else {
                        window + 1.0
                    };
                    tokens = tokens.max(0.0);
                }
                let got = sent / f64::from(rounds) / bdp;
                let mss = ByteCount::new(1000);
                let rate = BitRate::from_bps(8_000_000);
                let formula =
                    policed_rate(control, rate, mss.scale_by(bucket), Span::from_secs(1), mss)
                        .relative_to(rate);
                assert!(
                    (got - formula).abs() < 2e-3,
                    "{} at {bucket}: {got}, not {formula}",
                    control.display_name()
                );
            }
        }
    }

    proptest! {
        #[test]
        fn more_queue_is_never_less_use(bdp: u64, queue: u64, more: u64) {
            for control in ALL {
                let used = |queue| link_utilisation(control, ByteCount::new(queue), ByteCount::new(bdp)).get();
                let (less, more) = (used(queue), used(queue.saturating_add(more)));
                prop_assert!(less <= more + 1e-12 && less >= 0.75 - 1e-12 && more <= 1.0);
            }
        }

        #[test]
        fn what_is_offered_arrives_or_is_lost_and_more_leaves_less(offered: u64, more: u64, capacity: u64) {
            let at = |offered| unresponsive_shares(BitRate::from_bps(offered), BitRate::from_bps(capacity));
            let (one, other) = (at(offered), at(offered.saturating_add(more)));
            prop_assert_eq!(one.delivered.bps() + one.left.bps(), capacity);
            prop_assert!(one.left >= other.left && one.lost <= other.lost && other.lost <= Ratio::ONE);
        }

        #[test]
        fn a_deeper_bucket_never_passes_less_nor_more_than_the_rate(
            bps: u64, bucket: u64, more: u64, nanos: u64, mss: u64,
        ) {
            for control in ALL {
                let passed = |bucket| {
                    let (rtt, mss) = (Span::from_nanos(nanos), ByteCount::new(mss));
                    policed_rate(control, BitRate::from_bps(bps), ByteCount::new(bucket), rtt, mss)
                };
                prop_assert!(passed(bucket) <= passed(bucket.saturating_add(more)));
                prop_assert!(passed(bucket) <= BitRate::from_bps(bps).scale_by(1.0));
            }
        }
    }
}

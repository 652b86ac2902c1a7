//! Metrics of RFC 6349, and the ideal that a rate is held against.
//!
//! The window that a path needs is [`crate::window::bdp`] (RFC 6349 §3.3.1). The ideal leaves out
//! the ramp and counts headers of 40 bytes, so a connection with timestamps does not reach it by
//! 0.8 % at MTU 1500.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

/// Packets of `wire` bytes, all framing included, that pass in a second at `rate`, rounded down
/// (RFC 6349 §4.1.1).
pub fn frames_per_second(rate: BitRate, wire: ByteCount) -> SegCount {
    const BITS: u64 = 8;
    SegCount::new(
        rate.bps()
            .checked_div(wire.get().saturating_mul(BITS))
            .unwrap_or(0),
    )
}

/// Payload that passes when every frame of `wire` bytes carries `payload`: the maximum achievable
/// TCP throughput of RFC 6349 §4.1.1.
pub fn max_throughput(rate: BitRate, payload: ByteCount, wire: ByteCount) -> BitRate {
    BitRate::from_bytes_in(
        frames_per_second(rate, wire).of_size(payload),
        Span::from_secs(1),
    )
}

/// Share of the transmitted bytes that were not retransmissions (RFC 6349 §4.2), from 0 to 1.
/// `transmitted` counts every transmission, first ones and others; nothing was wasted where it is
/// zero.
pub fn transmission_efficiency(transmitted: ByteCount, retransmitted: ByteCount) -> Ratio {
    if transmitted == ByteCount::ZERO {
        return Ratio::ONE;
    }
    Ratio::from_quotient(
        transmitted.saturating_sub(retransmitted).as_f64(),
        transmitted.as_f64(),
    )
}

/// Returns the increase of the round-trip time under load, as a share of that of the idle path (RFC
/// 6349 §4.3). Zero where it was not longer, or where the idle one is unknown, which is zero.
pub fn buffer_delay(loaded: Span, idle: Span) -> Ratio {
    Ratio::from_quotient(
        loaded.saturating_sub(idle).as_secs_f64(),
        idle.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use proptest::prelude::*;

    const PAYLOAD: ByteCount = ByteCount::new(1460);
    const ETHERNET: ByteCount = ByteCount::new(1538);
    /// MTU 1500, 4 bytes of PPP, 2 of flags, 2 of checksum.
    const PPP: ByteCount = ByteCount::new(1508);

    #[test]
    fn the_most_that_links_can_do() {
        for (rate, wire, frames, mbps) in [
            (BitRate::from_mbps(100), ETHERNET, 8_127, "94.9"),
            (BitRate::from_mbps(1000), ETHERNET, 81_274, "949.3"),
            (BitRate::from_mbps(10_000), ETHERNET, 812_743, "9492.8"),
            (BitRate::from_bps(44_210_000), PPP, 3_664, "42.8"),
        ] {
            assert_eq!(frames_per_second(rate, wire).get(), frames);
            assert_eq!(
                format!("{:.1}", max_throughput(rate, PAYLOAD, wire).as_mbps()),
                mbps
            );
        }
    }

    #[test]
    fn windows_of_the_table() {
        for (bps, micros, kilobytes) in [
            (1_536_000, 20_000, "3.84"),
            (1_536_000, 50_000, "9.60"),
            (1_536_000, 100_000, "19.20"),
            (44_210_000, 10_000, "55.26"),
            (44_210_000, 15_000, "82.89"),
            (44_210_000, 25_000, "138.16"),
            (100_000_000, 1_000, "12.50"),
            (100_000_000, 2_000, "25.00"),
            (100_000_000, 5_000, "62.50"),
            (1_000_000_000, 100, "12.50"),
            (1_000_000_000, 500, "62.50"),
            (1_000_000_000, 1_000, "125.00"),
            (10_000_000_000, 50, "62.50"),
            (10_000_000_000, 300, "375.00"),
        ] {
            let window = window::bdp(BitRate::from_bps(bps), Span::from_micros(micros));
            assert_eq!(
                format!("{:.2}", window.as_f64() / 1e3),
                kilobytes,
                "{bps} bit/s, {micros} µs"
            );
        }
    }

    #[test]
    fn sixteen_kilobytes_over_five_milliseconds() {
        let rate = |millis| {
            window::rate_of_window(ByteCount::new(16_000), Span::from_millis(millis)).to_string()
        };
        assert_eq!([rate(5), rate(10)], ["25.6 Mbit/s", "12.8 Mbit/s"]);
    }

    #[test]
    fn metrics_of_the_examples() {
        // 98.039 %, which the RFC cuts to 98.03.
        let kept = transmission_efficiency(ByteCount::new(102_000), ByteCount::new(2_000));
        assert_eq!(format!("{:.3}", kept.as_percent()), "98.039");
        let delay = buffer_delay(Span::from_millis(32), Span::from_millis(25));
        assert_eq!(delay.to_string(), "28 %");
    }

    #[test]
    fn at_their_edges_the_metrics_stay_defined() {
        assert_eq!(
            transmission_efficiency(ByteCount::ZERO, ByteCount::ZERO),
            Ratio::ONE
        );
        assert_eq!(
            transmission_efficiency(ByteCount::new(1), ByteCount::new(2)),
            Ratio::ZERO
        );
        assert_eq!(
            buffer_delay(Span::from_millis(20), Span::from_millis(25)),
            Ratio::ZERO
        );
        assert_eq!(buffer_delay(Span::from_millis(20), Span::ZERO), Ratio::ZERO);
        assert_eq!(
            frames_per_second(BitRate::from_mbps(1), ByteCount::ZERO),
            SegCount::ZERO
        );
    }

    proptest! {
        #[test]
        fn no_frame_carries_more_than_the_link(bps: u64, payload in 0_u64..70_000, headers in 0_u64..200) {
            let (rate, wire) = (BitRate::from_bps(bps), ByteCount::new(payload + headers));
            prop_assert!(max_throughput(rate, ByteCount::new(payload), wire) <= rate);
        }

        #[test]
        fn shares_are_shares(transmitted: u64, retransmitted: u64, more: u64) {
            let of = |again| transmission_efficiency(ByteCount::new(transmitted), ByteCount::new(again));
            prop_assert!(of(retransmitted) <= Ratio::ONE);
            prop_assert!(of(retransmitted.saturating_add(more)) <= of(retransmitted));
        }

        #[test]
        fn a_longer_wait_is_never_better(loaded: u64, more: u64, idle: u64) {
            let (idle, longer) = (Span::from_nanos(idle), loaded.saturating_add(more));
            let (loaded, longer) = (Span::from_nanos(loaded), Span::from_nanos(longer));
            prop_assert!(buffer_delay(longer, idle) >= buffer_delay(loaded, idle));
        }
    }
}

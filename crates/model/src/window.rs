//! One equation, rate = window ÷ round-trip time, solved for each of its terms.
//!
//! ```
//! use fullpipe_model::window::{bdp, rate_of_window};
//! use fullpipe_units::{BitRate, ByteCount, Span};
//!
//! // 64 KiB over 173 ms is 3 Mbit/s; to fill 100 Mbit/s takes 2.2 MB.
//! let rtt = Span::from_millis(173);
//! let carried = rate_of_window(ByteCount::from_kib(64), rtt);
//! assert_eq!(carried, BitRate::from_bps(3_030_566));
//! assert_eq!(bdp(BitRate::from_mbps(100), rtt), ByteCount::new(2_162_500));
//! ```

use crate::prelude::*;

/// Result of [`rate_of_window`] where nothing bounds it.
pub const UNBOUNDED: BitRate = BitRate::from_bps(u64::MAX);

/// The bandwidth-delay product: the window that `rate` needs over `rtt`, rounded down to a byte.
///
/// `rate` and result count bytes at the same layer: a rate on the wire gives bytes on the wire.
pub fn bdp(rate: BitRate, rtt: Span) -> ByteCount {
    rate.bytes_in(rtt)
}

/// The rate at which one `window` per `rtt` passes, rounded down to a bit per second.
///
/// An `rtt` of zero bounds nothing and gives [`UNBOUNDED`], but for an empty window.
pub fn rate_of_window(window: ByteCount, rtt: Span) -> BitRate {
    if rtt == Span::ZERO && window > ByteCount::ZERO {
        UNBOUNDED
    } else {
        BitRate::from_bytes_in(window, rtt)
    }
}

/// The round-trip time at which `window` gives `rate`, rounded up to a nanosecond; [`Span::MAX`]
/// for a rate of zero.
pub fn rtt_of_window(window: ByteCount, rate: BitRate) -> Span {
    rate.time_for(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn bandwidth_delay_products_of_the_papers() {
        for (rate, rtt, bytes) in [
            // 100 Mbit/s to Australia; the same in its author's 1024² bits.
            (BitRate::from_mbps(100), ms(173), 2_162_500),
            (BitRate::from_bps(104_857_600), ms(173), 2_267_545),
            // Ethernets and an ADSL line.
            (BitRate::from_mbps(100), ms(1), 12_500),
            (BitRate::from_mbps(100), ms(10), 125_000),
            (BitRate::from_mbps(1000), ms(1), 125_000),
            (BitRate::from_mbps(6), ms(50), 37_500),
            // A cloud's long lines.
            (BitRate::from_mbps(1000), ms(50), 6_250_000),
            (BitRate::from_mbps(500), ms(98), 6_125_000),
            (BitRate::from_mbps(1000), ms(98), 12_250_000),
            (BitRate::from_mbps(1000), ms(100), 12_500_000),
            // SLAC to CERN.
            (BitRate::from_mbps(622), ms(154), 11_973_500),
            (BitRate::from_mbps(60), ms(173), 1_297_500),
            // A T1 by satellite.
            (BitRate::from_bps(1_500_000), ms(513), 96_187),
        ] {
            assert_eq!(bdp(rate, rtt).get(), bytes, "{rate} × {rtt}");
        }
    }

    #[test]
    fn rates_of_the_papers() {
        for (window, rtt, kbps) in [
            (65_536, ms(173), 3_030),
            (128_000, ms(173), 5_919),
            (131_072, ms(173), 6_061),
            (17_520, ms(15), 9_344),
            (3_000_000, ms(98), 244_897),
            (3 * 1_048_576, ms(98), 256_794),
            // SSH's channel window.
            (2 * 1_048_576, ms(98), 171_196),
            (2_000_000, ms(98), 163_265),
            (2 * 1_048_576, ms(100), 167_772),
            // 64 KiB without window scaling.
            (65_535, ms(10), 52_428),
            (65_535, ms(50), 10_485),
            (65_535, ms(100), 5_242),
            (65_535, ms(150), 3_495),
            (65_535, ms(200), 2_621),
            (65_536, ms(38), 13_797),
        ] {
            assert_eq!(
                rate_of_window(ByteCount::new(window), rtt).bps() / 1000,
                kbps,
                "{window} B ÷ {rtt}"
            );
        }
    }

    #[test]
    fn at_its_edges_the_equation_bounds_nothing() {
        assert_eq!(rate_of_window(ByteCount::new(1), Span::ZERO), UNBOUNDED);
        assert_eq!(rate_of_window(ByteCount::ZERO, Span::ZERO), BitRate::ZERO);
        assert_eq!(
            rate_of_window(ByteCount::new(u64::MAX), Span::from_nanos(1)),
            UNBOUNDED
        );
        assert_eq!(bdp(UNBOUNDED, Span::MAX).get(), u64::MAX);
        assert_eq!(rtt_of_window(ByteCount::new(1), BitRate::ZERO), Span::MAX);
    }

    proptest! {
        #[test]
        fn each_term_is_found_again(bytes in 1_000_u64..10_000_000_000, nanos in 1_000_u64..10_000_000_000) {
            let (window, span) = (ByteCount::new(bytes), Span::from_nanos(nanos));
            let bits = rate_of_window(window, span);
            prop_assume!(bits.bps() >= 1_000);
            // One bit per second is what rounding may cost, and at the slowest rate that is 1 part
            // in 1000.
            let slack = 2.0 / bits.as_f64() + 2.0 / window.as_f64() + 2.0 / nanos as f64;
            let near = |a: f64, b: f64| (a - b).abs() <= b * slack;
            prop_assert!(near(bdp(bits, span).as_f64(), window.as_f64()));
            prop_assert!(near(rtt_of_window(window, bits).as_secs_f64(), span.as_secs_f64()));
        }

        #[test]
        fn more_window_or_a_shorter_way_is_never_slower(
            window: u64, more: u64, nanos: u64, longer: u64,
        ) {
            let at = |w: u64, n: u64| rate_of_window(ByteCount::new(w), Span::from_nanos(n));
            prop_assert!(at(window.saturating_add(more), nanos) >= at(window, nanos));
            prop_assert!(at(window, nanos) >= at(window, nanos.saturating_add(longer)));
        }

        #[test]
        fn more_rate_or_a_longer_way_never_needs_less(bps: u64, more: u64, nanos: u64, longer: u64) {
            let at = |b: u64, n: u64| bdp(BitRate::from_bps(b), Span::from_nanos(n));
            prop_assert!(at(bps.saturating_add(more), nanos) >= at(bps, nanos));
            prop_assert!(at(bps, nanos.saturating_add(longer)) >= at(bps, nanos));
        }
    }
}

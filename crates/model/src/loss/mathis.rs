//! The square-root law of Reno (Mathis, Semke, Mahdavi, Ott 1997): window = C · mss ÷ √loss.
//!
//! The law counts losses that fast retransmit repairs, at most one a round trip, and no timeouts:
//! it holds for p up to about one percent, and promises too much beyond. p is the share of packets
//! that are *loss events*: a burst counts once.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use super::in_bytes;
use crate::window;

/// C, the window at a loss of one: what it is depends on how the losses fall and how the receiver
/// acknowledges.
///
/// The first four are of the paper's table, to its two digits. The tests derive them: the periodic
/// ones from the area of a sawtooth, the random ones from the stationary window under independent
/// losses (Ott, Kemperman, Mathis 1996).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathisConstant {
    /// 1.22 = √(3/2): losses evenly spaced, each packet acknowledged.
    Periodic,
    /// 0.87 = √(3/4): losses evenly spaced, every second packet acknowledged.
    PeriodicDelayed,
    /// 1.31: losses at random, each packet acknowledged.
    Random,
    /// 0.93: losses at random, every second packet acknowledged.
    RandomDelayed,
    /// 1: SWITCH's calculator and NDT.
    One,
    /// 0.7: NPAD (pathdiag), which leaves room for timeouts.
    Npad,
}

impl MathisConstant {
    /// The number.
    pub fn get(self) -> Ratio {
        Ratio::new(match self {
            Self::Periodic => 1.5_f64.sqrt(),
            Self::PeriodicDelayed => 0.75_f64.sqrt(),
            Self::Random => 1.31,
            Self::RandomDelayed => 0.93,
            Self::One => 1.0,
            Self::Npad => 0.7,
        })
    }

    /// The mean window under `loss`; nothing where every packet is lost.
    pub fn mean_window(self, loss: Ratio, mss: ByteCount) -> ByteCount {
        in_bytes(self.get().get() / loss.get().sqrt(), loss, mss)
    }

    /// The loss that `rate` tolerates, at most one: (C · mss ÷ (rate · rtt))². A `rate` of zero
    /// tolerates any.
    pub fn tolerated_loss(self, rate: BitRate, rtt: Span, mss: ByteCount) -> Ratio {
        let bdp = rate.as_f64() / 8.0 * rtt.as_secs_f64();
        let share = self.get().get() * mss.as_f64() / bdp;
        Ratio::new((share * share).min(1.0))
    }
}

/// The textbook's formula: mss · √(3/2) ÷ √loss, each packet acknowledged.
pub fn mathis_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    MathisConstant::Periodic.mean_window(loss, mss)
}

/// Reno's response as the RFCs print it (RFC 3649, RFC 8312 table 1): mss · 1.2 ÷ √loss.
pub fn reno_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    in_bytes(reno_segments(loss), loss, mss)
}

/// Packets that must pass between two losses so that `rate` is kept: (BDP ÷ (0.7 · mss))², cut to
/// whole packets as NPAD's pathdiag does it (`target_runlen`).
pub fn run_length(rate: BitRate, rtt: Span, mss: ByteCount) -> SegCount {
    let segments =
        window::bdp(rate, rtt).as_f64() / (MathisConstant::Npad.get().get() * mss.as_f64());
    SegCount::new((segments * segments) as u64)
}

/// Reno's mean window in segments, the RFCs' 1.2.
pub(super) fn reno_segments(loss: Ratio) -> f64 {
    RENO / loss.get().sqrt()
}

/// [`reno_segments`], solved for the loss.
pub(super) fn reno_loss(segments: f64) -> f64 {
    (RENO / segments) * (RENO / segments)
}

/// √(3/2), as RFC 3649 rounds it.
const RENO: f64 = 1.2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [MathisConstant; 6] = [
        MathisConstant::Periodic,
        MathisConstant::PeriodicDelayed,
        MathisConstant::Random,
        MathisConstant::RandomDelayed,
        MathisConstant::One,
        MathisConstant::Npad,
    ];

    #[test]
    fn a_tenth_of_a_second_of_the_calculators() {
        let rtt = Span::from_millis(100);
        for (constant, loss, rate) in [
            (MathisConstant::One, 1e-4, "11.68 Mbit/s"),
            (MathisConstant::Periodic, 1e-4, "14.31 Mbit/s"),
            (MathisConstant::One, 1e-6, "116.8 Mbit/s"),
            (MathisConstant::Periodic, 1e-6, "143.1 Mbit/s"),
        ] {
            let window = constant.mean_window(Ratio::new(loss), ByteCount::new(1460));
            assert_eq!(window::rate_of_window(window, rtt).to_string(), rate);
        }
    }

    #[test]
    fn run_lengths_of_npad() {
        let rtt = Span::from_millis(100);
        for (mbps, mss, packets, percent) in [
            (10, 1448, 15_208, "6.58e-3"),
            (100, 1448, 1_520_851, "6.58e-5"),
            // Printed as 6.6e-7.
            (1000, 1448, 152_085_154, "6.58e-7"),
            (1000, 8948, 3_982_648, "2.51e-5"),
        ] {
            let (rate, mss) = (BitRate::from_mbps(mbps), ByteCount::new(mss));
            assert_eq!(run_length(rate, rtt, mss).get(), packets);
            assert_eq!(
                format!(
                    "{:.2e}",
                    MathisConstant::Npad
                        .tolerated_loss(rate, rtt, mss)
                        .as_percent()
                ),
                percent
            );
        }
    }

    /// A window that falls to a half and gains one segment every `b` round trips sends 3/8 · b · W²
    /// packets in b · W/2 of them, one of which is lost.
    #[test]
    fn the_periodic_constants_are_the_area_of_a_sawtooth() {
        for (b, constant) in [
            (1.0, MathisConstant::Periodic),
            (2.0, MathisConstant::PeriodicDelayed),
        ] {
            let peak = 1000.0_f64;
            let loss = 1.0 / (3.0 / 8.0 * b * peak * peak);
            let mean = 0.75 * peak;
            assert!((mean * loss.sqrt() - constant.get().get()).abs() < 1e-12);
        }
        assert_eq!(
            format!("{:.2}", MathisConstant::Periodic.get().get()),
            "1.22"
        );
        assert_eq!(
            format!("{:.2}", MathisConstant::PeriodicDelayed.get().get()),
            "0.87"
        );
    }

    /// Let X = p · W² ÷ 2b before a loss. A loss leaves X/4, and until the next one X gains an
    /// exponential of mean one, so X is Σ Eₖ ÷ 4ᵏ, of which the mean root is Γ(3/2) · Π (1 −
    /// 4^−(k+½)) ÷ (1 − 4^−k). An epoch takes b · W/2 round trips and carries 1/p packets: C =
    /// √(2/b) ÷ mean root.
    #[test]
    fn the_random_constants_are_those_of_a_stationary_window() {
        let product: f64 = (1..40)
            .map(|k| {
                let power = libm::pow(4.0, -f64::from(k));
                (1.0 - power / 2.0) / (1.0 - power)
            })
            .product();
        let mean_root = std::f64::consts::PI.sqrt() / 2.0 * product;
        for (b, constant, printed) in [
            (1.0_f64, MathisConstant::Random, "1.31"),
            (2.0, MathisConstant::RandomDelayed, "0.93"),
        ] {
            let exact = (2.0 / b).sqrt() / mean_root;
            assert_eq!(format!("{exact:.2}"), printed);
            assert_eq!(format!("{:.2}", constant.get().get()), printed);
        }
    }

    #[test]
    fn at_its_ends_the_inverse_stays_a_loss() {
        for constant in ALL {
            let tolerates = |rate, rtt, mss| {
                constant
                    .tolerated_loss(rate, rtt, ByteCount::new(mss))
                    .get()
            };
            assert!((tolerates(BitRate::ZERO, Span::from_secs(1), 1448) - 1.0).abs() < 1e-12);
            assert!((tolerates(window::UNBOUNDED, Span::ZERO, 1448) - 1.0).abs() < 1e-12);
            assert!(tolerates(window::UNBOUNDED, Span::MAX, 1) < 1e-30);
            assert!(tolerates(window::UNBOUNDED, Span::MAX, 0) < 1e-30);
        }
        assert_eq!(
            run_length(window::UNBOUNDED, Span::MAX, ByteCount::ZERO).get(),
            u64::MAX
        );
        assert_eq!(
            run_length(BitRate::ZERO, Span::ZERO, ByteCount::ZERO).get(),
            0
        );
    }

    proptest! {
        #[test]
        fn the_loss_that_a_rate_tolerates_gives_that_rate(
            bps in 100_000_u64..1_000_000_000_000,
            millis in 1_u64..1000,
        ) {
            let (rate, rtt, mss) = (BitRate::from_bps(bps), Span::from_millis(millis), ByteCount::new(1448));
            for constant in ALL {
                let loss = constant.tolerated_loss(rate, rtt, mss);
                prop_assume!(loss < Ratio::new(0.5));
                let again = window::rate_of_window(constant.mean_window(loss, mss), rtt);
                // A window is whole bytes.
                let byte = 8.0 / rtt.as_secs_f64();
                prop_assert!((again.as_f64() - rate.as_f64()).abs() <= byte + rate.as_f64() * 1e-9, "{again}, not \
                                                                                                     {rate}");
            }
        }

        #[test]
        fn more_rate_or_a_longer_way_tolerates_less(bps: u64, more: u64, nanos: u64, longer: u64, mss: u64) {
            let at = |bps: u64, nanos: u64| (BitRate::from_bps(bps), Span::from_nanos(nanos), ByteCount::new(mss));
            for constant in ALL {
                let tolerates = |(rate, rtt, mss)| constant.tolerated_loss(rate, rtt, mss);
                prop_assert!(tolerates(at(bps, nanos)) >= tolerates(at(bps.saturating_add(more), nanos)));
                prop_assert!(tolerates(at(bps, nanos)) >= tolerates(at(bps, nanos.saturating_add(longer))));
            }
        }
    }
}

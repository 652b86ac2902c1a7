//! The square-root law of Reno (Mathis, Semke, Mahdavi, Ott 1997): window = C · mss ÷ √loss, where
//! each packet is acknowledged, as Linux counts.
//!
//! The law counts losses that fast retransmit repairs, at most one a round trip, and no timeouts:
//! it holds for p up to about one percent, and promises too much beyond. p is the share of packets
//! that are *loss events*: a burst counts once.

use crate::prelude::*;

use super::in_bytes;

/// C for losses evenly spaced: √(3/2).
const PERIODIC: f64 = 1.224_744_871_391_589;

/// C for losses at random, to the paper's two digits.
const RANDOM: f64 = 1.31;

/// C as RFC 3649 rounds that of losses evenly spaced.
const RENO: f64 = 1.2;

/// Returns the textbook's mean window under `loss`, of losses evenly spaced: mss · √(3/2) ÷ √loss;
/// nothing where every packet is lost.
pub fn mathis_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    in_bytes(PERIODIC / loss.get().sqrt(), loss, mss)
}

/// Returns the mean window under losses at random: mss · 1.31 ÷ √loss.
pub(super) fn random_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    in_bytes(RANDOM / loss.get().sqrt(), loss, mss)
}

/// Returns Reno's response as the RFCs print it (RFC 3649, RFC 8312 table 1): mss · 1.2 ÷ √loss.
pub fn reno_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    in_bytes(reno_segments(loss), loss, mss)
}

/// Returns Reno's mean window in segments.
pub(super) fn reno_segments(loss: Ratio) -> f64 {
    RENO / loss.get().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use fullpipe_units::Span;

    #[test]
    fn a_tenth_of_a_second_of_the_textbook() {
        for (loss, rate) in [(1e-4, "14.31 Mbit/s"), (1e-6, "143.1 Mbit/s")] {
            let window = mathis_window(Ratio::new(loss), ByteCount::new(1460));
            let rate_of_window = window::rate_of_window(window, Span::from_millis(100));
            assert_eq!(rate_of_window.to_string(), rate);
        }
    }

    /// A window that falls to a half and gains one segment every round trip sends 3/8 · W² packets
    /// in W/2 of them, one of which is lost.
    #[test]
    fn the_periodic_constant_is_the_area_of_a_sawtooth() {
        let peak = 1000.0_f64;
        let loss = 1.0 / (3.0 / 8.0 * peak * peak);
        assert!((0.75 * peak * loss.sqrt() - PERIODIC).abs() < 1e-12);
    }

    /// Let X = p · W² ÷ 2 before a loss. A loss leaves X/4, and until the next one X gains an
    /// exponential of mean one, so X is Σ Eₖ ÷ 4ᵏ, of which the mean root is Γ(3/2) · Π (1 −
    /// 4^−(k+½)) ÷ (1 − 4^−k). An epoch takes W/2 round trips and carries 1/p packets: C = √2 ÷
    /// mean root (Ott, Kemperman, Mathis 1996).
    #[test]
    fn the_random_constant_is_that_of_a_stationary_window() {
        let product: f64 = (1..40)
            .map(|k| {
                let power = libm::pow(4.0, -f64::from(k));
                (1.0 - power / 2.0) / (1.0 - power)
            })
            .product();
        let mean_root = std::f64::consts::PI.sqrt() / 2.0 * product;
        let exact = 2.0_f64.sqrt() / mean_root;
        assert_eq!(format!("{exact:.2}"), RANDOM.to_string());
    }
}

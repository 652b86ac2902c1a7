//! `HighSpeed` TCP (RFC 3649): Reno up to 38 segments, and above them a larger step up and a
//! smaller one down.
//!
//! Holds for losses evenly spaced, between 10⁻³ and 10⁻⁷; beyond, the RFC goes on with the same
//! line. Linux has it as the module `highspeed`.

use fullpipe_units::{ByteCount, Ratio, SegCount};

use super::in_bytes;
use super::mathis::{reno_loss, reno_segments};

/// The mean window (RFC 3649 §5): mss · 0.12 ÷ loss^0.835, and no less than Reno's.
pub fn highspeed_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    let own = RESPONSE / libm::pow(loss.get(), EXPONENT);
    in_bytes(own.max(reno_segments(loss)), loss, mss)
}

/// The loss, at most one, under which the mean window is `window`: [`highspeed_window`] solved for
/// it.
pub fn highspeed_tolerates(window: ByteCount, mss: ByteCount) -> Ratio {
    let segments = window.as_f64() / mss.as_f64();
    let own = libm::pow(RESPONSE / segments, 1.0 / EXPONENT);
    Ratio::new(own.max(reno_loss(segments)).min(1.0))
}

/// Returns the share of `window` that is left after a loss, 1 − b(w): a half up to 38 segments,
/// nine tenths from 83 000 on, and between them linear in the logarithm (RFC 3649 §5).
pub fn highspeed_backoff(window: SegCount) -> Ratio {
    let beyond_reno =
        libm::log(window.as_f64().max(1.0) / LOW_WINDOW) / libm::log(HIGH_WINDOW / LOW_WINDOW);
    Ratio::new(0.5 + 0.4 * beyond_reno.clamp(0.0, 1.0))
}

/// The line through 38 segments at 10⁻³ and 83 000 at 10⁻⁷, as the RFC rounds it.
const RESPONSE: f64 = 0.12;
const EXPONENT: f64 = 0.835;
const LOW_WINDOW: f64 = 38.0;
const HIGH_WINDOW: f64 = 83_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::reno_window;
    use proptest::prelude::*;

    const UNIT: ByteCount = ByteCount::new(1000);

    #[test]
    fn back_offs_of_rfc_3649_appendix_b() {
        for (window, decrease) in [
            (1, "0.50"),
            (38, "0.50"),
            (118, "0.44"),
            (221, "0.41"),
            (495, "0.37"),
            (1058, "0.33"),
            (2076, "0.29"),
            (83_000, "0.10"),
            (u64::MAX, "0.10"),
        ] {
            let kept = highspeed_backoff(SegCount::new(window)).get();
            assert_eq!(format!("{:.2}", 1.0 - kept), decrease, "{window} segments");
        }
    }

    #[test]
    fn up_to_38_segments_it_is_reno() {
        for exponent in [-2.0, -2.5, -2.98] {
            let loss = Ratio::new(libm::pow(10.0, exponent));
            assert_eq!(highspeed_window(loss, UNIT), reno_window(loss, UNIT));
        }
        assert!(highspeed_window(Ratio::new(9e-4), UNIT) > reno_window(Ratio::new(9e-4), UNIT));
    }

    proptest! {
        #[test]
        fn the_loss_that_a_window_tolerates_gives_that_window(segments in 3_u64..1_000_000_000) {
            let window = SegCount::new(segments).of_size(UNIT);
            let again = highspeed_window(highspeed_tolerates(window, UNIT), UNIT);
            prop_assert!((again.as_f64() - window.as_f64()).abs() <= 1.0 + window.as_f64() * 1e-9);
        }

        #[test]
        fn more_loss_is_never_a_larger_window_nor_a_larger_window_a_deeper_cut(
            loss in 0_f64..1.2, more in 0_f64..1.0, window: u64, larger: u64,
        ) {
            prop_assert!(highspeed_window(Ratio::new(loss), UNIT) >= highspeed_window(Ratio::new(loss + more), UNIT));
            let kept = |segments| highspeed_backoff(SegCount::new(segments));
            prop_assert!(kept(window) <= kept(window.saturating_add(larger)));
            let tolerates = |bytes| highspeed_tolerates(ByteCount::new(bytes), UNIT);
            prop_assert!(tolerates(window) >= tolerates(window.saturating_add(larger)));
        }
    }
}

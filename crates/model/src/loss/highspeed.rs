//! `HighSpeed` TCP (RFC 3649): Reno up to 38 segments, and above them a larger step up and a
//! smaller one down.
//!
//! Holds for losses evenly spaced, between 10⁻³ and 10⁻⁷; beyond, the RFC goes on with the same
//! line. Linux has it as the module `highspeed`.

use fullpipe_units::{ByteCount, Ratio};

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

/// The line through 38 segments at 10⁻³ and 83 000 at 10⁻⁷, as the RFC rounds it.
const RESPONSE: f64 = 0.12;
const EXPONENT: f64 = 0.835;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::reno_window;
    use fullpipe_units::SegCount;
    use proptest::prelude::*;

    const UNIT: ByteCount = ByteCount::new(1000);

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
        fn more_loss_is_never_a_larger_window(
            loss in 0_f64..1.2, more in 0_f64..1.0, window: u64, larger: u64,
        ) {
            prop_assert!(highspeed_window(Ratio::new(loss), UNIT) >= highspeed_window(Ratio::new(loss + more), UNIT));
            let tolerates = |bytes| highspeed_tolerates(ByteCount::new(bytes), UNIT);
            prop_assert!(tolerates(window) >= tolerates(window.saturating_add(larger)));
        }
    }
}

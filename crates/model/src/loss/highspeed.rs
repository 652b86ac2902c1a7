//! `HighSpeed` TCP (RFC 3649): Reno up to 38 segments, and above them a larger step up and a
//! smaller one down.
//!
//! Holds for losses evenly spaced, between 10⁻³ and 10⁻⁷; beyond, the RFC goes on with the same
//! line. Linux has it as the module `highspeed`.

use crate::prelude::*;

use super::in_bytes;
use super::mathis::reno_segments;

/// The mean window (RFC 3649 §5): mss · 0.12 ÷ loss^0.835, and no less than Reno's.
pub fn highspeed_window(loss: Ratio, mss: ByteCount) -> ByteCount {
    let own = RESPONSE / libm::pow(loss.get(), EXPONENT);
    in_bytes(own.max(reno_segments(loss)), loss, mss)
}

/// The line through 38 segments at 10⁻³ and 83 000 at 10⁻⁷, as the RFC rounds it.
const RESPONSE: f64 = 0.12;
const EXPONENT: f64 = 0.835;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::reno_window;

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
        fn more_loss_is_never_a_larger_window(
            loss in 0_f64..1.2, more in 0_f64..1.0,
        ) {
            prop_assert!(highspeed_window(Ratio::new(loss), UNIT) >= highspeed_window(Ratio::new(loss + more), UNIT));
        }
    }
}

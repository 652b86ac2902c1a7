//! The shares of two flows of one congestion control at a bottleneck when their round-trip times
//! differ.
//!
//! Only what a queue makes of the difference is left out: a long queue adds the same to both and so
//! evens them out. Take round-trip times with it ([`crate::queue::loaded_rtt`]).

use fullpipe_units::{Ratio, Span};

use crate::loss::CongestionControl;

/// Distribution of the losses over the two flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossDistribution {
    /// Each packet with the same probability: random loss, or a bottleneck with many flows.
    Independent,
    /// Both flows at the same moments: a short drop-tail queue that overflows for both.
    Synchronised,
}

/// The rate of a flow over `first` ÷ that of one over `second`.
///
/// | | independent | synchronised |
/// |---|---|---|
/// | Reno | inverse of the round-trip times (Mathis 1997) | its square: the windows gain one segment per own round trip (Lakshman, Madhow 1997 place the power between 1 and 2) |
/// | CUBIC | its fourth root (RFC 8312 eq. 5) | inverse: the windows grow by the clock, alike (RFC 8312 §5.6) |
///
/// For CUBIC where its own window is larger than Reno's; elsewhere it shares as Reno. `None` for
/// BBR: version 1 favours the *longer* way, as its window of two BDPs puts more in the queue there,
/// but there is no formula for by how much.
pub fn rate_ratio(
    control: CongestionControl,
    losses: LossDistribution,
    first: Span,
    second: Span,
) -> Option<Ratio> {
    let power = match (control, losses) {
        (CongestionControl::Reno | CongestionControl::HighSpeed, LossDistribution::Independent)
        | (CongestionControl::Cubic, LossDistribution::Synchronised) => 1.0,
        (CongestionControl::Reno, LossDistribution::Synchronised) => 2.0,
        (CongestionControl::Cubic, LossDistribution::Independent) => 0.25,
        (CongestionControl::HighSpeed, LossDistribution::Synchronised)
        | (CongestionControl::Bbr, _) => return None,
    };
    if first == second {
        return Some(Ratio::ONE);
    }
    Some(Ratio::new(libm::pow(
        second.as_secs_f64() / first.as_secs_f64(),
        power,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{CubicConstants, mathis_window};
    use crate::window;
    use fullpipe_units::ByteCount;
    use proptest::prelude::*;

    const NEAR: Span = Span::from_millis(20);
    const FAR: Span = Span::from_millis(160);
    const FLOWS: [(CongestionControl, LossDistribution, &str); 4] = [
        (
            CongestionControl::Reno,
            LossDistribution::Independent,
            "8.00",
        ),
        (
            CongestionControl::Reno,
            LossDistribution::Synchronised,
            "64.00",
        ),
        (
            CongestionControl::Cubic,
            LossDistribution::Independent,
            "1.68",
        ),
        (
            CongestionControl::Cubic,
            LossDistribution::Synchronised,
            "8.00",
        ),
    ];

    #[test]
    fn a_way_eight_times_as_long() {
        for (control, losses, ratio) in FLOWS {
            let got = rate_ratio(control, losses, NEAR, FAR).unwrap();
            assert_eq!(
                format!("{:.2}", got.get()),
                ratio,
                "{} {losses:?}",
                control.display_name()
            );
        }
        assert_eq!(
            rate_ratio(
                CongestionControl::Bbr,
                LossDistribution::Independent,
                NEAR,
                FAR
            ),
            None
        );
    }

    #[test]
    fn under_independent_loss_it_is_the_ratio_of_the_response_functions() {
        let (loss, mss) = (Ratio::new(1e-7), ByteCount::new(1448));
        let cubic = |rtt| {
            window::rate_of_window(CubicConstants::default().mean_window(loss, rtt, mss), rtt)
        };
        let reno = |rtt| window::rate_of_window(mathis_window(loss, mss), rtt);
        for (control, got) in [
            (
                CongestionControl::Cubic,
                cubic(NEAR).relative_to(cubic(FAR)),
            ),
            (CongestionControl::Reno, reno(NEAR).relative_to(reno(FAR))),
        ] {
            let formula = rate_ratio(control, LossDistribution::Independent, NEAR, FAR)
                .unwrap()
                .get();
            assert!(
                (got / formula - 1.0).abs() < 1e-5,
                "{}: {got}, not {formula}",
                control.display_name()
            );
        }
    }

    /// Both windows rise until together they fill the link, then both fall.
    #[test]
    fn under_synchronised_loss_windows_end_as_the_formula_says() {
        let rtts = [NEAR.as_secs_f64(), FAR.as_secs_f64()];
        let (capacity, step) = (10_000.0, 0.001);
        let mut windows = [1.0, 1.0];
        let mut sent = [0.0, 0.0];
        for _ in 0..4_000_000 {
            for flow in [0, 1] {
                windows[flow] += step / rtts[flow];
                sent[flow] += windows[flow] / rtts[flow] * step;
            }
            if windows[0] / rtts[0] + windows[1] / rtts[1] > capacity {
                windows = windows.map(|window| window * 0.5);
            }
        }
        assert_eq!(format!("{:.1}", sent[0] / sent[1]), "64.0");
    }

    proptest! {
        #[test]
        fn the_longer_way_has_the_smaller_share_and_the_ratios_are_inverse(first: u64, second: u64, longer: u64) {
            for (control, losses, _) in FLOWS {
                let ratio = |first, second| {
                    rate_ratio(control, losses, Span::from_nanos(first), Span::from_nanos(second)).unwrap().get()
                };
                prop_assert!(ratio(first, second) >= ratio(first.saturating_add(longer), second));
                if first > 0 && second > 0 {
                    prop_assert!((ratio(first, second) * ratio(second, first) - 1.0).abs() < 1e-9);
                }
            }
        }
    }
}

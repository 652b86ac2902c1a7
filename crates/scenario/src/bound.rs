use std::fmt;

use fullpipe_units::{BitRate, Ratio};

use crate::key::{Key, quantity, require};

/// What measured ÷ predicted must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// One, give or take this much.
    Within(Ratio),
    /// This or more.
    AtLeast(Ratio),
    /// This or less.
    AtMost(Ratio),
}

/// What a step must reach of each of its two predictions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepBounds {
    /// Of the refined prediction; `None` where nothing is asked.
    pub refined: Option<Bound>,
    /// Of the plain prediction; `None` where nothing is asked.
    pub plain: Option<Bound>,
}

/// What the rate of one step ÷ the rate of another must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioBound {
    /// The step above the line: an index into [`Scenario::steps`](crate::Scenario::steps).
    pub numerator: usize,
    /// The step below it, likewise.
    pub denominator: usize,
    /// The ratio to expect.
    pub expect: Ratio,
    /// How far from it the ratio may be, as a share of `expect`.
    pub within: Ratio,
}

/// The keys of `refined = { … }` and `plain = { … }`.
pub(crate) const BOUND_KEYS: &[Key<Option<Bound>>] = &[
    Key { name: "within", set: |bound, text| set_once(bound, Bound::Within(positive(text)?)) },
    Key { name: "at_least", set: |bound, text| set_once(bound, Bound::AtLeast(positive(text)?)) },
    Key { name: "at_most", set: |bound, text| set_once(bound, Bound::AtMost(positive(text)?)) },
];

/// A ratio above zero.
pub(crate) fn positive(text: &str) -> Result<Ratio, String> {
    let ratio = quantity(text)?;
    require(ratio, ratio > Ratio::ZERO, text, "a bound", "it must be above 0")
}

impl Bound {
    /// Whether measured ÷ predicted is as it must be.
    pub fn holds(self, accuracy: Ratio) -> bool {
        match self {
            Self::Within(tolerance) => (accuracy.get() - 1.0).abs() <= tolerance.get(),
            Self::AtLeast(least) => accuracy >= least,
            Self::AtMost(most) => accuracy <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(tolerance) => write!(f, "within 100 ± {tolerance}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl RatioBound {
    /// Whether the measured rates of the two steps are as they must be; never where the second is zero.
    pub fn holds(&self, numerator: BitRate, denominator: BitRate) -> bool {
        let ratio = numerator.relative_to(denominator) / self.expect.get();
        (ratio - 1.0).abs() <= self.within.get()
    }
}

fn set_once(bound: &mut Option<Bound>, value: Bound) -> Result<(), String> {
    if bound.is_some() {
        return Err("write one of within, at_least and at_most, not two".to_owned());
    }
    *bound = Some(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_on_their_own_side() {
        let tenth = Ratio::new(0.1);
        for (bound, accuracy, holds) in [
            (Bound::Within(tenth), 0.91, true),
            (Bound::Within(tenth), 1.09, true),
            (Bound::Within(tenth), 0.89, false),
            (Bound::Within(tenth), 1.11, false),
            (Bound::AtLeast(tenth), 0.1, true),
            (Bound::AtLeast(tenth), 0.09, false),
            (Bound::AtMost(tenth), 0.1, true),
            (Bound::AtMost(tenth), 0.11, false),
        ] {
            assert_eq!(bound.holds(Ratio::new(accuracy)), holds, "{bound:?} of {accuracy}");
        }
    }

    #[test]
    fn a_ratio_is_held_against_what_is_expected() {
        let bound = RatioBound { numerator: 1, denominator: 0, expect: Ratio::new(2.0), within: "5%".parse().unwrap() };
        let holds = |first, second| bound.holds(BitRate::from_bps(first), BitRate::from_bps(second));
        assert!(holds(209, 100) && holds(191, 100));
        assert!(!holds(211, 100) && !holds(189, 100));
        assert!(!holds(1, 0) && !holds(0, 0), "nothing was measured");
    }

    #[test]
    fn bounds_are_written_for_a_reader() {
        let share = "5%".parse().unwrap();
        let written = [Bound::Within(share), Bound::AtLeast(share), Bound::AtMost(share)].map(|b| b.to_string());
        assert_eq!(written, ["within 100 ± 5 %", "at least 5 %", "at most 5 %"]);
    }
}

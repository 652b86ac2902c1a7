use std::fmt;

use fullpipe_record::{Cause, Limit};
use fullpipe_units::{BitRate, Ratio};
use serde::de::DeserializeOwned;
use serde::de::value::StrDeserializer;

use crate::key::{Key, keys, parse_quantity, require_valid};

/// A bound on measured ÷ predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AccuracyBound {
    /// One, give or take this much.
    Within(Ratio),
    /// This or more.
    AtLeast(Ratio),
    /// This or less.
    AtMost(Ratio),
}

/// The bounds of a step; `None` where nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepBounds {
    /// Bound on measured ÷ predicted by the kernel model.
    pub kernel_model: Option<AccuracyBound>,
    /// Bound on measured ÷ predicted by the textbook formulas.
    pub textbook: Option<AccuracyBound>,
    /// Of the payload that the link carries.
    pub capacity: Option<AccuracyBound>,
    /// Distance of the share of lost datagrams from what the rate really offered and the link's
    /// busy time predict.
    pub loss: Option<Ratio>,
    /// Of the packets that the link let others pass: how many datagrams were seen out of order.
    pub reordered: Option<AccuracyBound>,
    /// Bound on the share of the link that this load and the cross traffic fill.
    pub fills: Option<AccuracyBound>,
    /// The verdict that is expected.
    pub verdict: Option<ExpectedVerdict>,
}

/// A verdict that a step must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedVerdict {
    /// The limit.
    pub kind: Limit,
    /// Why, where that matters.
    pub cause: Option<Cause>,
}

/// A bound on the rate of one step ÷ the rate of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioBound {
    /// The step above the line: an index into [`Scenario::steps`](crate::Scenario::steps).
    pub numerator: usize,
    /// The step below it, likewise.
    pub denominator: usize,
    /// The ratio to expect.
    pub expect: ExpectedRatio,
    /// The bound on the measured ratio ÷ the expected one.
    pub bound: AccuracyBound,
}

/// A ratio to expect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpectedRatio {
    /// This.
    Ratio(Ratio),
    /// The ratio of the predictions by the kernel model.
    KernelModel,
}

/// The keys of `kernel_model = { … }` and `textbook = { … }`.
pub(crate) const BOUND_KEYS: &[Key<Option<AccuracyBound>>] = keys! { |bound, text|
    "within" => set_once(bound, AccuracyBound::Within(positive_ratio(text)?))?,
    "at_least" => set_once(bound, AccuracyBound::AtLeast(positive_ratio(text)?))?,
    "at_most" => set_once(bound, AccuracyBound::AtMost(positive_ratio(text)?))?,
};

/// A ratio above zero.
pub(crate) fn positive_ratio(text: &str) -> Result<Ratio, String> {
    let ratio = parse_quantity(text)?;
    require_valid(
        ratio,
        ratio > Ratio::ZERO,
        text,
        "a bound",
        "it must be above 0",
    )
}

impl AccuracyBound {
    /// Returns true if measured ÷ predicted is within the bound.
    pub fn allows_ratio(self, accuracy: Ratio) -> bool {
        match self {
            Self::Within(tolerance) => (accuracy.get() - 1.0).abs() <= tolerance.get(),
            Self::AtLeast(least) => accuracy >= least,
            Self::AtMost(most) => accuracy <= most,
        }
    }
}

impl fmt::Display for AccuracyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(tolerance) => write!(f, "within 100 ± {tolerance}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl ExpectedRatio {
    /// "`kernel_model`", or a number above zero.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text == "kernel_model" {
            Ok(Self::KernelModel)
        } else {
            positive_ratio(text).map(Self::Ratio)
        }
    }
}

impl ExpectedVerdict {
    /// `kind` or `kind/cause`, as the verdict of `--json` has them.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (kind, cause) = match text.split_once('/') {
            Some((kind, cause)) => (from_json_name(kind), from_json_name(cause).map(Some)),
            None => (from_json_name(text), Some(None)),
        };
        let (kind, cause) = kind.zip(cause).ok_or_else(|| {
            format!(
                "\"{text}\" is no verdict: write a kind, as loss, or kind/cause, as loss/random"
            )
        })?;
        Ok(Self { kind, cause })
    }
}

/// A value by its name in JSON.
fn from_json_name<V: DeserializeOwned>(name: &str) -> Option<V> {
    V::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

impl RatioBound {
    /// Returns true if the measured rates of the two steps are within the bound, if those of
    /// `expected` are to be expected; never if the second is zero.
    pub fn allows_rates(&self, [numerator, denominator]: [BitRate; 2], expected: Ratio) -> bool {
        denominator > BitRate::ZERO
            && self.bound.allows_ratio(Ratio::new(
                numerator.relative_to(denominator) / expected.get(),
            ))
    }
}

fn set_once(bound: &mut Option<AccuracyBound>, value: AccuracyBound) -> Result<(), String> {
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
            (AccuracyBound::Within(tenth), 0.91, true),
            (AccuracyBound::Within(tenth), 1.09, true),
            (AccuracyBound::Within(tenth), 0.89, false),
            (AccuracyBound::Within(tenth), 1.11, false),
            (AccuracyBound::AtLeast(tenth), 0.1, true),
            (AccuracyBound::AtLeast(tenth), 0.09, false),
            (AccuracyBound::AtMost(tenth), 0.1, true),
            (AccuracyBound::AtMost(tenth), 0.11, false),
        ] {
            assert_eq!(
                bound.allows_ratio(Ratio::new(accuracy)),
                holds,
                "{bound:?} of {accuracy}"
            );
        }
    }

    #[test]
    fn a_ratio_is_held_against_what_is_expected() {
        let bound = |bound| RatioBound {
            numerator: 1,
            denominator: 0,
            expect: ExpectedRatio::KernelModel,
            bound,
        };
        let holds = |held, first, second| {
            bound(held).allows_rates(
                [BitRate::from_bps(first), BitRate::from_bps(second)],
                Ratio::new(2.0),
            )
        };
        let within = AccuracyBound::Within("5%".parse().unwrap());
        assert!(holds(within, 209, 100) && holds(within, 191, 100));
        assert!(!holds(within, 211, 100) && !holds(within, 189, 100));
        assert!(
            !holds(within, 1, 0) && !holds(within, 0, 0),
            "nothing was measured"
        );
        let half = AccuracyBound::AtMost(Ratio::new(0.5));
        assert!(holds(half, 99, 100) && !holds(half, 101, 100) && !holds(half, 0, 0));
    }

    #[test]
    fn verdicts_are_read_by_their_names() {
        let read = |text| ExpectedVerdict::read(text).ok();
        assert_eq!(
            read("loss"),
            Some(ExpectedVerdict {
                kind: Limit::Loss,
                cause: None
            })
        );
        let random = ExpectedVerdict {
            kind: Limit::Loss,
            cause: Some(Cause::Random),
        };
        assert_eq!(read("loss/random"), Some(random));
        for text in ["", "lost", "loss/", "loss/luck", "/random"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn bounds_are_written_for_a_reader() {
        let share = "5%".parse().unwrap();
        let written = [
            AccuracyBound::Within(share),
            AccuracyBound::AtLeast(share),
            AccuracyBound::AtMost(share),
        ]
        .map(|b| b.to_string());
        assert_eq!(written, ["within 100 ± 5 %", "at least 5 %", "at most 5 %"]);
    }
}

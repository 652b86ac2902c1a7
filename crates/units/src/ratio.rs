use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::parse::{ParseError, QuantityGrammar, format_significant};

/// A finite share or factor, zero or larger: a loss probability, an efficiency, a part of the time.
/// Text is a fraction (`1e-4`) or a percentage (`0.01%`).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(description = "A fraction: 0.01 is one percent.")]
pub struct Ratio(f64);

const GRAMMAR: QuantityGrammar = QuantityGrammar {
    quantity: "a ratio",
    example: "0.01% or 1e-4",
};

impl Ratio {
    /// Nothing of it.
    pub const ZERO: Self = Self(0.0);
    /// All of it.
    pub const ONE: Self = Self(1.0);

    /// `value`, with anything negative or undefined as zero and infinity as the largest number.
    pub fn new(value: f64) -> Self {
        Self(if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, f64::MAX)
        })
    }

    /// `part` ÷ `whole`; zero where `whole` is zero.
    pub fn from_quotient(part: f64, whole: f64) -> Self {
        if whole == 0.0 {
            Self::ZERO
        } else {
            Self::new(part / whole)
        }
    }

    /// As a fraction.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// As a percentage.
    pub fn as_percent(self) -> f64 {
        self.0 * 100.0
    }
}

impl FromStr for Ratio {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let value = GRAMMAR.read_value(text, |unit| match unit {
            "" => Some(1.0),
            "%" => Some(0.01),
            _ => None,
        });
        value.map(Self)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.as_percent();
        let text = match percent {
            // So small that zeros would have to be counted.
            p if p > 0.0 && p < 9.9e-5 => format!("{p:.1e} %"),
            p if p > 0.0 && p < 0.01 => format!("{} %", format!("{p:.5}").trim_end_matches('0')),
            p => format!("{} %", format_significant(p)),
        };
        f.pad(&text)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(from)?;
        if value.is_finite() && value >= 0.0 {
            Ok(Self(value))
        } else {
            Err(de::Error::custom("a ratio is finite and not negative"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_fraction_mean_the_same() {
        assert!(("0.01%".parse::<Ratio>().unwrap().get() - 1e-4).abs() < 1e-12);
        assert_eq!("1e-4".parse(), Ok(Ratio(1e-4)));
        assert_eq!("0".parse(), Ok(Ratio::ZERO));
    }

    #[test]
    fn small_shares_stay_readable() {
        assert_eq!(Ratio(0.941_48).to_string(), "94.15 %");
        assert_eq!(Ratio(6.2e-5).to_string(), "0.0062 %");
        assert_eq!(Ratio(1e-6).to_string(), "0.0001 %");
        assert_eq!(Ratio(2e-8).to_string(), "2.0e-6 %");
        assert_eq!(Ratio(0.0).to_string(), "0 %");
    }

    #[test]
    fn the_largest_ratio_prints_though_its_percentage_overflows() {
        assert_eq!(Ratio::new(f64::INFINITY).to_string(), "inf %");
    }
}

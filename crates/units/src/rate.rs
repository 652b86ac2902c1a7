use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parse::{ParseError, QuantityGrammar, format_significant};
use crate::{ByteCount, Span};

/// A rate in whole bits per second. Text is decimal: `100Mbit/s`, `1G`, `9.6k`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
#[schemars(description = "Bits per second.")]
pub struct BitRate(u64);

const GRAMMAR: QuantityGrammar = QuantityGrammar {
    quantity: "a rate",
    example: "100Mbit/s or 1G",
};

impl BitRate {
    /// No bits at all.
    pub const ZERO: Self = Self(0);

    /// A rate of so many bits per second.
    pub const fn from_bps(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// The nearest whole rate to `bits_per_second`; a negative or undefined number gives zero.
    pub fn from_bps_f64(bits_per_second: f64) -> Self {
        Self(bits_per_second.round().max(0.0) as u64)
    }

    /// A rate of so many million bits per second.
    pub const fn from_mbps(megabits_per_second: u64) -> Self {
        Self(megabits_per_second * 1_000_000)
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Bits per second, for formulas.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Million bits per second, for formulas and tables.
    pub fn as_mbps(self) -> f64 {
        self.as_f64() / 1e6
    }

    /// The rate at which `bytes` pass in `span`; zero for an empty span.
    pub fn from_bytes_in(bytes: ByteCount, span: Span) -> Self {
        if span == Span::ZERO {
            return Self::ZERO;
        }
        // Up to 2 GB it takes no division of 128 bits.
        if let Some(scaled) = bytes.get().checked_mul(8_000_000_000) {
            return Self(scaled / span.as_nanos());
        }
        let rate = u128::from(bytes.get()) * 8_000_000_000 / u128::from(span.as_nanos());
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the time that `bytes` take at this rate, rounded up; the longest span for a rate of
    /// zero.
    pub fn time_for(self, bytes: ByteCount) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let nanos = (u128::from(bytes.get()) * 8_000_000_000).div_ceil(u128::from(self.0));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of whole bytes that pass at this rate in `span`.
    pub fn bytes_in(self, span: Span) -> ByteCount {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// This rate multiplied by `factor`.
    #[must_use]
    pub fn scale_by(self, factor: f64) -> Self {
        Self::from_bps_f64(self.as_f64() * factor)
    }

    /// This rate as a multiple of `other`; undefined (NaN or infinite) if `other` is zero.
    pub fn relative_to(self, other: Self) -> f64 {
        self.as_f64() / other.as_f64()
    }
}

impl Sum for BitRate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::ZERO, |sum, rate| Self(sum.0.saturating_add(rate.0)))
    }
}

fn unit_factor(unit: &str) -> Option<f64> {
    let prefix = ["bit/s", "bits/s", "bps", "b/s", "bit", ""]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix))?;
    Some(match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        "T" | "t" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

impl FromStr for BitRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        GRAMMAR.read_whole(text, unit_factor).map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A step earlier than the power itself, so that 999.96 Mbit/s prints as 1 Gbit/s and not as
        // 1000 Mbit/s.
        let (scale, unit) = match self.as_f64() {
            r if r >= 999.95e9 => (1e12, "Tbit/s"),
            r if r >= 999.95e6 => (1e9, "Gbit/s"),
            r if r >= 999.95e3 => (1e6, "Mbit/s"),
            r if r >= 999.95 => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        f.pad(&format!(
            "{} {unit}",
            format_significant(self.as_f64() / scale)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_rates_in_many_ways() {
        for (text, bps) in [
            ("100Mbit/s", 100_000_000),
            ("100 Mbit/s", 100_000_000),
            ("1G", 1_000_000_000),
            ("2.5Gbps", 2_500_000_000),
            ("9344kbit/s", 9_344_000),
            ("10m", 10_000_000),
            ("1e6", 1_000_000),
            ("1Mibit/s", 1_048_576),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bps)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_sentence() {
        for (text, sentence) in [
            (
                "12 parsecs",
                "\"12 parsecs\" is not a rate: its unit cannot be \"parsecs\"; write for example 100Mbit/s or 1G",
            ),
            (
                "173ms",
                "\"173ms\" is not a rate: its unit cannot be \"ms\"; write for example 100Mbit/s or 1G",
            ),
            (
                "-1G",
                "\"-1G\" is not a rate: it must not be negative; write for example 100Mbit/s or 1G",
            ),
            (
                "fast",
                "\"fast\" is not a rate: a number must come first; write for example 100Mbit/s or 1G",
            ),
            (
                "1e30",
                "\"1e30\" is not a rate: the number is too large; write for example 100Mbit/s or 1G",
            ),
        ] {
            assert_eq!(text.parse::<BitRate>().unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn rates_print_decimal() {
        for (bps, text) in [
            (3_030_600, "3.031 Mbit/s"),
            (1_000_000_000, "1 Gbit/s"),
            (999_960_000, "1 Gbit/s"),
            (512, "512 bit/s"),
            (0, "0 bit/s"),
        ] {
            assert_eq!(BitRate(bps).to_string(), text);
        }
    }

    #[test]
    fn a_full_frame_takes_its_time() {
        assert_eq!(
            BitRate::from_mbps(100).time_for(ByteCount::new(1538)),
            Span::from_nanos(123_040)
        );
        assert_eq!(BitRate::ZERO.time_for(ByteCount::new(1)), Span::MAX);
    }

    proptest! {
        #[test]
        fn bytes_in_undoes_time_for(bps in 1_000_u64..1_000_000_000_000, bytes in 0_u64..1_000_000_000) {
            let rate = BitRate(bps);
            let back = rate.bytes_in(rate.time_for(ByteCount::new(bytes))).get();
            prop_assert!(back >= bytes && back - bytes <= 1 + bps / 8_000_000_000);
        }

        #[test]
        fn any_text_is_a_rate_or_an_error(text in "\\PC*") {
            let _ = text.parse::<BitRate>();
        }
    }
}

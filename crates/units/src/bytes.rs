use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parse::{ParseError, QuantityGrammar, format_significant};

/// A number of whole bytes. Text is binary where the letter stands alone or with `i` (`64K`,
/// `64KiB` are 65 536), and decimal where `B` follows at once (`64KB` is 64 000).
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
#[schemars(description = "Bytes.")]
pub struct ByteCount(u64);

/// A number of TCP segments, or of packets on the wire.
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
#[schemars(description = "Segments.")]
pub struct SegCount(u64);

const GRAMMAR: QuantityGrammar = QuantityGrammar {
    quantity: "a size",
    example: "64KiB, 4M or 1460",
};

impl ByteCount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The nearest whole number of bytes; a negative or undefined number gives zero.
    pub fn from_f64(bytes: f64) -> Self {
        Self(bytes.round().max(0.0) as u64)
    }

    /// So many times 1024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib * 1024)
    }

    /// So many times 1024² bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib * 1024 * 1024)
    }

    /// Bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Bytes, for formulas.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// This size less `other`, or nothing where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This size multiplied by `factor`, to the nearest byte.
    #[must_use]
    pub fn scale_by(self, factor: f64) -> Self {
        Self::from_f64(self.as_f64() * factor)
    }
}

impl SegCount {
    /// None.
    pub const ZERO: Self = Self(0);

    /// So many segments.
    pub const fn new(segments: u64) -> Self {
        Self(segments)
    }

    /// Segments.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Segments, for formulas.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// This count less `other`, or none where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The bytes in so many segments of `size` each.
    pub const fn of_size(self, size: ByteCount) -> ByteCount {
        ByteCount(self.0.saturating_mul(size.0))
    }
}

macro_rules! countable {
    ($($name:ident),*) => {$(
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $name {
            type Output = Self;
            /// As integers do, this panics in debug builds where `other` is larger.
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }
    )*};
}
countable!(ByteCount, SegCount);

fn unit_factor(unit: &str) -> Option<f64> {
    const KIB: f64 = 1024.0;
    Some(match unit {
        "" | "B" | "b" => 1.0,
        "K" | "k" | "KiB" | "Ki" | "kiB" => KIB,
        "M" | "m" | "MiB" | "Mi" => KIB * KIB,
        "G" | "g" | "GiB" | "Gi" => KIB * KIB * KIB,
        "T" | "t" | "TiB" | "Ti" => KIB * KIB * KIB * KIB,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    })
}

impl FromStr for ByteCount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        GRAMMAR.read_whole(text, unit_factor).map(Self)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.as_f64();
        let mut unit = "B";
        for larger in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1023.5 {
                break;
            }
            value /= 1024.0;
            unit = larger;
        }
        f.pad(&format!("{} {unit}", format_significant(value)))
    }
}

impl fmt::Display for SegCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn letters_alone_are_binary_as_in_iperf3() {
        for (text, bytes) in [
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64KB", 64_000),
            ("4M", 4_194_304),
            ("1460", 1460),
            ("1460 B", 1460),
            ("1.5M", 1_572_864),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_print_binary() {
        for (bytes, text) in [
            (4_194_304, "4 MiB"),
            (12_500_000, "11.92 MiB"),
            (1023, "1023 B"),
            (0, "0 B"),
            (1_048_575, "1 MiB"),
        ] {
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_an_error(text in "\\PC*") {
            let _ = text.parse::<ByteCount>();
        }

        #[test]
        fn a_printed_size_reads_back_within_its_digits(bytes in 0_u64..1 << 50) {
            let back: ByteCount = ByteCount(bytes).to_string().parse().unwrap();
            prop_assert!((back.as_f64() - bytes as f64).abs() <= bytes as f64 * 5.1e-4);
        }
    }
}

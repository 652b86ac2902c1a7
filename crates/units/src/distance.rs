use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parse::{ParseError, QuantityGrammar, format_significant};

/// A distance in whole metres. Text has a unit: `8000km`, `500m`; it prints in kilometres.
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
#[schemars(description = "Metres.")]
pub struct Distance(u64);

const GRAMMAR: QuantityGrammar = QuantityGrammar {
    quantity: "a distance",
    example: "8000km or 500m",
};

impl Distance {
    /// No way at all.
    pub const ZERO: Self = Self(0);

    /// So many metres.
    pub const fn from_metres(metres: u64) -> Self {
        Self(metres)
    }

    /// So many kilometres.
    pub const fn from_km(km: u64) -> Self {
        Self(km.saturating_mul(1000))
    }

    /// Metres.
    pub const fn metres(self) -> u64 {
        self.0
    }

    /// Kilometres, for tables.
    pub fn as_km(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

fn unit_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "m" => 1.0,
        "km" => 1e3,
        _ => return None,
    })
}

impl FromStr for Distance {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        GRAMMAR.read_whole(text, unit_factor).map(Self)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} km", format_significant(self.as_km())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_distance_needs_its_unit() {
        assert_eq!("8000km".parse(), Ok(Distance::from_km(8000)));
        assert_eq!("500 m".parse(), Ok(Distance::from_metres(500)));
        assert_eq!("1.5km".parse(), Ok(Distance::from_metres(1500)));
        for (text, sentence) in [
            (
                "8000",
                "\"8000\" is not a distance: the unit is missing; write for example 8000km or 500m",
            ),
            (
                "5ms",
                "\"5ms\" is not a distance: its unit cannot be \"ms\"; write for example 8000km or 500m",
            ),
            (
                "-1km",
                "\"-1km\" is not a distance: it must not be negative; write for example 8000km or 500m",
            ),
        ] {
            assert_eq!(text.parse::<Distance>().unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn distances_print_in_kilometres() {
        for (metres, text) in [
            (8_000_000, "8000 km"),
            (10_850_000, "10850 km"),
            (500, "0.5 km"),
            (0, "0 km"),
        ] {
            assert_eq!(Distance(metres).to_string(), text);
        }
    }

    #[test]
    fn json_has_metres() {
        assert_eq!(
            serde_json::to_string(&Distance::from_km(8)).unwrap(),
            "8000"
        );
        assert_eq!(
            serde_json::from_str::<Distance>("8000").unwrap(),
            Distance::from_km(8)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_distance_or_an_error(text in "\\PC*") {
            let _ = text.parse::<Distance>();
        }
    }
}

use std::borrow::Cow;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::parse::{ParseError, QuantityGrammar, format_significant};

/// A length of time in whole nanoseconds. Text has a unit: `173ms`, `50us`, `10s`, `2min`; in JSON
/// it is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// A moment: nanoseconds since an origin that the caller chose. Crates without a clock receive the
/// time as this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

const GRAMMAR: QuantityGrammar = QuantityGrammar {
    quantity: "a time",
    example: "173ms, 50us or 10s",
};

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that ends.
    pub const MAX: Self = Self(u64::MAX);

    /// So many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// So many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// So many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// The nearest whole nanosecond to `secs`; a negative or undefined number gives zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round().max(0.0) as u64)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Milliseconds, for tables.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds, for formulas.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This span less `other`, or nothing where `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This span multiplied by `factor`.
    #[must_use]
    pub fn scale_by(self, factor: f64) -> Self {
        // As `round` does, which is a call on processors without SSE 4.1.
        let exact = self.0 as f64 * factor;
        let below = exact as u64;
        Self(below.saturating_add(u64::from(exact - below as f64 >= 0.5)))
    }
}

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if this is not after it.
    pub const fn duration_since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns the earlier of two deadlines. The last of all moments counts as none, which spares
    /// branches.
    #[inline]
    pub fn earlier_deadline(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        const NEVER: Time = Time::from_nanos(u64::MAX);
        let earlier = a.unwrap_or(NEVER).min(b.unwrap_or(NEVER));
        (earlier < NEVER).then_some(earlier)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    /// As integers do, this panics in debug builds where `other` is longer.
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

fn unit_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

impl Span {
    /// Reads a time as text, where a number without a unit is so many of `usual`, such as `s`.
    ///
    /// # Errors
    /// Fails if the text is no time.
    pub fn with_usual_unit(text: &str, usual: &str) -> Result<Self, ParseError> {
        GRAMMAR
            .read_whole(text, |unit| {
                unit_factor(if unit.is_empty() { usual } else { unit })
            })
            .map(Self)
    }
}

impl FromStr for Span {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        GRAMMAR.read_whole(text, unit_factor).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (scale, unit) = match nanos {
            n if n >= 999.95e6 => (1e9, "s"),
            n if n >= 999.95e3 => (1e6, "ms"),
            n if n >= 999.95 => (1e3, "µs"),
            0.0 => (1.0, "s"),
            _ => (1.0, "ns"),
        };
        f.pad(&format!("{} {unit}", format_significant(nanos / scale)))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let secs = f64::deserialize(from)?;
        if secs.is_finite() && secs >= 0.0 {
            Ok(Self::from_secs_f64(secs))
        } else {
            Err(de::Error::custom("a time is finite and not negative"))
        }
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "description": "Seconds." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!("173ms".parse(), Ok(Span::from_millis(173)));
        assert_eq!("0.5 s".parse(), Ok(Span::from_millis(500)));
        assert_eq!("50us".parse(), Ok(Span::from_micros(50)));
        assert_eq!(
            "173".parse::<Span>().unwrap_err().to_string(),
            "\"173\" is not a time: the unit is missing; write for example 173ms, 50us or 10s"
        );
    }

    #[test]
    fn spans_print_in_the_unit_that_fits() {
        for (nanos, text) in [
            (173_000_000, "173 ms"),
            (1_500, "1.5 µs"),
            (0, "0 s"),
            (30_000_000_000, "30 s"),
        ] {
            assert_eq!(Span(nanos).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn json_keeps_every_nanosecond(nanos in 0_u64..1 << 50) {
            let text = serde_json::to_string(&Span(nanos)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), Span(nanos));
        }

        #[test]
        fn any_text_is_a_time_or_an_error(text in "\\PC*") {
            let _ = text.parse::<Span>();
        }
    }
}

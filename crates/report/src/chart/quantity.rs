//! Quantities of an axis, and the units in which they are shown.

use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

/// Dimension of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Bits per second.
    Rate,
    /// A length of time.
    Time,
    /// Bytes.
    Size,
    /// A share, shown in percent.
    Share,
    /// A factor between two rates, shown as a change in percent.
    Change,
    /// A number.
    Count,
    /// A moment since the Unix epoch, in UTC.
    Date,
}

/// A quantity that an axis can show.
pub trait AxisQuantity: Copy {
    /// The dimension of the quantity, which selects the units of the axis.
    const DIMENSION: Dimension;

    /// Returns the quantity as a number: bits per second, seconds, bytes, a fraction, or a count.
    fn number(self) -> f64;
}

/// A factor between two rates: after by before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateChange(pub Ratio);

macro_rules! quantities {
    ($($name:ty, $dimension:ident, $number:expr;)+) => {
        $(impl AxisQuantity for $name {
            const DIMENSION: Dimension = Dimension::$dimension;

            fn number(self) -> f64 {
                let number: fn(Self) -> f64 = $number;
                number(self)
            }
        })+
    };
}

quantities! {
    BitRate, Rate, BitRate::as_f64;
    Span, Time, Span::as_secs_f64;
    ByteCount, Size, ByteCount::as_f64;
    Ratio, Share, Ratio::get;
    RateChange, Change, |change| change.0.get();
    u64, Count, |count| count as f64;
    Time, Date, |moment| moment.as_nanos() as f64 / 1e9;
}

/// A unit of a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AxisUnit {
    /// The name of the unit, such as `Mbit/s`; empty for plain numbers.
    pub name: &'static str,
    /// The size of one unit, in the base unit of its dimension: 1e6 for `Mbit/s`.
    pub size: f64,
}

impl Dimension {
    /// Returns the largest unit of which `most` has at least one.
    pub(crate) fn largest_unit(self, most: f64) -> AxisUnit {
        let units: &[(&'static str, f64)] = match self {
            Self::Rate => &[
                ("bit/s", 1.0),
                ("kbit/s", 1e3),
                ("Mbit/s", 1e6),
                ("Gbit/s", 1e9),
                ("Tbit/s", 1e12),
            ],
            Self::Time => &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)],
            Self::Size => &[
                ("B", 1.0),
                ("KiB", 1024.0),
                ("MiB", 1_048_576.0),
                ("GiB", 1_073_741_824.0),
            ],
            Self::Share => &[("%", 0.01)],
            Self::Change | Self::Count | Self::Date => &[("", 1.0)],
        };
        let (name, size) = units
            .iter()
            .rev()
            .find(|(_, size)| most.abs() >= size * 0.999_999)
            .copied()
            .unwrap_or(units[0]);
        AxisUnit { name, size }
    }

    /// Returns a value with its own unit: `941.4 Mbit/s`, `+3.1 %`, `2026-11-25 08:15`.
    pub(crate) fn format_value(self, value: f64) -> String {
        match self {
            Self::Change => format_change(value),
            Self::Date => format_date(value, "%Y-%m-%d %H:%M"),
            Self::Rate | Self::Time | Self::Size | Self::Share | Self::Count => {
                self.text_in(value, self.largest_unit(value))
            }
        }
    }

    /// Returns two values as a range, with their unit once if it is the same, or one value if they
    /// read alike.
    pub(crate) fn format_range(self, least: f64, most: f64) -> String {
        let (from, to) = (self.format_value(least), self.format_value(most));
        match self {
            _ if from == to => to,
            Self::Date => format!("{from} to {to}"),
            _ => join_figures(&from, "to", &to),
        }
    }

    /// Returns a value in `unit`, with its name.
    pub(crate) fn text_in(self, value: f64, unit: AxisUnit) -> String {
        match self {
            Self::Change | Self::Date => self.format_value(value),
            _ if unit.name.is_empty() => format_digits(value),
            _ => format!("{} {}", format_digits(value / unit.size), unit.name),
        }
    }
}

/// Returns two figures with a word between them, and with their unit once if it is the same.
pub(crate) fn join_figures(from: &str, word: &str, to: &str) -> String {
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => {
            format!("{number} {word} {to}")
        }
        _ => format!("{from} {word} {to}"),
    }
}

/// Returns a quantity with its own unit.
pub(crate) fn format_quantity<Q: AxisQuantity>(quantity: Q) -> String {
    Q::DIMENSION.format_value(quantity.number())
}

/// Returns the least and the most of numbers; the least is above the most if there are none.
pub(crate) fn value_range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

/// Returns a factor as a change: 1.031 is `+3.1 %`.
fn format_change(factor: f64) -> String {
    let percent = (factor - 1.0) * 100.0;
    match format_digits(percent.abs()).as_str() {
        "0" => "0 %".to_owned(),
        text => format!("{}{text} %", if percent < 0.0 { '−' } else { '+' }),
    }
}

/// Returns a moment in UTC; nothing where the calendar does not have it.
pub(crate) fn format_date(seconds: f64, format: &str) -> String {
    jiff::Timestamp::from_second(seconds as i64)
        .map(|at| at.strftime(format).to_string())
        .unwrap_or_default()
}

/// Returns a number with four significant digits, without zeros at its end.
pub(crate) fn format_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let places = (3.0 - libm::floor(libm::log10(value.abs()))).clamp(0.0, 9.0) as usize;
    trim_zeros(&format!("{value:.places$}")).to_owned()
}

/// Returns a decimal number without zeros behind its point.
pub(crate) fn trim_zeros(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_four_digits_and_its_own_unit() {
        assert_eq!(Dimension::Rate.format_value(941_449_000.0), "941.4 Mbit/s");
        assert_eq!(Dimension::Rate.format_value(0.0), "0 bit/s");
        assert_eq!(Dimension::Time.format_value(0.1), "100 ms");
        assert_eq!(Dimension::Size.format_value(524_288.0), "512 KiB");
        assert_eq!(Dimension::Share.format_value(0.5), "50 %");
        assert_eq!(Dimension::Count.format_value(12_345.0), "12345");
        assert_eq!(Dimension::Change.format_value(0.69), "−31 %");
        assert_eq!(Dimension::Change.format_value(1.0), "0 %");
        assert_eq!(
            Dimension::Date.format_value(1_764_058_500.0),
            "2025-11-25 08:15"
        );
        assert_eq!(format_digits(f64::NAN), "0");
        assert_eq!(Dimension::Rate.format_range(9e6, 1e7), "9 to 10 Mbit/s");
        assert_eq!(
            Dimension::Rate.format_range(0.0, 1e7),
            "0 bit/s to 10 Mbit/s"
        );
        assert_eq!(Dimension::Time.format_range(0.1, 0.1), "100 ms");
        assert_eq!(
            Dimension::Date.format_range(0.0, 86_400.0),
            "1970-01-01 00:00 to 1970-01-02 00:00"
        );
    }
}

//! Numbers as iperf3 writes them.

use crate::chart::trim_zeros;
use std::str::FromStr;

use fullpipe_units::ByteCount;

/// Unit of rates: bits with decimal prefixes, or bytes with binary ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateUnit {
    /// Bits, with the prefix that fits.
    #[default]
    Bits,
    /// Bytes, with the prefix that fits.
    Bytes,
    /// Thousands, millions, … of bits: the power of 1000.
    BitsTo(u8),
    /// Kibibytes, mebibytes, … under iperf3's names: the power of 1024.
    BytesTo(u8),
}

impl FromStr for RateUnit {
    type Err = &'static str;

    /// Reads the argument of `-f`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letter = text.chars().next().unwrap_or_default();
        let power = match letter.to_ascii_lowercase() {
            'k' => Some(1),
            'm' => Some(2),
            'g' => Some(3),
            't' => Some(4),
            _ => None,
        };
        let unit = match letter {
            'a' => Some(Self::Bits),
            'A' => Some(Self::Bytes),
            _ if letter.is_ascii_lowercase() => power.map(Self::BitsTo),
            _ => power.map(Self::BytesTo),
        };
        unit.ok_or("bad format specifier (valid formats are in the set [kmgtKMGT])")
    }
}

/// Returns an amount of data: `1.10 GBytes`.
pub(crate) fn format_bytes(count: ByteCount) -> String {
    format!("{}s", format_amount(count.as_f64(), RateUnit::Bytes))
}

/// Returns the rate of `count` bytes in `seconds`: `9.42 Gbits/sec`.
pub(crate) fn format_rate(count: ByteCount, seconds: f64, unit: RateUnit) -> String {
    format!(
        "{}s/sec",
        format_amount(bytes_per_second(count, seconds), unit)
    )
}

/// Zero where no time has passed.
pub(crate) fn bytes_per_second(count: ByteCount, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count.as_f64() / seconds
    } else {
        0.0
    }
}

/// Returns `bytes` with three digits and a unit: `1.10 GByte`.
fn format_amount(bytes: f64, unit: RateUnit) -> String {
    const MAX_POWER: u8 = 4;
    const BITS: [&str; 5] = ["bit", "Kbit", "Mbit", "Gbit", "Tbit"];
    const BYTES: [&str; 5] = ["Byte", "KByte", "MByte", "GByte", "TByte"];
    let (value, base, names) = match unit {
        RateUnit::Bits | RateUnit::BitsTo(_) => (bytes * 8.0, 1000_u64, BITS),
        RateUnit::Bytes | RateUnit::BytesTo(_) => (bytes, 1024, BYTES),
    };
    let power = match unit {
        RateUnit::BitsTo(power) | RateUnit::BytesTo(power) => power.min(MAX_POWER),
        RateUnit::Bits | RateUnit::Bytes => (0..MAX_POWER)
            .find(|power| value < base.pow(u32::from(power + 1)) as f64)
            .unwrap_or(MAX_POWER),
    };
    let scaled = value / base.pow(u32::from(power)) as f64;
    let name = names[usize::from(power)];
    if scaled < 9.995 {
        format!("{scaled:4.2} {name}")
    } else if scaled < 99.95 {
        format!("{scaled:4.1} {name}")
    } else {
        format!("{scaled:4.0} {name}")
    }
}

/// Returns two significant digits, as C's `%.2g` writes them: `0`, `0.012`, `5`, `13`, `1e+02`.
pub(crate) fn two_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    // Rounding first decides the exponent: 99.6 becomes 1e+02.
    let scientific = format!("{value:.1e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..2).contains(&exponent) {
        let places = usize::try_from(1 - exponent).unwrap_or(0);
        return trim_zeros(&format!("{value:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_and_a_binary_prefix() {
        for (count, text) in [
            (0, "0.00 Bytes"),
            (1, "1.00 Bytes"),
            (1_023, "1023 Bytes"),
            (1_024, "1.00 KBytes"),
            (131_072, " 128 KBytes"),
            (1_310_720, "1.25 MBytes"),
            (10_485_759, "10.0 MBytes"),
            (104_857_600, " 100 MBytes"),
            (1_181_116_006, "1.10 GBytes"),
            (u64::MAX, "16777216 TBytes"),
        ] {
            assert_eq!(format_bytes(ByteCount::new(count)), text);
        }
    }

    #[test]
    fn rates_have_a_decimal_prefix_unless_they_are_of_bytes() {
        let of = |count, unit: &str| format_rate(ByteCount::new(count), 1.0, unit.parse().unwrap());
        assert_eq!(of(131_072, "a"), "1.05 Mbits/sec");
        assert_eq!(of(125_000_000, "a"), "1.00 Gbits/sec");
        assert_eq!(of(124_999_999, "a"), "1000 Mbits/sec");
        assert_eq!(of(1_177_500_000, "m"), "9420 Mbits/sec");
        assert_eq!(of(1_177_500_000, "k"), "9420000 Kbits/sec");
        assert_eq!(of(1_177_500_000, "t"), "0.01 Tbits/sec");
        assert_eq!(of(1_048_576, "M"), "1.00 MBytes/sec");
        assert_eq!(of(1_048_576, "K"), "1024 KBytes/sec");
        assert_eq!(of(0, "g"), "0.00 Gbits/sec");
        assert!("x".parse::<RateUnit>().is_err() && "".parse::<RateUnit>().is_err());
    }

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(
            format_rate(ByteCount::new(5), 0.0, RateUnit::Bits),
            "0.00 bits/sec"
        );
    }

    #[test]
    fn two_digits_are_written_as_c_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (100.0, "1e+02"),
            (99.6, "1e+02"),
            (99.4, "99"),
            (5.0, "5"),
            (0.5, "0.5"),
            (1.25, "1.2"),
            (0.012_34, "0.012"),
            (0.000_012, "1.2e-05"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(two_digits(value), text, "{value}");
        }
    }
}

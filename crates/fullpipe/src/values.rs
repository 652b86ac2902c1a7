//! The values of flags, as more than one command reads them.

#[cfg(target_os = "linux")]
mod secrets;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use fullpipe_calc::{InputError, QuantitySetting, read_values};
use fullpipe_iperf::MAX_TEST;
use fullpipe_record::Quantity;
use fullpipe_units::{BitRate, ByteCount, Span, parse_quantity};
use jiff::Timestamp;

#[cfg(target_os = "linux")]
pub(crate) use secrets::{
    read_key_file, read_protected_file, read_secret_file, read_ticket_file, read_user_file,
    rsa_private_key, rsa_public_key, tls_identity, tls_trust,
};

/// Reads a duration: seconds where no unit is given, as in iperf3.
pub(crate) fn parse_duration(text: &str) -> Result<Span, String> {
    parse_span(text, "s")
}

/// Reads a timeout: milliseconds where no unit is given, as in iperf3.
pub(crate) fn parse_milliseconds(text: &str) -> Result<Span, String> {
    parse_span(text, "ms")
}

fn parse_span(text: &str, unit: &str) -> Result<Span, String> {
    Span::with_usual_unit(text, unit).map_err(|error| error.to_string())
}

/// Reads the duration of something that takes some time, as [`parse_duration`] does.
pub(crate) fn some_time(text: &str) -> Result<Span, String> {
    above_zero(parse_duration(text)?)
}

/// Reads the duration of a test, as [`parse_duration`] does.
pub(crate) fn test_time(text: &str) -> Result<Span, String> {
    let sentence = "a test lasts at most 24h (86400 seconds)";
    value_within(parse_duration(text)?, Span::ZERO..=MAX_TEST, sentence)
}

/// Reads the duration of a test that takes some time.
pub(crate) fn some_test_time(text: &str) -> Result<Span, String> {
    above_zero(test_time(text)?)
}

/// Returns the function that reads a whole number within `bounds`.
pub(crate) fn integer_parser<N>(
    bounds: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            format!(
                "write a whole number from {} to {}",
                bounds.start(),
                bounds.end()
            )
        })
    }
}

/// Reads the size of something that has at least one byte.
pub(crate) fn some_bytes(text: &str) -> Result<ByteCount, String> {
    above_zero(parse_quantity(text)?)
}

/// Reads the capacity of a path.
pub(crate) fn parse_capacity(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = parse_quantity(text)?;
    let possible = rate > BitRate::ZERO && rate <= BitRate::from_mbps(1_000_000_000);
    possible
        .then_some(rate)
        .ok_or_else(|| "it must be above 0 and at most 1 Pbit/s".to_owned())
}

/// Returns `value` if it is within `bounds`, or else the sentence that names them.
pub(crate) fn value_within<Q: PartialOrd>(
    value: Q,
    bounds: RangeInclusive<Q>,
    sentence: &str,
) -> Result<Q, String> {
    if bounds.contains(&value) {
        Ok(value)
    } else {
        Err(sentence.to_owned())
    }
}

fn above_zero<Q: Default + PartialOrd>(value: Q) -> Result<Q, String> {
    if value > Q::default() {
        Ok(value)
    } else {
        Err("it must be above 0".to_owned())
    }
}

/// Reads a time in the past, as [`fullpipe_store::parse_past_time`] does, before now.
pub(crate) fn parse_past_time(text: &str) -> Result<Timestamp, String> {
    fullpipe_store::parse_past_time(text, Timestamp::now())
}

/// Reads a type of service: decimal, octal after `0`, hexadecimal after `0x`.
pub(crate) fn type_of_service(text: &str) -> Result<u8, String> {
    parse_byte(text)
        .ok_or_else(|| format!("{text} is no type of service: 0 to 255, or 0x00 to 0xff"))
}

/// Reads a DSCP and returns the whole byte, its ECN bits zero.
pub(crate) fn parse_dscp(text: &str) -> Result<u8, String> {
    traffic_class(text)
        .ok_or_else(|| format!("{text} is no DSCP: 0 to 63, or ef, va, le, cs0–cs7, af11–af43"))
}

/// Returns the byte of a DSCP, its ECN bits zero.
/// Names: RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865 (VA), 8622 (LE).
pub(crate) fn traffic_class(text: &str) -> Option<u8> {
    let name = text.to_ascii_lowercase();
    let code = match (
        name.as_str(),
        name.strip_prefix("cs"),
        name.strip_prefix("af"),
    ) {
        ("ef", ..) => Some(46),
        ("va", ..) => Some(44),
        ("le", ..) => Some(1),
        (_, Some(class), _) => class
            .parse::<u8>()
            .ok()
            .filter(|class| *class < 8)
            .map(|class| class * 8),
        (_, _, Some(class)) => class.parse::<u8>().ok().and_then(assured_forwarding),
        _ => parse_byte(&name).filter(|code| *code < 64),
    };
    code.map(|code| code << 2)
}

/// `afXY`: class X of 1 to 4, drop precedence Y of 1 to 3.
fn assured_forwarding(digits: u8) -> Option<u8> {
    let (class, precedence) = (digits / 10, digits % 10);
    ((1..=4).contains(&class) && (1..=3).contains(&precedence))
        .then_some(class * 8 + precedence * 2)
}

/// Reads a byte as C's `strtol` does: decimal, octal after `0`, hexadecimal after `0x`.
pub(crate) fn parse_byte(text: &str) -> Option<u8> {
    let lower = text.to_ascii_lowercase();
    match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
        (Some(digits), _) => u8::from_str_radix(digits, 16).ok(),
        (_, Some(digits)) if !digits.is_empty() => u8::from_str_radix(digits, 8).ok(),
        _ => lower.parse().ok(),
    }
}

/// The values of a quantity: one, a list, or a range.
#[derive(Debug, Clone)]
pub(crate) struct QuantityValues(pub(crate) Vec<QuantitySetting>);

/// Returns the function that reads values of `quantity`.
pub(crate) fn values_parser(
    quantity: Quantity,
) -> impl Fn(&str) -> Result<QuantityValues, InputError> + Clone {
    move |text| read_values(quantity, text).map(QuantityValues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_seconds_and_timeouts_in_milliseconds_as_iperf3_has_them() {
        assert_eq!(parse_duration("10"), Ok(Span::from_secs(10)));
        assert_eq!(parse_duration("0.5"), Ok(Span::from_millis(500)));
        assert_eq!(
            (parse_duration("250ms"), parse_milliseconds("250")),
            (Ok(Span::from_millis(250)), Ok(Span::from_millis(250)))
        );
        assert_eq!(parse_milliseconds("2s"), Ok(Span::from_millis(2000)));
        assert!(
            parse_duration("-1")
                .unwrap_err()
                .starts_with("\"-1\" is not a time: it must not be negative")
        );
        // What is no number is shown as it was written.
        assert!(
            parse_duration("NaN")
                .unwrap_err()
                .starts_with("\"NaN\" is not a time")
        );
    }

    #[test]
    fn what_must_be_something_is_more_than_nothing() {
        assert_eq!(
            (some_time("0.5"), some_time("1ns")),
            (Ok(Span::from_millis(500)), Ok(Span::from_nanos(1)))
        );
        assert_eq!(
            (some_bytes("1"), parse_capacity("1G")),
            (Ok(ByteCount::new(1)), Ok(BitRate::from_mbps(1000)))
        );
        assert!(
            ["0", "0s", "0.0", "1e-12", "-1", "inf", ""]
                .iter()
                .all(|text| some_time(text).is_err())
        );
        assert!(
            ["0", "0K", "0.4", "-1", ""]
                .iter()
                .all(|text| some_bytes(text).is_err())
        );
        assert!(
            ["0", "0Gbit/s", "1001T", "NaN"]
                .iter()
                .all(|text| parse_capacity(text).is_err())
        );
    }

    #[test]
    fn a_number_out_of_its_bounds_is_answered_with_them() {
        assert_eq!(
            ["1", "128"].map(integer_parser(1_u16..=128)),
            [Ok(1), Ok(128)]
        );
        for text in ["0", "-1", "129", "1.5", "x", "", "99999999999999999999"] {
            assert_eq!(
                integer_parser(1_u16..=128)(text),
                Err("write a whole number from 1 to 128".to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_test_lasts_a_day_at_most() {
        assert_eq!(
            (test_time("86400"), test_time("0")),
            (Ok(MAX_TEST), Ok(Span::ZERO))
        );
        assert_eq!(
            test_time("1e9"),
            Err("a test lasts at most 24h (86400 seconds)".to_owned())
        );
        assert!(some_test_time("0").is_err());
    }

    #[test]
    fn a_dscp_goes_into_the_upper_six_bits() {
        for (text, tos) in [
            ("ef", 0xb8),
            ("AF41", 0x88),
            ("cs1", 0x20),
            ("46", 0xb8),
            ("0x2e", 0xb8),
            ("le", 0x04),
        ] {
            assert_eq!(parse_dscp(text), Ok(tos), "{text}");
        }
        for text in ["af44", "af51", "cs8", "64", "gold", ""] {
            assert!(parse_dscp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_type_of_service_is_a_byte_in_any_of_cs_prefixes() {
        assert_eq!(
            ["52", "064", "0x34", "0"].map(type_of_service),
            [Ok(52), Ok(52), Ok(52), Ok(0)]
        );
        assert!(
            ["256", "-1", "0x", ""]
                .iter()
                .all(|text| type_of_service(text).is_err())
        );
    }
}

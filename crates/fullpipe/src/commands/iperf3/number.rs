//! Numbers as iperf3 reads them.

use fullpipe_units::{BitRate, ByteCount, Span};

use crate::values::{parse_byte, traffic_class};

/// Reads a whole number and ignores the text after its digits, as `atoi` does.
pub(super) fn parse_integer(text: &str) -> Result<i64, String> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let length = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let sign = text.len() - digits.len();
    text[..sign + length]
        .parse()
        .map_err(|_| format!("\"{text}\" is not a number"))
}

/// Bytes: K, M, G and T are powers of 1024.
pub(super) fn parse_bytes(text: &str) -> Result<ByteCount, String> {
    parse_scaled_number(text, 1024.0).map(ByteCount::from_f64)
}

/// Bits per second: K, M, G and T are powers of 1000.
pub(super) fn parse_rate(text: &str) -> Result<BitRate, String> {
    parse_scaled_number(text, 1000.0).map(BitRate::from_bps_f64)
}

/// Blocks: K, M, G and T are powers of 1024.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    parse_scaled_number(text, 1024.0).map(|blocks| blocks as u64)
}

/// Seconds, with a fraction.
pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    let number = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    number.ok_or_else(|| format!("\"{text}\" is not a number of seconds"))
}

/// Seconds, whole.
pub(super) fn whole_seconds(text: &str) -> Result<Span, String> {
    whole_time(text, "seconds", Span::from_secs)
}

fn whole_time(text: &str, unit: &str, of: fn(u64) -> Span) -> Result<Span, String> {
    let number = parse_integer(text)?;
    u64::try_from(number)
        .map(of)
        .map_err(|_| format!("{number} is not a number of {unit}"))
}

/// The rate that a server permits. iperf3's time to average over, after a slash, cannot be chosen.
pub(super) fn parse_rate_limit(text: &str) -> Result<BitRate, String> {
    if text.contains('/') {
        return Err("a time to average over (--server-bitrate-limit N/SECONDS) is not supported by fullpipe".to_owned());
    }
    parse_rate(text)
}

/// Milliseconds, whole.
pub(super) fn parse_milliseconds(text: &str) -> Result<Span, String> {
    whole_time(text, "milliseconds", Span::from_millis)
}

/// Reads a rate and, after a slash, the number of blocks in a burst.
pub(super) fn parse_offered_rate(text: &str) -> Result<(BitRate, Option<u16>), String> {
    const MAX_BURST: u16 = 1000;
    let Some((offered, burst)) = text.split_once('/') else {
        return Ok((parse_rate(text)?, None));
    };
    let burst = parse_integer(burst)?;
    let burst = u16::try_from(burst)
        .ok()
        .filter(|burst| (1..=MAX_BURST).contains(burst));
    let burst = burst.ok_or_else(|| format!("invalid burst count (maximum = {MAX_BURST})"))?;
    Ok((parse_rate(offered)?, Some(burst)))
}

/// A type of service: decimal, octal after `0`, hexadecimal after `0x`.
pub(super) fn type_of_service(text: &str) -> Result<u8, String> {
    parse_byte(text).ok_or_else(|| "bad TOS value (must be between 0 and 255 inclusive)".to_owned())
}

/// Reads a DSCP by number or name and returns the whole byte, its ECN bits zero.
pub(super) fn parse_dscp(text: &str) -> Result<u8, String> {
    traffic_class(text).ok_or_else(|| {
        "bad DSCP value (must be between 0 and 63 inclusive, or a name such as ef or af41)"
            .to_owned()
    })
}

/// Reads a number and one letter for its unit, and ignores the text after them.
fn parse_scaled_number(text: &str, base: f64) -> Result<f64, String> {
    scaled_number(text.trim(), base).ok_or_else(|| {
        format!("\"{text}\" is not a number, with K, M, G or T after it if you like")
    })
}

fn scaled_number(text: &str, base: f64) -> Option<f64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = match unit
        .bytes()
        .next()
        .map(|letter| letter.to_ascii_lowercase())
    {
        None => 0,
        Some(b'k') => 1,
        Some(b'm') => 2,
        Some(b'g') => 3,
        Some(b't') => 4,
        Some(_) => return None,
    };
    Some(number.parse::<f64>().ok()? * base.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_binary_for_bytes_and_decimal_for_rates() {
        assert_eq!(parse_bytes("128K"), Ok(ByteCount::from_kib(128)));
        assert_eq!(parse_bytes("1.5m"), Ok(ByteCount::new(1_572_864)));
        assert_eq!(parse_bytes("1460"), Ok(ByteCount::new(1460)));
        assert_eq!(parse_rate("10M"), Ok(BitRate::from_mbps(10)));
        assert_eq!(parse_rate("0"), Ok(BitRate::ZERO));
        assert_eq!(parse_rate("1gbit"), Ok(BitRate::from_mbps(1000)));
        assert_eq!(parse_count("2K"), Ok(2048));
        for text in ["", "K", "10x", "-5", "1.2.3", "nan"] {
            assert!(
                parse_bytes(text).is_err() && parse_rate(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn whole_numbers_end_where_their_digits_end() {
        assert_eq!(
            (
                parse_integer("10s"),
                parse_integer("-3"),
                parse_integer("2.9")
            ),
            (Ok(10), Ok(-3), Ok(2))
        );
        assert!(
            parse_integer("ten").is_err()
                && parse_integer("-").is_err()
                && parse_integer("").is_err()
        );
        assert!(parse_integer("99999999999999999999").is_err());
        assert!(parse_milliseconds("-1").is_err());
    }

    #[test]
    fn a_rate_may_say_how_many_go_in_a_row() {
        assert_eq!(
            parse_offered_rate("10M/32"),
            Ok((BitRate::from_mbps(10), Some(32)))
        );
        assert_eq!(
            parse_offered_rate("10M/1001"),
            Err("invalid burst count (maximum = 1000)".to_owned())
        );
        assert!(parse_offered_rate("10M/").is_err() && parse_offered_rate("10M/0").is_err());
    }

    #[test]
    fn the_usual_prefixes_of_numbers_are_read() {
        assert_eq!(
            (
                type_of_service("52"),
                type_of_service("064"),
                type_of_service("0x34")
            ),
            (Ok(52), Ok(52), Ok(52))
        );
        assert_eq!(
            (type_of_service("0"), type_of_service("255")),
            (Ok(0), Ok(255))
        );
        assert!(type_of_service("256").is_err() && type_of_service("-1").is_err());
        assert_eq!(
            (
                parse_dscp("ef"),
                parse_dscp("AF41"),
                parse_dscp("cs1"),
                parse_dscp("46")
            ),
            (Ok(0xb8), Ok(0x88), Ok(0x20), Ok(0xb8))
        );
        assert!(
            parse_dscp("64").is_err() && parse_dscp("af44").is_err() && parse_dscp("gold").is_err()
        );
    }
}

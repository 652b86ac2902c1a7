//! Names and addresses as other programs write them, and times as people do.

use std::net::{IpAddr, SocketAddr};

use fullpipe_units::printable_line;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Characters of a name that are kept.
const MAX_NAME: usize = 200;

/// Returns the beginning of a text of somebody else in one line that commands no terminal.
pub(crate) fn clean_line(text: &str) -> String {
    printable_line(text).chars().take(MAX_NAME).collect()
}

/// Reads a time in the past: an age before `now` (`30d`, `12h`, `8w`, `2y`), a date or a time in RFC
/// 3339.
///
/// # Errors
/// Fails if the text is none of them.
pub fn parse_past_time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let day = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
        Some(day.timestamp())
    });
    time.or_else(|| now.checked_sub(parse_age(text)?).ok())
        .ok_or_else(|| format!("{text} is no time: 30d, 12h, 8w, 2y ago, a date as 2026-03-12, or a time in RFC 3339"))
}

fn parse_age(text: &str) -> Option<SignedDuration> {
    const HOURS: [(char, i64); 4] = [('h', 1), ('d', 24), ('w', 7 * 24), ('y', 365 * 24)];
    let unit = text.chars().next_back()?;
    let (_, hours) = HOURS.into_iter().find(|(letter, _)| *letter == unit)?;
    let count: i64 = text
        .strip_suffix(unit)?
        .parse()
        .ok()
        .filter(|count| *count >= 0)?;
    SignedDuration::try_from_secs_f64(count.checked_mul(hours)? as f64 * 3600.0).ok()
}

/// Returns a host without its port: `example.org:5201` and `[2001:db8::1]:5201` have one,
/// `2001:db8::1` has none.
pub(crate) fn host_of(text: &str) -> String {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.ip().to_string();
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => host.to_owned(),
        _ => text.trim_matches(['[', ']']).to_owned(),
    }
}

/// Returns the IP address of a text with one, with or without a port; empty if there is none.
pub(crate) fn ip_of(text: &str) -> String {
    host_of(text)
        .parse::<IpAddr>()
        .map_or_else(|_| String::new(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (text, host) in [
            ("example.org:5201", "example.org"),
            ("example.org", "example.org"),
            ("192.0.2.1:5201", "192.0.2.1"),
            ("[2001:db8::1]:5201", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::", "::"),
            ("", ""),
        ] {
            assert_eq!(host_of(text), host);
        }
    }

    #[test]
    fn a_name_has_no_address() {
        assert_eq!(ip_of("example.org:5201"), "");
        assert_eq!(ip_of("[::1]:5201"), "::1");
        assert_eq!(ip_of("192.0.2.1"), "192.0.2.1");
    }
}

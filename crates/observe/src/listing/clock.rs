//! Times that stand between listings.

use fullpipe_units::Span;

/// A day, after which a time of day begins anew.
const DAY: Span = Span::from_secs(86_400);

/// Words of a line beyond which it is no time: `watch` prints its command beside it.
const MAX_WORDS: usize = 30;

/// Returns the time in a line: seconds, milliseconds or nanoseconds since 1970, or a time of day
/// with whatever date stands beside it.
pub(super) fn time_in_line(line: &str) -> Option<Span> {
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    if second.is_none()
        && let Some(time) = epoch_time(first)
    {
        return Some(time);
    }
    line.split_whitespace()
        .take(MAX_WORDS)
        .find_map(time_of_day)
}

/// Returns the time that `date +%s`, `+%s.%N`, `+%s%3N` or `+%s%N` prints.
fn epoch_time(word: &str) -> Option<Span> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, "0"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let number: u64 = whole.parse().ok()?;
    let fraction = Span::from_secs_f64(format!("0.{fraction}").parse().ok()?);
    match whole.len() {
        9..=11 => Some(Span::from_secs(number) + fraction),
        13 => Some(Span::from_millis(number)),
        16 => Some(Span::from_micros(number)),
        19 => Some(Span::from_nanos(number)),
        _ => None,
    }
}

/// Returns the time of day in `02:57:21`, `02:57:21.123` or `2026-11-29T02:57:21+00:00`.
fn time_of_day(word: &str) -> Option<Span> {
    let word = word.rsplit_once('T').map_or(word, |(_, time)| time);
    let word = word.split(['+', 'Z', ',']).next()?;
    let mut parts = word.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = |text: &str, most: u64| {
        let number = text.parse::<u64>().ok()?;
        (text.len() <= 2 && number <= most).then_some(number)
    };
    let (hours, minutes) = (whole(hours, 23)?, whole(minutes, 59)?);
    let is_number = seconds
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = seconds.parse().ok().filter(|_| is_number)?;
    let is_time = parts.next().is_none() && seconds < 61.0;
    is_time.then(|| Span::from_secs(hours * 3600 + minutes * 60) + Span::from_secs_f64(seconds))
}

/// Returns the times since the first of them; `None` if one does not come after the one before. A
/// time of day may be of the next day.
pub(super) fn times_since_first(times: &[Span]) -> Option<Vec<Span>> {
    let mut since = vec![Span::ZERO; times.len().min(1)];
    for pair in times.windows(2) {
        let later = if pair[1] < pair[0] && pair[0] < DAY {
            pair[1] + DAY
        } else {
            pair[1]
        };
        let step = later.saturating_sub(pair[0]);
        let last = *since.last()?;
        since.push(last + Some(step).filter(|step| *step > Span::ZERO)?);
    }
    Some(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_that_date_prints_are_read() {
        for (line, seconds) in [
            ("1700000000.5", 1_700_000_000.5),
            ("1700000000", 1_700_000_000.0),
            ("1700000000250", 1_700_000_000.25),
            ("Sun Nov 29 02:57:21 UTC 2026", 10_641.0),
            ("2026-11-29T02:57:21.5+00:00", 10_641.5),
            (
                "Every 1.0s: ss -ti    host: Sun Nov 29 02:57:21 2026",
                10_641.0,
            ),
        ] {
            let time = time_in_line(line).map(Span::as_secs_f64);
            assert!((time.unwrap() - seconds).abs() < 1e-6, "{line}");
        }
        for line in [
            "",
            "7",
            "a:b:c",
            "25:00:00",
            "1.5",
            "TcpExtTCPLossProbes 3 0.0",
        ] {
            assert_eq!(time_in_line(line), None, "{line}");
        }
    }

    #[test]
    fn midnight_may_lie_between_two_times_and_none_may_stand_still() {
        let times = [86_399, 1, 3].map(Span::from_secs);
        let since = [0, 2, 4].map(Span::from_secs).to_vec();
        assert_eq!(times_since_first(&times), Some(since));
        assert_eq!(times_since_first(&[Span::from_secs(5); 2]), None);
        assert_eq!(times_since_first(&[]), Some(Vec::new()));
    }
}

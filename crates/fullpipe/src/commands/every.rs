//! A measurement that is repeated at an interval.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::prelude::*;

/// Interval of the checks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reads an interval: seconds where no unit is given.
pub(crate) fn parse_interval(text: &str) -> Result<Span, String> {
    let bounds = Span::from_secs(1)..=Span::from_secs(366 * 86_400);
    let sentence = "the interval must be from 1 s to a year";
    value_within(parse_duration(text)?, bounds, sentence)
}

/// Returns the local time of an RFC 3339 timestamp, with its offset from UTC; the time now if it is
/// none.
pub(crate) fn local_time(timestamp: &str) -> String {
    let moment = timestamp
        .parse::<Timestamp>()
        .map(|moment| moment.to_zoned(TimeZone::system()));
    timestamp_text(&moment.unwrap_or_else(|_| Zoned::now()))
}

fn timestamp_text(moment: &Zoned) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Runs `once` at each interval, from now on, until the user interrupts. A run that fails is
/// reported, and the next one begins at its time; a run that takes longer than the interval leaves
/// out those that it overlaps.
///
/// # Errors
/// Fails if the user interrupted, or if the command line is wrong.
pub(crate) fn run_repeatedly(
    every: Span,
    flag: &AtomicBool,
    terminal: &Terminal,
    once: &dyn Fn() -> Result,
) -> Result {
    let every = Duration::from(every);
    let mut next = Instant::now();
    loop {
        match once() {
            Err(failure) if [INTERRUPTED, USAGE].contains(&failure.code) => return Err(failure),
            Err(failure)
                if terminal.format == OutputFormat::Text && !failure.message.is_empty() =>
            {
                Terminal::print_error(&format!(
                    "{}  {}",
                    timestamp_text(&Zoned::now()),
                    failure.message
                ));
            }
            Err(failure) => {
                terminal.print_failure(failure);
            }
            Ok(()) => {}
        }
        while next <= Instant::now() {
            next += every;
        }
        wait_until(next, flag)?;
    }
}

/// Fails if the user interrupts before `next`.
fn wait_until(next: Instant, flag: &AtomicBool) -> Result {
    while Instant::now() < next {
        if flag.load(Ordering::Relaxed) {
            return Err(Failure::already_printed(INTERRUPTED));
        }
        std::thread::sleep(POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_may_be_hours() {
        assert_eq!(parse_interval("1h"), Ok(Span::from_secs(3600)));
        assert_eq!(parse_interval("30"), Ok(Span::from_secs(30)));
        assert_eq!(parse_interval("1500ms"), Ok(Span::from_millis(1500)));
        for text in [
            "0",
            "0.5",
            "-1h",
            "h",
            "9999h",
            "99999999999999999999h",
            "soon",
        ] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}

//! Files of the moments at which a link could send: Mahimahi's moments, and rates with time stamps.

use fullpipe_record::{Opportunities, PathChange, PathStep};
use fullpipe_units::{BitRate, Span};

/// Most lines of a trace: seventeen minutes of one moment a millisecond, 12 Mbit/s.
const MAX_LINES: usize = 1_000_000;

/// Reads a trace as Mahimahi's `mm-link` does: a line is a whole number of milliseconds at which
/// 1504 bytes may leave, none smaller than the one before; behind the last the trace begins again.
/// Empty lines are none.
///
/// # Errors
/// The first line that cannot be, with its number; a trace without a line, or without length.
pub(crate) fn read_mahimahi(text: &str) -> Result<Opportunities, String> {
    let mut millis = Vec::new();
    for (number, line) in numbered_lines(text)? {
        let stamp: u32 = line
            .parse()
            .map_err(|_| format!("line {number}: \"{line}\" is not a time in milliseconds"))?;
        if millis.last().is_some_and(|last| *last > stamp) {
            return Err(format!(
                "line {number}: {stamp} ms comes after a later time"
            ));
        }
        millis.push(stamp);
    }
    if millis.last().is_none_or(|last| *last == 0) {
        return Err("it has no length: its last time must be above 0".to_owned());
    }
    Ok(Opportunities { millis })
}

/// Reads rates: a line is a time with its unit, a space and the rate from then on, none earlier
/// than the one before; behind the last line its rate stays. Empty lines and those that begin with
/// `#` are none.
///
/// # Errors
/// The first line that cannot be, with its number; a trace without a line, or one that ends without
/// a rate.
pub(crate) fn read_rates(text: &str) -> Result<Vec<PathStep>, String> {
    let mut steps: Vec<PathStep> = Vec::new();
    for (number, line) in numbered_lines(text)?
        .into_iter()
        .filter(|(_, line)| !line.starts_with('#'))
    {
        let step = read_rate(line).map_err(|why| format!("line {number}: {why}"))?;
        if steps.last().is_some_and(|last| last.after > step.after) {
            return Err(format!(
                "line {number}: {} comes after a later time",
                step.after
            ));
        }
        steps.push(step);
    }
    match steps.last() {
        None => Err("it is empty".to_owned()),
        Some(last) if last.change.rate == Some(BitRate::ZERO) => {
            Err("its last rate is 0, so that in the end nothing would ever arrive".to_owned())
        }
        Some(_) => Ok(steps),
    }
}

fn read_rate(line: &str) -> Result<PathStep, String> {
    let (after, rate) = line.split_once(char::is_whitespace).ok_or_else(|| {
        format!("\"{line}\" is not a time and a rate: write for example 1.5s 20Mbit/s")
    })?;
    let after: Span = after
        .parse()
        .map_err(|error: fullpipe_units::ParseError| error.to_string())?;
    let rate = rate
        .trim()
        .parse()
        .map_err(|error: fullpipe_units::ParseError| error.to_string())?;
    Ok(PathStep {
        after,
        change: PathChange {
            rate: Some(rate),
            ..PathChange::default()
        },
    })
}

/// Each line that says something, with its number.
fn numbered_lines(text: &str) -> Result<Vec<(usize, &str)>, String> {
    let lines = (1..)
        .zip(text.lines().map(str::trim))
        .filter(|(_, line)| !line.is_empty());
    let lines: Vec<_> = lines.take(MAX_LINES + 1).collect();
    if lines.len() > MAX_LINES {
        return Err(format!("it has more than {MAX_LINES} lines"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn traces_are_read() {
        assert_eq!(
            read_mahimahi("0\n3\r\n 3 \n\n10\n").unwrap().millis,
            [0, 3, 3, 10]
        );
        let steps = read_rates("# Saturday\n0s 10M\n1.5s\t0\n1.5s 20Mbit/s\n").unwrap();
        let read: Vec<_> = steps
            .iter()
            .map(|step| (step.after.as_nanos(), step.change.rate.unwrap().bps()))
            .collect();
        assert_eq!(
            read,
            [
                (0, 10_000_000),
                (1_500_000_000, 0),
                (1_500_000_000, 20_000_000)
            ]
        );
    }

    #[test]
    fn bad_traces_are_reported_with_their_line() {
        for (text, sentence) in [
            ("", "it has no length: its last time must be above 0"),
            ("0\n0\n", "it has no length: its last time must be above 0"),
            ("5\n\n4\n", "line 3: 4 ms comes after a later time"),
            ("1\nx\n", "line 2: \"x\" is not a time in milliseconds"),
            ("-1\n", "line 1: \"-1\" is not a time in milliseconds"),
            (
                "4294967296\n",
                "line 1: \"4294967296\" is not a time in milliseconds",
            ),
        ] {
            assert_eq!(read_mahimahi(text).unwrap_err(), sentence);
        }
        for (text, sentence) in [
            ("# nothing\n", "it is empty"),
            (
                "0s 10M\n1s 0\n",
                "its last rate is 0, so that in the end nothing would ever arrive",
            ),
            ("2s 10M\n1s 10M\n", "line 2: 1 s comes after a later time"),
            (
                "2s\n",
                "line 1: \"2s\" is not a time and a rate: write for example 1.5s 20Mbit/s",
            ),
            (
                "2 10M\n",
                "line 1: \"2\" is not a time: the unit is missing; write for example 173ms, 50us or 10s",
            ),
        ] {
            assert_eq!(read_rates(text).unwrap_err(), sentence);
        }
    }

    proptest! {
        #[test]
        fn no_trace_panics(
            text in "\\PC*|([0-9]{1,11}[\\n\\r ]{0,2}){0,30}|([0-9.]{1,4}m?s [0-9]{1,3}[kMG]?\\n){0,20}",
        ) {
            if let Ok(trace) = read_mahimahi(&text) {
                prop_assert!(trace.millis.is_sorted() && trace.millis.last() > Some(&0));
            }
            if let Ok(steps) = read_rates(&text) {
                prop_assert!(steps.is_sorted_by_key(|step| step.after) && !steps.is_empty());
            }
        }
    }
}

//! The account of the time of a command.

use crate::chart::value_bar;
use fullpipe_record::TimeAccount;

use super::measurement::rounded_time;
use super::prelude::*;

/// Characters of the longest bar.
const BAR: usize = 10;

/// A part of the time: its name, its length, and figures of it.
pub(crate) type UseOfTime = (&'static str, Span, String);

/// Returns the account of a command's time, or of that for which a process was watched.
pub fn time_account(account: &TimeAccount, is_command: bool) -> String {
    let mut table = TextTable::new("|>|>|");
    for (name, time, figures) in uses_of_time(account) {
        let bar = value_bar(time.as_secs_f64(), account.whole.as_secs_f64(), BAR);
        table.push_row(cells![
            name,
            rounded_time(time),
            time_share(time, account),
            format!("{bar} {figures}"),
        ]);
    }
    let main = bold_paragraph(&main_use(account, is_command), 2);
    heading_line("Where the time went") + &main + &table.render(4)
}

/// Returns the uses of a command's time, those that took none left out.
pub(crate) fn uses_of_time(account: &TimeAccount) -> Vec<UseOfTime> {
    let all = [
        ("data under way", account.data, String::new()),
        (
            "requests one after another",
            account.requests,
            round_trips(account).unwrap_or_default(),
        ),
        (
            "waiting for the other program",
            account.other_program,
            String::new(),
        ),
        ("opening connections", account.connecting, String::new()),
        ("own work (processor)", account.own_work, String::new()),
        (
            "waiting for anything else",
            account.elsewhere,
            "disk, processor, names, timers".to_owned(),
        ),
    ];
    all.into_iter()
        .filter(|(_, time, _)| *time >= MIN_SHOWN)
        .collect()
}

/// Shortest time that is printed: half of the last digit.
const MIN_SHOWN: Span = Span::from_millis(5);

fn round_trips(account: &TimeAccount) -> Option<String> {
    let each = account.requests / Some(account.round_trips).filter(|number| *number > 0)?;
    Some(format!(
        "{} of {}",
        count_noun(account.round_trips, "round trip"),
        round_trip(each)
    ))
}

fn time_share(time: Span, account: &TimeAccount) -> String {
    format!(
        "{:.0} %",
        Ratio::from_quotient(time.as_secs_f64(), account.whole.as_secs_f64()).as_percent()
    )
}

/// Returns the name of the use that took most of the time.
pub fn longest_use(account: &TimeAccount) -> &'static str {
    uses_of_time(account)
        .into_iter()
        .max_by_key(|(_, time, _)| *time)
        .map_or("nothing", |(name, ..)| name)
}

/// Returns the use that took most of the time in a sentence, and what would save it where no
/// setting would.
pub(crate) fn main_use(account: &TimeAccount, is_command: bool) -> String {
    let whole = rounded_time(account.whole);
    let of = if is_command {
        format!("of the command's {whole}")
    } else {
        format!("of the {whole} watched")
    };
    let longest = uses_of_time(account)
        .into_iter()
        .max_by_key(|(_, time, _)| *time);
    let Some((name, time, _)) = longest else {
        return format!("Nothing took long {of}.");
    };
    let took = format!(
        "{} {of} ({})",
        rounded_time(time),
        time_share(time, account)
    );
    match round_trips(account).filter(|_| time == account.requests) {
        Some(trips) => format!(
            "Requests that wait for each other's answers took {took}: {trips}. Fewer requests, several at once, or the \
             program run near the other end would save that; no faster path or larger buffer does."
        ),
        None => format!("Most of the time is {name}: {took}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::without_marks;

    #[test]
    fn requests_that_take_most_of_the_time_are_the_first_sentence_and_the_rest_is_a_table() {
        let account = TimeAccount {
            whole: Span::from_secs(12),
            data: Span::from_millis(2700),
            requests: Span::from_millis(8480),
            round_trips: 106,
            connecting: Span::from_millis(80),
            other_program: Span::from_millis(500),
            own_work: Span::from_millis(1),
            elsewhere: Span::from_millis(239),
        };
        let text = without_marks(&time_account(&account, true));
        let sentence = "Requests that wait for each other's answers took 8.48 s of the command's";
        assert!(
            text.contains(sentence) && text.contains("106 round trips of 80 ms"),
            "{text}"
        );
        assert!(
            text.contains("data under way") && !text.contains("own work"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let idle = TimeAccount {
            requests: Span::ZERO,
            round_trips: 0,
            ..account
        };
        assert!(
            main_use(&idle, false)
                .contains("Most of the time is data under way: 2.70 s of the 12.00 s watched")
        );
        assert_eq!(longest_use(&idle), "data under way");
    }
}

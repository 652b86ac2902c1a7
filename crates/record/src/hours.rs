use std::fmt;
use std::str::FromStr;

use crate::prelude::*;

const DAY: Span = Span::from_secs(86_400);

/// Hours of each day, local time of the machine that measures; they may pass midnight, as
/// 22:00-04:30 does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct DailyHours {
    /// Begin of the hours, as time since midnight.
    from: Span,
    /// End of the hours, as time since midnight: not the begin.
    to: Span,
}

impl DailyHours {
    /// Returns the time from `now`, a time since midnight, until the hours begin: nothing within
    /// them.
    pub fn wait_until_start(self, now: Span) -> Span {
        let since = time_since(self.from, now);
        if since < time_since(self.from, self.to) {
            Span::ZERO
        } else {
            DAY - since
        }
    }
}

/// Returns the time from one time of the day to another, which may be on the next day.
fn time_since(from: Span, to: Span) -> Span {
    if to >= from {
        to - from
    } else {
        to + DAY - from
    }
}

impl FromStr for DailyHours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text
            .split_once('-')
            .ok_or("write two times of the day: 01:00-05:00")?;
        let hours = Self {
            from: time_of_day(from)?,
            to: time_of_day(to)?,
        };
        if hours.from == hours.to {
            Err("the hours end when they begin".to_owned())
        } else {
            Ok(hours)
        }
    }
}

fn time_of_day(text: &str) -> Result<Span, String> {
    let parts = text
        .trim()
        .split_once(':')
        .and_then(|(hour, minute)| Some((two_digits(hour, 23)?, two_digits(minute, 59)?)));
    let (hour, minute) = parts.ok_or_else(|| format!("{text:?} is no time from 00:00 to 23:59"))?;
    Ok(Span::from_secs(hour * 3600 + minute * 60))
}

fn two_digits(text: &str, most: u64) -> Option<u64> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|value| is_number && *value <= most)
}

impl fmt::Display for DailyHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] =
            [self.from, self.to].map(|time| time.as_nanos() / Span::from_secs(60).as_nanos());
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            to / 60,
            to % 60
        )
    }
}

impl TryFrom<String> for DailyHours {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DailyHours> for String {
    fn from(hours: DailyHours) -> Self {
        hours.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Span {
        Span::from_secs(minutes * 60)
    }

    #[test]
    fn hours_are_waited_for_and_may_pass_midnight() {
        let hours = |text: &str| text.parse::<DailyHours>().unwrap();
        let night = hours("01:00-05:00");
        assert_eq!(night.wait_until_start(minutes(0)), minutes(60));
        assert_eq!(
            [60, 299].map(|now| night.wait_until_start(minutes(now))),
            [Span::ZERO; 2]
        );
        assert_eq!(
            [300, 720].map(|now| night.wait_until_start(minutes(now))),
            [minutes(22 * 60 - 120), minutes(780)]
        );
        let late = hours("22:00-04:30");
        assert_eq!(
            [1320, 1439, 0, 269].map(|now| late.wait_until_start(minutes(now))),
            [Span::ZERO; 4]
        );
        assert_eq!(late.wait_until_start(minutes(270)), minutes(1050));
    }

    #[test]
    fn hours_are_text_in_json() {
        let json = "\"01:05-23:59\"";
        assert_eq!(
            serde_json::to_string(&serde_json::from_str::<DailyHours>(json).unwrap()).unwrap(),
            json
        );
        for text in [
            "",
            "1-5",
            "01:00",
            "24:00-01:00",
            "01:60-02:00",
            "01:00-01:00",
            "+1:00-02:00",
            "01:00-02:00-03:00",
        ] {
            assert!(text.parse::<DailyHours>().is_err(), "{text}");
        }
    }
}

use std::fmt::Display;
use std::str::FromStr;

use fullpipe_control::AddressPrefix;
use fullpipe_units::{ByteCount, Span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::slot::Slot;

/// What a host lets the fleet do: the last word, which no controller can widen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentPolicy {
    /// Names of hosts with which tests may be; `*` at an end stands for anything.
    pub peers: Vec<String>,
    /// Networks whose hosts this host may connect to; all if there are none.
    #[serde(deserialize_with = "networks")]
    pub networks: Vec<AddressPrefix>,
    /// Times of the day in UTC in which tests may begin: `01:00-05:00`.
    pub hours: Vec<DayTime>,
    /// Most bytes of all tests that begin on one day of UTC. A test counts with the most that it may
    /// have until it is over, and always where others connect.
    #[serde(deserialize_with = "quantity")]
    pub bytes_per_day: ByteCount,
    /// Most bytes of a test.
    #[serde(deserialize_with = "quantity")]
    pub bytes: ByteCount,
    /// Longest load.
    #[serde(deserialize_with = "quantity")]
    pub duration: Span,
    /// Most parallel streams.
    pub streams: u16,
    /// False if other hosts may not connect to this one.
    pub serves: bool,
}

impl Default for AgentPolicy {
    /// Permits tests with all hosts of the fleet at any time, of up to 30 s, 8 streams and 32 GiB
    /// each.
    fn default() -> Self {
        Self {
            peers: vec!["*".to_owned()],
            networks: Vec::new(),
            hours: Vec::new(),
            bytes_per_day: ByteCount::new(u64::MAX),
            bytes: ByteCount::new(32 << 30),
            duration: Span::from_secs(30),
            streams: 8,
            serves: true,
        }
    }
}

/// Reads a quantity with its unit: `40GB`, `30s`.
fn quantity<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// Reads networks: `["192.0.2.0/24"]`.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AddressPrefix>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let read = texts.iter().map(|text| text.parse());
    read.collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// A part of each day, in minutes of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct DayTime {
    from: u64,
    until: u64,
}

impl TryFrom<String> for DayTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let minutes = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60 || (hour, minute) == (24, 0)).then_some(hour * 60 + minute)
        };
        text.split_once('-')
            .and_then(|(from, until)| Some((minutes(from)?, minutes(until)?)))
            .filter(|(from, until)| from != until)
            .map(|(from, until)| Self { from, until })
            .ok_or_else(|| format!("{text:?} is no part of a day, as 01:00-05:00 is"))
    }
}

impl DayTime {
    /// Returns true if a time, in seconds since 1970, is in this part of its day, which may have
    /// midnight in it.
    fn has(self, time: u64) -> bool {
        let minute = time / 60 % (24 * 60);
        if self.from < self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

impl AgentPolicy {
    /// Reads a policy from TOML.
    ///
    /// # Errors
    /// Fails with a sentence if it is none.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.message().replace('\n', " "))
    }

    /// Returns why `host` may not take part in a slot, on whose day slots of `bytes` are granted;
    /// `None` if it may.
    pub fn refusal(&self, host: &str, slot: &Slot, granted: ByteCount) -> Option<String> {
        let peer = if slot.client == host {
            &slot.server
        } else {
            &slot.client
        };
        let load = &slot.load;
        if slot.server == host && !self.serves {
            return Some(format!("the policy of {host} lets no other host connect"));
        }
        if !self.peers.iter().any(|pattern| is_match(pattern, peer)) {
            return Some(format!("the policy of {host} permits no test with {peer}"));
        }
        if !self.hours.is_empty() && !self.hours.iter().any(|hours| hours.has(slot.starts)) {
            return Some(format!("the policy of {host} permits no test at this hour"));
        }
        let beyond = [
            (
                load.duration > self.duration,
                format!("a load of {}", load.duration),
            ),
            (
                load.streams > self.streams,
                format!("{} streams", load.streams),
            ),
            (load.bytes > self.bytes, format!("{} in a test", load.bytes)),
            (
                granted.get().saturating_add(load.bytes.get()) > self.bytes_per_day.get(),
                format!("{} more on this day", load.bytes),
            ),
        ];
        let (_, what) = beyond.into_iter().find(|(is_beyond, _)| *is_beyond)?;
        Some(format!("the policy of {host} does not permit {what}"))
    }
}

/// Returns true if a name is what a pattern stands for, with `*` for anything at its begin or end.
fn is_match(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(end), _) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_record::Direction;

    use super::*;
    use crate::plan::{MeshSettings, SlotPurpose};

    fn slot(starts: u64) -> Slot {
        Slot {
            id: String::new(),
            client: "a".to_owned(),
            server: "b.lan".to_owned(),
            direction: Direction::Upload,
            purpose: SlotPurpose::Rotation,
            starts,
            ends: starts + 20,
            load: MeshSettings::default().load(SlotPurpose::Rotation),
        }
    }

    #[test]
    fn a_policy_permits_what_it_says_and_names_what_it_refuses() {
        let policy = |text: &str| AgentPolicy::from_toml(text).unwrap();
        let refusal = |text: &str, host: &str, starts| {
            policy(text).refusal(host, &slot(starts), ByteCount::new(390 << 30))
        };
        assert_eq!(refusal("", "a", 0), None);
        for (text, host, wanted) in [
            ("bytes_per_day = '400GiB'", "a", "16 GiB more on this day"),
            ("serves = false", "b.lan", "no other host connect"),
            ("peers = ['*.net', 'c*']", "a", "no test with b.lan"),
            ("bytes = '1GiB'", "a", "16 GiB in a test"),
            ("duration = '2s'", "a", "a load of 5 s"),
            ("streams = 0", "b.lan", "1 streams"),
            (
                "hours = ['01:00-05:00', '23:30-00:00']",
                "a",
                "at this hour",
            ),
        ] {
            let why = refusal(text, host, 0).unwrap_or_default();
            assert!(why.contains(wanted), "{text}: {why}");
        }
        let hours = "bytes_per_day='500GiB'\nhours = ['22:00-02:00']\npeers = ['*.lan']";
        for (hour, is_refused) in [(1, false), (2, true), (21, true), (22, false)] {
            assert_eq!(
                refusal(hours, "a", hour * 3600).is_some(),
                is_refused,
                "{hour}"
            );
        }
    }

    #[test]
    fn what_is_no_policy_is_refused_with_a_sentence() {
        for text in [
            "hours = ['25:00-26:00']",
            "networks = ['192.0.2.0/33']",
            "hours = ['01:00']",
            "hours = ['01:00-01:00']",
            "speers = []",
            "bytes = -1",
            "{",
        ] {
            let why = AgentPolicy::from_toml(text).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
        }
    }
}

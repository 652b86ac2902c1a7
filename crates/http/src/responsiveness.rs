//! The arithmetic of a client of responsiveness (draft-ietf-ippm-responsiveness-09), and what its
//! server offers.

use std::collections::VecDeque;

use fullpipe_record::{RpmConfidence, RpmReport, trimmed_mean};
use fullpipe_units::{BitRate, Span};
use serde_json::Value;

use crate::RuleBroken;

/// Length of an interval. The draft has 5 s now; what is deployed has 1 s, with which sixteen
/// connections still fit into a test that somebody waits for.
pub const RPM_INTERVAL: Span = Span::from_secs(1);

/// Connections under load at most (MNP).
pub const MAX_CONNECTIONS: usize = 16;

/// Probes a second at most, of both kinds together (MPS).
pub const MAX_PROBES: u32 = 100;

/// Share of the capacity that probes may take (PTC).
pub const PROBE_SHARE: f64 = 0.05;

/// Intervals over which an average moves, and over which it must stay the same (MAD).
const MOVING_INTERVALS: usize = 4;

/// Standard deviation of the latest averages ÷ the last of them, up to which they are stable (SDT).
const STABLE_SHARE: f64 = 0.05;

/// Milliseconds of a minute.
const MINUTE: f64 = 60_000.0;

/// The targets of a test, all of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsivenessTargets {
    /// Path of one byte.
    pub small: String,
    /// Path of more bytes than a test can carry.
    pub large: String,
    /// Path that takes any number of bytes.
    pub upload: String,
}

impl ResponsivenessTargets {
    /// Reads the object that the server with the name and port `authority` sent.
    ///
    /// # Errors
    /// Fails if it is none, or if a URL is none of that server: no third party shall be measured.
    pub fn from_json(json: &[u8], authority: &str) -> Result<Self, RuleBroken> {
        let config: Value =
            serde_json::from_slice(json).map_err(|_| "its answer is no test of responsiveness")?;
        let urls = &config["urls"];
        let path = |name: &str, older: &str| {
            let url = urls[name].as_str().or(urls[older].as_str());
            path_at(url.unwrap_or_default(), authority)
        };
        Ok(Self {
            small: path("small_download_url", "small_https_download_url")?,
            large: path("large_download_url", "large_https_download_url")?,
            upload: path("upload_url", "https_upload_url")?,
        })
    }
}

/// Returns the path of a URL of this server, with its query.
fn path_at(url: &str, authority: &str) -> Result<String, RuleBroken> {
    let rest = url
        .strip_prefix("https://")
        .ok_or("its test lacks a URL with https://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let without_port = |name: &str| name.strip_suffix(":443").unwrap_or(name).to_lowercase();
    if without_port(host) != without_port(authority) {
        return Err("its test is at another host, which was not asked for");
    }
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    is_path
        .then(|| path.to_owned())
        .ok_or("a URL of its test has no path")
}

/// The round trips that probes took.
#[derive(Debug, Clone, Default)]
pub struct ProbeTimes {
    /// Of the handshake of TCP, on new connections.
    pub tcp: Vec<Span>,
    /// Of the handshake of TLS, each of its round trips.
    pub tls: Vec<Span>,
    /// From a request to its answer, on new connections.
    pub http: Vec<Span>,
    /// The same on connections under load.
    pub http_loaded: Vec<Span>,
}

impl ProbeTimes {
    /// Appends the round trips of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.tcp.extend(&other.tcp);
        self.tls.extend(&other.tls);
        self.http.extend(&other.http);
        self.http_loaded.extend(&other.http_loaded);
    }

    /// Returns the round trips per minute (section 5.3); `None` if a kind of them is missing.
    pub fn per_minute(&self) -> Option<f64> {
        let kinds = [&self.tcp, &self.tls, &self.http, &self.http_loaded];
        let means = kinds.map(|times| trimmed_mean(times.clone()).map(Span::as_millis_f64));
        let [tcp, tls, http, http_loaded] = means;
        let foreign = (tcp? + tls? + http?) / 3.0;
        let per_minute = f64::midpoint(MINUTE / foreign, MINUTE / http_loaded?);
        per_minute.is_finite().then_some(per_minute)
    }
}

/// What an interval brought.
#[derive(Debug, Clone, Default)]
struct RpmInterval {
    goodput: BitRate,
    times: ProbeTimes,
}

/// The course of a test (section 5.4): first the goodput becomes stable, and then the round trips.
#[derive(Debug, Default)]
pub struct RpmCourse {
    /// The latest intervals.
    intervals: VecDeque<RpmInterval>,
    /// Average of the goodput over the latest intervals, at the end of each, in bit/s.
    goodputs: Vec<f64>,
    /// Round trips a minute of the latest intervals, at the end of each since the goodput became
    /// stable; `None` until then.
    rates: Option<Vec<f64>>,
}

impl RpmCourse {
    /// Adds an interval with a `goodput` and the `times` that came in it.
    pub fn add_interval(&mut self, goodput: BitRate, times: ProbeTimes) {
        if self.intervals.len() == MOVING_INTERVALS {
            self.intervals.pop_front();
        }
        self.intervals.push_back(RpmInterval { goodput, times });
        if let Some(rates) = &mut self.rates {
            let mut times = ProbeTimes::default();
            self.intervals
                .iter()
                .for_each(|one| times.extend(&one.times));
            rates.push(times.per_minute().unwrap_or_default());
        } else if self.intervals.len() == MOVING_INTERVALS {
            self.goodputs.push(self.mean_goodput().as_f64());
            self.rates = is_stable(&self.goodputs).then(Vec::new);
        }
    }

    /// Returns true once goodput and round trips have become stable.
    pub fn is_complete(&self) -> bool {
        self.rates.as_deref().is_some_and(is_stable)
    }

    /// Returns the figures of the latest intervals, with so many `connections` under load; `None` if a
    /// kind of round trips is missing in them.
    pub fn report(&self, connections: u16) -> Option<RpmReport> {
        let mut times = ProbeTimes::default();
        self.intervals
            .iter()
            .for_each(|one| times.extend(&one.times));
        Some(RpmReport {
            per_minute: times.per_minute()?.round() as u64,
            probes: (times.http.len() + times.http_loaded.len()) as u32,
            tcp: trimmed_mean(times.tcp)?,
            tls: trimmed_mean(times.tls)?,
            http: trimmed_mean(times.http)?,
            http_loaded: trimmed_mean(times.http_loaded)?,
            goodput: self.mean_goodput(),
            connections,
            confidence: self.confidence(),
        })
    }

    fn mean_goodput(&self) -> BitRate {
        let sum: BitRate = self.intervals.iter().map(|one| one.goodput).sum();
        sum.scale_by(1.0 / self.intervals.len().max(1) as f64)
    }

    /// Returns how sure the round trips are (section 5.4.1).
    fn confidence(&self) -> RpmConfidence {
        match &self.rates {
            Some(_) if self.is_complete() => RpmConfidence::High,
            Some(rates) if rates.len() >= MOVING_INTERVALS => RpmConfidence::Medium,
            _ => RpmConfidence::Low,
        }
    }
}

/// Returns true if the latest of these averages, of one interval each, are the same.
fn is_stable(averages: &[f64]) -> bool {
    let Some((latest, last)) = averages
        .last_chunk::<MOVING_INTERVALS>()
        .zip(averages.last())
    else {
        return false;
    };
    let average = mean(latest);
    let squares = latest.map(|one| (one - average).powi(2));
    // Nothing that comes is no load, and no answer.
    *last > 0.0 && mean(&squares).sqrt() <= STABLE_SHARE * last
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(times: &[u64]) -> Vec<Span> {
        times.iter().copied().map(Span::from_millis).collect()
    }

    #[test]
    fn a_minute_is_divided_by_the_mean_of_both_kinds() {
        let times = ProbeTimes {
            tcp: millis(&[20]),
            tls: millis(&[40]),
            http: millis(&[60]),
            http_loaded: millis(&[200]),
        };
        // Half of 60000 ÷ 40, and half of 60000 ÷ 200.
        assert_eq!(times.per_minute().map(f64::round), Some(900.0));
        let lacking = ProbeTimes {
            tls: Vec::new(),
            ..times
        };
        assert!(lacking.per_minute().is_none());
    }

    /// Returns the course of intervals with these goodputs, in Mbit/s, and this round trip.
    fn course_of(intervals: &[(f64, u64)]) -> RpmCourse {
        let mut course = RpmCourse::default();
        for &(goodput, time) in intervals {
            let [tcp, tls, http, http_loaded] = [(); 4].map(|()| millis(&[time]));
            let times = ProbeTimes {
                tcp,
                tls,
                http,
                http_loaded,
            };
            course.add_interval(BitRate::from_bps_f64(goodput * 1e6), times);
        }
        course
    }

    #[test]
    fn averages_are_stable_once_they_stay_within_a_twentieth_of_the_last() {
        let rising: Vec<f64> = (1..20).map(|at| f64::from(at) * 10.0).collect();
        assert!(!is_stable(&rising) && !is_stable(&[100.0; 3]) && is_stable(&[100.0; 4]));
        // Their standard deviation is 5, and 5.01.
        assert!(is_stable(&[90.0, 90.0, 100.0, 100.0]));
        assert!(!is_stable(&[100.0, 100.0, 89.98, 89.98]) && !is_stable(&[0.0; 9]));
    }

    #[test]
    fn round_trips_are_watched_once_the_goodput_was_stable() {
        // Four averages of four intervals make a goodput stable, and four more the round trips.
        let level = [(50.0, 200); 11];
        let early = course_of(&level[..10]);
        assert!(!early.is_complete());
        assert_eq!(early.report(1).unwrap().confidence, RpmConfidence::Low);
        let complete = course_of(&level);
        assert!(complete.is_complete());
        let report = complete.report(11).unwrap();
        assert_eq!(report.confidence, RpmConfidence::High);
        assert_eq!(
            (report.per_minute, report.probes, report.connections),
            (300, 8, 11)
        );
        assert_eq!(report.goodput, BitRate::from_bps(50_000_000));
        // A goodput that was stable need not stay so; round trips count from then on.
        let later = [(50.0, 200), (40.0, 400), (30.0, 800), (50.0, 1600)];
        let varied = course_of(&[&level[..7], &later[..]].concat());
        assert!(!varied.is_complete());
        assert_eq!(varied.report(1).unwrap().confidence, RpmConfidence::Medium);
        let growing: Vec<(f64, u64)> = (1..30).map(|at| (f64::from(at), 200)).collect();
        assert_eq!(
            course_of(&growing[..12]).report(1).unwrap().confidence,
            RpmConfidence::Low
        );
        assert!(course_of(&[]).report(1).is_none());
    }

    #[test]
    fn targets_are_of_the_server_that_was_asked() {
        let config = crate::responsiveness_config("h:4443", true).to_string();
        let read = |host| ResponsivenessTargets::from_json(config.as_bytes(), host);
        let targets = read("H:4443").unwrap();
        assert_eq!(targets.small, "/nq/small");
        assert_eq!(targets.upload, "/nq/upload");
        assert!(read("other:4443").is_err());
        let older = r#"{"version":1,"urls":{"small_https_download_url":"https://h/s?x=1",
            "large_https_download_url":"https://h:443/l","https_upload_url":"https://h/u"}}"#;
        let targets = ResponsivenessTargets::from_json(older.as_bytes(), "h:443").unwrap();
        assert_eq!(
            (targets.small.as_str(), targets.large.as_str()),
            ("/s?x=1", "/l")
        );
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"urls":{}}"#,
            r#"{"urls":{"small_download_url":"http://h/"}}"#,
        ] {
            assert!(
                ResponsivenessTargets::from_json(wrong.as_bytes(), "h").is_err(),
                "{wrong}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_is_offered_is_read_or_refused(at in 0_usize..300, with in any::<[u8; 3]>()) {
            let mut bytes = crate::responsiveness_config("h", true).to_string().into_bytes();
            let at = at.min(bytes.len() - 3);
            bytes.splice(at..at + 3, with);
            if let Ok(targets) = ResponsivenessTargets::from_json(&bytes, "h") {
                prop_assert!(targets.large.starts_with('/'));
            }
        }
    }
}

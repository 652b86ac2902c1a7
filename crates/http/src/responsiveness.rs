//! The arithmetic of a client of responsiveness (draft-ietf-ippm-responsiveness-09), and what its
//! server offers.

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
pub const MOVING_INTERVALS: usize = 4;

/// Standard deviation ÷ mean of the latest averages, up to which they are stable (SDT).
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

    /// Returns the figures of these round trips, with a `goodput` over so many `connections`; `None`
    /// if a kind of them is missing.
    pub fn report(
        &self,
        goodput: BitRate,
        connections: u16,
        confidence: RpmConfidence,
    ) -> Option<RpmReport> {
        Some(RpmReport {
            per_minute: self.per_minute()?.round() as u64,
            tcp: trimmed_mean(self.tcp.clone())?,
            tls: trimmed_mean(self.tls.clone())?,
            http: trimmed_mean(self.http.clone())?,
            http_loaded: trimmed_mean(self.http_loaded.clone())?,
            goodput,
            connections,
            probes: (self.http.len() + self.http_loaded.len()) as u32,
            confidence,
        })
    }
}

/// Returns true if the moving average of `values`, one of each interval, has stayed the same over
/// the latest intervals (section 4.3).
pub fn is_stable(values: &[f64]) -> bool {
    let averages: Vec<f64> = values
        .windows(MOVING_INTERVALS)
        .map(mean)
        .rev()
        .take(MOVING_INTERVALS)
        .collect();
    let average = mean(&averages);
    let squares: Vec<f64> = averages.iter().map(|one| (one - average).powi(2)).collect();
    averages.len() == MOVING_INTERVALS && mean(&squares).sqrt() <= STABLE_SHARE * average
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns how sure the figures of a test are in which goodput and round trips became stable or not
/// (section 4.4).
pub const fn confidence(is_goodput_stable: bool, is_rpm_stable: bool) -> RpmConfidence {
    match (is_goodput_stable, is_rpm_stable) {
        (true, true) => RpmConfidence::High,
        (true, false) => RpmConfidence::Medium,
        (false, _) => RpmConfidence::Low,
    }
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
        let report = times.report(BitRate::ZERO, 3, RpmConfidence::High).unwrap();
        assert_eq!((report.per_minute, report.tls), (900, times.tls[0]));
        let lacking = ProbeTimes {
            tls: Vec::new(),
            ..times
        };
        assert!(lacking.per_minute().is_none());
    }

    #[test]
    fn averages_are_stable_once_they_stay_within_a_twentieth() {
        let rising: Vec<f64> = (1..20).map(|at| f64::from(at) * 10.0).collect();
        assert!(!is_stable(&rising));
        let level = [&rising[..4], &[100.0; 7]].concat();
        assert!(is_stable(&level) && !is_stable(&level[..8]));
        assert!(!is_stable(&[100.0; 6]) && is_stable(&[100.0; 7]));
        assert_eq!(confidence(true, true), RpmConfidence::High);
        assert_eq!(confidence(true, false), RpmConfidence::Medium);
        assert_eq!(confidence(false, true), RpmConfidence::Low);
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

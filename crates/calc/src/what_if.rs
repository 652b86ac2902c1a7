//! Answers after one change of the question.

use fullpipe_record::{Estimate, Given, Leg, WhatIf};
use fullpipe_units::{ParseError, Ratio, Span};

use crate::case::{Hosts, estimate};
use crate::needs::ample_hosts;
use crate::{GivenError, READABLE, Setting};

/// One change of the question.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIfQuestion {
    text: String,
    change: Change,
}

#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// Another value of a quantity.
    Set(Setting),
    /// A pair of split-TCP relays, one at this round trip from each host.
    Relay(Span),
}

impl WhatIfQuestion {
    /// Reads `rtt=4ms`, `window=4MiB` and the like, `relay`, or `relay=1ms`.
    ///
    /// # Errors
    /// A key that does not exist, a value that [`Setting::read`] refuses.
    pub fn read(text: &str) -> Result<Self, GivenError> {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        let (key, value) = (key.trim(), value.map(str::trim));
        let change = match (key, value) {
            ("relay", None) => Change::Relay(RELAY_RTT),
            ("relay", Some(rtt)) => {
                let stated = |error: ParseError| GivenError::new(format!("relay: {error}"));
                Change::Relay(rtt.parse().map_err(stated)?)
            }
            (_, Some(value)) => Change::Set(read_setting(key, value)?),
            (_, None) => return Err(GivenError::new(format!("\"{text}\" is not KEY=VALUE; {}", keys()))),
        };
        Ok(Self { text: text.to_owned(), change })
    }

    /// Returns the estimate for `given` with this change; `before` is the estimate without it.
    ///
    /// # Errors
    /// Relays that stand further apart than the path is long.
    pub(crate) fn answer(&self, given: &Given, hosts: &Hosts, before: &Estimate) -> Result<WhatIf, GivenError> {
        let (estimate, leg) = match &self.change {
            Change::Set(setting) => {
                let mut given = given.clone();
                if matches!(setting, Setting::Distance(_)) {
                    given.rtt = None;
                }
                setting.apply(&mut given);
                (estimate(&given, hosts), None)
            }
            Change::Relay(relay_rtt) => {
                let (estimate, leg) = relayed(given, hosts, *relay_rtt)?;
                (estimate, Some(leg))
            }
        };
        let gain = Ratio::of(estimate.kernel_model.as_f64(), before.kernel_model.as_f64());
        Ok(WhatIf { what: self.text.clone(), estimate, gain, leg })
    }
}

fn read_setting(key: &str, value: &str) -> Result<Setting, GivenError> {
    let quantity = READABLE.into_iter().find(|quantity| quantity.name() == key);
    let quantity = quantity.ok_or_else(|| GivenError::new(format!("\"{key}\" is not a key here; {}", keys())))?;
    Setting::read(quantity, value).map_err(|error| GivenError::new(format!("{key}: {error}")))
}

fn keys() -> String {
    let names: Vec<&str> = READABLE.iter().map(|quantity| quantity.name()).collect();
    format!("the keys are {} and relay", names.join(", "))
}

/// Three connections in series, of which the slowest decides: the outer ones have the hosts' windows over the short
/// round trip and lose nothing, the middle one has what is left of the path, its loss, and ample windows.
fn relayed(given: &Given, hosts: &Hosts, relay_rtt: Span) -> Result<(Estimate, Leg), GivenError> {
    let rtt = given.rtt.unwrap_or_default();
    let between = rtt.saturating_sub(relay_rtt * 2);
    if between == Span::ZERO {
        return Err(GivenError::new(format!(
            "relay: two relays {relay_rtt} from their hosts do not fit a path of {rtt}; write less than {} for each",
            rtt / 2
        )));
    }
    let outer = Given { rtt: Some(relay_rtt), loss: None, ..given.clone() };
    let middle = Given { rtt: Some(between), window: None, buffer: None, ..given.clone() };
    let outer = estimate(&outer, hosts);
    let middle = estimate(&middle, &ample_hosts(hosts));
    let slowest = if middle.kernel_model <= outer.kernel_model { (middle, Leg::Middle) } else { (outer, Leg::Outer) };
    let time = middle.time.max(outer.time);
    Ok((Estimate { time, ..slowest.0 }, slowest.1))
}

/// Distance of a relay from its host by default: the same building.
const RELAY_RTT: Span = Span::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use fullpipe_record::Limit;
    use fullpipe_units::{BitRate, ByteCount};
    use proptest::prelude::*;

    fn gigabit() -> Given {
        Given { bandwidth: Some(BitRate::from_mbps(1000)), rtt: Some(Span::from_millis(100)), ..Given::default() }
    }

    fn answer(given: &Given, text: &str) -> WhatIf {
        let hosts = fixture::hosts();
        WhatIfQuestion::read(text).unwrap().answer(given, &hosts, &estimate(given, &hosts)).unwrap()
    }

    #[test]
    fn a_nearer_server_fills_the_pipe() {
        let got = answer(&gigabit(), "rtt=4ms");
        assert_eq!((got.what.as_str(), got.estimate.limit), ("rtt=4ms", Limit::Capacity));
        assert_eq!(format!("{:.2}", got.gain.get()), "2.90");
    }

    #[test]
    fn a_window_takes_the_place_of_a_buffer() {
        let given = Given { buffer: Some(ByteCount::from_kib(64)), ..gigabit() };
        assert_eq!(answer(&given, "window=1MiB").estimate, answer(&gigabit(), "window=1MiB").estimate);
    }

    #[test]
    fn relays_split_the_round_trip_and_keep_the_loss_between_them() {
        // Each host's 4 MiB fill 1 ms; between the relays nothing but the link limits.
        let got = answer(&gigabit(), "relay");
        assert_eq!((got.estimate.limit, got.leg), (Limit::Capacity, Some(Leg::Middle)));
        let lossy = Given { loss: Some(Ratio::new(1e-4)), ..gigabit() };
        let got = answer(&lossy, "relay=1ms");
        assert_eq!((got.estimate.limit, got.leg), (Limit::Loss, Some(Leg::Middle)));
        // The middle has 98 of the 100 ms, and ample windows.
        let middle = answer(&lossy, "rtt=98ms").estimate.kernel_model;
        assert!(got.estimate.kernel_model >= middle && got.estimate.kernel_model < middle.scaled(1.001));
        let small = Given { window: Some(ByteCount::from_kib(64)), ..gigabit() };
        let got = answer(&small, "relay=10ms");
        assert_eq!((got.estimate.limit, got.leg), (Limit::ReceiveWindow, Some(Leg::Outer)));
    }

    #[test]
    fn a_bad_what_if_is_reported_in_a_sentence() {
        let keys =
            "the keys are bandwidth, rtt, distance, window, buffer, loss, mtu, streams, congestion, size and relay";
        for (text, sentence) in [
            ("delay=1ms", format!("\"delay\" is not a key here; {keys}")),
            ("faster", format!("\"faster\" is not KEY=VALUE; {keys}")),
            ("", format!("\"\" is not KEY=VALUE; {keys}")),
            ("rtt=0s", "rtt: a round trip takes some time; write for example 173ms".to_owned()),
            (
                "relay=x",
                "relay: \"x\" is not a time: a number must come first; write for example 173ms, 50us or 10s".to_owned(),
            ),
        ] {
            assert_eq!(WhatIfQuestion::read(text).unwrap_err().to_string(), sentence);
        }
        let hosts = fixture::hosts();
        let far = WhatIfQuestion::read("relay=50ms").unwrap();
        let stated = far.answer(&gigabit(), &hosts, &estimate(&gigabit(), &hosts)).unwrap_err().to_string();
        assert_eq!(
            stated,
            "relay: two relays 50 ms from their hosts do not fit a path of 100 ms; write less than 50 ms for each"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_what_if_or_an_error(text in "\\PC*|[a-z]{3,8}=[0-9]{0,3}[a-zA-Z%]{0,3}") {
            let _ = WhatIfQuestion::read(&text);
        }
    }
}

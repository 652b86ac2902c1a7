//! The estimate after one change of the inputs, which answers a what-if question.

use crate::prelude::*;
use crate::{USUAL_RELAY_RTT, congestion_between_relays};
use fullpipe_record::{Leg, WhatIf};
use fullpipe_units::ParseError;

use super::case::{HostPair, estimate_inputs};
use super::needs::ample_hosts;
use super::{InputError, QuantitySetting, READABLE};

/// One change of the inputs, as the user writes it: `rtt=4ms`, `relay`, or `relay=1ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIfChange {
    text: String,
    change: InputChange,
}

#[derive(Debug, Clone, PartialEq)]
enum InputChange {
    /// Sets one input to another value.
    Set(QuantitySetting),
    /// Adds two relays that each terminate TCP; the value is the round-trip time between each relay
    /// and its host.
    Relay(Span),
}

impl WhatIfChange {
    /// Reads `KEY=VALUE`, where KEY is the name of a quantity in [`READABLE`], or `relay=TIME`, or
    /// `relay` alone, which stands for `relay=1ms`.
    ///
    /// # Errors
    /// Fails if `text` has no `=` and is not `relay`, if there is no such key, if
    /// [`QuantitySetting::read`] rejects the value, or if the value of `relay` is not a time.
    pub fn read(text: &str) -> Result<Self, InputError> {
        let (key, value) = text
            .split_once('=')
            .map_or((text, None), |(key, value)| (key, Some(value)));
        let (key, value) = (key.trim(), value.map(str::trim));
        let change = match (key, value) {
            ("relay", None) => InputChange::Relay(USUAL_RELAY_RTT),
            ("relay", Some(rtt)) => {
                let rtt = rtt
                    .parse()
                    .map_err(|error: ParseError| InputError::new(format!("relay: {error}")))?;
                InputChange::Relay(rtt)
            }
            (_, Some(value)) => InputChange::Set(read_setting(key, value)?),
            (_, None) => {
                return Err(InputError::new(format!(
                    "\"{text}\" is neither KEY=VALUE nor relay; {}",
                    list_keys()
                )));
            }
        };
        Ok(Self {
            text: text.to_owned(),
            change,
        })
    }

    /// Returns the estimate for `inputs` with this change, and the gain: the kernel model's rate
    /// with the change, divided by the rate in `unchanged`, the estimate for `inputs` without the
    /// change. A change of the distance replaces the round-trip time of the inputs.
    ///
    /// # Errors
    /// Fails if this change adds relays and twice their round-trip time is at least that of the
    /// path.
    pub(crate) fn estimate_change(
        &self,
        inputs: &Inputs,
        hosts: &HostPair,
        unchanged: &Estimate,
    ) -> Result<WhatIf, InputError> {
        let (estimate, leg) = match &self.change {
            InputChange::Set(setting) => {
                let mut inputs = inputs.clone();
                if matches!(setting, QuantitySetting::Distance(_)) {
                    inputs.rtt = None;
                }
                setting.apply_to(&mut inputs);
                (estimate_inputs(&inputs, hosts), None)
            }
            InputChange::Relay(relay_rtt) => {
                let (estimate, leg) = estimate_with_relays(inputs, hosts, *relay_rtt)?;
                (estimate, Some(leg))
            }
        };
        let gain = Ratio::from_quotient(
            estimate.kernel_model.as_f64(),
            unchanged.kernel_model.as_f64(),
        );
        Ok(WhatIf {
            what: self.text.clone(),
            estimate,
            gain,
            leg,
        })
    }
}

/// Reads `value` as a value of the quantity named `key`.
///
/// # Errors
/// Fails if no quantity in [`READABLE`] has this name, or if [`QuantitySetting::read`] rejects the
/// value.
fn read_setting(key: &str, value: &str) -> Result<QuantitySetting, InputError> {
    let quantity = READABLE.into_iter().find(|quantity| quantity.name() == key);
    let quantity = quantity
        .ok_or_else(|| InputError::new(format!("there is no key \"{key}\"; {}", list_keys())))?;
    QuantitySetting::read(quantity, value)
        .map_err(|error| InputError::new(format!("{key}: {error}")))
}

/// Returns the part of an error message that lists the keys.
fn list_keys() -> String {
    let names: Vec<&str> = READABLE.iter().map(|quantity| quantity.name()).collect();
    format!("the keys are {} and relay", names.join(", "))
}

/// Returns the estimate for three TCP connections in series (sender to relay, relay to relay, relay
/// to receiver), and the leg that is the slowest.
///
/// Each outer connection has the windows of the hosts, the round-trip time `relay_rtt`, and no
/// loss. The middle connection has the rest of the path's round-trip time, all of the path's loss,
/// windows that limit nothing, and the congestion control of the relays, whose kernel is that of
/// the sender: its default, or BBR if the path loses packets. The transfer takes as long as the
/// connection that takes longest for the size in the inputs.
///
/// # Errors
/// Fails if `relay_rtt * 2` is at least the round-trip time of the path.
fn estimate_with_relays(
    inputs: &Inputs,
    hosts: &HostPair,
    relay_rtt: Span,
) -> Result<(Estimate, Leg), InputError> {
    let path_rtt = inputs.rtt.unwrap_or_default();
    let middle_rtt = path_rtt.saturating_sub(relay_rtt * 2);
    if middle_rtt == Span::ZERO {
        return Err(InputError::new(format!(
            "relay: the round-trip time between a relay and its host is {relay_rtt}, but two of them must be shorter \
             than the path's {path_rtt}; write less than {}",
            path_rtt / 2
        )));
    }
    let outer = Inputs {
        rtt: Some(relay_rtt),
        loss: None,
        ..inputs.clone()
    };
    let congestion = congestion_between_relays(inputs.loss, &hosts.sender);
    let middle = Inputs {
        rtt: Some(middle_rtt),
        window: None,
        buffer: None,
        congestion,
        ..inputs.clone()
    };
    let outer = estimate_inputs(&outer, hosts);
    let middle = estimate_inputs(&middle, &ample_hosts(hosts));
    let slowest = if middle.kernel_model <= outer.kernel_model {
        (middle, Leg::Middle)
    } else {
        (outer, Leg::Outer)
    };
    let time = middle.time.max(outer.time);
    Ok((Estimate { time, ..slowest.0 }, slowest.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use fullpipe_record::Limit;
    use fullpipe_units::{BitRate, ByteCount};
    use proptest::prelude::*;

    fn gigabit() -> Inputs {
        Inputs {
            bandwidth: Some(BitRate::from_mbps(1000)),
            rtt: Some(Span::from_millis(100)),
            ..Inputs::default()
        }
    }

    fn answer(inputs: &Inputs, text: &str) -> WhatIf {
        answer_of(&test_fixture::default_hosts(), inputs, text)
    }

    fn answer_of(hosts: &HostPair, inputs: &Inputs, text: &str) -> WhatIf {
        WhatIfChange::read(text)
            .unwrap()
            .estimate_change(inputs, hosts, &estimate_inputs(inputs, hosts))
            .unwrap()
    }

    #[test]
    fn a_shorter_round_trip_fills_the_link() {
        let got = answer(&gigabit(), "rtt=4ms");
        assert_eq!(
            (got.what.as_str(), got.estimate.limit),
            ("rtt=4ms", Limit::Capacity)
        );
        assert_eq!(format!("{:.2}", got.gain.get()), "2.90");
    }

    #[test]
    fn a_window_replaces_a_buffer() {
        let inputs = Inputs {
            buffer: Some(ByteCount::from_kib(64)),
            ..gigabit()
        };
        assert_eq!(
            answer(&inputs, "window=1MiB").estimate,
            answer(&gigabit(), "window=1MiB").estimate
        );
    }

    #[test]
    fn relays_split_the_round_trip_and_only_the_middle_connection_has_loss() {
        // The hosts' windows of 4 MiB fill the link over 1 ms, and between the relays only the link
        // limits.
        let got = answer(&gigabit(), "relay");
        assert_eq!(
            (got.estimate.limit, got.leg),
            (Limit::Capacity, Some(Leg::Middle))
        );
        let mut hosts = test_fixture::default_hosts();
        hosts.sender.available_congestion_controls = vec!["cubic".to_owned()];
        let lossy = Inputs {
            loss: Some(Ratio::new(1e-4)),
            ..gigabit()
        };
        let got = answer_of(&hosts, &lossy, "relay=1ms");
        assert_eq!(
            (got.estimate.limit, got.leg),
            (Limit::Loss, Some(Leg::Middle))
        );
        // The middle connection has 98 of the 100 ms, and windows that limit nothing.
        let middle = answer_of(&hosts, &lossy, "rtt=98ms").estimate.kernel_model;
        assert!(
            got.estimate.kernel_model >= middle
                && got.estimate.kernel_model < middle.scale_by(1.001)
        );
        let small = Inputs {
            window: Some(ByteCount::from_kib(64)),
            ..gigabit()
        };
        let got = answer(&small, "relay=10ms");
        assert_eq!(
            (got.estimate.limit, got.leg),
            (Limit::ReceiveWindow, Some(Leg::Outer))
        );
    }

    #[test]
    fn relays_change_to_bbr_where_the_path_loses_packets_whatever_the_hosts_use() {
        let lossy = Inputs {
            loss: Some(Ratio::new(1e-4)),
            congestion: Some("cubic".to_owned()),
            ..gigabit()
        };
        let hosts = test_fixture::default_hosts();
        assert_eq!(estimate_inputs(&lossy, &hosts).limit, Limit::Loss);
        let got = answer(&lossy, "relay");
        assert_eq!(
            (got.estimate.limit, got.leg),
            (Limit::Capacity, Some(Leg::Middle))
        );
        assert!(
            got.estimate.kernel_model > BitRate::from_mbps(800),
            "{got:?}"
        );
    }

    #[test]
    fn an_invalid_what_if_is_reported_in_one_sentence() {
        let keys = "the keys are bandwidth, rtt, distance, window, buffer, sndbuf, rcvbuf, app-window, pause, loss, mtu, streams, congestion, size and relay";
        for (text, sentence) in [
            ("delay=1ms", format!("there is no key \"delay\"; {keys}")),
            ("faster", format!("\"faster\" is neither KEY=VALUE nor relay; {keys}")),
            ("", format!("\"\" is neither KEY=VALUE nor relay; {keys}")),
            ("rtt=0s", "rtt: a round trip takes some time; write for example 173ms".to_owned()),
            (
                "relay=x",
                "relay: \"x\" is not a time: a number must come first; write for example 173ms, 50us or 10s".to_owned(),
            ),
        ] {
            assert_eq!(WhatIfChange::read(text).unwrap_err().to_string(), sentence);
        }
        let hosts = test_fixture::default_hosts();
        let far = WhatIfChange::read("relay=50ms").unwrap();
        let message = far
            .estimate_change(&gigabit(), &hosts, &estimate_inputs(&gigabit(), &hosts))
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "relay: the round-trip time between a relay and its host is 50 ms, but two of them must be shorter than \
             the path's 100 ms; write less than 50 ms"
        );
    }

    proptest! {
        #[test]
        fn reading_any_text_does_not_panic(text in "\\PC*|[a-z]{3,8}=[0-9]{0,3}[a-zA-Z%]{0,3}") {
            let _ = WhatIfChange::read(&text);
        }
    }
}

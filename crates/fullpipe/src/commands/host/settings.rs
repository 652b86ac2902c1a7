//! Settings of a host, as they are written at the command line.

use crate::commands::prelude::*;
use fullpipe_host::is_network_sysctl;
use fullpipe_record::Change;
use fullpipe_scenario::parse_host_flag;
use fullpipe_units::{SegCount, is_one_line};

pub(super) fn parse_rtt(text: &str) -> Result<Span, String> {
    let rtt: Span = parse_quantity(text)?;
    let possible = rtt > Span::ZERO && rtt <= Span::from_secs(3600);
    possible
        .then_some(rtt)
        .ok_or_else(|| "it must be above 0 and at most an hour".to_owned())
}

pub(super) fn parse_temporary_time(text: &str) -> Result<Span, String> {
    let bounds = Span::from_secs(1)..=Span::from_secs(86_400);
    let sentence = "it must be from one second to a day";
    value_within(parse_duration(text)?, bounds, sentence)
}

/// Reads `SETTING=VALUE`, which may stand for several changes.
pub(super) fn parse_setting(text: &str) -> Result<Vec<Change>, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("it is SETTING=VALUE, as tcp_wmem=64MiB")?;
    if !is_one_line(value) || value.trim().is_empty() {
        return Err("the value must be text in one line".to_owned());
    }
    let parts: Vec<&str> = name.splitn(2, ':').collect();
    match parts.as_slice() {
        ["route", rest] => route_metric(rest, value).map(|change| vec![change]),
        ["offload", rest] => parse_offload(rest, value),
        [kind @ ("qdisc" | "txqueuelen" | "mtu"), device] => {
            device_change(kind, device, value).map(|change| vec![change])
        }
        [name] if name.contains('.') && is_network_sysctl(name) => Ok(vec![Change::Sysctl {
            name: (*name).to_owned(),
            value: value.trim().to_owned(),
        }]),
        [name] if !name.contains('.') => parse_host_flag(text)
            .or_else(|error| of_short_name(name, value).ok_or_else(|| error.to_string())),
        [name] if let Some(changes) = of_short_name(name, value) => Ok(changes),
        _ => Err(format!(
            "\"{name}\" is no setting of the network; `fullpipe host apply --help` lists the kinds"
        )),
    }
}

/// Returns the change of a queue or an MTU.
fn device_change(kind: &str, device: &str, value: &str) -> Result<Change, String> {
    Ok(match kind {
        "qdisc" => Change::Qdisc {
            device: parse_name(device)?,
            kind: parse_name(value)?,
        },
        "txqueuelen" => Change::QueueLength {
            packets: SegCount::new(
                value
                    .parse()
                    .map_err(|_| "a queue's length is a number of packets")?,
            ),
            device: parse_name(device)?,
        },
        _ => Change::Mtu {
            mtu: ByteCount::new(value.parse().map_err(|_| "an MTU is a number of bytes")?),
            device: parse_name(device)?,
        },
    })
}

/// Returns the change of a sysctl that this host has, by the name that `host show` prints.
fn of_short_name(name: &str, value: &str) -> Option<Vec<Change>> {
    let name = ["net.ipv4.", "net."]
        .map(|family| format!("{family}{name}"))
        .into_iter()
        .find(|name| {
            let file = Path::new("/proc/sys").join(name.replace('.', "/"));
            is_network_sysctl(name) && file.exists()
        })?;
    Some(vec![Change::Sysctl {
        name,
        value: value.trim().to_owned(),
    }])
}

fn route_metric(rest: &str, value: &str) -> Result<Change, String> {
    let (destination, metric) = rest
        .rsplit_once(':')
        .ok_or("it is route:NETWORK:METRIC=NUMBER")?;
    let names = fullpipe_sys::NUMERIC_METRICS.map(|(name, _)| name);
    if !names.contains(&metric) {
        return Err(format!("the metrics are {}", names.join(", ")));
    }
    let value = match value {
        "none" => None,
        number => Some(
            number
                .parse()
                .map_err(|_| "the value is a number, or `none`")?,
        ),
    };
    Ok(Change::RouteMetric {
        destination: parse_name(destination)?,
        metric: metric.to_owned(),
        value,
    })
}

/// Reads an offload by the kernel's name or the short name of ethtool.
fn parse_offload(rest: &str, value: &str) -> Result<Vec<Change>, String> {
    let (device, feature) = rest
        .rsplit_once(':')
        .ok_or("it is offload:DEVICE:FEATURE=on")?;
    let on = match value {
        "on" => true,
        "off" => false,
        _ => return Err("it is on or off".to_owned()),
    };
    let features: &[&str] = match feature {
        "tso" => &["tx-tcp-segmentation", "tx-tcp6-segmentation"],
        "gso" => &["tx-generic-segmentation"],
        "gro" => &["rx-gro"],
        "lro" => &["rx-lro"],
        other => &[other],
    };
    features
        .iter()
        .map(|feature| {
            Ok(Change::Offload {
                device: parse_name(device)?,
                feature: parse_name(feature)?,
                on,
            })
        })
        .collect()
}

fn parse_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        Err(format!("\"{text}\" is no name"))
    } else {
        Ok(text.to_owned())
    }
}

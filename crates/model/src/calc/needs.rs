//! The value of each quantity that a target needs.

use crate::distance;
use crate::improvement::WindowConstraint;
use crate::prelude::*;
use fullpipe_record::{Effects, Need, Side, StatedLoad, Value};

use super::QuantitySetting;
use super::case::{COMMON_MTU, HostPair, PredictorCase};
use super::critical::{CriticalValue, least_sufficient, most_sufficient};
use super::sizing::{control_name, lower_window, maximum_for, window_for};
use super::target::{FASTEST, TransferTarget};

/// Values that must all hold: each critical value assumes that the other quantities are ample.
pub(crate) fn joint_needs(
    target: TransferTarget,
    rate: BitRate,
    inputs: &Inputs,
    hosts: &HostPair,
) -> Vec<Need> {
    let mut ample = AmpleInputs {
        target,
        inputs: ample_load(inputs),
        hosts: ample_hosts(hosts),
    };
    let bandwidth = ample.bandwidth_need(inputs);
    ample.inputs = with_enough_bandwidth(ample.inputs, bandwidth.as_ref());
    let window = window_need(rate, &PredictorCase::from_inputs(inputs).prediction(hosts));
    let own = [
        Quantity::Buffer,
        Quantity::Sndbuf,
        Quantity::Rcvbuf,
        Quantity::AppWindow,
    ]
    .map(|quantity| ample.own_need(quantity, inputs));
    let StatedLoad { sndbuf, rcvbuf, .. } = inputs.stated;
    let is_fixed = [inputs.window, inputs.buffer, sndbuf, rcvbuf];
    let buffers = if is_fixed.iter().any(Option::is_some) {
        Vec::new()
    } else {
        [
            (ample.tcp_wmem(hosts), WindowConstraint::SendMaximum),
            (ample.tcp_rmem(hosts), WindowConstraint::ReceiveMaximum),
        ]
        .map(|(need, constraint)| {
            Some(with_room(
                need?,
                maximum_for(constraint, rate, inputs, hosts),
            ))
        })
        .to_vec()
    };
    [bandwidth, window]
        .into_iter()
        .chain(buffers)
        .chain(own)
        .chain([ample.loss_need(inputs)])
        .flatten()
        .collect()
}

/// Returns a buffer's need with the size to set where the present one is too small: a buffer that
/// just holds what is in flight leaves no room for losses and for a writer that wakes late.
fn with_room(need: Need, recommended: Option<ByteCount>) -> Need {
    match (&need.value, recommended) {
        (Some(Value::Bytes(least)), Some(size)) if !need.met => Need {
            value: Some(Value::Bytes(size.max(*least))),
            ..need
        },
        _ => need,
    }
}

/// No less bandwidth than is needed.
fn with_enough_bandwidth(inputs: Inputs, need: Option<&Need>) -> Inputs {
    let Some(Value::Rate(needed)) = need.and_then(|need| need.value.as_ref()) else {
        return inputs;
    };
    Inputs {
        bandwidth: inputs.bandwidth.map(|rate| rate.max(*needed)),
        ..inputs
    }
}

/// Values of which each is enough alone, with the other quantities as they are.
pub(crate) fn single_needs(target: TransferTarget, inputs: &Inputs, hosts: &HostPair) -> Vec<Need> {
    let as_is = AsIs {
        target,
        inputs,
        hosts,
    };
    let rtt = as_is.rtt_need();
    let distance = rtt.as_ref().and_then(distance_need);
    let rest = [
        as_is.streams_need(),
        as_is.mtu_need(),
        as_is.congestion_need(),
        as_is.size_need(),
    ];
    [rtt, distance].into_iter().chain(rest).flatten().collect()
}

/// The distance that fibre spans in the round trip of `rtt`, at best.
fn distance_need(rtt: &Need) -> Option<Need> {
    let Some(Value::Time(longest)) = rtt.value else {
        return None;
    };
    Some(Need {
        quantity: Quantity::Distance,
        value: Some(Value::Distance(distance::max_distance(longest))),
        now: None,
        ..rtt.clone()
    })
}

/// `window` in its row: what the hosts have in flight now is the lower of what receiver and sender
/// allow.
fn window_need(rate: BitRate, prediction: &Prediction) -> Option<Need> {
    let now = lower_window(prediction)?;
    let (window, wanted, met) = (
        now.window?,
        window_for(rate, prediction)?,
        now.kernel_model >= rate,
    );
    // BBR takes twice what fills the link, and less is enough.
    let enough = window.scale_by(rate.as_f64() / now.kernel_model.as_f64());
    let value = if met && wanted > window {
        enough
    } else {
        wanted
    };
    let [value, now] = [value, window].map(Value::Bytes);
    Some(Need {
        quantity: Quantity::Window,
        side: Side::AtLeast,
        value: Some(value),
        now: Some(now),
        met,
    })
}

/// A load and hosts that limit nothing but by the path's rate, each quantity in turn put in.
struct AmpleInputs {
    target: TransferTarget,
    inputs: Inputs,
    hosts: HostPair,
}

impl AmpleInputs {
    fn tcp_wmem(&self, hosts: &HostPair) -> Option<Need> {
        let now = hosts.sender.tcp_wmem.max;
        least_bytes(Quantity::TcpWmem, now, |max| {
            let mut hosts = self.hosts.clone();
            hosts.sender.tcp_wmem = hosts.sender.tcp_wmem.with_max(max);
            self.target.is_met(&self.inputs, &hosts)
        })
    }

    fn tcp_rmem(&self, hosts: &HostPair) -> Option<Need> {
        let as_it_is = HostPair {
            receiver: hosts.receiver.clone(),
            ..self.hosts.clone()
        };
        let met = self.target.is_met(&self.inputs, &as_it_is);
        let now = hosts.receiver.tcp_rmem.max;
        let need = least_bytes(Quantity::TcpRmem, now, |max| {
            let mut hosts = self.hosts.clone();
            hosts.receiver.tcp_rmem = hosts.receiver.tcp_rmem.with_max(max);
            self.target.is_met(&self.inputs, &hosts)
        });
        need.map(|need| Need { met, ..need })
    }

    /// The row of a size that the program chose, where it chose one.
    fn own_need(&self, quantity: Quantity, inputs: &Inputs) -> Option<Need> {
        let now = match QuantitySetting::from_inputs(quantity, inputs)? {
            QuantitySetting::AppWindow(window) => window.bytes,
            setting => ByteCount::from_f64(setting.as_number()?),
        };
        least_bytes(quantity, now, |bytes| {
            QuantitySetting::of_number(quantity, bytes.as_f64()).is_some_and(|setting| {
                self.met_with(|ample| {
                    ample.stated.pause = inputs.stated.pause;
                    setting.apply_to(ample);
                })
            })
        })
    }

    /// Floating-point numbers that are not negative are in order as their bits are.
    fn loss_need(&self, inputs: &Inputs) -> Option<Need> {
        let value = most_sufficient(0, 1_f64.to_bits(), |bits| {
            self.met_with(|inputs| inputs.loss = Some(Ratio::new(f64::from_bits(bits))))
        });
        need_row(
            Quantity::Loss,
            Side::AtMost,
            value.map(|bits| Value::Share(Ratio::new(f64::from_bits(bits)))),
            inputs.loss.map(Value::Share),
            self.met_with(|ample| ample.loss = Some(inputs.loss.unwrap_or(Ratio::ZERO))),
        )
    }

    /// Only where the target is more than to fill it.
    fn bandwidth_need(&self, inputs: &Inputs) -> Option<Need> {
        if self.target == TransferTarget::Fill {
            return None;
        }
        let value = least_sufficient(1, FASTEST.bps(), |bps| {
            self.met_with(|inputs| inputs.bandwidth = Some(BitRate::from_bps(bps)))
        });
        let met = inputs
            .bandwidth
            .is_none_or(|rate| self.met_with(|inputs| inputs.bandwidth = Some(rate)));
        need_row(
            Quantity::Bandwidth,
            Side::AtLeast,
            value.map(|bps| Value::Rate(BitRate::from_bps(bps))),
            inputs.bandwidth.map(Value::Rate),
            met,
        )
    }

    fn met_with(&self, change: impl FnOnce(&mut Inputs)) -> bool {
        self.target.is_met_with(&self.inputs, &self.hosts, change)
    }
}

/// The load and the hosts as they are, one quantity in turn made another.
struct AsIs<'a> {
    target: TransferTarget,
    inputs: &'a Inputs,
    hosts: &'a HostPair,
}

impl AsIs<'_> {
    fn met_with(&self, change: impl FnOnce(&mut Inputs)) -> bool {
        self.target.is_met_with(self.inputs, self.hosts, change)
    }

    fn is_met(&self) -> bool {
        self.target.is_met(self.inputs, self.hosts)
    }

    fn rtt_need(&self) -> Option<Need> {
        let value = most_sufficient(1, MAX_DURATION.as_nanos(), |nanos| {
            self.met_with(|inputs| inputs.rtt = Some(Span::from_nanos(nanos)))
        });
        let now = self.inputs.rtt.map(Value::Time);
        need_row(
            Quantity::Rtt,
            Side::AtMost,
            value.map(|nanos| Value::Time(Span::from_nanos(nanos))),
            now,
            self.is_met(),
        )
    }

    fn streams_need(&self) -> Option<Need> {
        let now = self.inputs.streams.unwrap_or(1);
        let value = least_sufficient(1, MAX_STREAMS.max(now).into(), |streams| {
            self.met_with(|inputs| inputs.streams = Some(streams as u16))
        });
        need_row(
            Quantity::Streams,
            Side::AtLeast,
            value.map(|streams| Value::Count(streams as u16)),
            Some(Value::Count(now)),
            self.is_met(),
        )
    }

    /// Up to jumbo frames, as no network carries more.
    fn mtu_need(&self) -> Option<Need> {
        let now = self.inputs.mtu.unwrap_or(COMMON_MTU);
        let value = least_sufficient(MIN_MTU.get(), JUMBO.max(now).get(), |bytes| {
            self.met_with(|inputs| inputs.mtu = Some(ByteCount::new(bytes)))
        });
        need_row(
            Quantity::Mtu,
            Side::AtLeast,
            value.map(|bytes| Value::Bytes(ByteCount::new(bytes))),
            Some(Value::Bytes(now)),
            self.is_met(),
        )
    }

    fn congestion_need(&self) -> Option<Need> {
        let names: Vec<String> = CONTROLS
            .map(str::to_owned)
            .into_iter()
            .filter(|name| self.met_with(|inputs| inputs.congestion = Some(name.clone())))
            .collect();
        let now = control_name(self.inputs, &self.hosts.sender).to_owned();
        let value = match names.len() {
            0 => CriticalValue::Never,
            all if all == CONTROLS.len() => CriticalValue::Always,
            _ => CriticalValue::At(Value::Names(names)),
        };
        need_row(
            Quantity::Congestion,
            Side::OneOf,
            value,
            Some(Value::Names(vec![now])),
            self.is_met(),
        )
    }

    /// Only where there is a time that it may take.
    fn size_need(&self) -> Option<Need> {
        let TransferTarget::Within(size, within) = self.target else {
            return None;
        };
        let case = PredictorCase::from_inputs(self.inputs);
        let steady = case.estimate(self.hosts).kernel_model;
        let value = most_sufficient(1, MAX_SIZE, |bytes| {
            case.transfer_time(ByteCount::new(bytes), steady, self.hosts) <= within
        });
        need_row(
            Quantity::Size,
            Side::AtMost,
            value.map(|bytes| Value::Bytes(ByteCount::new(bytes))),
            Some(Value::Bytes(size)),
            self.is_met(),
        )
    }
}

/// The row of a buffer, of which more is never worse.
fn least_bytes(
    quantity: Quantity,
    now: ByteCount,
    will_do: impl Fn(ByteCount) -> bool,
) -> Option<Need> {
    let value = least_sufficient(1, AMPLE.get(), |bytes| will_do(ByteCount::new(bytes)));
    need_row(
        quantity,
        Side::AtLeast,
        value.map(|bytes| Value::Bytes(ByteCount::new(bytes))),
        Some(Value::Bytes(now)),
        will_do(now),
    )
}

/// A row, unless every value will do.
fn need_row(
    quantity: Quantity,
    side: Side,
    value: CriticalValue<Value>,
    now: Option<Value>,
    met: bool,
) -> Option<Need> {
    let value = match value {
        CriticalValue::Always => return None,
        CriticalValue::Never => None,
        CriticalValue::At(value) => Some(value),
    };
    Some(Need {
        quantity,
        side,
        value,
        now,
        met,
    })
}

/// The load without what limits it: loss, and a window or buffer of its own.
pub(crate) fn ample_load(inputs: &Inputs) -> Inputs {
    Inputs {
        loss: None,
        window: None,
        buffer: None,
        stated: StatedLoad::default(),
        pacing: None,
        effects: Effects::default(),
        ..inputs.clone()
    }
}

/// Hosts like these whose buffers never limit, but for what a window of TCP can say.
pub(crate) fn ample_hosts(hosts: &HostPair) -> HostPair {
    let mut ample = hosts.clone();
    for host in [&mut ample.sender, &mut ample.receiver] {
        host.window_scaling = true;
        host.moderate_rcvbuf = true;
        host.tcp_rmem.max = AMPLE;
        host.tcp_wmem.max = AMPLE;
        host.rmem_max = Some(AMPLE);
        host.wmem_max = Some(AMPLE);
    }
    ample
}

/// A buffer that holds the largest window of TCP, 1 GiB, whatever share of it is advertised.
const AMPLE: ByteCount = ByteCount::from_mib(1 << 20);
/// Longest round trip of a search: an hour, beyond Mars.
pub(crate) const MAX_DURATION: Span = Span::from_secs(3600);
/// The most streams that are advised: as many as one test may have.
pub(crate) const MAX_STREAMS: u16 = 128;
/// Packet size that every IPv4 host accepts (RFC 791 §3.1).
const MIN_MTU: ByteCount = ByteCount::new(576);
const JUMBO: ByteCount = ByteCount::new(9000);
/// Largest size of a search: 4 EiB.
const MAX_SIZE: u64 = 1 << 62;
/// Congestion controls that the model has a formula for.
const CONTROLS: [&str; 4] = ["cubic", "reno", "highspeed", "bbr"];

#[cfg(test)]
mod tests;

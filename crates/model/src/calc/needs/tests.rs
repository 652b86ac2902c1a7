use super::*;
use crate::test_fixture;
use fullpipe_record::Limit;
use proptest::prelude::*;

fn gigabit() -> Inputs {
    Inputs {
        bandwidth: Some(BitRate::from_mbps(1000)),
        rtt: Some(Span::from_millis(100)),
        ..Inputs::default()
    }
}

fn shown(needs: &[Need]) -> Vec<String> {
    needs
        .iter()
        .map(|need| {
            let value = match &need.value {
                None => "none".to_owned(),
                Some(Value::Rate(rate)) => rate.to_string(),
                Some(Value::Time(time)) => time.to_string(),
                Some(Value::Distance(distance)) => distance.to_string(),
                Some(Value::Bytes(bytes)) => bytes.to_string(),
                Some(Value::Share(share)) => share.to_string(),
                Some(Value::Count(count)) => count.to_string(),
                Some(Value::Names(names)) => names.join(" "),
            };
            format!(
                "{} {value}{}",
                need.quantity.name(),
                if need.met { "" } else { " (missed)" }
            )
        })
        .collect()
}

#[test]
fn no_size_that_fills_a_link_under_bbr_is_too_small() {
    let hosts = test_fixture::default_hosts();
    for (mbps, millis) in [(1000, 20), (100, 173)] {
        let (bandwidth, rtt) = (
            Some(BitRate::from_mbps(mbps)),
            Some(Span::from_millis(millis)),
        );
        let inputs = Inputs {
            bandwidth,
            rtt,
            congestion: Some("bbr".to_owned()),
            ..Inputs::default()
        };
        let rate = TransferTarget::Fill.needed_rate(&inputs, &hosts).unwrap();
        for need in joint_needs(TransferTarget::Fill, rate, &inputs, &hosts) {
            let sizes = [&need.now, &need.value].map(|value| match value {
                Some(Value::Bytes(size)) => Some(*size),
                _ => None,
            });
            assert!(
                need.met && need.value.is_some() && sizes[0] >= sizes[1],
                "{need:?}"
            );
        }
    }
}

#[test]
fn a_gigabit_over_a_tenth_of_a_second_takes_a_larger_send_buffer_alone() {
    let (inputs, hosts) = (gigabit(), test_fixture::default_hosts());
    let rate = TransferTarget::Fill.needed_rate(&inputs, &hosts).unwrap();
    assert_eq!(
        shown(&joint_needs(TransferTarget::Fill, rate, &inputs, &hosts)[..3]),
        [
            "window 11.31 MiB (missed)",
            "tcp-wmem 24 MiB (missed)",
            "tcp-rmem 18.1 MiB"
        ]
    );
    assert_eq!(
        shown(&single_needs(TransferTarget::Fill, &inputs, &hosts)),
        [
            "rtt 33.75 ms (missed)",
            "distance 3447 km (missed)",
            "streams 3 (missed)",
            "mtu none (missed)",
            "congestion none (missed)"
        ]
    );
}

#[test]
fn a_rate_beyond_the_bandwidth_takes_more_of_it() {
    let inputs = Inputs {
        rate: Some(BitRate::from_mbps(2000)),
        ..gigabit()
    };
    let missed = joint_needs(
        TransferTarget::Rate(BitRate::from_mbps(2000)),
        BitRate::from_mbps(2000),
        &inputs,
        &test_fixture::default_hosts(),
    );
    // 2 Gbit/s ÷ 1448 × 1538.
    assert_eq!(shown(&missed)[0], "bandwidth 2.124 Gbit/s (missed)");
}

#[test]
fn a_size_that_slow_start_cannot_carry_in_time_has_no_rate() {
    let inputs = Inputs {
        size: Some(ByteCount::from_mib(100)),
        time: Some(Span::from_millis(500)),
        ..gigabit()
    };
    assert_eq!(
        TransferTarget::from_inputs(&inputs)
            .unwrap()
            .needed_rate(&inputs, &test_fixture::default_hosts()),
        None
    );
}

/// `inputs` or `hosts` with the quantity of `need` at this value.
fn with(
    inputs: &Inputs,
    hosts: &HostPair,
    quantity: Quantity,
    value: &Value,
) -> (Inputs, HostPair) {
    let (mut inputs, mut hosts) = (inputs.clone(), hosts.clone());
    match (quantity, value.clone()) {
        (Quantity::TcpWmem, Value::Bytes(max)) => {
            hosts.sender.tcp_wmem = hosts.sender.tcp_wmem.with_max(max);
        }
        (Quantity::TcpRmem, Value::Bytes(max)) => {
            hosts.receiver.tcp_rmem = hosts.receiver.tcp_rmem.with_max(max);
        }
        (Quantity::Buffer, Value::Bytes(request)) => inputs.buffer = Some(request),
        (Quantity::Loss, Value::Share(loss)) => inputs.loss = Some(loss),
        (Quantity::Bandwidth, Value::Rate(rate)) => inputs.bandwidth = Some(rate),
        (Quantity::Rtt, Value::Time(rtt)) => inputs.rtt = Some(rtt),
        (Quantity::Mtu, Value::Bytes(mtu)) => inputs.mtu = Some(mtu),
        (Quantity::Streams, Value::Count(streams)) => inputs.streams = Some(streams),
        (quantity, value) => panic!("{quantity:?} is no {value:?}"),
    }
    (inputs, hosts)
}

/// The nearest value on the side where the target is missed.
fn beyond(need: &Need) -> Value {
    let step = |number: u64| {
        if need.side == Side::AtLeast {
            number - 1
        } else {
            number + 1
        }
    };
    match need.value.clone().unwrap() {
        Value::Rate(rate) => Value::Rate(BitRate::from_bps(step(rate.bps()))),
        Value::Time(time) => Value::Time(Span::from_nanos(step(time.as_nanos()))),
        Value::Bytes(bytes) => Value::Bytes(ByteCount::new(step(bytes.get()))),
        Value::Share(share) => {
            Value::Share(Ratio::new(f64::from_bits(step(share.get().to_bits()))))
        }
        Value::Count(count) => Value::Count(step(count.into()) as u16),
        other @ (Value::Distance(_) | Value::Names(_)) => other,
    }
}

fn any_given() -> impl Strategy<Value = Inputs> {
    let path = (
        1_000_000_u64..100_000_000_000,
        10_000_u64..1_000_000_000,
        prop::option::of(1e-9_f64..0.05),
    );
    let load = (
        prop::option::of(1_000_u64..100_000_000),
        1_u16..20,
        0..CONTROLS.len(),
        576_u64..9000,
    );
    let wanted = (
        prop::option::of(100_000_u64..50_000_000_000),
        prop::option::of((1_u64..1 << 40, 1_u64..1 << 40)),
    );
    (path, load, wanted).prop_map(
        |((rate, rtt, loss), (buffer, streams, control, mtu), (wanted, within))| Inputs {
            bandwidth: Some(BitRate::from_bps(rate)),
            rtt: Some(Span::from_nanos(rtt)),
            buffer: buffer.map(ByteCount::new),
            loss: loss.map(Ratio::new),
            mtu: Some(ByteCount::new(mtu)),
            streams: Some(streams),
            congestion: Some(CONTROLS[control].to_owned()),
            rate: wanted.map(BitRate::from_bps),
            size: within.map(|(size, _)| ByteCount::new(size)),
            time: within.map(|(_, time)| Span::from_nanos(time)),
            ..Inputs::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_a_critical_value_the_prediction_meets_the_target_and_just_beyond_it_does_not(inputs in any_given()) {
        let hosts = test_fixture::default_hosts();
        let target = TransferTarget::from_inputs(&inputs).unwrap();
        let Some(rate) = target.needed_rate(&inputs, &hosts) else { return Ok(()) };
        let needed = joint_needs(target, rate, &inputs, &hosts);
        let bandwidth = needed.iter().find(|need| need.quantity == Quantity::Bandwidth);
        let ample = (with_enough_bandwidth(ample_load(&inputs), bandwidth), ample_hosts(&hosts));
        let as_is = (inputs.clone(), hosts.clone());
        let needed = needed.into_iter().map(|need| (need, &ample));
        let alone = single_needs(target, &inputs, &hosts).into_iter().map(|need| (need, &as_is));
        for (need, (inputs, hosts)) in needed.chain(alone) {
            let skipped = {
                use Quantity::{Congestion, Distance, Size, Window};
                matches!(need.quantity, Window | Distance | Congestion | Size)
            };
            let Some(value) = need.value.as_ref().filter(|_| !skipped) else { continue };
            let (there, on) = with(inputs, hosts, need.quantity, value);
            prop_assert!(target.is_met(&there, &on), "{need:?}");
            // A buffer that is missed has room for more than the rate takes.
            if !need.met && matches!(need.quantity, Quantity::TcpWmem | Quantity::TcpRmem) {
                continue;
            }
            let (past, on) = with(inputs, hosts, need.quantity, &beyond(&need));
            prop_assert!(!target.is_met(&past, &on), "{need:?}");
        }
    }

    #[test]
    fn the_target_is_met_where_all_needs_are(inputs in any_given()) {
        let hosts = test_fixture::default_hosts();
        let target = TransferTarget::from_inputs(&inputs).unwrap();
        let Some(rate) = target.needed_rate(&inputs, &hosts) else { return Ok(()) };
        let needs = joint_needs(target, rate, &inputs, &hosts);
        let (all, met) = (needs.iter().all(|need| need.met), target.is_met(&inputs, &hosts));
        // Where it is met each need is; the other way round losses may cut the peaks of a
        // window that just fits.
        prop_assert!(all || !met, "{needs:?}");
        prop_assert!(met || !all || inputs.loss.is_some(), "{needs:?}");
    }

    #[test]
    fn a_window_of_the_size_needed_carries_the_rate(inputs in any_given()) {
        let hosts = test_fixture::default_hosts();
        let Some(rate) = TransferTarget::from_inputs(&inputs).unwrap().needed_rate(&inputs, &hosts) else { return Ok(()) };
        let prediction = PredictorCase::from_inputs(&inputs).prediction(&hosts);
        // More than the payload that the bandwidth permits is carried by no window.
        prop_assume!(prediction.find_ceiling(Limit::Capacity).is_none_or(|most| rate <= most.kernel_model));
        let Some(window) = window_for(rate, &prediction) else { return Ok(()) };
        // What is in flight is whole segments, and one of a receiver's is still in its buffer.
        let window = window + prediction.mss * 2;
        prop_assume!(window > prediction.mss * 4 && window < ByteCount::from_mib(512));
        let with = Inputs { window: Some(window), buffer: None, ..inputs };
        let prediction = PredictorCase::from_inputs(&with).prediction(&ample_hosts(&hosts));
        let carried = prediction.find_ceiling(Limit::ReceiveWindow).unwrap().kernel_model;
        prop_assert!(carried.scale_by(1.000_1) >= rate, "{carried}, not {rate}");
    }
}

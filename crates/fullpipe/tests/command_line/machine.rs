//! Reports of both ends on their processors and their devices.

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, require, wait_for_listener};
use serde_json::Value;
use std::process::Command;

#[test]
fn both_ends_report_their_processor_time() {
    let port = free_port().to_string();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    for transport in [&[][..], &["-u", "-b", "0"]] {
        let command = [
            &["measure", "127.0.0.1", "-p", &port, "-t", "1.5", "--json"],
            transport,
        ]
        .concat();
        let measurement = document(&run(&mut fullpipe(&command), 60))["measurement"].clone();
        for end in ["local", "remote"] {
            judge_processors(&measurement[end]);
            assert_eq!(measurement[end]["device"]["name"], "lo", "{end}");
            assert!(
                measurement[end]["device"]["mtu"]
                    .as_u64()
                    .is_some_and(|mtu| mtu >= 1_500),
                "{end}"
            );
        }
    }
}

/// Asserts that there are several samples, that no figure falls, and that the last one agrees with
/// the processor time that the end reports for the whole test.
fn judge_processors(end: &Value) {
    let samples = end["processors"].as_array().unwrap();
    assert!(
        (3..=20).contains(&samples.len()),
        "{} samples in a second and a half",
        samples.len()
    );
    for name in ["at", "user", "system", "waited"] {
        let series: Vec<f64> = samples
            .iter()
            .map(|sample| seconds(&sample[name]))
            .collect();
        assert!(
            series.windows(2).all(|pair| pair[1] >= pair[0]),
            "{name}: {series:?}"
        );
    }
    let last = &samples[samples.len() - 1];
    let at = seconds(&last["at"]);
    let busy = (seconds(&last["user"]) + seconds(&last["system"])) / at;
    let said = end["cpu"]["user"].as_f64().unwrap() + end["cpu"]["system"].as_f64().unwrap();
    assert!(
        (busy - said).abs() < 0.1 + said / 5.0,
        "{busy} processors in the last sample, {said} in all"
    );
    let cores = last["cores"].as_array().unwrap();
    let counted = |core: &Value| {
        ["user", "system", "interrupts", "stolen", "idle"].map(|name| seconds(&core[name]))
    };
    // What a processor did fills the time, to a few ticks; one without ticks is counted late.
    for core in cores {
        let sum: f64 = counted(core).iter().sum();
        assert!(
            sum > at * 0.5 && sum < at * 1.3 + 0.1,
            "{sum} s of {at} s: {core}"
        );
    }
}

/// A span, which is a number of seconds.
fn seconds(span: &Value) -> f64 {
    span.as_f64().unwrap_or_else(|| panic!("{span} is no time"))
}

#[test]
fn nothing_is_known_of_the_machine_of_an_iperf3_server() {
    require!(Iperf3);
    let port = free_port().to_string();
    let _server = Running::start(Command::new("iperf3").args(["-s", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let command = [
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "0.5",
        "-b",
        "10M",
        "--json",
    ];
    let measurement = document(&run(&mut fullpipe(&command), 60))["measurement"].clone();
    assert!(
        measurement["local"]["processors"]
            .as_array()
            .is_some_and(|samples| samples.len() >= 2)
    );
    assert_eq!(
        (
            &measurement["remote"]["processors"],
            &measurement["remote"]["device"]
        ),
        (&Value::Null, &Value::Null)
    );
}

/// Two namespaces with a pair of devices between them; the one at this end holds packets to 40
/// Mbit/s. Reno fills its queue until packets are dropped; CUBIC may leave slow start before that.
const NARROW: &str = r#"
    set -e
    ip link set lo up
    unshare --net sleep 60 & far=$!
    until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    there() { nsenter --target $far --net "$@"; }
    ip link add near type veth peer name far netns $far
    ip address add 10.9.0.1/24 dev near
    ip link set near up
    there ip address add 10.9.0.2/24 dev far
    there ip link set far up
    tc qdisc add dev near root tbf rate 40mbit burst 32kb limit 40kb
    there "$0" serve -p 5201 > /dev/null &
    until there grep -q :1451 /proc/net/tcp /proc/net/tcp6; do sleep 0.01; done
    exec "$0" measure 10.9.0.2 -t 1.5 -C reno --json
"#;

#[test]
fn a_queueing_discipline_that_holds_packets_back_is_seen_with_its_rate() {
    require!(Root, Unshare, Tc);
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        NARROW,
    ]);
    command.arg(env!("CARGO_BIN_EXE_fullpipe"));
    let measurement = document(&run(&mut command, 60))["measurement"].clone();
    let (near, far) = (
        &measurement["local"]["device"],
        &measurement["remote"]["device"],
    );
    assert_eq!(
        (&near["name"], &near["mtu"], &far["name"]),
        (&"near".into(), &1_500.into(), &"far".into())
    );
    let queue = &near["qdiscs"][0];
    assert_eq!(
        (&queue["kind"], &queue["rate"]),
        (&"tbf".into(), &40_000_000.into()),
        "{near}"
    );
    let count = |name: &str| queue[name].as_u64().unwrap();
    assert!(count("overlimits") > 100 && count("dropped") > 0, "{queue}");
    assert!((1_500..=40_960).contains(&count("backlog")), "{queue}");
    assert_eq!(far["qdiscs"][0]["rate"], Value::Null, "{far}");
}

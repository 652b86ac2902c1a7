//! A load that grows in steps, over loopback.

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, sentence, wait_for_listener};
use serde_json::Value;

fn ramp(arguments: &[&str]) -> Value {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    let mut command = fullpipe(&[
        "measure",
        "127.0.0.1",
        "--json",
        "-t",
        "0.5",
        "-p",
        &port.to_string(),
    ]);
    let output = run(command.args(arguments), 60);
    drop(server);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    document(&output)["ramp"].clone()
}

/// Offered and carried, in Mbit/s.
fn steps(ramp: &Value) -> Vec<(f64, f64)> {
    let megabits = |value: &Value| value.as_f64().unwrap() / 1e6;
    let step = |step: &Value| (megabits(&step["offered"]), megabits(&step["carried"]));
    ramp["steps"].as_array().unwrap().iter().map(step).collect()
}

#[test]
fn each_step_carries_no_more_than_it_offers() {
    for transport in [&[][..], &["-u"]] {
        let ramp = ramp(&[&["--ramp", "2M..6M/3", "-P", "2"], transport].concat());
        let steps = steps(&ramp);
        assert_eq!(
            steps.iter().map(|step| step.0).collect::<Vec<_>>(),
            [2.0, 4.0, 6.0]
        );
        // A block or two are much of half a second at these rates; a machine that stands still
        // sends less.
        assert!(
            steps
                .iter()
                .all(|(offered, carried)| *carried > 0.0 && carried / offered < 1.2),
            "{steps:?}"
        );
        assert!(
            ramp["steps"][2]["rtt"]["median"]
                .as_f64()
                .is_some_and(|median| median > 0.0),
            "{ramp}"
        );
        assert!(ramp["steps"][2]["loss"].is_number());
    }
}

#[test]
fn shares_are_of_the_bandwidth_that_was_given() {
    let ramp = ramp(&["--ramp", "50%..100%/2", "--bandwidth", "8M"]);
    assert_eq!(
        (&ramp["full"], ramp["steps"][0]["offered"].as_u64()),
        (&8_000_000.into(), Some(4_000_000))
    );
}

#[test]
fn a_harmful_ramp_needs_consent() {
    // The sentence comes before any name is resolved: the host does not exist.
    let arguments = ["measure", "no-such-host.invalid", "-u", "--ramp", "5M..50M"];
    assert!(sentence(&run(&mut fullpipe(&arguments), 10), 2).contains("--yes"));
}

#[test]
fn a_step_that_breaks_off_is_the_last_and_says_so() {
    let port = free_port().to_string();
    // More than the first step sends in its two seconds, and less than the second.
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port, "--max-bytes", "2M"]));
    wait_for_listener(port.parse().unwrap());
    let arguments = [
        "measure",
        "127.0.0.1",
        "--json",
        "-t",
        "2",
        "-p",
        &port,
        "--ramp",
        "2M..80M/3",
    ];
    let output = run(&mut fullpipe(&arguments), 60);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document = document(&output);
    let steps = document["ramp"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{document}");
    assert!(
        steps[0]["broken_off"].is_null()
            && steps[0]["carried"].as_u64().is_some_and(|rate| rate > 0)
    );
    let why = steps[1]["broken_off"].as_str().unwrap();
    assert_eq!(document["error"]["message"], why, "{document}");
}

//! A load that grows in steps, over loopback.

mod common;

use common::{fullpipe, run};
use fullpipe_testkit::{Running, document, free_port, sentence, wait_for_listener};
use serde_json::Value;

fn ramp(arguments: &[&str]) -> Value {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    let mut command = fullpipe(&["measure", "127.0.0.1", "--json", "-t", "0.5", "-p", &port.to_string()]);
    let output = run(command.args(arguments), 60);
    drop(server);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
        assert_eq!(steps.iter().map(|step| step.0).collect::<Vec<_>>(), [2.0, 4.0, 6.0]);
        // A block or two are much of half a second at these rates; a machine that stands still sends less.
        assert!(steps.iter().all(|(offered, carried)| *carried > 0.0 && carried / offered < 1.2), "{steps:?}");
        assert!(ramp["steps"][2]["rtt"]["median"].as_f64().is_some_and(|median| median > 0.0), "{ramp}");
        assert!(ramp["steps"][2]["loss"].is_number());
    }
}

#[test]
fn shares_are_of_the_bandwidth_that_was_given() {
    let ramp = ramp(&["--ramp", "50%..100%/2", "--bandwidth", "8M"]);
    assert_eq!((&ramp["full"], ramp["steps"][0]["offered"].as_u64()), (&8_000_000.into(), Some(4_000_000)));
}

#[test]
fn a_harmful_ramp_needs_consent() {
    // Nobody is asked anything: the host does not exist, and is not looked for.
    let arguments = ["measure", "no-such-host.invalid", "-u", "--ramp", "5M..50M"];
    assert!(sentence(&run(&mut fullpipe(&arguments), 10), 2).contains("--yes"));
}

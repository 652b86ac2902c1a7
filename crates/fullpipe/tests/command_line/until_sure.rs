//! `--until-sure`: a test ends once its result is sure, at whatever server.

use std::process::Command;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Running, document, free_port, load_slot, require, valid_within, wait_for_listener,
};
use serde_json::Value;

/// The most that a test may take, in seconds; and what the program may take in addition.
const MOST: u64 = 30;
const GRACE: u64 = 15;

/// A rate that any machine keeps.
const RATE: f64 = 20e6;

/// Starts a server on a port of its own.
fn server(command: &mut Command) -> (Running, String) {
    let port = free_port().to_string();
    let running = Running::start(command.args(["-p", &port]));
    wait_for_listener(port.parse().unwrap());
    (running, port)
}

/// Returns the document of a test that ended early and had a steady rate in it: on a machine that is
/// too busy for one, a test may have none, and then it says nothing of this.
fn until_sure(command: &str, port: &str, arguments: &[&str]) -> Value {
    let (most, rate) = (MOST.to_string(), RATE.to_string());
    valid_within(3, || {
        let mut command = fullpipe(&[command, "127.0.0.1", "--json", "--until-sure", "-t", &most]);
        command.args(["-p", port, "-b", &rate]).args(arguments);
        let output = run(&mut command, MOST + GRACE);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let document = document(&output);
        let measurement = &document["measurement"];
        let is_steady = !measurement["summary"]["steady"].is_null()
            && !measurement["until_sure"]["rate"].is_null();
        let broken = (!is_steady).then(|| format!("no steady rate: {}", measurement["until_sure"]));
        (document, broken.into_iter().collect())
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Asserts that a test ended early, and that its figures are those of its short time.
fn assert_ended_sure(measurement: &Value, streams: f64) {
    let ended = &measurement["until_sure"];
    assert_eq!(ended["ended_by"], "sure", "{ended}");
    assert_eq!(measurement["interrupted"], false);
    let [elapsed, saved] = ["elapsed", "saved_time"].map(|key| number(&ended[key]));
    assert!(elapsed >= 1.0 && elapsed < MOST as f64 / 2.0, "{ended}");
    assert!((elapsed + saved - MOST as f64).abs() < 0.5, "{ended}");
    let rate = number(&measurement["summary"]["steady"]["rate"]);
    assert!((rate / (RATE * streams) - 1.0).abs() < 0.05, "{rate}");
    let [low, high] = [0, 1].map(|index| number(&ended["rate"][index]));
    assert!(low <= rate && rate <= high, "{rate}: {ended}");
    assert_eq!(ended["passed"], measurement["summary"]["received"]);
}

#[test]
fn a_test_at_either_server_ends_when_its_result_is_sure_and_the_server_takes_the_next() {
    require!(Iperf3);
    let _slot = load_slot();
    let (own, other) = (
        server(&mut fullpipe(&["serve"])),
        server(Command::new("iperf3").arg("-s")),
    );
    let loads: [(&[&str], f64); 4] = [
        (&[], 1.0),
        (&["-R"], 1.0),
        (&["-P", "3"], 3.0),
        (&["--bidir"], 1.0),
    ];
    for (_, port) in [&own, &other] {
        for (arguments, streams) in loads {
            let measured = until_sure("measure", port, arguments);
            assert_ended_sure(&measured["measurement"], streams);
        }
    }
    let diagnosed = until_sure("diagnose", &other.1, &[]);
    assert_ended_sure(&diagnosed["measurement"], 1.0);
    let verdict = &diagnosed["diagnosis"]["transfers"][0]["verdict"];
    assert_eq!(verdict["kind"], "sender-application", "{verdict}");
}

#[test]
fn a_test_that_cannot_be_so_sure_takes_its_time() {
    let _slot = load_slot();
    let (_server, port) = server(&mut fullpipe(&["serve"]));
    let mut command = fullpipe(&["measure", "127.0.0.1", "--json", "-p", &port, "-b", "20M"]);
    let output = run(command.args(["--until-sure=0.99,1%", "-t", "3"]), 3 + GRACE);
    let measurement = &document(&output)["measurement"];
    let ended = &measurement["until_sure"];
    assert_eq!(ended["ended_by"], "other");
    assert_eq!(ended["saved_time"], 0.0);
    assert!(number(&measurement["summary"]["duration"]) >= 2.9);
}

#[test]
fn what_has_no_limit_or_another_end_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = run(&mut fullpipe(arguments), GRACE);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let cases: [(&[&str], &str); 5] = [
        (
            &["measure", "HOST", "--until-sure", "--udp"],
            "datagrams have no limit",
        ),
        (&["measure", "HOST", "--until-sure", "-n", "1M"], "--bytes"),
        (
            &["measure", "HOST", "--until-sure=1.5,5%"],
            "from 0.5 to 0.99",
        ),
        (&["measure", "HOST", "--until-sure=0.9"], "0.9,5%"),
        (
            &["diagnose", "--pid", "1", "--until-sure"],
            "leave out --until-sure",
        ),
    ];
    for (arguments, said) in cases {
        let error = refused(arguments);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

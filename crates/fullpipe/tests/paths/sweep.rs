//! A sweep over a path that counts what it carries.

use std::fs;
use std::time::Duration;

use fullpipe_testkit::{Mark, Running, document, load_slot, require};
use serde_json::Value;

use crate::common::run;
use crate::lab_up::Up;

/// A path of 50 Mbit/s and 20 ms without losses, whose queue holds all that the windows of the
/// sweep permit.
const SCENARIO: &str = "name = \"counts\"\ntitle = \"Counts\"\n[path]\nrate = \"50Mbit/s\"\nrtt = \"20ms\"\n\
                        queue = \"4MiB\"\n[[step]]\nname = \"as it is\"\n";

/// Bytes of a full packet on Ethernet, as the path counts them, and those of its data.
const PACKET: f64 = 1538.0;
const DATA: f64 = 1448.0;

/// The account that a sweep keeps of its bytes is what limits it, and what the user pays.
#[test]
fn the_account_of_a_sweep_is_that_of_the_path() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let scenario = format!(
        "{}/sweep-{}.toml",
        env!("CARGO_TARGET_TMPDIR"),
        mark.as_str()
    );
    fs::write(&scenario, SCENARIO).unwrap();
    let lab = Up::of(&scenario, &mark, &["--json-lines"]);
    let receiver = lab.event()["data"]["receiver"].as_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let _server = Running::start(&mut lab.join("receiver", &[program, "serve"]));
    std::thread::sleep(Duration::from_secs(1));
    // A few runs; the reverse way shows that the account is of what was received, wherever that
    // was.
    let grid = [
        "--windows",
        "256KiB..512KiB",
        "--streams",
        "1",
        "--max-bytes",
        "40M",
    ];
    let whole = ["--budget", "100%", "--duty", "100%", "--yes"];
    for way in [&[][..], &["--reverse"]] {
        carried(&lab, way);
        let sweep = [
            &[program, "sweep", &receiver, "--no-store", "--json"][..],
            &grid,
            &whole,
            way,
        ]
        .concat();
        let sweep = document(&run(&mut lab.join("sender", &sweep), 60))["sweep"].clone();
        let counted = carried(&lab, way) / PACKET * DATA;
        let spent = sweep["spent"]["bytes"].as_f64().unwrap();
        assert!(sweep["runs"].as_array().unwrap().len() >= 2, "{sweep}");
        assert!(
            (spent / counted - 1.0).abs() < 0.01,
            "{spent} of {counted} bytes, {way:?}"
        );
        for run in sweep["runs"].as_array().unwrap() {
            let (all, other) = of_device(run, way);
            assert!(
                all > 20e6 && other < 0.02 * all,
                "{other} of {all} bit/s are of others: {run}"
            );
        }
    }
    let datagrams = [program, "measure", &receiver, "-u", "-b", "5M", "-t", "60"];
    let _others = Running::start(&mut lab.join("sender", &datagrams));
    let two = [
        "--windows",
        "256KiB",
        "--streams",
        "1..2",
        "--full",
        "--duty",
        "90%",
        "--max-bytes",
        "100M",
        "--yes",
    ];
    let sweep = [
        &[program, "sweep", &receiver, "--no-store", "--json"][..],
        &two,
    ]
    .concat();
    let sweep = document(&run(&mut lab.join("sender", &sweep), 60))["sweep"].clone();
    let runs = sweep["runs"].as_array().unwrap();
    let rest = &runs[1]["device"]["before"];
    let between = rest["sent"].as_f64().unwrap() * 8.0 / rest["span"].as_f64().unwrap();
    for other in [
        of_device(&runs[0], &[]).1,
        between,
        of_device(&runs[1], &[]).1,
    ] {
        assert!(
            (4.7e6..5.7e6).contains(&other),
            "{other} bit/s of 5 Mbit/s and headers: {sweep}"
        );
    }
}

/// Returns the rate of all that the device carried this way during a run, and that of what others
/// sent, in bit/s.
fn of_device(run: &Value, way: &[&str]) -> (f64, f64) {
    let device = &run["device"];
    assert_eq!(device["name"], "path0", "{run}");
    let during = &device["during"];
    let bytes = during[if way.is_empty() { "sent" } else { "received" }]
        .as_f64()
        .unwrap();
    let (own, seconds) = (
        device["own"].as_f64().unwrap(),
        during["span"].as_f64().unwrap(),
    );
    (
        bytes * 8.0 / seconds,
        (bytes - own).max(0.0) * 8.0 / seconds,
    )
}

/// Returns the bytes that the path has carried this way since the last call.
fn carried(lab: &Up, way: &[&str]) -> f64 {
    let direction = if way.is_empty() { "forward" } else { "reverse" };
    let bytes = |event: &Value| {
        let [rate, interval] = [
            &event["data"][direction]["rate"],
            &event["data"]["interval"],
        ]
        .map(Value::as_f64);
        rate.unwrap() * interval.unwrap() / 8.0
    };
    let so_far = lab.events();
    so_far
        .iter()
        .filter(|event| event["event"] == "path")
        .map(bytes)
        .sum()
}

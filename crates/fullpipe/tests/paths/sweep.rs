//! A sweep over a path that counts what it carries.

use std::fs;
use std::time::Duration;

use fullpipe_testkit::{Mark, Running, document, load_slot, require};
use serde_json::Value;

use crate::common::run;
use crate::lab_up::Up;

/// A path of 50 Mbit/s and 20 ms without losses, whose queue holds all that the windows of the sweep permit.
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
    let scenario = format!("{}/sweep-{}.toml", env!("CARGO_TARGET_TMPDIR"), mark.as_str());
    fs::write(&scenario, SCENARIO).unwrap();
    let lab = Up::of(&scenario, &mark, &["--json-lines"]);
    let receiver = lab.event()["data"]["receiver"].as_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let _server = Running::start(&mut lab.join("receiver", &[program, "serve"]));
    std::thread::sleep(Duration::from_secs(1));
    // A few runs; the reverse way shows that the account is of what was received, wherever that was.
    let grid = ["--windows", "256KiB..512KiB", "--streams", "1", "--max-bytes", "40M"];
    let whole = ["--budget", "100%", "--duty", "100%", "--yes"];
    for way in [&[][..], &["--reverse"]] {
        carried(&lab, way);
        let sweep = [&[program, "sweep", &receiver, "--no-store", "--json"][..], &grid, &whole, way].concat();
        let sweep = document(&run(&mut lab.join("sender", &sweep), 60))["sweep"].clone();
        let counted = carried(&lab, way) / PACKET * DATA;
        let spent = sweep["spent"]["bytes"].as_f64().unwrap();
        assert!(sweep["runs"].as_array().unwrap().len() >= 2, "{sweep}");
        assert!((spent / counted - 1.0).abs() < 0.01, "{spent} of {counted} bytes, {way:?}");
    }
}

/// Returns the bytes that the path has carried this way since the last call.
fn carried(lab: &Up, way: &[&str]) -> f64 {
    let direction = if way.is_empty() { "forward" } else { "reverse" };
    let bytes = |event: &Value| {
        let [rate, interval] = [&event["data"][direction]["rate"], &event["data"]["interval"]].map(Value::as_f64);
        rate.unwrap() * interval.unwrap() / 8.0
    };
    let so_far = lab.events();
    so_far.iter().filter(|event| event["event"] == "path").map(bytes).sum()
}

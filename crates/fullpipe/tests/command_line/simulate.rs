//! Transfers in virtual time.

use crate::common::{fullpipe, run};
use fullpipe_testkit::document;
use serde_json::json;

const PATH: &str = "rate=50M,rtt=20ms,loss=1e-4";

#[test]
fn a_simulated_transfer_is_a_measurement_with_its_limit_and_the_same_each_time() {
    let simulated = || run(&mut fullpipe(&["simulate", "--path", PATH, "-t", "5", "-C", "bbr", "--json"]), 30);
    let first = document(&simulated());
    assert_eq!((&first["schema"], &first["kind"]), (&json!(2), &json!("measurement")));
    assert_eq!(first["measurement"]["limit"]["kind"], "capacity");
    assert_eq!(first["measurement"]["local"]["sockets"][0]["congestion"], "bbr");
    assert_eq!(first, document(&simulated()));
}

#[test]
fn several_seeds_are_lines_or_a_spread_and_never_one_document() {
    let with =
        |format: &[&str]| run(fullpipe(&["simulate", "--path", PATH, "-t", "1", "--seeds", "3"]).args(format), 30);
    let lines = String::from_utf8(with(&["--json-lines"]).stdout).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("\"measurement\"")).count(), 3, "{lines}");
    let text = String::from_utf8(with(&[]).stdout).unwrap();
    assert!(text.contains("median of 3 seeds"), "{text}");
    assert_eq!(with(&["--json"]).status.code(), Some(2));
}

#[test]
fn a_grid_in_virtual_time_needs_no_lab() {
    let text = "name = \"two\"\ntitle = \"Two cells\"\nlongest = \"2s\"\n\
                [[block]]\nrate = [\"20Mbit/s\"]\nrtt = [\"10ms\"]\nqueue = [\"0.5\", \"2\"]\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grid.toml");
    std::fs::write(&file, text).unwrap();
    let of = |more: &[&str]| run(fullpipe(&["lab", "grid", file.to_str().unwrap(), "--virtual"]).args(more), 60);
    let grid = document(&of(&["--json"]))["grid"].clone();
    assert_eq!((&grid["is_virtual"], &grid["passed"]), (&json!(true), &json!(true)));
    assert!(grid["cells"].as_array().unwrap().iter().all(|cell| cell["simulated"]["rate"].is_u64()), "{grid}");
    let shown = String::from_utf8(of(&["--quiet"]).stdout).unwrap();
    assert!(shown.contains("formula  simulated") && shown.contains("queue 0.5"), "{shown}");
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let refused = run(&mut fullpipe(&["simulate", "-C", "htcp"]), 30);
    assert_eq!(refused.status.code(), Some(2));
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert!(sentence.contains("\"htcp\" is not modelled: reno, cubic and bbr are"), "{sentence}");
}

#[test]
fn the_steps_of_a_scenario_are_transfers() {
    let steps = run(&mut fullpipe(&["simulate", "elsen-window", "--json-lines"]), 60);
    let lines = String::from_utf8(steps.stdout).unwrap();
    let rates: Vec<f64> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|event| event["data"]["summary"]["rate"].as_f64())
        .collect();
    // The scenario's own bound: twice the window is twice the rate.
    assert!(rates.len() >= 2 && (1.9..2.1).contains(&(rates[1] / rates[0])), "{rates:?}");
    let cross = run(&mut fullpipe(&["simulate", "slac-load"]), 60);
    assert_eq!(cross.status.code(), Some(2));
}

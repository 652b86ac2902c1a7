//! The program as people run it: one short case, and what it leaves behind when it is stopped.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fullpipe_testkit::{Running, document, fullpipe, path, require, within};
use serde_json::Value;

/// Longest that the short case may take on a busy machine; alone it takes three seconds.
const TIMEOUT: Duration = Duration::from_mins(1);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    command
        .arg("--fullpipe")
        .arg(fullpipe().get_program())
        .args(arguments);
    command
}

#[test]
fn without_fullpipe_it_says_how_to_get_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe-bench"));
    let output = Running::start(command.args(["--fullpipe", "/nowhere/fullpipe"])).finish(TIMEOUT);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("/nowhere/fullpipe") && said.contains("cargo build --release"),
        "{said}"
    );
}

/// Returns what comes out of one round of half a second, and what is said meanwhile.
fn short_case(name: &str) -> (Value, String) {
    let _path = path();
    let running = Running::start(&mut bench(&[
        name, "--rounds", "1", "--time", "0.5", "--json",
    ]));
    let output = running.finish(TIMEOUT);
    assert!(output.status.success(), "{output:?}");
    let case = document(&output)["cases"][0].clone();
    assert_eq!(
        (&case["name"], &case["notes"]),
        (&name.into(), &Value::Array(Vec::new()))
    );
    (case, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn assert_every_figure(case: &Value) {
    let tables = case["tables"].as_array().unwrap();
    assert_eq!(
        tables.len(),
        3,
        "rate, processor time of the programs and of the machine: {case}"
    );
    for row in tables
        .iter()
        .flat_map(|table| table["rows"].as_array().unwrap())
    {
        assert!(
            row["median"].as_f64().is_some_and(|median| median > 0.0),
            "{row}"
        );
    }
}

/// Returns what it has started, once both ends of a comparison run.
fn client_and_server(bench: &Running) -> Vec<u32> {
    let mut found = Vec::new();
    let both = within(TIMEOUT, || {
        found = children_of(bench.pid());
        found.len() == 2
    });
    assert!(both, "it runs {found:?}");
    found
}

fn assert_gone(children: &[u32]) {
    let gone = within(TIMEOUT, || children.iter().all(|pid| !runs(*pid)));
    assert!(gone, "{children:?} remain");
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes
        .filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent))
        .collect()
}

/// One that has ended and waits for its parent runs no more.
fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// State and parent, from behind the name in parentheses.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Tests that load the machine.
mod tests_alone {
    use super::*;

    #[test]
    fn one_case_compares_all_that_is_installed() {
        require!(Iperf3, Iperf2);
        let (case, text) = short_case("tcp");
        assert_every_figure(&case);
        assert!(
            text.contains("arrived") && text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn programs_are_compared_between_namespaces_too() {
        require!(Root, Iperf3, Iperf2);
        assert_every_figure(&short_case("streams-veth").0);
    }

    #[test]
    fn nothing_remains_after_an_interrupt() {
        require!(Iperf3);
        let _path = path();
        let running = Running::start(&mut bench(&["rx-copy", "--time", "60"]));
        let children = client_and_server(&running);
        running.interrupt();
        let output = running.finish(TIMEOUT);
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("interrupted: what there is"), "{said}");
        assert_gone(&children);
    }

    #[test]
    fn nothing_remains_when_it_is_killed() {
        require!(Iperf3);
        let _path = path();
        let mut running = Running::start(&mut bench(&["rx-copy", "--time", "60"]));
        let children = client_and_server(&running);
        running.kill();
        assert_gone(&children);
    }
}

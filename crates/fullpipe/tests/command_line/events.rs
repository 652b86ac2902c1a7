//! `--json-lines`: every line is an event, and one enum has them all.

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_record::{Event, EventLine};
use fullpipe_testkit::{
    FalseServer, Part, Running, free_port, load_slot, require, wait_for_listener,
};

/// Longest time for a command, in seconds.
const TIMEOUT: u64 = 60;

/// Returns the names of the events, after every line was read as one and written again without
/// loss.
fn events(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let names = text.lines().map(|line| {
        let read: EventLine<'_> =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(read.time.ends_with('Z'), "{line}");
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let again: Event =
            serde_json::from_value(serde_json::to_value(&*read.event).unwrap()).unwrap();
        assert_eq!(again, *read.event, "{line}");
        value["event"].as_str().unwrap().to_owned()
    });
    names.collect()
}

/// Returns the names of the events without the intervals, of which a busy machine may have one
/// more.
fn without_intervals(output: &Output) -> Vec<String> {
    events(output)
        .into_iter()
        .filter(|name| name != "interval" && name != "path")
        .collect()
}

#[test]
fn commands_that_measure_print_only_events() {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&[
        "serve",
        "-p",
        &port.to_string(),
        "--json-lines",
    ]));
    wait_for_listener(port);
    let print = |arguments: &[&str]| {
        let mut command = fullpipe(arguments);
        run(
            command.args(["127.0.0.1", "-p", &port.to_string(), "--json-lines"]),
            TIMEOUT,
        )
    };
    let measured = print(&["measure", "-t", "0.3", "-i", "0.1"]);
    assert!(events(&measured).contains(&"interval".to_owned()));
    assert_eq!(without_intervals(&measured), ["measurement"]);
    let ramp = print(&["measure", "-t", "0.2", "--ramp", "2M..4M/2"]);
    assert_eq!(
        without_intervals(&ramp),
        [
            "measurement",
            "ramp-step",
            "measurement",
            "ramp-step",
            "ramp"
        ]
    );
    assert_eq!(
        without_intervals(&print(&["diagnose", "-t", "0.3"])),
        ["measurement", "diagnosis"]
    );
    server.interrupt();
    let served = without_intervals(&server.finish(Duration::from_secs(TIMEOUT)));
    assert_eq!(served[..3], ["listening", "began", "ended"], "{served:?}");
}

#[test]
fn failures_are_events_too() {
    let port = free_port().to_string();
    for command in ["measure", "diagnose"] {
        let output = run(
            &mut fullpipe(&[command, "127.0.0.1", "-p", &port, "--json-lines"]),
            TIMEOUT,
        );
        assert_eq!(events(&output), ["error"]);
    }
    let server = FalseServer::start(Part::FallsSilentAfter(&[9, 10, 1, 2]));
    let arguments = [
        "measure",
        "127.0.0.1",
        "-R",
        "-t",
        "20",
        "--rcv-timeout",
        "300",
        "--json-lines",
    ];
    let output = run(
        fullpipe(&arguments).args(["-p", &server.port().to_string()]),
        TIMEOUT,
    );
    assert_eq!(
        without_intervals(&output).last().map(String::as_str),
        Some("error")
    );
}

#[test]
fn commands_that_build_a_lab_print_only_events() {
    require!(Lab);
    let _slot = load_slot();
    let demo = run(
        &mut fullpipe(&[
            "demo",
            "-t",
            "2",
            "--path",
            "rate=50M,rtt=10ms",
            "--json-lines",
        ]),
        TIMEOUT,
    );
    let names = without_intervals(&demo);
    assert_eq!(
        (names[0].as_str(), names.last().unwrap().as_str()),
        ("predicted", "experiment"),
        "{names:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("short.toml");
    let text = "name = 'short'\ntitle = 't'\n[path]\nrate = '50M'\nrtt = '10ms'\n[[step]]\nname = 'one'\nduration = '1s'\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let names = without_intervals(&run(
        &mut fullpipe(&["lab", "run", file, "--json-lines"]),
        TIMEOUT,
    ));
    assert_eq!(names[..3], ["scenario-began", "step-began", "measurement"]);
    assert_eq!(names.last().unwrap(), "scenario");

    let mut command = fullpipe(&[
        "lab",
        "up",
        file,
        "--interval",
        "0.1",
        "--name",
        "events",
        "--json-lines",
    ]);
    let mut up = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    up.stdin.take().unwrap().write_all(b"D\nq\n").unwrap();
    assert_eq!(
        without_intervals(&up.wait_with_output().unwrap()),
        ["up", "changed"]
    );
}

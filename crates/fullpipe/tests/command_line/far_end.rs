//! A far end that is fullpipe reports on itself while data flows. These reports are kept if it dies
//! and if the test is interrupted.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fullpipe_testkit::{Running, free_port, wait_for_listener, within, write_secret};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest time for one step of a test, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Seconds of data, by the clock of the test, before a test is disturbed: the far end reports at
/// least twice in them.
const SECONDS: usize = 3;

/// A measurement under way, at a rate that disturbs nobody, whose events go to a file.
struct Test {
    server: Running,
    client: Option<Running>,
    events: PathBuf,
}

impl Test {
    fn start(of_server: &[&str], of_client: &[&str]) -> Self {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "far-end-{}-{}.jsonl",
            std::process::id(),
            TESTS.fetch_add(1, Ordering::Relaxed)
        );
        let events = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let port = free_port();
        let mut server = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        let server = Running::start(
            server
                .args(["serve", "-p", &port.to_string()])
                .args(of_server),
        );
        wait_for_listener(port);
        // A file can be read before the client ends, a pipe only afterwards.
        let mut client = Command::new("sh");
        client
            .args(["-c", "exec \"$@\" > \"$0\""])
            .arg(&events)
            .arg(env!("CARGO_BIN_EXE_fullpipe"));
        client.args([
            "measure",
            "127.0.0.1",
            "--json-lines",
            "-t",
            "60",
            "-b",
            "8M",
            "-p",
            &port.to_string(),
        ]);
        Self {
            server,
            client: Some(Running::start(client.args(of_client))),
            events,
        }
    }

    fn events(&self) -> String {
        std::fs::read_to_string(&self.events).unwrap_or_default()
    }

    fn wait_for_data(&self) {
        let flows = || self.events().matches("\"event\":\"interval\"").count() >= SECONDS;
        assert!(within(TIMEOUT, flows), "no data flows: {}", self.events());
    }

    fn interrupt(&self) {
        self.client.as_ref().unwrap().interrupt();
    }

    /// Waits for the client and returns its output and the measurement that it reported.
    fn finish(mut self) -> (Output, Value) {
        let output = self.client.take().unwrap().finish(TIMEOUT);
        let events = self.events();
        let measurement = events.lines().rev().find_map(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == "measurement").then(|| event["data"].clone())
        });
        (
            output,
            measurement.unwrap_or_else(|| panic!("no measurement: {events}")),
        )
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.events);
    }
}

/// Asserts that the far end, which is this same host, reported its settings and its `streams` while
/// data flowed.
fn assert_stated_early(measurement: &Value, streams: usize) {
    let (here, there) = (&measurement["local"], &measurement["remote"]);
    assert_eq!(measurement["peer"]["speaks_fullpipe"], true);
    assert!(
        there["settings"]["kernel"]["major"].is_u64() && there["settings"] == here["settings"],
        "{there:#}"
    );
    assert_eq!(there["sockets"].as_array().unwrap().len(), streams);
    assert!(
        there["cpu"]["user"].as_f64().unwrap() + there["cpu"]["system"].as_f64().unwrap() > 0.0,
        "{there:#}"
    );
    let until = there["until"].as_f64().unwrap();
    assert!(until >= 1.0, "reported until {until} s");
    if measurement["request"]["transport"] == "udp" {
        let datagrams = there["datagrams"].as_array().unwrap();
        assert_eq!(datagrams.len(), streams);
        assert!(
            datagrams
                .iter()
                .all(|seen| seen["received"].as_u64().unwrap() > 0),
            "{there:#}"
        );
    } else {
        let samples = there["samples"].as_array().unwrap();
        assert!(
            samples.len() >= streams && samples.len().is_multiple_of(streams),
            "{} samples",
            samples.len()
        );
        assert!(samples.iter().all(
            |sample| sample["tcp"]["rtt"].is_number() && sample["memory"]["rcvbuf"].is_number()
        ));
        let latest = samples.last().unwrap();
        assert!(
            latest["bytes"].as_u64().unwrap() > 0 && latest["at"].as_f64().unwrap() <= until,
            "{latest}"
        );
    }
}

#[test]
fn what_the_server_reported_before_it_was_killed_is_kept() {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, content: String| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("far-end-{}-{name}", std::process::id()));
        write_secret(&path, &content);
        path.to_str().unwrap().to_owned()
    };
    let trust = file("trust.pem", certified.cert.pem());
    let identity = file(
        "identity.pem",
        certified.cert.pem() + &certified.signing_key.serialize_pem(),
    );
    let tests: [(&[&str], &[&str], usize); 5] = [
        (&[], &[], 1),
        (&[], &["-R", "-P", "2"], 2),
        (&[], &["--bidir", "-O", "1"], 2),
        (&[], &["-u", "-P", "2"], 2),
        (&["--tls", &identity], &["--tls", &trust], 1),
    ];
    let tests =
        tests.map(|(of_server, of_client, streams)| (Test::start(of_server, of_client), streams));
    for (mut test, streams) in tests {
        test.wait_for_data();
        test.server.kill();
        let (output, measurement) = test.finish();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(measurement["broken_off"].is_string() && measurement["interrupted"] == false);
        assert_stated_early(&measurement, streams);
    }
    for path in [trust, identity] {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn what_the_server_reported_is_kept_if_it_does_not_answer_an_interrupted_client_any_more() {
    let test = Test::start(&[], &[]);
    test.wait_for_data();
    let server = Pid::from_raw(test.server.pid().cast_signed()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    test.interrupt();
    let (output, measurement) = test.finish();
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(measurement["broken_off"].is_string() && measurement["interrupted"] == true);
    assert_stated_early(&measurement, 1);
}

#[test]
fn the_whole_replaces_what_was_reported_before_it() {
    let test = Test::start(&[], &["-P", "2"]);
    test.wait_for_data();
    test.interrupt();
    let (output, measurement) = test.finish();
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(measurement["broken_off"].is_null() && measurement["interrupted"] == true);
    let there = &measurement["remote"];
    assert!(
        there["until"].is_null() && there["settings"] == measurement["local"]["settings"],
        "{there:#}"
    );
    // The whole has a snapshot every 50 ms; what was reported before it had one a second.
    assert!(there["samples"].as_array().unwrap().len() > 20 * SECONDS);
}

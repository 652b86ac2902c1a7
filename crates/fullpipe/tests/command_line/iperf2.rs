//! Against a real iperf2 client: what it says that it sent is what the server counts, stream by
//! stream.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Heading, Relay, Running, free_port, load_slot, require, wait_for_listener, within,
};
use serde_json::Value;

/// Longest time for one test, in seconds.
const TIMEOUT: u64 = 30;

/// Longest time until a server logs an event.
const PROMPT: Duration = Duration::from_secs(10);

/// A server that writes one event a line into its log.
struct Server {
    _running: Running,
    port: u16,
    log: std::path::PathBuf,
}

impl Server {
    fn start() -> Self {
        let port = free_port();
        let log = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("iperf2-{port}.log"));
        let _ = std::fs::remove_file(&log);
        let mut command = fullpipe(&["serve", "--json-lines", "-p", &port.to_string()]);
        let running = Running::start(command.arg("--logfile").arg(&log));
        wait_for_listener(port);
        Self {
            _running: running,
            port,
            log,
        }
    }

    /// Bytes of each test that ended, by the client's port.
    fn ended(&self) -> BTreeMap<String, u64> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ended = events
            .filter(|event| event["event"] == "ended")
            .map(|event| event["data"].clone());
        ended
            .filter_map(|data| Some((port_of(data["client"].as_str()?), data["bytes"].as_u64()?)))
            .collect()
    }
}

fn port_of(address: &str) -> String {
    address.rsplit(':').next().unwrap().to_owned()
}

fn iperf(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("iperf");
    let output = run(
        command
            .args(["-c", "127.0.0.1", "-p", &port.to_string()])
            .args(arguments),
        TIMEOUT,
    );
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Columns of `-y C`: time, own address and port, the other's, number, interval, bytes, …
fn sent(csv: &str) -> BTreeMap<String, u64> {
    let rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter_map(|row| Some(((*row.get(2)?).to_owned(), row.get(7)?.parse().ok()?)))
        .collect()
}

#[test]
fn every_stream_is_counted_to_the_byte() {
    require!(Iperf2);
    for arguments in [
        &["-t", "1", "-b", "40M"][..],
        &["-t", "1", "-b", "40M", "-P", "3"],
        &["-n", "2M"],
        // It waits for an answer to its header.
        &["-n", "2M", "-X"],
        &["-n", "2M", "-l", "1000", "-N"],
        &["-u", "-t", "1", "-b", "8M"],
        &["-u", "-t", "1", "-b", "8M", "-P", "3"],
        &["-u", "-t", "1", "-b", "2M", "-l", "100"],
        &["-u", "-n", "500K", "-b", "8M"],
    ] {
        let _slot = load_slot();
        let server = Server::start();
        let stated = sent(&iperf(server.port, &[arguments, &["-y", "C"]].concat()));
        let streams = arguments
            .iter()
            .position(|argument| *argument == "-P")
            .map_or("1", |at| arguments[at + 1]);
        assert_eq!(
            stated.len().to_string(),
            streams,
            "{arguments:?}: {stated:?}"
        );
        assert!(
            within(PROMPT, || server.ended() == stated),
            "{arguments:?}: {stated:?} and {:?}",
            server.ended()
        );
    }
}

#[test]
fn the_report_of_a_lossy_path_has_its_losses() {
    require!(Iperf2);
    let _slot = load_slot();
    let server = Server::start();
    let relay = Relay::start(server.port, |heading, number| {
        heading == Heading::ToServer
            && number <= 500
            && (number == 3 || (100..=109).contains(&number))
    });
    // 1000 datagrams of 1000 bytes in two seconds.
    let text = iperf(relay.port(), &["-u", "-t", "2", "-b", "4M", "-l", "1000"]);
    let report = text
        .lines()
        .rev()
        .find(|line| line.contains('%'))
        .unwrap_or_default();
    // … 0.012 ms  11/1000 (1.1%) …
    let (before, after) = report.rsplit_once('/').unwrap_or_default();
    let lost = before.split_whitespace().next_back().unwrap_or_default();
    let total: u64 = after
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()
        .unwrap_or_default();
    assert!(
        report.starts_with('[') && text.contains("Server Report"),
        "{text}"
    );
    assert_eq!(lost, "11", "{text}");
    // It sends one more than it reports, as against iperf's own server.
    assert!(
        text.contains(&format!("Sent {} datagrams", total + 1)),
        "{text}"
    );
}

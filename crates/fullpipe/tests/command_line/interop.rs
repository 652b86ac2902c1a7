//! Against real iperf3, in both parts, over loopback: what one end counts, the other counts too.

use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    FalseServer, Part, Running, document, free_port, load_slot, path, require, sentence,
    wait_for_listener,
};
use serde_json::Value;

/// Largest relative difference between the counts of the two ends.
const TOLERANCE: f64 = 0.01;

/// Longest time that a program may take in addition to its load, and a server to end, in seconds.
const GRACE: u64 = 15;

/// A server on a port of its own that ends after one test.
struct Server {
    running: Running,
    port: String,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let port = free_port();
        let running = Running::start(command.args(["-1", "-p", &port.to_string()]));
        wait_for_listener(port);
        Self {
            running,
            port: port.to_string(),
        }
    }

    fn fullpipe() -> Self {
        Self::start(&mut fullpipe(&["serve"]))
    }

    fn iperf3() -> Self {
        Self::start(Command::new("iperf3").arg("-s"))
    }

    /// Waits for its end, which must be a success, and returns its output.
    fn finish(self) -> String {
        let output = self.running.finish(Duration::from_secs(GRACE));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}: {text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }
}

fn succeeded(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    document(output)
}

/// Returns the measurement of `fullpipe measure` with `arguments` against `server`.
fn measured(server: &Server, arguments: &[&str]) -> Value {
    let mut command = fullpipe(&["measure", "127.0.0.1", "--json", "-p", &server.port]);
    succeeded(&run(command.args(arguments), 5 + GRACE))["measurement"].clone()
}

/// Returns the section `end` of `iperf3 -c` with `arguments` against `server`.
fn iperf3_measured(server: &Server, arguments: &[&str]) -> Value {
    let mut command = Command::new("iperf3");
    command
        .args(["-c", "127.0.0.1", "-J", "-p", &server.port])
        .args(arguments);
    succeeded(&run(&mut command, 5 + GRACE))["end"].clone()
}

/// Data in flight at the end of a stream is counted as sent and not as received. Autotuned buffers
/// hold more of it than [`TOLERANCE`] of the bytes that one of four streams carries over loopback.
const SMALL_BUFFERS: &[&str] = &["-w", "1M"];

fn assert_close(what: &str, left: &Value, right: &Value) {
    let (left, right) = (left.as_f64().expect(what), right.as_f64().expect(what));
    assert!(left > 0.0 && right > 0.0, "{what}: {left} and {right}");
    assert!(
        (left - right).abs() <= TOLERANCE * left.max(right),
        "{what}: {left} and {right} bytes"
    );
}

/// Far above what any test needs, and low enough that both ends stop counting within the tolerance
/// on a busy machine.
const RATE: &[&str] = &["-b", "300M"];

/// Two seconds with iperf3 as the client of `fullpipe serve`.
fn iperf3_as_client(streams: usize, more: &[&str]) {
    let _slot = load_slot();
    let server = Server::fullpipe();
    let end = iperf3_measured(
        &server,
        &[RATE, &["-t", "2", "-P", &streams.to_string()], more].concat(),
    );
    assert_close(
        "all streams",
        &end["sum_sent"]["bytes"],
        &end["sum_received"]["bytes"],
    );
    let ends = end["streams"].as_array().unwrap();
    assert_eq!(ends.len(), streams);
    for stream in ends {
        assert_close(
            "a stream",
            &stream["sender"]["bytes"],
            &stream["receiver"]["bytes"],
        );
    }
    let stated = server.finish();
    let direction = if more.contains(&"-R") {
        "sending"
    } else {
        "receiving"
    };
    let count = if streams == 1 {
        "1 stream\n".to_owned()
    } else {
        format!("{streams} streams\n")
    };
    assert!(
        stated.contains(&format!(": {direction}, {count}")),
        "{stated}"
    );
    assert!(
        stated
            .lines()
            .skip(1)
            .all(|line| line.starts_with("127.0.0.1:")),
        "{stated}"
    );
    assert!(stated.contains(": done at "), "{stated}");
}

/// Two seconds with `fullpipe measure` as the client of `iperf3 -s`.
fn iperf3_as_server(streams: usize, more: &[&str]) {
    let _slot = load_slot();
    let server = Server::iperf3();
    let measurement = measured(
        &server,
        &[RATE, &["-t", "2", "-P", &streams.to_string()], more].concat(),
    );
    let summary = &measurement["summary"];
    assert_close("all streams", &summary["sent"], &summary["received"]);
    let ends = measurement["streams"].as_array().unwrap();
    assert_eq!(ends.len(), streams);
    for stream in ends {
        assert_close("a stream", &stream["sent"], &stream["received"]);
        assert!(stream["retransmits"].is_u64(), "{stream}");
    }
    assert_eq!(measurement["peer"]["speaks_fullpipe"], false);
    assert_eq!(measurement["interrupted"], false);
    assert_intervals_are_whole(&measurement);
    server.finish();
}

/// Two intervals of one second, each where it belongs, that hold all that was counted here.
fn assert_intervals_are_whole(measurement: &Value) {
    const LATE: f64 = 0.3;
    let intervals = measurement["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 2, "{intervals:#?}");
    for (interval, second) in intervals.iter().zip(1..) {
        let to = interval["to"].as_f64().unwrap();
        assert!(
            (to - f64::from(second)).abs() < LATE,
            "interval {second} ends at {to} s"
        );
        assert_eq!(interval["omitted"], false);
    }
    let here = if measurement["request"]["direction"] == "upload" {
        "sent"
    } else {
        "received"
    };
    let bytes: u64 = intervals
        .iter()
        .map(|interval| interval["bytes"].as_u64().unwrap())
        .sum();
    assert_close(
        "the intervals",
        &bytes.into(),
        &measurement["summary"][here],
    );
}

#[test]
fn iperf3_uploads_to_us_over_one_stream() {
    require!(Iperf3);
    iperf3_as_client(1, &[]);
}

#[test]
fn iperf3_uploads_to_us_over_four_streams() {
    require!(Iperf3);
    iperf3_as_client(4, SMALL_BUFFERS);
}

#[test]
fn iperf3_downloads_from_us_over_one_stream() {
    require!(Iperf3);
    iperf3_as_client(1, &["-R"]);
}

#[test]
fn iperf3_downloads_from_us_over_four_streams() {
    require!(Iperf3);
    iperf3_as_client(4, &[SMALL_BUFFERS, &["-R"]].concat());
}

#[test]
fn we_upload_to_iperf3_over_one_stream() {
    require!(Iperf3);
    iperf3_as_server(1, &[]);
}

#[test]
fn we_upload_to_iperf3_over_four_streams() {
    require!(Iperf3);
    iperf3_as_server(4, SMALL_BUFFERS);
}

#[test]
fn we_download_from_iperf3_over_one_stream() {
    require!(Iperf3);
    iperf3_as_server(1, &["-R"]);
}

#[test]
fn we_download_from_iperf3_over_four_streams() {
    require!(Iperf3);
    iperf3_as_server(4, &[SMALL_BUFFERS, &["-R"]].concat());
}

#[test]
fn the_congestion_control_is_read_back_at_the_end_that_sends() {
    require!(Iperf3);
    let _slot = load_slot();
    let server = Server::iperf3();
    let measurement = measured(&server, &["-t", "1", "-C", "reno", "-P", "2"]);
    server.finish();
    let sockets = measurement["local"]["sockets"].as_array().unwrap();
    assert_eq!(sockets.len(), 2);
    assert!(
        sockets.iter().all(|socket| socket["congestion"] == "reno"),
        "{sockets:?}"
    );

    let server = Server::fullpipe();
    let end = iperf3_measured(&server, &["-t", "1", "-C", "reno", "-R"]);
    assert_eq!(end["sender_tcp_congestion"], "reno");
    server.finish();
}

#[test]
fn a_byte_limit_is_exceeded_by_less_than_a_byte_a_block() {
    const LIMIT: u64 = 10 * 1024 * 1024 + 1;
    const BLOCKS: u64 = 11;
    let _slot = load_slot();
    for more in [&[][..], &["-P", "4"], &["-R"], &["-R", "-P", "4"]] {
        let server = Server::fullpipe();
        let measurement = measured(&server, &[&["-n", &LIMIT.to_string()], more].concat());
        assert_eq!(measurement["peer"]["speaks_fullpipe"], true);
        let summary = &measurement["summary"];
        let (sent, received) = (
            summary["sent"].as_u64().unwrap(),
            summary["received"].as_u64().unwrap(),
        );
        assert_eq!(sent, received, "{more:?}");
        assert!((LIMIT..LIMIT + BLOCKS).contains(&sent), "{more:?}: {sent}");
        server.finish();
    }
}

#[test]
fn an_iperf3_server_that_is_busy_says_so() {
    require!(Iperf3);
    let _slot = load_slot();
    let port = free_port().to_string();
    let _server = Running::start(Command::new("iperf3").args(["-s", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let mut first = Running::start(Command::new("iperf3").args([
        "-c",
        "127.0.0.1",
        "-t",
        "5",
        "-b",
        "1M",
        "-p",
        &port,
    ]));
    std::thread::sleep(Duration::from_millis(500));
    let refused = run(
        &mut fullpipe(&["measure", "127.0.0.1", "-p", &port, "-t", "1"]),
        GRACE,
    );
    assert!(sentence(&refused, 1).contains("busy with another test"));
    first.kill();
}

#[test]
fn ctrl_c_ends_a_measurement_cleanly_at_both_ends() {
    require!(Iperf3);
    let _slot = load_slot();
    let server = Server::iperf3();
    let client = Running::start(&mut fullpipe(&[
        "measure",
        "127.0.0.1",
        "--json",
        "-t",
        "10",
        "-p",
        &server.port,
    ]));
    std::thread::sleep(Duration::from_millis(2_500));
    client.interrupt();
    let output = client.finish(Duration::from_secs(GRACE));
    assert_eq!(output.status.code(), Some(130));
    let measurement = document(&output)["measurement"].clone();
    assert_eq!(measurement["interrupted"], true);
    assert_close(
        "both ends",
        &measurement["summary"]["sent"],
        &measurement["summary"]["received"],
    );
    server.finish();
}

#[test]
fn what_was_measured_before_the_server_was_killed_is_kept() {
    for direction in [&[][..], &["-R"]] {
        let _slot = load_slot();
        let mut server = Server::fullpipe();
        let mut client = fullpipe(&[
            "measure",
            "127.0.0.1",
            "--json",
            "-t",
            "30",
            "-p",
            &server.port,
        ]);
        let client = Running::start(client.args(direction));
        std::thread::sleep(Duration::from_secs(2));
        server.running.kill();
        let output = client.finish(Duration::from_secs(GRACE));
        let why = sentence(&output, 1);
        let document = document(&output);
        assert_eq!(document["error"]["message"], why.as_str());
        let measurement = &document["measurement"];
        assert_eq!(measurement["broken_off"], why.as_str());
        assert!(
            measurement["summary"]["received"].as_u64().unwrap() > 1_000_000,
            "{direction:?}: {why}"
        );
    }
}

#[test]
fn ctrl_c_before_data_flows_is_an_interrupt_too() {
    let server = FalseServer::start(Part::FallsSilentAfter(&[9]));
    let port = server.port().to_string();
    let client = Running::start(&mut fullpipe(&["measure", "127.0.0.1", "-p", &port]));
    std::thread::sleep(Duration::from_millis(2_500));
    client.interrupt();
    assert!(sentence(&client.finish(Duration::from_secs(GRACE)), 130).contains("interrupted"));
}

#[test]
fn a_server_ends_when_it_is_asked_to() {
    let _slot = load_slot();
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    server.interrupt();
    let output = server.finish(Duration::from_secs(GRACE));
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn what_is_omitted_is_not_counted() {
        require!(Iperf3);
        // Both ends count by the clock: nothing else loads the machine meanwhile.
        let _slot = path();
        let server = Server::iperf3();
        let measurement = measured(&server, &["-t", "2", "-O", "1"]);
        server.finish();
        let intervals = measurement["intervals"].as_array().unwrap();
        let omitted: Vec<bool> = intervals
            .iter()
            .map(|interval| interval["omitted"].as_bool().unwrap())
            .collect();
        assert_eq!(omitted, [true, false, false]);
        let counted = intervals[1..]
            .iter()
            .map(|interval| interval["bytes"].as_u64().unwrap())
            .sum::<u64>();
        assert_close(
            "what counts",
            &counted.into(),
            &measurement["summary"]["sent"],
        );
        assert_close(
            "both ends",
            &measurement["summary"]["sent"],
            &measurement["summary"]["received"],
        );

        let server = Server::fullpipe();
        let end = iperf3_measured(&server, &["-t", "2", "-O", "1"]);
        assert_close(
            "both ends",
            &end["sum_sent"]["bytes"],
            &end["sum_received"]["bytes"],
        );
        server.finish();
    }
}

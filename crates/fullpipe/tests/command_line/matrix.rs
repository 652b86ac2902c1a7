//! Every combination of transport, direction and streams, and every option that both have, against
//! real iperf3 in both parts: what one end counts, the other counts too.

use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Heading, Relay, Running, document, free_port, lateness, load_slot, path, require,
    wait_for_listener,
};
use serde_json::Value;

/// Largest relative difference between the counts of the two ends.
const TOLERANCE: f64 = 0.01;

/// Bytes of a small write or datagram: the last one may arrive when the other end has stopped to
/// count, which is a hundredth of a stream of a hundred.
const LAST_DATAGRAM: f64 = 500.0;

/// Largest lateness of a machine on which both ends of a test of one second must agree: a third of
/// the tolerance.
const PUNCTUAL: Duration = Duration::from_millis(3);

/// Longest time for one test, in seconds.
const TIMEOUT: u64 = 30;

/// TCP at 40 Mbit/s a stream.
const TCP: &[&str] = &["-b", "40M"];
/// UDP at 8 Mbit/s a stream.
const UDP: &[&str] = &["-u", "-b", "8M", "-l", "1000"];

const DIRECTIONS: [&[&str]; 3] = [&[], &["-R"], &["--bidir"]];

/// A server on a port of its own that ends after one test.
struct Server {
    running: Running,
    port: u16,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let port = free_port();
        let running = Running::start(command.args(["-1", "-p", &port.to_string()]));
        wait_for_listener(port);
        Self { running, port }
    }

    fn fullpipe() -> Self {
        Self::start(&mut fullpipe(&["serve"]))
    }

    fn iperf3() -> Self {
        Self::start(Command::new("iperf3").arg("-s"))
    }

    fn finish(self) {
        let output = self.running.finish(Duration::from_secs(TIMEOUT));
        assert!(output.status.success(), "{output:?}");
    }
}

fn succeeded(output: &Output, what: &[&str]) -> Value {
    assert!(
        output.status.success(),
        "{what:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    document(output)
}

/// Returns the measurement of `fullpipe measure` against the server at `port`.
fn measured(port: u16, arguments: &[&str]) -> Value {
    let mut command = fullpipe(&["measure", "127.0.0.1", "--json", "-p", &port.to_string()]);
    let output = run(command.args(arguments), TIMEOUT);
    let measurement = document(&output)["measurement"].clone();
    // On a busy machine a rate may be missed, which is then said with the exit code.
    let is_rate_missed = measurement["validity"]["broken"]
        .to_string()
        .contains("end offered");
    assert!(
        output.status.success() || is_rate_missed,
        "{arguments:?}: {output:?}"
    );
    measurement
}

/// Returns the document of `iperf3 -c` against the server at `port`.
fn iperf3_measured(port: u16, arguments: &[&str]) -> Value {
    let mut command = Command::new("iperf3");
    command
        .args(["-c", "127.0.0.1", "-J", "-p", &port.to_string()])
        .args(arguments);
    succeeded(&run(&mut command, TIMEOUT), arguments)
}

/// Pairs of counts, one of each end, that must agree.
type Counts = Vec<(Value, Value)>;

/// Returns the first pair of counts that do not agree.
fn disagreement(counts: &Counts) -> Option<&(Value, Value)> {
    counts.iter().find(|(left, right)| {
        let (a, b) = (left.as_f64().unwrap(), right.as_f64().unwrap());
        !(a > 0.0 && b > 0.0 && (a - b).abs() <= TOLERANCE * a.max(b) + LAST_DATAGRAM)
    })
}

/// Measures until the counts agree, at most three times. Repeats only if the machine was so late
/// that the ends stopped counting at different times.
fn agreed(arguments: &[&str], measure: impl Fn() -> (Value, Counts)) -> Value {
    // Ends that count by the clock, or that stop 128 streams at once, agree only if both are on
    // time: nothing else loads the machine meanwhile.
    let is_alone = arguments.contains(&"-O") || arguments.contains(&"128");
    let _slot = if is_alone { path() } else { load_slot() };
    for attempt in 1.. {
        let ((found, counts), late) = lateness(&measure);
        let Some(differ) = disagreement(&counts) else {
            return found;
        };
        assert!(
            late > PUNCTUAL && attempt < 3,
            "{arguments:?}: {differ:?}, the machine {late:?} late"
        );
    }
    unreachable!("there is an end to it")
}

/// fullpipe as client of iperf3; its measurement, after what holds of every one was checked.
fn we_call(arguments: &[&str]) -> Value {
    agreed(arguments, || {
        let server = Server::iperf3();
        let measurement = measured(server.port, arguments);
        server.finish();
        let streams = measurement["streams"].as_array().unwrap();
        assert_eq!(streams.len(), expected_streams(arguments), "{arguments:?}");
        for stream in streams.iter().filter(|_| arguments.contains(&"-u")) {
            assert_eq!(stream["datagrams"]["lost"], 0, "{arguments:?}: {stream}");
        }
        let counts = streams
            .iter()
            .map(|stream| (stream["sent"].clone(), stream["received"].clone()))
            .collect();
        (measurement, counts)
    })
}

/// iperf3 as client of fullpipe; its report, after what holds of every one was checked.
fn they_call(arguments: &[&str]) -> Value {
    agreed(arguments, || {
        let server = Server::fullpipe();
        let report = iperf3_measured(server.port, arguments);
        server.finish();
        let end = &report["end"];
        let streams = end["streams"].as_array().unwrap();
        assert_eq!(streams.len(), expected_streams(arguments), "{arguments:?}");
        let mut counts = vec![(
            end["sum_sent"]["bytes"].clone(),
            end["sum_received"]["bytes"].clone(),
        )];
        for stream in streams {
            if arguments.contains(&"-u") {
                assert_eq!(stream["udp"]["lost_packets"], 0, "{arguments:?}: {stream}");
                assert!(
                    stream["udp"]["packets"].as_u64().unwrap() > 0,
                    "{arguments:?}: {stream}"
                );
            } else {
                counts.push((
                    stream["sender"]["bytes"].clone(),
                    stream["receiver"]["bytes"].clone(),
                ));
            }
        }
        if arguments.contains(&"--bidir") {
            let [sent, received] = ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"];
            counts.push((end[sent]["bytes"].clone(), end[received]["bytes"].clone()));
        }
        (report, counts)
    })
}

fn expected_streams(arguments: &[&str]) -> usize {
    let parallel = arguments
        .iter()
        .position(|argument| *argument == "-P")
        .map_or("1", |at| arguments[at + 1]);
    parallel.parse::<usize>().unwrap() * if arguments.contains(&"--bidir") { 2 } else { 1 }
}

fn every_direction(call: fn(&[&str]) -> Value, load: &[&str], streams: &str) {
    for direction in DIRECTIONS {
        call(&[load, direction, &["-t", "1", "-P", streams]].concat());
    }
}

#[test]
fn we_call_over_tcp_with_one_stream() {
    require!(Iperf3);
    every_direction(we_call, TCP, "1");
}

#[test]
fn we_call_over_tcp_with_three_streams() {
    require!(Iperf3);
    every_direction(we_call, TCP, "3");
}

#[test]
fn we_call_over_udp_with_one_stream() {
    require!(Iperf3);
    every_direction(we_call, UDP, "1");
}

#[test]
fn we_call_over_udp_with_three_streams() {
    require!(Iperf3);
    every_direction(we_call, UDP, "3");
}

#[test]
fn they_call_over_tcp_with_one_stream() {
    require!(Iperf3);
    every_direction(they_call, TCP, "1");
}

#[test]
fn they_call_over_tcp_with_three_streams() {
    require!(Iperf3);
    every_direction(they_call, TCP, "3");
}

#[test]
fn they_call_over_udp_with_one_stream() {
    require!(Iperf3);
    every_direction(they_call, UDP, "1");
}

#[test]
fn they_call_over_udp_with_three_streams() {
    require!(Iperf3);
    every_direction(they_call, UDP, "3");
}

/// Options that both programs have under the same letter, each with the load that it acts on.
const OPTIONS: [&[&str]; 17] = [
    &["-n", "3M"],
    &["-k", "40", "-l", "64K"],
    &["-t", "1", "-i", "0.1"],
    &["-t", "1", "-b", "20M/10", "-l", "8K"],
    &["-t", "1", "--fq-rate", "50M", "-l", "8K"],
    &["-n", "2M", "-w", "256K"],
    &["-n", "2M", "-M", "1000"],
    &["-n", "2M", "-N", "-l", "1000"],
    &["-n", "2M", "-C", "reno"],
    &["-n", "2M", "-S", "0x20"],
    &["-n", "2M", "--dscp", "ef"],
    &["-n", "2M", "-B", "127.0.0.1"],
    &["-n", "2M", "--bind-dev", "lo"],
    &["-n", "2M", "-4"],
    &["-n", "2M", "-Z"],
    &["-n", "2M", "--extra-data", "kept"],
    &["-n", "2M", "--get-server-output"],
];

fn every_option(call: fn(&[&str]) -> Value) {
    for option in OPTIONS {
        let rate = if option.contains(&"-b") { &[][..] } else { TCP };
        call(&[rate, option].concat());
    }
}

#[test]
fn we_call_with_every_option() {
    require!(Iperf3);
    every_option(we_call);
}

#[test]
fn they_call_with_every_option() {
    require!(Iperf3);
    every_option(they_call);
}

#[test]
fn the_clients_port_is_the_one_that_was_asked_for() {
    require!(Iperf3);
    for call in [we_call, they_call] {
        let port = free_port().to_string();
        call(&[TCP, &["-t", "1", "--cport", &port]].concat());
    }
}

#[test]
fn datagrams_are_limited_by_bytes_and_by_blocks() {
    require!(Iperf3);
    for limit in [&["-n", "500000"][..], &["-k", "500"]] {
        for direction in [&[][..], &["-R"]] {
            let arguments = [UDP, direction, limit].concat();
            let sent = we_call(&arguments)["streams"][0]["datagrams_sent"]
                .as_u64()
                .unwrap();
            // iperf3 as sender goes on until its client has counted enough.
            assert!(
                sent == 500 || direction == ["-R"] && sent > 500,
                "{arguments:?}: {sent}"
            );
            let theirs = they_call(&arguments);
            assert_eq!(
                theirs["end"]["streams"][0]["udp"]["packets"], 500,
                "{arguments:?}"
            );
        }
    }
}

#[test]
fn wide_counters_count_the_same() {
    require!(Iperf3);
    let arguments = [UDP, &["-t", "1", "--udp-counters-64bit"]].concat();
    we_call(&arguments);
    they_call(&arguments);
}

/// Datagrams that the relay drops: two alone, a run, and every hundredth up to the last.
fn is_listed(number: u64) -> bool {
    number == 3
        || number == 50
        || (200..=209).contains(&number)
        || (number > 300 && number.is_multiple_of(100))
}

/// 2 s at 4 Mbit/s in datagrams of 1000 bytes are 1000 of them, give or take what the end of the
/// time cuts off.
const SENT: std::ops::RangeInclusive<u64> = 970..=1030;

/// Lost among the first 936 of them: none of the last 64 is on the list.
const LOST: u64 = 2 + 10 + 6;

fn lossy(server: u16) -> Relay {
    Relay::start(server, |_: Heading, number| {
        number <= 936 && is_listed(number)
    })
}

const LOSSY: &[&str] = &["-u", "-b", "4M", "-l", "1000", "-t", "2"];

#[test]
fn listed_losses_are_counted_exactly_by_both_ends() {
    require!(Iperf3);
    for direction in [&[][..], &["-R"]] {
        let _slot = load_slot();
        let arguments = [LOSSY, direction].concat();

        let server = Server::iperf3();
        let stream = measured(lossy(server.port).port(), &arguments)["streams"][0].clone();
        server.finish();
        assert!(
            SENT.contains(&stream["datagrams_sent"].as_u64().unwrap()),
            "{stream}"
        );
        assert_eq!(
            stream["datagrams"]["lost"], LOST,
            "ours to iperf3, {direction:?}"
        );
        assert_eq!(
            stream["datagrams"]["lost_like_iperf3"], LOST,
            "ours to iperf3, {direction:?}"
        );

        let server = Server::fullpipe();
        let report = iperf3_measured(lossy(server.port).port(), &arguments);
        server.finish();
        let udp = &report["end"]["streams"][0]["udp"];
        assert!(SENT.contains(&udp["packets"].as_u64().unwrap()), "{udp}");
        assert_eq!(udp["lost_packets"], LOST, "iperf3 to ours, {direction:?}");

        let server = Server::fullpipe();
        let stream = measured(lossy(server.port).port(), &arguments)["streams"][0].clone();
        server.finish();
        let seen = &stream["datagrams"];
        assert_eq!(
            (&seen["lost"], &seen["duplicated"], &seen["reordered"]),
            (&LOST.into(), &0.into(), &0.into())
        );
        assert_eq!(
            seen["dropped_here"], 0,
            "ours to ours, {direction:?}: {seen}"
        );
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn what_is_omitted_is_counted_by_neither() {
        require!(Iperf3);
        let arguments = [TCP, &["-t", "1", "-O", "1"]].concat();
        we_call(&arguments);
        they_call(&arguments);
    }

    /// The most streams that either permits, TCP and UDP, at little load.
    #[test]
    fn a_hundred_and_twenty_eight_streams() {
        require!(Iperf3);
        for transport in [&["-l", "500"][..], &["-u", "-l", "500"]] {
            let arguments = [transport, &["-b", "400K", "-t", "1", "-P", "128"]].concat();
            we_call(&arguments);
            they_call(&arguments);
        }
    }
}

//! `fullpipe iperf3` in place of the real one: over loopback both print the same keys of the JSON
//! and the same lines of the text.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Running, document, free_port, load_slot, require, wait_for_listener, within,
};
use rustix::process::Signal;
use serde_json::Value;

/// Longest time that a program may take in addition to its load, in seconds.
const GRACE: u64 = 15;

/// The program at one end of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    Iperf3,
    Fullpipe,
}

impl Program {
    fn command(self) -> Command {
        match self {
            Self::Iperf3 => Command::new("iperf3"),
            Self::Fullpipe => fullpipe(&["iperf3"]),
        }
    }
}

/// Runs one test and returns the outputs of the client and of the server, each started with its own
/// arguments.
fn test(
    client: Program,
    of_client: &[&str],
    server: Program,
    of_server: &[&str],
) -> (Output, Output) {
    let port = free_port();
    let mut command = server.command();
    let serving = Running::start(
        command
            .args(["-s", "-1", "-p", &port.to_string()])
            .args(of_server),
    );
    wait_for_listener(port);
    let mut command = client.command();
    let asked = run(
        command
            .args(["-c", "127.0.0.1", "-p", &port.to_string()])
            .args(of_client),
        5 + GRACE,
    );
    (asked, serving.finish(Duration::from_secs(GRACE)))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    let text = text(output);
    assert!(
        output.status.success(),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Collects every key of `real` that `ours` lacks or has as another type.
fn lacking(real: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(real), Value::Object(ours)) => {
            for (key, value) in real {
                match ours.get(key) {
                    Some(same) => lacking(value, same, &format!("{at}.{key}"), found),
                    None => found.push(format!("{at}.{key} is missing")),
                }
            }
        }
        (Value::Array(real), Value::Array(ours)) => match (real.first(), ours.first()) {
            (Some(value), Some(same)) => lacking(value, same, &format!("{at}[]"), found),
            (Some(_), None) => found.push(format!("{at} is empty")),
            (None, _) => {}
        },
        (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_))
        | (Value::Bool(_), Value::Bool(_)) => {}
        _ => found.push(format!("{at} is {ours}, and {real} in iperf3")),
    }
}

fn assert_has_every_key_of(real: &Value, ours: &Value) {
    let mut found = Vec::new();
    lacking(real, ours, "", &mut found);
    assert!(
        found.is_empty(),
        "{found:#?}\niperf3: {real:#}\nfullpipe: {ours:#}"
    );
}

/// The client's JSON of a test with `arguments` has every key of the real client's, each against
/// the real server.
fn client_has_every_key(arguments: &[&str]) {
    let _slot = load_slot();
    let arguments = [&["-J", "-t", "1"], arguments].concat();
    let (real, _) = test(Program::Iperf3, &arguments, Program::Iperf3, &[]);
    let (ours, _) = test(Program::Fullpipe, &arguments, Program::Iperf3, &[]);
    let (real, ours) = (json(&real), json(&ours));
    assert_has_every_key_of(&real, &ours);
    let streams = |document: &Value| document["end"]["streams"].as_array().map(Vec::len);
    assert_eq!(streams(&real), streams(&ours));
    assert_eq!(
        real["start"]["test_start"]["protocol"],
        ours["start"]["test_start"]["protocol"]
    );
    // A datagram is what the path's packets hold, of which the kernel knows a little more after the
    // first of them.
    let block = |document: &Value| document["start"]["test_start"]["blksize"].as_f64().unwrap();
    assert!(
        (block(&real) / block(&ours) - 1.0).abs() < 0.01,
        "{} and {}",
        block(&real),
        block(&ours)
    );
}

/// The server's JSON of the same test has every key of the real server's, each with the real
/// client.
fn server_has_every_key(arguments: &[&str]) {
    let _slot = load_slot();
    let arguments = [&["-t", "1"], arguments].concat();
    let (_, real) = test(Program::Iperf3, &arguments, Program::Iperf3, &["-J"]);
    let (_, ours) = test(Program::Iperf3, &arguments, Program::Fullpipe, &["-J"]);
    assert_has_every_key_of(&json(&real), &json(&ours));
}

/// A line without what differs from run to run: numbers, prefixes of units, how often a space
/// stands.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let is_number = |word: &str| {
            word.trim_matches(['(', ')', '%', ']', '['])
                .parse::<f64>()
                .is_ok()
        };
        let word = match word {
            "Cookie:" => return "Cookie".to_owned(),
            "Time:" => return "Time".to_owned(),
            "CPU" => {
                return line
                    .split(' ')
                    .filter(|word| word.contains('/'))
                    .take(1)
                    .collect();
            }
            "iperf" if line.contains("3.12") => return "version".to_owned(),
            word if word.ends_with("bits/sec") => "bits/sec",
            word if word.ends_with("Bytes") => "Bytes",
            word if word.ends_with("Bytes/sec") => "Bytes/sec",
            word if is_number(word) => "#",
            word if word.contains("][") => word.trim_start_matches(|c: char| c.is_ascii_digit()),
            word if word.split(['-', '/']).all(is_number) => "#-#",
            word => word,
        };
        shape += word;
        shape.push(' ');
    }
    // A stream's number of two digits follows its bracket without a space.
    shape.replace("[ # ", "[#] ")
}

fn shapes(output: &Output) -> BTreeSet<String> {
    text(output).lines().map(shape).collect()
}

fn assert_same_shapes(real: &Output, ours: &Output) {
    let (real_shapes, our_shapes) = (shapes(real), shapes(ours));
    assert_eq!(
        real_shapes,
        our_shapes,
        "iperf3:\n{}\nfullpipe:\n{}",
        text(real),
        text(ours)
    );
}

/// Asserts that client and server print the lines that the real ones print, each with a real one at
/// the other end.
fn prints_the_same_lines(of_client: &[&str], of_server: &[&str]) {
    let _slot = load_slot();
    let of_client = [&["-t", "2"], of_client].concat();
    let (real, real_server) = test(Program::Iperf3, &of_client, Program::Iperf3, of_server);
    let (ours, _) = test(Program::Fullpipe, &of_client, Program::Iperf3, of_server);
    assert_same_shapes(&real, &ours);
    let (_, our_server) = test(Program::Iperf3, &of_client, Program::Fullpipe, of_server);
    assert_same_shapes(&real_server, &our_server);
}

/// Runs both programs with the same arguments, with which no test begins.
fn both(arguments: &[&str]) -> (Output, Output) {
    let run = |program: Program| run(program.command().args(arguments), GRACE);
    (run(Program::Iperf3), run(Program::Fullpipe))
}

/// Returns the first line on standard error.
fn first_error_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn tcp_has_every_key() {
    require!(Iperf3);
    for direction in [&[][..], &["-R"], &["--bidir"]] {
        client_has_every_key(direction);
        server_has_every_key(direction);
    }
}

#[test]
fn udp_has_every_key() {
    require!(Iperf3);
    for direction in [&["-u"][..], &["-u", "-R"], &["-u", "--bidir", "-P", "2"]] {
        client_has_every_key(direction);
        server_has_every_key(direction);
    }
}

#[test]
fn many_options_have_every_key() {
    require!(Iperf3);
    let arguments = [
        "-P",
        "2",
        "-O",
        "1",
        "-w",
        "256K",
        "-M",
        "1000",
        "-C",
        "reno",
        "-b",
        "20M",
        "-N",
        "-S",
        "0x10",
        "-T",
        "title",
        "--extra-data",
        "text",
        "--get-server-output",
    ];
    client_has_every_key(&arguments);
    server_has_every_key(&arguments);
}

#[test]
fn tcp_is_printed_line_by_line() {
    require!(Iperf3);
    prints_the_same_lines(&["-O", "1", "-T", "title", "-f", "K"], &[]);
    prints_the_same_lines(&["-R", "-P", "2", "-V", "-b", "20M"], &["-V"]);
    prints_the_same_lines(&["--bidir", "-P", "2", "-V"], &["-V"]);
}

#[test]
fn udp_is_printed_line_by_line() {
    require!(Iperf3);
    prints_the_same_lines(&["-u", "-P", "2", "-V"], &["-V"]);
    prints_the_same_lines(&["-u", "-R"], &[]);
    prints_the_same_lines(&["-u", "--bidir"], &[]);
}

#[test]
fn a_client_that_asks_for_it_is_reported_what_the_server_printed() {
    require!(Iperf3);
    let _slot = load_slot();
    for arguments in [&["-t", "2", "-P", "2"][..], &["-t", "2", "-u", "--bidir"]] {
        let arguments = [arguments, &["--get-server-output"]].concat();
        let (real, _) = test(Program::Iperf3, &arguments, Program::Iperf3, &[]);
        let (ours, _) = test(Program::Iperf3, &arguments, Program::Fullpipe, &[]);
        assert_same_shapes(&real, &ours);
        assert!(
            text(&ours).contains("\nServer output:\nAccepted connection from "),
            "{}",
            text(&ours)
        );
        let (ours, _) = test(Program::Fullpipe, &arguments, Program::Fullpipe, &[]);
        assert_same_shapes(&real, &ours);
    }
}

#[test]
fn a_servers_json_is_kept_as_json() {
    require!(Iperf3);
    let _slot = load_slot();
    let asked = ["-J", "-t", "1", "--get-server-output"];
    let (real, _) = test(Program::Iperf3, &asked, Program::Iperf3, &["-J"]);
    let (ours, _) = test(Program::Fullpipe, &asked, Program::Iperf3, &["-J"]);
    assert!(json(&ours)["server_output_json"]["intervals"].is_array());
    assert_has_every_key_of(&json(&real), &json(&ours));
}

#[test]
fn a_server_for_one_test_that_never_comes_ends_as_iperf3_does() {
    require!(Iperf3);
    let port = free_port().to_string();
    let (real, ours) = both(&["-s", "-1", "--idle-timeout", "1", "-p", &port]);
    assert_eq!(real.status.code(), ours.status.code());
    assert_eq!(shapes(&real), shapes(&ours));
    assert_eq!(first_error_line(&real), first_error_line(&ours));
}

#[test]
fn an_interrupt_prints_what_there_is() {
    require!(Iperf3);
    let _slot = load_slot();
    let stopped = |program: Program| {
        let port = free_port();
        let _server =
            Running::start(
                Program::Iperf3
                    .command()
                    .args(["-s", "-1", "-p", &port.to_string()]),
            );
        wait_for_listener(port);
        let client = Running::start(program.command().args([
            "-c",
            "127.0.0.1",
            "-b",
            "10M",
            "-p",
            &port.to_string(),
        ]));
        std::thread::sleep(Duration::from_millis(3_500));
        client.interrupt();
        client.finish(Duration::from_secs(GRACE))
    };
    let (real, ours) = (stopped(Program::Iperf3), stopped(Program::Fullpipe));
    assert_eq!(first_error_line(&real), first_error_line(&ours));
    assert_eq!((real.status.code(), ours.status.code()), (Some(1), Some(1)));
    assert_same_shapes(&real, &ours);
}

#[test]
fn a_server_prints_a_document_for_a_test_that_it_refuses() {
    require!(Iperf3);
    let refused = |server| {
        let (_, output) = test(
            Program::Iperf3,
            &["-b", "5M"],
            server,
            &["-J", "--server-bitrate-limit", "1M"],
        );
        let document: Value = serde_json::from_str(&text(&output)).unwrap_or_default();
        document["error"].clone()
    };
    assert_eq!(refused(Program::Fullpipe), refused(Program::Iperf3));
}

#[test]
fn a_server_that_is_stopped_in_mid_test_prints_what_there_is() {
    require!(Iperf3);
    let stopped = |program: Program| {
        let port = free_port();
        let server = Running::start(program.command().args(["-s", "-p", &port.to_string()]));
        wait_for_listener(port);
        let arguments = ["-c", "127.0.0.1", "-b", "10M", "-p", &port.to_string()];
        let _client = Running::start(Program::Iperf3.command().args(arguments));
        std::thread::sleep(Duration::from_millis(1_500));
        server.interrupt();
        server.finish(Duration::from_secs(GRACE))
    };
    let (real, ours) = (stopped(Program::Iperf3), stopped(Program::Fullpipe));
    assert_eq!(first_error_line(&real), first_error_line(&ours));
    assert_eq!((real.status.code(), ours.status.code()), (Some(1), Some(1)));
    for output in [&real, &ours] {
        assert!(text(output).contains("receiver"), "{}", text(output));
    }
}

/// Bytes of 2.98 s were once stated over the 2 s of the whole intervals, and of a download the 38
/// bytes that the client itself had sent.
#[test]
fn a_summary_after_the_server_died_has_bytes_and_seconds_of_one_moment() {
    let _slot = load_slot();
    for reverse in [&[][..], &["-R"]] {
        let port = free_port();
        let mut server =
            Running::start(
                Program::Fullpipe
                    .command()
                    .args(["-s", "-p", &port.to_string()]),
            );
        wait_for_listener(port);
        let asked = [
            "-c",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-b",
            "50M",
            "-t",
            "6",
            "-J",
        ];
        let client = Running::start(Program::Fullpipe.command().args(asked).args(reverse));
        std::thread::sleep(Duration::from_millis(2_800));
        server.kill();
        let output = client.finish(Duration::from_secs(GRACE));
        assert_eq!(output.status.code(), Some(1));
        let document: Value = serde_json::from_str(&text(&output)).unwrap();
        let end = |sum: &str, key: &str| document["end"][sum][key].as_f64().unwrap();
        let known = if reverse.is_empty() {
            "sum_sent"
        } else {
            "sum_received"
        };
        let rate = end(known, "bits_per_second") / 50e6;
        assert!((rate - 1.0).abs() < 0.03, "{rate}: {:#}", document["end"]);
        let last = document["intervals"]
            .as_array()
            .and_then(|all| all.last())
            .unwrap()["sum"]["end"]
            .as_f64()
            .unwrap();
        assert!(
            end(known, "seconds") - last < 0.1 && last > 2.0,
            "{last}: {:#}",
            document["end"]
        );
        if !reverse.is_empty() {
            assert_eq!(
                (end("sum_sent", "bytes"), end("sum_sent", "bits_per_second")),
                (0.0, 0.0)
            );
        }
    }
}

/// Stops a program for the first 3 of each 10 ms, as other work on its host does, for `time`.
fn hinder(program: &Running, time: Duration) {
    let begun = std::time::Instant::now();
    let pid = rustix::process::Pid::from_raw(program.pid().cast_signed()).unwrap();
    while begun.elapsed() < time {
        for (signal, millis) in [(Signal::STOP, 3), (Signal::CONT, 7)] {
            // The program may have ended, and is not waited for yet.
            let _ = rustix::process::kill_process(pid, signal);
            std::thread::sleep(Duration::from_millis(millis));
        }
    }
}

/// A client that lost the processor for 3 ms in 10 once sent 84 of 100 Mbit/s, and did not say so.
#[test]
fn a_client_on_a_busy_host_keeps_its_rate_of_datagrams() {
    let _slot = load_slot();
    let port = free_port().to_string();
    let _server = Running::start(&mut fullpipe(&["serve", "--no-iperf2", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let host = format!("127.0.0.1:{port}");
    let load = ["-u", "-b", "40M", "-l", "1000", "-t", "2"];
    let hindered = |arguments: &[&str]| {
        let client = Running::start(fullpipe(arguments).args(load));
        hinder(&client, Duration::from_millis(2_500));
        client.finish(Duration::from_secs(GRACE))
    };
    let as_iperf3 = json(&hindered(&["iperf3", "-c", "127.0.0.1", "-p", &port, "-J"]));
    let rate = as_iperf3["end"]["sum_sent"]["bits_per_second"]
        .as_f64()
        .unwrap()
        / 40e6;
    assert!(rate > 0.97 && rate < 1.01, "{rate}");
    // Exit code 1 where it says so.
    let own = document(&hindered(&[
        "measure",
        &host,
        "--yes",
        "--no-store",
        "--json",
    ]));
    let (measured, broken) = (
        &own["measurement"],
        &own["measurement"]["validity"]["broken"],
    );
    let rate = measured["summary"]["rate"].as_f64().unwrap() / 40e6;
    // Other programs may take more of the processor, but then it must say so.
    let is_said = broken.to_string().contains("this end offered");
    assert!(rate < 1.01 && (rate > 0.985 || is_said), "{rate}: {broken}");
}

#[test]
fn a_stream_of_events_says_what_the_document_says() {
    require!(Iperf3);
    let _slot = load_slot();
    let (events, _) = test(
        Program::Fullpipe,
        &["--json-stream", "-t", "2"],
        Program::Iperf3,
        &[],
    );
    let (document, _) = test(Program::Fullpipe, &["-J", "-t", "2"], Program::Iperf3, &[]);
    let document = json(&document);
    let events: Vec<Value> = text(&events)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    // A late sample leaves a short interval at the end.
    let (first, last) = (names[0], names[names.len() - 1]);
    assert_eq!((first, last), ("start", "end"));
    assert!(
        names.len() >= 4
            && names[1..names.len() - 1]
                .iter()
                .all(|name| *name == "interval"),
        "{names:?}"
    );
    assert_has_every_key_of(&document["start"], &events[0]["data"]);
    assert_has_every_key_of(&document["intervals"][0], &events[1]["data"]);
    assert_has_every_key_of(&document["end"], &events[events.len() - 1]["data"]);
}

#[test]
fn what_goes_wrong_is_said_as_iperf3_says_it() {
    require!(Iperf3);
    let port = free_port().to_string();
    for arguments in [
        &["-c", "127.0.0.1", "-p", &port][..],
        &["-c", "127.0.0.1", "--no-such-flag"],
        &["-c", "127.0.0.1", "-Y"],
        &["-c", "127.0.0.1", "--bytes"],
        &["-c", "127.0.0.1", "--reverse=4"],
        &["-c", "127.0.0.1", "-P", "200"],
        &["-c", "127.0.0.1", "-t", "5", "-n", "1M"],
        &["-s", "-R"],
        &[],
    ] {
        let (real, ours) = both(arguments);
        assert_eq!(
            (real.status.code(), ours.status.code()),
            (Some(1), Some(1)),
            "{arguments:?}"
        );
        assert_eq!(
            first_error_line(&real),
            first_error_line(&ours),
            "{arguments:?}"
        );
        assert!(ours.stdout.is_empty(), "{arguments:?}");
    }
}

/// The reason that iperf3 prints for such a name is the number of an error that some module of the
/// resolver left (`libnss-mdns`: "Invalid argument").
#[test]
fn a_name_that_does_not_exist_is_reported_with_the_reason_of_the_resolver() {
    require!(Iperf3);
    let (real, ours) = both(&["-c", "no-such-host.invalid"]);
    assert_eq!((real.status.code(), ours.status.code()), (Some(1), Some(1)));
    let said = "iperf3: error - unable to connect to server: ";
    assert!(
        first_error_line(&real).starts_with(said),
        "{}",
        first_error_line(&real)
    );
    assert_eq!(
        first_error_line(&ours),
        format!("{said}Name or service not known")
    );
    assert!(ours.stdout.is_empty());
}

#[test]
fn json_holds_the_error_and_nothing_is_said_with_it() {
    require!(Iperf3);
    let port = free_port().to_string();
    let (real, ours) = both(&["-J", "-c", "127.0.0.1", "-p", &port]);
    let (real, said): (Value, Value) = (
        serde_json::from_slice(&real.stdout).unwrap(),
        serde_json::from_slice(&ours.stdout).unwrap(),
    );
    assert_has_every_key_of(&real, &said);
    assert_eq!(real["error"], said["error"]);
    assert!(ours.stderr.is_empty());
    assert_eq!(ours.status.code(), Some(1));
}

#[test]
fn a_server_that_is_busy_and_a_congestion_control_that_is_not_there_are_said_as_iperf3_says_them() {
    require!(Iperf3);
    let _slot = load_slot();
    let port = free_port().to_string();
    let _server = Running::start(Program::Iperf3.command().args(["-s", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let asked = ["-c", "127.0.0.1", "-p", &port];
    let (real, ours) = both(&[&asked[..], &["-C", "no-such-control"]].concat());
    assert_eq!(first_error_line(&real), first_error_line(&ours));
    let _first = Running::start(
        Program::Iperf3
            .command()
            .args(asked)
            .args(["-b", "1M", "-t", "20"]),
    );
    std::thread::sleep(Duration::from_millis(500));
    let (real, ours) = both(&asked);
    assert_eq!(first_error_line(&real), first_error_line(&ours));
    assert!(
        first_error_line(&ours).contains("busy"),
        "{}",
        first_error_line(&ours)
    );
}

#[test]
fn a_server_has_one_test_at_a_time_and_many_one_after_the_other() {
    require!(Iperf3);
    let _slot = load_slot();
    let port = free_port().to_string();
    let _server = Running::start(Program::Fullpipe.command().args(["-s", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let asked = ["-c", "127.0.0.1", "-p", &port];
    for _ in 0..5 {
        let short = run(
            Program::Iperf3.command().args(asked).args(["-n", "1K"]),
            GRACE,
        );
        assert!(short.status.success(), "{}", first_error_line(&short));
    }
    let _first = Running::start(
        Program::Iperf3
            .command()
            .args(asked)
            .args(["-b", "1M", "-t", "20"]),
    );
    std::thread::sleep(Duration::from_millis(500));
    let second = run(Program::Iperf3.command().args(asked), GRACE);
    assert_eq!(
        first_error_line(&second),
        "iperf3: error - the server is busy running a test. try again later"
    );
}

#[test]
fn a_port_that_is_taken_is_said_as_iperf3_says_it() {
    require!(Iperf3);
    let port = free_port();
    let _server = Running::start(
        Program::Iperf3
            .command()
            .args(["-s", "-p", &port.to_string()]),
    );
    wait_for_listener(port);
    let (real, ours) = both(&["-s", "-p", &port.to_string()]);
    assert_eq!(first_error_line(&real), first_error_line(&ours));
    assert_eq!(ours.status.code(), Some(1));
}

#[test]
fn much_udp_is_sent_with_a_warning_and_without_a_question() {
    require!(Iperf3);
    let _slot = load_slot();
    let (ours, _) = test(
        Program::Fullpipe,
        &["-u", "-b", "20M", "-t", "1"],
        Program::Iperf3,
        &[],
    );
    assert!(ours.status.success());
    assert!(
        first_error_line(&ours).contains("warning: 20 Mbit/s of UDP"),
        "{}",
        first_error_line(&ours)
    );
    assert!(text(&ours).contains("iperf Done."));

    let large = ["-u", "-l", "40000", "-t", "1"];
    let (real, _) = test(Program::Iperf3, &large, Program::Iperf3, &[]);
    let (ours, _) = test(Program::Fullpipe, &large, Program::Iperf3, &[]);
    // The MSS that the kernel states for the control connection grows with the first packets.
    let without_mss =
        |output: &Output| first_error_line(output).replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(without_mss(&real), without_mss(&ours));
    assert!(
        first_error_line(&ours).contains("block size 40000 exceeds TCP MSS"),
        "{}",
        first_error_line(&ours)
    );
}

#[test]
fn under_the_name_of_iperf3_it_is_iperf3() {
    let name = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("iperf3");
    let _ = std::fs::remove_file(&name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fullpipe"), &name).unwrap();
    let output = run(Command::new(&name).arg("--version"), GRACE);
    assert!(output.status.success());
    assert!(
        text(&output).starts_with("iperf 3.12 (fullpipe "),
        "{}",
        text(&output)
    );
    let output = run(Command::new(&name).arg("--sctp"), GRACE);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        first_error_line(&output).starts_with("iperf3: parameter error - --sctp is not supported")
    );
}

#[test]
fn a_server_goes_on_in_the_background_and_leaves_its_number() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (pidfile, logfile) = (directory.join("drop_in.pid"), directory.join("drop_in.log"));
    let _ = std::fs::remove_file(&logfile);
    let port = free_port();
    let mut command = fullpipe(&["iperf3", "-s1D", "-p", &port.to_string(), "-I"]);
    let started = run(command.arg(&pidfile).arg("--logfile").arg(&logfile), GRACE);
    assert!(
        started.status.success() && started.stdout.is_empty(),
        "{started:?}"
    );
    wait_for_listener(port);
    let pid: u32 = std::fs::read_to_string(&pidfile).unwrap().parse().unwrap();
    assert_ne!(pid, std::process::id());
    let asked = run(
        &mut fullpipe(&[
            "iperf3",
            "-c",
            "127.0.0.1",
            "-n",
            "1M",
            "-p",
            &port.to_string(),
        ]),
        GRACE,
    );
    assert!(asked.status.success(), "{asked:?}");
    assert!(within(Duration::from_secs(GRACE), || !pidfile.exists()));
    let log = std::fs::read_to_string(&logfile).unwrap();
    assert!(
        log.contains("Accepted connection from 127.0.0.1") && log.contains("receiver"),
        "{log}"
    );
}

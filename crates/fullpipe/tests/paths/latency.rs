//! Round trips during a load: they are measured on a flow of their own, and they are right.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Fate, Heading, Relay, Running, document, free_port, path, require, valid_within,
    wait_for_listener, within,
};
use serde_json::Value;

/// Longest time for one measurement, in seconds.
const TIMEOUT: u64 = 60;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");

fn figure(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no figure: {value}"))
}

/// A server on loopback that ends with its test.
fn serve() -> (Running, u16) {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    (server, port)
}

/// Returns the round trips of a measurement over loopback.
fn over_loopback(port: u16, more: &[&str]) -> Value {
    // The one congestion control that ordinary users may choose on every host
    // (tcp_allowed_congestion_control).
    let arguments = [
        "measure",
        "127.0.0.1",
        "--json",
        "-C",
        "reno",
        "-p",
        &port.to_string(),
    ];
    let output = run(fullpipe(&arguments).args(more), TIMEOUT);
    document(&output)["measurement"]["rtt"].clone()
}

/// Returns a reason to discard the samples of `rtt`: the machine did not run the thread of the
/// program for too long a time.
fn starved(rtt: &Value) -> Vec<String> {
    const MAX_SECONDS: f64 = 0.2;
    let sent: Vec<f64> = rtt["echoes"]["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|echo| figure(&echo["at"]))
        .collect();
    let longest = sent
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    (longest > MAX_SECONDS)
        .then(|| format!("no request was sent for {longest} s"))
        .into_iter()
        .collect()
}

#[test]
fn there_are_samples_before_during_and_after_a_load_of_either_kind() {
    let (_server, port) = serve();
    for load in [
        &["-R"][..],
        &["--bidir"],
        &["-u", "-b", "5M"],
        &["-u", "-b", "5M", "-R"],
    ] {
        let rtt = over_loopback(port, &[&["-t", "1"], load].concat());
        let sent = |phase: &str| figure(&rtt["echoes"][phase]["sent"]);
        assert!(
            sent("before") + sent("after") > 0.0 && sent("during") > 0.0,
            "{load:?}: {rtt}"
        );
        assert!(
            figure(&rtt["inflation"]["ratio"]) > 0.0
                && figure(&rtt["responsiveness"]["per_minute"]) > 0.0
        );
        let is_udp = load.contains(&"-u");
        assert_eq!(
            rtt["responsiveness"]["by_load"].is_null(),
            is_udp,
            "datagrams carry no round trips: {rtt}"
        );
    }
}

/// A measurement of a server that `serve` starts, in a network of their own where ping sockets are
/// closed to all, by a program that `starter` runs.
fn without_ping_sockets(serve: &str, starter: &str, load: &str) -> Value {
    // The port in hexadecimal and the state of a socket that listens, as in /proc/net/tcp.
    let script = format!(
        "ip link set lo up; echo '1 0' > /proc/sys/net/ipv4/ping_group_range; {serve} >/dev/null 2>&1 & \
         n=0; until grep -q ':1451 .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ $n -gt 200 ]; do \
         sleep 0.05; n=$((n+1)); done; exec {starter} {PROGRAM} measure {load} --json"
    );
    let mut command = Command::new("unshare");
    // What is left ends with the program that measures.
    command.args([
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        &script,
    ]);
    document(&run(&mut command, TIMEOUT))["measurement"].clone()
}

/// Runs a program as nobody, who may not use raw sockets either.
const AS_NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn where_ping_sockets_are_closed_a_raw_one_does() {
    require!(Root, Unshare);
    for address in ["127.0.0.1", "::1"] {
        let load = format!("{address} -t 0.5 -b 50M");
        let rtt = without_ping_sockets(&format!("{PROGRAM} serve"), "", &load)["rtt"].clone();
        let during = &rtt["echoes"]["during"];
        assert_eq!(
            (&rtt["method"], &during["lost"]),
            (&"icmp".into(), &0.into()),
            "{address}: {rtt}"
        );
        assert!(figure(&during["host"]["count"]) > 0.0, "stamped: {during}");
    }
}

#[test]
fn where_echo_requests_are_not_permitted_the_server_answers_datagrams() {
    require!(Root, Unshare);
    for load in [
        "127.0.0.1 -t 1 -b 50M",
        "127.0.0.1 -t 1 -u -b 5M",
        "::1 -t 1 -b 50M",
    ] {
        let rtt = without_ping_sockets(&format!("{PROGRAM} serve"), AS_NOBODY, load)["rtt"].clone();
        assert_eq!(rtt["method"], "udp-echo", "{load}: {rtt}");
        let during = &rtt["echoes"]["during"];
        assert!(
            figure(&during["rtt"]["count"]) > 10.0 && figure(&during["host"]["count"]) > 0.0,
            "{load}: {during}"
        );
        let before = &rtt["echoes"]["before"];
        assert!(
            !load.contains("-u") || figure(&before["sent"]) > figure(&before["lost"]),
            "{load}: waited for: {rtt}"
        );
        assert!(
            figure(&rtt["echoes"]["after"]["sent"]) > 0.0,
            "answered after the test too: {rtt}"
        );
        // Within the host, and less what the server took: nothing is left but the kernel's way.
        assert!(figure(&rtt["idle"]["min"]) < 5e-3, "{rtt}");
    }
}

#[test]
fn where_nobody_answers_the_kernels_estimate_is_said_to_be_one() {
    require!(Root, Unshare, Iperf3);
    for load in ["127.0.0.1 -t 1 -b 50M", "127.0.0.1 -t 1 -u -b 5M"] {
        let measurement = without_ping_sockets("iperf3 -s", AS_NOBODY, load);
        assert!(
            figure(&measurement["summary"]["received"]) > 0.0,
            "{load}: {measurement}"
        );
        assert_eq!(
            (&measurement["rtt"]["method"], &measurement["rtt"]["echoes"]),
            (&"tcp-info".into(), &Value::Null)
        );
    }
}

/// Time in which the queue of [`full_queue`] drains, in seconds.
const QUEUE: f64 = 151_400.0 * 8.0 / 20e6;

/// A scenario of one TCP stream over 20 Mbit/s × 20 ms with a queue of 100 packets, which it fills.
fn full_queue() -> String {
    let text = "name = \"queue\"\ntitle = \"A queue that stays full\"\n\n\
                [path]\nrate = \"20Mbit/s\"\nrtt = \"20ms\"\nqueue = \"151400B\"\n\n\
                [[step]]\nname = \"as it is\"\nduration = \"6s\"\n";
    // One file a process: tests of one binary write the same.
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("queue-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns the round trips of the last run of [`full_queue`], and the reasons for which it may not
/// be judged.
fn tcp_over_a_full_queue() -> (Value, Vec<String>) {
    let output = run(
        &mut fullpipe(&["lab", "run", &full_queue(), "--json"]),
        2 * TIMEOUT,
    );
    let runs = document(&output)["lab"][0]["steps"][0]["runs"].clone();
    let last = runs
        .as_array()
        .and_then(|runs| runs.last())
        .cloned()
        .unwrap_or_default();
    let broken = last["validity"]["broken"].as_array();
    let reasons = broken.map_or(vec!["no run".to_owned()], |broken| {
        broken.iter().map(ToString::to_string).collect()
    });
    (last["rtt"].clone(), reasons)
}

/// Returns the round trips of the same path under datagrams at 1.2 times its rate, and the reasons
/// against judging them.
fn datagrams_over_a_full_queue() -> (Value, Vec<String>) {
    // The keeper of the lab, which has number 1 here, holds the networks of both hosts open.
    let script = format!(
        "own=$(readlink /proc/self/ns/net); for fd in /proc/1/fd/*; do ns=$(readlink $fd); \
         case $ns in $own) ;; net:*) other=$fd ;; esac; done; \
         nsenter --net=$other {PROGRAM} serve >/dev/null 2>&1 & \
         n=0; until nsenter --net=$other grep -q ':1451 .* 0A ' /proc/net/tcp6 /proc/net/tcp || [ $n -gt 200 ]; do \
         sleep 0.05; n=$((n+1)); done; \
         exec {PROGRAM} measure 198.18.0.2 -u -b 24M --yes -t 3 --json"
    );
    let output = run(
        &mut fullpipe(&[
            "lab",
            "exec",
            &full_queue(),
            "sender",
            "--",
            "sh",
            "-c",
            &script,
        ]),
        TIMEOUT,
    );
    let rtt = document(&output)["measurement"]["rtt"].clone();
    let broken = starved(&rtt);
    (rtt, broken)
}

/// Adds that the machine was too late for the path, where it shows before there is any load.
fn on_time((rtt, mut broken): (Value, Vec<String>)) -> (Value, Vec<String>) {
    let before = rtt["echoes"]["before"]["rtt"]["median"].as_f64();
    if let Some(before) = before.filter(|before| (before / 20e-3 - 1.0).abs() > 0.05) {
        broken.push(format!(
            "round trips took {before} s before there was a load"
        ));
    }
    (rtt, broken)
}

/// Bytes of an echo request of the test with this `cookie`, as the server has it.
fn echo_request(cookie: &[u8; 37], number: u64) -> Vec<u8> {
    [
        &b"FPEC\x01\0\0\0"[..],
        cookie,
        &[0; 3],
        &[0; 8],
        &number.to_be_bytes(),
    ]
    .concat()
}

/// Sends `request` from `socket` to the server at `port` and returns the reply, if one comes within
/// `timeout`.
fn echoed(socket: &UdpSocket, port: u16, request: &[u8], timeout: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket
        .send_to(request, (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    let mut buffer = [0; 2000];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    Some(buffer[..length].to_vec())
}

#[test]
fn only_the_address_of_a_test_gets_echoes_and_none_is_longer_than_its_request() {
    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(100);
    let (_server, port) = serve();
    let cookie = b"abcdefghijklmnopqrstuvwxyz2345672345\0";
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    let request = echo_request(cookie, 7);
    assert_eq!(
        echoed(&own, port, &request, SHORT),
        None,
        "there is no test yet"
    );

    let mut control = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    control.write_all(cookie).unwrap();
    control.read_exact(&mut [0]).unwrap();
    let answer = echoed(&own, port, &request, LONG).expect("the test's own address is answered");
    assert_eq!(
        (answer.len(), &answer[4..8], &answer[56..]),
        (request.len(), &[2, 0, 0, 0][..], &request[56..])
    );
    let residence = u64::from_be_bytes(*answer[48..].first_chunk().unwrap());
    assert!(residence > 0, "the server stamps what arrives");
    assert_eq!(
        echoed(&other, port, &request, SHORT),
        None,
        "another address"
    );
    for wrong in [
        &echo_request(&[b'a'; 37], 7),
        &request[..63],
        &[&request[..], &[0]].concat(),
        &answer,
    ] {
        assert_eq!(echoed(&own, port, wrong, SHORT), None);
    }

    drop(control);
    assert!(
        echoed(&own, port, &request, LONG).is_some(),
        "a moment after the test still"
    );
    assert!(
        within(LONG, || echoed(&own, port, &request, SHORT).is_none()),
        "but not for ever"
    );
}

/// Returns the figures of a server that receives 60 datagrams, one each 25 ms, as `fates` lets them
/// pass, and the lateness of the relay.
fn seen_through(fates: impl Fn(u64) -> Fate + Send + Sync + 'static) -> (Value, Duration) {
    let (_server, port) = serve();
    let relay = Relay::with_fates(port, move |heading, number| match heading {
        Heading::ToServer => fates(number),
        Heading::ToClient => Fate::Passes,
    });
    let relayed = relay.port().to_string();
    let arguments = [
        "measure",
        "127.0.0.1",
        "--json",
        "-u",
        "-l",
        "1000",
        "-b",
        "320k",
        "-n",
        "60000",
        "-p",
        &relayed,
    ];
    let output = run(&mut fullpipe(&arguments), TIMEOUT);
    (
        document(&output)["measurement"]["summary"]["datagrams"].clone(),
        relay.lateness(),
    )
}

#[test]
fn jitter_and_reordering_of_a_path_are_found() {
    const PLANTED: Duration = Duration::from_millis(10);
    // Every change is of 10 ms, and each counts a sixteenth: after 59 of them 98 % are there.
    let seen = valid_within(5, || {
        let (seen, late) = seen_through(|number| {
            if number % 2 == 0 {
                Fate::Waits(PLANTED)
            } else {
                Fate::Passes
            }
        });
        let starved = late > PLANTED / 5;
        (
            seen,
            starved
                .then(|| format!("a datagram was {late:?} late"))
                .into_iter()
                .collect(),
        )
    });
    let jitter = figure(&seen["jitter"]);
    assert!(
        (8e-3..14e-3).contains(&jitter),
        "{jitter} s of jitter where 10 ms are planted"
    );
    assert_eq!(
        (&seen["received"], &seen["reordered"], &seen["lost"]),
        (&60.into(), &0.into(), &0.into())
    );

    let (seen, _) = seen_through(|number| {
        if [10, 30, 50].contains(&number) {
            Fate::Follows(3)
        } else {
            Fate::Passes
        }
    });
    assert_eq!(
        (&seen["received"], &seen["reordered"], &seen["lost"]),
        (&60.into(), &3.into(), &0.into()),
        "{seen}"
    );
    assert_eq!(seen["reordering_extent"], 3, "{seen}");
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn an_engine_that_takes_all_it_can_does_not_delay_the_samples_with_it() {
        let _path = path();
        let (_server, port) = serve();
        let rtt = valid_within(5, || {
            let rtt = over_loopback(port, &["-t", "2"]);
            let broken = starved(&rtt);
            (rtt, broken)
        });
        // Some hosts have no ping sockets for ordinary users (net.ipv4.ping_group_range): the
        // server answers then.
        assert!(
            ["icmp", "udp-echo"].contains(&rtt["method"].as_str().unwrap()),
            "{rtt}"
        );
        let (idle, loaded) = (
            figure(&rtt["idle"]["median"]),
            figure(&rtt["loaded"]["median"]),
        );
        let during = &rtt["echoes"]["during"];
        assert!(
            figure(&during["sent"]) > 50.0 && figure(&during["lost"]) == 0.0,
            "{during}"
        );
        // The time that the program waited for its processor is reported next to the round trips,
        // not as a part of them.
        assert!(figure(&during["host"]["median"]) > 0.0, "{during}");
        assert!(loaded - idle < 100e-6, "{idle} s idle, {loaded} s loaded");
    }

    #[test]
    fn round_trips_grow_by_what_a_full_queue_holds() {
        require!(Lab, Root, Unshare);
        let _path = path();
        // A loss-based stream fills a drop-tail queue again and again; datagrams that are too many
        // keep it full.
        let tcp = valid_within(3, || on_time(tcp_over_a_full_queue()));
        let datagrams = valid_within(3, || on_time(datagrams_over_a_full_queue()));
        for (rtt, full) in [(tcp, "p99"), (datagrams, "median")] {
            assert_eq!(rtt["method"], "icmp", "{rtt}");
            let idle = figure(&rtt["idle"]["median"]);
            let grown = figure(&rtt["loaded"][full]) - idle;
            assert!((idle / 20e-3 - 1.0).abs() < 0.05, "{full}: {idle} s idle");
            assert!(
                (grown / QUEUE - 1.0).abs() < 0.05,
                "{full}: {grown} s more, where the queue holds {QUEUE} s"
            );
            let echoes = &rtt["echoes"];
            let after = figure(&echoes["after"]["rtt"]["median"]);
            assert!(
                (after / 20e-3 - 1.0).abs() < 0.1,
                "{full}: {after} s when the queue has emptied"
            );
            let lost = &echoes["during"]["lost"];
            assert!(
                figure(lost) < 10.0,
                "{full}: echo requests are small and seldom lost: {lost}"
            );
        }
    }
}

//! The server as a service: in the background, with a log, for a while, and for iperf2 clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{Running, free_port, sentence, wait_for_listener, within};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const PROMPT: Duration = Duration::from_secs(10);

/// A file of this test that is gone when it is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(
            PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("serve-{}-{name}", std::process::id())),
        )
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    stream
}

/// Returns the output of a server that ends by itself.
fn printed(server: Running) -> String {
    let output = server.finish(PROMPT);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_daemon_can_be_reached_when_its_starter_returns() {
    let (pid, log) = (Scratch::new("daemon.pid"), Scratch::new("daemon.log"));
    let port = free_port();
    let arguments = [
        "serve",
        "-D",
        "-p",
        &port.to_string(),
        "--pidfile",
        pid.path(),
        "--logfile",
        log.path(),
    ];
    let started = run(&mut fullpipe(&arguments), 10);
    assert!(
        started.status.success(),
        "{}",
        String::from_utf8_lossy(&started.stderr)
    );
    let said = String::from_utf8(started.stdout).unwrap();
    assert!(
        said.starts_with("listening on ") && said.lines().count() == 1,
        "{said}"
    );
    let daemon = Pid::from_raw(pid.text().trim().parse().unwrap()).unwrap();
    let measured = run(
        &mut fullpipe(&["measure", "127.0.0.1", "-n", "1K", "-p", &port.to_string()]),
        15,
    );
    kill_process(daemon, Signal::INT).unwrap();
    assert!(
        measured.status.success(),
        "{}",
        String::from_utf8_lossy(&measured.stderr)
    );
    assert!(
        within(PROMPT, || test_kill_process(daemon).is_err()),
        "it has not ended"
    );
    assert!(!pid.0.exists(), "its number is left behind");
    let stamped = |line: &str| {
        line.as_bytes().get(4) == Some(&b'-') && line.as_bytes().get(10) == Some(&b'T')
    };
    assert!(
        log.text().lines().count() == 3 && log.text().lines().all(stamped),
        "{}",
        log.text()
    );
    assert!(log.text().contains(": done at "), "{}", log.text());
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(
        &mut fullpipe(&["serve", "-D", "-B", "127.0.0.1", "-p", &port]),
        10,
    );
    assert!(
        sentence(&output, 1).contains("cannot listen on"),
        "{output:?}"
    );
    let nowhere = free_port().to_string();
    let output = run(
        &mut fullpipe(&["serve", "-p", &nowhere, "--pidfile", "/nosuch/folder/pid"]),
        10,
    );
    assert!(
        sentence(&output, 1).contains("/nosuch/folder/pid"),
        "{output:?}"
    );
    let output = run(
        &mut fullpipe(&[
            "serve",
            "-D",
            "-p",
            &nowhere,
            "--pidfile",
            "/nosuch/folder/pid",
        ]),
        10,
    );
    assert!(
        sentence(&output, 1).contains("/nosuch/folder/pid") && output.stdout.is_empty(),
        "{output:?}"
    );
    let output = run(
        &mut fullpipe(&["serve", "-p", &nowhere, "--logfile", "/nosuch/folder/log"]),
        10,
    );
    assert!(
        sentence(&output, 1).contains("/nosuch/folder/log"),
        "{output:?}"
    );
}

#[test]
fn a_server_that_nobody_calls_ends_when_it_is_reported_to() {
    let port = free_port().to_string();
    let begun = Instant::now();
    let said = printed(Running::start(&mut fullpipe(&[
        "serve",
        "-p",
        &port,
        "--idle-timeout",
        "1",
    ])));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(said.ends_with("nobody came: ending\n"), "{said}");
}

#[test]
fn a_server_whose_output_nobody_reads_goes_on() {
    let port = free_port();
    // What is printed goes into a pipe of 64 KiB, and stays there.
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    for _ in 0..3000 {
        let mut client = connect(port);
        client.write_all(&[&[b'a'; 36][..], &[0]].concat()).unwrap();
        let _ = client.shutdown(Shutdown::Write);
        let mut state = [0];
        client.read_exact(&mut state).unwrap();
    }
    let measured = run(
        &mut fullpipe(&["measure", "127.0.0.1", "-n", "1K", "-p", &port.to_string()]),
        15,
    );
    assert!(
        measured.status.success(),
        "{}",
        String::from_utf8_lossy(&measured.stderr)
    );
}

#[test]
fn what_happens_can_be_read_by_programs() {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&[
        "serve",
        "-1",
        "-p",
        &port.to_string(),
        "--json-lines",
    ]));
    wait_for_listener(port);
    let measured = run(
        &mut fullpipe(&["measure", "127.0.0.1", "-n", "1M", "-p", &port.to_string()]),
        15,
    );
    assert!(measured.status.success());
    let events: Vec<Value> = printed(server)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["listening", "began", "ended"]);
    assert_eq!(events[2]["data"]["bytes"], 1_048_576);
    assert!(
        events
            .iter()
            .all(|event| event["time"].as_str().unwrap().ends_with('Z'))
    );
}

#[test]
fn an_iperf2_client_that_sends_is_counted_on_either_port() {
    const PAYLOAD: usize = 300_000;
    let ports = [free_port(), free_port()];
    let [port, iperf2] = ports.map(|port| port.to_string());
    let server = Running::start(&mut fullpipe(&[
        "serve",
        "-p",
        &port,
        "--iperf2-port",
        &iperf2,
    ]));
    ports.into_iter().for_each(wait_for_listener);
    // With no header, and with that of 2.1.8.
    let headers = [
        vec![0; 24],
        [&[0x40, 0x01, 0x00, 0x78][..], &[0; 56]].concat(),
    ];
    for (port, header) in ports.into_iter().zip(headers) {
        let mut client = connect(port);
        client.write_all(&header).unwrap();
        client
            .write_all(&vec![b'0'; PAYLOAD - header.len()])
            .unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.is_empty(), "{answer:?}");
    }
    std::thread::sleep(Duration::from_millis(300));
    server.interrupt();
    let said = printed(server);
    assert_eq!(
        said.matches("receiving, 1 stream of iperf2").count(),
        2,
        "{said}"
    );
    assert_eq!(said.matches(", 293 KiB\n").count(), 2, "{said}");
}

/// A datagram as iperf 2.1.8 sends it: number, time, flags that say that numbers have 64 bits.
fn datagram(number: i64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let number = number.to_be_bytes();
    bytes[..4].copy_from_slice(&number[4..]);
    bytes[4..8].copy_from_slice(&1_763_000_000_u32.to_be_bytes());
    bytes[12..16].copy_from_slice(&number[..4]);
    bytes[16..20].copy_from_slice(&0x4801_0098_u32.to_be_bytes());
    bytes
}

#[test]
fn an_iperf2_client_gets_a_report_of_its_datagrams_that_is_not_longer_than_they_are() {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    for (length, answer) in [(1470, 128), (100, 56), (60, 56)] {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        client.set_read_timeout(Some(PROMPT)).unwrap();
        for number in [1, 2, 4, 5, 9] {
            client.send(&datagram(number, length)).unwrap();
        }
        // The answer may be lost, so it is given again.
        for _ in 0..3 {
            client.send(&datagram(-10, length)).unwrap();
            let mut report = [0; 2000];
            assert_eq!(client.recv(&mut report).unwrap(), answer);
            let word = |at: usize| u32::from_be_bytes(report[at..at + 4].try_into().unwrap());
            let (bytes, lost, highest) = (word(24), word(36), word(44));
            assert_eq!((bytes as usize, lost, highest), (6 * length, 4, 10));
        }
    }
    // The last datagram of a test that never began starts no test.
    let unknown = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    unknown.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    unknown
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    unknown.send(&datagram(-10, 1470)).unwrap();
    assert!(unknown.recv(&mut [0; 2000]).is_err());
    server.interrupt();
    assert_eq!(printed(server).matches(": done at ").count(), 3);
}

#[test]
fn an_iperf2_client_that_wants_to_receive_is_refused_by_name() {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port.to_string()]));
    wait_for_listener(port);
    let mut client = connect(port);
    let mut header = vec![0; 60];
    header[..4].copy_from_slice(&0x4401_0078_u32.to_be_bytes());
    header[32..34].copy_from_slice(&0x0400_u16.to_be_bytes());
    client.write_all(&header).unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    std::thread::sleep(Duration::from_millis(200));
    server.interrupt();
    let said = printed(server);
    assert!(
        said.contains("reverse test (-R), which is not offered"),
        "{said}"
    );
}

#[test]
fn a_port_of_iperf2_that_is_taken_does_not_stop_the_server() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let iperf2 = taken.local_addr().unwrap().port().to_string();
    let port = free_port();
    let arguments = [
        "serve",
        "-1",
        "-B",
        "0.0.0.0",
        "-p",
        &port.to_string(),
        "--iperf2-port",
        &iperf2,
    ];
    let server = Running::start(&mut fullpipe(&arguments));
    wait_for_listener(port);
    let measured = run(
        &mut fullpipe(&["measure", "127.0.0.1", "-n", "1K", "-p", &port.to_string()]),
        15,
    );
    assert!(measured.status.success());
    let said = printed(server);
    assert!(
        said.contains(&format!("cannot listen on 0.0.0.0:{iperf2}")),
        "{said}"
    );
}

#[test]
fn iperf2_clients_are_rejected_where_they_are_not_wanted() {
    let port = free_port();
    let server = Running::start(&mut fullpipe(&[
        "serve",
        "-p",
        &port.to_string(),
        "--no-iperf2",
    ]));
    wait_for_listener(port);
    let mut client = connect(port);
    client.write_all(&[0; 24]).unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    std::thread::sleep(Duration::from_millis(1200));
    server.interrupt();
    let said = printed(server);
    assert!(
        said.contains("iperf2 client") && said.contains("use iperf3 or fullpipe"),
        "{said}"
    );
}

//! The client for iperf2, against the real program and against servers that misbehave.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_iperf::iperf2::{Iperf2Datagram, Iperf2Report};
use fullpipe_probe::{Destination, ProbeError, measure_iperf2};
use fullpipe_record::{Direction, Measurement, Request, RttMethod, Transport};
use fullpipe_testkit::{Running, free_port, require, wait_for_listener, within};
use fullpipe_units::{BitRate, ByteCount, Span};

fn measure(port: u16, request: &Request) -> Result<Measurement, ProbeError> {
    let destination = Destination {
        host: "127.0.0.1".to_owned(),
        port,
        ..Destination::default()
    };
    measure_iperf2(&destination, request, &AtomicBool::new(false), &mut |_| {})
}

/// The real server, which prints one line of comma-separated values a stream.
fn iperf(port: u16, options: &[&str]) -> Running {
    Running::start(
        Command::new("iperf")
            .args(["-s", "-y", "C", "-p", &port.to_string()])
            .args(options),
    )
}

/// Returns one column of the lines that the server printed, one line for each stream.
fn columns(server: Running, column: usize) -> Vec<u64> {
    // It prints when the connections are closed.
    thread::sleep(Duration::from_millis(500));
    server.interrupt();
    let output = server.finish(Duration::from_secs(10));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    // A sum of all streams has no client's port, or the number -1.
    let streams = lines.filter(|line| line.len() > column && line[4] != "0" && line[5] != "-1");
    streams
        .map(|line| {
            line[column]
                .trim()
                .parse()
                .unwrap_or_else(|error| panic!("{line:?}: {error}"))
        })
        .collect()
}

fn wait_for_datagram_socket(port: u16) {
    let is_bound = || {
        let tables = ["/proc/net/udp", "/proc/net/udp6"]
            .map(|file| fs::read_to_string(file).unwrap_or_default());
        tables
            .iter()
            .any(|table| table.contains(&format!(":{port:04X} ")))
    };
    assert!(
        within(Duration::from_secs(10), is_bound),
        "nobody has UDP port {port}"
    );
}

fn datagrams() -> Request {
    Request {
        transport: Transport::Udp,
        block: ByteCount::new(1000),
        rate: Some(BitRate::from_mbps(4)),
        duration: Span::from_millis(500),
        ..Request::default()
    }
}

#[test]
fn bytes_of_an_upload_arrive_at_the_real_server_over_tcp() {
    require!(Iperf2);
    let port = free_port();
    let server = iperf(port, &[]);
    wait_for_listener(port);
    let request = Request {
        streams: 2,
        bytes: Some(ByteCount::from_mib(8)),
        ..Request::default()
    };
    let measurement = measure(port, &request).unwrap();
    assert_eq!(measurement.broken_off, None);
    let stated: Vec<u64> = measurement
        .streams
        .iter()
        .map(|stream| stream.received.get())
        .collect();
    assert_eq!(stated.iter().sum::<u64>(), 8 << 20);
    assert_eq!(measurement.summary.received, measurement.summary.sent);
    assert!(
        measurement
            .streams
            .iter()
            .all(|stream| stream.retransmits.is_some())
    );
    // It looks for a header in the first four bytes, and does not count them where there is none.
    let mut seen: Vec<u64> = columns(server, 7)
        .into_iter()
        .map(|bytes| bytes + 4)
        .collect();
    let mut stated = stated;
    seen.sort_unstable();
    stated.sort_unstable();
    assert_eq!(seen, stated);
}

#[test]
fn the_real_server_reports_every_datagram() {
    require!(Iperf2);
    let port = free_port();
    let server = iperf(port, &["-u"]);
    wait_for_datagram_socket(port);
    // Of two streams that begin at once it may lose the first datagrams of one: those that arrive
    // at its socket before that socket is connected to the other stream.
    let measurement = measure(port, &datagrams()).unwrap();
    assert_eq!(measurement.broken_off, None);
    let [stream] = &measurement.streams[..] else {
        panic!("{:?}", measurement.streams)
    };
    let seen = stream.datagrams.unwrap();
    assert_eq!((seen.lost, Some(seen.received)), (0, stream.datagrams_sent));
    assert_eq!(stream.received, stream.sent);
    // Half a second at 500 datagrams a second, and the one that ends it; a busy machine is late.
    assert!((200..=300).contains(&seen.received), "{seen:?}");
    assert_eq!(columns(server, 7).len(), 1);
    // The server's kernel answers echo requests, where this user may send any.
    if measurement.rtt.method == RttMethod::Icmp {
        let echoes = measurement.rtt.echoes.unwrap();
        assert!(
            echoes.during.rtt.is_some() && echoes.after.rtt.is_some(),
            "{echoes:?}"
        );
    }
}

#[test]
fn several_streams_have_a_report_each() {
    require!(Iperf2);
    let port = free_port();
    let server = iperf(port, &["-u"]);
    wait_for_datagram_socket(port);
    let measurement = measure(
        port,
        &Request {
            streams: 3,
            ..datagrams()
        },
    )
    .unwrap();
    assert_eq!(
        (measurement.broken_off, measurement.streams.len()),
        (None, 3)
    );
    let total: u64 = measurement
        .streams
        .iter()
        .filter_map(|stream| stream.datagrams_sent)
        .sum();
    let seen = measurement.summary.datagrams.unwrap();
    assert_eq!(
        (
            measurement.summary.datagrams_sent,
            seen.received + seen.lost
        ),
        (Some(total), total)
    );
    assert_eq!(columns(server, 7).len(), 3);
}

/// Starts a server that answers the last datagram with a report in which every `every`th datagram
/// is lost.
fn losing(every: i64) -> (u16, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let mut payload = [0; 2048];
        let mut report = Iperf2Report::default();
        loop {
            let (length, client) = socket.recv_from(&mut payload).unwrap();
            let datagram = Iperf2Datagram::read_payload(&payload[..length]).unwrap();
            report.datagrams = datagram.number.unsigned_abs();
            if datagram.is_last() {
                report.duration = Span::from_millis(500);
                let answer = report.encode_answer(&payload[..length]).unwrap();
                socket.send_to(&answer, client).unwrap();
                return;
            }
            if datagram.number % every == 0 {
                report.lost += 1;
            } else {
                report.bytes += ByteCount::new(length as u64);
            }
        }
    });
    (port, server)
}

#[test]
fn losses_are_what_the_server_says() {
    let (port, server) = losing(10);
    let measurement = measure(port, &datagrams()).unwrap();
    server.join().unwrap();
    let seen = measurement.summary.datagrams.unwrap();
    let sent = measurement.summary.datagrams_sent.unwrap();
    assert_eq!(
        (seen.lost, seen.received),
        ((sent - 1) / 10, sent - (sent - 1) / 10)
    );
    assert_eq!(measurement.summary.duration, Span::from_millis(500));
}

#[test]
fn a_server_that_never_reports_is_given_up() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let began = Instant::now();
    let measurement = measure(socket.local_addr().unwrap().port(), &datagrams()).unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        measurement.broken_off.as_deref(),
        Some("the server did not say what it received")
    );
    assert!(measurement.summary.sent > ByteCount::ZERO && measurement.summary.datagrams.is_none());
}

#[test]
fn a_udp_port_that_nobody_has_is_noticed() {
    let measurement = measure(free_port(), &datagrams()).unwrap();
    let why = measurement.broken_off.unwrap();
    assert!(why.contains("refused"), "{why}");
}

#[test]
fn a_server_that_stops_reading_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (over, done) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; 60];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(header, [0; 60]);
        // Open, and never read again.
        let _ = done.recv_timeout(Duration::from_mins(1));
    });
    let request = Request {
        duration: Span::from_millis(500),
        ..Request::default()
    };
    let measurement = measure(port, &request).unwrap();
    let stream = &measurement.streams[0];
    assert!(stream.received < stream.sent, "{stream:?}");
    drop(over);
    server.join().unwrap();
}

#[test]
fn what_it_cannot_do_is_refused_before_anything_is_sent() {
    for (request, words) in [
        (
            Request {
                direction: Direction::Download,
                ..Request::default()
            },
            "only uploads",
        ),
        (
            Request {
                omit: Span::from_secs(1),
                ..Request::default()
            },
            "leave out the start",
        ),
        (
            Request {
                block: ByteCount::new(19),
                ..datagrams()
            },
            "20 to 65507",
        ),
    ] {
        let error = measure(1, &request).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(matches!(
        measure(free_port(), &Request::default()),
        Err(ProbeError::Connect { .. })
    ));
}

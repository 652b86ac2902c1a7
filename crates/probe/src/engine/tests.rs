//! Streams of datagrams over loopback: every one is accounted for.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    PlannedStream, RunningTransfer, StreamChannel, StreamCount, StreamRole, StreamTotals,
    TransferPlan,
};
use fullpipe_iperf::udp;
use fullpipe_record::{Datagrams, Request, Transport};
use fullpipe_testkit::within;
use fullpipe_units::{BitRate, ByteCount, Span};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a datagram.
const BLOCK: ByteCount = ByteCount::new(1_000);

/// At a rate at which a socket holds what comes in 80 ms: a machine may be busy.
fn plan() -> TransferPlan {
    let rate = Some(BitRate::from_mbps(16));
    let request = Request {
        transport: Transport::Udp,
        block: BLOCK,
        rate,
        ..Request::default()
    };
    TransferPlan::from_request(&request, None)
}

fn of(datagrams: u64) -> TransferPlan {
    TransferPlan {
        budget: Some(BLOCK * datagrams),
        ..plan()
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    socket2::SockRef::from(&socket)
        .set_recv_buffer_size(200_000)
        .unwrap();
    socket
}

fn join(left: &UdpSocket, right: &UdpSocket) {
    left.connect(right.local_addr().unwrap()).unwrap();
    right.connect(left.local_addr().unwrap()).unwrap();
}

fn connected() -> (UdpSocket, UdpSocket) {
    let (left, right) = (socket(), socket());
    join(&left, &right);
    (left, right)
}

fn start(
    role: StreamRole,
    sockets: impl IntoIterator<Item = UdpSocket>,
    plan: TransferPlan,
) -> RunningTransfer {
    let lane = |socket| PlannedStream {
        channel: StreamChannel::Udp(socket),
        role,
    };
    RunningTransfer::start_transfer(sockets.into_iter().map(lane).collect(), plan).unwrap()
}

fn received(transfer: &RunningTransfer) -> u64 {
    transfer
        .totals()
        .streams
        .iter()
        .map(|stream| stream.datagrams.received)
        .sum()
}

/// Sends what `plan` says over one stream; what the receiver has once it has `expected` datagrams.
fn transfer(plan: TransferPlan, expected: u64) -> (StreamTotals, StreamTotals) {
    let (left, right) = connected();
    let receiver = start(StreamRole::Receiver, [right], plan);
    let sender = start(StreamRole::Sender, [left], plan);
    assert!(
        within(TIMEOUT, || sender.is_over()
            && received(&receiver) >= expected),
        "{:?}",
        receiver.totals()
    );
    let (sender, receiver) = (sender.finish_transfer(), receiver.finish_transfer());
    assert!(
        sender.failures.is_empty() && receiver.failures.is_empty(),
        "{:?}",
        sender.failures
    );
    (sender, receiver)
}

fn one(totals: &StreamTotals) -> StreamCount {
    totals.totals.streams[0]
}

#[test]
fn every_datagram_is_counted_at_both_ends() {
    for wide_counters in [false, true] {
        let (sent, received) = transfer(
            TransferPlan {
                wide_counters,
                ..of(1_000)
            },
            1_000,
        );
        assert_eq!(
            (one(&sent).datagrams_sent, one(&sent).bytes),
            (1_000, BLOCK * 1_000)
        );
        let jitter = one(&received).datagrams.jitter;
        let datagrams = Datagrams {
            received: 1_000,
            dropped_here: Some(0),
            jitter,
            ..Datagrams::default()
        };
        assert_eq!(
            one(&received),
            StreamCount {
                bytes: BLOCK * 1_000,
                datagrams_sent: 0,
                datagrams
            }
        );
        assert!(jitter < Span::from_millis(100), "{jitter}");
        assert!(sent.samples.is_empty() && sent.notes.is_empty());
    }
}

/// The answer to the first hello may be lost, and the caller then repeats it.
#[test]
fn a_hello_on_an_open_stream_is_answered() {
    let (left, right) = connected();
    let receiver = start(StreamRole::Receiver, [right], plan());
    left.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = [0; 16];
    for _ in 0..2 {
        left.send(&udp::HELLO).unwrap();
        let length = left.recv(&mut answer).unwrap();
        assert_eq!(answer[..length], udp::REPLY);
    }
    assert_eq!(one(&receiver.finish_transfer()).bytes, ByteCount::ZERO);
}

#[test]
fn datagrams_that_the_kernel_cuts_and_joins_are_counted_each() {
    let burst = Some(20);
    let (sent, received) = transfer(
        TransferPlan {
            offload: true,
            burst,
            ..of(1_010)
        },
        1_010,
    );
    assert!(
        sent.notes.is_empty() && received.notes.is_empty(),
        "{:?} {:?}",
        sent.notes,
        received.notes
    );
    assert_eq!(one(&sent).datagrams_sent, 1_010);
    let (datagrams, bytes) = (one(&received).datagrams, one(&received).bytes);
    assert_eq!(
        (
            datagrams.received,
            datagrams.lost,
            datagrams.duplicated,
            datagrams.reordered
        ),
        (1_010, 0, 0, 0)
    );
    assert_eq!(bytes, BLOCK * 1_010);
}

#[test]
fn datagrams_longer_than_a_packet_are_sent_in_fragments_whatever_was_asked_of_the_kernel() {
    let block = ByteCount::new(65_507);
    let plan = TransferPlan {
        block,
        offload: true,
        budget: Some(block * 20),
        ..plan()
    };
    let (sent, received) = transfer(plan, 20);
    assert_eq!(
        (one(&sent).datagrams_sent, one(&received).bytes),
        (20, block * 20)
    );
}

#[test]
fn the_last_datagram_is_whole_and_streams_share_the_budget() {
    let pairs: Vec<_> = (0..3).map(|_| connected()).collect();
    let (left, right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let receiver = start(StreamRole::Receiver, right, plan());
    let sender = start(
        StreamRole::Sender,
        left,
        TransferPlan {
            budget: Some(ByteCount::new(300_001)),
            ..plan()
        },
    );
    assert!(within(TIMEOUT, || sender.is_over() && received(&receiver) == 301));
    assert!(!receiver.is_over());
    let sent = sender.finish_transfer().totals.streams;
    assert_eq!(
        sent.iter().map(|stream| stream.bytes).sum::<ByteCount>(),
        BLOCK * 301
    );
    let arrived = receiver.finish_transfer().totals.streams;
    for (sent, arrived) in sent.iter().zip(&arrived) {
        assert_eq!(
            (sent.bytes, sent.datagrams_sent),
            (arrived.bytes, arrived.datagrams.received)
        );
    }
}

#[test]
fn datagrams_go_both_ways_on_one_transfer() {
    let (upload, download) = (connected(), connected());
    let lane = |socket, role| PlannedStream {
        channel: StreamChannel::Udp(socket),
        role,
    };
    let here = vec![
        lane(upload.0, StreamRole::Sender),
        lane(download.0, StreamRole::Receiver),
    ];
    let there = vec![
        lane(upload.1, StreamRole::Receiver),
        lane(download.1, StreamRole::Sender),
    ];
    let (here, there) = (
        RunningTransfer::start_transfer(here, of(500)).unwrap(),
        RunningTransfer::start_transfer(there, of(700)).unwrap(),
    );
    assert!(within(TIMEOUT, || received(&here) == 700
        && received(&there) == 500));
    // A sender ends once the datagram after the last would be due.
    assert!(within(TIMEOUT, || here.has_sent_all() && there.has_sent_all()) && here.is_drained());
    let (here, there) = (
        here.finish_transfer().totals.streams,
        there.finish_transfer().totals.streams,
    );
    assert_eq!(
        (here[0].datagrams_sent, there[0].datagrams.received),
        (500, 500)
    );
    assert_eq!(
        (there[1].datagrams_sent, here[1].datagrams.received),
        (700, 700)
    );
    assert_eq!(
        (here[0].datagrams, here[1].datagrams_sent),
        (Datagrams::default(), 0)
    );
}

/// Passes datagrams on from one socket to another, the n-th as `what` says: what to send when it
/// has come.
fn relay(
    from: UdpSocket,
    to: UdpSocket,
    mut what: impl FnMut(u64, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
) {
    thread::spawn(move || {
        let mut buffer = [0; 2_000];
        let mut number = 0;
        let mut latest = Instant::now();
        while latest.elapsed() < Duration::from_secs(2) {
            let Ok(length) = from.recv(&mut buffer) else {
                continue;
            };
            latest = Instant::now();
            number += 1;
            for datagram in what(number, buffer[..length].to_vec()) {
                to.send(&datagram).unwrap();
            }
        }
    });
}

#[test]
fn what_a_path_drops_repeats_and_reorders_is_reported_exactly() {
    let (near, far) = (connected(), connected());
    let mut held = Vec::new();
    relay(near.1, far.0, move |number, datagram| match number {
        3 | 10 | 11 | 500 => vec![],
        20 | 21 => vec![datagram.clone(), datagram],
        30 => {
            held = datagram;
            vec![]
        }
        34 => vec![datagram, std::mem::take(&mut held)],
        _ => vec![datagram],
    });
    let receiver = start(StreamRole::Receiver, [far.1], plan());
    let sender = start(StreamRole::Sender, [near.0], of(1_000));
    assert!(
        within(TIMEOUT, || sender.is_over() && received(&receiver) == 996),
        "{:?}",
        receiver.totals()
    );
    let count = one(&receiver.finish_transfer());
    let expected = Datagrams {
        received: 996,
        lost: 4,
        duplicated: 2,
        reordered: 1,
        reordering_extent: 4,
        late: 0,
        dropped_here: Some(0),
        jitter: count.datagrams.jitter,
        // The two duplicates hide two losses.
        lost_like_iperf3: 2,
        out_of_order_like_iperf3: 3,
    };
    assert_eq!((count.datagrams, count.bytes), (expected, BLOCK * 998));
    sender.finish_transfer();
}

#[test]
fn what_this_host_drops_is_distinguished_from_what_the_network_lost() {
    let (left, right) = connected();
    socket2::SockRef::from(&right)
        .set_recv_buffer_size(10_000)
        .unwrap();
    let sender = start(
        StreamRole::Sender,
        [left],
        TransferPlan {
            rate: None,
            ..of(5_000)
        },
    );
    assert!(within(TIMEOUT, || sender.is_over()));
    assert_eq!(one(&sender.finish_transfer()).datagrams_sent, 5_000);
    // Nobody has read so far.
    let receiver = start(StreamRole::Receiver, [right], plan());
    assert!(within(TIMEOUT, || {
        let datagrams = receiver.totals().streams[0].datagrams;
        datagrams.received > 0 && datagrams.dropped_here == Some(5_000 - datagrams.received)
    }));
    let datagrams = one(&receiver.finish_transfer()).datagrams;
    assert!(datagrams.received < 100, "{datagrams:?}");
    // Those behind the last that arrived are dropped, but not known to be lost.
    assert_eq!((datagrams.lost, datagrams.duplicated), (0, 0));
}

/// The kernel counts forty joined datagrams that it drops as one.
#[test]
fn how_many_joined_datagrams_this_host_dropped_is_not_guessed() {
    let (left, right) = connected();
    let plan = TransferPlan {
        offload: true,
        ..plan()
    };
    fullpipe_sys::join_datagrams(&right).unwrap();
    socket2::SockRef::from(&right)
        .set_recv_buffer_size(10_000)
        .unwrap();
    let sender = start(
        StreamRole::Sender,
        [left],
        TransferPlan {
            rate: None,
            budget: Some(BLOCK * 5_000),
            ..plan
        },
    );
    assert!(within(TIMEOUT, || sender.is_over()));
    sender.finish_transfer();
    let receiver = start(StreamRole::Receiver, [right], plan);
    assert!(within(TIMEOUT, || receiver.totals().streams[0]
        .datagrams
        .dropped_here
        .is_none()));
    let end = receiver.finish_transfer();
    assert!(
        end.notes.iter().any(|note| note.contains("joined")),
        "{:?}",
        end.notes
    );
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how exactly, the runner shows where it is asked to"
)]
fn a_rate_is_kept() {
    for (mbps, burst) in [(2, None), (40, None), (40, Some(16))] {
        let (left, _right) = connected();
        let rate = BitRate::from_mbps(mbps);
        let sender = start(
            StreamRole::Sender,
            [left],
            TransferPlan {
                rate: Some(rate),
                burst,
                ..plan()
            },
        );
        thread::sleep(Duration::from_millis(500));
        let sent = sender.totals();
        let (bytes, due) = (sent.streams[0].bytes, rate.bytes_in(sent.at));
        println!(
            "{rate}: {bytes} of {due} bytes, {:+.3} %",
            (bytes.as_f64() / due.as_f64() - 1.0) * 100.0
        );
        // Not much less even where others use the machine, and never more.
        assert!(bytes.as_f64() > due.as_f64() * 0.3, "{bytes} of {due}");
        sender.stop_sending();
        assert!(within(TIMEOUT, || sender.is_over()));
        let sent = sender.finish_transfer().totals;
        let most = rate.bytes_in(sent.at) + BLOCK * u64::from(burst.unwrap_or(1));
        assert!(
            sent.streams[0].bytes <= most,
            "{} of {most}",
            sent.streams[0].bytes
        );
    }
}

#[test]
fn a_port_where_nobody_listens_ends_the_stream_after_a_while() {
    let (left, right) = connected();
    drop(right);
    let begun = Instant::now();
    let sender = start(StreamRole::Sender, [left], plan());
    assert!(within(TIMEOUT, || sender.is_over()));
    assert!(
        begun.elapsed() > Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    let failures = sender.finish_transfer().failures;
    assert_eq!(failures[0].1.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_receiver_that_gets_nothing_and_a_sender_without_a_rate_end_when_reported() {
    let (left, right) = connected();
    let receiver = start(StreamRole::Receiver, [right], plan());
    let sender = start(
        StreamRole::Sender,
        [left],
        TransferPlan {
            rate: None,
            ..plan()
        },
    );
    let (_silent, alone) = connected();
    let alone = start(StreamRole::Receiver, [alone], plan());
    thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    sender.stop_sending();
    assert!(within(TIMEOUT, || sender.is_over()));
    receiver.stop_sending();
    assert!(!receiver.is_over());
    for end in [sender, receiver, alone] {
        assert!(end.finish_transfer().failures.is_empty());
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn foreign_datagrams_harm_nothing() {
    let (left, right) = connected();
    let receiver = start(StreamRole::Receiver, [right], plan());
    for length in [0, 1, 4, 11] {
        left.send(&[0xff; 16][..length]).unwrap();
    }
    let hostile = [[0xff; 12], *b"\0\0\0\0\0\0\0\0\0\0\0\0", [0x80; 12]];
    for datagram in hostile {
        left.send(&datagram).unwrap();
    }
    let counted = |transfer: &RunningTransfer| {
        let datagrams = transfer.totals().streams[0].datagrams;
        datagrams.received + datagrams.late + datagrams.duplicated
    };
    assert!(
        within(TIMEOUT, || counted(&receiver) == 3),
        "{:?}",
        receiver.totals()
    );
    assert_eq!(one(&receiver.finish_transfer()).bytes.get(), 36);
}

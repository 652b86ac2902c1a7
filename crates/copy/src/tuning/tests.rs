use super::*;
use crate::common::TransferContext;
use crate::control::MessageSender;
use crate::pulse::SilenceWatch;
use crate::queue::{ChunkJob, NextWork};
use crate::quic::{QuicListener, dial_quic};
use fullpipe_record::Change as RecordChange;
use fullpipe_units::SegCount;
use std::io::Read;
use std::time::Duration;

use crate::protocol::{ExcludePatterns, FileChunks};

/// A maximum of buffers, as in the third batch of the OCI experiments.
const WIDE: ByteCount = ByteCount::new(24_500_000);

/// Both ends of a QUIC connection.
fn quic() -> [QuicConnection; 2] {
    let deadline = Duration::from_secs(3);
    let listener = QuicListener::start_listening(None, (0, 0), &[7; 32]).unwrap();
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let near = dial_quic(&[loopback], listener.port, &[7; 32], deadline).unwrap();
    [near, listener.take_connection(deadline).unwrap()]
}

fn sender() -> Arc<FileSender> {
    let (out, _) =
        MessageSender::start_writer(std::io::sink(), &SilenceWatch::new(Duration::from_secs(9)))
            .unwrap();
    let common = TransferContext::new(out, Arc::default(), None);
    Arc::new(FileSender::new(
        common,
        Vec::new(),
        ExcludePatterns::new([]),
        false,
    ))
}

#[test]
fn a_quic_connection_that_stands_by_takes_over_under_bbr_and_gives_back_when_it_breaks() {
    let (sender, [near, far]) = (sender(), quic());
    sender.queue.set_streams(1, 1);
    sender.queue.stand_by(2);
    sender
        .queue
        .add_chunks(0, FileChunks { first: 0, count: 9 });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (rtt, settings) = (
        Span::from_millis(1),
        [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()],
    );
    let monitor = SenderMonitor::new(
        &sender,
        [socket].into(),
        Some((Arc::new(near), 2)),
        rtt,
        settings,
    );
    assert!(!monitor.sender_figures().changed_to_quic && monitor.change_over());
    let figures = monitor.sender_figures();
    assert_eq!(
        (
            figures.changed_to_quic,
            figures.congestion_control.as_deref()
        ),
        (true, Some("bbr"))
    );
    let next = |index| sender.queue.next_work(index, false);
    assert_eq!(
        (next(0), next(1)),
        (
            NextWork::Nothing,
            NextWork::Send(ChunkJob { file: 0, chunk: 0 })
        )
    );
    drop(far);
    let until = Instant::now() + Duration::from_secs(30);
    while next(0) == NextWork::Nothing && Instant::now() < until {
        monitor.check_quic();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        (next(1), next(0)),
        (
            NextWork::End,
            NextWork::Send(ChunkJob { file: 0, chunk: 1 })
        )
    );
}

#[test]
fn a_connection_whose_path_is_dead_ends_and_its_data_takes_another() {
    let sender = sender();
    sender.queue.set_streams(2, 2);
    sender
        .queue
        .add_chunks(0, FileChunks { first: 0, count: 1 });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sockets: Arc<[_]> = (0..2)
        .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
        .collect();
    let mut others = listener.incoming().map(|other| other.unwrap());
    let mut others = [others.next().unwrap(), others.next().unwrap()];
    let (rtt, settings) = (
        Span::from_millis(1),
        [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()],
    );
    let monitor = SenderMonitor::new(&sender, sockets, None, rtt, settings);
    let sent = NextWork::Send(ChunkJob { file: 0, chunk: 0 });
    assert_eq!(sender.queue.next_work(0, false), sent);
    monitor.check_tcp();
    assert_eq!(sender.queue.next_work(1, false), NextWork::Nothing);
    let info = |since| TcpInfo {
        unacked: Some(SegCount::new(9)),
        timeouts_in_a_row: Some(SegCount::new(6)),
        since_ack_received: Some(Span::from_secs(since)),
        ..TcpInfo::default()
    };
    monitor.end_silent(0, &monitor.sockets[0], &info(19));
    assert_eq!(sender.queue.next_work(1, false), NextWork::Nothing);
    monitor.end_silent(0, &monitor.sockets[0], &info(21));
    assert_eq!(
        (
            sender.queue.next_work(0, false),
            sender.queue.next_work(1, false)
        ),
        (NextWork::End, sent)
    );
    assert_eq!(others[0].read(&mut [0]).unwrap(), 0);
    others[1].set_nonblocking(true).unwrap();
    assert!(others[1].read(&mut [0]).is_err());
}

#[test]
fn short_buffers_on_a_long_path_take_more_connections() {
    let host = HostSettings::of_linux_6_18();
    let choose =
        |asked, rtt, host: &HostSettings| choose_connections(asked, true, rtt, [host, host]);
    let long = choose(None, Span::from_millis(98), &host);
    assert!(
        (4..=8).contains(&long.count) && long.active == long.count,
        "{long:?}"
    );
    assert!(
        long.reason.contains("at 98 ms the buffers let one carry"),
        "{long:?}"
    );
    let short = choose(None, Span::from_micros(200), &host);
    assert_eq!((short.count, short.active), (MIN_CHOSEN, MIN_CHOSEN));
    let asked = choose(Some(3), Span::from_millis(98), &host);
    assert_eq!((asked.count, asked.active), (3, 3));
    let near = choose(None, Span::from_millis(4), &host);
    assert_eq!((near.count, near.active), (MIN_CHOSEN, 1));
    // One carries 990 Mbit/s, and another would only make the queue overflow.
    let wide =
        host.changed_by(&[RecordChange::TcpRmemMax, RecordChange::TcpWmemMax].map(|of| of(WIDE)));
    let one = choose(None, Span::from_millis(98), &wide);
    assert_eq!((one.count, one.active), (2, 1));
    assert!(
        one.reason
            .starts_with("2 connections, 1 at first: at 98 ms"),
        "{one:?}"
    );
}

#[test]
fn where_bbr_may_not_be_used_connections_are_there_for_loss() {
    let host = HostSettings::of_linux_6_18();
    let (of, rtt) = ([&host, &host], Span::from_millis(100));
    let (with, without) = (
        choose_connections(None, true, rtt, of),
        choose_connections(None, false, rtt, of),
    );
    assert_eq!(
        (without.count, without.active),
        (MAX_UNDER_LOSS, with.active)
    );
    assert!(
        without
            .reason
            .ends_with("; up to 256 if packets are lost, as BBR may not be used"),
        "{without:?}"
    );
    assert_eq!(choose_connections(Some(2), false, rtt, of).count, 2);
    assert_eq!(
        choose_connections(None, false, Span::from_millis(1), of).count,
        MIN_CHOSEN
    );
    // 1.05 · (100 ms ÷ loss)^¾ segments are 22 Mbit/s at a loss of 1e-4, and 12 are 1.4 at
    // 1e-2.
    let needed =
        |loss| streams::to_fill(carried_by_one(rtt, Some(Ratio::new(loss)), of), TARGET).unwrap();
    assert!(
        (35..60).contains(&needed(1e-4)) && needed(1e-2) > 300,
        "{} {}",
        needed(1e-4),
        needed(1e-2)
    );
}

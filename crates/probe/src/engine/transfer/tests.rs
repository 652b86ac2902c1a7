use super::super::prepare::{LocalEndpoint, prepare_socket};
use super::*;
use fullpipe_record::{Request, Writer};
use fullpipe_testkit::within;
use fullpipe_units::BitRate;
use rustix::fs::{MemfdFlags, memfd_create};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::thread;

const TIMEOUT: Duration = Duration::from_secs(10);

fn plan() -> TransferPlan {
    TransferPlan {
        whole_blocks: false,
        ..TransferPlan::from_request(&Request::default(), None)
    }
}

fn connected(streams: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pair = |_| {
        (
            TcpStream::connect(address).unwrap(),
            listener.accept().unwrap().0,
        )
    };
    (0..streams).map(pair).unzip()
}

fn lanes(role: StreamRole, sockets: Vec<TcpStream>) -> Vec<PlannedStream> {
    sockets
        .into_iter()
        .map(|socket| PlannedStream {
            channel: StreamChannel::Tcp(socket),
            role,
        })
        .collect()
}

fn sender(sockets: Vec<TcpStream>, plan: TransferPlan) -> RunningTransfer {
    RunningTransfer::start_transfer(lanes(StreamRole::Sender, sockets), plan).unwrap()
}

fn receiver(sockets: Vec<TcpStream>, plan: TransferPlan) -> RunningTransfer {
    RunningTransfer::start_transfer(lanes(StreamRole::Receiver, sockets), plan).unwrap()
}

fn bytes(totals: &TransferTotals) -> Vec<ByteCount> {
    totals.streams.iter().map(|stream| stream.bytes).collect()
}

fn moved(transfer: &RunningTransfer) -> ByteCount {
    bytes(&transfer.totals()).into_iter().sum()
}

/// Sends a budget over three streams; what both ends say of it.
fn send_budget(plan: TransferPlan) -> (StreamTotals, StreamTotals) {
    let (left, right) = connected(3);
    let budget = ByteCount::new(10_000_001);
    let receiver = receiver(right, plan);
    let sender = sender(
        left,
        TransferPlan {
            budget: Some(budget),
            ..plan
        },
    );
    assert!(
        within(TIMEOUT, || moved(&receiver) == budget && sender.is_over()),
        "{:?}",
        receiver.totals()
    );
    assert!(sender.has_sent_all() && within(TIMEOUT, || sender.is_drained()));
    let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
    assert_eq!(sent.totals.streams, received.totals.streams);
    assert!(sent.failures.is_empty() && received.failures.is_empty());
    (sent, received)
}

#[test]
fn only_a_receiver_that_must_copy_copies_and_only_who_asked_is_informed_of_a_lack() {
    let plan = |request: Request| TransferPlan::from_request(&request, None);
    let free = plan(Request::default());
    assert!(free.discard && free.offload && !free.notes_lack_of_offload);
    assert!(
        !plan(Request {
            rx_copy: true,
            ..Request::default()
        })
        .discard
    );
    assert!(
        !plan(Request {
            no_gso: true,
            ..Request::default()
        })
        .offload
    );
    assert!(
        plan(Request {
            offload: true,
            ..Request::default()
        })
        .notes_lack_of_offload
    );
}

#[test]
fn a_budget_arrives_to_the_byte() {
    send_budget(plan());
}

#[test]
fn a_receiver_of_whole_blocks_gets_the_rest_of_the_last() {
    let (left, right) = connected(3);
    let plan = TransferPlan {
        whole_blocks: true,
        budget: Some(ByteCount::new(10_000_001)),
        ..plan()
    };
    let (receiver, sender) = (receiver(right, plan), sender(left, plan));
    assert!(within(TIMEOUT, || sender.is_over() && sender.is_drained()));
    let whole = plan.block * 10_000_001_u64.div_ceil(plan.block.get());
    assert!(
        within(TIMEOUT, || moved(&receiver) == whole),
        "{:?}",
        receiver.totals()
    );
    let sent = sender.finish_transfer().totals.streams;
    assert!(
        sent.iter()
            .all(|stream| stream.bytes.get() % plan.block.get() == 0),
        "{sent:?}"
    );
}

#[test]
fn pages_of_a_file_arrive_and_what_arrives_may_be_discarded() {
    let (sent, received) = send_budget(TransferPlan {
        sendfile: true,
        discard: true,
        ..plan()
    });
    assert!(
        sent.notes.is_empty() && received.notes.is_empty(),
        "{:?}",
        sent.notes
    );
}

/// Data arrives as over TCP, whichever of the options the kernel supports for Multipath TCP.
#[test]
fn multipath_connections_carry_data_with_every_option() {
    let request = Request {
        multipath: true,
        sendfile: true,
        discard: true,
        ..Request::default()
    };
    let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    let Ok(listener) = listener else { return };
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let left = prepare_socket(address, &request, &LocalEndpoint::default()).unwrap();
    left.connect(&address.into()).unwrap();
    let right = listener.accept().unwrap().0;
    let budget = ByteCount::new(10_000_001);
    let plan = TransferPlan {
        budget: Some(budget),
        whole_blocks: false,
        ..TransferPlan::from_request(&request, None)
    };
    let receiver = receiver(vec![right.into()], plan);
    let sender = sender(vec![left.into()], plan);
    assert!(
        within(TIMEOUT, || moved(&receiver) == budget),
        "{:?}",
        receiver.totals()
    );
    assert!(within(TIMEOUT, || sender.is_over() && sender.is_drained()));
    assert!(within(TIMEOUT, || sender.latest_samples().len() == 1));
    let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
    assert!(
        sent.failures.is_empty() && received.failures.is_empty(),
        "{:?}",
        sent.failures
    );
}

#[test]
fn every_way_of_sending_sends_the_same() {
    for (sendfile, zero_copy) in [(false, false), (true, false), (false, true)] {
        let (left, mut right) = connected(1);
        let budget = Some(ByteCount::new(300_000));
        let sender = sender(
            left,
            TransferPlan {
                budget,
                sendfile,
                zero_copy,
                ..plan()
            },
        );
        let mut read = vec![0; 300_000];
        std::io::Read::read_exact(&mut right[0], &mut read).unwrap();
        // Chunks begin anew wherever a write ended: what is sent is part of the pattern in any
        // case.
        let pattern = super::super::shared::incompressible_bytes(131_072);
        assert!(
            read.starts_with(&pattern[..16_384]),
            "sendfile {sendfile}, zero copy {zero_copy}"
        );
        assert!(
            within(TIMEOUT, || sender.is_over()),
            "it also waits for what the kernel says of the sends"
        );
        let notes = sender.finish_transfer().notes;
        assert_eq!(
            notes.len(),
            usize::from(zero_copy),
            "loopback copies, and that is said: {notes:?}"
        );
    }
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("storage", MemfdFlags::CLOEXEC).unwrap());
    std::io::Write::write_all(&mut file, bytes).unwrap();
    file
}

#[test]
fn threads_run_where_they_are_reported_or_it_is_said_that_they_do_not() {
    let (left, right) = connected(1);
    let (missing, here) = (
        TransferPlan {
            processor: Some(4_000),
            ..plan()
        },
        TransferPlan {
            processor: Some(0),
            ..plan()
        },
    );
    let (sender, receiver) = (sender(left, here), receiver(right, missing));
    assert!(within(TIMEOUT, || moved(&receiver) > ByteCount::ZERO));
    let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
    assert!(
        sent.notes.is_empty() && received.notes[0].contains("processor 4000"),
        "{:?}",
        received.notes
    );
}

#[test]
fn a_file_goes_from_storage_to_storage() {
    let content = super::super::shared::incompressible_bytes(3_000_001);
    let (left, right) = connected(1);
    let kept = file_of(&[]);
    let into = Some(FileStorage::for_writing(kept.try_clone().unwrap()));
    let receiver =
        RunningTransfer::start_with(lanes(StreamRole::Receiver, right), plan(), into).unwrap();
    let from = Some(FileStorage::for_reading(
        file_of(&content),
        ByteCount::new(3_000_001),
    ));
    let sender =
        RunningTransfer::start_with(lanes(StreamRole::Sender, left), plan(), from).unwrap();
    assert!(within(TIMEOUT, || sender.has_sent_all()
        && moved(&receiver).get() == 3_000_001));
    let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
    let (read, written) = (sent.storage.unwrap(), received.storage.unwrap());
    assert_eq!(
        (read.bytes.get(), written.bytes.get()),
        (3_000_001, 3_000_001)
    );
    assert!(!read.writes && written.writes && read.busy > Span::ZERO && written.busy > Span::ZERO);
    let mut found = vec![0; 3_000_001];
    kept.read_exact_at(&mut found, 0).unwrap();
    assert!(found == content);
}

#[test]
fn three_streams_share_a_file() {
    let (left, right) = connected(3);
    let receiver = receiver(right, plan());
    let from = Some(FileStorage::for_reading(
        file_of(&super::super::shared::incompressible_bytes(3_000_001)),
        ByteCount::new(3_000_001),
    ));
    let budget = Some(ByteCount::new(3_000_001));
    let plan = TransferPlan { budget, ..plan() };
    let sender = RunningTransfer::start_with(lanes(StreamRole::Sender, left), plan, from).unwrap();
    assert!(within(TIMEOUT, || sender.has_sent_all()
        && moved(&receiver).get() == 3_000_001));
    assert_eq!(
        sender.finish_transfer().storage.unwrap().bytes.get(),
        3_000_001
    );
    receiver.finish_transfer();
}

#[test]
fn a_full_disk_ends_the_stream_and_says_so() {
    let (left, right) = connected(1);
    let full = Some(FileStorage::for_writing(
        File::options().write(true).open("/dev/full").unwrap(),
    ));
    let receiver =
        RunningTransfer::start_with(lanes(StreamRole::Receiver, right), plan(), full).unwrap();
    let sender = sender(left, plan());
    assert!(within(TIMEOUT, || receiver.is_over()));
    let failures = receiver.finish_transfer().failures;
    assert!(
        failures[0]
            .1
            .to_string()
            .contains("No space left on device"),
        "{failures:?}"
    );
    sender.finish_transfer();
}

/// A receiver looks again after a moment while much arrives, and waits for the kernel's word
/// else.
#[test]
fn little_data_is_read_at_once() {
    let (left, right) = connected(1);
    let receiver = receiver(right, plan());
    for count in 1..=20 {
        std::io::Write::write_all(&mut &left[0], &[7; 100]).unwrap();
        assert!(within(TIMEOUT, || moved(&receiver).get() == count * 100));
    }
    receiver.finish_transfer();
}

/// Each was once kept a second time, so that many streams took twice the descriptors.
#[test]
fn connections_that_are_over_are_kept_by_those_who_send_and_by_nobody_else() {
    let (left, right) = connected(2);
    let descriptors: Vec<RawFd> = left.iter().map(AsRawFd::as_raw_fd).collect();
    let budget = ByteCount::new(50_000);
    let receiver = receiver(right, plan());
    let sender = sender(
        left,
        TransferPlan {
            budget: Some(budget),
            ..plan()
        },
    );
    assert!(within(TIMEOUT, || moved(&receiver) == budget));
    let (sent, received) = (sender.finish_transfer(), receiver.finish_transfer());
    let kept: Vec<RawFd> = sent.sent_on.0.iter().map(AsRawFd::as_raw_fd).collect();
    assert_eq!(kept, descriptors);
    assert!(
        sent.sent_on
            .carried_bytes()
            .is_some_and(|carried| carried >= budget)
    );
    assert_eq!(received.sent_on.carried_bytes(), None);
}

#[test]
fn data_goes_both_ways_in_one_transfer() {
    let (left, right) = connected(4);
    let both = |sockets: Vec<TcpStream>, first, second| {
        let mut lanes = lanes(first, sockets);
        lanes[2..].iter_mut().for_each(|lane| lane.role = second);
        lanes
    };
    let budget = ByteCount::new(5_000_001);
    let plan = TransferPlan {
        budget: Some(budget),
        ..plan()
    };
    let here =
        RunningTransfer::start_transfer(both(left, StreamRole::Sender, StreamRole::Receiver), plan)
            .unwrap();
    let there = RunningTransfer::start_transfer(
        both(right, StreamRole::Receiver, StreamRole::Sender),
        plan,
    )
    .unwrap();
    let total = budget * 2;
    assert!(within(TIMEOUT, || moved(&here) == total && moved(&there) == total));
    assert!(within(TIMEOUT, || here.has_sent_all() && there.has_sent_all()));
    // Receivers go on reading, as no sender has closed.
    assert!(!here.is_over() && !there.is_over());
    assert!(within(TIMEOUT, || here.latest_samples().len() == 4));
    here.stop_sending();
    here.close_sending();
    there.close_sending();
    assert!(within(TIMEOUT, || here.is_over() && there.is_over()));
    let (here, there) = (here.finish_transfer(), there.finish_transfer());
    assert_eq!(here.totals.streams, there.totals.streams);
    assert_eq!(
        bytes(&here.totals)[2..].iter().copied().sum::<ByteCount>(),
        budget
    );
    assert!(here.failures.is_empty() && there.failures.is_empty());
}

#[test]
fn a_rate_is_kept() {
    let (left, right) = connected(2);
    let rate = BitRate::from_mbps(40);
    let block = ByteCount::new(20_000);
    let receiver = receiver(right, plan());
    let sender = sender(
        left,
        TransferPlan {
            rate: Some(rate),
            burst: Some(3),
            block,
            ..plan()
        },
    );
    thread::sleep(Duration::from_secs(1));
    let sent = sender.totals();
    let least = rate.bytes_in(sent.at).scale_by(0.5);
    assert!(bytes(&sent).iter().all(|bytes| *bytes > least), "{sent:?}");
    sender.stop_sending();
    assert!(within(TIMEOUT, || sender.is_over()));
    let sent = sender.finish_transfer().totals;
    let most = rate.bytes_in(sent.at) + block * 3;
    assert!(bytes(&sent).iter().all(|bytes| *bytes <= most), "{sent:?}");
    receiver.finish_transfer();
}

#[test]
fn a_sender_that_waits_for_its_time_ends_when_reported() {
    let (left, _right) = connected(1);
    let sender = sender(
        left,
        TransferPlan {
            rate: Some(BitRate::from_bps(8)),
            ..plan()
        },
    );
    assert!(within(TIMEOUT, || moved(&sender) == plan().block));
    let begun = Instant::now();
    sender.stop_sending();
    assert!(within(TIMEOUT, || sender.is_over()));
    sender.finish_transfer();
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn no_more_samples_are_kept_than_asked_for() {
    let (left, right) = connected(2);
    let sender = sender(
        left,
        TransferPlan {
            samples: 10,
            ..plan()
        },
    );
    let mut most = 0;
    for _ in 0..100 {
        most = most.max(sender.samples.lock().unwrap().len());
        thread::sleep(Duration::from_millis(5));
    }
    assert!((4..=10).contains(&most), "{most}");
    let kept = sender.finish_transfer().samples;
    assert!((4..=10).contains(&kept.len()), "{}", kept.len());
    drop(right);
}

#[test]
fn both_writers_end_when_reported_although_nobody_reads() {
    for writer in [Writer::Retrying, Writer::Blocking] {
        let (left, right) = connected(1);
        let sender = sender(left, TransferPlan { writer, ..plan() });
        thread::sleep(Duration::from_millis(120));
        sender.stop_sending();
        let begun = Instant::now();
        let end = sender.finish_transfer();
        assert!(begun.elapsed() < Duration::from_secs(2), "{writer:?}");
        assert!(
            end.samples.len() >= 2 && end.totals.streams[0].bytes > ByteCount::ZERO,
            "{writer:?}"
        );
        drop(right);
    }
}

#[test]
fn a_bounded_sender_to_a_peer_that_reads_nothing_fills_no_memory_and_still_carries_all_to_one_that_reads()
 {
    let queued = |bounds_unsent| {
        let (left, right) = connected(1);
        let sender = sender(
            left,
            TransferPlan {
                bounds_unsent,
                ..plan()
            },
        );
        thread::sleep(Duration::from_millis(300));
        let queued = sender.sample_now()[0].memory.as_ref().unwrap().wmem_queued;
        sender.finish_transfer().sent_on.reset_undelivered();
        let end = std::io::copy(&mut &right[0], &mut std::io::sink()).unwrap_err();
        assert_eq!(
            end.kind(),
            io::ErrorKind::ConnectionReset,
            "the kernel keeps nothing for it"
        );
        queued
    };
    let [bounded, free] = [true, false].map(queued);
    assert!(
        bounded <= ByteCount::from_kib(192) && free > ByteCount::from_mib(1),
        "{bounded} of {free}"
    );
    send_budget(TransferPlan {
        bounds_unsent: true,
        ..plan()
    });
}

#[test]
fn a_reader_that_waits_for_whole_blocks_sees_the_end() {
    let (left, mut right) = connected(1);
    let sender = sender(left, plan());
    let reader = thread::spawn(move || std::io::copy(&mut right[0], &mut std::io::sink()).unwrap());
    thread::sleep(Duration::from_millis(50));
    sender.stop_sending();
    sender.close_sending();
    assert!(within(TIMEOUT, || reader.is_finished()));
    let end = sender.finish_transfer();
    assert!(end.failures.is_empty());
    assert_eq!(reader.join().unwrap(), end.totals.streams[0].bytes.get());
}

/// A snapshot from before the first write once passed for the state after the last.
#[test]
fn what_nobody_reads_is_not_drained() {
    let (left, right) = connected(1);
    let sender = sender(
        left,
        TransferPlan {
            budget: Some(ByteCount::from_mib(64)),
            ..plan()
        },
    );
    assert!(within(TIMEOUT, || moved(&sender) >= ByteCount::from_mib(1)));
    assert!(!sender.is_drained());
    sender.stop_sending();
    drop(right);
}

#[test]
fn a_connection_that_breaks_is_a_failure_of_its_stream() {
    let (left, right) = connected(2);
    let sender = sender(left, plan());
    thread::sleep(Duration::from_millis(20));
    drop(right);
    assert!(within(TIMEOUT, || sender.is_over()));
    assert_eq!(sender.finish_transfer().failures.len(), 2);
}

//! Connections of other programs, watched: those of this test stand for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fullpipe_observe::{
    WatchError, WatchProgress, WatchSubject, moved_too_briefly, watch_others, watched_transfers,
};
use fullpipe_record::Direction;
use fullpipe_units::{ByteCount, Span};
use rustix::time::{ClockId, clock_gettime};

/// Bytes that the sockets of both ends hold at most, by the kernel's defaults (`tcp_wmem` 4 MiB,
/// `tcp_rmem` 6 to 32 MiB).
const SOCKET_BUFFERS: u64 = 36 << 20;

/// A stream of data over loopback, until it is stopped.
struct Flow {
    /// The addresses of the sending end: its own, and that of the other.
    ends: (SocketAddr, SocketAddr),
    stop: Arc<AtomicBool>,
    /// Bytes that were read.
    read: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Sends `block` every `pause`; the reader takes what comes.
    fn start(block: usize, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        let ends = (sender.local_addr().unwrap(), sender.peer_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stated = Arc::clone(&stop);
        let writing = thread::spawn(move || {
            while !stated.load(Ordering::Relaxed) && sender.write_all(&vec![1; block]).is_ok() {
                thread::sleep(pause);
            }
        });
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let reading = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(bytes @ 1..) = reader.read(&mut buffer) {
                counted.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        Self {
            ends,
            stop,
            read,
            threads: vec![writing, reading],
        }
    }

    /// Returns the bytes that were read up to now.
    fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Waits until so many bytes were read, and returns how many were.
    fn wait_for_read(&self, bytes: u64) -> u64 {
        while self.bytes_read() < bytes {
            thread::sleep(Duration::from_millis(1));
        }
        self.bytes_read()
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

fn after(millis: u64) -> impl FnMut(WatchProgress) -> bool {
    move |now| now.elapsed >= Span::from_millis(millis)
}

/// Waits for the other tests: connections of one process to one address are one transfer, and all
/// are of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_connection_under_way_is_seen_from_the_end_that_is_named_first() {
    let _alone = alone();
    let flow = Flow::start(20_000, Duration::from_millis(5));
    thread::sleep(Duration::from_millis(300));
    let (local, remote) = flow.ends;
    for (subject, direction) in [
        (WatchSubject::Connection(local, remote), Direction::Upload),
        (WatchSubject::Connection(remote, local), Direction::Download),
    ] {
        let mut last = None;
        let watched = watch_others(subject, &mut |now| {
            last = Some(now.moved);
            now.elapsed >= Span::from_millis(700)
        });
        let watched = watched.unwrap();
        let (transfer, evidence) = watched_transfers(&watched, None).remove(0);
        assert_eq!(
            (transfer.direction, transfer.streams, transfer.closed),
            (direction, 1, false)
        );
        assert!(
            transfer.pid.is_some() && evidence.program.is_some(),
            "{transfer:?}"
        );
        let (sent, received) = (&evidence.sender_samples, &evidence.receiver_samples);
        let (with, without) = if direction == Direction::Upload {
            (sent, received)
        } else {
            (received, sent)
        };
        assert!(
            with.len() >= 5 && without.is_empty(),
            "{} snapshots",
            with.len()
        );
        assert_eq!(with[0].at, Span::ZERO);
        // Only what moved while it was watched counts, not what came before.
        let moved = with[with.len() - 1].bytes.saturating_sub(with[0].bytes);
        assert_eq!(transfer.bytes, moved);
        assert!(last.unwrap() > transfer.bytes, "the connection is older");
        assert_eq!(evidence.sender.is_some(), direction == Direction::Upload);
        assert!(evidence.steady.is_some());
    }
    flow.end();
}

#[test]
fn a_process_is_seen_with_the_connections_that_it_opens_meanwhile() {
    let _alone = alone();
    let late = thread::spawn(|| {
        thread::sleep(Duration::from_millis(300));
        let flow = Flow::start(100_000, Duration::from_millis(1));
        thread::sleep(Duration::from_millis(800));
        let ends = flow.ends;
        flow.end();
        ends
    });
    let watched =
        watch_others(WatchSubject::Process(std::process::id()), &mut after(1400)).unwrap();
    let (local, _) = late.join().unwrap();
    let found = watched_transfers(&watched, None);
    let own = found
        .iter()
        .find(|(transfer, _)| transfer.local == local.to_string());
    let (transfer, evidence) = own.unwrap_or_else(|| panic!("{local} is not among {found:#?}"));
    assert_eq!(transfer.pid, Some(std::process::id()));
    assert_eq!(evidence.program, transfer.program);
    assert!(
        transfer.closed && transfer.bytes.get() > 1_000_000,
        "{transfer:?}"
    );
}

#[test]
fn what_was_started_to_be_watched_is_distinguished_from_its_beginning() {
    let _alone = alone();
    let flow = Flow::start(100_000, Duration::from_millis(1));
    let before = flow.wait_for_read(2 * SOCKET_BUFFERS);
    let bytes = |subject| {
        let watched = watch_others(subject, &mut after(200)).unwrap();
        let local = flow.ends.0.to_string();
        let own = watched_transfers(&watched, None)
            .into_iter()
            .find(|(transfer, _)| transfer.local == local);
        own.expect("the flow").0.bytes
    };
    let own = std::process::id();
    let whole = bytes(WatchSubject::Started(own));
    let so_far = flow.bytes_read();
    let since = bytes(WatchSubject::Process(own));
    let in_all = flow.bytes_read();
    flow.end();
    assert!(
        whole.get() >= before,
        "{whole} of {before} before it was watched"
    );
    assert!(
        since.get() <= in_all - so_far + SOCKET_BUFFERS,
        "{since} of {so_far} to {in_all}"
    );
}

#[test]
fn a_connection_that_closes_ends_the_watching() {
    let _alone = alone();
    let flow = Flow::start(50_000, Duration::from_millis(1));
    let (local, remote) = flow.ends;
    let ending = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        flow.end();
    });
    let watched =
        watch_others(WatchSubject::Connection(local, remote), &mut after(20_000)).unwrap();
    ending.join().unwrap();
    assert!(watched.took < Span::from_secs(10), "{}", watched.took);
    let (transfer, _) = watched_transfers(&watched, None).remove(0);
    assert!(transfer.closed);
}

#[test]
fn what_moves_over_a_connection_that_was_seen_too_briefly_is_known_although_not_judged() {
    let _alone = alone();
    let flow = Flow::start(50_000, Duration::from_millis(1));
    let (local, remote) = flow.ends;
    let briefly = |snapshots| {
        let mut left = snapshots;
        let stop = &mut |_: WatchProgress<'_>| {
            left -= 1;
            left == 0
        };
        watch_others(WatchSubject::Connection(local, remote), stop).unwrap()
    };
    let (three, ten) = (briefly(3), briefly(10));
    flow.end();
    assert!(watched_transfers(&three, None).is_empty());
    assert!(
        moved_too_briefly(&three) >= ByteCount::new(50_000),
        "{}",
        moved_too_briefly(&three)
    );
    assert_eq!(
        (watched_transfers(&ten, None).len(), moved_too_briefly(&ten)),
        (1, ByteCount::ZERO)
    );
}

#[test]
fn what_is_not_there_is_reported() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let error =
        watch_others(WatchSubject::Connection(nowhere, nowhere), &mut after(100)).unwrap_err();
    assert!(matches!(error, WatchError::NoConnection { .. }), "{error}");
    // Above the highest that a kernel gives (`/proc/sys/kernel/pid_max` is at most 2²²).
    let error = watch_others(WatchSubject::Process(1 << 30), &mut after(100)).unwrap_err();
    assert!(matches!(error, WatchError::NoProcess(_)), "{error}");
}

#[test]
fn a_connection_that_moves_nothing_gives_no_transfer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let subject =
        WatchSubject::Connection(client.local_addr().unwrap(), client.peer_addr().unwrap());
    let watched = watch_others(subject, &mut after(400)).unwrap();
    assert!(watched_transfers(&watched, None).is_empty());
    assert_eq!(moved_too_briefly(&watched), ByteCount::ZERO);
}

/// Of processor time, not of time: a busy machine makes it no dearer by much. But each snapshot
/// walks the kernel's whole table of connections, which took 1.5 ms on one machine and 7 ms on
/// another.
#[test]
#[ignore = "judges the machine: the kernel's time for a walk over its table of connections"]
#[expect(
    clippy::print_stdout,
    reason = "the figure is for whoever asks for it with --nocapture"
)]
fn a_hundred_connections_are_watched_for_a_twentieth_of_a_core() {
    let _alone = alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pairs: Vec<(TcpStream, TcpStream)> = (0..50)
        .map(|_| {
            (
                TcpStream::connect(address).unwrap(),
                listener.accept().unwrap().0,
            )
        })
        .collect();
    let of_this_thread = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = of_this_thread();
    let watched =
        watch_others(WatchSubject::Process(std::process::id()), &mut after(3000)).unwrap();
    let share = of_this_thread().saturating_sub(before).as_secs_f64() / watched.took.as_secs_f64();
    println!(
        "100 connections, 20 snapshots a second: {:.2} % of a core",
        share * 100.0
    );
    assert!(share < 0.05, "{:.2} % of a core", share * 100.0);
    // Still there, and nothing was sent.
    for (client, _) in &pairs {
        client.set_nonblocking(true).unwrap();
        let mut byte = [0];
        assert_eq!(
            (&mut &*client).read(&mut byte).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    }
}

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_testkit::require;
use fullpipe_trace::{
    CaptureUse, CapturedPeer, ExplainedTransfers, HeaderRecording, PacketFile, capture_live,
    read_flows,
};

/// Time for which packets come at most.
const LONG: Duration = Duration::from_secs(8);

/// Segments after which a capture is ended.
const SOME: u64 = 30;

/// A connection over loopback on which a byte is sent every two milliseconds, until it is dropped.
struct Busy {
    server: SocketAddr,
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let (sent, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, flag) = (Arc::clone(&sent), Arc::clone(&is_over));
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(server).unwrap();
            stream.set_nodelay(true).unwrap();
            let begin = Instant::now();
            while !flag.load(Relaxed) && begin.elapsed() < LONG {
                stream.write_all(b"x").unwrap();
                count.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let reader = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            while stream.read(&mut [0; 64]).unwrap() > 0 {}
        });
        Self {
            server,
            sent,
            is_over,
            threads: vec![client, reader],
        }
    }

    /// Waits until some more segments were sent. Returns how many.
    fn wait(&self) -> u64 {
        let before = self.sent.load(Relaxed);
        while self.sent.load(Relaxed) < before + SOME {
            thread::sleep(Duration::from_millis(1));
        }
        self.sent.load(Relaxed) - before
    }

    /// Returns true while packets keep coming.
    fn goes_on(&self) -> bool {
        !self.threads[0].is_finished()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_live_capture_ends_while_packets_keep_coming() {
    require!(Root);
    let busy = Busy::start();
    let sent = Arc::clone(&busy.sent);
    let mut file = capture_live("lo", move || sent.load(Relaxed) > SOME).unwrap();
    let mut packets = 0;
    while file.next_packet().unwrap().is_some() {
        packets += 1;
    }
    assert!(busy.goes_on());
    assert!(
        packets >= SOME,
        "{packets} for {} segments",
        busy.sent.load(Relaxed)
    );
}

#[test]
fn a_capture_on_all_devices_has_each_packet_of_loopback_once() {
    require!(Root);
    let busy = Busy::start();
    let begin = Instant::now();
    let sent = Arc::clone(&busy.sent);
    let is_over = move || sent.load(Relaxed) > 4 * SOME || begin.elapsed() > LONG;
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(0),
        is_compared: false,
    };
    let read = read_flows(
        &mut capture_live("any", is_over).unwrap(),
        "any",
        wanted,
        &AtomicBool::new(false),
    );
    assert!(read.error.is_none(), "{:?}", read.error);
    let server = busy.server.to_string();
    let flow = read
        .report
        .flows
        .iter()
        .find(|flow| flow.ends.iter().any(|end| end.address == server))
        .unwrap();
    assert!(
        flow.ends.iter().any(|end| end.unique_bytes.get() >= SOME),
        "{flow:?}"
    );
    // Where the machine is busy, the kernel itself sends one or another again.
    let copies = |end: &fullpipe_record::FlowEnd| end.duplicates + 4 * end.retransmitted_packets;
    assert!(
        flow.ends.iter().all(|end| copies(end) < end.packets),
        "{flow:?}"
    );
}

#[test]
fn a_recording_ends_while_packets_keep_coming_and_has_all_before_its_end() {
    require!(Root);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pcap");
    let busy = Busy::start();
    let start = || {
        HeaderRecording::start(
            &path,
            "lo",
            &[CapturedPeer {
                remote: busy.server,
                local_port: None,
            }],
        )
        .unwrap()
    };
    let recording = start();
    let sent = busy.wait();
    recording.finish().unwrap();
    assert!(busy.goes_on());
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(0),
        is_compared: false,
    };
    let mut file = PacketFile::open(&path).unwrap();
    let read = read_flows(&mut file, "kept", wanted, &AtomicBool::new(false)).report;
    let data = read.flows[0]
        .ends
        .iter()
        .map(|end| end.unique_bytes.get())
        .sum::<u64>();
    assert!(data >= sent, "{data} of {sent} bytes");

    std::fs::remove_file(&path).unwrap();
    drop(start());
    assert!(busy.goes_on() && !path.exists());
}

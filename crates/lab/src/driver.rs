//! The link in real time: one thread per direction, each reading one device and writing the other.

use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_link::{Counters, Direction};
use fullpipe_record::{Path, PathDirection};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use fullpipe_wire::VIRTIO_HEADER;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::awake::Awake;
use crate::packet::Packet;
use crate::protocol::Layout;
use crate::remote::Devices;

/// Longest time that a thread sleeps while its direction is empty, and so the longest that it takes to end.
const IDLE: Span = Span::from_millis(50);

/// Packets read before due ones are written: a bound on how long a burst can hold up what is due.
const BATCH: usize = 64;

/// Niceness of the link's threads.
const HASTE: i32 = -20;

/// Time on the line of the longest train that is carried whole.
const TRAIN_LASTS: Span = Span::from_micros(100);

/// Largest IP packet, and largest train.
const LARGEST_PACKET: usize = 65_535;

/// Latenesses above this count as this.
const LATEST: Span = Span::from_secs(10);

/// Both directions of a path, running.
pub(crate) struct Driver {
    directions: [RunningDirection; 2],
    stop: Arc<AtomicBool>,
    _awake: Awake,
}

/// What one direction has done since it was last asked.
#[derive(Debug, Clone)]
pub(crate) struct DirectionReport {
    /// How much later than due packets were handed over, in nanoseconds.
    pub(crate) lateness: Histogram<u64>,
    /// Longest time between two looks at the device.
    pub(crate) longest_gap: Span,
    /// Packets handed over that the far device would not take, and what a device gave that is no packet.
    pub(crate) refused: u64,
    /// What the link had done then.
    since: Counters,
    /// What it has done by now.
    counters: Counters,
}

type Shared = Mutex<DirectionReport>;

struct RunningDirection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Joins the hosts behind `devices` by `path`. Each direction draws its losses from `seed` on its own.
    pub(crate) fn start(path: &Path, seed: u64, devices: Devices) -> io::Result<Self> {
        let Devices { layout, files: [sender, receiver] } = devices;
        let stop = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let (sender_again, receiver_again) = (sender.try_clone()?, receiver.try_clone()?);
        let forward = Wire::new(sender, receiver_again, layout, origin);
        let reverse = Wire::new(receiver, sender_again, layout, origin);
        Ok(Self {
            directions: [
                RunningDirection::start(&path.forward, seed.wrapping_mul(2), forward, &stop)?,
                RunningDirection::start(&path.reverse, seed.wrapping_mul(2).wrapping_add(1), reverse, &stop)?,
            ],
            stop,
            _awake: Awake::ask(),
        })
    }

    /// What each direction, forward first, did since the last call.
    pub(crate) fn take_reports(&self) -> [DirectionReport; 2] {
        self.directions.each_ref().map(|direction| {
            let mut shared = direction.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = DirectionReport::new(shared.counters);
            std::mem::replace(&mut *shared, fresh)
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for direction in &mut self.directions {
            if let Some(thread) = direction.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl DirectionReport {
    fn new(counters: Counters) -> Self {
        // One microsecond to LATEST with two significant digits: a few kilobytes.
        let lateness = Histogram::new_with_bounds(1_000, LATEST.as_nanos(), 2)
            .unwrap_or_else(|_| Histogram::new(2).expect("two digits are within its range"));
        Self { lateness, longest_gap: Span::ZERO, refused: 0, since: counters, counters }
    }

    /// What was handed over, as the path's framing counts.
    pub(crate) fn delivered(&self) -> ByteCount {
        self.counters.delivered.bytes - self.since.delivered.bytes
    }

    /// What waits now or is being sent.
    pub(crate) fn backlog(&self) -> ByteCount {
        let Counters { offered, lost, overflowed, sent, .. } = self.counters;
        offered.bytes - lost.bytes - overflowed.bytes - sent
    }

    /// Packets that found the queue full.
    pub(crate) fn overflowed(&self) -> u64 {
        (self.counters.overflowed.segments - self.since.overflowed.segments).get()
    }

    /// Packets that were lost on purpose.
    pub(crate) fn lost(&self) -> u64 {
        (self.counters.lost.segments - self.since.lost.segments).get()
    }
}

impl RunningDirection {
    fn start(path: &PathDirection, seed: u64, wire: Wire, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(DirectionReport::new(Counters::default())));
        let (link, longest) = (Direction::new(path, seed), longest_train(path));
        let (stop, report) = (Arc::clone(stop), Arc::clone(&shared));
        let thread =
            thread::Builder::new().name("link".to_owned()).spawn(move || run(wire, link, longest, &stop, &report))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

/// Where packets come from and where they go.
struct Wire {
    from: File,
    to: File,
    layout: Layout,
    origin: Instant,
    /// What is being read.
    frame: Vec<u8>,
    /// Headers of what is being written.
    front: Vec<u8>,
}

/// What there was to read.
enum Read {
    Packet(Packet),
    /// What is no packet; it is gone.
    Malformed,
    /// Nothing waits, or the host is gone.
    Nothing,
}

impl Wire {
    fn new(from: File, to: File, layout: Layout, origin: Instant) -> Self {
        let longest = VIRTIO_HEADER + layout.ethernet().len() + LARGEST_PACKET;
        Self { from, to, layout, origin, frame: vec![0; longest], front: Vec::new() }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    fn read(&mut self) -> Read {
        let Ok(length) = retry_on_intr(|| rustix::io::read(&self.from, &mut self.frame[..])) else {
            return Read::Nothing;
        };
        Packet::parse(&self.frame[..length], self.layout).map_or(Read::Malformed, Read::Packet)
    }

    /// Hands `packet` to the far host; whether it took it.
    fn write(&mut self, packet: &Packet) -> bool {
        let payload = packet.emit(self.layout, &mut self.front);
        let parts = [IoSlice::new(&self.front), IoSlice::new(payload)];
        retry_on_intr(|| rustix::io::writev(&self.to, &parts)).is_ok()
    }

    /// Sleeps until a packet waits or `deadline` comes; the moment up to which the sleep was meant.
    fn wait(&self, deadline: Option<Time>) -> Time {
        let from = self.now();
        let planned = deadline.map_or(IDLE, |due| due.since(from)).min(IDLE);
        let sleep: Duration = planned.into();
        let timeout = Timespec { tv_sec: sleep.as_secs().cast_signed(), tv_nsec: i64::from(sleep.subsec_nanos()) };
        // An interrupted or failed wait is one more turn of the loop.
        let _ = poll(&mut [PollFd::new(&self.from.as_fd(), PollFlags::IN)], Some(&timeout));
        (from + planned).min(self.now())
    }
}

fn run(mut wire: Wire, mut link: Direction<Packet>, longest: SegCount, stop: &AtomicBool, shared: &Shared) {
    // The default slack of 50 µs would be added to every packet's delay.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // A link that waits for its hosts to let go of a processor delays their packets. Only root may ask for it.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), HASTE);
    let mut last_look = wire.now();
    while !stop.load(Ordering::Relaxed) {
        let gap = wire.now().since(last_look);
        let mut report = shared.lock().unwrap_or_else(PoisonError::into_inner);
        report.longest_gap = report.longest_gap.max(gap);
        let exhausted = read_batch(&mut wire, &mut link, longest, &mut report);
        if exhausted {
            last_look = wire.now();
        }
        let delivered = deliver_batch(&mut wire, &mut link, &mut report);
        report.counters = link.counters(wire.now());
        drop(report);
        if exhausted && delivered {
            // Sleep is no neglect, as a packet ends it; only what goes beyond it is.
            last_look = last_look.max(wire.wait(link.next_deadline()));
        }
    }
}

/// Takes in what waits at the device, up to a batch; whether that was all.
fn read_batch(wire: &mut Wire, link: &mut Direction<Packet>, longest: SegCount, report: &mut DirectionReport) -> bool {
    for _ in 0..BATCH {
        match wire.read() {
            Read::Packet(packet) => {
                let now = wire.now();
                for piece in packet.carried_whole(longest) {
                    link.offer(now, piece);
                }
            }
            Read::Malformed => report.refused += 1,
            Read::Nothing => return true,
        }
    }
    false
}

/// Hands over what is due, up to a batch; whether that was all.
fn deliver_batch(wire: &mut Wire, link: &mut Direction<Packet>, report: &mut DirectionReport) -> bool {
    let mut now = wire.now();
    for _ in 0..BATCH {
        let Some(delivery) = link.pop(now) else { return true };
        if !wire.write(&delivery.train) {
            report.refused += 1;
        }
        now = wire.now();
        report.lateness.saturating_record(now.since(delivery.due).as_nanos());
    }
    false
}

/// The longest train that is carried whole: as long as the link takes to send in [`TRAIN_LASTS`], as the first of its
/// segments arrives with the last.
fn longest_train(path: &PathDirection) -> SegCount {
    let packet = path.mtu + path.framing.overhead();
    let packets = path.rate.map_or(u64::MAX, |rate| rate.bytes_in(TRAIN_LASTS).get() / packet.get());
    SegCount::new(packets.max(1))
}

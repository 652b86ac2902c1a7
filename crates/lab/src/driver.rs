//! The link in real time: one thread per direction, each reading one device and writing the other.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_link::{Counters, Direction, Train};
use fullpipe_record::{Path, PathDirection};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::awake::Awake;

/// Longest time that a thread sleeps while its direction is empty, and so the longest that it takes to end.
const IDLE: Span = Span::from_millis(50);

/// Packets read before due ones are written: a bound on how long a burst can hold up what is due.
const BATCH: usize = 64;

/// Largest IP packet.
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
    /// Packets handed over that the far device would not take.
    pub(crate) refused: u64,
    /// What the link had done then.
    since: Counters,
    /// What it has done by now.
    counters: Counters,
}

struct RunningDirection {
    shared: Arc<Mutex<DirectionReport>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Joins `sender` and `receiver` by `path`. Each direction draws its losses from `seed` on its own.
    pub(crate) fn start(path: &Path, seed: u64, [sender, receiver]: [File; 2]) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let (sender_again, receiver_again) = (sender.try_clone()?, receiver.try_clone()?);
        let forward = Wire { from: sender, to: receiver_again, origin };
        let reverse = Wire { from: receiver, to: sender_again, origin };
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

    /// Packets that found the queue full.
    pub(crate) fn overflowed(&self) -> u64 {
        (self.counters.overflowed.segments - self.since.overflowed.segments).get()
    }

    /// Time in which the link was sending.
    pub(crate) fn busy(&self) -> Span {
        self.counters.busy.saturating_sub(self.since.busy)
    }

    /// Packets that were lost on purpose.
    pub(crate) fn lost(&self) -> u64 {
        (self.counters.lost.segments - self.since.lost.segments).get()
    }
}

impl RunningDirection {
    fn start(path: &PathDirection, seed: u64, wire: Wire, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(DirectionReport::new(Counters::default())));
        let link = Direction::new(path, seed);
        let (stop, report) = (Arc::clone(stop), Arc::clone(&shared));
        let thread = thread::Builder::new().name("link".to_owned()).spawn(move || run(wire, link, &stop, &report))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

/// One IP packet as the device gave it.
struct Packet(Box<[u8]>);

impl Train for Packet {
    fn segments(&self) -> SegCount {
        SegCount::new(1)
    }

    fn segment_bytes(&self) -> ByteCount {
        self.ip_bytes()
    }

    fn ip_bytes(&self) -> ByteCount {
        ByteCount::new(self.0.len() as u64)
    }

    fn split_off(&mut self, _: SegCount) -> Self {
        unreachable!("offload is off, so a train is one packet and has no place to be cut")
    }
}

/// Where packets come from and where they go.
struct Wire {
    from: File,
    to: File,
    origin: Instant,
}

impl Wire {
    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// The next packet that waits; `None` if none does or the host is gone.
    fn read(&mut self, buffer: &mut [u8]) -> Option<Packet> {
        retry_on_intr(|| rustix::io::read(&self.from, &mut *buffer)).ok().map(|length| Packet(buffer[..length].into()))
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

fn run(mut wire: Wire, mut link: Direction<Packet>, stop: &AtomicBool, shared: &Mutex<DirectionReport>) {
    // The default slack of 50 µs would be added to every packet's delay.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut buffer = vec![0; LARGEST_PACKET];
    let mut last_look = wire.now();
    while !stop.load(Ordering::Relaxed) {
        let gap = wire.now().since(last_look);
        let exhausted = read_batch(&mut wire, &mut link, &mut buffer);
        if exhausted {
            last_look = wire.now();
        }
        deliver(&mut wire, &mut link, gap, shared);
        if exhausted {
            // Sleep is no neglect, as a packet ends it; only what goes beyond it is.
            last_look = last_look.max(wire.wait(link.next_deadline()));
        }
    }
}

/// Takes in what waits at the device, up to a batch; whether that was all.
fn read_batch(wire: &mut Wire, link: &mut Direction<Packet>, buffer: &mut [u8]) -> bool {
    for _ in 0..BATCH {
        let Some(packet) = wire.read(buffer) else { return true };
        link.offer(wire.now(), packet);
    }
    false
}

/// Hands over everything that is due.
fn deliver(wire: &mut Wire, link: &mut Direction<Packet>, gap: Span, shared: &Mutex<DirectionReport>) {
    let mut report = shared.lock().unwrap_or_else(PoisonError::into_inner);
    report.longest_gap = report.longest_gap.max(gap);
    let mut now = wire.now();
    while let Some(delivery) = link.pop(now) {
        if wire.to.write(&delivery.train.0).is_err() {
            report.refused += 1;
        }
        now = wire.now();
        report.lateness.saturating_record(now.since(delivery.due).as_nanos());
    }
    report.counters = link.counters(now);
}

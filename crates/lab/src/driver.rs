//! The link in real time: one thread per direction, each reading one device and writing the other.

use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fullpipe_link::{DirectionCounters, LinkDirection};
use fullpipe_record::{Path, PathChange};
use fullpipe_sys::{lock, start_thread};
use fullpipe_units::{ByteCount, Span, Time};
use fullpipe_wire::VIRTIO_HEADER;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::awake::AwakeProcessors;
use crate::capture::{CaptureTap, StretchCapture};
use crate::carried::{DirectionCounts, LinkTiming};
use crate::command_channel::{CommandChannel, CommandInbox, LinkCommand, new_channel};
use crate::error::LabError;
use crate::packet::LinkPacket;
use crate::protocol::{Host, Layout};
use crate::remote::StretchDevices;
use crate::spin_sleeper::{SpinSleeper, WaitMode};

/// Longest time that a thread sleeps while its direction is empty, and so the longest that it takes
/// to end.
const IDLE: Span = Span::from_millis(50);

/// Packets read before due ones are written: a bound on how long a burst can hold up what is due.
const BATCH: usize = 64;

/// Niceness of the link's threads.
const HASTE: i32 = -20;

/// Largest IP packet, and largest train.
const MAX_PACKET: usize = 65_535;

/// Latenesses above this count as this.
const LATEST: Span = Span::from_secs(10);

/// Both directions of a path, running.
pub(crate) struct LinkDriver {
    directions: [RunningDirection; 2],
    stop: Arc<AtomicBool>,
    origin: Instant,
    _awake: AwakeProcessors,
}

/// Counts of one direction since they were last taken.
#[derive(Clone)]
struct DirectionReport {
    timing: LinkTiming,
    /// The link's counters then.
    since: DirectionCounters,
    /// The link's counters now.
    counters: DirectionCounters,
}

struct RunningDirection {
    shared: Arc<Mutex<DirectionReport>>,
    channel: CommandChannel,
    thread: Option<JoinHandle<()>>,
}

impl LinkDriver {
    /// Joins the hosts behind `devices` by `path`. Each direction draws its losses from `seed` on
    /// its own.
    pub(crate) fn start(path: &Path, seed: u64, devices: StretchDevices) -> io::Result<Self> {
        let StretchDevices {
            layout,
            files: [sender, receiver],
        } = devices;
        let stop = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let (sender_again, receiver_again) = (sender.try_clone()?, receiver.try_clone()?);
        let forward = DeviceWire::new(sender, receiver_again, layout, origin);
        let reverse = DeviceWire::new(receiver, sender_again, layout, origin);
        let [(to_forward, forward_inbox), (to_reverse, reverse_inbox)] =
            [new_channel()?, new_channel()?];
        let [link, reverse_link] = LinkDirection::new_pair(path, seed);
        let forward = DriverLine::new(link, forward, forward_inbox, to_reverse.clone());
        let reverse = DriverLine::new(reverse_link, reverse, reverse_inbox, to_forward.clone());
        Ok(Self {
            directions: [
                RunningDirection::start(forward, to_forward, &stop)?,
                RunningDirection::start(reverse, to_reverse, &stop)?,
            ],
            stop,
            origin,
            _awake: AwakeProcessors::keep_awake(),
        })
    }

    /// Makes the path that leads away from `host` another from now on.
    pub(crate) fn change_path(&self, host: Host, change: PathChange) {
        self.directions[host.index()]
            .channel
            .post_command(LinkCommand::Change(change));
    }

    /// Lets what passes both ends of `path`, which is this one, be written to files; see
    /// [`StretchCapture::start`].
    pub(crate) fn capture_path(
        &self,
        folder: &std::path::Path,
        name: &str,
        most: ByteCount,
        path: &Path,
    ) -> Result<StretchCapture, LabError> {
        let elapsed = self.origin.elapsed();
        let clock = (Time::ZERO + elapsed.into(), SystemTime::now() - elapsed);
        let capture = StretchCapture::start(folder, name, most, path, clock)?;
        self.tap_directions(|host| Some(capture.tap_from(host)));
        Ok(capture)
    }

    /// Ends the capture.
    pub(crate) fn end_capture(&self) {
        self.tap_directions(|_| None);
    }

    fn tap_directions(&self, tap: impl Fn(Host) -> Option<CaptureTap>) {
        for host in Host::ALL {
            self.directions[host.index()]
                .channel
                .post_command(LinkCommand::Capture(tap(host)));
        }
    }

    /// Returns the counts of each direction, forward first, since the last call.
    pub(crate) fn take_counts(&self) -> [DirectionCounts; 2] {
        self.directions.each_ref().map(|direction| {
            // The link's thread waits for the lock: what takes memory is made before it, and given
            // back behind it.
            let fresh = DirectionReport::new(DirectionCounters::default());
            let mut shared = lock(&direction.shared);
            let counters = shared.counters;
            let passed = std::mem::replace(
                &mut *shared,
                DirectionReport {
                    since: counters,
                    counters,
                    ..fresh
                },
            );
            drop(shared);
            passed.into_counts()
        })
    }
}

impl Drop for LinkDriver {
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
    fn new(counters: DirectionCounters) -> Self {
        // One microsecond to LATEST with two significant digits: a few kilobytes.
        let lateness = Histogram::new_with_bounds(1_000, LATEST.as_nanos(), 2)
            .unwrap_or_else(|_| Histogram::new(2).expect("two digits are within its range"));
        Self {
            timing: LinkTiming {
                lateness,
                longest_gap: Span::ZERO,
                refused: 0,
            },
            since: counters,
            counters,
        }
    }

    fn into_counts(self) -> DirectionCounts {
        let (now, since) = (self.counters, self.since);
        DirectionCounts {
            delivered: now.delivered.bytes - since.delivered.bytes,
            backlog: backlog_bytes(now),
            // Copies are made behind the link.
            propagating: (now.sent + now.duplicated.bytes).saturating_sub(now.delivered.bytes),
            overflowed: (now.overflowed.segments - since.overflowed.segments).get(),
            lost: (now.lost.segments - since.lost.segments).get(),
            reordered: Some((now.reordered - since.reordered).get()),
            busy: now.busy.saturating_sub(since.busy),
            timing: Some(self.timing),
        }
    }
}

/// Returns the bytes that wait or are being sent.
fn backlog_bytes(counters: DirectionCounters) -> ByteCount {
    let DirectionCounters {
        offered,
        lost,
        expired,
        too_big,
        policed,
        overflowed,
        aqm_dropped,
        sent,
        ..
    } = counters;
    let dropped = [lost, expired, too_big, policed, overflowed, aqm_dropped];
    dropped
        .iter()
        .fold(offered.bytes - sent, |left, tally| left - tally.bytes)
}

impl RunningDirection {
    fn start(
        line: DriverLine,
        channel: CommandChannel,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (stop, shared) = (Arc::clone(stop), Arc::clone(&line.report));
        let thread = start_thread("link", move || line.run(&stop))?;
        Ok(Self {
            shared,
            channel,
            thread: Some(thread),
        })
    }
}

/// The devices from which packets come and to which they go.
struct DeviceWire {
    from: File,
    to: File,
    layout: Layout,
    origin: Instant,
    /// The frame that is being read.
    frame: Vec<u8>,
    /// Headers of what is being written.
    front: Vec<u8>,
}

/// The result of a read.
enum ReadOutcome {
    Packet(LinkPacket),
    /// Bytes that are no packet; they are dropped.
    Malformed,
    /// Nothing waits, or the host is gone.
    Nothing,
}

impl DeviceWire {
    fn new(from: File, to: File, layout: Layout, origin: Instant) -> Self {
        let longest = VIRTIO_HEADER + layout.ethernet_header().len() + MAX_PACKET;
        Self {
            from,
            to,
            layout,
            origin,
            frame: vec![0; longest],
            front: Vec::new(),
        }
    }

    fn current_time(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    fn read(&mut self) -> ReadOutcome {
        let Ok(length) = retry_on_intr(|| rustix::io::read(&self.from, &mut self.frame[..])) else {
            return ReadOutcome::Nothing;
        };
        LinkPacket::parse(&self.frame[..length], self.layout)
            .map_or(ReadOutcome::Malformed, ReadOutcome::Packet)
    }

    /// Hands `packet` to the far host; whether it took it.
    fn write(&mut self, packet: &LinkPacket) -> bool {
        let payload = packet.emit_frame(self.layout, &mut self.front);
        let parts = [IoSlice::new(&self.front), IoSlice::new(payload)];
        retry_on_intr(|| rustix::io::writev(&self.to, &parts)).is_ok()
    }
}

/// One direction as its thread holds it.
struct DriverLine {
    wire: DeviceWire,
    link: LinkDirection<LinkPacket>,
    sleeper: SpinSleeper,
    tap: Option<CaptureTap>,
    inbox: CommandInbox,
    /// The direction that gets routers' answers.
    other: CommandChannel,
    report: Arc<Mutex<DirectionReport>>,
}

impl DriverLine {
    fn new(
        link: LinkDirection<LinkPacket>,
        wire: DeviceWire,
        inbox: CommandInbox,
        other: CommandChannel,
    ) -> Self {
        Self {
            wire,
            link,
            sleeper: SpinSleeper::new(),
            tap: None,
            inbox,
            other,
            report: Arc::new(Mutex::new(DirectionReport::new(
                DirectionCounters::default(),
            ))),
        }
    }

    fn run(mut self, stop: &AtomicBool) {
        // The default slack of 50 µs would be added to every packet's delay.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // A link that waits for its hosts to let go of a processor delays their packets. Only root
        // may ask for it.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), HASTE);
        let report = Arc::clone(&self.report);
        let mut last_poll = self.wire.current_time();
        while !stop.load(Ordering::Relaxed) {
            let gap = self.wire.current_time().duration_since(last_poll);
            let mut report = lock(&report);
            report.timing.longest_gap = report.timing.longest_gap.max(gap);
            let exhausted = self.read_batch(&mut report);
            if exhausted {
                last_poll = self.wire.current_time();
            }
            let delivered = self.deliver_batch(&mut report);
            report.counters = self.link.counters_at(self.wire.current_time());
            drop(report);
            self.report_incidents();
            if exhausted && delivered {
                // Sleep is no neglect, as a packet ends it; only what goes beyond it is.
                last_poll = last_poll.max(self.wait_until_due());
            }
        }
    }

    /// Takes in what waits at the device, up to a batch; whether that was all.
    fn read_batch(&mut self, report: &mut DirectionReport) -> bool {
        for _ in 0..BATCH {
            match self.wire.read() {
                ReadOutcome::Packet(packet) => {
                    let now = self.wire.current_time();
                    if let Some(tap) = &self.tap {
                        tap.record_entry(now, &packet);
                    }
                    for train in self.link.cut_train(packet) {
                        self.offer_train(now, train);
                    }
                }
                ReadOutcome::Malformed => report.timing.refused += 1,
                ReadOutcome::Nothing => return true,
            }
        }
        false
    }

    fn offer_train(&mut self, now: Time, train: LinkPacket) {
        if let Some(reply) = self.link.offer_train(now, train).reply {
            self.other.post_command(LinkCommand::Reply(reply));
        }
    }

    /// Hands over what is due, up to a batch; whether that was all.
    fn deliver_batch(&mut self, report: &mut DirectionReport) -> bool {
        let mut now = self.wire.current_time();
        for _ in 0..BATCH {
            let Some(delivery) = self.link.pop_arrived(now) else {
                return true;
            };
            if !self.wire.write(&delivery.train) {
                report.timing.refused += 1;
            }
            if let Some(tap) = &self.tap {
                tap.record_exit(delivery.due, &delivery.train);
            }
            now = self.wire.current_time();
            report
                .timing
                .lateness
                .saturating_record(now.duration_since(delivery.due).as_nanos());
        }
        false
    }

    /// Sleeps until a packet or mail waits or something is due; the moment up to which the sleep
    /// was meant.
    fn wait_until_due(&mut self) -> Time {
        let from = self.wire.current_time();
        let soon = self
            .link
            .next_deadline()
            .filter(|due| due.duration_since(from) <= IDLE);
        let planned = match soon.map_or(WaitMode::Sleep(IDLE), |due| {
            self.sleeper.wait_mode(from, due)
        }) {
            WaitMode::None => return from,
            WaitMode::Sleep(time) => time,
        };
        let sleep: Duration = planned.into();
        let timeout = Timespec {
            tv_sec: sleep.as_secs().cast_signed(),
            tv_nsec: i64::from(sleep.subsec_nanos()),
        };
        let mut waiting = [
            PollFd::new(&self.wire.from, PollFlags::IN),
            PollFd::new(self.inbox.event_fd(), PollFlags::IN),
        ];
        // An interrupted or failed wait is one more turn of the loop.
        let _ = poll(&mut waiting, Some(&timeout));
        let [packets, rung] = waiting.map(|waiting| !waiting.revents().is_empty());
        let now = self.wire.current_time();
        self.sleeper.record_wakeup(now, packets || rung);
        if rung {
            self.take_mail();
        }
        (from + planned).min(now)
    }

    /// Begins a capture, or ends it.
    fn set_tap(&mut self, tap: Option<CaptureTap>) {
        self.report_incidents();
        if let Some(ended) = std::mem::replace(&mut self.tap, tap) {
            ended.record_edits(self.link.edit_counts());
        }
        self.link.keep_incidents(self.tap.is_some());
    }

    fn report_incidents(&mut self) {
        if let Some(tap) = &self.tap {
            tap.record_incidents(self.link.take_incidents());
        }
    }

    fn take_mail(&mut self) {
        let now = self.wire.current_time();
        for mail in self.inbox.take_commands().collect::<Vec<_>>() {
            match mail {
                LinkCommand::Capture(tap) => self.set_tap(tap),
                // An answer to an answer there is not.
                LinkCommand::Reply(reply) => drop(self.link.offer_train(now, reply)),
                LinkCommand::Change(change) => self.link.change_path(now, &change),
            }
        }
    }
}

//! What the processors and the network device of this end do while data flows.

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_host::ProcessorMeter;
use fullpipe_record::{CpuSample, DeviceReport, Machine, QdiscReport};
use fullpipe_sys::{
    CpuTime, DeviceState, QueueState, device_speed, device_state, output_device, process_cpu_time, queue_states,
};
use fullpipe_units::Span;

/// Time between two looks at first.
const PERIOD: Duration = Duration::from_millis(200);

/// What is kept of the looks at the processors: so many, with times of so many processors, less than a megabyte.
const KEPT: Most = Most { looks: 600, cores: 20_000 };

/// What the other end is told of them with the results, about 400 KB.
const TOLD: Most = Most { looks: 240, cores: 4_000 };

/// Processors whose times the other end is told while data flows.
const MAX_CORES: usize = 512;

/// Queueing disciplines that are told of: a card may have one a queue.
const MAX_QDISCS: usize = 64;

/// What there was before the data began to flow.
pub(crate) struct Before {
    processors: Processors,
    device: Option<Device>,
}

impl Before {
    /// Of this machine, and of `device`, or else of that by which packets to `peer` leave.
    pub(crate) fn now(peer: IpAddr, device: Option<&str>) -> Self {
        let name = device.map_or_else(|| output_device(peer.to_canonical()), |name| Ok(name.to_owned()));
        let meter = ProcessorMeter::of_this_process();
        Self {
            device: name.and_then(Device::new).ok(),
            processors: Processors { meter, cpu: process_cpu_time().unwrap_or_default() },
        }
    }

    /// Looks now and then, from `origin` on. Without a thread nothing is seen.
    pub(crate) fn watch(self, origin: Instant) -> Option<Watch> {
        let seen = Arc::new(Mutex::new(Machine::default()));
        let (stop, stopped) = channel();
        let shared = Arc::clone(&seen);
        let thread = thread::Builder::new().name("machine".to_owned());
        let thread = thread.spawn(move || self.run(origin, &stopped, &shared)).ok()?;
        Some(Watch { seen, stop: Some(stop), thread })
    }

    fn run(mut self, origin: Instant, stopped: &Receiver<()>, seen: &Mutex<Machine>) {
        let (mut next, mut period) = (origin + PERIOD, PERIOD);
        loop {
            let pause = next.saturating_duration_since(Instant::now());
            let is_last = stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
            let look = self.processors.look(origin);
            let device = self.device.as_mut().and_then(Device::look);
            let mut seen = lock(seen);
            seen.processors.push(look);
            // A device that went away has done what it had done.
            seen.device = device.or(seen.device.take());
            if KEPT.is_exceeded_by(&seen.processors) {
                thin_out(&mut seen.processors);
                period *= 2;
            }
            if is_last {
                return;
            }
            drop(seen);
            next = (next + period).max(Instant::now());
        }
    }
}

/// A machine that is looked at, until it is dropped.
pub(crate) struct Watch {
    seen: Arc<Mutex<Machine>>,
    /// It is never sent anything: when it goes, the thread looks for the last time.
    stop: Option<Sender<()>>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// The latest look at its processors, and the device as it was then.
    pub(crate) fn latest(&self) -> Machine {
        let seen = lock(&self.seen);
        let latest = seen
            .processors
            .last()
            .cloned()
            .map(|look| CpuSample { cores: look.cores.into_iter().take(MAX_CORES).collect(), ..look });
        Machine { processors: latest.into_iter().collect(), device: seen.device.clone(), storage: None }
    }

    /// Looks for the last time.
    pub(crate) fn stop(&mut self) {
        self.stop = None;
    }

    /// All that was seen.
    pub(crate) fn finish(mut self) -> Machine {
        self.stop();
        let _ = self.thread.join();
        std::mem::take(&mut lock(&self.seen))
    }
}

/// As much of `looks` as the other end is told.
pub(crate) fn stated(looks: &[CpuSample]) -> Vec<CpuSample> {
    TOLD.of(looks.to_vec())
}

/// As much of `looks` as is kept, whoever made them.
pub(crate) fn kept(looks: Vec<CpuSample>) -> Vec<CpuSample> {
    KEPT.of(looks)
}

/// How much may be said of processors.
struct Most {
    looks: usize,
    cores: usize,
}

impl Most {
    fn is_exceeded_by(&self, looks: &[CpuSample]) -> bool {
        let cores: usize = looks.iter().map(|look| look.cores.len()).sum();
        looks.len() > 1 && (looks.len() > self.looks || cores > self.cores)
    }

    fn of(&self, mut looks: Vec<CpuSample>) -> Vec<CpuSample> {
        while self.is_exceeded_by(&looks) {
            thin_out(&mut looks);
        }
        looks
    }
}

/// Leaves every second look, the last among them, which has the sums.
fn thin_out(looks: &mut Vec<CpuSample>) {
    let mut keeps = looks.len().is_multiple_of(2);
    looks.retain(|_| {
        keeps = !keeps;
        keeps
    });
}

struct Processors {
    meter: ProcessorMeter,
    cpu: CpuTime,
}

impl Processors {
    fn look(&mut self, origin: Instant) -> CpuSample {
        let (at, cpu) = (origin.elapsed().into(), process_cpu_time().unwrap_or(self.cpu));
        let since = |now: Span, before: Span| now.saturating_sub(before);
        let (user, system) = (since(cpu.user, self.cpu.user), since(cpu.system, self.cpu.system));
        CpuSample { at, user, system, ..self.meter.sample() }
    }
}

/// A device, and what it was before.
struct Device {
    before: DeviceState,
    queues: Vec<QueueState>,
    report: DeviceReport,
}

impl Device {
    fn new(name: String) -> io::Result<Self> {
        let before = device_state(&name)?;
        let queues = queue_states(before.index)?;
        let report = DeviceReport {
            speed: device_speed(&name).ok().flatten(),
            name,
            mtu: before.mtu,
            queue_length: Some(before.queue_length),
            ..DeviceReport::default()
        };
        Ok(Self { before, queues, report })
    }

    /// What it has done since; none where it has gone.
    fn look(&mut self) -> Option<DeviceReport> {
        let now = device_state(&self.report.name).ok().filter(|now| now.index == self.before.index)?;
        let queues = queue_states(now.index).ok()?;
        let before = std::mem::take(&mut self.report.qdiscs);
        let backlog = |index: usize| before.get(index).map(|report| report.backlog).unwrap_or_default();
        let stated = queues.iter().take(MAX_QDISCS).enumerate();
        let qdiscs = stated.map(|(index, queue)| {
            let report = since(queue, &self.queues);
            QdiscReport { backlog: report.backlog.max(backlog(index)), ..report }
        });
        self.report.qdiscs = qdiscs.collect();
        self.report.dropped_out = now.dropped_out.saturating_sub(self.before.dropped_out);
        self.report.dropped_in = now.dropped_in.saturating_sub(self.before.dropped_in);
        Some(self.report.clone())
    }
}

/// What `queue` has done since `before`, where it may not have been yet.
fn since(queue: &QueueState, before: &[QueueState]) -> QdiscReport {
    let identity = |queue: &QueueState| (queue.handle, queue.parent, queue.kind.clone());
    let before = before.iter().find(|before| identity(before) == identity(queue));
    let more = |count: fn(&QueueState) -> u32| more(count(queue), before.map_or(0, count));
    QdiscReport {
        kind: queue.kind.clone(),
        rate: queue.rate,
        dropped: more(|queue| queue.dropped),
        overlimits: more(|queue| queue.overlimits),
        requeues: more(|queue| queue.requeues),
        backlog: queue.backlog,
    }
}

/// How far a count went, which may have wrapped around; one that went back is of another that took its place.
fn more(now: u32, before: u32) -> u64 {
    let more = now.wrapping_sub(before);
    u64::from(if more > u32::MAX / 2 { now } else { more })
}

fn lock(seen: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::CoreTime;
    use fullpipe_testkit::within;
    use fullpipe_units::ByteCount;
    use std::net::Ipv4Addr;

    fn looks(count: u64, cores: usize) -> Vec<CpuSample> {
        let look = |at| CpuSample {
            at: Span::from_millis(at),
            cores: vec![CoreTime::default(); cores],
            ..CpuSample::default()
        };
        (1..=count).map(look).collect()
    }

    #[test]
    fn thinning_keeps_the_last_look_and_even_distances() {
        for count in 1..50 {
            let mut all = looks(count, 1);
            thin_out(&mut all);
            assert_eq!(all.last().unwrap().at, Span::from_millis(count));
            assert!(all.windows(2).all(|pair| pair[1].at == pair[0].at + Span::from_millis(2)));
            assert_eq!(all.len() as u64, count.div_ceil(2));
        }
    }

    #[test]
    fn what_is_reported_and_kept_has_its_bounds_with_any_number_of_processors() {
        for (count, cores) in [(0, 0), (600, 2), (10_000, 1), (600, 128), (3, 8_192)] {
            let (stated, kept) = (stated(&looks(count, cores)), kept(looks(count, cores)));
            assert!(stated.len() <= 240 && kept.len() <= 600);
            assert!(stated.len() <= 1 || stated.len() * cores <= 4_000, "{} × {cores}", stated.len());
            assert_eq!(stated.is_empty(), count == 0);
        }
    }

    #[test]
    fn counts_that_wrap_are_followed_and_those_that_begin_anew_are_taken_whole() {
        assert_eq!([more(7, 5), more(3, u32::MAX), more(5, 7)], [2, 4, 5]);
        let queue = |handle, dropped| QueueState { handle, dropped, kind: "fq".to_owned(), ..QueueState::default() };
        let before = [queue(1, 100), queue(2, 50)];
        assert_eq!(since(&queue(2, 53), &before).dropped, 3);
        assert_eq!(since(&queue(3, 53), &before).dropped, 53, "one that was not there");
    }

    #[test]
    fn a_machine_is_looked_at_until_its_watch_ends_and_cheaply() {
        let origin = Instant::now();
        let watch = Before::now(Ipv4Addr::LOCALHOST.into(), None).watch(origin).unwrap();
        assert!(within(Duration::from_secs(30), || lock(&watch.seen).processors.len() >= 2));
        let latest = watch.latest();
        assert_eq!((latest.processors.len(), latest.device.unwrap().name), (1, "lo".to_owned()));
        let seen = watch.finish();
        assert!(seen.processors.len() >= 3);
        assert!(seen.processors.windows(2).all(|pair| pair[1].at > pair[0].at && pair[1].user >= pair[0].user));
        assert!(seen.device.unwrap().mtu > ByteCount::ZERO);
    }

    #[test]
    fn a_device_that_is_not_there_is_not_reported() {
        let watch = Before::now(Ipv4Addr::LOCALHOST.into(), Some("no-such-device")).watch(Instant::now()).unwrap();
        let seen = watch.finish();
        assert_eq!((seen.device, seen.processors.len()), (None, 1));
    }
}

//! Samples of the processors and the network device of this end while data flows.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullpipe_host::{DeviceMeter, NetworkMeter, ProcessorMeter, thin_out_processors};
use fullpipe_record::{CpuSample, Machine};
use fullpipe_sys::{lock, start_thread};

/// Time between two samples at first.
const PERIOD: Duration = Duration::from_millis(200);

/// Bounds of the samples of processors that are kept, less than 1 MB.
const KEPT: SampleBounds = SampleBounds {
    samples: 600,
    cores: 20_000,
};

/// Bounds of the samples of processors that are sent to the other end with the results, about 400
/// KB.
const STATED: SampleBounds = SampleBounds {
    samples: 240,
    cores: 4_000,
};

/// Maximum number of processors whose times are sent to the other end while data flows.
const MAX_CORES: usize = 512;

/// The state of the processors and the device before data begins to flow.
pub(crate) struct MachineSampler {
    processors: ProcessorMeter,
    device: Option<DeviceMeter>,
    network: NetworkMeter,
}

impl MachineSampler {
    /// Returns the state now of the processors of this machine and of `device`, or else of the
    /// device by which packets to `peer` leave.
    pub(crate) fn from_route(peer: IpAddr, device: Option<&str>) -> Self {
        let device = device.map_or_else(
            || DeviceMeter::toward_peer(peer),
            |name| DeviceMeter::for_device(name.to_owned()),
        );
        Self {
            device: device.ok(),
            processors: ProcessorMeter::of_this_process(),
            network: NetworkMeter::of_this_thread(),
        }
    }

    /// Starts a thread that takes samples at times counted from `origin`; `None` if it cannot be
    /// started.
    pub(crate) fn start_watch(self, origin: Instant) -> Option<MachineWatch> {
        let seen = Arc::new(Mutex::new(Machine::default()));
        let (stop, stopped) = channel();
        let shared = Arc::clone(&seen);
        let thread = start_thread("machine", move || {
            self.sample_until_stopped(origin, &stopped, &shared);
        });
        let thread = thread.ok()?;
        Some(MachineWatch {
            seen,
            stop: Some(stop),
            thread,
        })
    }

    fn sample_until_stopped(
        mut self,
        origin: Instant,
        stopped: &Receiver<()>,
        seen: &Mutex<Machine>,
    ) {
        let (mut next, mut period) = (origin + PERIOD, PERIOD);
        loop {
            let pause = next.saturating_duration_since(Instant::now());
            let is_last = stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
            let sample = self.processors.take_sample(origin.elapsed().into());
            let device = self.device.as_mut().and_then(DeviceMeter::take_sample);
            let mut seen = lock(seen);
            seen.processors.extend(sample);
            // A device that has gone keeps its last counts.
            seen.device = device.or(seen.device.take());
            seen.network = self
                .network
                .take_sample(origin.elapsed().into())
                .or(seen.network);
            if KEPT.is_exceeded_by(&seen.processors) {
                thin_out_processors(&mut seen.processors);
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

/// A machine that is sampled by a thread until this is dropped.
pub(crate) struct MachineWatch {
    seen: Arc<Mutex<Machine>>,
    /// Nothing is ever sent; when it is dropped, the thread takes the last sample.
    stop: Option<Sender<()>>,
    thread: JoinHandle<()>,
}

impl MachineWatch {
    /// Returns the latest sample of the processors, and the device at that time.
    pub(crate) fn latest_sample(&self) -> Machine {
        let seen = lock(&self.seen);
        let latest = seen.processors.last().cloned().map(|sample| CpuSample {
            cores: sample.cores.into_iter().take(MAX_CORES).collect(),
            ..sample
        });
        Machine {
            processors: latest.into_iter().collect(),
            device: seen.device.clone(),
            network: seen.network,
            storage: None,
        }
    }

    /// Returns all samples so far, and the device at the time of the last.
    pub(crate) fn so_far(&self) -> Machine {
        lock(&self.seen).clone()
    }

    /// Takes the last sample.
    pub(crate) fn stop_sampling(&mut self) {
        self.stop = None;
    }

    /// Returns all samples.
    pub(crate) fn finish_sampling(mut self) -> Machine {
        self.stop_sampling();
        let _ = self.thread.join();
        std::mem::take(&mut lock(&self.seen))
    }
}

/// Returns as many of `samples` as are sent to the other end.
pub(crate) fn reduce_for_peer(samples: &[CpuSample]) -> Vec<CpuSample> {
    STATED.reduce_samples(samples.to_vec())
}

/// Returns as many of `samples`, of either end, as are kept.
pub(crate) fn reduce_for_record(samples: Vec<CpuSample>) -> Vec<CpuSample> {
    KEPT.reduce_samples(samples)
}

/// Maximum number of samples, and of times of a processor in all of them.
struct SampleBounds {
    samples: usize,
    cores: usize,
}

impl SampleBounds {
    fn is_exceeded_by(&self, samples: &[CpuSample]) -> bool {
        let cores: usize = samples.iter().map(|sample| sample.cores.len()).sum();
        samples.len() > 1 && (samples.len() > self.samples || cores > self.cores)
    }

    fn reduce_samples(&self, mut samples: Vec<CpuSample>) -> Vec<CpuSample> {
        while self.is_exceeded_by(&samples) {
            thin_out_processors(&mut samples);
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::CpuTime;
    use fullpipe_testkit::within;
    use fullpipe_units::{ByteCount, Span};
    use std::net::Ipv4Addr;

    fn samples(count: u64, cores: usize) -> Vec<CpuSample> {
        let sample = |at| CpuSample {
            at: Span::from_millis(at),
            cores: vec![CpuTime::default(); cores],
            ..CpuSample::default()
        };
        (1..=count).map(sample).collect()
    }

    #[test]
    fn samples_that_are_sent_or_kept_are_bounded_with_any_number_of_processors() {
        for (count, cores) in [(0, 0), (600, 2), (10_000, 1), (600, 128), (3, 8_192)] {
            let (stated, kept) = (
                reduce_for_peer(&samples(count, cores)),
                reduce_for_record(samples(count, cores)),
            );
            assert!(stated.len() <= 240 && kept.len() <= 600);
            assert!(
                stated.len() <= 1 || stated.len() * cores <= 4_000,
                "{} × {cores}",
                stated.len()
            );
            assert_eq!(stated.is_empty(), count == 0);
        }
    }

    #[test]
    fn a_machine_is_sampled_until_its_watch_ends() {
        let origin = Instant::now();
        let watch = MachineSampler::from_route(Ipv4Addr::LOCALHOST.into(), None)
            .start_watch(origin)
            .unwrap();
        assert!(within(Duration::from_secs(30), || lock(&watch.seen)
            .processors
            .len()
            >= 2));
        let latest = watch.latest_sample();
        assert_eq!(
            (latest.processors.len(), latest.device.unwrap().name),
            (1, "lo".to_owned())
        );
        let seen = watch.finish_sampling();
        assert!(seen.processors.len() >= 3);
        assert!(
            seen.processors
                .windows(2)
                .all(|pair| pair[1].at > pair[0].at && pair[1].user >= pair[0].user)
        );
        assert!(seen.device.unwrap().mtu > ByteCount::ZERO);
    }

    #[test]
    fn a_device_that_is_not_there_is_not_reported() {
        let watch = MachineSampler::from_route(Ipv4Addr::LOCALHOST.into(), Some("no-such-device"))
            .start_watch(Instant::now())
            .unwrap();
        let seen = watch.finish_sampling();
        assert_eq!((seen.device, seen.processors.len()), (None, 1));
    }
}

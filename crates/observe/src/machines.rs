//! Processor time of the programs that are watched, and what their network devices do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_host::{DeviceMeter, NetworkMeter, ProcessorMeter, thin_out_processors};
use fullpipe_record::{CpuSample, DeviceReport, Machine, NetworkStack};
use fullpipe_units::Span;

/// Maximum number of processes, and of other hosts, that are measured.
const MAX_METERS: usize = 8;

/// Maximum number of samples of a process.
const MAX_SAMPLES: usize = 600;

/// Meters of the processes that have connections, and of the devices toward the other hosts.
#[derive(Debug)]
pub(crate) struct MachineMeters {
    /// Unset where the devices are those of another network namespace, which this process does not
    /// see.
    sees_devices: bool,
    processes: BTreeMap<u32, (ProcessorMeter, Vec<CpuSample>)>,
    devices: BTreeMap<IpAddr, (DeviceMeter, Option<DeviceReport>)>,
    /// The network stack of the namespace of this thread; `None` where it is another's.
    network: Option<(NetworkMeter, Option<NetworkStack>)>,
}

impl MachineMeters {
    pub(crate) fn new(sees_devices: bool) -> Self {
        Self {
            sees_devices,
            processes: BTreeMap::new(),
            devices: BTreeMap::new(),
            network: sees_devices.then(|| (NetworkMeter::of_this_thread(), None)),
        }
    }

    /// Starts to measure the owner of a connection, and the device toward its other end.
    pub(crate) fn add_connection(&mut self, pid: Option<u32>, remote: IpAddr) {
        if self.processes.len() < MAX_METERS
            && let Some(pid) = pid.filter(|pid| !self.processes.contains_key(pid))
            && let Some(meter) = ProcessorMeter::of_process(pid)
        {
            self.processes.insert(pid, (meter, Vec::new()));
        }
        if self.sees_devices
            && self.devices.len() < MAX_METERS
            && !self.devices.contains_key(&remote)
            && let Ok(meter) = DeviceMeter::toward_peer(remote)
        {
            self.devices.insert(remote, (meter, None));
        }
    }

    /// Takes a sample of each meter, at a time since the watching began.
    pub(crate) fn take_sample(&mut self, at: Span) {
        for (meter, samples) in self.processes.values_mut() {
            samples.extend(meter.take_sample(at));
            if samples.len() > MAX_SAMPLES {
                thin_out_processors(samples);
            }
        }
        if let Some((meter, report)) = &mut self.network {
            *report = meter.take_sample(at).or(*report);
        }
        for (meter, report) in self.devices.values_mut() {
            // A device that has gone keeps its last counts.
            *report = meter.take_sample().or(report.take());
        }
    }

    /// Returns the figures of this machine for a connection of `pid` with `remote`, in times since
    /// `begin`.
    pub(crate) fn connection_machine(
        &self,
        pid: Option<u32>,
        remote: IpAddr,
        begin: Span,
    ) -> Machine {
        let samples = pid
            .and_then(|pid| self.processes.get(&pid))
            .map(|(_, samples)| samples.as_slice());
        let since_begin = samples.unwrap_or_default().iter().map(|sample| CpuSample {
            at: sample.at.saturating_sub(begin),
            ..sample.clone()
        });
        Machine {
            processors: since_begin.collect(),
            device: self
                .devices
                .get(&remote)
                .and_then(|(_, report)| report.clone()),
            network: self.network.as_ref().and_then(|(_, report)| *report),
            storage: None,
        }
    }
}

//! Processor time of the programs that are watched, and what their network devices do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_host::{DeviceMeter, NetworkMeter, ProcessorMeter, thin_out_processors};
use fullpipe_units::Span;

use crate::readings::MachineReadings;

/// Maximum number of processes, and of other hosts, that are measured.
const MAX_METERS: usize = 8;

/// Maximum number of samples of a process.
const MAX_SAMPLES: usize = 600;

/// Meters of the processes that have connections, and of the devices toward the other hosts.
pub(crate) struct MachineMeters {
    /// Unset where the devices are those of another network namespace, which this process does not
    /// see.
    sees_devices: bool,
    processes: BTreeMap<u32, ProcessorMeter>,
    devices: BTreeMap<IpAddr, DeviceMeter>,
    /// The network stack of the namespace of this thread; `None` where it is another's.
    network: Option<NetworkMeter>,
    readings: MachineReadings,
}

impl MachineMeters {
    pub(crate) fn new(sees_devices: bool) -> Self {
        Self {
            sees_devices,
            processes: BTreeMap::new(),
            devices: BTreeMap::new(),
            network: sees_devices.then(NetworkMeter::of_this_thread),
            readings: MachineReadings::default(),
        }
    }

    /// Starts to measure the owner of a connection, and the device toward its other end.
    pub(crate) fn add_connection(&mut self, pid: Option<u32>, remote: IpAddr) {
        if self.processes.len() < MAX_METERS
            && let Some(pid) = pid.filter(|pid| !self.processes.contains_key(pid))
            && let Some(meter) = ProcessorMeter::of_process(pid)
        {
            self.processes.insert(pid, meter);
        }
        if self.sees_devices
            && self.devices.len() < MAX_METERS
            && !self.devices.contains_key(&remote)
            && let Ok(meter) = DeviceMeter::toward_peer(remote)
        {
            self.devices.insert(remote, meter);
        }
    }

    /// Takes a sample of each meter, at a time since the watching began.
    pub(crate) fn take_sample(&mut self, at: Span) {
        let readings = &mut self.readings;
        for (pid, meter) in &mut self.processes {
            let samples = readings.processors.entry(*pid).or_default();
            samples.extend(meter.take_sample(at));
            if samples.len() > MAX_SAMPLES {
                thin_out_processors(samples);
            }
        }
        if let Some(meter) = &mut self.network {
            readings.network = meter.take_sample(at).or(readings.network);
        }
        for (remote, meter) in &mut self.devices {
            // A device that has gone keeps its last counts.
            if let Some(report) = meter.take_sample() {
                readings.devices.insert(*remote, report);
            }
        }
    }

    pub(crate) fn into_readings(self) -> MachineReadings {
        self.readings
    }
}

//! What the processors, devices and network stack did for connections.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_record::{CpuSample, DeviceReport, Machine, NetworkStack};
use fullpipe_units::Span;

/// Processor time of processes, and what devices and the network stack did.
#[derive(Debug, Default)]
pub(crate) struct MachineReadings {
    /// By process.
    pub processors: BTreeMap<u32, Vec<CpuSample>>,
    /// Of the device toward each other host.
    pub devices: BTreeMap<IpAddr, DeviceReport>,
    pub network: Option<NetworkStack>,
}

impl MachineReadings {
    /// Returns the figures of this machine for a connection of `pid` with `remote`, in times since
    /// `begin`.
    pub(crate) fn connection_machine(
        &self,
        pid: Option<u32>,
        remote: IpAddr,
        begin: Span,
    ) -> Machine {
        let samples = pid.and_then(|pid| self.processors.get(&pid));
        let since_begin = samples.into_iter().flatten().map(|sample| CpuSample {
            at: sample.at.saturating_sub(begin),
            ..sample.clone()
        });
        Machine {
            processors: since_begin.collect(),
            device: self.devices.get(&remote).cloned(),
            network: self.network,
            storage: None,
        }
    }
}

//! Processors that do not sleep while a path is emulated.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// Keeps the processors awake for as long as it exists.
///
/// A packet that has to wake a processor first is late by what the waking takes: microseconds to
/// hundreds of them on hardware, and in a virtual machine a way through the hypervisor, which also
/// takes the processor away meanwhile. The kernel's power management holds every processor to the
/// lowest wish on the device, and forgets a wish when its file is closed, so nothing is left behind
/// however the program ends (kernel documentation, "PM Quality Of Service Interface").
#[derive(Debug)]
pub struct AwakeProcessors(Option<File>);

impl AwakeProcessors {
    /// Without permission (the device is root's), or in a container without the device, processors
    /// sleep as they always do: the lab then measures the lateness that comes of it like any other.
    pub fn keep_awake() -> Self {
        const MAX_WAKING_MICROSECONDS: i32 = 0;
        let device = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        Self(device.ok().filter(|mut device| {
            device
                .write_all(&MAX_WAKING_MICROSECONDS.to_ne_bytes())
                .is_ok()
        }))
    }

    /// Returns true if the processors are kept awake.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

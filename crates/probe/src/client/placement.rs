//! Data threads near the network device that they use.

use std::net::IpAddr;

use crate::engine::LocalEndpoint;
use fullpipe_host::MachineTree;
use fullpipe_record::Placement;
use fullpipe_sys::output_device;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Moves this thread, and the threads that it starts from now on, to the processors near the device
/// by which packets to `target` leave. Returns these processors, or the reason if there are none.
pub(crate) fn go_near(target: IpAddr, local: &LocalEndpoint) -> Placement {
    let device = local
        .device
        .clone()
        .map_or_else(|| output_device(target), Ok);
    let placement = match device {
        Ok(device) => MachineTree::of_this_host().device_placement(&device),
        Err(error) => no_placement(format!(
            "the kernel does not say by which device packets leave: {error}"
        )),
    };
    if placement.processors.is_empty() {
        return placement;
    }
    let mut set = CpuSet::new();
    placement
        .processors
        .iter()
        .map(|processor| usize::from(*processor))
        .for_each(|processor| {
            if processor < CpuSet::MAX_CPU {
                set.set(processor);
            }
        });
    match sched_setaffinity(None, &set) {
        Ok(()) => placement,
        Err(error) => Placement {
            processors: Vec::new(),
            why_not: Some(format!("the kernel refuses: {error}")),
            ..placement
        },
    }
}

fn no_placement(why: String) -> Placement {
    Placement {
        device: None,
        node: None,
        processors: Vec::new(),
        why_not: Some(why),
    }
}

//! Measurements for tests, from virtual time.

use std::sync::atomic::AtomicBool;

use fullpipe_scenario::{PathSpec, parse_path_flag};

use crate::prelude::*;
use crate::target::{ExperimentTarget, Interrupt};
use crate::virtual_target::VirtualTarget;

/// Returns a short transfer with this rate and this identifier.
pub(super) fn run(mbps: u64, id: &str) -> Measurement {
    let path = parse_path_flag("rate=10M,rtt=10ms", &PathSpec::demo_path()).unwrap();
    let request = Request {
        duration: Span::from_millis(300),
        ..Request::default()
    };
    let target = VirtualTarget::new(path, [&[], &[]], 1);
    let mut run = target
        .measure(&request, Interrupt(&AtomicBool::new(false)), &mut |_| {})
        .unwrap();
    run.id = id.to_owned();
    run.summary.rate = BitRate::from_mbps(mbps);
    run.summary.steady = None;
    run
}

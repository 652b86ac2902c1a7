//! One TCP stream over the lab's path without a rate, beside the least that such a path costs.

use std::sync::atomic::AtomicBool;

use fullpipe_lab::{Backend, Lab, Plan};
use fullpipe_record::Segmentation;
use fullpipe_scenario::{PathSpec, parse_path_flag};
use fullpipe_sys::Offload;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::figures::Figures;
use crate::network::{Joint, Network};
use crate::process::RunError;
use crate::program::{Load, Program, Tools, Traffic};
use crate::shallow;
use crate::throughput::{self, Contestant};

/// No delay and no rate: what is left is what the link costs. A terabit a second limits nothing.
const PATH: &str = "rate=1Tbit/s,rtt=0ms,queue=64MiB,mtu=1500";

/// Compares the lab, a pair of devices of the kernel's, and a bare loop between two TUN devices.
pub(crate) fn compare(
    segmentation: Segmentation,
    seconds: f64,
    rounds: usize,
    tools: &Tools,
    stop: &AtomicBool,
) -> Outcome {
    let (offload, veth) = match segmentation {
        Segmentation::Trains => (Offload::Trains, Joint::Veth),
        Segmentation::Exact => (Offload::Checksums, Joint::VethSingle),
    };
    let joined = || {
        let lab = start_lab(segmentation)?;
        Ok::<_, RunError>((lab, Network::make(veth)?, Network::make(Joint::Tun(offload))?))
    };
    let (lab, veth, bare) = match joined() {
        Ok(joined) => joined,
        Err(why) => return Outcome::skipped(&why),
    };
    let load = Load { traffic: Traffic::Tcp, streams: 1, seconds };
    let names = ["lab", "veth", "bare loop"].map(str::to_owned);
    alternate(&names, &[Quantity::BitsPerSecond], rounds, |number| {
        let over = |network| {
            throughput::run(&Contestant::alone("", Program::Fullpipe, &[]), network, &load, tools, stop)
                .map(|run| run.figures)
        };
        let Figures { bytes, time, .. } = match number {
            0 => shallow::run(&lab, Program::Fullpipe, &load, tools, stop)?.0,
            1 => over(&veth)?,
            _ => over(&bare)?,
        };
        Ok(vec![bytes as f64 * 8.0 / time.as_secs_f64()])
    })
}

fn start_lab(segmentation: Segmentation) -> Result<Lab, RunError> {
    let mut path = parse_path_flag(PATH, &PathSpec::demo()).map_err(RunError::failed)?;
    path.segmentation = segmentation;
    Lab::start(&Plan {
        path,
        seed: 1,
        sender: Vec::new(),
        receiver: Vec::new(),
        backend: Backend::Tun,
        interactive: false,
    })
    .map_err(RunError::failed)
}

//! One TCP stream over the lab's path: without a rate, against the least that such a path costs; and at 1 Gbit/s, in
//! trains and segment by segment.

use std::sync::atomic::AtomicBool;

use fullpipe_lab::Backend;
use fullpipe_record::{Change, Path, Segmentation};
use fullpipe_sys::Offload;
use fullpipe_units::ByteCount;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::lab;
use crate::network::{Joint, Network};
use crate::process::RunError;
use crate::program::{Load, Program, Tools, Traffic};
use crate::shallow;
use crate::throughput::{self, Contestant};

/// No delay and no rate: what is left is what the link costs. A terabit a second limits nothing.
const PATH: &str = "rate=1Tbit/s,rtt=0ms,queue=64MiB,mtu=1500";

/// A path on which trains and single segments are to do the same.
const SAME: &str = "rate=1Gbit/s,rtt=20ms,queue=2bdp,mtu=1500";

/// So long, in seconds, that slow start is little of it.
const LONG: f64 = 8.0;

/// Compares the same transfer in trains and segment by segment.
pub(crate) fn segmentations(seconds: f64, rounds: usize, tools: &Tools, stop: &AtomicBool) -> Outcome {
    let over = |segmentation| {
        let path = Path { segmentation, ..lab::path_of(SAME)? };
        // A small send buffer carries less of single segments, each of which is charged for on its own.
        lab::start_with(path, vec![Change::TcpWmemMax(ByteCount::from_mib(32))], Backend::Tun)
    };
    let labs = match over(Segmentation::Exact).and_then(|exact| Ok([exact, over(Segmentation::Trains)?])) {
        Ok(labs) => labs,
        Err(why) => return Outcome::skipped(&why),
    };
    let load = Load { traffic: Traffic::Tcp, streams: 1, seconds: seconds.max(LONG) };
    let names = ["exact", "trains"].map(str::to_owned);
    alternate(&names, &[Quantity::BitsPerSecond], rounds, |number| {
        let (figures, _) = shallow::run(&labs[number], Program::Fullpipe, &load, tools, stop)?;
        Ok(vec![figures.bits_per_second()])
    })
}

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
        let path = Path { segmentation, ..lab::path_of(PATH)? };
        let lab = lab::start(path, Backend::Tun)?;
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
        let figures = match number {
            0 => shallow::run(&lab, Program::Fullpipe, &load, tools, stop)?.0,
            1 => over(&veth)?,
            _ => over(&bare)?,
        };
        Ok(vec![figures.bits_per_second()])
    })
}

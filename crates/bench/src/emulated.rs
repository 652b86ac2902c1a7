//! Comparisons with one TCP stream over an emulated path. One compares the throughput of a path
//! without a rate limit with that of simpler connections between two hosts; the other compares a
//! transfer at 1 Gbit/s with and without segmentation offload.

use std::sync::atomic::AtomicBool;

use fullpipe_lab::Backend;
use fullpipe_record::{Change, Path, Segmentation};
use fullpipe_sys::TunOffload;
use fullpipe_units::ByteCount;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::lab;
use crate::network::{Joint, Network};
use crate::process::RunError;
use crate::program::{Load, Program, Tools, Traffic};
use crate::shallow;
use crate::throughput::{self, Contestant};

/// Path that adds no delay and whose rate of 1 Tbit/s limits nothing, so that only the work of the
/// emulated link limits the throughput.
const UNLIMITED_PATH: &str = "rate=1Tbit/s,rtt=0ms,queue=64MiB,mtu=1500";

/// Path on which a transfer must reach the same rate with and without segmentation offload.
const GIGABIT_PATH: &str = "rate=1Gbit/s,rtt=20ms,queue=2bdp,mtu=1500";

/// Minimum duration of a transfer over [`GIGABIT_PATH`] in seconds, so that slow start is a small
/// part of the transfer.
const MIN_SECONDS: f64 = 8.0;

/// Compares the rate of a transfer whose sender builds every segment by itself (`exact`) with that
/// of a transfer whose sender uses segmentation offload (`trains`). Each run lasts `seconds`, but
/// at least [`MIN_SECONDS`]. The outcome is "not run" with the reason if a lab cannot be built.
pub(crate) fn compare_segmentation(
    seconds: f64,
    rounds: usize,
    tools: &Tools,
    stop: &AtomicBool,
) -> Outcome {
    let start_lab = |segmentation| {
        let path = Path {
            segmentation,
            ..lab::path_of(GIGABIT_PATH)?
        };
        // Without offload, the kernel charges each segment's own memory to the send buffer, so that
        // a small send buffer holds less data. 32 MiB hold enough in both cases.
        lab::start_with(
            path,
            vec![Change::TcpWmemMax(ByteCount::from_mib(32))],
            Backend::Tun,
        )
    };
    let labs = match start_lab(Segmentation::Exact)
        .and_then(|exact| Ok([exact, start_lab(Segmentation::Trains)?]))
    {
        Ok(labs) => labs,
        Err(error) => return Outcome::skipped(&error),
    };
    let load = Load {
        traffic: Traffic::Tcp,
        streams: 1,
        seconds: seconds.max(MIN_SECONDS),
    };
    let names = ["exact", "trains"].map(str::to_owned);
    alternate(&names, &[Quantity::BitsPerSecond], rounds, |number| {
        let (figures, _) = shallow::run(&labs[number], Program::Fullpipe, &load, tools, stop)?;
        Ok(vec![figures.bits_per_second()])
    })
}

/// Compares the throughput of three connections between two hosts: the lab's emulated path, a pair
/// of virtual Ethernet interfaces, and a loop that only copies packets between two TUN interfaces.
/// All three use segmentation offload if `segmentation` is [`Segmentation::Trains`], and none does
/// if it is [`Segmentation::Exact`]. The outcome is "not run" with the reason if a connection
/// cannot be built.
pub(crate) fn compare(
    segmentation: Segmentation,
    seconds: f64,
    rounds: usize,
    tools: &Tools,
    stop: &AtomicBool,
) -> Outcome {
    let (offload, veth) = match segmentation {
        Segmentation::Trains => (TunOffload::Trains, Joint::Veth),
        Segmentation::Exact => (TunOffload::Checksums, Joint::VethSingle),
    };
    let build = || {
        let path = Path {
            segmentation,
            ..lab::path_of(UNLIMITED_PATH)?
        };
        let lab = lab::start(path, Backend::Tun)?;
        Ok::<_, RunError>((
            lab,
            Network::make(veth)?,
            Network::make(Joint::Tun(offload))?,
        ))
    };
    let (lab, veth, bare_loop) = match build() {
        Ok(connections) => connections,
        Err(error) => return Outcome::skipped(&error),
    };
    let load = Load {
        traffic: Traffic::Tcp,
        streams: 1,
        seconds,
    };
    let names = ["lab", "veth", "bare loop"].map(str::to_owned);
    alternate(&names, &[Quantity::BitsPerSecond], rounds, |number| {
        let run_in = |network| {
            throughput::run(
                &Contestant::alone("", Program::Fullpipe, &[]),
                network,
                &load,
                tools,
                stop,
            )
            .map(|run| run.figures)
        };
        let figures = match number {
            0 => shallow::run(&lab, Program::Fullpipe, &load, tools, stop)?.0,
            1 => run_in(&veth)?,
            _ => run_in(&bare_loop)?,
        };
        Ok(vec![figures.bits_per_second()])
    })
}

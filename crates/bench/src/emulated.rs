//! Comparisons with one TCP stream over an emulated path. One compares the throughput of a path
//! without a rate limit with that of a pair of devices; the other compares a transfer at 1 Gbit/s
//! with and without segmentation offload.

use std::sync::atomic::AtomicBool;

use fullpipe_lab::{Backend, Lab};
use fullpipe_record::{Change, Path, Segmentation};
use fullpipe_units::ByteCount;

use crate::comparison::{Effort, Outcome, Quantity, alternate};
use crate::figures;
use crate::lab;
use crate::network::{Joint, Network};
use crate::process::RunError;
use crate::program::{Load, Program, Tools, Traffic};
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
/// of a transfer whose sender uses segmentation offload (`trains`). The outcome is "not run" with
/// the reason if a lab cannot be built.
pub(crate) fn compare_segmentation(effort: Effort, tools: &Tools, stop: &AtomicBool) -> Outcome {
    // Without offload, the kernel charges each segment's own memory to the send buffer, so that a
    // small send buffer holds less data. 32 MiB hold enough in both cases.
    let sender = [Change::TcpWmemMax(ByteCount::from_mib(32))];
    let start = |segmentation| start_lab(GIGABIT_PATH, segmentation, &sender);
    let exact = start(Segmentation::Exact);
    let labs = match exact.and_then(|exact| Ok([exact, start(Segmentation::Trains)?])) {
        Ok(labs) => labs,
        Err(error) => return Outcome::skipped(&error),
    };
    let load = one_stream(effort.seconds.max(MIN_SECONDS));
    let names = ["exact", "trains"].map(str::to_owned);
    alternate(
        &names,
        &[Quantity::BitsPerSecond],
        effort.rounds,
        |number| Ok(vec![rate_over(&labs[number], &load, tools, stop)?]),
    )
}

/// Compares the throughput of the lab's emulated path with that of a pair of virtual Ethernet
/// interfaces, both with segmentation offload or both without. The outcome is "not run" with the
/// reason if a connection cannot be built.
pub(crate) fn compare(
    segmentation: Segmentation,
    effort: Effort,
    tools: &Tools,
    stop: &AtomicBool,
) -> Outcome {
    let joint = match segmentation {
        Segmentation::Trains => Joint::Veth,
        Segmentation::Exact => Joint::VethSingle,
    };
    let lab = start_lab(UNLIMITED_PATH, segmentation, &[]);
    let (lab, veth) = match lab.and_then(|lab| Ok((lab, Network::make(joint)?))) {
        Ok(connections) => connections,
        Err(error) => return Outcome::skipped(&error),
    };
    let load = one_stream(effort.seconds);
    let names = ["lab", "veth"].map(str::to_owned);
    alternate(
        &names,
        &[Quantity::BitsPerSecond],
        effort.rounds,
        |number| {
            if number == 0 {
                return Ok(vec![rate_over(&lab, &load, tools, stop)?]);
            }
            let alone = Contestant::alone("", Program::Fullpipe, &[]);
            let run = throughput::run(&alone, &veth, &load, tools, stop)?;
            Ok(vec![run.figures.bits_per_second()])
        },
    )
}

fn start_lab(path: &str, segmentation: Segmentation, sender: &[Change]) -> Result<Lab, RunError> {
    let path = Path {
        segmentation,
        ..lab::path_of(path)?
    };
    lab::start(path, [sender.to_vec(), Vec::new()], Backend::Tun)
}

fn one_stream(seconds: f64) -> Load {
    Load {
        traffic: Traffic::Tcp,
        streams: 1,
        seconds,
    }
}

fn rate_over(lab: &Lab, load: &Load, tools: &Tools, stop: &AtomicBool) -> Result<f64, RunError> {
    let ended = lab::measure(lab, load, tools, stop, &mut || Ok(()))?;
    let figures = figures::read(Program::Fullpipe, &ended, "").map_err(RunError::Failed)?;
    Ok(figures.bits_per_second())
}

//! The steady rate of a program's transfer of a given size, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::thread;

use crate::prelude::*;
use crate::simulated::{Attendant, NamedPlan, simulate_attended};
use crate::target::Interrupt;
use fullpipe_copy::{AdaptationChange, CopyAdaptation};
use fullpipe_model::improvement::{LOSS_TOLERANT, can_tolerate_loss};
use fullpipe_observe::{carries_data, last_data};
use fullpipe_record::{TcpInfo, find_steady};
use fullpipe_sim::{Simulation, SimulationPlan};

use super::program::TransferProgram;
use super::transfer::{Limited, PredictedTransfer, blocking_request};

/// Transfers that are simulated.
const COUNT: u16 = 19;

/// The largest file that is simulated: what comes after as much changes the rate little.
const MAX_SIZE: ByteCount = ByteCount::new(2_000_000_000);

/// Places, among the sorted ones, of those between which four fifths lie.
const FOUR_FIFTHS: [usize; 2] = [1, 17];

/// Share of the rate of what a program keeps above TCP from which on that is the limit, and not the
/// losses.
const FILLED: f64 = 0.95;

/// The outcome of simulated transfers.
pub(crate) struct SimulatedProgram {
    pub(crate) median: BitRate,
    /// The rates between which four fifths of the simulated transfers lie.
    pub(crate) range: [BitRate; 2],
    pub(crate) limit: Limit,
    /// The limits that the simulated transfers have.
    pub(crate) limits: Vec<Limit>,
}

impl SimulatedProgram {
    /// Simulates transfers by `program` over `connections`. One that is held back above TCP writes
    /// at that rate. `None` if something of the path is not modelled.
    pub(crate) fn simulate_program(
        transfer: PredictedTransfer<'_>,
        program: TransferProgram,
        connections: u16,
        own: Option<Limited>,
        interrupt: Interrupt<'_>,
    ) -> Option<Self> {
        let PredictedTransfer {
            path, hosts, size, ..
        } = transfer;
        let rate = own.map(|(rate, _)| rate.scale_by(1.0 / f64::from(connections)));
        let rate = rate.filter(|rate| path.forward.rate.is_none_or(|of_link| *rate < of_link));
        let request = Request {
            rate,
            bytes: Some(size.min(MAX_SIZE)),
            ..blocking_request(connections)
        };
        let plan = SimulationPlan::new(path.clone(), hosts.map(Clone::clone), request, 1);
        let plan = NamedPlan {
            name: None,
            plan: SimulationPlan {
                division: program.file_division(),
                ..plan
            },
        };
        let jobs = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mut all = Vec::new();
        simulate_attended(
            &plan,
            (COUNT, jobs),
            (CopyAdaptation::INTERVAL, &|| {
                program_attendant(program, &plan.plan)
            }),
            interrupt,
            &mut |measurement: Measurement| {
                let limit = measurement.limit.as_ref();
                let limit = limit.map_or(Limit::Loss, |verdict| verdict.kind);
                all.push((steady_rate(&measurement, path.rtt()), limit));
            },
        )
        .ok()?;
        all.sort_by_key(|(rate, _)| *rate);
        let (_, of_transfer) = *all.get(all.len() / 2)?;
        let median = median(all.iter().map(|(rate, _)| *rate).collect())?;
        let limit = own
            .filter(|(rate, _)| median >= rate.scale_by(FILLED))
            .map_or(of_transfer, |(_, limit)| limit);
        let range = FOUR_FIFTHS.map(|place| all[place].0);
        Some(Self {
            median,
            range,
            limit,
            limits: all.into_iter().map(|(_, limit)| limit).collect(),
        })
    }
}

/// Returns the action that a program takes on its connections while it runs: copy changes to BBR
/// where they lose packets without a queue. Connections that it adds where full buffers hold the
/// others back, and the common bound of all from the first overflow on, are not simulated.
fn program_attendant(program: TransferProgram, plan: &SimulationPlan) -> Attendant {
    if !matches!(program, TransferProgram::Copy | TransferProgram::CopyServer) {
        return Box::new(|_| {});
    }
    let may_change =
        plan.sender.congestion_control != LOSS_TOLERANT && can_tolerate_loss(&plan.sender);
    let mut course = CopyAdaptation::default();
    Box::new(move |simulation: &mut Simulation| {
        let infos: Vec<TcpInfo> = simulation
            .sender_samples()
            .into_iter()
            .map(|sample| sample.tcp)
            .collect();
        if let Some(AdaptationChange::Lossy(_)) =
            course.add_infos(simulation.current_time(), &infos)
            && may_change
        {
            // A congestion control that is not modelled changes nothing.
            let _ = simulation.use_congestion(LOSS_TOLERANT);
        }
    })
}

/// Returns the rate after the ramp and up to the last data, or the mean where nothing comes after
/// the ramp, as the program's connections would be watched.
fn steady_rate(measurement: &Measurement, rtt: Span) -> BitRate {
    let mut samples = as_watched(&measurement.sending_end().samples);
    let streams: BTreeSet<u16> = samples.iter().map(|sample| sample.stream).collect();
    let ended = streams
        .into_iter()
        .map(|stream| last_data(&samples, stream))
        .max()
        .unwrap_or_default();
    samples.retain(|sample| sample.at <= ended);
    find_steady(&samples, Some(rtt), ended).map_or_else(
        || TransferProgress::from_samples(&samples, Span::MAX).mean_rate(Span::ZERO, ended),
        |steady| steady.rate,
    )
}

/// Returns the samples of the connections that carry the data, with the bytes that were
/// acknowledged.
fn as_watched(samples: &[Sample]) -> Vec<Sample> {
    let offered: BTreeMap<u16, ByteCount> = samples
        .iter()
        .map(|sample| {
            (
                sample.stream,
                acknowledged_bytes(sample) + sample.unacknowledged_bytes(),
            )
        })
        .collect();
    let most = offered.values().copied().max().unwrap_or_default();
    let with_data = samples
        .iter()
        .filter(|sample| carries_data(offered[&sample.stream], most));
    with_data
        .map(|sample| Sample {
            bytes: acknowledged_bytes(sample),
            ..sample.clone()
        })
        .collect()
}

fn acknowledged_bytes(sample: &Sample) -> ByteCount {
    sample.tcp.bytes_acked.unwrap_or_default()
}

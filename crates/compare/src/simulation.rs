//! The steady rate of a program's transfer of a given size, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::thread;

use fullpipe_copy::{Change, Course};
use fullpipe_experiment::{Attendant, Interrupt, NamedPlan, simulate_attended};
use fullpipe_model::improvement::{LOSS_TOLERANT, can_tolerate_loss};
use fullpipe_observe::{carries_data, last_data};
use fullpipe_record::{Limit, Measurement, Progress, Request, Sample, TcpInfo, steady};
use fullpipe_sim::{Plan, Simulation};
use fullpipe_units::{BitRate, ByteCount, Span, median};

use crate::program::Program;
use crate::transfer::{Limited, Predicted, request};

/// Transfers that are simulated.
const COUNT: u16 = 19;

/// The largest file that is simulated: what comes after as much changes the rate little.
const MAX_SIZE: ByteCount = ByteCount::new(2_000_000_000);

/// Places, among the sorted ones, of those between which four fifths lie.
const FOUR_FIFTHS: [usize; 2] = [1, 17];

/// Share of the rate of what a program keeps above TCP from which on that is the limit, and not the losses.
const FILLED: f64 = 0.95;

/// The outcome of simulated transfers.
pub(crate) struct Simulated {
    pub(crate) median: BitRate,
    /// The rates between which four fifths of the simulated transfers lie.
    pub(crate) range: [BitRate; 2],
    pub(crate) limit: Limit,
}

impl Simulated {
    /// Simulates transfers by `program` over `connections`. One that is held back above TCP writes at that rate. `None`
    /// if something of the path is not modelled.
    pub(crate) fn of(
        transfer: Predicted<'_>,
        program: Program,
        connections: u16,
        own: Option<Limited>,
        interrupt: Interrupt<'_>,
    ) -> Option<Self> {
        let Predicted { path, hosts, size, .. } = transfer;
        let rate = own.map(|(rate, _)| rate.scaled(1.0 / f64::from(connections)));
        let rate = rate.filter(|rate| path.forward.rate.is_none_or(|of_link| *rate < of_link));
        let request = Request { rate, bytes: Some(size.min(MAX_SIZE)), ..request(connections) };
        let plan = Plan::new(path.clone(), hosts.map(Clone::clone), request, 1);
        let plan = NamedPlan { name: None, plan: Plan { division: program.division(), ..plan } };
        let jobs = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let attendant = || attendant(program, &plan.plan);
        let mut all = Vec::new();
        let mut keep = |measurement: Measurement| {
            let limit = measurement.limit.as_ref().map_or(Limit::Loss, |verdict| verdict.kind);
            all.push((steady_rate(&measurement, path.rtt()), limit));
        };
        simulate_attended(&plan, (COUNT, jobs), (Course::INTERVAL, &attendant), interrupt, &mut keep).ok()?;
        all.sort_by_key(|(rate, _)| *rate);
        let (_, of_transfer) = *all.get(all.len() / 2)?;
        let median = median(all.iter().map(|(rate, _)| *rate).collect())?;
        let fills = |(rate, _): &Limited| median >= rate.scaled(FILLED);
        let limit = own.filter(fills).map_or(of_transfer, |(_, limit)| limit);
        let range = FOUR_FIFTHS.map(|place| all[place].0);
        Some(Self { median, range, limit })
    }
}

/// Returns the action that a program takes on its connections while it runs: copy changes to BBR
/// where they lose packets without a queue. Connections that it adds where full buffers hold the
/// others back, and the common bound of all from the first overflow on, are not simulated.
fn attendant(program: Program, plan: &Plan) -> Attendant {
    if !matches!(program, Program::Copy | Program::CopyServer) {
        return Box::new(|_| {});
    }
    let may_change = plan.sender.congestion_control != LOSS_TOLERANT && can_tolerate_loss(&plan.sender);
    let mut course = Course::default();
    Box::new(move |simulation: &mut Simulation| {
        let infos: Vec<TcpInfo> = simulation.senders().into_iter().map(|sample| sample.tcp).collect();
        if let Some(Change::Lossy(_)) = course.follow(simulation.now(), &infos)
            && may_change
        {
            // A congestion control that is not modelled changes nothing.
            let _ = simulation.use_congestion(LOSS_TOLERANT);
        }
    })
}

/// Returns the rate after the ramp and up to the last data, or the mean where nothing comes after the ramp, as the
/// program's connections would be watched.
fn steady_rate(measurement: &Measurement, rtt: Span) -> BitRate {
    let mut samples = as_watched(&measurement.sender().samples);
    let streams: BTreeSet<u16> = samples.iter().map(|sample| sample.stream).collect();
    let ended = streams.into_iter().map(|stream| last_data(&samples, stream)).max().unwrap_or_default();
    samples.retain(|sample| sample.at <= ended);
    let mean = || Progress::of(&samples, Span::MAX).rate(Span::ZERO, ended);
    steady(&samples, Some(rtt), ended).map_or_else(mean, |steady| steady.rate)
}

/// Returns the samples of the connections that carry the data, with the bytes that were acknowledged.
fn as_watched(samples: &[Sample]) -> Vec<Sample> {
    let acknowledged = |sample: &Sample| sample.tcp.bytes_acked.unwrap_or_default();
    let offered: BTreeMap<u16, ByteCount> =
        samples.iter().map(|sample| (sample.stream, acknowledged(sample) + sample.unacknowledged())).collect();
    let most = offered.values().copied().max().unwrap_or_default();
    let with_data = samples.iter().filter(|sample| carries_data(offered[&sample.stream], most));
    with_data.map(|sample| Sample { bytes: acknowledged(sample), ..sample.clone() }).collect()
}

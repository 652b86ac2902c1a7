//! Transfers in virtual time: each judged, many at once on as many threads as there are, in their
//! order.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{
    Candidate, Evidence, Measurement, Path, RateSpread, Sample, SegmentSpread, SimulatedTransfer,
    Transport,
};
use fullpipe_sim::{NotModelled, Simulation, SimulationPlan};
use fullpipe_store::id_of_bytes;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use crate::error::ExperimentError;
use crate::target::Interrupt;

/// Events between two checks for an interrupt: some milliseconds, however much happens in a second
/// of virtual time.
const CHECK_EVENTS: u32 = 10_000;

/// A transfer to simulate, with the name that its results have, if any.
#[derive(Debug, Clone)]
pub struct NamedPlan {
    /// The name.
    pub name: Option<String>,
    /// The transfer.
    pub plan: SimulationPlan,
}

/// Simulates `plan` and names its limit.
///
/// # Errors
/// If something in it is not modelled, or it is interrupted.
pub fn simulate_plan(
    plan: SimulationPlan,
    interrupt: Interrupt<'_>,
) -> Result<Measurement, ExperimentError> {
    let judge = LimitJudge::from_plan(&plan);
    let mut simulation = Simulation::new(plan)?;
    run_to_end(&mut simulation, interrupt)?;
    Ok(judge.judge_measurement(simulation.run_to_measurement()))
}

/// As [`simulate_plan`]. Returns the captures of the sender and of the receiver, too, as
/// [`Simulation::take_captures`] does.
///
/// # Errors
/// As [`simulate_plan`].
pub fn simulate_captured(
    plan: SimulationPlan,
    interrupt: Interrupt<'_>,
) -> Result<(Measurement, [Vec<u8>; 2]), ExperimentError> {
    let judge = LimitJudge::from_plan(&plan);
    let mut simulation = Simulation::with_captures(plan)?;
    run_to_end(&mut simulation, interrupt)?;
    let captures = simulation.take_captures().unwrap_or_default();
    Ok((
        judge.judge_measurement(simulation.run_to_measurement()),
        captures,
    ))
}

/// The path of a transfer whose limit can be named.
struct LimitJudge(Option<Path>);

impl LimitJudge {
    /// Datagrams have no limit but their rate, and the effect of other loads is no evidence of the
    /// transfer.
    fn from_plan(plan: &SimulationPlan) -> Self {
        let is_judged = plan.request.transport == Transport::Tcp && plan.cross_traffic.is_empty();
        Self(is_judged.then(|| plan.path.clone()))
    }

    fn judge_measurement(self, measurement: Measurement) -> Measurement {
        let Some(Path { forward, .. }) = self.0 else {
            return measurement;
        };
        let verdict = diagnose(&Evidence::from_measurement(
            &measurement,
            forward.rate,
            forward.framing,
        ));
        Measurement {
            limit: Some(verdict),
            ..measurement
        }
    }
}

/// The state of one connection's sender and of the queue at a moment of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct TracePoint {
    /// The sender.
    pub sender: Sample,
    /// Rate of what was acknowledged since the point before; zero at the first.
    pub rate: BitRate,
    /// Bytes that wait for the link in the direction of the data or are being sent.
    pub queued: ByteCount,
}

/// As [`simulate_plan`]. Passes the state of each connection to `trace`, at the start, every
/// `interval`, and at the end.
///
/// # Errors
/// As [`simulate_plan`]; and what `trace` fails with.
pub fn simulate_traced<E: From<ExperimentError>>(
    plan: SimulationPlan,
    interval: Span,
    interrupt: Interrupt<'_>,
    trace: &mut dyn FnMut(&TracePoint) -> Result<(), E>,
) -> Result<Measurement, E> {
    let judge = LimitJudge::from_plan(&plan);
    let mut simulation = Simulation::new(plan).map_err(ExperimentError::from)?;
    let mut before: Vec<Sample> = Vec::new();
    loop {
        let queued = simulation.queued_bytes();
        let now = simulation.sender_samples();
        for (index, sender) in now.iter().enumerate() {
            let rate = before
                .get(index)
                .map_or(BitRate::ZERO, |before| rate_between(before, sender));
            trace(&TracePoint {
                sender: sender.clone(),
                rate,
                queued,
            })?;
        }
        if simulation.is_over() {
            break;
        }
        before = now;
        let until = simulation.current_time() + interval;
        run_until(&mut simulation, until, interrupt)?;
    }
    Ok(judge.judge_measurement(simulation.run_to_measurement()))
}

fn rate_between(before: &Sample, after: &Sample) -> BitRate {
    let [acked_before, acked] =
        [before, after].map(|sample| sample.tcp.bytes_acked.unwrap_or_default());
    BitRate::from_bytes_in(
        acked.saturating_sub(acked_before),
        after.at.saturating_sub(before.at),
    )
}

/// Runs `simulation` to its end.
///
/// # Errors
/// If it is interrupted.
pub(crate) fn run_to_end(
    simulation: &mut Simulation,
    interrupt: Interrupt<'_>,
) -> Result<(), ExperimentError> {
    run_until(simulation, Time::from_nanos(u64::MAX), interrupt)?;
    // Judging many streams takes its time, too.
    if interrupt.is_requested() {
        Err(ExperimentError::Interrupted)
    } else {
        Ok(())
    }
}

/// Runs `simulation` up to `until`, or to its end.
///
/// # Errors
/// If it is interrupted.
fn run_until(
    simulation: &mut Simulation,
    until: Time,
    interrupt: Interrupt<'_>,
) -> Result<(), ExperimentError> {
    while !interrupt.is_requested() {
        if simulation.advance_to(until, CHECK_EVENTS) {
            return Ok(());
        }
    }
    Err(ExperimentError::Interrupted)
}

/// Simulates each of `plans` with `seeds` seeds, from its own on, on `jobs` threads. Passes each
/// measurement to `each`, the seeds of the first plan first.
///
/// # Errors
/// Before the first transfer if something in one of them is not modelled; if it is interrupted.
pub fn simulate_each(
    plans: &[NamedPlan],
    seeds: u16,
    jobs: NonZeroUsize,
    interrupt: Interrupt<'_>,
    each: &mut dyn FnMut(Measurement),
) -> Result<(), ExperimentError> {
    with_seeds(
        plans,
        seeds,
        jobs,
        |plan| simulate_plan(plan, interrupt),
        |_, measurement| each(measurement),
    )
}

/// The acts of a program on its own transfer while it runs.
pub type Attendant = Box<dyn FnMut(&mut Simulation)>;

/// As [`simulate_each`], of one plan. Each transfer has an attendant of its own, which is called
/// every `interval` of virtual time.
///
/// # Errors
/// As [`simulate_each`].
pub fn simulate_attended(
    plan: &NamedPlan,
    (seeds, jobs): (u16, NonZeroUsize),
    (interval, attendant): (Span, &(dyn Fn() -> Attendant + Sync)),
    interrupt: Interrupt<'_>,
    each: &mut dyn FnMut(Measurement),
) -> Result<(), ExperimentError> {
    with_seeds(
        std::slice::from_ref(plan),
        seeds,
        jobs,
        |plan| {
            let judge = LimitJudge::from_plan(&plan);
            let mut simulation = Simulation::new(plan)?;
            let mut attend = attendant();
            while !simulation.is_over() {
                let until = simulation.current_time() + interval;
                run_until(&mut simulation, until, interrupt)?;
                attend(&mut simulation);
            }
            Ok(judge.judge_measurement(simulation.run_to_measurement()))
        },
        |_, measurement| each(measurement),
    )
}

/// Simulates each of `plans` with `seeds` seeds, from its own on, on `jobs` threads. Passes what
/// each plan comes to to `each`, in the order of the plans.
///
/// # Errors
/// Before the first transfer if something in one of them is not modelled; if it is interrupted.
pub fn simulate_summaries(
    plans: &[NamedPlan],
    seeds: u16,
    jobs: NonZeroUsize,
    interrupt: Interrupt<'_>,
    each: &mut dyn FnMut(SimulatedTransfer),
) -> Result<(), ExperimentError> {
    let mut of_plan = Vec::new();
    with_seeds(
        plans,
        seeds,
        jobs,
        |plan| simulate_plan(plan, interrupt).map(TransferOutcome::from_measurement),
        |plan, outcome| {
            of_plan.push(outcome);
            if of_plan.len() == usize::from(seeds) {
                summarise_outcomes(plan, std::mem::take(&mut of_plan))
                    .into_iter()
                    .for_each(&mut *each);
            }
        },
    )
}

/// Returns the identifier of a result in virtual time that follows from `inputs`, whose every field
/// takes part, and from the version of this program.
pub(crate) fn row_id(inputs: &dyn Debug) -> String {
    id_of_bytes(format!("{} {inputs:?}", env!("CARGO_PKG_VERSION")).as_bytes())
}

/// Runs `plans` by `run` with `seeds` seeds each, and passes the results to `each`, in order.
fn with_seeds<R: Send>(
    plans: &[NamedPlan],
    seeds: u16,
    jobs: NonZeroUsize,
    run: impl Fn(SimulationPlan) -> Result<R, ExperimentError> + Sync,
    mut each: impl FnMut(&NamedPlan, R),
) -> Result<(), ExperimentError> {
    for named in plans {
        Simulation::new(named.plan.clone()).map_err(|refused| named.not_modelled_error(refused))?;
    }
    let runs: Vec<(&NamedPlan, u64)> = plans
        .iter()
        .flat_map(|plan| (0..u64::from(seeds)).map(move |seed| (plan, seed)))
        .collect();
    let mut failed = None;
    in_order(
        jobs,
        &runs,
        |(named, seed)| {
            run(SimulationPlan {
                seed: named.plan.seed.wrapping_add(*seed),
                ..named.plan.clone()
            })
        },
        |(named, _), result| match result {
            Ok(result) if failed.is_none() => each(named, result),
            Ok(_) => {}
            Err(error) => failed = failed.take().or(Some(error)),
        },
    );
    failed.map_or(Ok(()), Err)
}

impl NamedPlan {
    /// Returns the identifier of what this plan comes to with so many seeds.
    pub fn row_id(&self, seeds: usize) -> String {
        row_id(&(self, seeds))
    }

    fn not_modelled_error(&self, cause: NotModelled) -> ExperimentError {
        match self.name.clone() {
            Some(name) => ExperimentError::Named { name, cause },
            None => cause.into(),
        }
    }
}

/// Applies `work` to each item on `jobs` threads, and passes the results to `each` in the order of
/// the items.
fn in_order<T: Sync, R: Send>(
    jobs: NonZeroUsize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut each: impl FnMut(&T, R),
) {
    let next = AtomicUsize::new(0);
    let (done, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.get().min(items.len()) {
            let (next, work, done) = (&next, &work, done.clone());
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if done.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let mut early = BTreeMap::new();
        let mut waiting = items.iter().enumerate().peekable();
        for (index, result) in results {
            early.insert(index, result);
            while let Some((item, result)) = waiting
                .peek()
                .and_then(|(index, item)| Some((*item, early.remove(index)?)))
            {
                each(item, result);
                waiting.next();
            }
        }
    });
}

/// The figures of one transfer that a summary needs.
struct TransferOutcome {
    rate: BitRate,
    retransmits: SegCount,
    loaded_rtt: Option<Span>,
    limit: Option<Candidate>,
    warnings: Vec<String>,
}

impl TransferOutcome {
    fn from_measurement(measurement: Measurement) -> Self {
        Self {
            warnings: [measurement.warnings, measurement.validity.broken].concat(),
            rate: measurement.summary.rate,
            retransmits: measurement.summary.retransmits.unwrap_or_default(),
            loaded_rtt: measurement.rtt.loaded.map(|rtt| rtt.median),
            limit: measurement.limit.map(|verdict| Candidate {
                kind: verdict.kind,
                cause: verdict.cause,
                at: verdict.at,
            }),
        }
    }
}

/// Returns the summary of the outcomes of all seeds of `named`.
fn summarise_outcomes(
    named: &NamedPlan,
    mut outcomes: Vec<TransferOutcome>,
) -> Option<SimulatedTransfer> {
    outcomes.sort_by_key(|outcome| outcome.rate);
    let mut again: Vec<SegCount> = outcomes.iter().map(|outcome| outcome.retransmits).collect();
    again.sort_unstable();
    let middle = outcomes.len() / 2;
    let (low, median, high) = (outcomes.first()?, outcomes.get(middle)?, outcomes.last()?);
    Some(SimulatedTransfer {
        id: named.row_id(outcomes.len()),
        name: named.name.clone(),
        path: named.plan.path.clone(),
        request: named.plan.request.clone(),
        seeds: u32::try_from(outcomes.len()).unwrap_or(u32::MAX),
        rate: RateSpread {
            low: low.rate,
            median: median.rate,
            high: high.rate,
        },
        retransmits: SegmentSpread {
            low: *again.first()?,
            median: *again.get(middle)?,
            high: *again.last()?,
        },
        loaded_rtt: median.loaded_rtt,
        limit: median.limit,
        warnings: median.warnings.clone(),
    })
}

#[cfg(test)]
mod tests;

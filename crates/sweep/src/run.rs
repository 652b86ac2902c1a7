//! The runs of a sweep, one after another.

use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_campaign::{Next, Plan, dips, growth_of_rtt, spent, together};
use fullpipe_record::{
    DailyHours, DeviceCounts, Direction, Measurement, Request, Summary, SweepCell, SweepLoad, SweepReason, SweepReport,
    SweepRun, SweepRunRecord,
};
use fullpipe_units::{ByteCount, Span};

use crate::course::load;
use crate::device::{Account, device};
use crate::prepare::{idle_rtt, request, wall};

/// Samples of each end that are kept with a run.
const KEPT_SAMPLES: usize = 200;

/// Length of the intervals in which the streams of a run are compared.
const INTERVAL: Span = SweepLoad::STEP;

/// Payload of a segment on Ethernet, with time stamps.
const USUAL_MSS: ByteCount = ByteCount::new(1448);

/// Something that measures: a real host, a lab or a simulation.
pub trait Measure {
    /// Why a measurement could not be made at all.
    type Error;

    /// Makes one measurement, the `number`th of the sweep, from 0. It is interrupted once it has moved more than `most`
    /// bytes of payload, where bytes cost somebody something.
    ///
    /// # Errors
    /// If it cannot be made. One that broke off is none, and an interrupt neither.
    fn measure(&mut self, number: u32, request: &Request, most: Option<ByteCount>) -> Result<Measurement, Self::Error>;

    /// Returns the counts of the device of this end that carries the data, as they are now; `None` where they are not
    /// known, as in virtual time.
    fn device(&mut self) -> Option<DeviceCounts>;

    /// Waits, without load, or less if the user interrupts.
    fn rest(&mut self, span: Span);

    /// Waits until one of these hours, or less if the user interrupts.
    fn wait_for(&mut self, hours: DailyHours);
}

/// A sweep while it runs.
#[derive(Debug)]
pub struct Sweep<'s> {
    /// The plan.
    pub plan: &'s Plan,
    /// Its runs so far.
    pub runs: Vec<SweepRun>,
    /// Set when the user asks it to end.
    pub interrupt: &'s AtomicBool,
}

impl Sweep<'_> {
    /// Makes the runs that are left, and passes each to `keep` before the next begins. An interrupt ends it before its
    /// next run, and a run that it cut short is not kept. One that reaches the bytes that are permitted is the last.
    ///
    /// # Errors
    /// Fails if a measurement cannot be made, and with an error of `keep`.
    pub fn run<M: Measure>(
        mut self,
        measure: &mut M,
        keep: &mut dyn FnMut(SweepRunRecord) -> Result<(), M::Error>,
    ) -> Result<SweepReport, M::Error> {
        let mut account = Account::default();
        while let Next::Run { cell, reason } = self.plan.next(&self.runs) {
            let number = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
            if let Some(hours) = self.plan.fixed().hours {
                measure.wait_for(hours);
            }
            if self.is_interrupted() {
                return Ok(self.report(true));
            }
            let before = account.passed(measure.device());
            let left = self.plan.fixed().max_bytes.map(|most| most.saturating_sub(spent(&self.runs).bytes));
            let measurement = match measure.measure(number, &self.request(cell), left) {
                // What measures may call the interrupt an error.
                Err(_) if self.is_interrupted() => return Ok(self.report(true)),
                measured => measured?,
            };
            let during = account.passed(measure.device());
            if self.is_interrupted() {
                return Ok(self.report(true));
            }
            let device = device(before.as_ref(), during, &measurement, payload(&measurement));
            let run = SweepRun { device, ..self.figures(cell, reason, &measurement) };
            let (rest, is_last) = (run.took.saturating_sub(wall(&measurement)), measurement.interrupted);
            keep(record(self.plan, number, &run, measurement))?;
            self.runs.push(run);
            if is_last {
                break;
            }
            measure.rest(rest);
        }
        Ok(self.report(false))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    fn request(&self, cell: SweepCell) -> Request {
        let fixed = self.plan.fixed();
        let request = request(cell, self.plan.length().total());
        let congestion = fixed.congestion.clone();
        Request { congestion, direction: fixed.direction, interval: INTERVAL, ..request }
    }

    fn figures(&self, cell: SweepCell, reason: SweepReason, measurement: &Measurement) -> SweepRun {
        let summary = &measurement.summary;
        let mut broken = measurement.validity.broken.clone();
        broken.extend(measurement.broken_off.clone());
        broken.extend(measurement.interrupted.then(|| "--max-bytes ended it".to_owned()));
        let rate = summary.steady.map_or(summary.rate, |steady| steady.rate);
        SweepRun {
            cell,
            reason,
            rate: broken.is_empty().then_some(rate),
            sent: sent(measurement),
            took: wall(measurement).scaled(1.0 / self.plan.fixed().duty.get()),
            idle_rtt: idle_rtt(measurement),
            loaded_rtt: measurement.rtt.loaded.map(|loaded| loaded.median),
            retransmits: summary.retransmits,
            together: together(measurement),
            load: load(measurement),
            device: None,
            broken,
        }
    }

    fn report(self, interrupted: bool) -> SweepReport {
        let Self { plan, runs, .. } = self;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        SweepReport {
            plan: plan.fixed().clone(),
            segments: plan.segments(&runs).into_iter().map(count).collect(),
            answer: plan.answer(&runs),
            left_out: plan.left_out(&runs),
            predicted_knee: plan.predicted_knee(),
            surface: plan.surface(&runs),
            rtt: growth_of_rtt(&runs),
            dips: dips(&runs, plan.fixed().rtt),
            forecast: plan.fixed().forecast.map(|forecast| forecast.median),
            spent: spent(&runs),
            grid: plan.grid_cost(&runs),
            runs,
            interrupted,
        }
    }
}

/// Returns the bytes that the path carried, what was sent again included. What was written is no measure of it, since
/// large send buffers hold much of that when a run ends; nor is what arrived in time, since a window more is under way
/// then. The kernel of a receiver does not know what was sent again.
fn sent(measurement: &Measurement) -> ByteCount {
    let carried = measurement.run.and_then(|run| run.carried);
    let Summary { received, retransmits, .. } = measurement.summary;
    let again = retransmits.unwrap_or_default().of_size(USUAL_MSS);
    match (carried, measurement.carried_out().direction) {
        (Some(carried), Direction::Upload) => carried,
        (carried, _) => carried.unwrap_or(received) + again,
    }
}

/// Returns the payload that passed this end's device in the direction of the data, of an upload with what was sent
/// again.
fn payload(measurement: &Measurement) -> ByteCount {
    match measurement.carried_out().direction {
        Direction::Download => measurement.run.and_then(|run| run.carried).unwrap_or(measurement.summary.received),
        Direction::Upload | Direction::Both => sent(measurement),
    }
}

fn record(plan: &Plan, number: u32, run: &SweepRun, mut measurement: Measurement) -> SweepRunRecord {
    let ramp = measurement.summary.steady.map(|steady| steady.ramp);
    for end in [&mut measurement.local, &mut measurement.remote] {
        end.thin(ramp, KEPT_SAMPLES);
    }
    let sweep = plan.fixed().id.clone();
    SweepRunRecord { sweep, number, run: run.clone(), measurement: Some(Box::new(measurement)) }
}

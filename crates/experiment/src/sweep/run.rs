//! The runs of a sweep, one after another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fullpipe_record::{
    DailyHours, DeviceCounts, Summary, SweepCell, SweepCost, SweepLoad, SweepReason, SweepReport,
    SweepRun, SweepRunRecord,
};
use fullpipe_stats::campaign::{
    CampaignPlan, CampaignStep, find_dips, growth_of_rtt, spent_cost, stream_variance_ratio,
};

use crate::prelude::*;

use super::course::sweep_load;
use super::device::{DeviceReading, sweep_device};
use super::prepare::{idle_rtt, run_request, wall_time};

/// Samples of each end that are kept with a run.
const KEPT_SAMPLES: usize = 200;

/// Length of the intervals in which the streams of a run are compared.
const INTERVAL: Span = SweepLoad::STEP;

/// Payload of a segment on Ethernet, with time stamps.
const USUAL_MSS: ByteCount = ByteCount::new(1448);

/// Attempts to start a run, after which it is one that does not count.
const ATTEMPTS: u32 = 3;

/// Pause after an attempt that failed: a server that is started again, or serves somebody else, is
/// there again soon.
const PAUSE: Span = Span::from_secs(5);

/// Something that measures: a real host, a lab or a simulation.
pub trait SweepMeasurer {
    /// Why a measurement could not be made at all.
    type Error;

    /// Returns the reason for which a single measurement could not be made, a sentence, where
    /// another attempt or another setting may succeed; `None` of an error with which the whole
    /// sweep fails.
    fn of_single(error: &Self::Error) -> Option<String>;

    /// Makes one measurement, the `number`th of the sweep, from 0. It is interrupted once it has
    /// moved more than `most` bytes of payload, where bytes cost somebody something.
    ///
    /// # Errors
    /// If it cannot be made. One that broke off is none, and an interrupt neither.
    fn measure_run(
        &mut self,
        number: u32,
        request: &Request,
        most: Option<ByteCount>,
    ) -> Result<Measurement, Self::Error>;

    /// Returns the counts of the device of this end that carries the data, as they are now; `None`
    /// where they are not known, as in virtual time.
    fn device_counts(&mut self) -> Option<DeviceCounts>;

    /// Waits, without load, or less if the user interrupts.
    fn wait_idle(&mut self, span: Span);

    /// Waits until one of these hours, or less if the user interrupts.
    fn wait_for(&mut self, hours: DailyHours);
}

/// A sweep while it runs.
#[derive(Debug)]
pub struct RunningSweep<'s> {
    /// The plan.
    pub plan: &'s CampaignPlan,
    /// Runs of the sweep so far.
    pub runs: Vec<SweepRun>,
    /// Set when the user asks it to end.
    pub interrupt: &'s AtomicBool,
}

impl RunningSweep<'_> {
    /// Makes the runs that are left, and passes each to `keep` before the next begins. An interrupt
    /// ends it before its next run, and a run that it cut short is not kept. One that reaches the
    /// bytes that are permitted is the last. A run that cannot be started at three attempts does
    /// not count, and has no measurement.
    ///
    /// # Errors
    /// Fails if no measurement can be made, and with an error of `keep`.
    pub fn run<M: SweepMeasurer>(
        mut self,
        measure: &mut M,
        keep: &mut dyn FnMut(SweepRunRecord) -> Result<(), M::Error>,
    ) -> Result<SweepReport, M::Error> {
        let mut account = DeviceReading::default();
        let mut started = self.runs.len();
        while let CampaignStep::Run { cell, reason } = self.plan.next_step(&self.runs) {
            if let Some(hours) = self.plan.fixed_plan().hours {
                measure.wait_for(hours);
            }
            if self.is_interrupted() {
                return Ok(self.into_report(true, started));
            }
            let made = self.make_run(measure, &mut account, cell, reason);
            // What measures may call the interrupt an error.
            if self.is_interrupted() {
                return Ok(self.into_report(true, started));
            }
            let (run, measurement) = made?;
            let mut rest = PAUSE;
            let mut is_last = false;
            if let Some(measurement) = &measurement {
                started = self.runs.len() + 1;
                rest = run.took.saturating_sub(wall_time(measurement));
                is_last = measurement.interrupted;
            }
            keep(run_record(self.plan, self.next_number(), &run, measurement))?;
            self.runs.push(run);
            if is_last {
                break;
            }
            measure.wait_idle(rest);
        }
        Ok(self.into_report(false, started))
    }

    /// Makes a run of a setting; it has no measurement where none could be started.
    fn make_run<M: SweepMeasurer>(
        &self,
        measure: &mut M,
        account: &mut DeviceReading,
        cell: SweepCell,
        reason: SweepReason,
    ) -> Result<(SweepRun, Option<Measurement>), M::Error> {
        let before = account.counts_since_last(measure.device_counts());
        let begun = Instant::now();
        let measured = self.measure_cell(measure, cell);
        let took = begun.elapsed();
        let during = account.counts_since_last(measure.device_counts());
        match measured {
            Ok(measurement) => {
                let payload = device_payload(&measurement);
                let run = SweepRun {
                    device: sweep_device(before.as_ref(), during, &measurement, payload),
                    ..self.run_figures(cell, reason, &measurement)
                };
                Ok((run, Some(measurement)))
            }
            Err(error) => match M::of_single(&error) {
                Some(why) => Ok((not_started(cell, reason, took.into(), why), None)),
                None => Err(error),
            },
        }
    }

    /// Returns the number of the next run, from 0.
    fn next_number(&self) -> u32 {
        count_of(self.runs.len())
    }

    /// Measures a setting; an attempt that fails is followed by others.
    fn measure_cell<M: SweepMeasurer>(
        &self,
        measure: &mut M,
        cell: SweepCell,
    ) -> Result<Measurement, M::Error> {
        let request = self.cell_request(cell);
        let number = self.next_number();
        let left = self
            .plan
            .fixed_plan()
            .max_bytes
            .map(|most| most.saturating_sub(spent_cost(&self.runs).bytes));
        let mut measured = measure.measure_run(number, &request, left);
        for _ in 1..ATTEMPTS {
            if measured.as_ref().err().and_then(M::of_single).is_none() {
                break;
            }
            measure.wait_idle(PAUSE);
            if self.is_interrupted() {
                break;
            }
            measured = measure.measure_run(number, &request, left);
        }
        measured
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    fn cell_request(&self, cell: SweepCell) -> Request {
        let fixed = self.plan.fixed_plan();
        let request = run_request(cell, self.plan.run_length().total_time());
        let congestion = fixed.congestion.clone();
        Request {
            congestion,
            direction: fixed.direction,
            interval: INTERVAL,
            ..request
        }
    }

    fn run_figures(
        &self,
        cell: SweepCell,
        reason: SweepReason,
        measurement: &Measurement,
    ) -> SweepRun {
        let summary = &measurement.summary;
        let mut broken = measurement.validity.broken.clone();
        broken.extend(measurement.broken_off.clone());
        broken.extend(
            measurement
                .interrupted
                .then(|| "--max-bytes ended it".to_owned()),
        );
        let rate = summary.steady_or_mean_rate();
        SweepRun {
            cell,
            reason,
            rate: broken.is_empty().then_some(rate),
            sent: carried_bytes(measurement),
            took: wall_time(measurement).scale_by(1.0 / self.plan.fixed_plan().duty.get()),
            idle_rtt: idle_rtt(measurement),
            loaded_rtt: measurement.rtt.loaded.map(|loaded| loaded.median),
            retransmits: summary.retransmits,
            together: stream_variance_ratio(measurement),
            load: sweep_load(measurement),
            device: None,
            broken,
        }
    }

    fn into_report(self, interrupted: bool, started: usize) -> SweepReport {
        SweepReport {
            interrupted,
            ..sweep_report(self.plan, self.runs, started)
        }
    }
}

/// Returns the report of a sweep. The runs behind the first `started` ones could not be started: a
/// server that is gone says nothing about their settings.
pub(super) fn sweep_report(
    plan: &CampaignPlan,
    runs: Vec<SweepRun>,
    started: usize,
) -> SweepReport {
    let judged = &runs[..started];
    SweepReport {
        plan: plan.fixed_plan().clone(),
        segments: plan
            .segment_starts(&runs)
            .into_iter()
            .map(count_of)
            .collect(),
        answer: plan.current_answer(judged),
        left_out: plan.left_out(judged),
        predicted_knee: plan.predicted_knee(),
        surface: plan.rate_estimates(judged),
        rtt: growth_of_rtt(&runs),
        dips: find_dips(&runs, plan.fixed_plan().rtt),
        forecast: plan.fixed_plan().forecast.map(|forecast| forecast.median),
        spent: spent_cost(&runs),
        grid: plan.grid_cost(judged),
        runs,
        interrupted: false,
    }
}

fn count_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the bytes that the path carried, retransmissions included. What was written is no
/// measure of it, since large send buffers hold much of that when a run ends; nor is what arrived
/// in time, since a window more is under way then. The kernel of a receiver does not know what was
/// retransmitted.
fn carried_bytes(measurement: &Measurement) -> ByteCount {
    let carried = measurement.run.and_then(|run| run.carried);
    let Summary {
        received,
        retransmits,
        ..
    } = measurement.summary;
    let again = retransmits.unwrap_or_default().of_size(USUAL_MSS);
    match (carried, measurement.carried_out().direction) {
        (Some(carried), Direction::Upload) => carried,
        (carried, _) => carried.unwrap_or(received) + again,
    }
}

/// Returns the payload that passed this end's device in the direction of the data, of an upload
/// with what was sent again.
fn device_payload(measurement: &Measurement) -> ByteCount {
    match measurement.carried_out().direction {
        Direction::Download => measurement
            .run
            .and_then(|run| run.carried)
            .unwrap_or(measurement.summary.received),
        Direction::Upload | Direction::Both => carried_bytes(measurement),
    }
}

/// Returns a run that could not be started, after attempts that took so long.
fn not_started(cell: SweepCell, reason: SweepReason, took: Span, why: String) -> SweepRun {
    let cost = SweepCost {
        bytes: ByteCount::ZERO,
        time: took,
    };
    SweepRun {
        rate: None,
        broken: vec![why],
        ..SweepRun::from_cost(cell, reason, BitRate::ZERO, cost)
    }
}

fn run_record(
    plan: &CampaignPlan,
    number: u32,
    run: &SweepRun,
    measurement: Option<Measurement>,
) -> SweepRunRecord {
    let thinned = measurement.map(|mut measurement| {
        let ramp = measurement.summary.steady.map(|steady| steady.ramp);
        for end in [&mut measurement.local, &mut measurement.remote] {
            end.thin_samples(ramp, KEPT_SAMPLES);
        }
        Box::new(measurement)
    });
    SweepRunRecord {
        sweep: plan.fixed_plan().id.clone(),
        number,
        run: run.clone(),
        measurement: thinned,
    }
}

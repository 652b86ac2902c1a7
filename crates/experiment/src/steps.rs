//! Scenarios: steps over a lab or in virtual time, each predicted, measured and held against its
//! bounds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use fullpipe_lab::{Backend, CaptureSummary, Host, Lab, LabError, LabPlan};
use fullpipe_model::{
    left_by_cross_traffic, predict, predict_with_cross_traffic, predict_with_relays,
};
use fullpipe_record::event::{ScenarioBegan, StepBegan};
use fullpipe_record::{CaptureReport, LabCrossTraffic, LabReport, LabStep, OwnCapture};
use fullpipe_scenario::{
    ExpectedRatio, RatioBound, Scenario, ScenarioStep, StepBounds, StepRamp, Stretches,
};
use fullpipe_sim::NotModelled;
use fullpipe_trace::ExplainedTransfers;
use fullpipe_units::count_noun;

use crate::captures::{KnownFacts, judge_files};
use crate::cross_traffic::{measure_with_cross_traffic, run_with_cross_traffic};
use crate::duration::required_duration;
use crate::error::ExperimentError;
use crate::in_lab::LabTarget;
use crate::judged::{JudgedRun, StepExpectation};
use crate::prelude::*;
use crate::ramp::{LoadRamp, RampLoads, run_ramp};
use crate::target::{EndSettings, ExperimentTarget, Interrupt};
use crate::virtual_target::VirtualTarget;

/// Valid runs of a step, of which more than half decide.
const VALID_RUNS: usize = 3;

/// Runs of a step, or of one load of a ramp, that may be invalid before it is given up.
const INVALID_RUNS: usize = 3;

/// A step of which less is run than the file says still lasts so many round trips: ten of ramp at
/// least, as a steady part begins no earlier, and twenty behind it.
const MIN_ROUND_TRIPS: u64 = 30;

/// The folder of captures: each run writes to `FOLDER/SCENARIO-STEP-NUMBER-HOST.pcap`, with the
/// next number of which the folder has no files.
#[derive(Debug, Clone, Copy)]
pub struct CaptureTo<'f> {
    /// The folder, which is made if there is none.
    pub folder: &'f Path,
    /// Maximum size of each file.
    pub max_size: ByteCount,
    /// The numbers of the runs.
    pub numbers: &'f CaptureNumbers,
}

/// Numbers of captured runs, from 1 for each name of files. Steps whose names become the same name
/// go on counting.
#[derive(Debug, Default)]
pub struct CaptureNumbers(RefCell<HashMap<String, u32>>);

impl CaptureNumbers {
    /// Returns the name of the files of the next run of a step, which is none that `is_taken`.
    fn capture_name(&self, scenario: &str, step: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let name = file_name(&format!("{scenario}-{step}"));
        let mut numbers = self.0.borrow_mut();
        let number = numbers.entry(name.clone()).or_default();
        loop {
            *number += 1;
            let numbered = format!("{name}-{number}");
            if !is_taken(&numbered) {
                return numbered;
            }
        }
    }
}

/// Runs every step of `scenario`, in one lab over `backend` as long as path and hosts stay the
/// same. A step with bounds runs until two of at most three valid runs agree; one without runs
/// once.
///
/// The load of each step lasts `time_scale` times as long as the file says, but never less than its
/// ramp and twenty round trips need.
///
/// Each run is captured where `capture` says, and the limit that the captures of a TCP load show is
/// added to it.
///
/// An interrupt ends it after the steps that are done, which are kept.
///
/// # Errors
/// If a lab cannot be made, a measurement fails, or it is interrupted before a step is done.
pub fn run_scenario(
    scenario: &Scenario,
    backend: Backend,
    time_scale: Ratio,
    capture: Option<CaptureTo<'_>>,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<LabReport, ExperimentError> {
    let mut standing: Option<(LabPlan, Option<Stretches>, Lab)> = None;
    run_steps(scenario, observe, |step, observe| {
        let (plan, stretches) = (
            lab_plan(scenario, step, backend),
            scenario.stretches_of(step),
        );
        let (.., lab) = match standing.take() {
            Some(same) if same.0 == plan && same.1.as_ref() == stretches => standing.insert(same),
            // The old one ends before the new one begins: they have the same addresses, and the
            // machine is small.
            old => {
                drop(old);
                let lab = start_lab(&plan, stretches, &scenario.relay)?;
                standing.insert((plan, stretches.cloned(), lab))
            }
        };
        let target = &LabTarget::new(lab);
        let place = StepTarget::Lab { target, capture };
        RunningStep {
            place,
            step,
            scenario,
            time_scale,
            interrupt,
        }
        .run(observe)
    })
}

/// Runs every step of `scenario` in virtual time, between hosts with the default settings of Linux
/// 6.18 but for what the scenario changes. A step with something that is not modelled states that
/// and passes nothing.
///
/// Otherwise as [`run_scenario`]. Each run of a step draws from a seed of its own.
///
/// # Errors
/// If it is interrupted before a step is done.
pub fn run_scenario_virtually(
    scenario: &Scenario,
    time_scale: Ratio,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<LabReport, ExperimentError> {
    run_steps(scenario, observe, |step, observe| {
        let [sender, receiver] = scenario.hosts_of(step);
        let target = VirtualTarget::new(
            scenario.path_of(step).clone(),
            [&sender, &receiver],
            scenario.seed,
        );
        let place = StepTarget::Virtual(&target);
        RunningStep {
            place,
            step,
            scenario,
            time_scale,
            interrupt,
        }
        .run(observe)
    })
}

/// Passes each step of `scenario` to `run`, until one is interrupted.
fn run_steps(
    scenario: &Scenario,
    observe: &mut dyn FnMut(&Event),
    mut run: impl FnMut(&ScenarioStep, &mut dyn FnMut(&Event)) -> Result<LabStep, ExperimentError>,
) -> Result<LabReport, ExperimentError> {
    let (name, title) = (scenario.name.clone(), scenario.title.clone());
    observe(&Event::ScenarioBegan(ScenarioBegan {
        scenario: name,
        title,
    }));
    let mut steps = Vec::new();
    let mut interrupted = false;
    for step in &scenario.steps {
        match run(step, observe) {
            Ok(done) => steps.push(LabStep {
                path: step.path.clone(),
                ..done
            }),
            Err(ExperimentError::Interrupted) if !steps.is_empty() => {
                interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(lab_report(scenario, steps, interrupted))
}

/// Returns the report of the steps that were run.
fn lab_report(scenario: &Scenario, steps: Vec<LabStep>, interrupted: bool) -> LabReport {
    let missed: Vec<String> = scenario
        .bounds
        .iter()
        .filter_map(|bound| missed_ratio(bound, &steps))
        .collect();
    let all_hold = missed.is_empty()
        && steps
            .iter()
            .all(|step| step.passed == Some(true) || is_unbound(step));
    LabReport {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        path: scenario.path.clone(),
        rtt: scenario.path.rtt(),
        steps,
        missed,
        interrupted,
        passed: all_hold && !interrupted,
    }
}

/// Builds the hosts of `plan`, with relays that have the changes `relay` if its path has stretches.
///
/// # Errors
/// As [`Lab::start`] and [`Lab::start_with_relays`].
pub fn start_lab(
    plan: &LabPlan,
    stretches: Option<&Stretches>,
    relay: &[Change],
) -> Result<Lab, LabError> {
    stretches.map_or_else(
        || Lab::start(plan),
        |stretches| Lab::start_with_relays(plan, stretches, relay),
    )
}

/// Returns the plan for a lab of a step of `scenario`, whose programs do not read from the terminal.
pub fn lab_plan(scenario: &Scenario, step: &ScenarioStep, backend: Backend) -> LabPlan {
    let [sender, receiver] = scenario.hosts_of(step);
    LabPlan {
        path: scenario.path_of(step).clone(),
        seed: scenario.seed,
        sender,
        receiver,
        backend,
        interactive: false,
    }
}

/// A step without bounds passes by being measured.
fn is_unbound(step: &LabStep) -> bool {
    step.passed.is_none() && step.measured.is_some()
}

/// The hosts and the path of a step.
enum StepTarget<'r> {
    Lab {
        target: &'r LabTarget<'r>,
        capture: Option<CaptureTo<'r>>,
    },
    Virtual(&'r VirtualTarget),
}

/// A step while it runs.
struct RunningStep<'r> {
    place: StepTarget<'r>,
    step: &'r ScenarioStep,
    scenario: &'r Scenario,
    time_scale: Ratio,
    interrupt: Interrupt<'r>,
}

impl RunningStep<'_> {
    fn target(&self) -> &dyn ExperimentTarget {
        match self.place {
            StepTarget::Lab { target, .. } => target,
            StepTarget::Virtual(target) => target,
        }
    }

    fn run(&self, observe: &mut dyn FnMut(&Event)) -> Result<LabStep, ExperimentError> {
        let (path, ends, step) = (
            self.target().path(),
            self.target().end_settings()?,
            self.step,
        );
        let cross_traffic: Vec<Request> = step
            .cross_traffic
            .iter()
            .map(|load| load.request.clone())
            .collect();
        let prediction = self.predict_step(&ends, &cross_traffic)?;
        let needed = required_duration(&prediction, path, step.request.streams);
        let request = scale_request(&step.request, path.rtt(), needed, self.time_scale);
        let expected = StepExpectation::new(
            path,
            &step.bounds,
            &ends,
            &request,
            &cross_traffic,
            prediction,
        );
        let done = match step.ramp {
            Some(ramp) => self.climb_ramp(&ramp, &request, &expected, observe),
            None => self.run_until_majority(&request, &expected, observe),
        };
        match done {
            Err(ExperimentError::NotModelled(why)) => {
                let without = summarise_step(step, &request, &expected, Vec::new());
                Ok(LabStep {
                    missed: vec![why.to_string()],
                    ..without
                })
            }
            done => done,
        }
    }

    fn predict_step(
        &self,
        EndSettings { sender, receiver }: &EndSettings,
        cross_traffic: &[Request],
    ) -> Result<Prediction, ExperimentError> {
        let (path, request) = (self.target().path(), &self.step.request);
        let stretches = self.scenario.stretches_of(self.step);
        let relayed = stretches.filter(|_| self.step.relays);
        Ok(match (relayed, self.step.ramp) {
            (Some(stretches), _) => {
                let relay = self.relay_settings()?;
                predict_with_relays(stretches, [sender, receiver], &relay, request)
            }
            // Round trips grow from where the cross traffic leaves no more.
            (None, Some(_)) => {
                let left = left_by_cross_traffic(path, cross_traffic);
                predict(&left, sender, receiver, request)
            }
            (None, None) => {
                predict_with_cross_traffic(path, sender, receiver, request, cross_traffic)
            }
        })
    }

    /// Returns the settings of the relays.
    fn relay_settings(&self) -> Result<HostSettings, ExperimentError> {
        match self.place {
            StepTarget::Lab { target, .. } => Ok(target.lab.host_settings(Host::NearRelay)?),
            StepTarget::Virtual(..) => {
                Ok(HostSettings::of_linux_6_18().changed_by(&self.scenario.relay))
            }
        }
    }

    /// Runs until a majority of valid runs agrees on the bounds, or too many were invalid.
    fn run_until_majority(
        &self,
        request: &Request,
        expected: &StepExpectation<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<LabStep, ExperimentError> {
        let mut runs = Vec::new();
        while !is_decided(&self.step.bounds, &runs) {
            runs.push(self.run_once(request, expected, observe)?);
        }
        Ok(summarise_step(self.step, request, expected, runs))
    }

    /// Offers each load of `ramp`, each until a run of it is valid.
    fn climb_ramp(
        &self,
        ramp: &StepRamp,
        request: &Request,
        expected: &StepExpectation<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<LabStep, ExperimentError> {
        let full = expected.capacity.unwrap_or_default();
        let loads = LoadRamp {
            loads: RampLoads::Shares(ramp.from, ramp.to),
            steps: ramp.loads,
        }
        .offered_loads(full);
        let (mut runs, mut unfit) = (Vec::new(), 0_usize);
        let done = run_ramp(
            &loads,
            Some(full),
            request,
            &mut |request| {
                let attempts = self.run_until_valid(request, expected, observe)?;
                unfit += usize::from(attempts.iter().all(|run| run.rate.is_none()));
                let measurement = attempts[attempts.len() - 1].measurement.clone();
                runs.extend(attempts);
                Ok::<_, ExperimentError>(measurement)
            },
            &mut |_| {},
        )?;
        let knee = done.slower_from.filter(|_| unfit == 0);
        let passed = (unfit == 0).then_some(knee.is_some());
        let missed = match passed {
            Some(true) => Vec::new(),
            Some(false) => vec!["no load made round trips longer".to_owned()],
            None => vec![format!(
                "no run was valid at {unfit} of {}",
                count_noun(loads.len(), "load")
            )],
        };
        let step = summarise_step(self.step, request, expected, runs);
        Ok(LabStep {
            measured: knee,
            accuracy: relative_to(knee, expected.prediction.kernel_model),
            accuracy_textbook: relative_to(knee, expected.prediction.textbook),
            datagrams: None,
            cross_traffic: step.cross_traffic,
            filled: None,
            ramp: Some(done),
            passed,
            missed,
            ..step
        })
    }

    /// Runs until a run is valid, or too many were not: that one is the last.
    fn run_until_valid(
        &self,
        request: &Request,
        expected: &StepExpectation<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Vec<JudgedRun>, ExperimentError> {
        let mut runs = Vec::new();
        while runs.len() < INVALID_RUNS
            && runs.last().is_none_or(|run: &JudgedRun| run.rate.is_none())
        {
            runs.push(self.run_once(request, expected, observe)?);
        }
        Ok(runs)
    }

    fn step_began_event(&self, expected: &StepExpectation<'_>) -> StepBegan {
        StepBegan {
            step: self.step.name.clone(),
            is_ramp: self.step.ramp.is_some(),
            prediction: expected.prediction.clone(),
        }
    }

    fn run_once(
        &self,
        request: &Request,
        expected: &StepExpectation<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<JudgedRun, ExperimentError> {
        if matches!(self.place, StepTarget::Virtual(..)) && self.step.relays {
            return Err(NotModelled::Relays.into());
        }
        observe(&Event::StepBegan(Box::new(self.step_began_event(expected))));
        let (measurement, cross_traffic, captured) = self.measure_step(request, observe)?;
        if measurement.interrupted {
            return Err(ExperimentError::Interrupted);
        }
        let mut run = expected.judge_run(measurement, cross_traffic);
        if let Some(captured) = captured {
            self.add_capture(&captured, &mut run.measurement);
        }
        observe(&Event::Measurement(Box::new(run.measurement.clone())));
        Ok(run)
    }

    fn measure_step(
        &self,
        request: &Request,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<(Measurement, Vec<LabCrossTraffic>, Option<CaptureSummary>), ExperimentError> {
        let interrupt = self.interrupt;
        let progress =
            &mut |interval: &Interval| observe(&Event::Interval(Box::new(interval.clone())));
        let cross_traffic = (&self.step.cross_traffic[..], self.scenario.seed);
        match &self.place {
            StepTarget::Lab { target, capture } => {
                let capture = capture
                    .map(|to| {
                        let (scenario, step) = (&self.scenario.name, &self.step.name);
                        let name = to.numbers.capture_name(scenario, step, |name: &str| {
                            target.lab.would_replace(to.folder, name)
                        });
                        target.lab.start_capture(to.folder, &name, to.max_size)
                    })
                    .transpose()?;
                let done = if self.step.relays {
                    target
                        .measure_through_relays(request, interrupt, progress)
                        .map(|done| (done, Vec::new()))
                } else {
                    run_with_cross_traffic(target, cross_traffic, request, interrupt, || {
                        target.measure(request, interrupt, progress)
                    })
                };
                let captured = capture
                    .map(|capture| target.lab.finish_capture(capture))
                    .transpose()?;
                let (measurement, cross_traffic) = done?;
                Ok((measurement, cross_traffic, captured))
            }
            StepTarget::Virtual(target) => {
                let (measurement, loads) = measure_with_cross_traffic(
                    target,
                    cross_traffic,
                    request,
                    interrupt,
                    progress,
                )?;
                Ok((measurement, loads, None))
            }
        }
    }

    /// Adds the captures of a run to its record. The limit of a TCP load that they show is judged
    /// with the capacity of the path, as that of the measurement is, and with nothing else that the
    /// lab knows.
    fn add_capture(&self, captured: &CaptureSummary, measurement: &mut Measurement) {
        if captured.missed > 0 {
            measurement.warnings.push(format!(
                "the capture lacks {}",
                count_noun(captured.missed, "packet")
            ));
        }
        // Between relays are other connections than at the ends.
        if measurement.request.transport != Transport::Tcp || self.step.relays {
            return;
        }
        let [sender, receiver] = &captured.files;
        let known = KnownFacts {
            bandwidth: self.target().path().forward.rate,
            ..KnownFacts::default()
        };
        let explained = ExplainedTransfers::of_test(measurement);
        match judge_files(sender, Some(receiver), explained, &known, self.interrupt) {
            // Interrupted, it has read a part of them.
            _ if self.interrupt.is_requested() => {}
            Ok(report) => {
                let capture = own_capture(&report, captured).with_verdict(
                    report.explained_limit().cloned(),
                    measurement.limit.as_ref(),
                );
                measurement.capture = Some(Box::new(capture));
            }
            Err(error) => measurement.warnings.push(error.to_string()),
        }
    }
}

/// Returns the record of what was captured at both ends, without a limit.
fn own_capture(report: &CaptureReport, captured: &CaptureSummary) -> OwnCapture {
    let [name, other] = captured
        .files
        .each_ref()
        .map(|file| file.display().to_string());
    OwnCapture {
        name,
        other: Some(other),
        packets: report.packets + report.other.as_ref().map_or(0, |other| other.packets),
        dropped: 0,
        left_out: captured.missed,
        limit: None,
        agrees: None,
    }
}

/// `name` as a part of a file's name: what is no letter or digit is a hyphen.
fn file_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_alphanumeric() { c } else { '-' })
        .collect()
}

/// The load for `time_scale` times as long, in whole seconds, and no less than `needed`; as it is
/// where it is shorter than that anyway.
fn scale_request(request: &Request, rtt: Span, needed: Span, time_scale: Ratio) -> Request {
    let wanted = request.duration.scale_by(time_scale.get());
    let least = needed.max(rtt * MIN_ROUND_TRIPS).min(request.duration);
    let seconds = wanted.max(least).as_secs_f64().ceil();
    Request {
        duration: Span::from_secs_f64(seconds),
        ..request.clone()
    }
}

/// True if the runs so far settle the step, or too many were invalid.
fn is_decided(bounds: &StepBounds, runs: &[JudgedRun]) -> bool {
    let judged = runs.iter().filter(|run| run.rate.is_some());
    let (held, missed): (Vec<_>, Vec<_>) = judged.partition(|run| run.missed.is_empty());
    if runs.len() - held.len() - missed.len() >= INVALID_RUNS {
        return true;
    }
    let majority = if *bounds == StepBounds::default() {
        1
    } else {
        VALID_RUNS / 2 + 1
    };
    held.len() >= majority || missed.len() >= majority
}

fn summarise_step(
    step: &ScenarioStep,
    request: &Request,
    expected: &StepExpectation<'_>,
    runs: Vec<JudgedRun>,
) -> LabStep {
    let prediction = expected.prediction.clone();
    let judged: Vec<&JudgedRun> = runs.iter().filter(|run| run.rate.is_some()).collect();
    let measured = median(judged.iter().filter_map(|run| run.rate).collect());
    let held = judged.iter().filter(|run| run.missed.is_empty()).count();
    let bounded = step.bounds != StepBounds::default() && !judged.is_empty();
    let passed = bounded.then_some(held > judged.len() / 2);
    let missed = match (passed, measured) {
        (Some(false), _) => judged
            .iter()
            .rev()
            .find(|run| !run.missed.is_empty())
            .map_or_else(Vec::new, |run| run.missed.clone()),
        (None, None) if runs.iter().any(|run| run.measurement.validity.is_valid()) => {
            vec!["no run was long enough to have a steady part".to_owned()]
        }
        (None, None) => vec!["no run was valid".to_owned()],
        _ => Vec::new(),
    };
    let shown = judged.last().copied();
    LabStep {
        name: step.name.clone(),
        request: request.clone(),
        path: None,
        published: step.published,
        accuracy: relative_to(measured, prediction.kernel_model),
        accuracy_textbook: relative_to(measured, prediction.textbook),
        datagrams: shown.and_then(|run| run.datagrams),
        cross_traffic: shown.map_or_else(Vec::new, |run| run.cross_traffic.clone()),
        filled: shown
            .filter(|run| !run.cross_traffic.is_empty())
            .and_then(|run| run.filled),
        ramp: None,
        measured,
        passed,
        missed,
        prediction,
        buffer: fixed_buffer(&runs),
        window_seen: window_seen(&runs),
        runs: runs.into_iter().map(|run| run.measurement).collect(),
    }
}

/// Returns a measured rate ÷ the predicted one.
fn relative_to(measured: Option<BitRate>, predicted: BitRate) -> Option<Ratio> {
    let measured = measured.filter(|_| predicted > BitRate::ZERO)?;
    Some(Ratio::new(measured.relative_to(predicted)))
}

/// The bound in a sentence, if it is missed; one between steps that were not run is neither met nor
/// missed.
fn missed_ratio(bound: &RatioBound, steps: &[LabStep]) -> Option<String> {
    let (over, under) = (steps.get(bound.numerator)?, steps.get(bound.denominator)?);
    let names = format!("{} ÷ {}", over.name, under.name);
    let expected = match bound.expect {
        ExpectedRatio::Ratio(ratio) => ratio,
        ExpectedRatio::KernelModel => Ratio::new(
            over.prediction
                .kernel_model
                .relative_to(under.prediction.kernel_model),
        ),
    };
    match (over.measured, under.measured) {
        (Some(over), Some(under)) if bound.allows_rates([over, under], expected) => None,
        (Some(over), Some(under)) if under > BitRate::ZERO => Some(format!(
            "{names} is {:.3}; the bound is {} of {:.3}",
            over.relative_to(under),
            bound.bound,
            expected.get()
        )),
        _ => Some(format!("{names} is unknown")),
    }
}

/// The receive buffer that the kernel stored, where the program fixed one.
fn fixed_buffer(runs: &[JudgedRun]) -> Option<ByteCount> {
    let run = &runs.last()?.measurement;
    let fixed = run.request.receive_buffer() != fullpipe_record::Buffer::Automatic;
    run.receiving_end()
        .sockets
        .first()
        .filter(|_| fixed)
        .map(|socket| socket.rcvbuf)
}

/// The largest window that the sending end saw advertised.
fn window_seen(runs: &[JudgedRun]) -> Option<ByteCount> {
    let samples = runs
        .iter()
        .flat_map(|run| &run.measurement.sending_end().samples);
    samples.filter_map(|sample| sample.tcp.snd_wnd).max()
}

#[cfg(test)]
mod tests;

//! Scenarios: steps over one lab, each predicted, measured and held against its bounds.

use fullpipe_lab::{Backend, Lab, Plan};
use fullpipe_model::predict;
use fullpipe_record::{Interval, LabReport, LabStep, Measurement, Prediction};
use fullpipe_scenario::{RatioBound, Scenario, Step, StepBounds};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::error::ExperimentError;
use crate::in_lab::LabTarget;
use crate::target::{Interrupt, Target};

/// Valid runs of a step, of which more than half decide.
const VALID_RUNS: usize = 3;

/// Runs of a step that may be invalid before it is given up.
const INVALID_RUNS: usize = 3;

/// What happens while a scenario runs.
#[derive(Debug)]
pub enum StepEvent<'e> {
    /// A run of a step begins.
    Begins(&'e Step, &'e Prediction),
    /// An interval of it has passed.
    Measuring(&'e Interval),
    /// It is over.
    Ended(&'e Step, &'e Measurement),
}

/// Runs every step of `scenario` in a lab over `backend`. A step with bounds runs until two of at most three valid runs agree;
/// one without runs once.
///
/// An interrupt ends it after the steps that are done, which are kept.
///
/// # Errors
/// If the lab cannot be made, a measurement fails, or it is interrupted before a step is done.
pub fn run_scenario(
    scenario: &Scenario,
    backend: Backend,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(StepEvent<'_>),
) -> Result<LabReport, ExperimentError> {
    let lab = Lab::start(&Plan {
        path: scenario.path.clone(),
        seed: scenario.seed,
        sender: scenario.sender.clone(),
        receiver: scenario.receiver.clone(),
        backend,
        interactive: false,
    })?;
    let target = LabTarget::new(&lab);
    let mut steps = Vec::new();
    let mut interrupted = false;
    for step in &scenario.steps {
        match run_step(&target, step, interrupt, observe) {
            Ok(step) => steps.push(step),
            Err(ExperimentError::Interrupted) if !steps.is_empty() => {
                interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let missed: Vec<String> = scenario.bounds.iter().filter_map(|bound| missed_ratio(bound, &steps)).collect();
    let all_hold = missed.is_empty() && steps.iter().all(|step| step.passed == Some(true) || is_unbound(step));
    Ok(LabReport {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        path: scenario.path.clone(),
        rtt: scenario.path.rtt(),
        steps,
        missed,
        interrupted,
        passed: all_hold && !interrupted,
    })
}

/// A step without bounds passes by being measured.
fn is_unbound(step: &LabStep) -> bool {
    step.passed.is_none() && step.measured.is_some()
}

fn run_step(
    target: &LabTarget<'_>,
    step: &Step,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(StepEvent<'_>),
) -> Result<LabStep, ExperimentError> {
    let ends = target.settings()?;
    let prediction = predict(target.path(), &ends.sender, &ends.receiver, &step.request);
    let mut runs: Vec<Measurement> = Vec::new();
    while !is_decided(step, &prediction, &runs) {
        observe(StepEvent::Begins(step, &prediction));
        let run = target.measure(&step.request, interrupt, &mut |interval| observe(StepEvent::Measuring(interval)))?;
        if run.interrupted {
            return Err(ExperimentError::Interrupted);
        }
        observe(StepEvent::Ended(step, &run));
        runs.push(run);
    }
    Ok(summarise(step, prediction, runs))
}

/// Whether the runs so far settle the step, or too many were invalid.
fn is_decided(step: &Step, prediction: &Prediction, runs: &[Measurement]) -> bool {
    let rates = valid_rates(runs);
    if runs.len() - rates.len() >= INVALID_RUNS {
        return true;
    }
    if step.bounds == StepBounds::default() {
        return !rates.is_empty();
    }
    let held = rates.iter().filter(|rate| misses(step, prediction, **rate).is_empty()).count();
    let majority = VALID_RUNS / 2 + 1;
    held >= majority || rates.len() - held >= majority
}

/// Steady rates of the runs that may be judged.
fn valid_rates(runs: &[Measurement]) -> Vec<BitRate> {
    let valid = runs.iter().filter(|run| run.validity.is_valid());
    valid.filter_map(|run| run.summary.steady).map(|steady| steady.rate).collect()
}

fn summarise(step: &Step, prediction: Prediction, runs: Vec<Measurement>) -> LabStep {
    let rates = valid_rates(&runs);
    let measured = median(rates.clone());
    let of = |predicted: BitRate| measured.map(|rate| Ratio::new(rate.relative_to(predicted)));
    let held = rates.iter().filter(|rate| misses(step, &prediction, **rate).is_empty()).count();
    let bounded = step.bounds != StepBounds::default() && !rates.is_empty();
    let passed = bounded.then_some(held > rates.len() / 2);
    let missed = match (passed, measured) {
        (Some(false), Some(rate)) => misses(step, &prediction, rate),
        (None, None) if runs.iter().any(|run| run.validity.is_valid()) => {
            vec!["no run was long enough to have a steady part".to_owned()]
        }
        (None, None) => vec!["no run was valid".to_owned()],
        _ => Vec::new(),
    };
    LabStep {
        name: step.name.clone(),
        request: step.request.clone(),
        published: step.published,
        buffer: fixed_buffer(&runs),
        window_seen: window_seen(&runs),
        accuracy: of(prediction.refined),
        accuracy_plain: of(prediction.plain),
        measured,
        passed,
        missed,
        prediction,
        runs,
    }
}

/// The bounds that `rate` misses, each in a sentence.
fn misses(step: &Step, prediction: &Prediction, rate: BitRate) -> Vec<String> {
    let checks = [("refined", step.bounds.refined, prediction.refined), ("plain", step.bounds.plain, prediction.plain)];
    let missed = checks.into_iter().filter_map(|(name, bound, predicted)| {
        let (bound, share) = (bound?, Ratio::new(rate.relative_to(predicted)));
        (!bound.holds(share)).then(|| format!("{rate} is {share} of the {name} prediction; the bound is {bound}"))
    });
    missed.collect()
}

/// The bound in a sentence, if it is missed; one between steps that were not run is neither met nor missed.
fn missed_ratio(bound: &RatioBound, steps: &[LabStep]) -> Option<String> {
    let (over, under) = (steps.get(bound.numerator)?, steps.get(bound.denominator)?);
    let names = format!("{} ÷ {}", over.name, under.name);
    match (over.measured, under.measured) {
        (Some(over), Some(under)) if bound.holds(over, under) => None,
        (Some(over), Some(under)) => Some(format!(
            "{names} is {:.3}; the bound is {} within {}",
            over.relative_to(under),
            bound.expect.get(),
            bound.within
        )),
        _ => Some(format!("{names} could not be told")),
    }
}

fn median(mut rates: Vec<BitRate>) -> Option<BitRate> {
    rates.sort_unstable();
    rates.get(rates.len().saturating_sub(1) / 2).copied()
}

/// The receive buffer that the kernel stored, where the program fixed one.
fn fixed_buffer(runs: &[Measurement]) -> Option<ByteCount> {
    let run = runs.last()?;
    let fixed = run.request.buffer != fullpipe_record::Buffer::Automatic;
    run.receiver().sockets.first().filter(|_| fixed).map(|socket| socket.rcvbuf)
}

/// The largest window that the sending end saw advertised.
fn window_seen(runs: &[Measurement]) -> Option<ByteCount> {
    runs.iter().flat_map(|run| &run.sender().samples).filter_map(|sample| sample.tcp.snd_wnd).max()
}

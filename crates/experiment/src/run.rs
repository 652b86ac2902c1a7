use fullpipe_diagnose::diagnose;
use fullpipe_model::predict;
use fullpipe_record::event::{Applied, Predicted};
use fullpipe_record::{
    Event, Evidence, Experiment, Interval, Measurement, Prediction, Proof, Remedy, Request, Undone, Verdict,
};
use fullpipe_units::{BitRate, Ratio};

use crate::advice::advice;
use crate::error::ExperimentError;
use crate::target::{Ends, Interrupt, Target};

/// Runs the loop over `target` with the load that `request` asks for, and passes each [`Event`] to `observe`.
///
/// Whatever happens after a change was made, it is undone before this returns.
///
/// # Errors
/// If a stage fails. A measurement that the user interrupts ends the loop without an error: what there is is returned.
pub fn run(
    target: &dyn Target,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<Experiment, ExperimentError> {
    let path = target.path().clone();
    let before = target.settings()?;
    let prediction = predict(&path, &before.sender, &before.receiver, request);
    observe(&Event::Predicted(Box::new(Predicted { path: path.clone(), prediction: prediction.clone() })));

    let (measurement, verdict, evidence) = measure_and_judge(target, request, interrupt, observe)?;
    let known = Evidence { sender: Some(before.sender.clone()), receiver: Some(before.receiver.clone()), ..evidence };
    let advice = advice(&known, &verdict);
    observe(&Event::Remedies(advice.clone()));

    let best = advice.first().filter(|best| !best.changes.is_empty() && !interrupt.requested());
    let (proof, undone) = match best {
        Some(best) => {
            let proof = prove(target, best, request, interrupt, observe);
            let undone = undo(target, &before)?;
            observe(&Event::Undone(Box::new(undone.clone())));
            match proof {
                Err(ExperimentError::Interrupted) => (None, Some(undone)),
                proof => (Some(proof?), Some(undone)),
            }
        }
        None => (None, None),
    };
    Ok(Experiment {
        accuracy: accuracy(&measurement, &prediction),
        path,
        request: request.clone(),
        sender: before.sender,
        receiver: before.receiver,
        prediction,
        measurement,
        verdict,
        remedies: advice,
        proof,
        undone,
        interrupted: interrupt.requested(),
    })
}

fn prove(
    target: &dyn Target,
    remedy: &Remedy,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<Proof, ExperimentError> {
    for (at, changes) in remedy.by_end() {
        target.apply(at, &changes)?;
    }
    let request = remedy.changes.iter().fold(request.clone(), |request, change| change.applied_to_request(&request));
    let after = target.settings()?;
    let prediction = predict(target.path(), &after.sender, &after.receiver, &request);
    observe(&Event::Applied(Box::new(Applied { remedy: remedy.clone(), prediction: prediction.clone() })));
    let (measurement, verdict, _) = measure_and_judge(target, &request, interrupt, observe)?;
    let accuracy = accuracy(&measurement, &prediction);
    Ok(Proof { remedy: remedy.clone(), prediction, measurement, verdict, accuracy })
}

fn measure_and_judge(
    target: &dyn Target,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<(Measurement, Verdict, Evidence), ExperimentError> {
    let progress = &mut |interval: &Interval| observe(&Event::Interval(Box::new(interval.clone())));
    let mut measurement = target.measure(request, interrupt, progress)?;
    let forward = &target.path().forward;
    let evidence = Evidence::of(&measurement, forward.rate, forward.framing);
    let verdict = diagnose(&evidence);
    measurement.limit = Some(verdict.clone());
    observe(&Event::Measurement(Box::new(measurement.clone())));
    Ok((measurement, verdict, evidence))
}

fn undo(target: &dyn Target, before: &Ends) -> Result<Undone, ExperimentError> {
    target.undo()?;
    let now = target.settings()?;
    Ok(Undone { restored: now == *before, sender: now.sender, receiver: now.receiver })
}

fn accuracy(measurement: &Measurement, prediction: &Prediction) -> Option<Ratio> {
    let steady = measurement.summary.steady.filter(|_| prediction.kernel_model > BitRate::ZERO)?;
    Some(Ratio::new(steady.rate.relative_to(prediction.kernel_model)))
}

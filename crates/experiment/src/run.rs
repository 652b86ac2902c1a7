use fullpipe_diagnose::diagnose;
use fullpipe_model::predict;
use fullpipe_record::event::{Applied, Predicted};
use fullpipe_record::{Experiment, Proof, Remedy, Undone};

use crate::advice::ranked_remedies;
use crate::error::ExperimentError;
use crate::prelude::*;
use crate::target::{EndSettings, ExperimentTarget, Interrupt};

/// Runs the loop over `target` with the load that `request` asks for, and passes each [`Event`] to
/// `observe`.
///
/// Whatever happens after a change was made, it is undone before this returns.
///
/// # Errors
/// If a stage fails. A measurement that the user interrupts ends the loop without an error: what
/// there is is returned.
pub fn run(
    target: &dyn ExperimentTarget,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<Experiment, ExperimentError> {
    let path = target.path().clone();
    let before = target.end_settings()?;
    let prediction = predict(&path, &before.sender, &before.receiver, request);
    observe(&Event::Predicted(Box::new(Predicted {
        path: path.clone(),
        prediction: prediction.clone(),
    })));

    let (measurement, verdict, evidence) = measure_and_judge(target, request, interrupt, observe)?;
    let known = Evidence {
        sender: Some(before.sender.clone()),
        receiver: Some(before.receiver.clone()),
        ..evidence
    };
    let advice = ranked_remedies(&known, &verdict);
    observe(&Event::Remedies(advice.clone()));

    let best = advice
        .first()
        .filter(|best| !best.changes.is_empty() && !interrupt.is_requested());
    let (proof, undone) = match best {
        Some(best) => {
            let proof = prove_remedy(target, best, request, interrupt, observe);
            let undone = undo_changes(target, &before)?;
            observe(&Event::Undone(Box::new(undone.clone())));
            match proof {
                Err(ExperimentError::Interrupted) => (None, Some(undone)),
                proof => (Some(proof?), Some(undone)),
            }
        }
        None => (None, None),
    };
    Ok(Experiment {
        accuracy: prediction_accuracy(&measurement, &prediction),
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
        interrupted: interrupt.is_requested(),
    })
}

fn prove_remedy(
    target: &dyn ExperimentTarget,
    remedy: &Remedy,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<Proof, ExperimentError> {
    for (at, changes) in remedy.by_end() {
        target.apply_changes(at, &changes)?;
    }
    let request = remedy
        .changes
        .iter()
        .fold(request.clone(), |request, change| {
            change.applied_to_request(&request)
        });
    let after = target.end_settings()?;
    let prediction = predict(target.path(), &after.sender, &after.receiver, &request);
    observe(&Event::Applied(Box::new(Applied {
        remedy: remedy.clone(),
        prediction: prediction.clone(),
    })));
    let (measurement, verdict, _) = measure_and_judge(target, &request, interrupt, observe)?;
    let accuracy = prediction_accuracy(&measurement, &prediction);
    Ok(Proof {
        remedy: remedy.clone(),
        prediction,
        measurement,
        verdict,
        accuracy,
    })
}

fn measure_and_judge(
    target: &dyn ExperimentTarget,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(&Event),
) -> Result<(Measurement, Verdict, Evidence), ExperimentError> {
    let progress = &mut |interval: &Interval| observe(&Event::Interval(Box::new(interval.clone())));
    let mut measurement = target.measure(request, interrupt, progress)?;
    let forward = &target.path().forward;
    let evidence = Evidence::from_measurement(&measurement, forward.rate, forward.framing);
    let verdict = diagnose(&evidence);
    measurement.limit = Some(verdict.clone());
    observe(&Event::Measurement(Box::new(measurement.clone())));
    Ok((measurement, verdict, evidence))
}

fn undo_changes(
    target: &dyn ExperimentTarget,
    before: &EndSettings,
) -> Result<Undone, ExperimentError> {
    target.undo_changes()?;
    let now = target.end_settings()?;
    Ok(Undone {
        restored: now == *before,
        sender: now.sender,
        receiver: now.receiver,
    })
}

fn prediction_accuracy(measurement: &Measurement, prediction: &Prediction) -> Option<Ratio> {
    let steady = measurement
        .summary
        .steady
        .filter(|_| prediction.kernel_model > BitRate::ZERO)?;
    Some(Ratio::new(steady.rate.relative_to(prediction.kernel_model)))
}

use fullpipe_diagnose::diagnose;
use fullpipe_model::predict;
use fullpipe_record::{
    Evidence, Experiment, Interval, Measurement, Path, Prediction, Proof, Remedy, Request, Undone, Verdict,
};
use fullpipe_units::Ratio;

use crate::advice::advice;
use crate::error::ExperimentError;
use crate::target::{Ends, Interrupt, Target};

/// What the loop has done, as it does it.
#[derive(Debug)]
pub enum Stage<'e> {
    /// The prediction is fixed.
    Predicted(&'e Path, &'e Prediction),
    /// An interval of a measurement has passed.
    Measuring(&'e Interval),
    /// A measurement is over and judged.
    Judged(&'e Measurement, &'e Verdict),
    /// What would help.
    Advised(&'e [Remedy], &'e Measurement),
    /// A remedy is applied and the prediction for it is fixed.
    Applied(&'e Remedy, &'e Prediction),
    /// The proof is over and judged.
    Proven(&'e Measurement, &'e Verdict),
    /// Everything is as it was.
    Undone(&'e Undone),
}

/// Runs the loop over `target` with the load that `request` asks for, telling `observe` each stage.
///
/// Whatever happens after a change was made, it is undone before this returns.
///
/// # Errors
/// If a stage fails. A measurement that the user interrupts ends the loop without an error: what there is is returned.
pub fn run(
    target: &dyn Target,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(Stage<'_>),
) -> Result<Experiment, ExperimentError> {
    let path = target.path().clone();
    let before = target.settings()?;
    let prediction = predict(&path, &before.sender, &before.receiver, request);
    observe(Stage::Predicted(&path, &prediction));

    let (measurement, verdict, evidence) = measure_and_judge(target, request, interrupt, observe)?;
    observe(Stage::Judged(&measurement, &verdict));
    let known = Evidence { sender: Some(before.sender.clone()), receiver: Some(before.receiver.clone()), ..evidence };
    let advice = advice(&known, &verdict);
    observe(Stage::Advised(&advice, &measurement));

    let best = advice.first().filter(|best| !best.changes.is_empty() && !interrupt.requested());
    let (proof, undone) = match best {
        Some(best) => {
            let proof = prove(target, best, request, interrupt, observe);
            let undone = undo(target, &before)?;
            observe(Stage::Undone(&undone));
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
    observe: &mut dyn FnMut(Stage<'_>),
) -> Result<Proof, ExperimentError> {
    for (at, changes) in remedy.by_end() {
        target.apply(at, &changes)?;
    }
    let request = remedy.changes.iter().fold(request.clone(), |request, change| change.applied_to_request(&request));
    let after = target.settings()?;
    let prediction = predict(target.path(), &after.sender, &after.receiver, &request);
    observe(Stage::Applied(remedy, &prediction));
    let (measurement, verdict, _) = measure_and_judge(target, &request, interrupt, observe)?;
    observe(Stage::Proven(&measurement, &verdict));
    let accuracy = accuracy(&measurement, &prediction);
    Ok(Proof { remedy: remedy.clone(), prediction, measurement, verdict, accuracy })
}

fn measure_and_judge(
    target: &dyn Target,
    request: &Request,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(Stage<'_>),
) -> Result<(Measurement, Verdict, Evidence), ExperimentError> {
    let mut measurement = target.measure(request, interrupt, &mut |interval| observe(Stage::Measuring(interval)))?;
    let forward = &target.path().forward;
    let evidence = Evidence::of(&measurement, forward.rate, forward.framing);
    let verdict = diagnose(&evidence);
    measurement.limit = Some(verdict.clone());
    Ok((measurement, verdict, evidence))
}

fn undo(target: &dyn Target, before: &Ends) -> Result<Undone, ExperimentError> {
    target.undo()?;
    let now = target.settings()?;
    Ok(Undone { restored: now == *before, sender: now.sender, receiver: now.receiver })
}

fn accuracy(measurement: &Measurement, prediction: &Prediction) -> Option<Ratio> {
    let steady = measurement.summary.steady?;
    Some(Ratio::new(steady.rate.relative_to(prediction.kernel_model)))
}

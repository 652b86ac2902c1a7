//! Cases in virtual time: those whose limit path, settings and load plant.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_experiment::{
    EndSettings, ExperimentError, ExperimentTarget, Interrupt, VirtualTarget, simulate_captured,
    simulate_plan,
};
use fullpipe_model::predict;
use fullpipe_sim::SimulationPlan;

use super::captures;
use super::case_record::{CaseRecord, Observation};
use super::cases::Case;
use super::run::RunError;
use crate::parallel::map_in_parallel;

/// Runs `cases`, on all processors, and returns the record of each, or why it has none. What `seed`
/// leads to depends on neither the processors nor the time. Their captures are written to `folder`,
/// where there is one.
pub(crate) fn run_all(
    cases: &[Case],
    seed: u64,
    folder: Option<&Path>,
    stop: &AtomicBool,
) -> Vec<Result<CaseRecord, RunError>> {
    map_in_parallel(cases, |index, case| {
        run(case, seed.wrapping_add(index as u64), folder, stop)
    })
}

fn run(
    case: &Case,
    seed: u64,
    folder: Option<&Path>,
    stop: &AtomicBool,
) -> Result<CaseRecord, RunError> {
    let target = VirtualTarget::new(case.path.clone(), [&case.sender, &case.receiver], seed);
    let EndSettings { sender, receiver } = target.end_settings().map_err(no_record)?;
    let plan = SimulationPlan::new(
        case.path.clone(),
        [sender.clone(), receiver.clone()],
        case.request.clone(),
        seed,
    );
    let measurement = match folder {
        Some(folder) => {
            let (measurement, files) =
                simulate_captured(plan, Interrupt(stop)).map_err(no_record)?;
            captures::write(folder, &case.name, &case.path, &files)
                .map_err(|why| RunError::Failed(why.to_string()))?;
            measurement
        }
        None => simulate_plan(plan, Interrupt(stop)).map_err(no_record)?,
    };
    let forward = &case.path.forward;
    Ok(CaseRecord {
        name: case.name.clone(),
        expected_verdict: case.expected_verdict,
        bandwidth: forward.rate,
        framing: forward.framing,
        prediction: predict(&case.path, &sender, &receiver, &case.request),
        observation: Observation::Measured(Box::new(measurement)),
        remedy_result: None,
    })
}

fn no_record(why: ExperimentError) -> RunError {
    match why {
        ExperimentError::NotModelled(why) => RunError::NotPlanted(why.to_string()),
        ExperimentError::Interrupted => RunError::Interrupted,
        why => RunError::Failed(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cases::cases;
    use crate::diagnosis::matrix::{COLUMNS, Score};

    /// A rule that gets worse changes the matrix; one that gets better changes the snapshot with
    /// it.
    #[test]
    fn the_plan_in_virtual_time_is_judged_as_before() {
        let mut cases = cases(1).unwrap();
        cases.retain(Case::is_modelled);
        let done = run_all(&cases, 1, None, &AtomicBool::new(false));
        let records: Vec<CaseRecord> = done.into_iter().collect::<Result<_, _>>().unwrap();
        let score = Score::of(COLUMNS[0], &records.iter().collect::<Vec<_>>());
        insta::assert_snapshot!(score.text().split("\n  missed").next().unwrap());
    }
}

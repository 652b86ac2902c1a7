//! Transfers over a lab with one planted limit each: every cause, in three variants and more.
//!
//! [`cases`] is the plan, [`plant`] is what neither path nor settings nor load can plant, and [`run`]
//! runs one case.

mod cases;
mod plant;
mod run;
mod ssh;

pub(crate) use plant::{Quota, slowed};

use clap::{Args, ValueEnum};
use fullpipe_lab::AwakeProcessors;
use fullpipe_model::predict;
use fullpipe_record::{HostSettings, Limit};
use fullpipe_sim::SimulationPlan;
use fullpipe_units::BitRate;

use crate::judged::{CAPTURES, JudgedView, Judging, LISTED_AT, PlantedCases, Session, VirtualCase};
use crate::process::RunError;
use cases::Case;
use run::Runner;

/// Cases over a lab.
#[derive(Debug, Args)]
pub(crate) struct LabCases {
    /// One case of each kind, in about a minute
    #[arg(long, conflicts_with = "is_virtual")]
    short: bool,
    /// Judge captures of both ends too; of transfers over the lab, they are in a folder next to the
    /// records
    #[arg(long)]
    capture: bool,
    #[command(flatten)]
    pub(crate) judging: Judging,
}

/// Share of what the path carries above which another limit was none.
const FULL: f64 = 0.9;

impl PlantedCases for LabCases {
    fn views(&self) -> Vec<JudgedView> {
        let mut views = JudgedView::value_variants().to_vec();
        views.retain(|view| self.capture || !view.is_of_captures());
        views
    }

    fn usual_seed(&self) -> u64 {
        1
    }

    fn is_required(&self) -> bool {
        true
    }

    fn simulated(&self, seed: u64, count: Option<usize>) -> Result<Vec<VirtualCase>, RunError> {
        let cases = match count {
            Some(count) => cases::drawn_ways(seed, count)?,
            None => cases::cases(seed)?,
        };
        let modelled = cases.into_iter().filter(Case::is_modelled);
        Ok((seed..)
            .zip(modelled)
            .map(|(seed, case)| virtual_case(case, seed))
            .collect())
    }

    fn run_all(&self, session: &Session<'_>) -> Result<(), RunError> {
        let scratch = tempfile::tempdir()?;
        let records = session.judging.record.as_deref();
        if self.capture && records.is_none() {
            let why = "--capture needs --record DIR, where the captures go too";
            return Err(RunError::failed(why));
        }
        let runner = Runner {
            program: session.program,
            scratch: scratch.path(),
            prove: session.judging.prove,
            captures: records
                .filter(|_| self.capture)
                .map(|folder| folder.join(CAPTURES)),
            interrupt: session.stop,
        };
        let _awake = (!session.judging.list).then(AwakeProcessors::keep_awake);
        for seed in &session.seeds {
            let cases = cases::cases(*seed)?;
            for case in cases.iter().filter(|case| case.is_short() || !self.short) {
                if runner.is_interrupted() {
                    break;
                }
                if session.includes(None, &case.name) {
                    session.end_case(&case.name, runner.run(case));
                }
            }
        }
        Ok(())
    }
}

/// Returns a case for virtual time. A transfer that fills the path though another limit was planted
/// does not count.
fn virtual_case(case: Case, seed: u64) -> VirtualCase {
    let host = HostSettings::of_linux_6_18();
    let hosts = [&case.sender, &case.receiver].map(|changes| host.changed_by(changes));
    let prediction = predict(&case.path, &hosts[0], &hosts[1], &case.request);
    let capacity = prediction.find_ceiling(Limit::Capacity);
    let is_of_path = matches!(case.expected.limit_kind(), Limit::Capacity | Limit::Mtu);
    let most = capacity
        .filter(|_| !is_of_path)
        .map_or(f64::INFINITY, |ceiling| {
            ceiling.kernel_model.as_f64() * FULL
        });
    VirtualCase {
        name: case.name,
        expected: case.expected.name().to_owned(),
        plan: SimulationPlan::new(case.path, hosts, case.request, seed),
        states_rate: true,
        has_silent_tail: false,
        is_rate_asked: true,
        listed_at: LISTED_AT,
        rates: [BitRate::ZERO, BitRate::from_bps_f64(most)],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::judged::{map_in_parallel, score_text};

    #[test]
    fn the_plan_in_virtual_time_is_judged_as_before() {
        let mut cases = cases::cases(1).unwrap();
        cases.retain(Case::is_modelled);
        let cases: Vec<VirtualCase> = (1..)
            .zip(cases)
            .map(|(seed, case)| virtual_case(case, seed))
            .collect();
        let stop = AtomicBool::new(false);
        let views = [JudgedView::BothEnds];
        let judged = map_in_parallel(&cases, |_, case| case.judge(&views, &stop).unwrap());
        let judged: Vec<_> = judged.into_iter().flatten().flat_map(|one| one.1).collect();
        let score = score_text(&judged);
        insta::assert_snapshot!(score.split("\nClaimed").next().unwrap());
    }
}

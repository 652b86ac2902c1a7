//! Cases that share nothing with those of a lab but the judge: paths of the kernel's own token bucket
//! and of a delay box that is no part of the lab, hosts with real routers between them, programs of
//! others, and parameters drawn from a seed.
//!
//! [`draw`] draws the cases, [`plant`] plants the limit of each, [`run`] runs one, and
//! [`virtual_time`] plants the same families in virtual time.

mod case;
mod delay_box;
mod draw;
mod family;
mod network;
mod others;
mod peer;
mod plant;
mod run;
mod side_by_side;
mod virtual_time;

pub(crate) use peer::Peer;

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use crate::judged::{
    JudgedView, Judging, PlantedCases, Record, Session, VirtualCase, draw_duration,
};
use crate::process::RunError;
use case::Case;
use run::Programs;

/// Cases of each view and seed, if not said otherwise.
const USUAL_COUNT: usize = 50;

/// Runs of a case that may be invalid before it is left out.
const RUNS: usize = 3;

/// Cases drawn from a seed.
#[derive(Debug, Args)]
pub(crate) struct Drawing {
    /// Views to judge; all if not given
    #[arg(long, value_enum, value_name = "VIEW")]
    view: Vec<JudgedView>,
    /// Limits of browsers: transfers of `fullpipe serve --web`, which it judges alone
    #[arg(long, conflicts_with_all = ["is_virtual", "prove"])]
    web: bool,
    #[command(flatten)]
    pub(crate) judging: Judging,
}

impl PlantedCases for Drawing {
    fn views(&self) -> Vec<JudgedView> {
        match &self.view[..] {
            [] if self.web => &[JudgedView::Sender, JudgedView::Receiver],
            [] => JudgedView::value_variants(),
            views => views,
        }
        .to_vec()
    }

    fn usual_seed(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs()
    }

    fn is_required(&self) -> bool {
        false
    }

    fn simulated(&self, seed: u64, count: Option<usize>) -> Result<Vec<VirtualCase>, RunError> {
        virtual_time::draw_virtual_cases(seed, count.unwrap_or(USUAL_COUNT))
    }

    fn run_all(&self, session: &Session<'_>) -> Result<(), RunError> {
        let program = std::path::absolute(session.program)?;
        let bench = std::env::current_exe()?;
        let programs = Programs {
            fullpipe: &program,
            bench: &bench,
            proves: session.judging.prove,
        };
        let count = session.judging.count.unwrap_or(USUAL_COUNT);
        let mut cases: Vec<Case> = Vec::new();
        for seed in &session.seeds {
            let views = JudgedView::OF_KERNEL.into_iter();
            let wanted = views.filter(|view| self.views().contains(view));
            for view in wanted {
                cases.extend(draw::cases(view, *seed, count, self.web)?);
            }
        }
        if session.judging.completion {
            for (index, case) in cases.iter_mut().enumerate() {
                case.last_for(draw_duration(case.seed ^ index as u64, case.path.rate));
            }
        }
        cases.retain(|case| session.includes(Some(case.view), &case.name));
        side_by_side::side_by_side(cases, session.stop, |case| {
            session.end_case(&case.name, run_until_valid(&programs, case, session));
        });
        Ok(())
    }
}

fn run_until_valid(
    programs: &Programs<'_>,
    case: &Case,
    session: &Session<'_>,
) -> Result<Record, RunError> {
    let mut record = programs.run(case, session.stop)?;
    for _ in 1..RUNS {
        if record.broken.is_none() {
            break;
        }
        record = programs.run(case, session.stop)?;
    }
    Ok(record)
}

//! The archive of a sweep, and the runs that it keeps.

use super::Drawing;
use crate::commands::prelude::*;
use crate::live::SweepUpdate;
use fullpipe_experiment::{PendingRuns, RunningSweep, SweepMeasurer};
use fullpipe_record::{SweepPlan, SweepReport, SweepRun, SweepRunRecord};
use fullpipe_stats::campaign::{CampaignPlan, CampaignStep, spent_cost};

/// Runs from one forecast to the next.
const FORECAST_EVERY: usize = 5;

/// Prints the forecast after `runs` now and then: it improves as the path is known better.
fn print_forecast(plan: &CampaignPlan, runs: &[SweepRun], terminal: &Terminal) {
    let is_due = runs.len().is_multiple_of(FORECAST_EVERY) && terminal.shows_progress();
    if !is_due || matches!(plan.next_step(runs), CampaignStep::Done(_)) {
        return;
    }
    if let Some(forecast) = plan.forecast_cost(runs) {
        terminal.print_progress(&format!(
            "{}\n",
            report::sweep_forecast(spent_cost(runs), &forecast)
        ));
    }
}

/// Draws the map after `runs`, and the run that follows from them.
fn draw_map(picture: &Drawing, plan: &CampaignPlan, runs: &[SweepRun]) {
    let Some(picture) = &*picture.borrow() else {
        return;
    };
    picture.send(SweepUpdate::Known {
        runs: runs.to_vec(),
        surface: plan.rate_estimates(runs),
        answer: plan.current_answer(runs).map(Box::new),
        grid: plan.grid_cost(runs),
    });
    if let CampaignStep::Run { cell, reason } = plan.next_step(runs) {
        picture.send(SweepUpdate::Next { cell, reason });
    }
}

/// The archive of a sweep. One that takes nothing ends no sweep, but a notice states that it cannot
/// be resumed.
pub(super) struct SweepArchive<'a> {
    arguments: &'a KeepArguments,
    terminal: &'a Terminal,
    /// False if nothing is to be kept, or after a failure: without one run, those after it are of
    /// no use.
    pub(super) is_on: bool,
    /// Runs that could not be started.
    waiting: PendingRuns,
}

impl<'a> SweepArchive<'a> {
    pub(super) fn new(arguments: &'a KeepArguments, terminal: &'a Terminal) -> Self {
        Self {
            arguments,
            terminal,
            is_on: !arguments.no_store,
            waiting: PendingRuns::default(),
        }
    }

    /// Makes the archive, if there is none, and keeps the plan.
    pub(super) fn keep_plan(&mut self, plan: Content) {
        if self.is_on {
            let kept = self
                .arguments
                .require_archive()
                .and_then(|()| self.arguments.put_document(&Document::new(plan)));
            self.disable_on_failure(kept.map(drop));
        }
    }

    /// Keeps a run, and those that wait for it.
    ///
    /// # Errors
    /// Fails if another program has kept a run with this number.
    fn keep_run(&mut self, record: SweepRunRecord) -> Result {
        self.waiting
            .push_record(record)
            .into_iter()
            .try_for_each(|record| self.put_run(record))
    }

    fn put_run(&mut self, record: SweepRunRecord) -> Result {
        if !self.is_on {
            return Ok(());
        }
        let kept = self
            .arguments
            .put_document(&Document::new(Content::SweepRun {
                sweep_run: Box::new(record),
            }));
        if kept
            .as_ref()
            .is_ok_and(|kept| kept.iter().any(|kept| !kept.is_new))
        {
            return Err(run_failure(
                "another program goes on with this sweep: only one can",
            ));
        }
        self.disable_on_failure(kept.map(drop));
        Ok(())
    }

    /// Runs a sweep, and keeps and shows each run.
    pub(super) fn run_sweep<M: SweepMeasurer<Error = Failure>>(
        &mut self,
        sweep: RunningSweep<'_>,
        picture: &Drawing,
        measure: &mut M,
    ) -> Result<SweepReport> {
        let (plan, terminal) = (sweep.plan, self.terminal);
        let mut known = sweep.runs.clone();
        draw_map(picture, plan, &known);
        sweep.run(measure, &mut |record| {
            let (number, run) = (record.number, record.run.clone());
            self.keep_run(record)?;
            terminal.print_progress(&format!("{}\n", report::sweep_run(number, &run)));
            terminal.print_event(&Event::SweepRun(Box::new(run.clone())));
            known.push(run);
            print_forecast(plan, &known, terminal);
            draw_map(picture, plan, &known);
            Ok(())
        })
    }

    /// Prints and keeps the report.
    pub(super) fn finish_sweep(&self, done: SweepReport, plan: &SweepPlan) -> Result {
        let (terminal, sweep) = (self.terminal, Box::new(done));
        terminal.print_result(&report::sweep_text(&sweep));
        terminal.print_event(&Event::Sweep(sweep.clone()));
        let (interrupted, has_answer) = (sweep.interrupted, sweep.answer.is_some());
        let document = terminal.print_report(Content::Sweep { sweep }, None);
        if self.is_on {
            self.arguments.keep_as_asked(&document, terminal);
        }
        self.note_waiting(plan);
        Failure::after_report(None, interrupted, has_answer)
    }

    /// States how to go on with a sweep whose last runs could not be started.
    fn note_waiting(&self, plan: &SweepPlan) {
        if self.is_on && !self.waiting.is_empty() {
            let again = format!("`--resume {}` tries them again", plan.id);
            self.terminal
                .print_notice(&format!("the last runs could not be started: {again}"));
        }
    }

    fn disable_on_failure(&mut self, kept: Result) {
        if let Err(failure) = kept {
            self.is_on = false;
            self.terminal.print_notice(&format!(
                "the sweep is not kept, and cannot be resumed: {}",
                failure.message
            ));
        }
    }
}

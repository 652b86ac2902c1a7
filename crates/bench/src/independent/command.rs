//! `bench independent`: draws cases from a seed, runs them or reads records of them, and prints the
//! score.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use super::captures::seen;
use super::case::{Case, View};
use super::draw::cases as draw_cases;
use super::record::Record;
use super::run::Programs;
use super::score::{harm_text, score_text};
use super::side_by_side::side_by_side;
use super::virtual_time::{VirtualCase, draw_virtual_cases, judge_virtual_cases};
use crate::accuracy::Accuracy;
use crate::captures::{Seen, Taken};
use crate::process::RunError;
use crate::records::{Selection, read_all};
use crate::views::{JudgedView, Judgement};
use crate::{INTERRUPTED, LACKING, say};

/// Runs of a case that may be invalid before it is left out.
const RUNS: usize = 3;

/// The cases to run, and the use of their records.
#[derive(Debug, Args)]
pub(crate) struct Drawing {
    /// From which the cases are drawn; given again, their cases are pooled [default: the time]
    #[arg(long, value_name = "N")]
    seed: Vec<u64>,
    /// Views to judge; all if not given
    #[arg(long, value_enum, value_name = "VIEW")]
    view: Vec<JudgedView>,
    /// Simulate transfers of the families that virtual time can have, and judge each from every
    /// view
    #[arg(long = "virtual", conflicts_with_all = ["kernel", "prove", "capture", "record", "from"])]
    is_virtual: bool,
    /// Cases of each view and seed
    #[arg(long, default_value_t = 50, value_name = "N")]
    count: usize,
    /// Run the near host in this User-Mode Linux; cases that it cannot run are left out
    #[arg(long, value_name = "PATH", conflicts_with = "prove")]
    kernel: Option<PathBuf>,
    /// Apply the best remedy of each load of its own and measure again
    #[arg(long)]
    prove: bool,
    /// Capture at both ends, into the folder of the records, and judge the captures too
    #[arg(long, requires = "record")]
    capture: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

impl Drawing {
    /// Runs the bench. The exit code does not depend on the verdicts.
    pub(crate) fn run(&self, program: &Path, stop: &AtomicBool) -> ExitCode {
        if self.is_virtual {
            return self.run_virtual(stop);
        }
        let outcome = self.records(program, stop);
        let interrupted = stop
            .load(Ordering::Relaxed)
            .then_some(ExitCode::from(INTERRUPTED));
        match outcome {
            Ok(records) => {
                if !records.is_empty() {
                    let seen = self.seen_captures(&records);
                    say(false, &report(&records, &seen));
                }
                interrupted.unwrap_or(ExitCode::SUCCESS)
            }
            Err(why) => {
                say(true, &format!("fullpipe-bench: {why}\n"));
                interrupted.unwrap_or(ExitCode::from(LACKING))
            }
        }
    }

    /// Judges every view of simulated transfers. The exit code does not depend on the verdicts.
    fn run_virtual(&self, stop: &AtomicBool) -> ExitCode {
        let views = self.views();
        let judged = self.virtual_cases().and_then(|cases| {
            if self.selection.list {
                for case in &cases {
                    say(false, &format!("{}\n", case.name));
                }
                return Ok(None);
            }
            Ok(Some(judge_virtual_cases(&cases, &views, stop)?))
        });
        match judged {
            Ok(None) => ExitCode::SUCCESS,
            Ok(Some(judged)) => {
                judged
                    .iter()
                    .filter(|judgement| !judgement.is_right())
                    .for_each(|wrong| say(false, &wrong.marked_line()));
                say(false, &score_text(&judged));
                ExitCode::SUCCESS
            }
            Err(_) if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
            Err(why) => {
                say(true, &format!("fullpipe-bench: {why}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn virtual_cases(&self) -> Result<Vec<VirtualCase>, Box<dyn std::error::Error>> {
        let mut cases = Vec::new();
        for seed in self.seeds() {
            cases.extend(draw_virtual_cases(seed, self.count)?);
        }
        cases.retain(|case| self.selection.includes(&case.name));
        Ok(cases)
    }

    fn views(&self) -> Vec<JudgedView> {
        if self.view.is_empty() {
            JudgedView::value_variants().to_vec()
        } else {
            self.view.clone()
        }
    }

    /// Returns the seeds, and says which it is where none was given.
    fn seeds(&self) -> Vec<u64> {
        if !self.seed.is_empty() {
            return self.seed.clone();
        }
        let seed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        say(false, &format!("seed {seed}\n"));
        vec![seed]
    }

    /// Returns what captures in the folder of the records show, where there are some, and prints
    /// it.
    fn seen_captures(&self, records: &[Record]) -> Vec<Judgement> {
        let folder = self.selection.from.as_ref().or(self
            .selection
            .record
            .as_ref()
            .filter(|_| self.capture));
        let Some(folder) = folder else {
            return Vec::new();
        };
        let mut judged = Vec::new();
        for record in records {
            for seen in seen(record, folder) {
                say(false, &seen.line());
                judged.extend(capture_judgement(record, seen));
            }
        }
        judged
    }

    fn records(
        &self,
        program: &Path,
        stop: &AtomicBool,
    ) -> Result<Vec<Record>, Box<dyn std::error::Error>> {
        let wanted = |name: &str| self.selection.includes(name);
        if let Some(folder) = &self.selection.from {
            let mut records = read_all::<Record>(folder)?;
            let views = self.views();
            records.retain(|record| wanted(&record.name) && views.contains(&record.view.into()));
            for record in &mut records {
                record.judge_again();
                say(false, &line(record));
            }
            return Ok(records);
        }
        let views = self.views();
        let views = View::value_variants()
            .iter()
            .copied()
            .filter(|view| views.contains(&(*view).into()));
        let views: Vec<View> = views.collect();
        let (program, bench) = (std::path::absolute(program)?, std::env::current_exe()?);
        let programs = Programs {
            fullpipe: &program,
            bench: &bench,
            kernel: self.kernel.as_deref(),
            proves: self.prove,
            captures: self.selection.record.as_deref().filter(|_| self.capture),
        };
        let mut cases: Vec<Case> = Vec::new();
        for seed in self.seeds() {
            cases.extend(
                views
                    .iter()
                    .flat_map(|view| draw_cases(*view, seed, self.count)),
            );
        }
        cases.retain(|case| {
            wanted(&case.name) && (self.kernel.is_none() || case.runs_in_other_kernel())
        });
        if self.selection.list {
            for case in &cases {
                say(false, &format!("{:?} {}\n", case.view, case.name));
            }
            return Ok(Vec::new());
        }
        let records = Mutex::new(Vec::new());
        side_by_side(cases, stop, |case| {
            match self.record(&programs, case, stop) {
                Ok(record) => {
                    say(false, &line(&record));
                    records
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(record);
                }
                Err(RunError::Interrupted) => {}
                Err(why) => say(false, &format!("{}: {why}\n", case.name)),
            }
        });
        Ok(records.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a case, and writes its record where records are kept.
    fn record(
        &self,
        programs: &Programs<'_>,
        case: &Case,
        stop: &AtomicBool,
    ) -> Result<Record, RunError> {
        let record = run_until_valid(programs, case, stop)?;
        if let Some(folder) = &self.selection.record {
            record.write(folder).map_err(RunError::failed)?;
        }
        Ok(record)
    }
}

/// Returns the score and the accuracy of the records that count, and of what captures of them show.
fn report(records: &[Record], seen: &[Judgement]) -> String {
    let mut accuracy = Accuracy::default();
    let counted = || records.iter().filter(|record| record.left_out().is_none());
    counted().for_each(|record| record.hold(&mut accuracy));
    let judged: Vec<Judgement> = counted()
        .map(Record::judgement)
        .chain(counted().flat_map(Record::listed))
        .chain(seen.iter().cloned())
        .collect();
    score_text(&judged) + &harm_text(records) + &accuracy.text()
}

/// Returns the verdict on captures of a record; `None` of one from the middle.
fn capture_judgement(record: &Record, seen: Seen) -> Option<Judgement> {
    let view = match seen.taken {
        Taken::Sender => JudgedView::CapturedAtSender,
        Taken::Receiver => JudgedView::CapturedAtReceiver,
        Taken::BothEnds => JudgedView::CapturedAtBoth,
        Taken::Middle => return None,
    };
    Some(Judgement {
        transfer: record.name.clone(),
        view,
        expected: seen.expected,
        verdict: seen.verdict,
    })
}

fn run_until_valid(
    programs: &Programs<'_>,
    case: &Case,
    stop: &AtomicBool,
) -> Result<Record, RunError> {
    let mut record = programs.run(case, stop)?;
    for _ in 1..RUNS {
        if record.broken.is_none() {
            break;
        }
        record = programs.run(case, stop)?;
    }
    Ok(record)
}

/// Returns a record in a line.
fn line(record: &Record) -> String {
    let judgement = record.judgement();
    match (record.left_out(), &record.failed) {
        (Some(why), _) => format!("left out ({why}) {}", judgement.line()),
        (None, Some(why)) => format!("failed ({why}) {}", judgement.marked_line()),
        (None, None) => judgement.marked_line(),
    }
}

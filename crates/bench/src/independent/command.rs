//! `bench independent`: draws cases from a seed, runs them or reads records of them, and prints the score.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use super::captures::seen;
use super::case::{Case, View};
use super::draw::cases;
use super::record::Record;
use super::run::Programs;
use super::score;
use super::side_by_side::side_by_side;
use crate::accuracy::Accuracy;
use crate::captures::{Seen, score as score_of_captures};
use crate::process::RunError;
use crate::records::{Selection, read_all};
use crate::{INTERRUPTED, LACKING, say};

/// Runs of a case that may be invalid before it is left out.
const RUNS: usize = 3;

/// The cases to run, and the use of their records.
#[derive(Debug, Args)]
pub(crate) struct Drawing {
    /// From which the cases are drawn [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Views to judge; all if not given
    #[arg(long, value_enum, value_name = "VIEW")]
    view: Vec<View>,
    /// Cases of each view
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
        let outcome = self.records(program, stop);
        let interrupted = stop.load(Ordering::Relaxed).then_some(ExitCode::from(INTERRUPTED));
        match outcome {
            Ok(records) => {
                if !records.is_empty() {
                    say(false, &report(&records));
                    self.judge_captures(&records);
                }
                interrupted.unwrap_or(ExitCode::SUCCESS)
            }
            Err(why) => {
                say(true, &format!("fullpipe-bench: {why}\n"));
                interrupted.unwrap_or(ExitCode::from(LACKING))
            }
        }
    }

    /// Prints what captures in the folder of the records show, where there are some.
    fn judge_captures(&self, records: &[Record]) {
        let folder = self.selection.from.as_ref().or(self.selection.record.as_ref().filter(|_| self.capture));
        let seen: Vec<Seen> =
            folder.into_iter().flat_map(|folder| records.iter().flat_map(|one| seen(one, folder))).collect();
        for seen in &seen {
            say(false, &seen.line());
        }
        say(false, &score_of_captures(&seen.iter().collect::<Vec<_>>()));
    }

    fn records(&self, program: &Path, stop: &AtomicBool) -> Result<Vec<Record>, Box<dyn std::error::Error>> {
        let wanted = |name: &str| self.selection.includes(name);
        if let Some(folder) = &self.selection.from {
            let mut records = read_all::<Record>(folder)?;
            records.retain(|record| wanted(&record.name) && (self.view.is_empty() || self.view.contains(&record.view)));
            for record in &mut records {
                record.judge_again();
                say(false, &line(record));
            }
            return Ok(records);
        }
        let seed =
            self.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        say(false, &format!("seed {seed}\n"));
        let views = if self.view.is_empty() { clap::ValueEnum::value_variants() } else { &self.view };
        let (program, bench) = (std::path::absolute(program)?, std::env::current_exe()?);
        let programs = Programs {
            fullpipe: &program,
            bench: &bench,
            kernel: self.kernel.as_deref(),
            proves: self.prove,
            captures: self.selection.record.as_deref().filter(|_| self.capture),
        };
        let mut cases: Vec<Case> = views.iter().flat_map(|view| cases(*view, seed, self.count)).collect();
        cases.retain(|case| wanted(&case.name) && (self.kernel.is_none() || case.runs_in_other_kernel()));
        if self.selection.list {
            for case in &cases {
                say(false, &format!("{:?} {}\n", case.view, case.name));
            }
            return Ok(Vec::new());
        }
        let records = Mutex::new(Vec::new());
        side_by_side(cases, stop, |case| match self.record(&programs, case, seed, stop) {
            Ok(record) => {
                say(false, &line(&record));
                records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
            }
            Err(RunError::Interrupted) => {}
            Err(why) => say(false, &format!("{}: {why}\n", case.name)),
        });
        Ok(records.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a case, and writes its record where records are kept.
    fn record(&self, programs: &Programs<'_>, case: &Case, seed: u64, stop: &AtomicBool) -> Result<Record, RunError> {
        let record = run_until_valid(programs, case, seed, stop)?;
        if let Some(folder) = &self.selection.record {
            record.write(folder).map_err(RunError::failed)?;
        }
        Ok(record)
    }
}

/// The score and the accuracy of the records that count, as text.
fn report(records: &[Record]) -> String {
    let mut accuracy = Accuracy::default();
    records.iter().filter(|record| record.left_out().is_none()).for_each(|record| record.hold(&mut accuracy));
    score::text(records) + &accuracy.text()
}

fn run_until_valid(programs: &Programs<'_>, case: &Case, seed: u64, stop: &AtomicBool) -> Result<Record, RunError> {
    let mut record = programs.run(case, seed, stop)?;
    for _ in 1..RUNS {
        if record.broken.is_none() {
            break;
        }
        record = programs.run(case, seed, stop)?;
    }
    Ok(record)
}

/// A record in a line.
fn line(record: &Record) -> String {
    let mark = match record.left_out() {
        Some(_) => "left out",
        None if record.said() == record.expected => "right",
        None if record.is_right() => "among",
        None => "WRONG",
    };
    let sentence = record.verdict.as_ref().map(|verdict| verdict.sentence.as_str()).unwrap_or_default();
    let others = record.candidates().len().saturating_sub(1);
    let others = (others > 0).then(|| format!("one of {}", others + 1));
    let notes = others.iter().chain(record.left_out()).chain(&record.failed).map(|note| format!(" ({note})"));
    let notes: String = notes.collect();
    format!("{mark} {:?} {}: {}{notes}: {sentence}\n", record.view, record.name, record.said())
}

//! `bench diagnosis`: runs the labelled cases or reads records of them, judges, and prints the
//! matrix.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use fullpipe_lab::AwakeProcessors;
use fullpipe_record::Limit;

use super::captures::{self, Compared};
use super::case_record::CaseRecord;
use super::cases::{Case, cases, drawn_ways};
use super::imperfect::Imperfection;
use super::in_virtual_time;
use super::matrix::{COLUMNS, Score, accuracy};
use super::run::{RunError, Runner};
use crate::records::{Selection, read_all};
use crate::{INTERRUPTED, LACKING, say};

/// The cases to run, and the use of their records.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Judging {
    /// From which the drawn cases are drawn
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Simulate the cases that virtual time can have, in seconds
    #[arg(long = "virtual", conflicts_with_all = ["short", "prove", "from"])]
    is_virtual: bool,
    /// With --virtual, so many cases over paths that are drawn from the seed, instead of the plan
    #[arg(long, requires = "is_virtual", value_name = "N")]
    count: Option<usize>,
    /// One case of each kind, in about a minute
    #[arg(long)]
    short: bool,
    /// Apply the best remedy of each case and measure again
    #[arg(long)]
    prove: bool,
    /// Capture at both ends and in the middle, into a folder next to the records, and judge the
    /// captures too
    #[arg(long, requires = "record")]
    capture: bool,
    /// Judge the captures also with segments joined, packets missing, no handshake, and no
    /// timestamps
    #[arg(long)]
    imperfect: bool,
}

impl Judging {
    /// Runs the bench; the exit code is that of a failure where too few verdicts are right.
    pub(crate) fn run(&self, program: &Path, stop: &AtomicBool) -> ExitCode {
        match self.records(program, stop) {
            Ok(Some(records)) => {
                let code = judge(&records);
                match self.judge_captures(&records) {
                    Ok(()) => code,
                    Err(why) => lacking(&why, stop),
                }
            }
            Ok(None) => ExitCode::SUCCESS,
            Err(why) => lacking(why.as_ref(), stop),
        }
    }

    /// Prints what captures next to the records show, where there are some. The exit code does not
    /// depend on it.
    ///
    /// # Errors
    /// Fails if an imperfect capture cannot be written.
    fn judge_captures(&self, records: &[CaseRecord]) -> io::Result<()> {
        let records_folder = self.selection.from.as_ref().or(self
            .selection
            .record
            .as_ref()
            .filter(|_| self.capture));
        let Some(folder) = records_folder
            .map(|records| captures::folder(records))
            .filter(|folder| folder.is_dir())
        else {
            return Ok(());
        };
        let valid = || {
            records
                .iter()
                .filter(|record| record.observation.validity().is_valid())
        };
        let compared: Vec<Compared> = valid()
            .map(|record| Compared::of(record, &folder))
            .collect();
        say(false, &format!("\n{}", captures::text(&compared)));
        for how in Imperfection::ALL.into_iter().filter(|_| self.imperfect) {
            let mut seen = Vec::new();
            for record in valid() {
                seen.extend(captures::seen_imperfectly(record, &folder, how)?);
            }
            say(false, &captures::text_of_imperfect(how, &seen));
        }
        Ok(())
    }

    fn records(
        &self,
        program: &Path,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<CaseRecord>>, Box<dyn std::error::Error>> {
        if let Some(folder) = &self.selection.from {
            let records = read_all::<CaseRecord>(folder)?;
            return Ok(Some(
                records
                    .into_iter()
                    .filter(|record| self.selection.includes(&record.name))
                    .collect(),
            ));
        }
        let mut cases = match self.count {
            Some(count) => drawn_ways(self.seed, count)?,
            None => cases(self.seed)?,
        };
        cases.retain(|case| !self.is_virtual || case.is_modelled());
        cases
            .retain(|case| self.selection.includes(&case.name) && (case.is_short() || !self.short));
        if self.selection.list {
            for case in &cases {
                say(false, &format!("{}\n", case.name));
            }
            return Ok(None);
        }
        say(
            false,
            &format!("{} cases, seed {}\n", cases.len(), self.seed),
        );
        if self.is_virtual {
            return Ok(Some(self.simulated(&cases, stop)?));
        }
        let scratch = std::env::temp_dir().join(format!("fullpipe-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let _awake = AwakeProcessors::keep_awake();
        let runner = Runner {
            program,
            scratch: &scratch,
            prove: self.prove,
            captures: self.captures(),
            interrupt: stop,
        };
        let records = self.run_all(&cases, &runner);
        std::fs::remove_dir_all(&scratch)?;
        records.map(Some)
    }

    /// Returns the folder of captures, if they are taken.
    fn captures(&self) -> Option<PathBuf> {
        self.selection
            .record
            .as_deref()
            .filter(|_| self.capture)
            .map(captures::folder)
    }

    /// Simulates the cases, and prints those with another verdict than the planted one, those that
    /// are not modelled, and the time that it took; writes their records where they are kept.
    fn simulated(
        &self,
        cases: &[Case],
        stop: &AtomicBool,
    ) -> Result<Vec<CaseRecord>, Box<dyn std::error::Error>> {
        let begun = Instant::now();
        let folder = self.captures();
        let done = in_virtual_time::run_all(cases, self.seed, folder.as_deref(), stop);
        let took = begun.elapsed().as_secs_f64();
        let mut records = Vec::new();
        for (case, record) in cases.iter().zip(done) {
            match record {
                Ok(record) if fills_path(&record) => {
                    say(
                        false,
                        &format!("left out: {}: it fills the path\n", case.name),
                    );
                }
                Ok(record) => {
                    if let Some(folder) = &self.selection.record {
                        record.write(folder)?;
                    }
                    records.push(record);
                }
                Err(RunError::NotPlanted(why)) => {
                    say(false, &format!("left out: {}: {why}\n", case.name));
                }
                Err(why) => return Err(why.into()),
            }
        }
        let is_wrong = |record: &&CaseRecord| {
            COLUMNS[0].verdict(record).name() != record.expected_verdict.name()
        };
        records
            .iter()
            .filter(is_wrong)
            .for_each(|record| say(false, &format!("WRONG {}\n", line(record))));
        let a_minute = records.len() as f64 / took.max(f64::MIN_POSITIVE) * 60.0;
        say(
            false,
            &format!("{took:.1} s, {a_minute:.0} cases a minute\n"),
        );
        Ok(records)
    }

    fn run_all(
        &self,
        cases: &[Case],
        runner: &Runner<'_>,
    ) -> Result<Vec<CaseRecord>, Box<dyn std::error::Error>> {
        let mut records = Vec::new();
        for case in cases {
            match runner.run(case) {
                Ok(record) => {
                    say(false, &format!("{}\n", line(&record)));
                    if let Some(folder) = &self.selection.record {
                        record.write(folder)?;
                    }
                    records.push(record);
                }
                Err(RunError::Interrupted) => break,
                Err(why) => say(false, &format!("{}: {why}\n", case.name)),
            }
        }
        Ok(records)
    }
}

/// Prints why the bench ended early, and returns its exit code.
fn lacking(why: &dyn Error, stop: &AtomicBool) -> ExitCode {
    say(true, &format!("fullpipe-bench: {why}\n"));
    ExitCode::from(if stop.load(Ordering::Relaxed) {
        INTERRUPTED
    } else {
        LACKING
    })
}

/// Returns whether a transfer carried what the path does, though another limit was planted: that
/// limits nothing then.
fn fills_path(record: &CaseRecord) -> bool {
    const FULL: f64 = 0.9;
    let capacity = record
        .prediction
        .find_ceiling(Limit::Capacity)
        .map(|capacity| capacity.kernel_model);
    let is_of_path = matches!(
        record.expected_verdict.limit_kind(),
        Limit::Capacity | Limit::Mtu
    );
    !is_of_path
        && capacity.is_some_and(|capacity| record.observation.rate() >= capacity.scale_by(FULL))
}

/// A record in a line: what was measured of what is predicted, and the verdict that knows most.
fn line(record: &CaseRecord) -> String {
    let rate = record.observation.rate();
    let broken = record.observation.validity().broken.join("; ");
    let verdict = COLUMNS[0].verdict(record);
    let note = if broken.is_empty() {
        String::new()
    } else {
        format!(" (invalid: {broken})")
    };
    format!(
        "{}: {rate} of {}{note}: {}",
        record.name, record.prediction.kernel_model, verdict.sentence
    )
}

/// Records that may be judged decide.
fn judge(records: &[CaseRecord]) -> ExitCode {
    let valid: Vec<&CaseRecord> = records
        .iter()
        .filter(|record| record.observation.validity().is_valid())
        .collect();
    say(
        false,
        &format!(
            "\n{} records, {} of them valid\n",
            records.len(),
            valid.len()
        ),
    );
    let scores = COLUMNS.map(|column| Score::of(column, &valid));
    for score in &scores {
        say(false, &score.text());
    }
    say(false, &accuracy(&valid).text());
    if scores.iter().all(Score::is_enough) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

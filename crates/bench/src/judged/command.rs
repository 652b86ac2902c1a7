//! `bench diagnosis` and `bench independent`: run cases with one planted limit each, simulate them,
//! or read records of them, and print the score.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use fullpipe_trace::ExplainedTransfers;
use fullpipe_units::{Shard, Span};

use super::accuracy::Accuracy;
use super::captures::{capture_file, judge_captures};
use super::completion::{completion_text, draw_duration};
use super::parallel::map_in_parallel;
use super::record::Record;
use super::score::{harm_text, is_enough, score_text};
use super::simulated::VirtualCase;
use super::until_sure::until_sure_text;
use super::view::{JudgedView, Judgement};
use crate::process::{RunError, check_interrupt};
use crate::{INTERRUPTED, LACKING, say};

/// Share of a transfer's time after which the last listing of its sender is taken.
pub(crate) const LISTED_AT: f64 = 0.85;

/// Duration of a test for which none is asked.
const USUAL_TIME: Span = Span::from_secs(10);

/// The cases to run, and the use of their records.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Judging {
    /// From which cases are drawn; given again, their cases are pooled
    #[arg(long, value_name = "N")]
    seed: Vec<u64>,
    /// Simulate the cases that virtual time can have, and judge each from every view
    #[arg(long = "virtual", conflicts_with_all = ["prove", "from"])]
    is_virtual: bool,
    /// Hold transfers of 10 s that end once the result is sure against whole ones
    #[arg(long, requires = "is_virtual")]
    until_sure: bool,
    /// Forecast on the way when transfers of 20 s to 600 s are complete
    #[arg(long, conflicts_with_all = ["until_sure", "prove"])]
    pub(crate) completion: bool,
    /// Number of cases to draw of each seed
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<usize>,
    /// Apply the best remedy of each load of its own and measure again
    #[arg(long)]
    pub(crate) prove: bool,
    /// Only cases whose name contains this; may be given again
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only one shard of the cases: 3/16 is the third of 16, every sixteenth case from the third on
    ///
    /// Shards write their records into one folder with --record, and --from judges all of them.
    #[arg(long, value_name = "I/N", requires = "seed", conflicts_with = "from")]
    shard: Option<Shard>,
    /// Write the record of each case into a file here
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Judge what was recorded here, and run nothing
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    from: Option<PathBuf>,
    /// Print the names of the cases and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// The program [default: in the folder of this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
}

/// A plan of cases.
pub(crate) trait PlantedCases {
    /// Views from which transfers are judged.
    fn views(&self) -> Vec<JudgedView>;

    /// Returns the seed that is used where none is given.
    fn usual_seed(&self) -> u64;

    /// Returns true if most verdicts must be right, and are to be so without a stated bandwidth too.
    fn is_required(&self) -> bool;

    /// Returns the cases of a seed that can be simulated.
    ///
    /// # Errors
    /// Fails if a path cannot be, which is a mistake in the plan.
    fn simulated(&self, seed: u64, count: Option<usize>) -> Result<Vec<VirtualCase>, RunError>;

    /// Runs the cases that the session includes.
    ///
    /// # Errors
    /// Fails if none can be run here.
    fn run_all(&self, session: &Session<'_>) -> Result<(), RunError>;
}

/// Cases while they run.
pub(crate) struct Session<'s> {
    pub(crate) judging: &'s Judging,
    /// The program under test.
    pub(crate) program: &'s Path,
    pub(crate) stop: &'s AtomicBool,
    pub(crate) seeds: Vec<u64>,
    /// Cases so far that are to be run by this shard or another one.
    planned: AtomicUsize,
    records: Mutex<Vec<Record>>,
}

impl Session<'_> {
    /// Returns true if the case is to be run; prints its name if names are all that is asked for.
    pub(crate) fn includes(&self, view: Option<JudgedView>, name: &str) -> bool {
        let is_included = self.judging.includes(name) && self.is_of_shard();
        if is_included && self.judging.list {
            let view = view.map_or_else(String::new, |view| format!("{view:?} "));
            say(false, &format!("{view}{name}\n"));
        }
        is_included && !self.judging.list
    }

    /// Returns true if the next case is of this shard.
    fn is_of_shard(&self) -> bool {
        let index = self.planned.fetch_add(1, Ordering::Relaxed);
        self.judging.shard.is_none_or(|shard| shard.has_row(index))
    }

    /// Prints and keeps what came of a case.
    pub(crate) fn end_case(&self, name: &str, outcome: Result<Record, RunError>) {
        let written = outcome.and_then(|record| {
            if let Some(folder) = &self.judging.record {
                record.write(folder)?;
            }
            Ok(record)
        });
        match written {
            Ok(record) => {
                say(false, &record_line(&record));
                let records = self.records.lock();
                records.unwrap_or_else(PoisonError::into_inner).push(record);
            }
            Err(RunError::Interrupted) => {}
            Err(why) => say(false, &format!("{name}: {why}\n")),
        }
    }
}

/// Records, and the verdicts on them that count.
#[derive(Default)]
struct JudgedCases {
    records: Vec<Record>,
    judged: Vec<Judgement>,
}

impl Judging {
    /// Runs the bench. The exit code is that of a failure where too few verdicts are right, if that
    /// is required.
    pub(crate) fn run(
        &self,
        cases: &dyn PlantedCases,
        program: &Path,
        stop: &AtomicBool,
    ) -> ExitCode {
        let outcome = self.judge(cases, program, stop);
        let code = match outcome {
            Ok(_) if self.list => ExitCode::SUCCESS,
            Ok(outcome) if self.until_sure => {
                say(false, &until_sure_text(&outcome.records));
                ExitCode::SUCCESS
            }
            Ok(outcome) if self.completion => {
                say(false, &completion_text(&outcome.records));
                ExitCode::SUCCESS
            }
            // Enough of all cases must be right.
            Ok(outcome) => outcome.report(cases.is_required() && self.shard.is_none()),
            Err(why) => {
                say(true, &format!("fullpipe-bench: {why}\n"));
                ExitCode::from(LACKING)
            }
        };
        if stop.load(Ordering::Relaxed) {
            return ExitCode::from(INTERRUPTED);
        }
        code
    }

    fn judge(
        &self,
        cases: &dyn PlantedCases,
        program: &Path,
        stop: &AtomicBool,
    ) -> Result<JudgedCases, RunError> {
        if let Some(folder) = &self.from {
            let mut records = read_records(folder)?;
            let views = cases.views();
            records.retain(|one| self.includes(&one.name) && views.contains(&one.view));
            for record in &mut records {
                record.judge_again();
                say(false, &record_line(record));
            }
            return Ok(self.judge_records(cases, records));
        }
        let session = Session {
            judging: self,
            program,
            stop,
            seeds: self.seeds(cases),
            planned: AtomicUsize::new(0),
            records: Mutex::default(),
        };
        if self.is_virtual {
            return self.simulate(cases, &session);
        }
        cases.run_all(&session)?;
        let records = session.records.into_inner();
        Ok(self.judge_records(cases, records.unwrap_or_else(PoisonError::into_inner)))
    }

    fn includes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    /// Returns the seeds, and says which it is where none was given.
    fn seeds(&self, cases: &dyn PlantedCases) -> Vec<u64> {
        if !self.seed.is_empty() {
            return self.seed.clone();
        }
        let seed = cases.usual_seed();
        if !self.list {
            say(false, &format!("seed {seed}\n"));
        }
        vec![seed]
    }

    /// Simulates cases on all processors, and judges them from every view. Prints those that are
    /// wrong.
    fn simulate(
        &self,
        cases: &dyn PlantedCases,
        session: &Session<'_>,
    ) -> Result<JudgedCases, RunError> {
        let mut plan = Vec::new();
        for seed in &session.seeds {
            plan.extend(cases.simulated(*seed, self.count)?);
        }
        plan.retain(|case| session.includes(None, &case.name));
        if self.until_sure {
            for case in &mut plan {
                case.last_for(USUAL_TIME);
            }
        }
        if self.completion {
            for case in &mut plan {
                let rate = case.plan.path.forward.rate.unwrap_or_default();
                case.last_for(draw_duration(case.plan.seed, rate));
            }
        }
        let views = if self.until_sure || self.completion {
            vec![JudgedView::BothEnds]
        } else {
            cases.views()
        };
        let stop = session.stop;
        let judged = map_in_parallel(&plan, |_, case| {
            check_interrupt(stop)?;
            case.judge(&views, stop)
        });
        let mut all = JudgedCases::default();
        for judged in judged {
            let Some((record, judged)) = judged? else {
                continue;
            };
            if let Some(folder) = &self.record {
                record.write(folder)?;
            }
            let wrong = judged.iter().filter(|one| !one.is_right());
            wrong.for_each(|one| say(false, &one.marked_line()));
            all.records.push(record);
            all.judged.extend(judged);
        }
        Ok(all)
    }

    /// Judges records that count, from listings of their senders and from captures beside them too.
    fn judge_records(&self, cases: &dyn PlantedCases, records: Vec<Record>) -> JudgedCases {
        let folder = self.from.as_ref().or(self.record.as_ref());
        let captures = folder.map(|records| records.join(CAPTURES));
        let mut judged = Vec::new();
        for record in records.iter().filter(|record| record.left_out().is_none()) {
            if cases.is_required() {
                judged.extend(record.judged_from(&REQUIRED_VIEWS, record.stated()));
            } else {
                judged.push(record.judgement());
            }
            judged.extend(record.listed(LISTED_AT, record.stated()));
            if let Some(folder) = captures.as_ref().filter(|folder| folder.is_dir()) {
                judged.extend(judge_recorded_captures(record, folder));
            }
        }
        JudgedCases { records, judged }
    }
}

/// Folder of the captures of cases beside their records.
pub(crate) const CAPTURES: &str = "captures";

/// Views whose verdicts must be right.
const REQUIRED_VIEWS: [JudgedView; 2] = [JudgedView::BothEnds, JudgedView::Sender];

/// Returns the verdicts on the captures of a case; none on one that is not there.
fn judge_recorded_captures(record: &Record, folder: &Path) -> impl Iterator<Item = Judgement> {
    let files = ["sender", "receiver"].map(|end| capture_file(folder, &record.stem(), end));
    let files = files.each_ref().map(PathBuf::as_path);
    let largest = ExplainedTransfers::Largest(1);
    let judged = judge_captures(&record.judgement(), files, record.stated(), largest);
    judged.into_iter().filter(|one| one.verdict.is_some())
}

impl JudgedCases {
    /// Prints the scores. Returns the exit code of a failure if more must be right.
    fn report(&self, is_required: bool) -> ExitCode {
        let counted = || self.records.iter().filter(|one| one.left_out().is_none());
        let (all, valid) = (self.records.len(), counted().count());
        say(false, &format!("\n{all} records, {valid} of them valid\n"));
        let mut accuracy = Accuracy::default();
        counted().for_each(|record| record.hold(&mut accuracy));
        let mut text = score_text(&self.judged);
        let mut code = ExitCode::SUCCESS;
        if is_required {
            let unstated = counted().flat_map(|one| one.judged_from(&REQUIRED_VIEWS, None));
            let unstated: Vec<Judgement> = unstated.collect();
            let score = score_text(&unstated);
            text = text + "\nThe same without a stated bandwidth\n" + &score + &misses_text(self);
            if !is_enough(&self.judged) || !is_enough(&unstated) {
                code = ExitCode::FAILURE;
            }
        }
        text += &harm_text(&self.records);
        say(false, &(text + &accuracy.text()));
        code
    }
}

/// Returns the verdicts from both ends that name something else, in a line each.
fn misses_text(cases: &JudgedCases) -> String {
    let both_ends = cases
        .judged
        .iter()
        .filter(|one| one.view == JudgedView::BothEnds);
    let missed: String = both_ends
        .filter(|one| !one.is_exact())
        .map(Judgement::line)
        .collect();
    if missed.is_empty() {
        return missed;
    }
    format!("\nmissed from both ends\n{missed}")
}

/// Reads every file of `folder` whose name ends in `.json`, sorted by path.
fn read_records(folder: &Path) -> Result<Vec<Record>, RunError> {
    let entries = fs::read_dir(folder)?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path)?;
        serde_json::from_slice(&text)
            .map_err(|error| RunError::Failed(format!("{}: {error}", path.display())))
    };
    files.iter().map(read).collect()
}

/// Returns a record in a line.
fn record_line(record: &Record) -> String {
    let judgement = record.judgement();
    match (record.left_out(), &record.failed) {
        (Some(why), _) => format!("left out ({why}) {}", judgement.line()),
        (None, Some(why)) => format!("failed ({why}) {}", judgement.marked_line()),
        (None, None) => judgement.marked_line(),
    }
}

//! `bench corpus`: reads every capture of a folder, and prints what is found.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
use fullpipe_record::{CaptureReport, CapturedTransfer, Limit};
use fullpipe_trace::{CaptureError, ExplainedTransfers};

use super::contradictions::{Contradiction, FEW_PACKETS, find_contradictions};
use super::other_readers::{OtherReader, find_differences};
use super::witness::read_witnesses;
use crate::comparison::quantile;
use crate::judged::map_in_parallel;
use crate::{INTERRUPTED, LACKING, say};

/// The captures to read.
#[derive(Debug, Args)]
pub(crate) struct CorpusCheck {
    /// Folder of captures, with all folders in it
    folder: PathBuf,
    /// Only files whose path contains this
    #[arg(long, default_value = "", value_name = "PATTERN")]
    only: String,
    /// Ask neither tshark nor tcptrace, which take most of the time
    #[arg(long)]
    verdicts_only: bool,
}

/// What came of one file.
#[derive(Debug, Default)]
struct CheckedFile {
    findings: Vec<Finding>,
    /// Confidence of each transfer, and whether it has fewer than ten packets with data.
    confidences: Vec<(f64, bool)>,
    is_capture: bool,
}

/// What is wrong with a verdict or a count.
#[derive(Debug, Clone)]
struct Finding {
    kind: &'static str,
    /// Path of the capture.
    file: String,
    /// The connection, the verdict and the figures, in a line.
    detail: String,
}

impl CorpusCheck {
    /// Checks every file. The exit code is that of a failure if there is any finding.
    pub(crate) fn run(&self, stop: &AtomicBool) -> ExitCode {
        let files = match capture_files(&self.folder, &self.only) {
            Ok(files) => files,
            Err(error) => {
                say(
                    true,
                    &format!(
                        "fullpipe-bench: cannot read {}: {error}\n",
                        self.folder.display()
                    ),
                );
                return ExitCode::from(LACKING);
            }
        };
        let readers = self.installed_readers(stop);
        let checked = map_in_parallel(&files, |_, file| {
            (!stop.load(Ordering::Relaxed)).then(|| check_file(file, &readers, stop))
        });
        let checked: Vec<CheckedFile> = checked.into_iter().flatten().collect();
        let findings: Vec<&Finding> = checked.iter().flat_map(|file| &file.findings).collect();
        for Finding { kind, file, detail } in &findings {
            say(false, &format!("{kind:<22} {file}: {detail}\n"));
        }
        let counts = format!("\n{}{}", confidence_text(&checked), summary_text(&findings));
        say(false, &counts);
        match findings.is_empty() {
            _ if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    /// Returns the other readers that are there, and says which are not.
    fn installed_readers(&self, stop: &AtomicBool) -> Vec<OtherReader> {
        let mut readers = OtherReader::ALL.to_vec();
        readers.retain(|reader| {
            let is_installed = !self.verdicts_only && reader.is_installed(stop);
            if !is_installed && !self.verdicts_only {
                let name = reader.name();
                say(
                    true,
                    &format!("{name} is not installed: nothing is compared with it\n"),
                );
            }
            is_installed
        });
        readers
    }
}

/// Returns the number of findings and of files of each kind, in a line each.
fn summary_text(findings: &[&Finding]) -> String {
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for finding in findings {
        by_kind.entry(finding.kind).or_default().push(&finding.file);
    }
    let lines = by_kind.into_iter().map(|(kind, mut files)| {
        let count = files.len();
        files.dedup();
        format!("{kind:<22} {count:>6} in {} files\n", files.len())
    });
    lines.collect()
}

/// Returns every file in a folder and in those in it, sorted, whose path contains `only`.
fn capture_files(folder: &Path, only: &str) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && path.to_string_lossy().contains(only) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn check_file(path: &Path, readers: &[OtherReader], stop: &AtomicBool) -> CheckedFile {
    let judged = catch_unwind(AssertUnwindSafe(|| judge_every_transfer(path, stop)));
    let reads: Vec<_> = readers
        .iter()
        .filter_map(|reader| Some((*reader, reader.read_capture(path, stop)?)))
        .collect();
    let mut checked = CheckedFile::default();
    let found: Vec<Contradiction> = match judged {
        Ok(Ok(report)) => {
            checked.is_capture = true;
            let transfers = report.transfers.iter();
            checked.confidences = transfers.map(|one| confidence_of(one, &report)).collect();
            let witnesses = read_witnesses(path).unwrap_or_default();
            let mut found = find_contradictions(&report, &witnesses);
            found.extend(find_differences(&report, &witnesses, &reads));
            found
        }
        Ok(Err(error)) => reads
            .iter()
            .filter(|(_, read)| !read.is_empty())
            .map(|(reader, read)| {
                let (name, count) = (reader.name(), read.len());
                let why = format!("{name} reads {count} pairs of ends: {error}");
                ("not-read", why)
            })
            .collect(),
        Err(_) => vec![("panic", "reading or judging panicked".to_owned())],
    };
    let file = path.display().to_string();
    checked.findings = found
        .into_iter()
        .map(|(kind, detail)| Finding {
            kind,
            file: file.clone(),
            detail,
        })
        .collect();
    checked
}

fn judge_every_transfer(path: &Path, stop: &AtomicBool) -> Result<CaptureReport, CaptureError> {
    judge_files(
        path,
        None,
        ExplainedTransfers::Largest(usize::MAX),
        &KnownFacts::default(),
        Interrupt(stop),
    )
}

/// Returns the confidence in the limit of a transfer, zero of one without, and whether its packets
/// are few.
fn confidence_of(transfer: &CapturedTransfer, report: &CaptureReport) -> (f64, bool) {
    let flows = report
        .flows
        .iter()
        .filter(|flow| transfer.flows.contains(&flow.number));
    let packets: u64 = flows
        .map(|flow| flow.ends[flow.sender_index()].data_packets)
        .sum();
    let verdict = &transfer.diagnosis.verdict;
    let is_unknown = verdict.kind == Limit::Unknown;
    (
        if is_unknown {
            0.0
        } else {
            verdict.confidence.get()
        },
        packets < FEW_PACKETS,
    )
}

/// Returns the median confidence of the transfers with few packets, or of the others, and their
/// number.
fn median_text(all: &[(f64, bool)], are_few: bool) -> String {
    let values: Vec<f64> = all
        .iter()
        .filter(|(_, few)| *few == are_few)
        .map(|(value, _)| *value)
        .collect();
    let median =
        quantile(&values, 0.5).map_or_else(|| "none".to_owned(), |median| format!("{median:.2}"));
    format!("{median} of {}", values.len())
}

/// Returns the number of files and transfers, and the median confidence of those with few packets
/// and of the others.
fn confidence_text(checked: &[CheckedFile]) -> String {
    let captures = checked.iter().filter(|file| file.is_capture).count();
    let all: Vec<(f64, bool)> = checked
        .iter()
        .flat_map(|file| file.confidences.clone())
        .collect();
    format!(
        "{} files, {captures} captures, {} transfers\nmedian confidence (unknown is 0): {} with fewer than ten packets \
         with data, {} with more\n",
        checked.len(),
        all.len(),
        median_text(&all, true),
        median_text(&all, false),
    )
}

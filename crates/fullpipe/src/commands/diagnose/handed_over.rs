//! Transfers in files: listings of `ss`, documents of fullpipe, captures.

use std::fs::File;
use std::io::Read;

use fullpipe_observe::{ConnectionListing, read_listing, watched_transfers};
use fullpipe_record::{Basis, Diagnosis, DiagnosisReport, Evidence, Framing, Transfer};

use super::DiagnoseArguments;
use super::watched::diagnose_transfer;
use crate::commands::document::{name_of, not_a_document, own_documents};
use crate::commands::prelude::*;
use crate::commands::trace::{HandedCapture, explain_captures};
use crate::input::read_input;

/// Bytes of a file by which its kind is known.
const HEAD: u64 = 4096;

/// Largest text that is read as a listing.
const MAX_TEXT: usize = 32 << 20;

/// The parts of a sentence about a file that cannot be read.
const WANTED: &str = "a listing of `ss -tinmoe`, a capture, or a JSON document of fullpipe";

/// Diagnoses the transfers in files; `-` is standard input.
pub(super) fn run(arguments: &DiagnoseArguments, files: &[PathBuf], terminal: &Terminal) -> Result {
    let mut handed = HandedOver::default();
    for file in files {
        handed.read_file(file)?;
    }
    if !handed.captures.is_empty() {
        if handed.captures.len() < files.len() || files.len() > 2 {
            let message = "captures are diagnosed alone: one, or two of the same time";
            return Err(usage_failure(message));
        }
        let output = arguments.output.clone();
        return explain_captures(handed.captures, arguments.bandwidth, output, terminal);
    }
    let name = name_of(&files[0].to_string_lossy()).to_owned();
    handed.explain(arguments, &name, terminal)
}

/// Everything that the files hold.
#[derive(Default)]
struct HandedOver {
    captures: Vec<HandedCapture>,
    /// Lines of all texts, in the order of the files.
    text: String,
    /// Transfers of documents.
    transfers: Vec<HandedTransfer>,
}

/// A transfer that a file holds.
struct HandedTransfer {
    transfer: Option<Transfer>,
    evidence: Evidence,
}

impl HandedOver {
    fn read_file(&mut self, file: &Path) -> Result {
        let name = name_of(&file.to_string_lossy()).to_owned();
        let cannot_read = |error| usage_failure(format!("cannot read {name}: {error}"));
        let is_piped = file == Path::new("-");
        let mut bytes = Vec::new();
        if is_piped {
            bytes = read_input(file).map_err(cannot_read)?;
        } else {
            let opened = File::open(file).map_err(cannot_read)?;
            opened
                .take(HEAD)
                .read_to_end(&mut bytes)
                .map_err(cannot_read)?;
        }
        if is_binary(&bytes) {
            self.captures.push(if is_piped {
                HandedCapture::Bytes(bytes, name)
            } else {
                HandedCapture::File(file.to_owned())
            });
            return Ok(());
        }
        if !is_piped {
            bytes = read_input(file).map_err(cannot_read)?;
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| usage_failure(format!("{name} is no text in UTF-8, and no capture")))?;
        if text.trim_start().starts_with(['{', '[']) {
            return self.read_documents(&name, &text);
        }
        if self.text.len() + text.len() > MAX_TEXT {
            let most = MAX_TEXT >> 20;
            return Err(usage_failure(format!(
                "{name} has more than {most} MiB of text; list fewer connections: `ss -tinmoe dst HOST`"
            )));
        }
        self.text += &text;
        self.text.push('\n');
        Ok(())
    }

    fn read_documents(&mut self, name: &str, text: &str) -> Result {
        for document in own_documents(text).map_err(|error| not_a_document(name, &error))? {
            let found = transfers_of(document.content);
            if found.is_empty() {
                return Err(usage_failure(format!(
                    "{name} is a document of fullpipe without a transfer to judge; hand over what \
                     `measure`, `diagnose`, `trace` or `demo` printed with --json"
                )));
            }
            self.transfers.extend(found);
        }
        Ok(())
    }

    /// Judges the transfers, and prints what is found.
    fn explain(mut self, arguments: &DiagnoseArguments, name: &str, terminal: &Terminal) -> Result {
        let listing = read_listing(&self.text);
        let listed = watched_transfers(&listing.watched, arguments.bandwidth);
        self.transfers.extend(
            listed
                .into_iter()
                .map(|(transfer, evidence)| HandedTransfer {
                    transfer: Some(transfer),
                    evidence,
                }),
        );
        if self.transfers.is_empty() {
            return Err(usage_failure(format!("{name}: {}", why_nothing(&listing))));
        }
        note_what_was_passed_over(&listing, terminal);
        let mut found = Vec::new();
        for handed in self.transfers {
            let mut diagnosis = handed.diagnose(arguments.bandwidth);
            diagnosis.next = next_commands(&diagnosis, listing.listings);
            let rate = diagnosis.transfer.as_ref().map(|transfer| transfer.rate);
            terminal.print_result(&report::diagnosis_text(
                &diagnosis,
                rate.unwrap_or_default(),
            ));
            found.push(diagnosis);
        }
        let diagnosis = Box::new(DiagnosisReport {
            transfers: found,
            ..DiagnosisReport::default()
        });
        terminal.print_event(&Event::Diagnosis(diagnosis.clone()));
        let content = Content::Diagnosis {
            measurement: None,
            diagnosis,
        };
        terminal.print_report(content, None);
        Ok(())
    }
}

impl HandedTransfer {
    fn diagnose(mut self, bandwidth: Option<BitRate>) -> Diagnosis {
        self.evidence.bandwidth = bandwidth.or(self.evidence.bandwidth);
        diagnose_transfer(self.transfer, self.evidence)
    }
}

/// Returns true if bytes are no text: those of a capture, compressed or not.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(HEAD as usize).any(|byte| *byte == 0)
        || std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some())
}

/// Returns the evidence of the transfers in a document.
fn transfers_of(content: Content) -> Vec<HandedTransfer> {
    let measured = |measurement: &Measurement, bandwidth, framing| {
        vec![HandedTransfer {
            transfer: None,
            evidence: Evidence::from_measurement(measurement, bandwidth, framing),
        }]
    };
    match content {
        Content::Measurement { measurement, .. }
        | Content::Diagnosis {
            measurement: Some(measurement),
            ..
        } => measured(&measurement, None, Framing::Ethernet),
        Content::Experiment { experiment } => {
            let link = &experiment.path.forward;
            measured(&experiment.measurement, link.rate, link.framing)
        }
        Content::Diagnosis { diagnosis, .. } => diagnosis
            .transfers
            .into_iter()
            .filter_map(judged_before)
            .collect(),
        Content::Capture { capture } => {
            let transfers = capture.transfers.into_iter();
            transfers
                .filter_map(|one| judged_before(one.diagnosis))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn judged_before(diagnosis: Diagnosis) -> Option<HandedTransfer> {
    Some(HandedTransfer {
        transfer: diagnosis.transfer,
        evidence: diagnosis.evidence?,
    })
}

/// Returns why no transfer was found in a text.
fn why_nothing(listing: &ConnectionListing<'_>) -> String {
    if listing.listings == 0 {
        return format!("there is neither {WANTED} in it");
    }
    if listing.without_figures > 0 && listing.watched.took == Span::ZERO {
        return "its connections have no figures of TCP; list them with `ss -tinmoe`".to_owned();
    }
    "no connection in it has moved data".to_owned()
}

fn note_what_was_passed_over(listing: &ConnectionListing<'_>, terminal: &Terminal) {
    let lines = listing.other_lines.len();
    let passed_over = [
        (listing.unknown_words, "word"),
        (lines as u64, "line"),
        (listing.without_figures, "connection"),
    ];
    let passed_over = passed_over.into_iter().filter(|(count, _)| *count > 0);
    let names: Vec<String> = passed_over
        .map(|(count, name)| count_noun(count, name))
        .collect();
    if !names.is_empty() {
        terminal.print_notice(&format!("passed over: {}", names.join(", ")));
    }
    if listing.is_period_assumed {
        terminal.print_notice(
            "no time stands between the listings: one second is assumed (`date +%s.%N` prints one)",
        );
    }
}

/// Returns the commands that would show more: several listings where there is one.
fn next_commands(diagnosis: &Diagnosis, listings: usize) -> Vec<String> {
    let Some(transfer) = &diagnosis.transfer else {
        return Vec::new();
    };
    let other = transfer.remote.rsplit_once(':').map(|(host, _)| host);
    let host = other.unwrap_or_default().trim_matches(['[', ']']);
    let list =
        format!("for i in 1 2 3 4 5; do date +%s.%N; ss -tinmoe dst {host}; sleep 1; done > five");
    let more = [list, "fullpipe diagnose --from five".to_owned()];
    let is_few = listings == 1 && diagnosis.verdict.basis != Basis::Capture;
    is_few.then_some(more).into_iter().flatten().collect()
}

//! Transfers in files: listings of `ss`, results of iperf3, documents of fullpipe, captures; and the
//! counters of their hosts.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{KnownFacts, ranked_remedies};
use fullpipe_host::defects_behind;
use fullpipe_observe::{
    ConnectionListing, CounterReader, CounterSource, HostCounters, read_listing, watched_transfers,
};
use fullpipe_record::{
    At, Basis, Diagnosis, DiagnosisReport, Evidence, Framing, KernelVersion, Limit, Machine,
    Transfer,
};
use fullpipe_store::{iperf3_transfers, text_in_utf_8};
use serde::de::IgnoredAny;

use super::document::{name_of, own_documents};
use super::prelude::*;
use super::stated::StatedEnds;
use super::trace::{HandedCapture, explain_captures};
use crate::input::read_input;

/// Bytes of a file by which its kind is known.
const HEAD: u64 = 4096;

/// Largest text that is read as a listing.
const MAX_TEXT: usize = 32 << 20;

/// The parts of a sentence about a file that cannot be read.
const WANTED: &str =
    "a listing of `ss -tinmoe`, a result of `iperf3 -J`, counters, a capture, or JSON of fullpipe";
const MORE: &str = "`fullpipe explain inputs` lists what can be read";

/// What is known of the transfers beside the files, and how the result is printed.
pub(super) struct HandedArguments<'a> {
    pub(super) bandwidth: Option<BitRate>,
    pub(super) stated: &'a StatedEnds,
    pub(super) output: &'a OutputArguments,
}

/// Diagnoses the transfers in files; `-` is standard input.
pub(super) fn run(
    arguments: &HandedArguments<'_>,
    files: &[PathBuf],
    terminal: &Terminal,
) -> Result {
    let mut handed = HandedOver::default();
    for file in files {
        handed.read_file(file)?;
    }
    if !handed.captures.is_empty() {
        return handed.explain_captures(arguments, terminal);
    }
    let name = name_of(&files[0].to_string_lossy()).to_owned();
    handed.explain(arguments, &name, terminal)
}

/// Everything that the files hold.
#[derive(Default)]
struct HandedOver {
    captures: Vec<HandedCapture>,
    /// Lines of all texts that are no counters, in the order of the files.
    text: String,
    counters: CounterReader,
    /// Transfers of documents.
    transfers: Vec<HandedTransfer>,
}

/// A transfer that a file holds.
struct HandedTransfer {
    transfer: Option<Transfer>,
    evidence: Evidence,
}

impl From<(Transfer, Evidence)> for HandedTransfer {
    fn from((transfer, evidence): (Transfer, Evidence)) -> Self {
        Self {
            transfer: Some(transfer),
            evidence,
        }
    }
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
        let bytes = text_in_utf_8(&bytes).map_err(|why| usage_failure(format!("{name}: {why}")))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| usage_failure(format!("{name} is no text in UTF-8, and no capture")))?;
        self.read_text(&name, text)
    }

    /// Takes the JSON in a text, and its lines.
    fn read_text(&mut self, name: &str, text: &str) -> Result {
        self.counters.begin_file();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(length) = json_length(rest) {
                self.read_documents(name, &rest[..length])?;
                rest = &rest[length..];
                continue;
            }
            let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
            if !self.counters.read_line(line) {
                self.text += line;
                self.text.push('\n');
            }
            if self.text.len() > MAX_TEXT {
                let most = MAX_TEXT >> 20;
                return Err(usage_failure(format!(
                    "{name} has more than {most} MiB of text; list fewer connections: `ss -tinmoe dst HOST`"
                )));
            }
            rest = behind;
        }
        Ok(())
    }

    fn read_documents(&mut self, name: &str, text: &str) -> Result {
        let documents = match own_documents(text) {
            Ok(documents) => documents,
            Err(error) => {
                let found = read_iperf3(text, &error)
                    .map_err(|why| usage_failure(format!("{name}: {why}; {MORE}")))?;
                self.transfers
                    .extend(found.into_iter().map(HandedTransfer::from));
                return Ok(());
            }
        };
        for document in documents {
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

    /// Judges the transfers of captures, with the counters of their hosts.
    fn explain_captures(self, arguments: &HandedArguments<'_>, terminal: &Terminal) -> Result {
        let is_more = !self.transfers.is_empty() || !self.text.trim().is_empty();
        if is_more || self.captures.len() > 2 {
            let message =
                "captures are diagnosed alone or with counters: one, or two of the same time";
            return Err(usage_failure(message));
        }
        if arguments.stated.has_programs() {
            let message = "packets show what programs do: with a capture, leave out --sndbuf, --rcvbuf, --app-window, \
                           --requests, --request-size and --pause";
            return Err(usage_failure(message));
        }
        let counters = self.counters.into_counters().unwrap_or_default();
        note_counters(&counters, terminal);
        let [sender, receiver] = arguments.stated.systems();
        let known = KnownFacts {
            bandwidth: arguments.bandwidth,
            sender,
            receiver,
            counters,
        };
        explain_captures(self.captures, &known, arguments.output.clone(), terminal)
    }

    /// Judges the transfers, and prints what is found.
    fn explain(
        mut self,
        arguments: &HandedArguments<'_>,
        name: &str,
        terminal: &Terminal,
    ) -> Result {
        let listing = read_listing(&self.text);
        let listed = watched_transfers(&listing.watched, arguments.bandwidth);
        self.transfers
            .extend(listed.into_iter().map(HandedTransfer::from));
        let counters = self.counters.into_counters();
        if self.transfers.is_empty() {
            match &counters {
                Some(counters) if listing.listings == 0 => {
                    self.transfers
                        .push(HandedTransfer::without_connection(counters));
                }
                _ => return Err(usage_failure(format!("{name}: {}", why_nothing(&listing)))),
            }
        }
        note_what_was_passed_over(&listing, terminal);
        let counters = counters.unwrap_or_default();
        note_counters(&counters, terminal);
        let mut found = Vec::new();
        for mut handed in self.transfers {
            arguments.stated.add_to(&mut handed.evidence);
            let mut diagnosis = handed.diagnose(arguments.bandwidth, &counters);
            diagnosis.next = next_commands(&diagnosis, listing.listings, &counters);
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
    /// Returns the counters of a host alone.
    fn without_connection(counters: &HostCounters) -> Self {
        let machine_at = |other: At| match counters.end {
            Some(end) if end == other => Machine::default(),
            _ => counters.machine.clone(),
        };
        Self {
            transfer: None,
            evidence: Evidence {
                sender_machine: machine_at(At::Receiver),
                receiver_machine: machine_at(At::Sender),
                ..Evidence::default()
            },
        }
    }

    fn diagnose(mut self, bandwidth: Option<BitRate>, counters: &HostCounters) -> Diagnosis {
        self.evidence.bandwidth = bandwidth.or(self.evidence.bandwidth);
        if let Some(transfer) = &self.transfer {
            let own_end = match transfer.direction {
                Direction::Download => At::Receiver,
                Direction::Upload | Direction::Both => At::Sender,
            };
            counters.add_to(&mut self.evidence, Some(own_end));
        }
        diagnose_transfer(self.transfer, self.evidence)
    }
}

/// Returns the limit of a transfer of another program, and what would lift it.
pub(super) fn diagnose_transfer(transfer: Option<Transfer>, evidence: Evidence) -> Diagnosis {
    let verdict = diagnose(&evidence);
    let mut remedies = ranked_remedies(&evidence, &verdict);
    if evidence.is_watched {
        // Flags of our own are of no use to another program.
        for remedy in &mut remedies {
            let apply = &mut remedy.commands.apply;
            apply.retain(|command| !command.starts_with("fullpipe measure "));
        }
    }
    let defects = defects_behind(&verdict, kernels(&evidence));
    Diagnosis {
        transfer,
        verdict,
        remedies,
        defects,
        next: Vec::new(),
        evidence: Some(evidence),
    }
}

/// Returns the kernels of the sender and of the receiver, where known.
pub(super) fn kernels(evidence: &Evidence) -> [Option<KernelVersion>; 2] {
    [&evidence.sender, &evidence.receiver].map(|host| host.as_ref().map(|settings| settings.kernel))
}

/// Returns the length of the JSON that a text begins with, if it begins with an object or a list of
/// them: of all of it where it is broken, so that the reader of documents says why. `iperf3` prints
/// lines that begin like a list of a number.
fn json_length(text: &str) -> Option<usize> {
    let begin = text.trim_start_matches([' ', '\t']);
    let of_list = begin.strip_prefix('[').map(str::trim_start);
    if !of_list.unwrap_or(begin).starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut length = None;
    while let Some(Ok(_)) = values.next() {
        length = Some(values.byte_offset());
    }
    length.or(of_list.is_none().then_some(text.len()))
}

/// Returns the transfers of results of iperf3; a text that is no document of fullpipe for the reason
/// of `error` may be one.
///
/// # Errors
/// Returns a sentence, without the name of the file, if it is none.
fn read_iperf3(
    text: &str,
    error: &serde_json::Error,
) -> std::result::Result<Vec<(Transfer, Evidence)>, String> {
    match iperf3_transfers(text.as_bytes()) {
        Ok(Some(found)) => Ok(found),
        Err(why) if error.is_data() => Err(why),
        _ => Err(format!(
            "it is no JSON document of fullpipe, and no result of iperf3: {error}"
        )),
    }
}

/// Returns true if bytes are no text: those of a capture, compressed or not.
fn is_binary(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEAD as usize).unwrap_or(bytes);
    let Ok(head) = text_in_utf_8(head) else {
        return true;
    };
    head.contains(&0) || std::str::from_utf8(&head).is_err_and(|error| error.error_len().is_some())
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
        let iperf3 = listing
            .other_lines
            .iter()
            .any(|line| line.contains("bits/sec"));
        return if iperf3 {
            format!("the text of iperf3 has no round-trip times; run it with -J; {MORE}")
        } else {
            format!("there is neither {WANTED} in it; {MORE}")
        };
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

/// Notes which counters were read, and what they count.
fn note_counters(counters: &HostCounters, terminal: &Terminal) {
    let [once, twice] = [false, true].map(|is_twice| {
        let sources = counters
            .sources
            .iter()
            .filter(|(source, count)| *source != CounterSource::Rings && (*count > 1) == is_twice);
        let names: Vec<&str> = sources.map(|(source, _)| source.command()).collect();
        names.join(", ")
    });
    let side = match counters.end {
        Some(At::Receiver) => " of the host that receives",
        Some(_) => " of the host that sends",
        None => "",
    };
    if !twice.is_empty() {
        terminal.print_notice(&format!("counters{side}: what {twice} counted in between"));
    }
    if !once.is_empty() {
        terminal.print_notice(&format!(
            "counters{side}: {once} was read once, and counts since the host started; read it before and after a transfer"
        ));
    }
}

/// Returns the commands that would show more: several listings where there is one, a listing where
/// there are counters alone.
fn next_commands(diagnosis: &Diagnosis, listings: usize, counters: &HostCounters) -> Vec<String> {
    let is_unknown = diagnosis.verdict.kind == Limit::Unknown;
    match &diagnosis.transfer {
        None if counters.sources.is_empty() => Vec::new(),
        None => {
            let count = count_command(counters);
            let listed = list_command("");
            let judged = "fullpipe diagnose --from counters five".to_owned();
            vec![count.clone(), listed, count, judged]
        }
        _ if diagnosis.verdict.basis == Basis::Capture => Vec::new(),
        Some(transfer) if listings == 1 || (listings == 0 && is_unknown) => vec![
            list_command(&format!(" dst {}", listed_host(&transfer.remote))),
            "fullpipe diagnose --from five".to_owned(),
        ],
        Some(_) => Vec::new(),
    }
}

/// Returns the command that lists connections five times.
fn list_command(filter: &str) -> String {
    format!("for i in 1 2 3 4 5; do date +%s.%N; ss -tinmoe{filter}; sleep 1; done > five")
}

/// Returns the command that adds a reading of all counters to a file.
fn count_command(counters: &HostCounters) -> String {
    let commands = counters.sources.iter().map(|(source, _)| match source {
        CounterSource::Softnet => format!("; cat {} >> counters", source.command()),
        CounterSource::Driver | CounterSource::Rings => {
            format!("; {} DEVICE >> counters", source.command())
        }
        _ => format!("; {} >> counters", source.command()),
    });
    "date >> counters".to_owned() + &commands.collect::<String>()
}

/// Returns the host of an address as `ss` takes it, which has IPv6 in brackets, for a shell.
fn listed_host(address: &str) -> String {
    match address.parse() {
        Ok(SocketAddr::V4(address)) => address.ip().to_string(),
        Ok(SocketAddr::V6(address)) => format!("'[{}]'", address.ip()),
        Err(_) => "HOST".to_owned(),
    }
}

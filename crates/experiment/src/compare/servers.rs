//! Programs against servers that are there already: this host and another one.

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_control::{FarEndOptions, FarProgram, SshHost};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_lab::Host;
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{CommandEnd, PathDirection, ProgramBatch, ProgramLeftOut, ProgramsReport};

use super::error::CompareError;
use super::figures::{
    add_transfer_figures, failed_run, last_words, not_ended, not_intact, nothing_watched,
    parse_diagnosis,
};
use super::findings::batch_findings;
use super::folder::TransferFolder;
use super::in_lab::{
    ComparisonRequest, not_installed, prediction_of, require_results, select_programs,
};
use super::local::{self, LocalProgramEnd};
use super::participant::{Participant, fill_placeholders};
use super::program::{TransferProgram, copy_command, version_of_iperf3, with_full_path};
use super::rounds::{ComparisonRounds, program_rows};
use super::transfer::PredictedTransfer;

/// The other host, and what it offers.
#[derive(Debug, Clone)]
pub struct RemoteServers {
    /// The host, as ssh takes it: `HOST` or `USER@HOST`.
    pub host: String,
    /// Options of ssh and scp, such as `-F FILE`.
    pub ssh_options: Vec<String>,
    /// URLs of files to fetch: `http`, `https` or `ftp`.
    pub urls: Vec<String>,
    /// Rate of the path, if it is known: without it nothing is predicted.
    pub bandwidth: Option<BitRate>,
}

/// Moves a file of this host to the other one by each program that has a server there, or fetches
/// one: the order of the programs is turned by one with each round. `observe` gets each transfer,
/// whole or failed.
///
/// copy, scp and rsync use ssh with the user's own configuration, and put the copy into a folder
/// that is removed at the end, however that comes. iperf3 asks a server of its own. curl and aria2c
/// fetch what is at a URL, up to the size of the file. The command has the placeholders `{file}`,
/// `{host}`, `{size}`, and `{copy}`, the name of the copy at the other host.
///
/// An interrupt ends it after the transfers that are complete, which are kept.
///
/// # Errors
/// Fails if a program that must take part cannot, a folder cannot be made, or it is interrupted
/// before a transfer is complete. A program that fails has a row with the reason.
pub fn compare_with_servers(
    servers: &RemoteServers,
    wishes: &ComparisonRequest,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramsReport, CompareError> {
    let (programs, mut left_out) =
        select_programs(wishes, &|program| servers.missing_requirement(program))?;
    let mut participants = Participant::from_programs(&programs, &wishes.command);
    let sender = inspect_host(&SysctlTree::of_this_host())
        .map_err(|error| CompareError::from_start("the comparison", error))?;
    let mut folders = TransferFolders {
        here: TransferFolder::create_local(wishes.medium())?,
        there: None,
        program_there: None,
    };
    folders.here.make_file(wishes.size, interrupt)?;
    if participants.iter().any(needs_ssh) {
        let ssh = servers.ssh_of_folder();
        match TransferFolder::create_remote(&servers.host, &ssh, wishes.medium()) {
            Ok(there) => {
                folders.there = Some(there);
                folders.program_there = servers.bring_program(&participants);
            }
            Err(error) if wishes.require => return Err(error),
            Err(error) => leave_out(&mut participants, &mut left_out, &error)?,
        }
    }
    let rounds = ComparisonRounds {
        batch: &servers.host,
        participants: &participants,
        count: wishes.rounds,
        interrupt,
    };
    let runs = rounds.run(
        &mut |participant, round| {
            let run = move_once(servers, &mut folders, participant, round, wishes, interrupt);
            or_failed(round, run)
        },
        observe,
    )?;
    let batch = program_batch(servers, sender, &participants, runs, wishes.size, interrupt);
    let batches = vec![batch];
    require_results(ProgramsReport {
        scenario: None,
        title: servers.host.clone(),
        command: wishes.command.clone(),
        size: wishes.size,
        findings: batch_findings(&batches),
        batches,
        left_out,
        interrupted: interrupt.is_requested(),
    })
}

/// The folders of the file and of its copies.
struct TransferFolders {
    here: TransferFolder,
    /// `None` if no program needs one.
    there: Option<TransferFolder>,
    /// The word that starts this program there, for copies.
    program_there: Option<String>,
}

impl RemoteServers {
    /// Brings this program to the host if one of `participants` copies with it, so that no copy's
    /// time has a part for that. A copy says itself why a host cannot run it.
    fn bring_program(&self, participants: &[Participant]) -> Option<String> {
        let copies = |one: &Participant| matches!(one, Participant::Known(TransferProgram::Copy));
        participants.iter().find(|one| copies(one))?;
        let options = FarEndOptions {
            ssh: self.ssh_command(),
            binaries: None,
            leaves_nothing: false,
            uses_sudo: false,
        };
        let host = SshHost::new(None, &self.host, None).ok()?;
        FarProgram::bring(&host, &options).ok()
    }

    /// Returns the reason for which a program cannot run here: a missing executable, no URL, or
    /// files that would remain at the server.
    fn missing_requirement(&self, program: TransferProgram) -> Option<String> {
        let missing = program.missing_here().map(not_installed);
        missing.or_else(|| match program {
            TransferProgram::RsyncDaemon => {
                Some("what it writes into a module would remain there".to_owned())
            }
            TransferProgram::CopyServer => {
                Some("what it writes into a shared folder would remain there".to_owned())
            }
            _ => self.lacks_url(program),
        })
    }

    /// Returns that no URL was given which a program fetches, if it fetches one.
    fn lacks_url(&self, program: TransferProgram) -> Option<String> {
        let scheme = program.url_scheme()?;
        self.first_url(program)
            .is_none()
            .then(|| format!("no {scheme} URL was given with --url"))
    }

    /// Returns the first URL that a program fetches: what fetches `http` fetches `https` too.
    fn first_url(&self, program: TransferProgram) -> Option<&str> {
        let scheme = program.url_scheme()?;
        self.urls.iter().map(String::as_str).find(|url| {
            let found = url.split_once(':').map(|(found, _)| found);
            found == Some(scheme) || scheme == "http" && found == Some("https")
        })
    }

    /// Returns the words that start ssh; it asks the user for nothing.
    fn ssh_command(&self) -> Vec<String> {
        self.with_config(&["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"])
    }

    /// Returns the words that start ssh or scp, with their options.
    fn with_config(&self, words: &[&str]) -> Vec<String> {
        let mut words = with_full_path(words);
        words.extend(self.ssh_options.iter().cloned());
        words
    }

    /// Returns the words that start ssh for the call that keeps the folder. That call is idle
    /// during a transfer, so it sends keepalives: a firewall would forget it.
    fn ssh_of_folder(&self) -> Vec<String> {
        let mut words = self.ssh_command();
        words.extend(["-o", "ServerAliveInterval=15"].map(str::to_owned));
        words
    }

    /// Returns the host without the name of a user.
    fn host_address(&self) -> &str {
        self.host
            .rsplit_once('@')
            .map_or(self.host.as_str(), |(_, host)| host)
    }

    /// Returns the words that move the file.
    fn transfer_command(
        &self,
        participant: &Participant,
        folders: &TransferFolders,
        size: ByteCount,
    ) -> Vec<String> {
        let file = folders.here.file_path("file");
        let copy = folders
            .there
            .as_ref()
            .map_or_else(String::new, |there| there.file_path("copy"));
        let target = format!("{}:{copy}", self.host);
        let bytes = size.get().to_string();
        let ssh = in_one_word(&self.ssh_command());
        match participant {
            Participant::Known(TransferProgram::Scp) => {
                let mut words = self.with_config(&["scp", "-q", "-o", "BatchMode=yes"]);
                words.extend([file, target]);
                words
            }
            Participant::Known(TransferProgram::Copy) => {
                copy_command(&ssh, folders.program_there.as_deref(), &file, &target)
            }
            Participant::Known(TransferProgram::Rsync) => {
                with_full_path(&["rsync", "-W", "-e", &ssh, &file, &target])
            }
            Participant::Known(program) if program.url_scheme().is_some() => {
                let url = self.first_url(*program).unwrap_or_default();
                program.fetch_command(url, &folders.here.file_path("copy"), Some(size))
            }
            Participant::Known(_) => {
                with_full_path(&["iperf3", "-c", self.host_address(), "-n", &bytes])
            }
            Participant::Command(words) => {
                let places = [
                    ("file", &*file),
                    ("copy", &copy),
                    ("host", self.host_address()),
                    ("size", &bytes),
                    ("ssh", &ssh),
                ];
                fill_placeholders(words, &places)
            }
        }
    }
}

/// Returns words in one, as rsync and the shell take them apart again.
fn in_one_word(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        if word.contains(' ') {
            format!("'{word}'")
        } else {
            word.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns true if a participant puts its copy into a folder at the other host.
fn needs_ssh(participant: &Participant) -> bool {
    match participant {
        Participant::Known(program) => {
            matches!(
                program,
                TransferProgram::Copy | TransferProgram::Scp | TransferProgram::Rsync
            )
        }
        Participant::Command(words) => words.iter().any(|word| word.contains("{copy}")),
    }
}

/// Leaves out what needs a folder at the other host, which could not be made.
fn leave_out(
    participants: &mut Vec<Participant>,
    left_out: &mut Vec<ProgramLeftOut>,
    error: &CompareError,
) -> Result<(), CompareError> {
    let gone = participants.extract_if(.., |one| needs_ssh(one));
    left_out.extend(gone.map(|participant| ProgramLeftOut {
        program: participant.name().to_owned(),
        why: error.to_string(),
    }));
    if participants.is_empty() {
        Err(CompareError::no_program(error))
    } else {
        Ok(())
    }
}

/// Moves the file once.
fn move_once(
    servers: &RemoteServers,
    folders: &mut TransferFolders,
    participant: &Participant,
    round: u32,
    wishes: &ComparisonRequest,
    interrupt: Interrupt<'_>,
) -> Result<ProgramRun, CompareError> {
    folders.here.remove_copy(interrupt)?;
    if let Some(there) = folders.there.as_mut().filter(|_| needs_ssh(participant)) {
        there.remove_copy(interrupt)?;
    }
    let most = wishes.transfer_timeout(None);
    let words = servers.transfer_command(participant, folders, wishes.size);
    let LocalProgramEnd {
        is_late,
        document,
        errors,
    } = local::run(&words, most, interrupt)?;
    let run = ProgramRun {
        round,
        ..ProgramRun::default()
    };
    if is_late {
        return Ok(failed_run(run, not_ended(most)));
    }
    let report = match parse_diagnosis(&document) {
        Ok(report) => report,
        Err(why) => return Ok(failed_run(run, nothing_watched(&why, &errors))),
    };
    let end = report.command.clone();
    if end.as_ref().and_then(|end| end.code) != Some(0) {
        let why = last_words(&errors).unwrap_or_else(|| exit_reason(end.as_ref()));
        return Ok(failed_run(run, why));
    }
    let fetched =
        std::fs::metadata(folders.here.file_path("copy")).map(|copy| ByteCount::new(copy.len()));
    let is_intact = is_intact(folders, participant, interrupt)?;
    let (took, cpu) = end.map_or((None, None), |end| (Some(end.ran), end.cpu));
    let sends = fetched.is_err();
    let [sender_cpu, receiver_cpu] = if sends { [cpu, None] } else { [None, cpu] };
    let run = ProgramRun {
        took,
        is_intact,
        failed: not_intact(is_intact),
        sender_cpu,
        receiver_cpu,
        ..run
    };
    Ok(add_transfer_figures(
        run,
        fetched.unwrap_or(wishes.size),
        report,
    ))
}

fn exit_reason(end: Option<&CommandEnd>) -> String {
    match end.and_then(|end| end.code) {
        Some(code) => format!("it ended with code {code}"),
        None => "a signal ended it".to_owned(),
    }
}

/// Compares the digests of the copy and of the file. `None` if the program leaves no copy at the
/// other host.
fn is_intact(
    folders: &mut TransferFolders,
    participant: &Participant,
    interrupt: Interrupt<'_>,
) -> Result<Option<bool>, CompareError> {
    let Some(there) = folders.there.as_mut().filter(|_| needs_ssh(participant)) else {
        return Ok(None);
    };
    Ok(Some(
        there.file_digest("copy", interrupt)? == folders.here.file_digest("file", interrupt)?,
    ))
}

/// Returns a transfer whose folder broke off as one that failed: those before it are kept, and
/// those that need no folder go on.
fn or_failed(
    round: u32,
    run: Result<ProgramRun, CompareError>,
) -> Result<ProgramRun, CompareError> {
    match run {
        Err(error @ (CompareError::Folder(_) | CompareError::Interrupted)) => Ok(ProgramRun {
            round,
            failed: Some(error.to_string()),
            ..ProgramRun::default()
        }),
        run => run,
    }
}

/// Returns the rows, with predictions where the rate of the path was stated.
fn program_batch(
    servers: &RemoteServers,
    sender: HostSettings,
    participants: &[Participant],
    runs: Vec<Vec<ProgramRun>>,
    size: ByteCount,
    interrupt: Interrupt<'_>,
) -> ProgramBatch {
    let rtt = runs
        .iter()
        .flatten()
        .filter_map(|run| run.least_rtt)
        .min()
        .unwrap_or_default();
    let path = Path::with_symmetric_rtt(&PathDirection::of_rate(servers.bandwidth), rtt);
    let is_known = servers.bandwidth.is_some() && rtt > Span::ZERO;
    // Nothing is known of the host that receives, which therefore sets no ceiling.
    let receiver = HostSettings::without_limits();
    let predicted = PredictedTransfer {
        path: &path,
        hosts: [&sender, &receiver],
        size,
        iperf3: version_of_iperf3(),
    };
    let predictions = if is_known {
        predicted.predict_all(interrupt)
    } else {
        Vec::new()
    };
    // What is fetched comes from a host of which nothing is known.
    let rows = program_rows(participants, runs, |participant| match participant {
        Participant::Known(program) if program.server_host() == Host::Receiver => {
            prediction_of(&predictions, participant)
        }
        _ => None,
    });
    ProgramBatch {
        name: servers.host.clone(),
        path,
        sender,
        receiver: None,
        predictions,
        rows,
    }
}

#[cfg(test)]
mod tests;

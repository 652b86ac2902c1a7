//! Programs against servers that are there already: this host and another one.

use fullpipe_experiment::Interrupt;
use fullpipe_host::{SysctlTree, inspect};
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{
    CommandEnd, HostSettings, Path, PathDirection, ProgramBatch, ProgramLeftOut, ProgramRun, ProgramsReport,
};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::compare::{Wishes, able, prediction_of, report};
use crate::error::CompareError;
use crate::figures::{complete, last_words, nothing_watched, watched};
use crate::findings::findings;
use crate::folder::Folder;
use crate::local::{self, Ended};
use crate::participant::{Participant, filled};
use crate::program::{Program, copying, fetching, fetching_in_parts, located, version_of_iperf3};
use crate::rounds::{Rounds, by_rate, row};
use crate::transfer::Predicted;

/// The other host, and what it offers.
#[derive(Debug, Clone)]
pub struct Servers {
    /// The host, as ssh takes it: `HOST` or `USER@HOST`.
    pub host: String,
    /// Configuration of ssh in place of the user's.
    pub ssh_config: Option<String>,
    /// URLs of files to fetch: `http`, `https` or `ftp`.
    pub urls: Vec<String>,
    /// Rate of the path, if it is known: without it nothing is predicted.
    pub bandwidth: Option<BitRate>,
}

/// Moves a file of this host to the other one by each program that has a server there, or fetches one: the order of the
/// programs is turned by one with each round. `observe` gets each transfer, whole or failed.
///
/// copy, scp and rsync use ssh with the user's own configuration, and put the copy into a folder that is removed at the
/// end, however that comes. iperf3 asks a server of its own. curl and aria2c fetch what is at a URL, up to the size of
/// the file. The command has the placeholders `{file}`, `{host}`, `{size}`, and `{copy}`, the name of the copy at the
/// other host.
///
/// An interrupt ends it after the transfers that are complete, which are kept.
///
/// # Errors
/// Fails if a program that must take part cannot, a folder cannot be made, or it is interrupted before a transfer is
/// complete. A program that fails has a row with the reason.
pub fn compare_with_servers(
    servers: &Servers,
    wishes: &Wishes,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramsReport, CompareError> {
    let (programs, mut left_out) = able(wishes, &|program| servers.lacks(program))?;
    let mut participants = Participant::of(&programs, &wishes.command);
    let sender = inspect(&SysctlTree::of_this_host())
        .map_err(|error| CompareError::Start { program: "the comparison".to_owned(), why: error.to_string() })?;
    let mut folders = Folders { here: Folder::here(wishes.medium())?, there: None };
    folders.here.make(wishes.size, interrupt)?;
    if participants.iter().any(needs_ssh) {
        match Folder::at(&servers.host, &servers.ssh_of_folder(), wishes.medium()) {
            Ok(there) => folders.there = Some(there),
            Err(error) if wishes.require => return Err(error),
            Err(error) => leave_out(&mut participants, &mut left_out, &error)?,
        }
    }
    let name = servers.host.clone();
    let rounds = Rounds { batch: &name, participants: &participants, count: wishes.rounds, interrupt };
    let mut transfer = |participant: &Participant, round: u32| {
        or_failed(round, move_once(servers, &mut folders, participant, round, wishes, interrupt))
    };
    let runs = rounds.run(&mut transfer, observe)?;
    let batch = batch(servers, sender, &participants, runs, wishes.size, interrupt);
    let batches = vec![batch];
    report(ProgramsReport {
        scenario: None,
        title: servers.host.clone(),
        command: wishes.command.clone(),
        size: wishes.size,
        findings: findings(&batches),
        batches,
        left_out,
        interrupted: interrupt.requested(),
    })
}

/// The folders of the file and of its copies.
struct Folders {
    here: Folder,
    /// `None` if no program needs one.
    there: Option<Folder>,
}

impl Servers {
    /// Returns the reason for which a program cannot run here: a missing executable, no URL, or
    /// files that would remain at the server.
    fn lacks(&self, program: Program) -> Option<String> {
        let missing = program.missing_here().map(|missing| format!("{missing} is not installed"));
        missing.or_else(|| match program {
            Program::RsyncDaemon => Some("what it writes into a module would remain there".to_owned()),
            Program::CopyServer => Some("what it writes into a shared folder would remain there".to_owned()),
            _ => self.lacks_url(program),
        })
    }

    /// Returns that no URL was given which a program fetches, if it fetches one.
    fn lacks_url(&self, program: Program) -> Option<String> {
        let kind = match program {
            Program::Curl | Program::Aria2 => "http",
            Program::CurlTls => "https",
            Program::Ftp => "ftp",
            _ => return None,
        };
        self.url(program).is_none().then(|| format!("no {kind} URL was given with --url"))
    }

    /// Returns the first URL that a program fetches.
    fn url(&self, program: Program) -> Option<&str> {
        let schemes: &[&str] = match program {
            Program::Curl | Program::Aria2 => &["http:", "https:"],
            Program::CurlTls => &["https:"],
            Program::Ftp => &["ftp:"],
            _ => &[],
        };
        let is_its = |url: &&String| schemes.iter().any(|scheme| url.starts_with(scheme));
        self.urls.iter().find(is_its).map(String::as_str)
    }

    /// Returns the words that start ssh; it asks the user for nothing.
    fn ssh(&self) -> Vec<String> {
        let mut words = located(&["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]);
        words.extend(self.ssh_config.iter().flat_map(|file| ["-F".to_owned(), file.clone()]));
        words
    }

    /// Returns the words that start ssh for the call that keeps the folder. That call is idle
    /// during a transfer, so it sends keepalives: a firewall would forget it.
    fn ssh_of_folder(&self) -> Vec<String> {
        let mut words = self.ssh();
        words.extend(["-o", "ServerAliveInterval=15"].map(str::to_owned));
        words
    }

    /// Returns the host without the name of a user.
    fn address(&self) -> &str {
        self.host.rsplit_once('@').map_or(self.host.as_str(), |(_, host)| host)
    }

    /// Returns the words that move the file.
    fn words(&self, participant: &Participant, folders: &Folders, size: ByteCount) -> Vec<String> {
        let [file, fetched] = ["file", "copy"].map(|name| folders.here.file(name));
        let copy = folders.there.as_ref().map_or_else(String::new, |there| there.file("copy"));
        let target = format!("{}:{copy}", self.host);
        let bytes = size.get().to_string();
        let fetch =
            |program: Program, flag: &str| fetching(flag, self.url(program).unwrap_or_default(), &fetched, Some(size));
        match participant {
            Participant::Known(Program::Scp) => {
                let mut words = located(&["scp", "-q", "-o", "BatchMode=yes"]);
                words.extend(self.ssh_config.iter().flat_map(|config| ["-F".to_owned(), config.clone()]));
                words.extend([file, target]);
                words
            }
            Participant::Known(Program::Copy) => copying(&in_one_word(&self.ssh()), None, &file, &target),
            Participant::Known(Program::Rsync) => {
                located(&["rsync", "-W", "-e", &in_one_word(&self.ssh()), &file, &target])
            }
            Participant::Known(Program::Iperf3 | Program::RsyncDaemon | Program::CopyServer) => {
                located(&["iperf3", "-c", self.address(), "-n", &bytes])
            }
            Participant::Known(Program::Curl) => fetch(Program::Curl, "--http1.1"),
            Participant::Known(Program::CurlTls) => fetch(Program::CurlTls, "--http2"),
            Participant::Known(Program::Ftp) => fetch(Program::Ftp, "--disable-eprt"),
            Participant::Known(Program::Aria2) => {
                fetching_in_parts(self.url(Program::Aria2).unwrap_or_default(), std::path::Path::new(&fetched))
            }
            Participant::Command(words) => {
                let ssh = in_one_word(&self.ssh());
                let places =
                    [("file", &*file), ("copy", &copy), ("host", self.address()), ("size", &bytes), ("ssh", &ssh)];
                filled(words, &places)
            }
        }
    }
}

/// Returns words in one, as rsync and the shell take them apart again.
fn in_one_word(words: &[String]) -> String {
    let quoted = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns true if a participant puts its copy into a folder at the other host.
fn needs_ssh(participant: &Participant) -> bool {
    match participant {
        Participant::Known(program) => matches!(program, Program::Copy | Program::Scp | Program::Rsync),
        Participant::Command(words) => words.iter().any(|word| word.contains("{copy}")),
    }
}

/// Leaves out what needs a folder at the other host, which could not be made.
fn leave_out(
    participants: &mut Vec<Participant>,
    left_out: &mut Vec<ProgramLeftOut>,
    error: &CompareError,
) -> Result<(), CompareError> {
    let of =
        |participant: &Participant| ProgramLeftOut { program: participant.name().to_owned(), why: error.to_string() };
    left_out.extend(participants.iter().filter(|one| needs_ssh(one)).map(of));
    participants.retain(|one| !needs_ssh(one));
    if participants.is_empty() { Err(CompareError::NoProgram { why: error.to_string() }) } else { Ok(()) }
}

/// Moves the file once.
fn move_once(
    servers: &Servers,
    folders: &mut Folders,
    participant: &Participant,
    round: u32,
    wishes: &Wishes,
    interrupt: Interrupt<'_>,
) -> Result<ProgramRun, CompareError> {
    folders.here.reset(interrupt)?;
    if let Some(there) = folders.there.as_mut().filter(|_| needs_ssh(participant)) {
        there.reset(interrupt)?;
    }
    let most = wishes.longest(None);
    let words = servers.words(participant, folders, wishes.size);
    let Ended { is_late, document, errors } = local::run(&words, most, interrupt)?;
    let run = ProgramRun { round, ..ProgramRun::default() };
    let failed = |why: String| Ok(ProgramRun { failed: Some(why), ..run.clone() });
    if is_late {
        return failed(format!("it did not end within {}", Span::from(most)));
    }
    let report = match watched(&document) {
        Ok(report) => report,
        Err(why) => return failed(nothing_watched(&why, &errors)),
    };
    let end = report.command.clone();
    if end.as_ref().and_then(|end| end.code) != Some(0) {
        return failed(last_words(&errors).unwrap_or_else(|| ended(end.as_ref())));
    }
    let fetched = std::fs::metadata(folders.here.file("copy")).map(|copy| ByteCount::new(copy.len()));
    let is_intact = is_intact(folders, participant, interrupt)?;
    let failed = (is_intact == Some(false)).then(|| "the file that arrived is another one".to_owned());
    let (took, cpu) = end.map_or((None, None), |end| (Some(end.ran), end.cpu));
    let sends = fetched.is_err();
    let [sender_cpu, receiver_cpu] = if sends { [cpu, None] } else { [None, cpu] };
    let run = ProgramRun { took, is_intact, failed, sender_cpu, receiver_cpu, ..run };
    Ok(complete(run, fetched.unwrap_or(wishes.size), report))
}

fn ended(end: Option<&CommandEnd>) -> String {
    match end.and_then(|end| end.code) {
        Some(code) => format!("it ended with code {code}"),
        None => "a signal ended it".to_owned(),
    }
}

/// Compares the digests of the copy and of the file. `None` if the program leaves no copy at the
/// other host.
fn is_intact(
    folders: &mut Folders,
    participant: &Participant,
    interrupt: Interrupt<'_>,
) -> Result<Option<bool>, CompareError> {
    let Some(there) = folders.there.as_mut().filter(|_| needs_ssh(participant)) else { return Ok(None) };
    Ok(Some(there.digest("copy", interrupt)? == folders.here.digest("file", interrupt)?))
}

/// Returns a transfer whose folder broke off as one that failed: those before it are kept, and those that need no
/// folder go on.
fn or_failed(round: u32, run: Result<ProgramRun, CompareError>) -> Result<ProgramRun, CompareError> {
    match run {
        Err(error @ (CompareError::Folder { .. } | CompareError::Interrupted)) => {
            Ok(ProgramRun { round, failed: Some(error.to_string()), ..ProgramRun::default() })
        }
        run => run,
    }
}

/// Returns the rows, with predictions where the rate of the path was stated.
fn batch(
    servers: &Servers,
    sender: HostSettings,
    participants: &[Participant],
    runs: Vec<Vec<ProgramRun>>,
    size: ByteCount,
    interrupt: Interrupt<'_>,
) -> ProgramBatch {
    let rtt = runs.iter().flatten().filter_map(|run| run.least_rtt).min().unwrap_or_default();
    let path = Path::symmetric(&PathDirection::of_rate(servers.bandwidth), rtt);
    let is_known = servers.bandwidth.is_some() && rtt > Span::ZERO;
    // Nothing is known of the host that receives, which therefore sets no ceiling.
    let receiver = HostSettings::unbounded();
    let predicted = Predicted { path: &path, hosts: [&sender, &receiver], size, iperf3: version_of_iperf3() };
    let predictions = if is_known { predicted.all(interrupt) } else { Vec::new() };
    // What is fetched comes from a host of which nothing is known.
    let sends = |participant: &Participant| match participant {
        Participant::Known(program) => program.server_host() == fullpipe_lab::Host::Receiver,
        Participant::Command(_) => false,
    };
    let of = |(participant, runs): (&Participant, Vec<ProgramRun>)| {
        row(participant.name(), prediction_of(&predictions, participant).filter(|_| sends(participant)), runs)
    };
    let rows = by_rate(participants.iter().zip(runs).map(of).collect());
    ProgramBatch { name: servers.host.clone(), path, sender, receiver: None, predictions, rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    use crate::folder::Medium;

    fn servers() -> Servers {
        let urls = vec!["ftp://x/y".to_owned(), "https://x/z".to_owned()];
        Servers { host: "me@far".to_owned(), ssh_config: Some("c d".to_owned()), urls, bandwidth: None }
    }

    #[test]
    fn what_fetches_needs_a_url_of_its_own_kind() {
        let servers = servers();
        assert_eq!(servers.url(Program::Curl), Some("https://x/z"));
        assert_eq!(servers.url(Program::Ftp), Some("ftp://x/y"));
        let without = Servers { urls: Vec::new(), ..servers };
        assert_eq!(without.lacks_url(Program::CurlTls).unwrap(), "no https URL was given with --url");
    }

    #[test]
    fn the_user_is_for_ssh_alone() {
        assert_eq!(servers().address(), "far");
        assert!(servers().ssh().ends_with(&["-F".to_owned(), "c d".to_owned()]));
        assert!(in_one_word(&servers().ssh()).ends_with("-F 'c d'"));
    }

    #[test]
    fn a_folder_that_breaks_off_fails_its_transfer_and_keeps_the_others() {
        let ssh = ["sh", "-c", "echo /tmp/fullpipe-compare.x; read -r x; echo done"].map(str::to_owned);
        let mut folder = Folder::at("far", &ssh, Medium::Memory).unwrap();
        let participants = Participant::of(&[Program::Scp], &[]);
        let flag = AtomicBool::new(false);
        let interrupt = Interrupt(&flag);
        let rounds = Rounds { batch: "far", participants: &participants, count: 3, interrupt };
        let mut transfer = |_: &Participant, round: u32| {
            let moved = folder.reset(interrupt).map(|()| ProgramRun { round, ..ProgramRun::default() });
            or_failed(round, moved)
        };
        let runs = rounds.run(&mut transfer, &mut |_| {}).unwrap();
        let failed: Vec<bool> = runs[0].iter().map(|run| run.failed.is_some()).collect();
        assert_eq!(failed, [false, true, true]);
        assert!(runs[0][2].failed.as_ref().unwrap().ends_with("the connection to it broke off"), "{runs:?}");
    }

    #[test]
    fn what_needs_ssh_is_left_out_without_it() {
        let command = ["nc", "{host}"].map(str::to_owned);
        let mut participants = Participant::of(&[Program::Scp, Program::Iperf3], &command);
        let mut left_out = Vec::new();
        let error = CompareError::Folder { place: "far".to_owned(), why: "no route".to_owned() };
        leave_out(&mut participants, &mut left_out, &error).unwrap();
        assert_eq!(participants.iter().map(Participant::name).collect::<Vec<_>>(), ["iperf3", "command"]);
        assert!(left_out[0].program == "scp" && left_out[0].why.ends_with("no route"), "{left_out:?}");
    }
}

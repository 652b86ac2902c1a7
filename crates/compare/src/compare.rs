use std::time::Duration;

use fullpipe_experiment::Interrupt;
use fullpipe_lab::{Backend, Host, Lab, Output, Plan};
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{
    HostSettings, Path, ProgramBatch, ProgramLeftOut, ProgramPrediction, ProgramRow, ProgramRun, ProgramsReport,
};
use fullpipe_scenario::Scenario;
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::error::CompareError;
use crate::figures::{complete, nothing_watched, watched};
use crate::findings::findings;
use crate::folder::{Folder, Medium};
use crate::hosts::{Ended, Hosts, last_line};
use crate::participant::Participant;
use crate::program::{Program, version_of_iperf3};
use crate::rounds::{Rounds, by_rate, row};
use crate::transfer::Predicted;

/// A transfer that takes longer than this many times what its prediction says is ended.
const MAX_SLOWNESS: f64 = 20.0;

/// The rate that sets the time limit of a program whose rate is not predicted.
const MIN_RATE: BitRate = BitRate::from_mbps(1);

/// Time on top of that: for handshakes over long paths.
const MORE_TIME: Duration = Duration::from_mins(1);

/// The programs and the transfers of a comparison.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// The programs.
    pub programs: Vec<Program>,
    /// A command of the user's, which takes part too; none without words.
    pub command: Vec<String>,
    /// True if every program must take part.
    pub require: bool,
    /// Size of the file.
    pub size: ByteCount,
    /// Transfers of each program under each set of settings.
    pub rounds: u32,
    /// Time after which a transfer is ended; by its prediction if `None`.
    pub timeout: Option<Span>,
    /// True if the file and its copies are on a disk, and not in memory.
    pub disk: bool,
}

impl Wishes {
    pub(crate) const fn medium(&self) -> Medium {
        if self.disk { Medium::Disk } else { Medium::Memory }
    }

    /// Returns the longest time of a transfer whose rate is expected to be `predicted`.
    pub(crate) fn longest(&self, predicted: Option<BitRate>) -> Duration {
        let least = predicted.filter(|rate| *rate > BitRate::ZERO).map(|rate| rate.scaled(1.0 / MAX_SLOWNESS));
        let predicted = Duration::from(least.unwrap_or(MIN_RATE).time_for(self.size));
        self.timeout.map_or(predicted.saturating_add(MORE_TIME), Duration::from)
    }
}

/// Moves a file by each program over the path of each step of `scenario`, in a lab with the settings of that step;
/// steps with the same path and settings are one. Data flows from the sender to the receiver. The order of the
/// programs is turned by one with each round. `observe` gets each transfer, whole or failed.
///
/// An interrupt ends it after the transfers that are complete, which are kept.
///
/// # Errors
/// Fails if a program that must take part is missing, a lab cannot be made, or it is interrupted before a transfer is
/// complete. A program that fails has a row with the reason.
pub fn compare(
    scenario: &Scenario,
    backend: Backend,
    wishes: &Wishes,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramsReport, CompareError> {
    let lacks = |program: Program| program.missing().map(|missing| format!("{missing} is not installed"));
    let (programs, left_out) = able(wishes, &lacks)?;
    let participants = Participant::of(&programs, &wishes.command);
    let mut batches = Vec::new();
    for (name, plan) in plans(scenario, backend) {
        let folder = wishes.disk.then(|| Folder::here(Medium::Disk)).transpose()?;
        let lab = Lab::start(&plan)?;
        let hosts = Hosts::prepare(&lab, wishes.size, folder.as_ref(), interrupt)?;
        let settings = [hosts.settings(Host::Sender)?, hosts.settings(Host::Receiver)?];
        batches.push(batch(&hosts, name, &plan.path, settings, &participants, wishes, observe)?);
        if interrupt.requested() {
            break;
        }
    }
    let (name, title) = (Some(scenario.name.clone()), scenario.title.clone());
    report(ProgramsReport {
        scenario: name,
        title,
        command: wishes.command.clone(),
        size: wishes.size,
        findings: findings(&batches),
        batches,
        left_out,
        interrupted: interrupt.requested(),
    })
}

/// Returns a report that has something to show.
pub(crate) fn report(report: ProgramsReport) -> Result<ProgramsReport, CompareError> {
    let is_empty = report.batches.iter().flat_map(|batch| &batch.rows).all(|row| row.goodput.is_none());
    if report.interrupted && is_empty { Err(CompareError::Interrupted) } else { Ok(report) }
}

/// Returns the programs that lack nothing, and the reason for each other one.
pub(crate) fn able(
    wishes: &Wishes,
    lacks: &dyn Fn(Program) -> Option<String>,
) -> Result<(Vec<Program>, Vec<ProgramLeftOut>), CompareError> {
    let (mut programs, mut left_out) = (Vec::new(), Vec::new());
    for program in &wishes.programs {
        match lacks(*program) {
            None => programs.push(*program),
            Some(why) if wishes.require => return Err(CompareError::LeftOut { program: program.name(), why }),
            Some(why) => left_out.push(ProgramLeftOut { program: program.name().to_owned(), why }),
        }
    }
    match left_out.first() {
        Some(first) if programs.is_empty() && wishes.command.is_empty() => {
            Err(CompareError::NoProgram { why: first.why.clone() })
        }
        _ => Ok((programs, left_out)),
    }
}

/// Returns the labs of the steps, each once, under the name of the first step that has it.
fn plans(scenario: &Scenario, backend: Backend) -> Vec<(String, Plan)> {
    let mut plans: Vec<(String, Plan)> = Vec::new();
    for step in &scenario.steps {
        let [sender, receiver] = scenario.hosts_of(step);
        let path = scenario.path_of(step).clone();
        let plan = Plan { path, seed: scenario.seed, sender, receiver, backend, interactive: false };
        if plans.iter().all(|(_, known)| *known != plan) {
            plans.push((step.name.clone(), plan));
        }
    }
    plans
}

/// Moves the file by each participant under one set of settings.
fn batch(
    hosts: &Hosts<'_>,
    name: String,
    path: &Path,
    [sender, receiver]: [HostSettings; 2],
    participants: &[Participant],
    wishes: &Wishes,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramBatch, CompareError> {
    let ends = [&sender, &receiver];
    let predicted = Predicted { path, hosts: ends, size: wishes.size, iperf3: version_of_iperf3() };
    let predictions = predicted.all(hosts.interrupt());
    let rounds = Rounds { batch: &name, participants, count: wishes.rounds, interrupt: hosts.interrupt() };
    let mut transfer = |participant: &Participant, round: u32| {
        // The user's own command has at least the time of the slowest program.
        let slowest = || predictions.iter().map(|prediction| prediction.rate).min();
        let expected = prediction_of(&predictions, participant).map(|prediction| prediction.rate).or_else(slowest);
        move_once(hosts, participant, round, wishes, wishes.longest(expected))
    };
    let runs = rounds.run(&mut transfer, observe)?;
    let of = |(participant, runs): (&Participant, Vec<ProgramRun>)| -> ProgramRow {
        row(participant.name(), prediction_of(&predictions, participant), runs)
    };
    let rows = by_rate(participants.iter().zip(runs).map(of).collect());
    Ok(ProgramBatch { name, path: path.clone(), sender, receiver: Some(receiver), predictions, rows })
}

/// Returns the prediction of a participant; `None` of the user's own command.
pub(crate) fn prediction_of<'p>(
    predictions: &'p [ProgramPrediction],
    participant: &Participant,
) -> Option<&'p ProgramPrediction> {
    predictions.iter().find(|prediction| prediction.program == participant.name())
}

/// Moves the file once, and watches the lab meanwhile.
fn move_once(
    hosts: &Hosts<'_>,
    participant: &Participant,
    round: u32,
    wishes: &Wishes,
    most: Duration,
) -> Result<ProgramRun, CompareError> {
    hosts.remove_copy()?;
    let run = ProgramRun { round, ..ProgramRun::default() };
    // The user's own command may want ssh.
    let server = match participant {
        Participant::Known(program) => Some(*program),
        Participant::Command(_) => Some(Program::Scp).filter(|ssh| ssh.missing().is_none()),
    };
    let server = match server.map(|program| hosts.serve(program)).transpose()? {
        Some(Err(why)) => return Ok(ProgramRun { failed: Some(why), ..run }),
        Some(Ok(server)) => Some(server),
        None => None,
    };
    let watch = hosts.lab().watch()?;
    let client = hosts.call(participant, wishes.size, most)?;
    let run = ProgramRun { validity: watch.finish()?, ..run };
    let server = server.map(Hosts::end).transpose()?;
    Ok(judged(hosts, participant, run, wishes.size, most, &client, server.as_ref()))
}

/// Adds to `run` what came of it.
fn judged(
    hosts: &Hosts<'_>,
    participant: &Participant,
    run: ProgramRun,
    size: ByteCount,
    most: Duration,
    Ended { took, output: client }: &Ended,
    server: Option<&Output>,
) -> ProgramRun {
    let failed = |why: String| ProgramRun { failed: Some(why), ..run.clone() };
    if *took >= most {
        return failed(format!("it did not end within {}", Span::from(most)));
    }
    let client_sends = match participant {
        Participant::Known(program) => program.server_host() == Host::Receiver,
        Participant::Command(_) => true,
    };
    let (sends, receives) = if client_sends { (Some(client), server) } else { (server, Some(client)) };
    let report = match watched(sends.map_or("", |end| &end.stdout)) {
        Ok(report) => report,
        Err(_) if !client_sends && client.code != 0 => return failed(last_line(client)),
        Err(why) => return failed(nothing_watched(&why, &client.stderr)),
    };
    let end = report.command.clone();
    let of_client = end.as_ref().filter(|_| client_sends);
    if of_client.map_or(Some(client.code), |end| end.code) != Some(0) {
        return failed(last_line(client));
    }
    let is_intact = has_to_arrive(hosts, participant).then(|| hosts.is_intact());
    let run = ProgramRun {
        took: Some(of_client.map_or_else(|| Span::from(*took), |end| end.ran)),
        sender_cpu: end.as_ref().and_then(|end| end.cpu),
        receiver_cpu: receives.map(|end| end.cpu),
        is_intact,
        failed: (is_intact == Some(false)).then(|| "the file that arrived is another one".to_owned()),
        ..run
    };
    complete(run, size, report)
}

/// Returns true if the copy has to be the file: the user's own command may send it to nowhere.
fn has_to_arrive(hosts: &Hosts<'_>, participant: &Participant) -> bool {
    match participant {
        Participant::Known(program) => program.writes_a_copy(),
        Participant::Command(words) => words.iter().any(|word| word.contains("{copy}")) || hosts.has_copy(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = 'x'\ntitle = 'x'\n[path]\nrate = '100Mbit/s'\nrtt = '50ms'\n[[step]]\nname = 'a'\n\
        [[step]]\nname = 'b'\nstreams = 4\n[[step]]\nname = 'c'\nsender = { tcp_wmem = 1000000 }\n";

    fn wishes() -> Wishes {
        Wishes {
            programs: vec![Program::Scp, Program::Curl],
            command: Vec::new(),
            require: false,
            size: ByteCount::new(100_000_000),
            rounds: 1,
            timeout: None,
            disk: false,
        }
    }

    #[test]
    fn steps_with_the_same_hosts_and_path_are_one() {
        let scenario = Scenario::parse("x.toml", FILE).unwrap();
        let names: Vec<String> = plans(&scenario, Backend::Automatic).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_lacks_something_is_left_out_or_required() {
        let lacks = |program: Program| (program == Program::Curl).then(|| "nginx is not installed".to_owned());
        let (able_ones, left_out) = able(&wishes(), &lacks).unwrap();
        assert_eq!((able_ones, left_out[0].why.as_str()), (vec![Program::Scp], "nginx is not installed"));
        assert!(able(&Wishes { require: true, ..wishes() }, &lacks).is_err());
        let only = Wishes { programs: vec![Program::Curl], ..wishes() };
        assert!(matches!(able(&only, &lacks), Err(CompareError::NoProgram { .. })));
        assert!(able(&Wishes { command: vec!["true".to_owned()], ..only }, &lacks).is_ok());
    }

    #[test]
    fn a_transfer_has_time_by_its_prediction_unless_the_user_says_how_much() {
        let rate = Some(BitRate::from_mbps(100));
        assert_eq!(wishes().longest(rate), Duration::from_secs(8 * 20 + 60));
        let timeout = Some(Span::from_secs(5));
        assert_eq!(Wishes { timeout, ..wishes() }.longest(rate), Duration::from_secs(5));
    }
}

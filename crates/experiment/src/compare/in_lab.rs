use std::time::Duration;

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_lab::{Backend, Host, Lab, LabPlan, ProgramOutput};
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{ProgramBatch, ProgramLeftOut, ProgramPrediction, ProgramsReport};
use fullpipe_scenario::Scenario;

use super::error::CompareError;
use super::figures::{
    add_transfer_figures, failed_run, not_ended, not_intact, nothing_watched, parse_diagnosis,
};
use super::findings::batch_findings;
use super::folder::{FolderMedium, TransferFolder};
use super::hosts::{PreparedHosts, ProgramEnd, last_line};
use super::participant::Participant;
use super::program::{TransferProgram, version_of_iperf3};
use super::rounds::{ComparisonRounds, program_rows};
use super::transfer::PredictedTransfer;

/// A transfer that takes longer than this many times what its prediction says is ended.
const MAX_SLOWNESS: f64 = 20.0;

/// The rate that sets the time limit of a program whose rate is not predicted.
const MIN_RATE: BitRate = BitRate::from_mbps(1);

/// Time on top of that: for handshakes over long paths.
const MORE_TIME: Duration = Duration::from_mins(1);

/// The programs and the transfers of a comparison.
#[derive(Debug, Clone)]
pub struct ComparisonRequest {
    /// The programs.
    pub programs: Vec<TransferProgram>,
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

impl ComparisonRequest {
    pub(crate) const fn medium(&self) -> FolderMedium {
        if self.disk {
            FolderMedium::Disk
        } else {
            FolderMedium::Memory
        }
    }

    /// Returns the longest time of a transfer whose rate is expected to be `predicted`.
    pub(crate) fn transfer_timeout(&self, predicted: Option<BitRate>) -> Duration {
        let least = predicted
            .filter(|rate| *rate > BitRate::ZERO)
            .map(|rate| rate.scale_by(1.0 / MAX_SLOWNESS));
        let predicted = Duration::from(least.unwrap_or(MIN_RATE).time_for(self.size));
        self.timeout
            .map_or(predicted.saturating_add(MORE_TIME), Duration::from)
    }
}

/// Moves a file by each program over the path of each step of `scenario`, in a lab with the
/// settings of that step; steps with the same path and settings are one. Data flows from the sender
/// to the receiver. The order of the programs is turned by one with each round. `observe` gets each
/// transfer, whole or failed.
///
/// An interrupt ends it after the transfers that are complete, which are kept.
///
/// # Errors
/// Fails if a program that must take part is missing, a lab cannot be made, or it is interrupted
/// before a transfer is complete. A program that fails has a row with the reason.
pub fn compare_programs(
    scenario: &Scenario,
    backend: Backend,
    wishes: &ComparisonRequest,
    interrupt: Interrupt<'_>,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramsReport, CompareError> {
    let (programs, left_out) = select_programs(wishes, &|program| {
        program.missing_executable().map(not_installed)
    })?;
    let participants = Participant::from_programs(&programs, &wishes.command);
    let mut batches = Vec::new();
    for (name, plan) in lab_plans(scenario, backend) {
        let folder = wishes
            .disk
            .then(|| TransferFolder::create_local(FolderMedium::Disk))
            .transpose()?;
        let lab = Lab::start(&plan)?;
        let hosts = PreparedHosts::prepare(&lab, wishes.size, folder.as_ref(), interrupt)?;
        let settings = [
            hosts.host_settings(Host::Sender)?,
            hosts.host_settings(Host::Receiver)?,
        ];
        batches.push(run_batch(
            &hosts,
            name,
            &plan.path,
            settings,
            &participants,
            wishes,
            observe,
        )?);
        if interrupt.is_requested() {
            break;
        }
    }
    let (name, title) = (Some(scenario.name.clone()), scenario.title.clone());
    require_results(ProgramsReport {
        scenario: name,
        title,
        command: wishes.command.clone(),
        size: wishes.size,
        findings: batch_findings(&batches),
        batches,
        left_out,
        interrupted: interrupt.is_requested(),
    })
}

/// Returns the reason for which a program cannot take part that lacks an executable.
pub(crate) fn not_installed(missing: &str) -> String {
    format!("{missing} is not installed")
}

/// Returns a report that has something to show.
pub(crate) fn require_results(report: ProgramsReport) -> Result<ProgramsReport, CompareError> {
    let is_empty = report
        .batches
        .iter()
        .flat_map(|batch| &batch.rows)
        .all(|row| row.goodput.is_none());
    if report.interrupted && is_empty {
        Err(CompareError::Interrupted)
    } else {
        Ok(report)
    }
}

/// Returns the programs that lack nothing, and the reason for each other one.
pub(crate) fn select_programs(
    wishes: &ComparisonRequest,
    lacks: &dyn Fn(TransferProgram) -> Option<String>,
) -> Result<(Vec<TransferProgram>, Vec<ProgramLeftOut>), CompareError> {
    let (mut programs, mut left_out) = (Vec::new(), Vec::new());
    for program in &wishes.programs {
        match lacks(*program) {
            None => programs.push(*program),
            Some(why) if wishes.require => {
                return Err(CompareError::Lacking(format!(
                    "{} cannot take part: {why}",
                    program.name()
                )));
            }
            Some(why) => left_out.push(ProgramLeftOut {
                program: program.name().to_owned(),
                why,
            }),
        }
    }
    match left_out.first() {
        Some(first) if programs.is_empty() && wishes.command.is_empty() => {
            Err(CompareError::no_program(&first.why))
        }
        _ => Ok((programs, left_out)),
    }
}

/// Returns the labs of the steps, each once, under the name of the first step that has it.
fn lab_plans(scenario: &Scenario, backend: Backend) -> Vec<(String, LabPlan)> {
    let mut plans: Vec<(String, LabPlan)> = Vec::new();
    for step in &scenario.steps {
        let [sender, receiver] = scenario.hosts_of(step);
        let path = scenario.path_of(step).clone();
        let plan = LabPlan {
            path,
            seed: scenario.seed,
            sender,
            receiver,
            backend,
            interactive: false,
        };
        if plans.iter().all(|(_, known)| *known != plan) {
            plans.push((step.name.clone(), plan));
        }
    }
    plans
}

/// Moves the file by each participant under one set of settings.
fn run_batch(
    hosts: &PreparedHosts<'_>,
    name: String,
    path: &Path,
    [sender, receiver]: [HostSettings; 2],
    participants: &[Participant],
    wishes: &ComparisonRequest,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<ProgramBatch, CompareError> {
    let ends = [&sender, &receiver];
    let predicted = PredictedTransfer {
        path,
        hosts: ends,
        size: wishes.size,
        iperf3: version_of_iperf3(),
    };
    let predictions = predicted.predict_all(hosts.interrupt);
    let rounds = ComparisonRounds {
        batch: &name,
        participants,
        count: wishes.rounds,
        interrupt: hosts.interrupt,
    };
    // The user's own command has at least the time of the slowest program.
    let slowest = predictions.iter().map(|prediction| prediction.rate).min();
    let runs = rounds.run(
        &mut |participant, round| {
            let expected = prediction_of(&predictions, participant).map(|one| one.rate);
            let most = wishes.transfer_timeout(expected.or(slowest));
            move_once(hosts, participant, round, wishes, most)
        },
        observe,
    )?;
    let rows = program_rows(participants, runs, |participant| {
        prediction_of(&predictions, participant)
    });
    Ok(ProgramBatch {
        name,
        path: path.clone(),
        sender,
        receiver: Some(receiver),
        predictions,
        rows,
    })
}

/// Returns the prediction of a participant; `None` of the user's own command.
pub(crate) fn prediction_of<'p>(
    predictions: &'p [ProgramPrediction],
    participant: &Participant,
) -> Option<&'p ProgramPrediction> {
    predictions
        .iter()
        .find(|prediction| prediction.program == participant.name())
}

/// Moves the file once, and watches the lab meanwhile.
fn move_once(
    hosts: &PreparedHosts<'_>,
    participant: &Participant,
    round: u32,
    wishes: &ComparisonRequest,
    most: Duration,
) -> Result<ProgramRun, CompareError> {
    hosts.remove_copy()?;
    let run = ProgramRun {
        round,
        ..ProgramRun::default()
    };
    // The user's own command may want ssh.
    let server = match participant {
        Participant::Known(program) => Some(*program),
        Participant::Command(_) => {
            Some(TransferProgram::Scp).filter(|ssh| ssh.missing_executable().is_none())
        }
    };
    let server = server
        .map(|program| hosts.start_server(program))
        .transpose()?;
    let server = match server.transpose() {
        Ok(server) => server,
        Err(why) => return Ok(failed_run(run, why)),
    };
    let watch = hosts.lab.start_watch()?;
    let client = hosts.run_client(participant, wishes.size, most)?;
    let run = ProgramRun {
        validity: watch.finish_watch()?,
        ..run
    };
    let server = server.map(PreparedHosts::end_program).transpose()?;
    Ok(judge_run(
        hosts,
        participant,
        run,
        wishes.size,
        most,
        &client,
        server.as_ref(),
    ))
}

/// Adds to `run` what came of it.
fn judge_run(
    hosts: &PreparedHosts<'_>,
    participant: &Participant,
    run: ProgramRun,
    size: ByteCount,
    most: Duration,
    ProgramEnd {
        took,
        output: client,
    }: &ProgramEnd,
    server: Option<&ProgramOutput>,
) -> ProgramRun {
    if *took >= most {
        return failed_run(run, not_ended(most));
    }
    let client_sends = match participant {
        Participant::Known(program) => program.server_host() == Host::Receiver,
        Participant::Command(_) => true,
    };
    let (sends, receives) = if client_sends {
        (Some(client), server)
    } else {
        (server, Some(client))
    };
    let report = match parse_diagnosis(sends.map_or("", |end| &end.stdout)) {
        Ok(report) => report,
        Err(_) if !client_sends && client.code != 0 => return failed_run(run, last_line(client)),
        Err(why) => return failed_run(run, nothing_watched(&why, &client.stderr)),
    };
    let end = report.command.clone();
    let of_client = end.as_ref().filter(|_| client_sends);
    if of_client.map_or(Some(client.code), |end| end.code) != Some(0) {
        return failed_run(run, last_line(client));
    }
    let is_intact = has_to_arrive(hosts, participant).then(|| hosts.is_intact());
    let run = ProgramRun {
        took: Some(of_client.map_or_else(|| Span::from(*took), |end| end.ran)),
        sender_cpu: end.as_ref().and_then(|end| end.cpu),
        receiver_cpu: receives.map(|end| end.cpu),
        is_intact,
        failed: not_intact(is_intact),
        ..run
    };
    add_transfer_figures(run, size, report)
}

/// Returns true if the copy has to be the file: the user's own command may send it to nowhere.
fn has_to_arrive(hosts: &PreparedHosts<'_>, participant: &Participant) -> bool {
    match participant {
        Participant::Known(program) => program.writes_a_copy(),
        Participant::Command(words) => {
            words.iter().any(|word| word.contains("{copy}")) || hosts.has_copy()
        }
    }
}

#[cfg(test)]
mod tests;

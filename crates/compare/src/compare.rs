use std::time::Duration;

use fullpipe_experiment::Interrupt;
use fullpipe_lab::{Backend, Host, Lab, Plan};
use fullpipe_model::predict;
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{
    HostSettings, Limit, Path, ProgramBatch, ProgramLeftOut, ProgramRow, ProgramRun, ProgramsReport, Request, Writer,
};
use fullpipe_scenario::Scenario;
use fullpipe_units::{BitRate, ByteCount, Span, median};

use crate::error::CompareError;
use crate::figures::{complete, watched};
use crate::findings::findings;
use crate::hosts::{Ended, Hosts, last_line};
use crate::program::Program;

/// Attempts of a transfer until the lab keeps up with one.
const ATTEMPTS: usize = 3;

/// A transfer that takes longer than this many times what its prediction says is ended.
const MAX_SLOWNESS: f64 = 20.0;

/// Time on top of that: for handshakes over long paths, and for programs whose rate is not predicted.
const MORE_TIME: Duration = Duration::from_mins(1);

/// The programs and the transfers of a comparison.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// The programs.
    pub programs: Vec<Program>,
    /// True if every program must take part.
    pub require: bool,
    /// Size of the file.
    pub size: ByteCount,
    /// Transfers of each program under each set of settings.
    pub rounds: u32,
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
    let (programs, left_out) = present(wishes)?;
    let mut batches = Vec::new();
    for (name, plan) in plans(scenario, backend) {
        let lab = Lab::start(&plan)?;
        let [sender, receiver] = [lab.inspect(Host::Sender)?, lab.inspect(Host::Receiver)?];
        let hosts = Hosts::prepare(&lab, wishes.size, interrupt)?;
        let mut batch = ProgramBatch { name, path: plan.path.clone(), sender, receiver, rows: Vec::new() };
        batch.rows = rows(&hosts, &batch, &programs, wishes, observe)?;
        batches.push(batch);
        if interrupt.requested() {
            break;
        }
    }
    let interrupted = interrupt.requested();
    if interrupted && batches.iter().flat_map(|batch| &batch.rows).all(|row| row.goodput.is_none()) {
        return Err(CompareError::Interrupted);
    }
    let findings = findings(&batches);
    let (scenario, title, size) = (scenario.name.clone(), scenario.title.clone(), wishes.size);
    Ok(ProgramsReport { scenario, title, size, batches, left_out, findings, interrupted })
}

/// Returns the programs that are installed, and the reason for each other one.
fn present(wishes: &Wishes) -> Result<(Vec<Program>, Vec<ProgramLeftOut>), CompareError> {
    let (mut programs, mut left_out) = (Vec::new(), Vec::new());
    for program in &wishes.programs {
        match program.missing() {
            None => programs.push(*program),
            Some(missing) if wishes.require => {
                return Err(CompareError::Missing { program: program.name(), missing });
            }
            Some(missing) => left_out.push(ProgramLeftOut {
                program: program.name().to_owned(),
                why: format!("{missing} is not installed"),
            }),
        }
    }
    if programs.is_empty() { Err(CompareError::NoProgram) } else { Ok((programs, left_out)) }
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

fn rows(
    hosts: &Hosts<'_>,
    batch: &ProgramBatch,
    programs: &[Program],
    wishes: &Wishes,
    observe: &mut dyn FnMut(ProgramMoved),
) -> Result<Vec<ProgramRow>, CompareError> {
    let predictions: Vec<(BitRate, Limit)> =
        programs.iter().map(|program| predicted(*program, &batch.path, &batch.sender, &batch.receiver)).collect();
    let mut runs: Vec<Vec<ProgramRun>> = vec![Vec::new(); programs.len()];
    'rounds: for round in 0..wishes.rounds {
        for turn in 0..programs.len() {
            let index = (turn + round as usize) % programs.len();
            for _ in 0..ATTEMPTS {
                let run = transfer(hosts, programs[index], round + 1, wishes.size, predictions[index].0)?;
                if hosts.interrupted() {
                    break 'rounds;
                }
                let (batch, program) = (batch.name.clone(), programs[index].name().to_owned());
                observe(ProgramMoved { batch, program, run: run.clone() });
                let is_valid = run.validity.broken.is_empty();
                runs[index].push(run);
                if is_valid {
                    break;
                }
            }
        }
    }
    let rows = programs.iter().zip(predictions).zip(runs);
    Ok(rows.map(|((program, prediction), runs)| row(*program, prediction, runs)).collect())
}

/// Moves the file once.
fn transfer(
    hosts: &Hosts<'_>,
    program: Program,
    round: u32,
    size: ByteCount,
    predicted: BitRate,
) -> Result<ProgramRun, CompareError> {
    hosts.remove_copy()?;
    let run = ProgramRun { round, ..ProgramRun::default() };
    let server = match hosts.serve(program)? {
        Ok(server) => server,
        Err(why) => return Ok(ProgramRun { failed: Some(why), ..run }),
    };
    let most = Duration::from(predicted.time_for(size).scaled(MAX_SLOWNESS)).saturating_add(MORE_TIME);
    let watch = hosts.lab().watch()?;
    let Ended { took, output: client } = hosts.call(program, size, most)?;
    let run = ProgramRun { validity: watch.finish()?, ..run };
    let server = Hosts::end(server)?;
    if took >= most {
        return Ok(ProgramRun { failed: Some(format!("it did not end within {}", Span::from(most))), ..run });
    }
    let client_sends = program.server_host() == Host::Receiver;
    let report = match watched(if client_sends { &client.stdout } else { &server.stdout }) {
        Ok(report) => report,
        Err(why) => return Ok(ProgramRun { failed: Some(why), ..run }),
    };
    let end = report.command.as_ref().filter(|_| client_sends);
    let code = end.map_or(Some(client.code), |end| end.code);
    if code != Some(0) {
        return Ok(ProgramRun { failed: Some(last_line(&client)), ..run });
    }
    let took = end.map_or_else(|| took.into(), |end| end.ran);
    let is_intact = program.writes_a_copy().then(|| hosts.is_intact());
    let failed = (is_intact == Some(false)).then(|| "the file that arrived is another one".to_owned());
    Ok(complete(ProgramRun { took: Some(took), is_intact, failed, ..run }, size, report))
}

/// Returns the predicted steady rate, and its limit.
fn predicted(program: Program, path: &Path, sender: &HostSettings, receiver: &HostSettings) -> (BitRate, Limit) {
    let request = Request { writer: Writer::Blocking, ..Request::default() };
    let of_tcp = predict(path, sender, receiver, &request);
    let above_tcp = program.application().and_then(|application| application.ceiling(path.rtt()));
    match above_tcp {
        Some(rate) if rate < of_tcp.kernel_model => (rate, Limit::ApplicationWindow),
        _ => (of_tcp.kernel_model, of_tcp.limit),
    }
}

/// Returns the row of a program from its runs.
fn row(program: Program, (predicted, predicted_limit): (BitRate, Limit), runs: Vec<ProgramRun>) -> ProgramRow {
    let counted = || runs.iter().filter(|run| run.counts());
    let rates = || counted().filter_map(|run| run.goodput);
    let goodput = median(rates().collect());
    let spread = (rates().count() > 1).then(|| Some([rates().min()?, rates().max()?])).flatten();
    ProgramRow {
        program: program.name().to_owned(),
        predicted,
        predicted_limit,
        goodput,
        spread,
        steady: median(counted().filter_map(|run| run.steady).collect()),
        top: counted().filter_map(|run| run.top).max(),
        start_up: median(counted().filter_map(|run| run.start_up).collect()),
        rtt: median(counted().filter_map(|run| run.rtt).collect()),
        verdict: counted().find(|run| run.goodput == goodput).and_then(|run| run.verdict.clone()),
        runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "name = 'x'\ntitle = 'x'\n[path]\nrate = '100Mbit/s'\nrtt = '50ms'\n[[step]]\nname = 'a'\n\
        [[step]]\nname = 'b'\nstreams = 4\n[[step]]\nname = 'c'\nsender = { tcp_wmem = 1000000 }\n";

    #[test]
    fn steps_with_the_same_hosts_and_path_are_one() {
        let scenario = Scenario::parse("x.toml", FILE).unwrap();
        let names: Vec<String> = plans(&scenario, Backend::Automatic).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn figures_are_medians_of_the_runs_that_count() {
        let run = |mbps: u64| ProgramRun { goodput: Some(BitRate::from_mbps(mbps)), ..ProgramRun::default() };
        let invalid = ProgramRun {
            validity: fullpipe_record::Validity { broken: vec!["late".to_owned()], ..Default::default() },
            ..run(1)
        };
        let failed = ProgramRun { failed: Some("no".to_owned()), ..run(2) };
        let prediction = (BitRate::from_mbps(100), Limit::Capacity);
        let row = row(Program::Scp, prediction, vec![run(90), invalid, run(80), failed, run(95)]);
        assert_eq!(row.goodput, Some(BitRate::from_mbps(90)));
        assert_eq!(row.spread, Some([BitRate::from_mbps(80), BitRate::from_mbps(95)]));
        assert_eq!(row.runs.len(), 5);
    }

    #[test]
    fn a_window_above_tcp_is_the_limit_only_where_it_is_the_smaller() {
        let path = |rtt: &str| {
            let text = FILE.replace("50ms", rtt).replace("100Mbit/s", "1Gbit/s");
            Scenario::parse("x.toml", &text).unwrap().path
        };
        let host = HostSettings::of_linux_6_18();
        let limit = |rtt: &str| predicted(Program::Scp, &path(rtt), &host, &host).1;
        assert_eq!(limit("98ms"), Limit::ApplicationWindow);
        assert_ne!(limit("2ms"), Limit::ApplicationWindow);
    }
}

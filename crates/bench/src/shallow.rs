//! UDP at 95 Mbit/s through 100 Mbit/s and a queue of 16 packets, over an emulated path: whoever sends in bursts loses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_lab::{Backend, Host, Lab, Line, Plan, Program as LabProgram, Stdio};
use fullpipe_scenario::{PathSpec, parse_path_flag};

use crate::comparison::{Outcome, Quantity, alternate};
use crate::figures::{self, Figures};
use crate::process::{Ended, RunError};
use crate::program::{Load, Program, Tools, Traffic};

/// The path. 95 Mbit/s of datagrams are 99.3 Mbit/s with their headers on Ethernet.
const PATH: &str = "rate=100Mbit/s,rtt=10ms,queue=16packets,mtu=1500,framing=ethernet";
const MEGABITS: u16 = 95;

const CONTESTANTS: [(&str, Program); 2] = [("fullpipe", Program::Fullpipe), ("iperf3", Program::Iperf3)];
const PORT: u16 = 5201;

/// How long a program may take beyond the time of its load.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a run is repeated that is invalid by the lab's own checks.
const ATTEMPTS: usize = 3;

/// Longest that Ctrl-C goes unheard.
const HEAR_EVERY: Duration = Duration::from_millis(100);

/// Compares how much each program loses.
pub(crate) fn compare(seconds: f64, rounds: usize, tools: &Tools, stop: &AtomicBool) -> Outcome {
    let lab = match start_lab() {
        Ok(lab) => lab,
        Err(why) => return Outcome::skipped(&why),
    };
    let load = Load { traffic: Traffic::Paced(MEGABITS), streams: 1, seconds };
    let names = CONTESTANTS.map(|(name, _)| name.to_owned());
    let mut invalid = [0; CONTESTANTS.len()];
    let outcome = alternate(&names, &[Quantity::ShareLost, Quantity::BitsPerSecond], rounds, |number| {
        let figures = valid_run(&lab, CONTESTANTS[number].1, &load, tools, stop, &mut invalid[number])?;
        let lost = figures.datagrams.ok_or_else(|| RunError::failed("it does not say what became of the datagrams"))?;
        Ok(vec![lost.share_lost(), figures.bytes as f64 * 8.0 / figures.time.as_secs_f64()])
    });
    outcome.with_notes(notes(&names, &invalid))
}

/// What was thrown away: whoever loses much is thrown away more easily, because a standstill of the link counts against a
/// run only where its queue overflowed.
fn notes(names: &[String], invalid: &[usize]) -> Vec<String> {
    let thrown_away = names.iter().zip(invalid).filter(|(_, count)| **count > 0);
    thrown_away
        .map(|(name, count)| format!("{name}: runs that did not count, by the lab's own checks: {count}"))
        .collect()
}

fn start_lab() -> Result<Lab, RunError> {
    let path = parse_path_flag(PATH, &PathSpec::demo()).map_err(RunError::failed)?;
    Lab::start(&Plan {
        path,
        seed: 1,
        sender: Vec::new(),
        receiver: Vec::new(),
        backend: Backend::default(),
        interactive: false,
    })
    .map_err(RunError::failed)
}

/// A run that the lab itself calls valid; an invalid one says nothing about the program, and is counted.
fn valid_run(
    lab: &Lab,
    program: Program,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
    invalid: &mut usize,
) -> Result<Figures, RunError> {
    let mut broken = Vec::new();
    for _ in 0..ATTEMPTS {
        let watch = lab.watch().map_err(RunError::failed)?;
        let figures = run(lab, program, load, tools, stop)?;
        broken = watch.finish().map_err(RunError::failed)?.broken;
        if broken.is_empty() {
            return Ok(figures);
        }
        *invalid += 1;
    }
    Err(RunError::Failed(format!("no valid run in {ATTEMPTS}: {}", broken.join("; "))))
}

/// A run over `lab`.
pub(crate) fn run(
    lab: &Lab,
    program: Program,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
) -> Result<Figures, RunError> {
    let address = lab.address(Host::Receiver);
    let mut server = program.server(tools, address, PORT, load.traffic);
    server.arg("-1");
    if program == Program::Iperf3 {
        // Otherwise the line that says that it listens stays in its buffer.
        server.arg("--forceflush");
    }
    let server = start(lab, Host::Receiver, &server)?;
    wait_for_listener(&server, stop)?;
    let client = start(lab, Host::Sender, &program.client(tools, address, PORT, load, &[]))?;
    let ended = finish(client, Duration::from_secs_f64(load.seconds.ceil()) + PATIENCE, stop);
    // It has served its one client; whatever became of that, it does not stay.
    server.finish(if ended.is_ok() { PATIENCE } else { Duration::ZERO }).map_err(RunError::failed)?;
    figures::read(program, &ended?, "").map_err(RunError::Failed)
}

fn start<'l>(lab: &'l Lab, host: Host, command: &std::process::Command) -> Result<LabProgram<'l>, RunError> {
    let arguments: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = command.get_program().to_string_lossy();
    lab.start_program(host, &program, &arguments, Stdio::Collected).map_err(RunError::failed)
}

fn wait_for_listener(server: &LabProgram<'_>, stop: &AtomicBool) -> Result<(), RunError> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match server.next_line(HEAR_EVERY) {
            Line::Text(line) if line.to_lowercase().contains("listening") => return Ok(()),
            Line::Text(_) | Line::NotYet if stop.load(Ordering::Relaxed) => return Err(RunError::Interrupted),
            Line::Text(_) | Line::NotYet => {}
            Line::End => break,
        }
    }
    Err(RunError::Failed(format!("its server did not answer within {PATIENCE:?}")))
}

/// What the client wrote until it ended; kills it after `patience`, and when `stop` is set.
fn finish(client: LabProgram<'_>, patience: Duration, stop: &AtomicBool) -> Result<Ended, RunError> {
    let deadline = Instant::now() + patience;
    let mut stdout = String::new();
    let given_up = loop {
        match client.next_line(HEAR_EVERY) {
            Line::Text(line) => stdout += &(line + "\n"),
            Line::NotYet => {}
            Line::End => break None,
        }
        if stop.load(Ordering::Relaxed) {
            break Some(RunError::Interrupted);
        }
        if Instant::now() >= deadline {
            break Some(RunError::Failed(format!("did not end within {patience:?}; killed")));
        }
    };
    let last_patience = if given_up.is_some() { Duration::ZERO } else { PATIENCE };
    let output = client.finish(last_patience).map_err(RunError::failed)?;
    let ended = Ended { succeeded: output.code == 0, stdout, stderr: output.stderr, cpu: Duration::ZERO };
    given_up.map_or(Ok(ended), Err)
}

//! Programs over a lab.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fullpipe_lab::{Backend, Host, Lab, LabPlan, LabProgram, OutputLine, ProgramStdio};
use fullpipe_record::{Change, Path};
use fullpipe_scenario::{PathSpec, parse_path_flag};

use crate::process::{Ended, RunError, check_interrupt};
use crate::program::{Load, Program, Tools};

/// Port of the server.
const PORT: u16 = 5201;

/// Interval of snapshots.
const INTERVAL: Duration = Duration::from_millis(100);

/// Longest that Ctrl-C goes unheard.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time that a program takes to come up, and to end after its work.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Returns the path that a text of `--path` describes.
pub(crate) fn path_of(text: &str) -> Result<Path, RunError> {
    parse_path_flag(text, &PathSpec::demo_path()).map_err(RunError::failed)
}

/// Starts two hosts joined by `path`, with other settings at each.
pub(crate) fn start(
    path: Path,
    [sender, receiver]: [Vec<Change>; 2],
    backend: Backend,
) -> Result<Lab, RunError> {
    Ok(Lab::start(&LabPlan {
        path,
        seed: 1,
        sender,
        receiver,
        backend,
        interactive: false,
    })?)
}

/// Runs `fullpipe` once over `lab`, with a `snapshot` of whatever every tenth of a second. Returns
/// what it wrote.
pub(crate) fn measure(
    lab: &Lab,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
    snapshot: &mut dyn FnMut() -> Result<(), RunError>,
) -> Result<Ended, RunError> {
    let (program, address) = (Program::Fullpipe, lab.host_address(Host::Receiver));
    let mut server = program.server(tools, address, PORT, load.traffic);
    let server = start_command(lab, Host::Receiver, server.arg("-1"))?;
    let server = once_it_listens(server, stop)?;
    let client = program.client(tools, address, PORT, load, &[]);
    let client = start_command(lab, Host::Sender, &client)?;
    let ended = finish(
        client,
        Duration::from_secs_f64(load.seconds),
        stop,
        snapshot,
    );
    // It has served its one client; whatever became of that, it does not stay.
    let last_timeout = if ended.is_ok() {
        TIMEOUT
    } else {
        Duration::ZERO
    };
    server.finish_within(last_timeout)?;
    ended
}

fn start_command<'l>(
    lab: &'l Lab,
    host: Host,
    command: &Command,
) -> Result<LabProgram<'l>, RunError> {
    let arguments = command.get_args();
    let arguments: Vec<String> = arguments
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let program = command.get_program().to_string_lossy();
    Ok(lab.start_program(host, &program, &arguments, ProgramStdio::Collected)?)
}

/// Returns a server once it has printed that it listens.
///
/// # Errors
/// Fails in its own words if it does not.
pub(crate) fn once_it_listens<'l>(
    server: LabProgram<'l>,
    stop: &AtomicBool,
) -> Result<LabProgram<'l>, RunError> {
    let (mut said, deadline) = (String::new(), Instant::now() + TIMEOUT);
    while Instant::now() < deadline {
        check_interrupt(stop)?;
        match server.next_line(POLL_INTERVAL) {
            OutputLine::Text(line) if line.contains("listening") => return Ok(server),
            OutputLine::Text(line) => said += &line,
            OutputLine::NotYet => {}
            OutputLine::End => break,
        }
    }
    said += &server.finish_within(Duration::ZERO)?.stderr;
    let said = said.trim();
    Err(RunError::Failed(format!(
        "the far end did not come up: {said}"
    )))
}

/// Returns what a client wrote until it ended, with a `snapshot` every tenth of a second; kills it
/// some time after `duration`, and when `stop` is set.
pub(crate) fn finish(
    client: LabProgram<'_>,
    duration: Duration,
    stop: &AtomicBool,
    snapshot: &mut dyn FnMut() -> Result<(), RunError>,
) -> Result<Ended, RunError> {
    let deadline = Instant::now() + duration + TIMEOUT;
    let (mut sampled, mut stdout) = (Instant::now(), String::new());
    loop {
        match client.next_line(POLL_INTERVAL) {
            OutputLine::Text(line) => stdout += &(line + "\n"),
            OutputLine::NotYet => {}
            OutputLine::End => break,
        }
        if sampled.elapsed() >= INTERVAL {
            sampled = Instant::now();
            snapshot()?;
        }
        check_interrupt(stop)?;
        if Instant::now() >= deadline {
            return Err(RunError::Failed(format!(
                "did not end within {TIMEOUT:?}; killed"
            )));
        }
    }
    let output = client.finish_within(TIMEOUT)?;
    Ok(Ended {
        succeeded: output.code == 0,
        stdout,
        stderr: output.stderr,
        ..Ended::default()
    })
}

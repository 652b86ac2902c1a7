//! A program of this host, run to its end and watched.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::target::Interrupt;
use fullpipe_lab::LastOutput;
use fullpipe_sys::end_with_this_thread;
use fullpipe_units::ByteCount;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::error::CompareError;

/// Interval of the checks for an end or an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time for a program to end after it was asked to.
const END: Duration = Duration::from_secs(10);

/// Maximum time after its end for what it wrote.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Maximum size of the document on what was watched.
const MAX_DOCUMENT: ByteCount = ByteCount::from_mib(256);

/// Maximum size of what the program wrote that is kept.
const MAX_ERRORS: ByteCount = ByteCount::from_kib(64);

/// The end of a program.
pub(crate) struct LocalProgramEnd {
    /// True if it had to be ended.
    pub(crate) is_late: bool,
    /// The document on what was watched.
    pub(crate) document: String,
    /// Last part of what the program wrote.
    pub(crate) errors: String,
}

/// Runs a program under `fullpipe diagnose`, for at most `most`. It can ask for nothing: it has no
/// input, and ssh knows that no user types.
pub(crate) fn run(
    words: &[String],
    most: Duration,
    interrupt: Interrupt<'_>,
) -> Result<LocalProgramEnd, CompareError> {
    let mut child =
        spawn_watched(words).map_err(|error| CompareError::from_start(&words[0], error))?;
    let documents = read_output(child.stdout.take(), MAX_DOCUMENT);
    let errors = read_output(child.stderr.take(), MAX_ERRORS);
    let began = Instant::now();
    while is_running(&mut child) && began.elapsed() < most && !interrupt.is_requested() {
        thread::sleep(POLL_INTERVAL);
    }
    let is_late = began.elapsed() >= most;
    end_child(&mut child);
    let deadline = Instant::now() + LAST_OUTPUT;
    Ok(LocalProgramEnd {
        is_late,
        document: text_until(documents, deadline),
        errors: text_until(errors, deadline),
    })
}

/// Starts a program under `fullpipe diagnose`.
fn spawn_watched(words: &[String]) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["diagnose", "--json", "--no-store", "--"])
        .args(words)
        .env("SSH_ASKPASS", "/bin/false")
        .env("SSH_ASKPASS_REQUIRE", "force")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    end_with_this_thread(&mut command);
    command.spawn()
}

fn read_output(pipe: Option<impl Into<OwnedFd>>, most: ByteCount) -> Option<LastOutput> {
    pipe.map(|pipe| LastOutput::read_pipe(File::from(pipe.into()), most))
}

fn text_until(output: Option<LastOutput>, deadline: Instant) -> String {
    output
        .map(|output| output.text_until(deadline))
        .unwrap_or_default()
}

/// Returns the output of a program within this time, after which it is killed; empty if it cannot
/// be started.
pub(crate) fn printed_by(command: &mut Command, within: Duration) -> String {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    end_with_this_thread(command);
    let Ok(mut child) = command.spawn() else {
        return String::new();
    };
    let output = read_output(child.stdout.take(), MAX_ERRORS);
    let printed = text_until(output, Instant::now() + within);
    kill_group(&mut child);
    printed
}

/// Asks it to end, unless it has, and kills it if it does not.
fn end_child(child: &mut Child) {
    if is_running(child)
        && let Some(pid) = Pid::from_raw(child.id().cast_signed())
    {
        // It is our child and not waited for, so that the number is its own.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + END;
    while is_running(child) && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    if is_running(child) {
        kill_group(child);
    }
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Kills a child that leads a process group, and all in that group.
fn kill_group(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // It is not waited for, so that the number is its own; all may have ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_has_started_is_killed_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]);
        let pid = printed_by(&mut command, Duration::from_millis(300));
        assert!(!pid.trim().is_empty(), "nothing was started in time");
        let stat =
            || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let deadline = Instant::now() + END;
        // Whoever is responsible for orphans may let it wait.
        while stat().contains(" (sleep) S ") {
            assert!(Instant::now() < deadline, "{}", stat());
            thread::sleep(POLL_INTERVAL);
        }
    }
}

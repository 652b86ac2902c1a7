//! A server in the background.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::prelude::*;

/// Variable of the environment that is set for the process in the background.
const DETACHED: &str = "FULLPIPE_DETACHED";

/// Returns true if this process is the one in the background, which then leaves the terminal and
/// its session.
pub(crate) fn is_detached() -> bool {
    let detached = std::env::var_os(DETACHED).is_some();
    if detached {
        // Fails only for the leader of a process group, which has left already.
        let _ = rustix::process::setsid();
    }
    detached
}

/// Starts this program again, in the background and with the same arguments, and waits for its
/// first line: it says that the server can be reached. One that ends before has failed.
///
/// Forking this process instead would take `unsafe`, and the folder stays the same so that relative
/// paths keep their meaning.
pub(crate) fn restart_in_background() -> Result {
    let started = start_detached().map_err(cannot("start in the background"))?;
    Terminal::print_line(started?.trim_end());
    Ok(())
}

/// Returns the first line of the process in the background, or the failure with which it ended
/// before that.
fn start_detached() -> io::Result<Result<String>> {
    let mut child = detached_self()?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if !line.is_empty() {
        return Ok(Ok(line));
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said)?;
    }
    let code = child.wait()?.code();
    let code = code.and_then(|code| u8::try_from(code).ok());
    let said = said.trim().trim_start_matches("fullpipe: ");
    Ok(Err(Failure::new(code.unwrap_or(FAILED), said)))
}

/// Returns the command that starts this program again, with the same name and arguments, as the one
/// that runs in the background.
pub(crate) fn detached_self() -> io::Result<Command> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command
        .args(arguments)
        .env(DETACHED, "1")
        .stdin(Stdio::null());
    Ok(command)
}

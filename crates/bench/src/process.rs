//! Programs run for a bounded time; none outlives the bench, however it ends.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_sys::{end_with_this_thread, wait_with_usage};
use fullpipe_units::{ByteCount, without_control_characters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::machine::cpu_time;

/// Why there is no result of a run.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The user stopped the bench.
    Interrupted,
    /// The reason of the failure, in the program's words if it had some.
    Failed(String),
}

impl RunError {
    pub(crate) fn failed(cause: impl fmt::Display) -> Self {
        Self::Failed(cause.to_string())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl<E: Error> From<E> for RunError {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

/// Longest that Ctrl-C goes unheard.
const INTERRUPT_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Interval at which a server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// More output than any of the programs has for a short run.
const MAX_OUTPUT: usize = 16 << 20;

/// Which table of sockets a server appears in, and what state it has there (`st` in
/// `/proc/net/tcp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Tcp(u16),
    Udp(u16),
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    /// None once it has ended and was reaped.
    child: Option<Child>,
    /// Its output, in files that have no name.
    output: [File; 2],
}

/// A program that has ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// User and system time together, with that of the programs that it waited for.
    pub(crate) cpu: Duration,
    /// The most memory that it had resident.
    pub(crate) peak: ByteCount,
}

impl Process {
    /// Starts `command`, with nothing to read and its output collected.
    pub(crate) fn start(command: &mut Command) -> Result<Self, RunError> {
        Self::start_with_output(command, [tempfile::tempfile()?, tempfile::tempfile()?])
    }

    /// Starts `command`, with nothing to read and only its standard error collected.
    pub(crate) fn start_unheard(command: &mut Command) -> Result<Self, RunError> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        Self::start_with_output(command, [nowhere, tempfile::tempfile()?])
    }

    fn start_with_output(command: &mut Command, output: [File; 2]) -> Result<Self, RunError> {
        end_with_this_thread(command);
        command
            .stdin(Stdio::null())
            .stdout(output[0].try_clone()?)
            .stderr(output[1].try_clone()?);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .map_err(|error| RunError::Failed(format!("cannot start {name}: {error}")))?;
        Ok(Self {
            id: child.id(),
            child: Some(child),
            output,
        })
    }

    /// Processor time that it has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_time(self.id)
    }

    /// Returns what it has written to standard output so far.
    pub(crate) fn stdout(&self) -> String {
        read_text(&self.output[0])
    }

    /// Waits for its end; kills it after `timeout`, and at once when `stop` is set.
    pub(crate) fn finish(
        mut self,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<Ended, RunError> {
        self.wait(timeout, stop)?;
        let child = self.child.take().ok_or(RunError::Interrupted)?;
        let (status, usage) = wait_with_usage(child)?;
        let [stdout, stderr] = self.output.each_ref().map(read_text);
        Ok(Ended {
            succeeded: status.success(),
            stdout,
            stderr,
            cpu: usage.cpu.total_time().into(),
            peak: usage.peak,
        })
    }

    fn wait(&self, timeout: Duration, stop: &AtomicBool) -> Result<(), RunError> {
        let deadline = Instant::now() + timeout;
        let child = self.child.as_ref().ok_or(RunError::Interrupted)?;
        let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        while poll(
            &mut [PollFd::new(&ended, PollFlags::IN)],
            Some(&INTERRUPT_POLL_INTERVAL),
        ) != Ok(1)
        {
            check_interrupt(stop)?;
            if Instant::now() >= deadline {
                return Err(RunError::Failed(format!(
                    "did not end within {timeout:?}; killed"
                )));
            }
        }
        check_interrupt(stop)
    }

    /// Waits until it has the socket `port`, at most `timeout`.
    pub(crate) fn wait_for_port(
        &mut self,
        port: Port,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        let pid = self.id;
        self.wait_until("answer", timeout, stop, |_| has_port(pid, port))
    }

    /// Waits until `done`, at most `timeout`; an end before it is a failure, described in its own
    /// words.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        timeout: Duration,
        stop: &AtomicBool,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), RunError> {
        let deadline = Instant::now() + timeout;
        while !done(self) {
            check_interrupt(stop)?;
            if let Some(child) = &mut self.child
                && child.try_wait()?.is_some()
            {
                return Err(RunError::Failed(last_words(
                    &read_text(&self.output[1]),
                    "ended by itself",
                )));
            }
            if Instant::now() >= deadline {
                return Err(RunError::Failed(format!(
                    "did not {what} within {timeout:?}"
                )));
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has been reaped is not signalled again: std remembers.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Fails once the user has stopped the bench.
pub(crate) fn check_interrupt(stop: &AtomicBool) -> Result<(), RunError> {
    if stop.load(Ordering::Relaxed) {
        Err(RunError::Interrupted)
    } else {
        Ok(())
    }
}

/// The last line that says something, or else `otherwise`; nothing in it can command a terminal.
pub(crate) fn last_words(text: &str, otherwise: &str) -> String {
    const MAX_QUOTED: usize = 300;
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or(otherwise)
        .trim();
    without_control_characters(line)
        .chars()
        .take(MAX_QUOTED)
        .collect()
}

/// State of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Returns whether a line of `/proc/net/tcp` is of a socket that listens on `port`.
pub(crate) fn is_listener(line: &str, port: u16) -> bool {
    is_socket(line, port, LISTENING)
}

/// Returns whether a process's network namespace has a server at `port`.
fn has_port(pid: u32, port: Port) -> bool {
    // Of UDP: bound, and connected to nobody.
    const UNCONNECTED: &str = "07";
    let (table, number, state) = match port {
        Port::Tcp(number) => ("tcp", number, LISTENING),
        Port::Udp(number) => ("udp", number, UNCONNECTED),
    };
    let tables = ["", "6"]
        .map(|six| fs::read_to_string(format!("/proc/{pid}/net/{table}{six}")).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| table.lines())
        .any(|line| is_socket(line, number, state))
}

/// Columns: number, local address and port, remote address and port, state.
fn is_socket(line: &str, port: u16, state: &str) -> bool {
    let columns: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, found] = columns[..] else {
        return false;
    };
    found == state && local.ends_with(&format!(":{port:04X}"))
}

/// Returns the begin of what a program has written, from the first byte on.
fn read_text(output: &File) -> String {
    let written = output.metadata().map_or(0, |file| file.len() as usize);
    let mut bytes = vec![0; written.min(MAX_OUTPUT)];
    let length = output.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let began = Instant::now();
        let error = Process::start(Command::new("sleep").arg("60"))
            .and_then(|process| process.finish(Duration::from_millis(50), &NEVER))
            .unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let stopped = AtomicBool::new(true);
        let ended = shell("exec sleep 60").finish(Duration::from_mins(1), &stopped);
        assert!(matches!(ended, Err(RunError::Interrupted)), "{ended:?}");
    }

    #[test]
    fn the_processor_time_of_a_program_that_has_ended_is_known() {
        let busy =
            "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo done; echo bad >&2; exit 3";
        let ended = shell(busy).finish(Duration::from_mins(1), &NEVER).unwrap();
        assert_eq!(
            (
                ended.succeeded,
                ended.stdout.as_str(),
                ended.stderr.as_str()
            ),
            (false, "done\n", "bad\n")
        );
        assert!(ended.cpu >= Duration::from_millis(10), "{:?}", ended.cpu);
    }

    #[test]
    fn a_server_that_ends_before_it_answers_is_quoted() {
        let mut process = shell("echo no luck >&2; exit 1");
        let error = process
            .wait_for_port(Port::Tcp(1), Duration::from_secs(30), &NEVER)
            .unwrap_err();
        assert_eq!(error.to_string(), "no luck");
    }

    #[test]
    fn sockets_are_found_by_port_and_state() {
        let line = "   0: 0100007F:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 26016 1";
        assert!(is_socket(line, 0x1451, "0A"));
        assert!(
            !is_socket(line, 0x1451, "07")
                && !is_socket(line, 0x451, "0A")
                && !is_socket("sl local", 1, "0A")
        );
    }

    #[test]
    fn words_cannot_command_a_terminal() {
        assert_eq!(last_words("first\n\u{1b}[2Jlast\n\n", ""), "[2Jlast");
        assert_eq!(last_words(" \n", "nothing"), "nothing");
    }
}

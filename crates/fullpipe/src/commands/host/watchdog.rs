//! The process that undoes temporary changes when their time ends.

use super::JournalFolder;
use crate::commands::prelude::*;
use fullpipe_host::{HostSystem, JournalDir, JournalError};
use fullpipe_sys::ignore_terminal_signals;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// Starts the process that undoes apply `id` when its time ends, and waits until it runs.
pub(super) fn start_watchdog(id: &str, time: Span, journal: &JournalFolder) -> io::Result<()> {
    let folder = journal
        .folder_path()
        .map_err(|failure| io::Error::other(failure.message))?;
    // The process at a terminal undoes it and reports that. This process does so if that one was
    // killed.
    let time = if Terminal::can_ask() {
        time + Span::from_secs(5)
    } else {
        time
    };
    start_and_await(&mut watchdog_command(id, time, &folder))
}

/// Starts the process that undoes apply `id` when its time ends or the thread that calls does, and
/// waits until it runs.
pub(super) fn start_tied_watchdog(id: &str, time: Span, folder: &Path) -> io::Result<()> {
    start_and_await(watchdog_command(id, time, folder).arg("--tied"))
}

fn start_and_await(command: &mut Command) -> io::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let mut child = command.spawn()?;
    let (sender, ready) = mpsc::channel();
    let stdout = child.stdout.take();
    // No other thread waits for this one: it ends with the line, or with the child.
    thread::spawn(move || sender.send(said_ready(stdout)));
    match ready.recv_timeout(TIMEOUT) {
        Ok(true) => Ok(()),
        _ => Err(gave_up(&mut child)),
    }
}

fn watchdog_command(id: &str, time: Span, folder: &Path) -> Command {
    let after = format!("{}ns", time.as_nanos());
    let mut command = Command::new("/proc/self/exe");
    // Of a name that a reader of `ps` knows.
    command
        .arg0("fullpipe")
        .args(["host", "watch", "--id", id, "--after", &after, "--journal"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/");
    command
}

fn said_ready(stdout: Option<ChildStdout>) -> bool {
    let mut line = String::new();
    stdout
        .is_some_and(|stdout| BufReader::new(stdout).read_line(&mut line).is_ok() && line == READY)
}

fn gave_up(child: &mut Child) -> io::Error {
    let _ = child.kill();
    let _ = child.wait();
    io::Error::other("it does not answer")
}

const READY: &str = "ready\n";

/// Undoes the apply after its time, or when it is asked to end, unless it was confirmed or undone.
/// Outlives the terminal, and the process that started it unless it is tied to that one.
pub(super) fn run_watchdog(
    id: &str,
    after: Span,
    is_tied: bool,
    journal: &JournalFolder,
) -> Result {
    let until = Instant::now() + Duration::from(after);
    ignore_terminal_signals();
    let asked_to_end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&asked_to_end))
        .map_err(cannot("listen for signals"))?;
    if is_tied {
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(cannot("be tied to a process"))?;
    }
    // It leads its group only where somebody else made it, and then has a session of its own
    // already.
    let _ = rustix::process::setsid();
    Terminal::print_line(READY.trim_end());
    let folder = journal.folder_path()?;
    while Instant::now() < until && !asked_to_end.load(Ordering::Relaxed) {
        if !is_unconfirmed(id, &folder) {
            return Ok(());
        }
        thread::sleep(CHECKS_EVERY.min(until.saturating_duration_since(Instant::now())));
    }
    let taken_back = take_back(id, &folder);
    if let Err(why) = &taken_back {
        // Its output is not read.
        write_syslog(Path::new("/dev/log"), why);
    }
    taken_back.map_err(run_failure)
}

/// Time after which it finds out again whether the apply still waits.
const CHECKS_EVERY: Duration = Duration::from_secs(1);

/// Returns true if apply `id` is still to be confirmed. Who removes the folder gives the journal
/// up.
fn is_unconfirmed(id: &str, folder: &Path) -> bool {
    folder.exists()
        && JournalDir::open(folder, HostSystem::of_this_host())
            .and_then(|journal_dir| journal_dir.is_pending(id))
            .unwrap_or(true)
}

fn take_back(id: &str, folder: &Path) -> Result<(), String> {
    // A process that holds the lock longer than usual may still release it.
    for _ in 0..LOCK_ATTEMPTS {
        let undone = match JournalDir::open(folder, HostSystem::of_this_host()) {
            Err(JournalError::Busy { .. }) => continue,
            opened => opened.and_then(|journal_dir| journal_dir.undo_unless_confirmed(id)),
        };
        let left = undone.map_err(|error| error.to_string())?.left;
        return if left.is_empty() {
            Ok(())
        } else {
            Err(left
                .into_iter()
                .map(|left| left.why)
                .collect::<Vec<_>>()
                .join("; "))
        };
    }
    Err("the journal stayed locked".to_owned())
}

/// Writes a line of the severity "error" to the system's log at `socket`, where there is one (RFC
/// 3164).
pub(super) fn write_syslog(socket: &Path, why: &str) {
    let line = format!("<3>fullpipe: what was changed for a time is not all back: {why}");
    let _ = UnixDatagram::unbound().and_then(|log| log.send_to(line.as_bytes(), socket));
}

/// Attempts to lock the journal, of ten seconds each.
const LOCK_ATTEMPTS: u32 = 60;

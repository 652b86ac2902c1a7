//! Transfers of other programs, watched. Those of a program that was running already are watched
//! without sending a byte; for one that was started here, routers may be asked where a device
//! changed its SYN.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use fullpipe_lab::PathWitness;
use fullpipe_observe::{
    WatchError, WatchProgress, WatchSubject, WatchedConnections, open_connections, process_tree,
    watch_others,
};
use fullpipe_probe::changed_syn_quotes;
use fullpipe_record::{CommandEnd, DiagnosisReport, FileCompletion, OwnCapture, Validity, Verdict};
use fullpipe_sys::{CpuTime, children_cpu_time, end_with_this_thread};
use fullpipe_trace::ExplainedTransfers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::DiagnoseArguments;
use super::measured::print_diagnosis;
use super::progress::{HeldOutput, WatchDisplay};
use super::seen::{SeenTransfer, WatchedFindings, command_time_forecast};
use crate::commands::capture::OwnRecording;
use crate::commands::handed_over::diagnose_transfer;
use crate::commands::prelude::*;

/// Default duration of watching a process or a connection.
const USUAL_TIME: Span = Span::from_secs(5);

/// Longest download.
const MAX_TIME: Span = Span::from_secs(10);

/// Largest download.
const MAX_BYTES: ByteCount = ByteCount::from_mib(16 << 10);

/// Longest time for a program to end after it was asked to.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Longest time for which data that a program has left behind is watched.
const AFTER_ITS_END: Span = Span::from_secs(5);

/// Interval of the checks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Watches a process or a connection that is already there.
pub(super) fn run(
    arguments: &DiagnoseArguments,
    subject: WatchSubject,
    terminal: &Terminal,
) -> Result {
    let session = WatchSession::start(arguments, terminal)?;
    let time = arguments.load.requested_time().unwrap_or(USUAL_TIME);
    let recording = if arguments.capture.is_wanted() {
        arguments
            .capture
            .of_connections(&open_connections(subject)?)?
    } else {
        None
    };
    let witness = PathWitness::begin_witness();
    let name = match subject {
        WatchSubject::Process(pid) | WatchSubject::Started(pid) => format!("process {pid}"),
        WatchSubject::Connection(local, remote) => format!("{local} ↔ {remote}"),
    };
    let process = match subject {
        WatchSubject::Process(pid) | WatchSubject::Started(pid) => Some(pid),
        WatchSubject::Connection(..) => None,
    };
    let mut progress = session.start_display((&name, process))?;
    let watched = watch_others(subject, &mut |now| {
        progress.show_progress(now);
        now.elapsed >= time || session.is_interrupted()
    });
    let completion = progress.completion.last.take();
    drop(progress);
    let mut seen = session.findings((Some(&watched?), witness), None);
    seen.completion = completion;
    let nothing = format!("{name}: {}", too_little(&seen));
    session.explain_transfers(seen, recording, None, &nothing)
}

/// Runs a program, and watches the connections that it and its children open.
pub(super) fn run_command(
    arguments: &DiagnoseArguments,
    words: &[String],
    terminal: &Terminal,
) -> Result {
    let (name, rest) = words
        .split_first()
        .ok_or_else(|| run_failure("no command is named"))?;
    let mut command = Command::new(name);
    command.args(rest);
    if terminal.format != OutputFormat::Text {
        // Standard output is for the one document.
        command.stdout(io::stderr());
    }
    let session = WatchSession::start(arguments, terminal)?;
    let is_held = arguments.live.is_wanted();
    let held = is_held.then(|| HeldOutput::divert_from(&mut command));
    let held = held
        .transpose()
        .map_err(cannot(&format!("hold the output of `{name}`")))?;
    let witness = PathWitness::begin_witness();
    let mut program = ChildProgram::start(&mut command, words)?;
    // It has the other end of the pipe of the output, too.
    drop(command);
    let watched = session.watch_command(&mut program)?;
    let end = program.wait_for_end()?;
    if let Some(held) = held {
        held.print(terminal);
    }
    let mut seen = session.findings((watched?.as_ref(), witness), Some(&end));
    let nothing = format!("{name} ended {}: {}", describe_end(&end), too_little(&seen));
    ask_routers(&mut seen, &session.interrupts.flag);
    session.explain_transfers(seen, None, Some(end), &nothing)
}

/// Downloads with the system's curl, which knows proxies, redirects and every version of TLS, and
/// throws away what comes. Where a window of HTTP/2 seems to hold that back, downloads again by
/// HTTP/1.1.
pub(super) fn run_download(
    arguments: &DiagnoseArguments,
    url: &str,
    terminal: &Terminal,
) -> Result {
    let session = WatchSession::start(arguments, terminal)?;
    let (mut seen, end, said) = session.download(url, &[])?;
    let why = if said.is_empty() {
        too_little(&seen)
    } else {
        said
    };
    let nothing = format!("cannot diagnose {url}: {why}");
    ask_routers(&mut seen, &session.interrupts.flag);
    if let Some(before) = seen
        .rate_held_by_http2()
        .filter(|_| !session.is_interrupted())
    {
        terminal.print_notice("a window of HTTP/2 seems to be the limit: the same by HTTP/1.1");
        let (again, ..) = session.download(url, &["--http1.1"])?;
        seen.http1 = again.as_http1_download(before);
    }
    session.explain_transfers(seen, None, None, &nothing)?;
    match end.code {
        // Cut short by us, by time or by size.
        Some(0 | CURL_TIMED_OUT) | None => Ok(()),
        Some(_) => Err(run_failure(format!("the download broke off: {why}"))),
    }
}

/// Watching, with what it is asked for, shown and ended by.
struct WatchSession<'w> {
    arguments: &'w DiagnoseArguments,
    interrupts: InterruptFlags,
    terminal: &'w Terminal,
}

impl<'w> WatchSession<'w> {
    fn start(arguments: &'w DiagnoseArguments, terminal: &'w Terminal) -> Result<Self> {
        Ok(Self {
            arguments,
            interrupts: arguments.live.interrupt_flags()?,
            terminal,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupts.flag.load(Ordering::Relaxed)
    }

    fn start_display(&self, watched: (&str, Option<u32>)) -> Result<WatchDisplay<'w>> {
        WatchDisplay::start_display(self.arguments, watched, &self.interrupts, self.terminal)
    }

    fn findings(
        &self,
        watched: (Option<&WatchedConnections>, Option<PathWitness>),
        end: Option<&CommandEnd>,
    ) -> WatchedFindings {
        WatchedFindings::from_watched(watched, end, self.arguments.bandwidth)
    }

    /// Watches a program until it ends, and asks it to end when its time is over or nothing more
    /// can be seen.
    fn watch_command(
        &self,
        program: &mut ChildProgram<'_>,
    ) -> Result<Result<Option<WatchedConnections>>> {
        let mut progress =
            self.start_display((&program.words.join(" "), Some(program.child.id())))?;
        let requested = self.arguments.load.requested_time();
        let time = requested.unwrap_or(Span::MAX);
        let mut is_late = false;
        let watched = program.watch_program(&mut |now| {
            progress.show_progress(now);
            is_late = now.elapsed >= time;
            is_late || self.is_interrupted()
        });
        drop(progress);
        // One of which nothing is left to watch is ending by itself.
        if (is_late || self.is_interrupted() || watched.is_err()) && !program.has_ended() {
            if is_late && !self.is_interrupted() {
                self.terminal.print_notice(&format!(
                    "`{}` is asked to end: {time} (--time) have passed",
                    program.words[0]
                ));
            }
            program.ask_to_end();
        }
        Ok(watched)
    }

    /// Downloads once, with more `flags` of curl. Returns what was seen, how curl ended, and the
    /// last line of what it said.
    fn download(&self, url: &str, flags: &[&str]) -> Result<(WatchedFindings, CommandEnd, String)> {
        let load = &self.arguments.load;
        let most = load.bytes().unwrap_or(MAX_BYTES);
        let words = curl_words(url, flags, load.requested_time().unwrap_or(MAX_TIME));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let witness = PathWitness::begin_witness();
        let mut program = ChildProgram::start(&mut command, &words)?;
        let mut progress = self.start_display((url, None))?;
        let watched = program.watch_program(&mut |now| {
            progress.show_progress(now);
            now.moved >= most || self.is_interrupted()
        });
        drop(progress);
        program.ask_to_end();
        let end = program.wait_for_end()?;
        let said = program.last_error_line();
        let seen = self.findings((watched?.as_ref(), witness), Some(&end));
        Ok((seen, end, said))
    }

    /// Judges the transfers that were `seen`, prints what is found, and keeps it. The sentence
    /// `nothing` is for the user if there is nothing to judge.
    fn explain_transfers(
        &self,
        seen: WatchedFindings,
        recording: Option<OwnRecording>,
        command: Option<CommandEnd>,
        nothing: &str,
    ) -> Result {
        let explained = if seen.transfers.is_empty() && seen.time.is_none() {
            Err(run_failure(nothing))
        } else {
            self.finish_report(self.judge_transfers(seen, recording, command))
        };
        match explained {
            explained if !self.is_interrupted() => explained,
            Ok(()) => Err(Failure::already_printed(INTERRUPTED)),
            Err(failure) => Err(Failure::new(INTERRUPTED, failure.message)),
        }
    }

    fn judge_transfers(
        &self,
        seen: WatchedFindings,
        recording: Option<OwnRecording>,
        command: Option<CommandEnd>,
    ) -> DiagnosisReport {
        let (terminal, time) = (self.terminal, seen.time);
        if let Some(time) = &time {
            terminal.print_result(&report::time_account(time, command.is_some()));
        }
        let mut transfers = Vec::new();
        for one in seen.transfers {
            let rate = one.explained_rate();
            let data = one.data;
            let mut diagnosis = diagnose_transfer(Some(one.transfer), one.evidence);
            for remedy in &mut diagnosis.remedies {
                remedy.command_time = command_time_forecast(remedy, rate, data, time.as_ref());
            }
            terminal.print_result(&report::diagnosis_text(&diagnosis, rate));
            transfers.push(diagnosis);
        }
        if !transfers.is_empty() && seen.moved_too_briefly > ByteCount::ZERO {
            terminal.print_notice(&format!(
                "{} more moved in connections that were too short for a verdict",
                seen.moved_too_briefly
            ));
        }
        let verdict = transfers.first().map(|diagnosis| &diagnosis.verdict);
        let capture = recording
            .and_then(|recording| finish_recording(recording, self.arguments.bandwidth, verdict));
        DiagnosisReport {
            capture: capture.map(Box::new),
            command,
            time,
            validity: seen.validity,
            http1: seen.http1,
            trial: None,
            completion: seen.completion.map(Box::new),
            transfers,
        }
    }

    /// Prints what there is besides the transfers, and the whole report.
    fn finish_report(&self, report: DiagnosisReport) -> Result {
        let texts = [
            report.capture.as_deref().map_text(report::own_capture),
            report.http1.as_ref().map_text(report::http1_text),
            report.command.as_ref().map_text(report::command_end),
            report.validity.as_ref().map_text(report::not_valid),
            report.completion.as_deref().map_text(completion_line),
        ];
        self.terminal.print_result(&texts.concat());
        let is_valid = report.validity.as_ref().is_none_or(Validity::is_valid);
        let out = (&self.arguments.archive, self.terminal);
        print_diagnosis(None, report, None, out);
        Failure::after_report(None, false, is_valid)
    }
}

fn completion_line(completion: &FileCompletion) -> String {
    let text = report::file_completion(completion);
    format!("\n{}\n", report::paragraph(&text, 0))
}

fn curl_words(url: &str, flags: &[&str], time: Span) -> Vec<String> {
    let limit = format!("{:.3}", time.as_secs_f64());
    let rest = ["--max-time", &limit, "--", url];
    CURL.iter()
        .chain(flags)
        .chain(&rest)
        .map(|word| (*word).to_owned())
        .collect()
}

/// A child of ours, which does not outlive us.
struct ChildProgram<'w> {
    words: &'w [String],
    child: Child,
    started: Instant,
    /// Returns when it ended, which is noticed at once; snapshots are further apart.
    end: Option<JoinHandle<Instant>>,
    status: Option<ExitStatus>,
    /// Descendants of the child, once all are asked to end.
    descendants: Vec<OwnedFd>,
}

impl<'w> ChildProgram<'w> {
    fn start(command: &mut Command, words: &'w [String]) -> Result<Self> {
        let name = words.first().map_or("", String::as_str);
        // Even if this program is killed, which ends the thread that watches.
        end_with_this_thread(command);
        let child = command.spawn().map_err(|error| {
            let hint = if name == CURL[0] {
                "; downloads are its work: install it, or name another program behind `--`"
            } else {
                ""
            };
            run_failure(format!("cannot start `{name}`: {error}{hint}"))
        })?;
        let end = notice_end(&child);
        Ok(Self {
            words,
            child,
            started: Instant::now(),
            end,
            status: None,
            descendants: Vec::new(),
        })
    }

    /// Watches the program until `stop`. Returns `None` if it had ended before the first check.
    fn watch_program(
        &mut self,
        stop: &mut dyn FnMut(WatchProgress<'_>) -> bool,
    ) -> Result<Option<WatchedConnections>> {
        let (child, status) = (&mut self.child, &mut self.status);
        let subject = WatchSubject::Started(child.id());
        let mut ended_at = Span::ZERO;
        let watched = watch_others(subject, &mut |now| {
            // Asked here, so that a program that has ended is let go and its end is not missed.
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
                ended_at = now.elapsed;
            }
            let is_done = !now.is_sending || now.elapsed > ended_at + AFTER_ITS_END;
            (status.is_some() && is_done) || stop(now)
        });
        match watched {
            Err(WatchError::NoProcess(_)) => Ok(None),
            watched => Ok(Some(watched?)),
        }
    }

    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// Waits for its end, which it has been asked for unless it has ended; ends it if it takes
    /// longer than [`TIMEOUT`], and what it has started too.
    fn wait_for_end(&mut self) -> Result<CommandEnd> {
        let deadline = Instant::now() + TIMEOUT;
        let status = self.wait_for_status(deadline).map_err(run_failure)?;
        let ended = self
            .end
            .take()
            .and_then(|end| end.join().ok())
            .unwrap_or_else(Instant::now);
        let ran = ended.saturating_duration_since(self.started).into();
        end_by(deadline, &self.descendants);
        Ok(CommandEnd {
            words: self.words.to_vec(),
            code: status.code(),
            signal: status.signal(),
            ran,
            // It is the only child that this program waits for.
            cpu: children_cpu_time().ok().map(CpuTime::total_time),
        })
    }

    /// Waits for the child alone, which is killed at `deadline`.
    fn wait_for_status(&mut self, deadline: Instant) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            self.status = self.child.try_wait()?;
            if Instant::now() >= deadline {
                // It may have ended just now.
                let _ = self.child.kill();
            }
            if self.status.is_none() {
                thread::sleep(POLL_INTERVAL);
            }
        }
    }

    fn ask_to_end(&mut self) {
        if self.status.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            self.descendants = child_descendants(&self.child);
            // It is our child and not waited for, so that the number is still its own; it may have
            // ended by itself. It goes first, so that it starts nothing in place of what ends.
            let _ = kill_process(pid, Signal::TERM);
            signal_all(&self.descendants, Signal::TERM);
        }
    }

    /// Returns the last line of its standard error, if that is a pipe.
    fn last_error_line(&mut self) -> String {
        const MAX_COMMAND: u64 = 4096;
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            // A line that cannot be read is left out.
            let _ = stderr.take(MAX_COMMAND).read_to_string(&mut text);
        }
        text.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for ChildProgram<'_> {
    fn drop(&mut self) {
        if self.status.is_none() {
            let descendants = child_descendants(&self.child);
            // It may have ended by itself.
            let _ = self.child.kill();
            signal_all(&descendants, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Starts a thread that returns when a child has ended; none where the kernel or the system
/// refuses.
fn notice_end(child: &Child) -> Option<JoinHandle<Instant>> {
    let process = open_process(child.id())?;
    let thread = thread::Builder::new().name("end-of-program".to_owned());
    thread
        .spawn(move || {
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {}
            Instant::now()
        })
        .ok()
}

fn open_process(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

/// Opens the processes that a child has started, as far as the parents still live. The child must
/// not have been waited for.
fn child_descendants(child: &Child) -> Vec<OwnedFd> {
    let others = process_tree(child.id())
        .into_iter()
        .filter(|pid| *pid != child.id());
    others.filter_map(open_process).collect()
}

/// Signals processes, of which some may have ended, or be another user's.
fn signal_all(processes: &[OwnedFd], signal: Signal) {
    for process in processes {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Waits for the end of processes until `deadline`, then ends them.
fn end_by(deadline: Instant, processes: &[OwnedFd]) {
    for process in processes {
        let left = deadline.saturating_duration_since(Instant::now());
        // Where this fails, it is ended sooner.
        let _ = poll(
            &mut [PollFd::new(process, PollFlags::IN)],
            Timespec::try_from(left).ok().as_ref(),
        );
    }
    signal_all(processes, Signal::KILL);
}

/// Returns the reason for which nothing can be said of what was watched.
fn too_little(seen: &WatchedFindings) -> String {
    match seen.moved_too_briefly {
        ByteCount::ZERO => "too little TCP data for a verdict".to_owned(),
        moved => format!("{moved} of TCP data, in connections that were too short for a verdict"),
    }
}

/// Asks the routers where the SYN of the largest transfer of a program that was started here was
/// changed, if it was (up to four seconds).
fn ask_routers(seen: &mut WatchedFindings, interrupt: &AtomicBool) {
    let Some(SeenTransfer { evidence, .. }) = seen.transfers.first_mut() else {
        return;
    };
    let samples = [&evidence.sender_samples, &evidence.receiver_samples];
    let last = samples
        .into_iter()
        .flatten()
        .last()
        .map(|sample| sample.tcp.clone());
    let socket = evidence
        .sender_sockets
        .first_mut()
        .or_else(|| evidence.receiver_sockets.first_mut());
    if let (Some(tcp), Some(socket)) = (last, socket) {
        socket.syn_quotes = changed_syn_quotes(socket, &tcp, evidence.idle_rtt, interrupt);
    }
}

/// Ends a capture. What was watched is printed although its capture could not be kept.
fn finish_recording(
    recording: OwnRecording,
    bandwidth: Option<BitRate>,
    verdict: Option<&Verdict>,
) -> Option<OwnCapture> {
    match recording.finish(ExplainedTransfers::Largest(1), bandwidth, verdict) {
        Ok(capture) => Some(capture),
        Err(failure) => {
            Terminal::print_error(&failure.message);
            None
        }
    }
}

fn describe_end(end: &CommandEnd) -> String {
    match (end.code, end.signal) {
        (Some(code), _) => format!("with code {code}"),
        (None, signal) => format!("by signal {}", signal.unwrap_or_default()),
    }
}

/// Follows redirects, throws away what comes, and says on standard error why it fails.
const CURL: [&str; 7] = [
    "curl",
    "--silent",
    "--show-error",
    "--fail",
    "--location",
    "--output",
    "/dev/null",
];

/// curl's exit code where `--max-time` is over.
const CURL_TIMED_OUT: i32 = 28;

#[cfg(test)]
mod tests;

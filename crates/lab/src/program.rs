use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_sys::{lock, wait_readable};
use fullpipe_units::{ByteCount, Span};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::error::LabError;
use crate::protocol::{Host, Reply, Request};
use crate::remote::{EndedPrograms, ProgramEnd, RemoteKeeper};

/// Maximum number of bytes of standard error that are kept.
const MAX_ERRORS: ByteCount = ByteCount::from_mib(1);

/// Maximum time after the end of a program for what it wrote.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Longest time from the end of a program, or from the signal that kills it, to the report of its
/// end.
const LAST_END: Duration = Duration::from_secs(10);

/// The action of whoever ends a program.
const ENDING: &str = "end a program";

/// Interval of the checks for it.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Input and output of a program in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramStdio {
    /// Reads nothing; what it writes is collected.
    Collected,
    /// This program's own, as in a shell.
    Inherited,
}

/// The output of a program, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOutput {
    /// Exit code, or 128 and the signal that ended it.
    pub code: i32,
    /// Standard output that [`LabProgram::next_line`] did not take; empty if it was inherited.
    pub stdout: String,
    /// Standard error, of which the last MiB is kept; empty if it was inherited.
    pub stderr: String,
    /// Processor time of the program and of the children that it waited for.
    pub cpu: Span,
}

/// A program that runs in a host.
pub struct LabProgram<'l> {
    remote: &'l RemoteKeeper,
    ended: Arc<EndedPrograms>,
    pid: i32,
    /// The process itself, whose end the kernel shows even while the keeper is stopped.
    process: OwnedFd,
    name: String,
    /// The end of the program, once it is known: the keeper reports each end once.
    end: Option<ProgramEnd>,
    lines: Option<Receiver<String>>,
    stderr: Option<LastOutput>,
}

/// The result of [`LabProgram::next_line`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputLine {
    /// A line of standard output, without its end.
    Text(String),
    /// None yet.
    NotYet,
    /// There will be no more.
    End,
}

impl<'l> LabProgram<'l> {
    pub(crate) fn start(
        remote: &'l RemoteKeeper,
        host: Host,
        program: &str,
        arguments: &[String],
        stdio: ProgramStdio,
    ) -> Result<Self, LabError> {
        let action = format!("start `{program}` in the {}", host.name());
        let pipes = ProgramPipes::open(stdio).map_err(LabError::from_io(&action))?;
        let request = Request::Start {
            host,
            program: program.to_owned(),
            arguments: arguments.to_vec(),
        };
        let descriptors = [
            pipes.input.as_fd(),
            pipes.output.as_fd(),
            pipes.errors.as_fd(),
        ];
        let (reply, process) = remote.exchange_messages(&action, &request, &descriptors)?;
        let (Reply::Started { pid }, Some(process)) = (reply, process.into_iter().next()) else {
            return Err(LabError::Gone { action });
        };
        let stderr = pipes
            .from_errors
            .map(|file| LastOutput::read_pipe(file, MAX_ERRORS));
        let lines = pipes.from_output.map(read_lines);
        let name = program.to_owned();
        Ok(Self {
            remote,
            ended: remote.ended_programs(),
            pid,
            process,
            name,
            end: None,
            lines,
            stderr,
        })
    }

    /// Returns the next line that it writes to standard output, if it comes within `timeout`.
    pub fn next_line(&self, timeout: Duration) -> OutputLine {
        let Some(lines) = &self.lines else {
            return OutputLine::End;
        };
        match lines.recv_timeout(timeout) {
            Ok(line) => OutputLine::Text(line),
            Err(RecvTimeoutError::Timeout) => OutputLine::NotYet,
            Err(RecvTimeoutError::Disconnected) => OutputLine::End,
        }
    }

    /// Asks it to end as Ctrl-C would.
    ///
    /// # Errors
    /// If the keeper is gone. A program that has ended already is no error.
    pub fn interrupt_program(&self) -> Result<(), LabError> {
        self.send_signal(Signal::INT)
    }

    /// Waits for its end, for at most `timeout`, after which it is killed.
    ///
    /// # Errors
    /// If the keeper is gone, or does not report the end.
    pub fn finish_within(mut self, timeout: Duration) -> Result<ProgramOutput, LabError> {
        if self.wait_for(timeout).is_none() {
            self.send_signal(Signal::KILL)?;
        }
        self.take_output()
    }

    /// Returns the exit code of the program, if it ends within `timeout`.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<i32> {
        self.end = self
            .end
            .or_else(|| self.ended.wait_until(self.pid, Instant::now() + timeout));
        self.end.map(|end| end.code)
    }

    /// Waits for its end, however long it takes.
    ///
    /// # Errors
    /// Fails if the keeper does not report the end within 10 s.
    pub fn wait_for_end(self) -> Result<ProgramOutput, LabError> {
        // A signal to this process cuts a wait short.
        let _ = retry_on_intr(|| wait_readable(&self.process, Duration::MAX));
        self.take_output()
    }

    /// Waits for the end of the program, and returns its exit code, its processor time and its
    /// output.
    fn take_output(mut self) -> Result<ProgramOutput, LabError> {
        self.wait_for(LAST_END);
        let ProgramEnd { code, cpu } = self.end.ok_or_else(|| {
            self.remote
                .give_up(&format!("report the end of `{}`", self.name))
        })?;
        let deadline = Instant::now() + LAST_OUTPUT;
        let stdout = self
            .lines
            .as_ref()
            .map(|lines| rest_of(lines, deadline))
            .unwrap_or_default();
        let stderr = self
            .stderr
            .take()
            .map(|errors| errors.text_until(deadline))
            .unwrap_or_default();
        Ok(ProgramOutput {
            code,
            stdout,
            stderr,
            cpu,
        })
    }

    fn send_signal(&self, signal: Signal) -> Result<(), LabError> {
        let request = Request::Signal {
            pid: self.pid,
            signal: signal.as_raw(),
        };
        self.remote.ask_keeper(ENDING, &request, &[]).map(drop)
    }
}

struct ProgramPipes {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
    from_output: Option<File>,
    from_errors: Option<File>,
}

impl ProgramPipes {
    fn open(stdio: ProgramStdio) -> io::Result<Self> {
        match stdio {
            ProgramStdio::Collected => {
                let (from_output, output) = pipe_with(PipeFlags::CLOEXEC)?;
                let (from_errors, errors) = pipe_with(PipeFlags::CLOEXEC)?;
                let input = File::open("/dev/null")?.into();
                Ok(Self {
                    input,
                    output,
                    errors,
                    from_output: Some(from_output.into()),
                    from_errors: Some(from_errors.into()),
                })
            }
            ProgramStdio::Inherited => Ok(Self {
                input: io::stdin().as_fd().try_clone_to_owned()?,
                output: io::stdout().as_fd().try_clone_to_owned()?,
                errors: io::stderr().as_fd().try_clone_to_owned()?,
                from_output: None,
                from_errors: None,
            }),
        }
    }
}

/// Hands over each line as it comes, on a thread that ends with the last writer of the pipe.
fn read_lines(file: File) -> Receiver<String> {
    let (found, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            if found
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    lines
}

/// Returns the lines that come until the end or `deadline`: a child that is left behind may write
/// without end.
fn rest_of(lines: &Receiver<String>, deadline: Instant) -> String {
    let mut rest = String::new();
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let Ok(line) = lines.recv_timeout(left) else {
            break;
        };
        rest += &line;
        rest.push('\n');
    }
    rest
}

/// The last part of what a program writes, which may be without end.
pub struct LastOutput {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl LastOutput {
    /// Reads a pipe to its end, on a thread of its own, and keeps at most `most` of it.
    pub fn read_pipe(mut file: File, most: ByteCount) -> Self {
        let most = usize::try_from(most.get()).unwrap_or(usize::MAX);
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::clone(&kept);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 8192];
            // What was read before an error still helps.
            while let Ok(length @ 1..) = file.read(&mut chunk) {
                let mut kept = lock(&keep);
                kept.extend(&chunk[..length]);
                let excess = kept.len().saturating_sub(most);
                kept.drain(..excess);
            }
        });
        Self { kept, reader }
    }

    /// Returns the last output up to its end or `deadline`: a child that is left behind may hold it
    /// open.
    pub fn text_until(self, deadline: Instant) -> String {
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        let mut kept = lock(&self.kept);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_is_waited_for_until_it_ends_and_no_longer_if_it_does_not() {
        let (found, lines) = mpsc::channel();
        for line in ["one", "two"] {
            found.send(line.to_owned()).unwrap();
        }
        drop(found);
        assert_eq!(rest_of(&lines, Instant::now() + LAST_OUTPUT), "one\ntwo\n");
        let (found, lines) = mpsc::sync_channel(1);
        let end = Instant::now() + Duration::from_secs(5);
        thread::spawn(
            move || while Instant::now() < end && found.send("more".to_owned()).is_ok() {},
        );
        rest_of(&lines, Instant::now() + Duration::from_millis(20));
        assert!(Instant::now() < end, "it was read to its end");
    }
}

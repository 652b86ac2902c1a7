//! A program at another host, reached by the user's own ssh: brought there if the host has none,
//! started, and ended with the connection.

mod configured;
mod program;
mod script;
mod tunnel;

pub use self::configured::configured_host;
pub use self::tunnel::SshTunnel;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_sys::ends_within;
use fullpipe_units::without_control_characters;
use thiserror::Error;

use self::program::ProgramFile;
use self::script::{ASKS, GREETING, REFUSAL, STARTS, quoted_word, request_lines, shell_command};

/// Time for a user to log in.
const LOGIN_DEADLINE: Duration = Duration::from_mins(2);

/// Time for an answer of the other host's shell, or for a part of the program to be taken.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Time for ssh to end by itself.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// Longest line of the other host.
const MAX_LINE: u64 = 16 << 20;

/// Most lines that a login may print before the script greets.
const MAX_BANNER_LINES: usize = 2000;

/// Lines that wait to be read.
const WAITING_LINES: usize = 64;

/// Bytes of the program that are written at a time.
const CHUNK: usize = 64 << 10;

/// A host as ssh reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// Host, perhaps with a user in front (`me@host`).
    pub login: String,
    /// Port of sshd, if it is not the one of ssh's configuration.
    pub port: Option<u16>,
    /// True if the data of measurements goes through ssh, too.
    pub tunnels_data: bool,
}

impl SshHost {
    /// Returns `host`, with `user` in front and `port` of sshd where they are named.
    ///
    /// # Errors
    /// Fails if ssh would take a name for an option, or for more than a name.
    pub fn new(user: Option<&str>, host: &str, port: Option<u16>) -> Result<Self, String> {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with('-')
                && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
        };
        if !is_name(host) || user.is_some_and(|user| !is_name(user)) {
            return Err("no host of ssh is named".to_owned());
        }
        let login = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Self {
            login,
            port,
            tunnels_data: false,
        })
    }
}

/// How programs at other hosts are started.
#[derive(Debug, Clone)]
pub struct FarEndOptions {
    /// The command line of ssh, without the host.
    pub ssh: Vec<String>,
    /// Folder with programs for other hosts, by name: `fullpipe-x86_64`, `fullpipe-aarch64`.
    pub binaries: Option<PathBuf>,
    /// True if the program that was brought there is removed as soon as it runs.
    pub leaves_nothing: bool,
    /// True if `sudo` runs the program there.
    pub uses_sudo: bool,
}

/// A program at another host that cannot be had.
#[derive(Debug, Error)]
pub enum FarEndError {
    /// The other host lacks what the program needs.
    #[error("{0}")]
    Lacking(String),
    /// The host, ssh or this host fails.
    #[error("{0}")]
    Failed(String),
}

/// A program that runs at another host. It ends with this value: its input is closed then.
#[derive(Debug)]
pub struct FarProgram {
    host: String,
    /// Its path there.
    path: String,
    child: Child,
    to: Option<ChildStdin>,
    lines: Receiver<io::Result<Vec<u8>>>,
}

/// Starts ssh with these options to a host, to run `command` there. Its input and output are pipes.
fn start_ssh(
    host: &SshHost,
    ssh: &[String],
    options: &[String],
    command: &str,
) -> Result<Child, FarEndError> {
    let program = ssh.first().map_or("ssh", String::as_str);
    let port = host.port.map(|port| port.to_string());
    Command::new(program)
        .args(ssh.iter().skip(1))
        .args(options)
        .args(port.iter().flat_map(|port| ["-p", port]))
        .arg(&host.login)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|cause| FarEndError::Failed(format!("{program} cannot be started: {cause}")))
}

impl FarProgram {
    /// Logs in, brings the program there if it is missing, and starts it with the arguments
    /// `words`.
    ///
    /// # Errors
    /// Fails if ssh does, if the host cannot run the program, or answers otherwise.
    pub fn start(
        host: &SshHost,
        options: &FarEndOptions,
        words: &[String],
    ) -> Result<Self, FarEndError> {
        let mut far = Self::log_in(host, options)?;
        let programs = ProgramFile::find_all(options.binaries.as_deref())?;
        // Where ssh has ended, the greeting that is missing says why.
        let _ = far.write(request_lines(&programs, options, words).as_bytes());
        let program = far.await_greeting()?.choose_program(&far.host, programs)?;
        let when = "before fullpipe started there";
        loop {
            let line = far.next_line(ANSWER_DEADLINE, when)?;
            match (&*line, &program) {
                (ASKS, Some(program)) => far.send_program(program)?,
                (line, _) if let Some(path) = line.strip_prefix(STARTS) => {
                    far.path = without_control_characters(path);
                    return Ok(far);
                }
                (line, _) if let Some(why) = line.strip_prefix(REFUSAL) => {
                    return Err(FarEndError::Lacking(format!(
                        "{} cannot run fullpipe: {}",
                        far.host,
                        printable_text(why)
                    )));
                }
                (line, _) => return Err(far.nonsense(line)),
            }
        }
    }

    /// Brings the program to a host, if it is missing, and returns the word by which a shell there
    /// starts it.
    ///
    /// # Errors
    /// As [`FarProgram::start`].
    pub fn bring(host: &SshHost, options: &FarEndOptions) -> Result<String, FarEndError> {
        let far = Self::start(host, options, &["--version".to_owned()])?;
        Ok(quoted_word(&far.path))
    }

    fn log_in(host: &SshHost, options: &FarEndOptions) -> Result<Self, FarEndError> {
        let mut child = start_ssh(host, &options.ssh, &[], &shell_command())?;
        let (sender, lines) = sync_channel(WAITING_LINES);
        if let Some(from) = child.stdout.take() {
            thread::spawn(move || read_lines(from, &sender));
        }
        Ok(Self {
            host: host.login.clone(),
            path: String::new(),
            to: child.stdin.take(),
            child,
            lines,
        })
    }

    /// Skips what a login prints.
    fn await_greeting(&mut self) -> Result<ScriptGreeting, FarEndError> {
        let deadline = Instant::now() + LOGIN_DEADLINE;
        for _ in 0..MAX_BANNER_LINES {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.next_line(left, "before its shell answered")?;
            // A prompt or a banner may stand before it in the same line.
            if let Some(start) = line.find(GREETING) {
                return ScriptGreeting::parse(&line[start + GREETING.len()..])
                    .ok_or_else(|| self.nonsense(&line));
            }
        }
        Err(self.nonsense("a login that prints without an end"))
    }

    /// Sends the program, which the other host asks for. Whether all of it came shows in its next
    /// line: a host without room takes no more.
    fn send_program(&mut self, program: &ProgramFile) -> Result<(), FarEndError> {
        let compressed = program.compress()?;
        self.write(format!("{}\n", compressed.len()).as_bytes())?;
        let Some(to) = &mut self.to else {
            return Ok(());
        };
        let (written, child) = (AtomicU64::new(0), &mut self.child);
        // What ends a host that takes nothing more: a pipe has no deadline of its own.
        thread::scope(|threads| {
            let sent = threads.spawn(|| write_all_counted(to, &compressed, &written));
            let (mut before, mut since) = (0, Instant::now());
            while !sent.is_finished() {
                thread::sleep(Duration::from_millis(5));
                let now = written.load(Ordering::Relaxed);
                if now != before {
                    (before, since) = (now, Instant::now());
                } else if since.elapsed() > ANSWER_DEADLINE {
                    let _ = child.kill();
                }
            }
        });
        Ok(())
    }

    /// Writes to the program's input.
    ///
    /// # Errors
    /// Fails if the program has ended.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FarEndError> {
        let written = self
            .to
            .as_mut()
            .is_some_and(|to| to.write_all(bytes).and_then(|()| to.flush()).is_ok());
        if written {
            Ok(())
        } else {
            Err(self.end_error("while it was spoken to"))
        }
    }

    /// Returns the next line of the program without its end.
    ///
    /// # Errors
    /// Fails if there is none within `time`, or the program has ended; `when` is the part of the
    /// sentence that says at what.
    pub fn next_line(&mut self, time: Duration, when: &'static str) -> Result<String, FarEndError> {
        match self.lines.recv_timeout(time) {
            Ok(Ok(line)) => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Ok(Err(cause)) => Err(self.nonsense(&cause.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(silent_host(&self.host, time, when)),
            Err(RecvTimeoutError::Disconnected) => Err(self.end_error(when)),
        }
    }

    /// Passes what the program prints on to `out` until it ends, and returns its exit code.
    ///
    /// # Errors
    /// Fails if `out` takes no more.
    pub fn copy_output(mut self, out: &mut dyn Write) -> io::Result<Option<i32>> {
        self.to = None;
        for line in &self.lines {
            out.write_all(&line?)?;
        }
        out.flush()?;
        Ok(self.child.wait()?.code())
    }

    /// Returns the error of a program that has ended.
    fn end_error(&mut self, when: &'static str) -> FarEndError {
        self.to = None;
        let how = if ends_within(&mut self.child, END_DEADLINE) {
            match self.child.try_wait() {
                Ok(Some(status)) => status.to_string(),
                _ => "its end is not known".to_owned(),
            }
        } else {
            "its output".to_owned()
        };
        ended_ssh(&self.host, &how, when)
    }

    /// Returns the error of a host that says `line`.
    pub fn nonsense(&self, line: &str) -> FarEndError {
        FarEndError::Failed(format!(
            "{} answers as no far end of fullpipe does: {}",
            self.host,
            printable_text(line)
        ))
    }
}

impl Drop for FarProgram {
    fn drop(&mut self) {
        self.to = None;
        if !ends_within(&mut self.child, END_DEADLINE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The line with which the script greets.
struct ScriptGreeting {
    system: String,
    machine: String,
    /// SHA-256 of the program on its path, or `-`.
    installed: String,
}

impl ScriptGreeting {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        Some(Self {
            system: words.next()?,
            machine: words.next()?,
            installed: words.next()?,
        })
    }

    /// Returns the program that may be brought there; `None` if the host has one and there is none
    /// here for its machine.
    fn choose_program(
        &self,
        host: &str,
        programs: Vec<ProgramFile>,
    ) -> Result<Option<ProgramFile>, FarEndError> {
        let is_linux = self.system == "Linux";
        let mut suitable = programs
            .into_iter()
            .filter(|program| is_linux && program.machine == self.machine);
        match suitable.next() {
            None if !is_linux || self.installed == "-" => {
                let [system, machine] =
                    [&self.system, &self.machine].map(|name| printable_text(name));
                Err(FarEndError::Lacking(format!(
                    "{host} runs {system} on {machine}, for which there is no program here: install fullpipe there, or \
                     name a folder that has fullpipe-{machine} by --binaries"
                )))
            }
            program => Ok(program),
        }
    }
}

/// Returns the error of a host that has not answered in `time`; `when` says what had been reached.
fn silent_host(host: &str, time: Duration, when: &str) -> FarEndError {
    FarEndError::Failed(format!(
        "{host} did not answer within {} s {when}",
        time.as_secs()
    ))
}

/// Returns the error of ssh that ended, which has said why on standard error: `how` is its exit
/// code or signal, `when` what had been reached.
fn ended_ssh(host: &str, how: &str, when: &str) -> FarEndError {
    FarEndError::Failed(format!("ssh to {host} ended ({how}) {when}"))
}

/// Returns the beginning of what another host said, without what a terminal would obey.
fn printable_text(text: &str) -> String {
    const MAX: usize = 200;
    without_control_characters(text).chars().take(MAX).collect()
}

/// Sends lines with their ends, each at most [`MAX_LINE`] long, until the end.
fn read_lines(from: ChildStdout, lines: &SyncSender<io::Result<Vec<u8>>>) {
    let mut from = BufReader::with_capacity(CHUNK, from);
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(MAX_LINE).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(count) if count as u64 == MAX_LINE => Err(io::Error::other("a line without an end")),
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        };
        let is_over = line.is_err();
        if lines.send(line).is_err() || is_over {
            return;
        }
    }
}

/// Writes all of `content`, and says in `written` how much has been.
fn write_all_counted(to: &mut ChildStdin, content: &[u8], written: &AtomicU64) -> io::Result<()> {
    for chunk in content.chunks(CHUNK) {
        to.write_all(chunk)?;
        written.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }
    to.flush()
}

#[cfg(test)]
mod tests;

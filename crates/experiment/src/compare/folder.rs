//! A folder that ends with this program, here or at another host.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::target::Interrupt;
use fullpipe_sys::ends_within;
use fullpipe_units::ByteCount;
use rustix::process::{Pid, Signal, kill_process_group};

use super::error::CompareError;

/// The shell script that makes the folder, and removes it when its input ends.
const SCRIPT: &str = include_str!("folder.sh");

/// Maximum time for an answer: a file of many gigabytes takes minutes to make.
const ANSWER: Duration = Duration::from_mins(10);

/// Interval of the checks for an interrupt while an answer is awaited.
const ANSWER_POLL: Duration = Duration::from_millis(100);

/// Maximum time for the folder to appear, with a login.
const LOGIN: Duration = Duration::from_secs(40);

/// Maximum time for it to be removed.
const END: Duration = Duration::from_secs(10);

/// Interval of the checks for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The medium that holds a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderMedium {
    /// A file system in memory, where there is one.
    Memory,
    /// A disk.
    Disk,
}

impl FolderMedium {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// A folder with a script that keeps it. The script ends when its input does: however this program
/// ends, the kernel closes that, and ssh passes it on.
pub(crate) struct TransferFolder {
    script: Child,
    /// `None` once the script has been asked to end.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    path: String,
}

impl TransferFolder {
    /// Makes a folder on this host.
    pub(crate) fn create_local(medium: FolderMedium) -> Result<Self, CompareError> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", medium.name()]);
        Self::start_script(command, "here")
    }

    /// Makes a folder on `host` by the words of `ssh`.
    pub(crate) fn create_remote(
        host: &str,
        ssh: &[String],
        medium: FolderMedium,
    ) -> Result<Self, CompareError> {
        let mut command = Command::new(&ssh[0]);
        let quoted = SCRIPT.replace('\'', "'\\''");
        command.args(&ssh[1..]).args([
            "--",
            host,
            &format!("sh -c '{quoted}' sh {}", medium.name()),
        ]);
        Self::start_script(command, host)
    }

    fn start_script(mut command: Command, place: &str) -> Result<Self, CompareError> {
        // Ctrl-C is for this program, which ends the script after its work.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut script = command
            .spawn()
            .map_err(|error| CompareError::from_folder(place, error))?;
        let requests = script.stdin.take();
        let (Some(stdout), Some(stderr)) = (script.stdout.take(), script.stderr.take()) else {
            return Err(CompareError::from_folder(place, "it has no output"));
        };
        let errors = forward_lines(stderr);
        let mut folder = Self {
            script,
            requests,
            answers: forward_lines(stdout),
            path: String::new(),
        };
        // What a login script writes comes before.
        let named = folder
            .answers
            .recv_timeout(LOGIN)
            .ok()
            .and_then(|first| folder.read_folder_name(first));
        let Some(path) = named else {
            // The last line, which comes about when the output ends.
            thread::sleep(POLL_INTERVAL);
            let said = errors.try_iter().last();
            return Err(CompareError::from_folder(
                place,
                said.as_deref().unwrap_or("nothing answers"),
            ));
        };
        folder.path = path;
        Ok(folder)
    }

    /// Returns the first line from `first` on that is the name of a folder.
    fn read_folder_name(&self, first: String) -> Option<String> {
        let mut line = first;
        while !(line.starts_with('/') && line.contains("/fullpipe-compare.")) {
            line = self.answers.recv_timeout(LOGIN).ok()?;
        }
        Some(line)
    }

    /// Returns the full name of a file in it.
    pub(crate) fn file_path(&self, name: &str) -> String {
        Path::new(&self.path)
            .join(name)
            .to_string_lossy()
            .into_owned()
    }

    /// Returns the full path of the folder.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Makes the file `file` of random bytes.
    pub(crate) fn make_file(
        &mut self,
        size: ByteCount,
        interrupt: Interrupt<'_>,
    ) -> Result<(), CompareError> {
        match self
            .send_request(&format!("make {}", size.get()), interrupt)?
            .as_str()
        {
            "done" => Ok(()),
            _ => Err(self.script_error(&format!("it does not hold {size}"))),
        }
    }

    /// Removes `copy`. On a disk, `file` is written out and no longer cached.
    pub(crate) fn remove_copy(&mut self, interrupt: Interrupt<'_>) -> Result<(), CompareError> {
        self.send_request("reset", interrupt).map(drop)
    }

    /// Returns the SHA-256 of a file in it, or some text that is no digest.
    pub(crate) fn file_digest(
        &mut self,
        name: &str,
        interrupt: Interrupt<'_>,
    ) -> Result<String, CompareError> {
        self.send_request(&format!("digest {name}"), interrupt)
    }

    fn send_request(
        &mut self,
        request: &str,
        interrupt: Interrupt<'_>,
    ) -> Result<String, CompareError> {
        let written = self
            .requests
            .as_mut()
            .map(|requests| writeln!(requests, "{request}"));
        let deadline = Instant::now() + ANSWER;
        while matches!(written, Some(Ok(()))) && Instant::now() < deadline {
            match self.answers.recv_timeout(ANSWER_POLL) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if interrupt.is_requested() => {
                    return Err(CompareError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(self.script_error("the connection to it broke off"))
    }

    fn script_error(&self, why: &str) -> CompareError {
        CompareError::from_folder(&self.path, why)
    }
}

impl Drop for TransferFolder {
    fn drop(&mut self) {
        self.requests = None;
        end_script(&mut self.script, END);
    }
}

/// Waits until the script, which leads a process group, has ended by itself. After so long it is
/// asked to end, with what it runs: it may be making a file of many gigabytes, and would leave that
/// behind if it were killed. After as long again it is killed.
fn end_script(script: &mut Child, within: Duration) {
    for signal in [Signal::TERM, Signal::KILL] {
        if ends_within(script, within) {
            return;
        }
        if let Some(group) = Pid::from_raw(script.id().cast_signed()) {
            // It is not waited for, so that the number is its own.
            let _ = kill_process_group(group, signal);
        }
    }
    let _ = script.wait();
}

/// Hands over each line as it comes, on a thread that ends with the last writer.
fn forward_lines(from: impl io::Read + Send + 'static) -> Receiver<String> {
    let (found, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(from)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| found.send(line))
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::AtomicBool;

    static FLAG: AtomicBool = AtomicBool::new(false);

    const NOT_ASKED: Interrupt<'static> = Interrupt(&FLAG);

    #[test]
    fn a_folder_makes_a_file_knows_its_digest_and_is_gone_afterwards() {
        let mut folder = TransferFolder::create_local(FolderMedium::Memory).unwrap();
        folder.make_file(ByteCount::new(1000), NOT_ASKED).unwrap();
        let file = folder.file_path("file");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 1000);
        std::fs::copy(&file, folder.file_path("copy")).unwrap();
        let digest = folder.file_digest("file", NOT_ASKED).unwrap();
        assert!(digest.len() > 64 && folder.file_digest("copy", NOT_ASKED).unwrap() == digest);
        folder.remove_copy(NOT_ASKED).unwrap();
        assert_eq!(folder.file_digest("copy", NOT_ASKED).unwrap(), "none");
        drop(folder);
        assert!(!Path::new(&file).exists());
    }

    #[test]
    fn a_folder_is_gone_afterwards_though_its_script_had_still_to_work() {
        let mut folder = TransferFolder::create_local(FolderMedium::Memory).unwrap();
        // A pipe without a reader never takes the whole file.
        let file = folder.file_path("file");
        assert!(
            Command::new("mkfifo")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        writeln!(folder.requests.as_mut().unwrap(), "make 1000000").unwrap();
        let _pipe = File::open(&file).unwrap();
        folder.requests = None;
        end_script(&mut folder.script, Duration::from_secs(1));
        assert!(!Path::new(folder.path()).exists());
    }

    #[test]
    fn a_folder_is_gone_though_nobody_reads_its_name() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        // A place of its own, in which no other test makes a folder.
        let place = tempfile::tempdir().unwrap();
        let script = SCRIPT.replace("/var/tmp", place.path().to_str().unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", FolderMedium::Disk.name()]);
        let status = command.stdin(Stdio::null()).stdout(writer).status();
        let left = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!((status.unwrap().code(), left), (Some(0), 0));
    }

    #[test]
    fn a_login_that_fails_has_its_last_word() {
        let ssh = [
            "sh",
            "-c",
            "echo 'Permission denied (publickey).' >&2; exit 255",
        ]
        .map(str::to_owned);
        let error = TransferFolder::create_remote("host", &ssh, FolderMedium::Memory)
            .err()
            .unwrap()
            .to_string();
        assert_eq!(
            error,
            "cannot create a folder on host: Permission denied (publickey)"
        );
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_an_answer() {
        let ssh = [
            "sh",
            "-c",
            "echo /tmp/fullpipe-compare.x; while read -r x; do :; done",
        ]
        .map(str::to_owned);
        let mut folder = TransferFolder::create_remote("host", &ssh, FolderMedium::Memory).unwrap();
        let asked = AtomicBool::new(true);
        assert!(matches!(
            folder.file_digest("file", Interrupt(&asked)),
            Err(CompareError::Interrupted)
        ));
    }

    #[test]
    fn what_a_login_script_writes_is_no_name() {
        let ssh = ["sh", "-c", "echo welcome; echo /tmp; exec sh -c \"$2\""].map(str::to_owned);
        let folder = TransferFolder::create_remote("host", &ssh, FolderMedium::Memory).unwrap();
        assert!(
            folder.path().contains("fullpipe-compare."),
            "{}",
            folder.path()
        );
    }
}

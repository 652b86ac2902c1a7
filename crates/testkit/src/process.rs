use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::within;

/// The program under test, built once for each test binary if it is not there or older than its
/// sources.
///
/// # Panics
/// If it cannot be built.
pub fn fullpipe() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(build))
}

/// Asks cargo for the program, because cargo passes its path to tests of its own package only.
fn build() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With a test of the workspace, so that libraries have the features that tests of the workspace
    // are built with, and are there already.
    let of_tests = ["--workspace", "--test", "layers", "--bin", "fullpipe"];
    let arguments = [
        &["build", "--quiet", "--message-format", "json"],
        &of_tests[..],
    ]
    .concat();
    let output = cargo
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(
        output.status.success(),
        "the program under test cannot be built"
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "fullpipe")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.expect("cargo names the program that it built")
}

/// A process that does not outlive its test.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
}

impl Running {
    /// Starts `command` with its output collected.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self {
            child: Some(child.unwrap_or_else(|error| panic!("{command:?}: {error}"))),
        }
    }

    /// Its process number.
    ///
    /// # Panics
    /// Never: it is there until [`Running::finish`].
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it has not finished").id()
    }

    /// Its anonymous memory in KiB (proc(5), `RssAnon`).
    ///
    /// # Panics
    /// If it has ended.
    pub fn anonymous_kib(&self) -> u64 {
        self.memory_kib("RssAnon:")
    }

    /// Its memory in KiB with that of its files (proc(5), `VmRSS`).
    ///
    /// # Panics
    /// If it has ended.
    pub fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("a process has memory");
        let kib = line.trim().trim_end_matches(" kB");
        kib.parse().expect("memory is a number")
    }

    /// The number of its open descriptors, or of its threads: `fd` or `task` of proc(5).
    ///
    /// # Panics
    /// If it has ended.
    pub fn count_of(&self, what: &str) -> usize {
        let listed = fs::read_dir(format!("/proc/{}/{what}", self.pid()));
        listed.expect("it runs").count()
    }

    /// Asks it to end as Ctrl-C does in a terminal, it alone, once it listens for that: before, a
    /// busy machine may not even have loaded it, and the kernel ends it in its place.
    ///
    /// # Panics
    /// If it does not listen within a minute.
    pub fn interrupt(&self) {
        assert!(
            within(Duration::from_mins(1), || self.minds_interrupts()),
            "it does not listen for interrupts"
        );
        let pid = self
            .child
            .as_ref()
            .and_then(|child| Pid::from_raw(child.id().cast_signed()));
        // One that has ended already needs no asking.
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
    }

    /// Returns whether an interrupt would meet a handler of its own; one that has ended needs none.
    fn minds_interrupts(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = |name| {
            status
                .lines()
                .find_map(|line: &str| line.strip_prefix(name))
                .map(str::trim)
        };
        let ended = line("State:").is_none_or(|state| state.starts_with('Z'));
        let caught = line("SigCgt:")
            .and_then(|mask| u64::from_str_radix(mask, 16).ok())
            .unwrap_or(0);
        // Bit n is for signal n + 1 (proc_pid_status(5)).
        ended || caught >> (Signal::INT.as_raw() - 1) & 1 == 1
    }

    /// Kills it as `kill -9` does, without a chance to tidy up.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
    }

    /// Waits for its end, at most `timeout`.
    ///
    /// # Panics
    /// If it has not ended by then; it is killed first.
    pub fn finish(mut self, timeout: Duration) -> Output {
        let mut child = self.child.take().expect("finish is called once");
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = wait(&mut child, timeout);
        let (stdout, stderr) = (
            stdout.join().unwrap_or_default(),
            stderr.join().unwrap_or_default(),
        );
        let Some(status) = status else {
            panic!(
                "it did not end within {timeout:?}:\n{}{}",
                String::from_utf8_lossy(&stdout),
                String::from_utf8_lossy(&stderr)
            );
        };
        Output {
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

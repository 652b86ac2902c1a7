//! One call: this program as a child, confined, with a deadline and a bounded result.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use fullpipe_sys::{confine_thread, end_with_this_thread, ends_within};
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::keep::VARIABLE as ARCHIVE_VARIABLE;
use crate::commands::prelude::*;
use crate::terminal::TEXT_ASIDE;

/// Time for a program to end, and to undo what it has changed, after it was asked to.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Time between two looks at whether the client still wants the result.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Most bytes that are read of each output of a program.
const MAX_OUTPUT: u64 = 16 << 20;

/// What any program needs that is started: its libraries, and what the kernel says of this host.
const SYSTEM: [&str; 10] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/null",
    "/proc/sys",
    "/sys",
];

/// A call that may be made.
pub(super) struct ToolCall {
    /// Words behind the name of the program.
    pub(super) words: Vec<OsString>,
    /// What the program may touch; everything if it does more than read.
    pub(super) confined: Option<Confinement>,
    /// Folder in which it runs.
    pub(super) folder: PathBuf,
    /// File of the archive, if it is one.
    pub(super) archive: Option<PathBuf>,
    pub(super) deadline: Duration,
}

/// Files and folders that a program may touch.
pub(super) struct Confinement {
    pub(super) readable: Vec<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
}

/// What a program printed.
pub(super) struct CallOutput {
    pub(super) succeeded: bool,
    pub(super) output: Vec<u8>,
    pub(super) errors: Vec<u8>,
}

impl ToolCall {
    /// Runs the program until it ends, its time is over, or its result is no longer `wanted`. The
    /// calling thread stays confined, and the program does not outlive it.
    ///
    /// # Errors
    /// Returns the sentence for the client if there is no result.
    pub(super) fn run(self, wanted: impl Fn() -> bool) -> Result<CallOutput, String> {
        let own =
            std::env::current_exe().map_err(|error| format!("cannot find fullpipe: {error}"))?;
        if let Some(mut confined) = self.confined {
            confined.readable.extend(SYSTEM.map(PathBuf::from));
            confined.readable.push(own.clone());
            confine_thread(&confined.readable, &confined.writable)
                .map_err(|error| format!("cannot confine a tool to its files: {error}"))?;
        }
        let mut command = Command::new(own);
        command
            .args(self.words)
            .env(TEXT_ASIDE, "1")
            .envs(self.archive.map(|file| (ARCHIVE_VARIABLE, file)))
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end_with_this_thread(&mut command);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start fullpipe: {error}"))?;
        wait_for_output(child, self.deadline, wanted)
    }
}

/// Returns what a program printed when it ends by itself, and ends it otherwise.
fn wait_for_output(
    mut child: Child,
    time: Duration,
    wanted: impl Fn() -> bool,
) -> Result<CallOutput, String> {
    let outputs = [
        read_aside(child.stdout.take()),
        read_aside(child.stderr.take()),
    ];
    let deadline = Instant::now() + time;
    while !ends_within(&mut child, POLL_INTERVAL) {
        let is_late = Instant::now() > deadline;
        if is_late || !wanted() {
            end_child(&mut child);
            return Err(why_ended(is_late.then_some(time)));
        }
    }
    let [output, errors] = outputs.map(|output| output.recv_timeout(GRACE).unwrap_or_default());
    if output.len() as u64 >= MAX_OUTPUT {
        let most = MAX_OUTPUT >> 20;
        return Err(format!("its result has more than {most} MiB; ask for less"));
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    Ok(CallOutput {
        succeeded: status.success(),
        output,
        errors,
    })
}

fn why_ended(deadline: Option<Duration>) -> String {
    match deadline {
        Some(time) => format!(
            "it was ended after {} s, the longest that a call may take; ask for less, or run the command yourself",
            time.as_secs()
        ),
        None => "the client ended it".to_owned(),
    }
}

/// Reads what a program prints, up to a limit, beyond which its next write fails.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before is what there is.
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        // Nobody waits if the call was ended.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Ends a program: asks it first, so that it undoes what it has changed.
fn end_child(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        // One that has ended needs no signal.
        let _ = kill_process(pid, Signal::TERM);
    }
    if !ends_within(child, GRACE) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_script(script: &str, time: Duration, wanted: bool) -> Result<CallOutput, String> {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        wait_for_output(command.spawn().unwrap(), time, || wanted)
    }

    #[test]
    fn a_program_that_is_late_or_unwanted_is_ended_and_one_that_prints_too_much_has_no_result() {
        let (soon, late) = (Duration::from_millis(100), Duration::from_mins(1));
        let begun = Instant::now();
        let ended = run_script("exec sleep 100", soon, true).err().unwrap();
        assert!(ended.contains("ended after"), "{ended}");
        let ended = run_script("exec sleep 100", late, false).err().unwrap();
        assert!(ended.contains("client ended it"), "{ended}");
        assert!(
            begun.elapsed() < GRACE,
            "both ended when they were asked to"
        );
        let ended = run_script("trap '' TERM; sleep 30; sleep 30", soon, true)
            .err()
            .unwrap();
        assert!(ended.contains("ended after"), "{ended}");
        assert!(begun.elapsed() > GRACE, "it was killed");
        let ended = run_script("exec yes", late, true).err().unwrap();
        assert!(ended.contains("more than 16 MiB"), "{ended}");
        let whole = run_script("echo result; echo text >&2; exit 3", late, true).unwrap();
        assert!(!whole.succeeded);
        assert_eq!(
            (&*whole.output, &*whole.errors),
            (&b"result\n"[..], &b"text\n"[..])
        );
    }
}

//! The test that runs: this program as a child, one at a time on this host.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fullpipe_record::{Direction, Event, EventLine, Interval};
use fullpipe_sys::lock;
use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::archive::Archive;

/// Time that a test may take besides that of its load.
const GRACE: Duration = Duration::from_mins(1);

/// Time for a command that only prints.
const TEXT_DEADLINE: Duration = Duration::from_secs(10);

/// Longest line of a test that is read, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Most bytes that are read of its errors.
const MAX_ERRORS: u64 = 16 << 10;

/// A test that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestRequest {
    /// The other end.
    pub(crate) host: String,
    /// True if the other end sends.
    pub(crate) reverse: bool,
    /// Duration of the load.
    pub(crate) seconds: u16,
    /// Parallel streams.
    pub(crate) streams: u16,
}

impl TestRequest {
    /// Longest load, in seconds.
    pub(crate) const MAX_SECONDS: u16 = 300;

    /// Most parallel streams.
    pub(crate) const MAX_STREAMS: u16 = 64;

    /// # Errors
    /// Fails if a number is beyond its bounds.
    pub(crate) fn check_bounds(&self) -> Result<(), Refusal> {
        let bounds = [
            ("seconds", self.seconds, Self::MAX_SECONDS),
            ("streams", self.streams, Self::MAX_STREAMS),
        ];
        match bounds
            .iter()
            .find(|(_, number, most)| !(1..=*most).contains(number))
        {
            Some((name, _, most)) => Err(Refusal::bad_request(format!(
                "{name} is a number from 1 to {most}"
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        if self.reverse {
            Direction::Download
        } else {
            Direction::Upload
        }
    }

    /// Returns what it does, in words.
    pub(crate) fn title(&self) -> String {
        let streams = if self.streams == 1 {
            String::new()
        } else {
            format!(" on {} streams", self.streams)
        };
        if self.reverse {
            format!("Download from {}{streams}", self.host)
        } else {
            format!("Upload to {}{streams}", self.host)
        }
    }

    /// Returns the words of the command line behind the name of the program.
    fn arguments(&self) -> Vec<String> {
        let mut words = vec![
            "measure".to_owned(),
            "--json-lines".to_owned(),
            "--yes".to_owned(),
            format!("--time={}", self.seconds),
            format!("--streams={}", self.streams),
        ];
        if self.reverse {
            words.push("--reverse".to_owned());
        }
        words.extend(["--".to_owned(), self.host.clone()]);
        words
    }
}

/// The program that runs tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProgram {
    /// Its file.
    pub file: PathBuf,
    /// Variable of its environment that names the archive, and the value.
    pub archive: (&'static str, OsString),
    /// File whose lock a test holds while it runs.
    pub lock: PathBuf,
}

impl TestProgram {
    /// Returns what the program prints that ends at once.
    ///
    /// # Errors
    /// Fails with its own sentence if it does, or if it does not end in its time.
    pub(crate) async fn printed_text(&self, arguments: &[String]) -> Result<String, Refusal> {
        let mut command = Command::new(&self.file);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let late = |_| {
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "it did not end in its time",
            )
        };
        let ended = timeout(TEXT_DEADLINE, command.output())
            .await
            .map_err(late)?;
        let output = ended.map_err(|error| cannot_start(&error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Refusal::bad_request(first_sentence(
            &String::from_utf8_lossy(&output.stderr),
        )))
    }
}

fn cannot_start(error: &std::io::Error) -> Refusal {
    Refusal::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the program cannot be started: {error}"),
    )
}

/// Returns the sentence with which a test said why it has no result.
async fn first_line_of_errors(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(errors) = child.stderr.take() {
        let mut errors = errors.take(MAX_ERRORS);
        // What was said before it broke off is what there is.
        let _ = timeout(TEXT_DEADLINE, errors.read_to_string(&mut said)).await;
    }
    first_sentence(&said)
}

/// Returns the sentence with which the program says why it failed.
fn first_sentence(errors: &str) -> String {
    let line = errors.lines().next().unwrap_or("it ended without a result");
    let begins = ["fullpipe: ", "error: "];
    let sentence = begins.iter().find_map(|begin| line.strip_prefix(begin));
    sentence.unwrap_or(line).to_owned()
}

/// What there is of the newest test.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum RunState {
    /// None ran since the server started.
    #[default]
    Idle,
    /// It runs.
    Running(RunningTest),
    /// It is over, and the archive has its document.
    Kept {
        request: TestRequest,
        /// Identifier of the document.
        id: String,
    },
    /// It is over without a result.
    Failed { request: TestRequest, why: String },
}

/// A test that runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunningTest {
    pub(crate) request: TestRequest,
    /// Its intervals so far.
    pub(crate) intervals: Vec<Interval>,
    #[serde(skip)]
    process: Option<Pid>,
}

/// The tests of a server.
pub(crate) struct TestRuns {
    program: TestProgram,
    archive: Archive,
    state: Mutex<RunState>,
    /// Number of changes of the state.
    changes: watch::Sender<u64>,
}

impl TestRuns {
    pub(crate) fn new(program: TestProgram, archive: Archive) -> Arc<Self> {
        Arc::new(Self {
            program,
            archive,
            state: Mutex::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// Returns what there is now.
    pub(crate) fn state(&self) -> RunState {
        self.locked().clone()
    }

    /// Returns what tells of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Asks the test that runs to end; it keeps what it has.
    pub(crate) fn stop(&self) {
        if let RunState::Running(RunningTest { process, .. }) = &*self.locked()
            && let Some(process) = process
        {
            // One that has ended needs no signal.
            let _ = kill_process(*process, Signal::TERM);
        }
    }

    fn locked(&self) -> MutexGuard<'_, RunState> {
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut RunState)) {
        change(&mut self.locked());
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Starts a test.
    ///
    /// # Errors
    /// Fails if one runs on this host, also one that another server started, or if the program
    /// cannot be started.
    pub(crate) fn start(self: &Arc<Self>, request: TestRequest) -> Result<(), Refusal> {
        let lock = File::options()
            .create(true)
            .append(true)
            .open(&self.program.lock)
            .map_err(|error| cannot_start(&error))?;
        lock.try_lock().map_err(|_| {
            Refusal::new(
                StatusCode::CONFLICT,
                "a test runs on this host; two at once would measure each other",
            )
        })?;
        let (variable, archive) = &self.program.archive;
        // The lock is its standard input, so that it lasts as long as the test does, whatever
        // becomes of this server.
        let child = Command::new(&self.program.file)
            .args(request.arguments())
            .env(variable, archive)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| cannot_start(&error))?;
        self.change(|state| {
            *state = RunState::Running(RunningTest {
                request: request.clone(),
                intervals: Vec::new(),
                process: child.id().and_then(|id| Pid::from_raw(id.cast_signed())),
            });
        });
        let runs = Arc::clone(self);
        tokio::spawn(async move { runs.follow(child, request).await });
        Ok(())
    }

    /// Reads what a test says until it ends, or ends it after its time.
    async fn follow(&self, mut child: Child, request: TestRequest) {
        let time = Duration::from_secs(request.seconds.into()) + GRACE;
        let read = timeout(time, self.read_events(&mut child)).await;
        let read = read.unwrap_or(Err("it did not end in its time".to_owned()));
        let outcome = match read {
            Ok(id) => self.kept_result(request, id).await,
            Err(why) if why.is_empty() => RunState::Failed {
                request,
                why: first_line_of_errors(&mut child).await,
            },
            Err(why) => RunState::Failed { request, why },
        };
        // As long as the state says that it runs, its number is that of no other process.
        self.change(|state| *state = outcome);
        let _ = child.start_kill();
        let _ = child.wait().await;
    }

    /// Returns the state after a test with a result, which the archive may have refused.
    async fn kept_result(&self, request: TestRequest, id: String) -> RunState {
        let found = self.archive.ask(move |store| Ok(store.find_document(&id)?));
        match found.await {
            Ok(kept) => RunState::Kept {
                request,
                id: kept.id,
            },
            Err(refusal) => RunState::Failed {
                request,
                why: format!("its result is not kept: {}", refusal.why),
            },
        }
    }

    /// Returns the identifier of the result, which is the last of what a test says.
    ///
    /// # Errors
    /// Fails if there is none: with the reason, if the test states it as an event.
    async fn read_events(&self, child: &mut Child) -> Result<String, String> {
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(String::new)?);
        let mut result = Err(String::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut lines).take(MAX_LINE);
            let read = bounded.read_until(b'\n', &mut line).await;
            if read.unwrap_or(0) == 0 {
                return result;
            }
            let Ok(line) = serde_json::from_slice::<EventLine<'_>>(&line) else {
                continue;
            };
            match line.event.into_owned() {
                Event::Interval(interval) => self.change(|state| {
                    if let RunState::Running(run) = state {
                        run.intervals.push(*interval);
                    }
                }),
                Event::Measurement(measurement) => result = Ok(measurement.id),
                Event::Error(error) => result = result.or(Err(error.message)),
                _ => {}
            }
        }
    }
}

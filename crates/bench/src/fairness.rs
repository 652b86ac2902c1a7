//! `fullpipe copy` next to one connection under CUBIC over an emulated path: the share of each. A second connection
//! under CUBIC in its place shows what the path makes of two equals.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_record::{Content, Document, Event};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::process::{Process, RunError, last_words};
use crate::statistics::{Ratio, ratio};

/// The path, between a sender of both and a receiver of both.
const RATE: BitRate = BitRate::from_mbps(100);
const RTT: Span = Span::from_millis(50);

const RECEIVER: &str = "198.18.0.2";

/// Time that CUBIC has the path alone, then that both have to find their shares, then that is judged, and then that a
/// copy has alone. What of it is judged begins a little later.
const ALONE: Duration = Duration::from_secs(4);
const TO_SETTLE: Duration = Duration::from_secs(8);
const JUDGED: Duration = Duration::from_mins(1);
const BEHIND: Duration = Duration::from_secs(12);
const TO_FILL: Duration = Duration::from_secs(4);

/// Time for a lab, a server and the last words of a measurement.
const TIMEOUT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A path, and the one that comes to it later than CUBIC.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    path: &'static str,
    later: Later,
}

/// The one that comes later.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Later {
    /// A copy with these flags.
    Copy(&'static [&'static str]),
    /// Another connection under CUBIC.
    Cubic,
}

const COPY: Later = Later::Copy(&[]);
const SCAVENGING: Later = Later::Copy(&["--scavenge"]);

/// All of them.
pub(crate) const CASES: [Case; 12] = [
    Case { name: "fairness-0.3bdp", path: "queue = '0.3bdp'", later: COPY },
    Case { name: "fairness-1bdp", path: "queue = '1bdp'", later: COPY },
    Case { name: "fairness-3bdp", path: "queue = '3bdp'", later: COPY },
    Case { name: "fairness-of-two-0.3bdp", path: "queue = '0.3bdp'", later: Later::Cubic },
    Case { name: "fairness-of-two-1bdp", path: "queue = '1bdp'", later: Later::Cubic },
    Case { name: "fairness-of-two-3bdp", path: "queue = '3bdp'", later: Later::Cubic },
    Case { name: "fairness-loss-1e-3", path: "queue = '1bdp'\nloss = '1e-3'", later: COPY },
    Case { name: "fairness-of-two-loss-1e-3", path: "queue = '1bdp'\nloss = '1e-3'", later: Later::Cubic },
    Case { name: "fairness-scavenge-0.3bdp", path: "queue = '0.3bdp'", later: SCAVENGING },
    Case { name: "fairness-scavenge-1bdp", path: "queue = '1bdp'", later: SCAVENGING },
    Case { name: "fairness-scavenge-3bdp", path: "queue = '3bdp'", later: SCAVENGING },
    Case { name: "fairness-scavenge-loss-1e-3", path: "queue = '1bdp'\nloss = '1e-3'", later: SCAVENGING },
];

/// Rates of a run.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// CUBIC without a copy, if that was measured, and next to it.
    alone: Option<BitRate>,
    cubic: BitRate,
    /// The one that comes later next to CUBIC, and after it if it is a copy.
    later: BitRate,
    behind: Option<BitRate>,
}

impl Case {
    /// Runs it so many times. Returns its text.
    ///
    /// # Errors
    /// Fails if the user stops it, or a program cannot be started.
    pub(crate) fn run(&self, fullpipe: &Path, rounds: u16, stop: &AtomicBool) -> Result<String, RunError> {
        let mut shares = Vec::new();
        let mut failures = String::new();
        for _ in 0..rounds {
            match self.round(fullpipe, stop) {
                Ok(round) => shares.push(round),
                Err(RunError::Interrupted) => return Err(RunError::Interrupted),
                Err(RunError::Failed(why)) => drop(writeln!(failures, "  {why}")),
            }
        }
        Ok(self.text(&shares) + &failures)
    }

    fn round(&self, fullpipe: &Path, stop: &AtomicBool) -> Result<Shares, RunError> {
        let measure_alone = || Scene::start(self, fullpipe, stop)?.cubic(ALONE)?.finished();
        let alone = self.has_loss().then(measure_alone).transpose()?;
        let scene = Scene::start(self, fullpipe, stop)?;
        let first = scene.cubic(ALONE)?;
        scene.wait(ALONE)?;
        let Later::Copy(flags) = self.later else {
            let later = scene.cubic(Duration::ZERO)?.finished()?;
            return Ok(Shares { alone, cubic: first.finished()?, later, behind: None });
        };
        let began = Instant::now();
        let copy = scene.copy(flags)?;
        let progress = scene.watch(&copy, || began.elapsed() > TO_SETTLE + JUDGED + BEHIND)?;
        let between = |from: Duration, until: Duration| rate(&progress, began + from, began + until);
        let judged = TO_SETTLE + JUDGED;
        Ok(Shares {
            alone,
            cubic: first.finished()?,
            later: between(TO_SETTLE, judged),
            behind: Some(between(judged + TO_FILL, judged + BEHIND)),
        })
    }

    fn has_loss(&self) -> bool {
        self.path.contains("loss")
    }

    fn scenario(&self) -> String {
        let Self { name, path, .. } = self;
        format!(
            "name = 'fairness'\ntitle = '{name}'\n[path]\nrate = '{RATE}'\nrtt = '{RTT}'\n{path}\n\
             [[step]]\nname = 'none'\n"
        )
    }

    fn text(&self, shares: &[Shares]) -> String {
        let figures = |of: Figure<'_>| shares.iter().filter_map(of).collect::<Vec<_>>();
        let mbps = |rate: BitRate| Some(rate.as_mbps());
        let mut text = format!("\n{}: {RATE} × {RTT}, {}\n", self.name, self.path.replace('\n', ", "));
        let later = if self.later == Later::Cubic { "another" } else { "the copy" };
        let rows: [(String, Figure<'_>); 6] = [
            (format!("CUBIC next to {later}, Mbit/s"), &|shares| mbps(shares.cubic)),
            (format!("{later} next to CUBIC, Mbit/s"), &|shares| mbps(shares.later)),
            ("Jain index".to_owned(), &|shares| Some(jain(shares.cubic, shares.later))),
            (format!("part of {later} in both"), &|shares| {
                Some(shares.later.as_f64() / (shares.later.as_f64() + shares.cubic.as_f64()))
            }),
            (format!("{later} after CUBIC, Mbit/s"), &|shares| mbps(shares.behind?)),
            (format!("CUBIC next to {later} ÷ alone"), &|shares| Some(shares.cubic.as_f64() / shares.alone?.as_f64())),
        ];
        for (what, of) in rows {
            let figures = figures(of);
            if !figures.is_empty() {
                let _ = writeln!(text, "  {what:<32} {}", shown(ratio(&figures)));
            }
        }
        text
    }
}

/// A figure of a run.
type Figure<'f> = &'f dyn Fn(&Shares) -> Option<f64>;

/// Jain's index of two users: 1 if both have as much, 0.5 if one has all (Jain, Chiu and Hawe, 1984).
fn jain(one: BitRate, other: BitRate) -> f64 {
    let (one, other) = (one.as_f64(), other.as_f64());
    (one + other).powi(2) / (2.0 * (one * one + other * other)).max(f64::MIN_POSITIVE)
}

fn shown(ratio: Option<Ratio>) -> String {
    match ratio {
        Some(Ratio { median, interval: Some([low, high]) }) => format!("{median:.2} [{low:.2}, {high:.2}]"),
        Some(Ratio { median, interval: None }) => format!("{median:.2}"),
        None => "none".to_owned(),
    }
}

/// Returns a folder in memory, so that no disk limits what is copied.
pub(crate) fn folder_in_memory() -> Result<tempfile::TempDir, RunError> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).map_err(RunError::failed)
}

/// Makes a file with a key that nobody else may read.
pub(crate) fn write_key(at: &Path) -> Result<(), RunError> {
    let key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(at);
    key.and_then(|mut key| key.write_all(b"correct horse battery")).map_err(RunError::failed)
}

/// Bytes that were verified, and when.
type Progress = BTreeMap<Instant, ByteCount>;

/// Returns the mean rate between two times.
fn rate(progress: &Progress, from: Instant, until: Instant) -> BitRate {
    let at = |time: Instant| progress.range(..=time).next_back().map(|(at, bytes)| (*at, *bytes));
    let Some(((first, before), (last, behind))) = at(from).zip(at(until)) else { return BitRate::ZERO };
    BitRate::of(behind.saturating_sub(before), Span::from(last - first))
}

/// A lab that stands, with a server in its receiver and a file to copy.
struct Scene<'s> {
    fullpipe: &'s Path,
    stop: &'s AtomicBool,
    folder: tempfile::TempDir,
    name: String,
    _lab: Process,
    _server: Process,
}

impl<'s> Scene<'s> {
    fn start(case: &Case, fullpipe: &'s Path, stop: &'s AtomicBool) -> Result<Self, RunError> {
        let folder = folder_in_memory()?;
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("path.toml"), case.scenario()).map_err(RunError::failed)?;
        write_key(&at("key"))?;
        std::fs::create_dir(at("to")).map_err(RunError::failed)?;
        let most = RATE.bytes_in(Span::from(TO_SETTLE + JUDGED + BEHIND + TIMEOUT)).get() as usize;
        std::fs::write(at("file"), vec![1; most]).map_err(RunError::failed)?;
        let name = format!("fairness-{}", std::process::id());
        let mut command = Command::new(fullpipe);
        command.args(["lab", "up"]).arg(at("path.toml")).args(["--json-lines", "--interval", "1", "--name", &name]);
        let mut lab = Process::start(&mut command)?;
        lab.wait_until("come up", TIMEOUT, stop, |lab| !lab.stdout().is_empty())?;
        let mut command = join(fullpipe, &name, "receiver");
        command.args(["serve", "--no-iperf2", "--share"]).arg(at("to")).arg("--key-file").arg(at("key"));
        let mut server = Process::start(&mut command)?;
        server.wait_until("answer", TIMEOUT, stop, |_| listens(fullpipe, &name))?;
        Ok(Self { fullpipe, stop, folder, name, _lab: lab, _server: server })
    }

    /// Starts a measurement under CUBIC that is to settle once it was alone for so long.
    fn cubic(&self, alone: Duration) -> Result<Cubic<'s>, RunError> {
        let mut command = join(self.fullpipe, &self.name, "sender");
        command.args(["measure", RECEIVER, "-C", "cubic", "--json", "--no-store", "--key-file"]);
        command.arg(self.folder.path().join("key")).arg("-t");
        command.arg((alone + TO_SETTLE + JUDGED).as_secs().to_string());
        Ok(Cubic { process: Process::start(&mut command)?, judged_from: alone + TO_SETTLE, stop: self.stop })
    }

    fn copy(&self, flags: &[&str]) -> Result<Process, RunError> {
        let mut command = join(self.fullpipe, &self.name, "sender");
        command.arg("copy").arg(self.folder.path().join("file")).arg(format!("fullpipe://{RECEIVER}/"));
        command.arg("--key-file").arg(self.folder.path().join("key")).arg("--json-lines").args(flags);
        Process::start(&mut command)
    }

    fn wait(&self, time: Duration) -> Result<(), RunError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Notes how far a copy is, until `is_over`.
    fn watch(&self, copy: &Process, is_over: impl Fn() -> bool) -> Result<Progress, RunError> {
        let mut progress = Progress::from([(Instant::now(), ByteCount::ZERO)]);
        let mut seen = 0;
        while !is_over() {
            self.wait(POLL_INTERVAL)?;
            let said = copy.stdout();
            let whole = said.rfind('\n').map_or(0, |end| end + 1);
            for line in said[seen..whole].lines() {
                if let Ok(Event::CopyProgress(at)) = serde_json::from_str(line) {
                    progress.insert(Instant::now(), at.verified);
                }
            }
            seen = whole;
        }
        Ok(progress)
    }
}

/// A measurement under CUBIC.
struct Cubic<'s> {
    process: Process,
    /// Time from its start to that which is judged.
    judged_from: Duration,
    stop: &'s AtomicBool,
}

impl Cubic<'_> {
    fn finished(self) -> Result<BitRate, RunError> {
        let ended = self.process.finish(ALONE + TO_SETTLE + JUDGED + TIMEOUT, self.stop)?;
        let document: Result<Document, _> = serde_json::from_str(&ended.stdout);
        let Ok(Document { content: Content::Measurement { measurement, .. }, .. }) = document else {
            return Err(RunError::Failed(last_words(&ended.stderr, "fullpipe measure printed no result")));
        };
        let judged = measurement
            .intervals
            .iter()
            .filter(|interval| Duration::from(interval.from) + POLL_INTERVAL > self.judged_from);
        let (bytes, time) = judged.fold((ByteCount::ZERO, Span::ZERO), |(bytes, time), interval| {
            (bytes + interval.bytes, time + interval.to.saturating_sub(interval.from))
        });
        Ok(BitRate::of(bytes, time))
    }
}

/// Returns a command in a host of a lab, to which the arguments of fullpipe are to be added.
fn join(fullpipe: &Path, lab: &str, host: &str) -> Command {
    let mut command = Command::new(fullpipe);
    command.args(["lab", "exec", "--join", lab, host, "--"]).arg(fullpipe);
    command
}

/// Returns true if the server in the receiver takes measurements and copies.
fn listens(fullpipe: &Path, lab: &str) -> bool {
    let mut command = Command::new(fullpipe);
    command.args(["lab", "exec", "--join", lab, "receiver", "--", "cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    let tables = command.output().map(|output| output.stdout).unwrap_or_default();
    let tables = String::from_utf8_lossy(&tables).into_owned();
    [":1451 ", ":1452 "].iter().all(|port| tables.contains(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equals_and_a_half_if_one_has_all() {
        let of = |one, other| jain(BitRate::from_mbps(one), BitRate::from_mbps(other));
        assert!((of(40, 40) - 1.0).abs() < 1e-9 && (of(0, 90) - 0.5).abs() < 1e-9);
        assert!((of(77, 16) - 0.699).abs() < 1e-3);
    }

    #[test]
    fn a_rate_is_that_between_two_reports() {
        let began = Instant::now();
        let report = |seconds, mib| (began + Duration::from_secs(seconds), ByteCount::from_mib(mib));
        let progress = Progress::from([report(0, 0), report(2, 10), report(4, 30), report(6, 90)]);
        let at = |seconds| began + Duration::from_secs(seconds);
        let between = |from, until| rate(&progress, at(from), at(until));
        assert_eq!(between(2, 5), BitRate::of(ByteCount::from_mib(20), Span::from_secs(2)));
        assert_eq!(between(9, 9), BitRate::ZERO);
    }

    #[test]
    fn every_path_is_a_scenario() {
        for case in &CASES {
            fullpipe_scenario::Scenario::parse("x.toml", &case.scenario()).unwrap();
        }
    }
}

//! `fullpipe copy` next to one connection under CUBIC over an emulated path: the share of each. A second connection
//! under CUBIC in its place shows what the path makes of two equals.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_record::{Content, Document, Event};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::files::write_random;
use super::scene::{RECEIVER, Scene, TIMEOUT};
use super::shown;
use crate::process::{Process, RunError, last_words};
use crate::statistics::ratio;

/// The path, between a sender of both and a receiver of both.
const RATE: BitRate = BitRate::from_mbps(100);
const RTT: Span = Span::from_millis(50);

/// Time that CUBIC has the path alone, then that both have to find their shares, then that is judged, and then that a
/// copy has alone. What of it is judged begins a little later.
const ALONE: Duration = Duration::from_secs(4);
const TO_SETTLE: Duration = Duration::from_secs(8);
const JUDGED: Duration = Duration::from_mins(1);
const BEHIND: Duration = Duration::from_secs(12);
const TO_FILL: Duration = Duration::from_secs(4);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A path, and the one that comes to it later than CUBIC.
pub(super) struct Case {
    pub(super) name: &'static str,
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
pub(super) const CASES: [Case; 12] = [
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
    pub(super) fn run(&self, fullpipe: &Path, rounds: u16, stop: &AtomicBool) -> Result<String, RunError> {
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
        let measure_alone = || Shared::start(self, fullpipe, stop)?.cubic(ALONE)?.finished();
        let alone = self.has_loss().then(measure_alone).transpose()?;
        let shared = Shared::start(self, fullpipe, stop)?;
        let first = shared.cubic(ALONE)?;
        shared.wait(ALONE)?;
        let Later::Copy(flags) = self.later else {
            let later = shared.cubic(Duration::ZERO)?.finished()?;
            return Ok(Shares { alone, cubic: first.finished()?, later, behind: None });
        };
        let began = Instant::now();
        let copy = shared.copy(flags)?;
        let progress = shared.watch(&copy, || began.elapsed() > TO_SETTLE + JUDGED + BEHIND)?;
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

/// Bytes that were verified, and when.
type Progress = BTreeMap<Instant, ByteCount>;

/// Returns the mean rate between two times.
fn rate(progress: &Progress, from: Instant, until: Instant) -> BitRate {
    let at = |time: Instant| progress.range(..=time).next_back().map(|(at, bytes)| (*at, *bytes));
    let Some(((first, before), (last, behind))) = at(from).zip(at(until)) else { return BitRate::ZERO };
    BitRate::of(behind.saturating_sub(before), Span::from(last - first))
}

/// A path to share, and a file that is long enough.
struct Shared<'s> {
    scene: Scene<'s>,
    stop: &'s AtomicBool,
}

impl<'s> Shared<'s> {
    fn start(case: &Case, fullpipe: &'s Path, stop: &'s AtomicBool) -> Result<Self, RunError> {
        let scene = Scene::start(&case.scenario(), fullpipe, stop)?;
        write_random(&scene.at("file"), RATE.bytes_in(Span::from(TO_SETTLE + JUDGED + BEHIND + TIMEOUT)))?;
        Ok(Self { scene, stop })
    }

    /// Starts a measurement under CUBIC that is to settle once it was alone for so long.
    fn cubic(&self, alone: Duration) -> Result<Cubic<'s>, RunError> {
        let mut command = self.scene.fullpipe("sender");
        command.args(["measure", RECEIVER, "-C", "cubic", "--json", "--no-store", "--key-file"]);
        command.arg(self.scene.at("key")).arg("-t").arg((alone + TO_SETTLE + JUDGED).as_secs().to_string());
        Ok(Cubic { process: Process::start(&mut command)?, judged_from: alone + TO_SETTLE, stop: self.stop })
    }

    fn copy(&self, flags: &[&str]) -> Result<Process, RunError> {
        Process::start(self.scene.copy().arg("--json-lines").args(flags))
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

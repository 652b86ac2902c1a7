//! Captures of both ends of a case, taken by tcpdump, and what `trace` makes of each.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_experiment::{Known, judge_capture, judge_captures};
use fullpipe_record::{At, CaptureReport, Direction, Verdict};
use fullpipe_trace::{Explained, PacketFile, Reading, read_flows};
use rustix::process::{Pid, Signal, kill_process};

use super::network::{Host, Network};
use super::record::Record;
use super::score::{confusion, lower_bound};

/// Time that tcpdump has to begin.
const STARTING: Duration = Duration::from_secs(5);

/// Time after which the kernel has handed over every packet.
const BLOCK_TIME: Duration = Duration::from_millis(1200);

/// Bytes of each packet that are kept: every header that there is.
const SNAP_LENGTH: &str = "128";

/// Captures of both ends that go on until it is dropped.
pub(crate) struct Captures {
    running: Vec<Child>,
}

impl Captures {
    /// Begins to capture at both ends, into files in `folder` that begin with `name`.
    ///
    /// # Errors
    /// Fails if tcpdump does not start.
    pub(crate) fn start(network: &Network, folder: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut captures = Self { running: Vec::new() };
        for host in [Host::Near, Host::Far] {
            let file = path(folder, name, host);
            let words = ["tcpdump", "-i", "any", "-n", "-s", SNAP_LENGTH, "-B", "32768", "-w"].map(str::to_owned);
            let words = [&words[..], &[file.display().to_string(), "tcp".to_owned()]].concat();
            captures.running.push(network.command(host, &words).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
            // The file has its header as soon as tcpdump listens.
            let started = Instant::now();
            while fs::metadata(&file).map_or(0, |file| file.len()) == 0 && started.elapsed() < STARTING {
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(captures)
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        // The kernel hands packets over by the block, each after a second at most.
        thread::sleep(BLOCK_TIME);
        for child in &mut self.running {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                // It writes what it has, and ends; one that has ended needs nothing.
                let _ = kill_process(pid, Signal::INT);
            }
            let _ = child.wait();
        }
    }
}

fn path(folder: &Path, name: &str, host: Host) -> PathBuf {
    folder.join(format!("{name}-{}.pcap", if host == Host::Near { "near" } else { "far" }))
}

/// The captures that a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Sender,
    Receiver,
    BothEnds,
}

/// The verdict on the captures of a case.
#[derive(Debug)]
pub(crate) struct Seen {
    taken: Taken,
    expected: String,
    name: String,
    verdict: Option<Verdict>,
    point: Option<At>,
}

/// Returns what `trace` says of the captures of `record` in `folder`, each and both, if it counts.
pub(crate) fn seen(record: &Record, folder: &Path) -> Vec<Seen> {
    if record.left_out().is_some() {
        return Vec::new();
    }
    let download = record.evidence.as_ref().is_some_and(|evidence| evidence.request.direction == Direction::Download);
    let ends = if download { [Taken::Receiver, Taken::Sender] } else { [Taken::Sender, Taken::Receiver] };
    let known = Known { bandwidth: record.states_rate.then_some(record.bandwidth), ..Known::default() };
    let judged = |taken: Taken, report: CaptureReport| {
        let diagnosis = report.transfers.into_iter().next().map(|transfer| transfer.diagnosis);
        let evidence = diagnosis.as_ref().and_then(|diagnosis| diagnosis.evidence.as_ref());
        let point = evidence.and_then(|evidence| evidence.capture?.point);
        let (expected, name) = (record.expected.clone(), record.name.clone());
        Seen { taken, expected, name, point, verdict: diagnosis.map(|diagnosis| diagnosis.verdict) }
    };
    let files = [Host::Near, Host::Far].map(|host| path(folder, &record.stem(), host));
    let largest = |file: &PathBuf| read(file, Explained::Largest(1));
    let one = |(file, taken)| Some(judged(taken, judge_capture(largest(file)?, &known)));
    let both = || {
        let near = largest(&files[0])?;
        let far = read(&files[1], near.explained().map_or(Explained::Largest(1), Explained::Same))?;
        Some(judged(Taken::BothEnds, judge_captures(near, far, &known)))
    };
    files.iter().zip(ends).filter_map(one).chain(both()).collect()
}

/// Returns what a file holds; `None` without a connection: the far host sees nothing of a transfer over the near one's
/// loopback.
fn read(file: &Path, explained: Explained<'_>) -> Option<Reading> {
    let mut file = PacketFile::open(file).ok()?;
    let reading = read_flows(&mut file, "capture", explained, &AtomicBool::new(false));
    (!reading.report.flows.is_empty()).then_some(reading)
}

impl Taken {
    /// Returns the end at which one capture was taken.
    fn end(self) -> Option<At> {
        match self {
            Self::Sender => Some(At::Sender),
            Self::Receiver => Some(At::Receiver),
            Self::BothEnds => None,
        }
    }
}

impl Seen {
    fn said(&self) -> &str {
        self.verdict.as_ref().map_or("none", Verdict::name)
    }

    /// Returns whether the kind is right, or a candidate has it.
    fn is_right(&self) -> bool {
        let candidates = self.verdict.iter().flat_map(|verdict| &verdict.candidates);
        kind(self.said()) == kind(&self.expected)
            || candidates.into_iter().any(|candidate| candidate.kind.name() == kind(&self.expected))
    }

    /// It in a line.
    pub(crate) fn line(&self) -> String {
        let mark = if self.is_right() { "right" } else { "WRONG" };
        let place = match (self.taken.end(), self.point) {
            (None, _) => "",
            (end, point) if end == point => "",
            (_, Some(_)) => " (captured elsewhere)",
            (_, None) => " (place unknown)",
        };
        let many = self.verdict.as_ref().map_or(0, |verdict| verdict.candidates.len());
        let others = if many > 0 { format!(" (one of {many})") } else { String::new() };
        let sentence = self.verdict.as_ref().map_or("", |verdict| &verdict.sentence);
        format!("  {mark} {:?} {}: {}{others}{place}: {sentence}\n", self.taken, self.name, self.said())
    }
}

fn kind(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Share of right kinds by the captures that were read.
pub(crate) fn score(seen: &[Seen]) -> String {
    let mut text = String::new();
    for taken in [Taken::Sender, Taken::Receiver, Taken::BothEnds] {
        let of_end: Vec<&Seen> = seen.iter().filter(|seen| seen.taken == taken).collect();
        if of_end.is_empty() {
            continue;
        }
        let right = of_end.iter().filter(|seen| seen.is_right()).count();
        let share = |count: usize| count as f64 / of_end.len() as f64 * 100.0;
        let placed = taken.end().map_or_else(String::new, |end| {
            let placed = of_end.iter().filter(|seen| seen.point == Some(end)).count();
            let elsewhere = of_end.iter().filter(|seen| seen.point.is_some_and(|point| point != end)).count();
            format!("; place found in {:.0} %, wrong in {elsewhere}", share(placed))
        });
        let _ = writeln!(
            text,
            "\nCaptured at {taken:?}: {right} of {} right in kind ({:.0} %, at least {:.0} %){placed}\n",
            of_end.len(),
            share(right),
            lower_bound(right, of_end.len()) * 100.0,
        );
        let said = |seen: &Seen| if seen.is_right() { seen.expected.clone() } else { seen.said().to_owned() };
        text += &confusion(of_end.iter().map(|seen| (seen.expected.as_str(), said(seen))));
    }
    text
}

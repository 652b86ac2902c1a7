//! `bench trace`: makes captures, lets programs read them in turn, and prints how fast they were.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use flate2::read::MultiGzDecoder;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::made::{CaptureKind, MadeCapture};
use crate::comparison::{Outcome, Quantity, alternate};
use crate::process::{Process, RunError, last_words};
use crate::report::outcome_text;
use crate::{INTERRUPTED, LACKING, say};

/// Longest that a program may read a capture.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The captures to read.
#[derive(Debug, Args)]
pub(crate) struct CaptureReading {
    /// The captures to read; all if not given
    #[arg(value_enum, value_name = "CAPTURE")]
    captures: Vec<CaptureKind>,
    /// Number of runs of each program
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
    /// Captures with a tenth of the packets, for all programs
    #[arg(long)]
    short: bool,
    /// The program [default: next to this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
    /// Another build of it, such as that of the commit before
    #[arg(long, value_name = "PATH")]
    other: Option<PathBuf>,
}

/// A program that reads a capture, on so many processors.
struct CaptureReader {
    name: &'static str,
    /// The program and its arguments but for the path; without any, zlib decompresses the file.
    words: Vec<String>,
    processors: usize,
    /// True for one so slow that it gets a capture with a tenth of the packets.
    reads_tenth: bool,
}

impl CaptureReading {
    /// Reads the captures. The exit code does not depend on the speed.
    pub(crate) fn run(&self, program: &Path, stop: &AtomicBool) -> ExitCode {
        let captures = match self.captures.as_slice() {
            [] => CaptureKind::value_variants(),
            captures => captures,
        };
        for kind in captures {
            let outcome = match self.compare(*kind, program, stop) {
                Ok(outcome) => outcome,
                Err(error) => {
                    say(true, &format!("fullpipe-bench: {error}\n"));
                    return ExitCode::from(LACKING);
                }
            };
            say(false, &format!("{}\n", outcome_text(&outcome)));
            let own = outcome.tables.first().and_then(|table| table.rows.last());
            match own.and_then(|row| row.median) {
                _ if outcome.interrupted => return ExitCode::from(INTERRUPTED),
                None => return ExitCode::from(LACKING),
                Some(_) => {}
            }
        }
        ExitCode::SUCCESS
    }

    /// Lets each program read a capture, in turn.
    fn compare(
        &self,
        kind: CaptureKind,
        program: &Path,
        stop: &AtomicBool,
    ) -> Result<Outcome, RunError> {
        let (capture, tenth) = (
            MadeCapture::make(kind, if self.short { 10 } else { 1 })?,
            MadeCapture::make(kind, 10)?,
        );
        say(false, &heading(kind, &capture));
        let readers = self.readers(kind, program);
        let names: Vec<String> = readers
            .iter()
            .map(|reader| reader.name.to_owned())
            .collect();
        let quantities = [Quantity::PacketsPerSecond, Quantity::PeakMemory];
        let processors = sched_getaffinity(None)?;
        let outcome = alternate(&names, &quantities, self.rounds.into(), |number| {
            let reader = &readers[number];
            let capture = if reader.reads_tenth { &tenth } else { &capture };
            reader.read(capture, &processors, stop)
        });
        sched_setaffinity(None, &processors)?;
        Ok(outcome)
    }

    /// Returns the programs that read a capture; the others are compared with the last.
    fn readers(&self, kind: CaptureKind, program: &Path) -> Vec<CaptureReader> {
        let is_gzip = kind == CaptureKind::Gzip;
        let reader = |name, words: &[&str]| CaptureReader {
            name,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            processors: if is_gzip { usize::MAX } else { 1 },
            reads_tenth: name == "tshark",
        };
        let fullpipe = |name, path: &Path| reader(name, &[&path.to_string_lossy(), "trace"]);
        let mut readers = if is_gzip {
            vec![reader("zlib alone", &[])]
        } else {
            // Round-trip times, retransmissions and windows, for all connections.
            let tcptrace = reader("tcptrace", &["tcptrace", "-nlrW"]);
            let tshark = ["tshark", "-n", "-q", "-z", "conv,tcp", "-r"];
            vec![tcptrace, reader("tshark", &tshark)]
        };
        if kind == CaptureKind::Flows {
            readers.push(CaptureReader {
                processors: 2,
                ..fullpipe("fullpipe on two processors", program)
            });
        }
        let other = self.other.as_deref();
        readers.extend(other.map(|path| fullpipe("the other fullpipe", path)));
        readers.push(fullpipe("fullpipe", program));
        readers
    }
}

fn heading(kind: CaptureKind, capture: &MadeCapture) -> String {
    let value = kind.to_possible_value();
    let title = value.as_ref().and_then(|value| value.get_help());
    let title = title.map(ToString::to_string).unwrap_or_default();
    let megabytes = capture.bytes as f64 / 1e6;
    format!("{title}: {} packets, {megabytes:.0} MB\n", capture.packets)
}

impl CaptureReader {
    /// Reads a capture. Returns the packets a second and the most resident memory in bytes: of
    /// processor time on one processor, and else by the clock.
    fn read(
        &self,
        capture: &MadeCapture,
        processors: &CpuSet,
        stop: &AtomicBool,
    ) -> Result<Vec<f64>, RunError> {
        sched_setaffinity(None, &last_processors(processors, self.processors))?;
        let (began, packets) = (Instant::now(), capture.packets as f64);
        let Some((program, arguments)) = self.words.split_first() else {
            let file = io::BufReader::with_capacity(1 << 18, File::open(capture.path())?);
            io::copy(&mut MultiGzDecoder::new(file), &mut io::sink())?;
            return Ok(vec![packets / began.elapsed().as_secs_f64()]);
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(capture.path());
        let ended = Process::start_unheard(&mut command)?.finish(TIMEOUT, stop)?;
        if !ended.succeeded {
            return Err(RunError::Failed(last_words(&ended.stderr, "failed")));
        }
        let time = if self.processors == 1 {
            ended.cpu
        } else {
            began.elapsed()
        };
        let packets_per_second = packets / time.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(vec![packets_per_second, ended.peak.as_f64()])
    }
}

/// Returns the last `count` of some processors.
fn last_processors(all: &CpuSet, count: usize) -> CpuSet {
    let mut last = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .rev()
        .filter(|number| all.is_set(*number))
        .take(count)
        .for_each(|number| last.set(number));
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_permitted_processors_are_used() {
        let mut all = CpuSet::new();
        for number in [1, 4, 6] {
            all.set(number);
        }
        let last = last_processors(&all, 2);
        assert!(last.is_set(4) && last.is_set(6) && last.count() == 2);
        assert_eq!(last_processors(&all, usize::MAX), all);
    }

    #[test]
    fn memory_and_speed_of_a_reader_are_those_of_its_process() {
        let capture = MadeCapture::make(CaptureKind::Flows, 1000).unwrap();
        let reader = |words: &[&str]| CaptureReader {
            name: "cat",
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            processors: usize::MAX,
            reads_tenth: false,
        };
        let never = AtomicBool::new(false);
        let all = sched_getaffinity(None).unwrap();
        let figures = reader(&["cat"]).read(&capture, &all, &never).unwrap();
        assert!(figures[0] > 0.0 && figures[1] > 65_536.0, "{figures:?}");
        let failed = reader(&["cat", "/nonexistent"]).read(&capture, &all, &never);
        assert!(failed.unwrap_err().to_string().contains("/nonexistent"));
    }
}

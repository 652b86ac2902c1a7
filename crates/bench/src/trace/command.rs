//! `bench trace`: makes captures, lets programs read them in turn, and prints how fast they were.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};

use super::case::Case;
use super::reader::{Reader, Run};
use crate::process::RunError;
use crate::statistics::{Ratio, ratio};
use crate::{INTERRUPTED, LACKING, say};
use fullpipe_units::median;

/// The captures to read.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// The captures to read; all if not given
    #[arg(value_enum, value_name = "CAPTURE")]
    cases: Vec<Case>,
    /// Number of runs of each program; tshark has two at most
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
    /// Captures with a tenth of the packets, for all programs
    #[arg(long)]
    short: bool,
    /// The program [default: next to this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
}

/// Runs of a program over a capture.
struct Row {
    reader: Reader,
    packets: u64,
    bytes: u64,
    runs: Vec<Run>,
    /// Why there are no more of them.
    failure: Option<String>,
}

impl Reading {
    /// Reads the captures. The exit code does not depend on the speed.
    pub(crate) fn run(&self, program: &Path, stop: &AtomicBool) -> ExitCode {
        let cases = if self.cases.is_empty() {
            Case::value_variants()
        } else {
            &self.cases
        };
        for case in cases {
            match self.compare(*case, program, stop) {
                Ok(rows) => say(false, &table(*case, &rows)),
                Err(RunError::Interrupted) => return ExitCode::from(INTERRUPTED),
                Err(error) => {
                    say(true, &format!("fullpipe-bench: {error}\n"));
                    return ExitCode::from(LACKING);
                }
            }
        }
        ExitCode::SUCCESS
    }

    /// Lets each program read a capture, in turn.
    fn compare(&self, case: Case, program: &Path, stop: &AtomicBool) -> Result<Vec<Row>, RunError> {
        const TSHARK_ROUNDS: u16 = 2;
        let make = |is_short| case.make(is_short).map_err(RunError::failed);
        let (whole, tenth) = (make(self.short)?, make(true)?);
        let row = |reader: Reader| {
            let capture = if reader == Reader::Tshark {
                &tenth
            } else {
                &whole
            };
            Row {
                reader,
                packets: capture.packets,
                bytes: capture.bytes,
                runs: Vec::new(),
                failure: None,
            }
        };
        let mut rows: Vec<Row> = readers(case).into_iter().map(row).collect();
        for round in 0..self.rounds {
            for row in &mut rows {
                let is_slow = row.reader == Reader::Tshark;
                if row.failure.is_some() || is_slow && round >= TSHARK_ROUNDS {
                    continue;
                }
                let capture = if is_slow { &tenth } else { &whole };
                match row
                    .reader
                    .run(program, &capture.path(), case == Case::Gzip, stop)
                {
                    Ok(run) => row.runs.push(run),
                    Err(RunError::Failed(why)) if !row.reader.is_fullpipe() => {
                        row.failure = Some(why);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(rows)
    }
}

fn readers(case: Case) -> Vec<Reader> {
    let own: &[Reader] = match case {
        Case::Flows => &[Reader::Fullpipe, Reader::FullpipeOnTwo],
        _ => &[Reader::Fullpipe],
    };
    let reference = if case == Case::Gzip {
        Reader::Zlib
    } else {
        Reader::Tshark
    };
    [own, &[Reader::Tcptrace, reference]].concat()
}

impl Row {
    /// Packets per second of each run.
    fn rates(&self) -> Vec<f64> {
        self.runs
            .iter()
            .map(|run| self.packets as f64 / run.seconds.max(f64::MIN_POSITIVE))
            .collect()
    }

    fn line(&self, ours: &Row) -> String {
        let name = self.reader.name();
        let (Some(rate), None) = (median(self.rates()), &self.failure) else {
            return format!(
                "  {name:<10}  {}\n",
                self.failure.as_deref().unwrap_or("no run")
            );
        };
        let gigabytes = rate * self.bytes as f64 / self.packets as f64 / 1e9;
        let peak = self.runs.iter().map(|run| run.peak).max().unwrap_or(0) >> 20;
        let peak = if peak == 0 {
            String::new()
        } else {
            format!("{peak} MiB")
        };
        let against = match self.reader {
            Reader::Fullpipe => spread(&self.rates()),
            Reader::FullpipeOnTwo => format!("{} as fast as on one", ours.against(self)),
            _ => self.against(ours),
        };
        let line = format!(
            "  {name:<10} {:8.3} M/s {gigabytes:7.3} GB/s {peak:>9}   {against}",
            rate / 1e6
        );
        format!("{}\n", line.trim_end())
    }

    /// Returns how often as fast ours is.
    fn against(&self, ours: &Row) -> String {
        let ratios: Vec<f64> = ours
            .rates()
            .iter()
            .zip(self.rates())
            .map(|(ours, theirs)| ours / theirs)
            .collect();
        match ratio(&ratios) {
            Some(Ratio {
                median,
                interval: Some([low, high]),
            }) => format!("{median:.2} x ({low:.2} to {high:.2})"),
            Some(Ratio {
                median,
                interval: None,
            }) => format!("{median:.2} x"),
            None => String::new(),
        }
    }
}

/// Returns the slowest and the fastest run.
fn spread(rates: &[f64]) -> String {
    let [low, high] =
        [f64::min, f64::max].map(|of| rates.iter().copied().reduce(of).unwrap_or(0.0) / 1e6);
    format!("{low:.3} to {high:.3} M/s")
}

fn table(case: Case, rows: &[Row]) -> String {
    let Some(ours) = rows.first() else {
        return String::new();
    };
    let lines: String = rows.iter().map(|row| row.line(ours)).collect();
    format!(
        "{}: {} packets, {:.0} MB\n{lines}\n",
        case.title(),
        ours.packets,
        ours.bytes as f64 / 1e6
    )
}

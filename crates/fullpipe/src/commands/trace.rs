//! `fullpipe trace`: the connections in a capture.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fullpipe_experiment::{judge_capture, judge_captures};
use fullpipe_record::{CaptureReport, Content, Document, Event};
use fullpipe_report as report;
use fullpipe_trace::{Explained, PacketFile, read_flows};
use fullpipe_units::BitRate;

use crate::commands::Run;
use crate::commands::output::OutputArguments;
use crate::failure::{Failure, INTERRUPTED, USAGE};
use crate::terminal::{Format, Terminal};

/// The TCP connections in a capture, and what limited the largest.
///
/// Reads pcap and pcapng files, compressed or not, and lists what each connection moved, what was sent again, late,
/// reordered or not captured, its round-trip times and windows, and where on the path the capture was taken. The
/// transfer with most data, or the one of --flow, is judged as `diagnose` judges one: its limit, the figures that
/// decide, and what would help.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Capture file; `-` is standard input. A second one, of the same time from another place, shows what was lost and
    /// changed between both
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// Number of connections to list, those with most data first
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Print this connection of the list at length
    #[arg(long, value_name = "NO")]
    flow: Option<u64>,
    /// Capacity of the path, if known; it makes the verdict surer
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    #[command(flatten)]
    output: OutputArguments,
}

impl Run for Arguments {
    fn format(&self) -> Format {
        self.output.format()
    }

    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        let flag = super::interrupt_flag()?;
        let explained = self.flow.map_or(Explained::Largest(1), Explained::Flow);
        let mut files = self.files.iter().map(|file| open(file)).collect::<Result<Vec<_>, _>>()?.into_iter();
        let Some((mut file, name)) = files.next() else { return Ok(()) };
        let mut first = read_flows(&mut file, &name, explained, &flag);
        let mut error = first.error.take();
        let second =
            files.next().filter(|_| error.is_none() && !flag.load(Ordering::Relaxed)).map(|(mut file, name)| {
                let same = first.explained().map_or(explained, Explained::Same);
                let mut second = read_flows(&mut file, &name, same, &flag);
                error = second.error.take();
                second
            });
        let capture = match second {
            Some(second) => judge_captures(first, second, self.bandwidth),
            None => judge_capture(first, self.bandwidth),
        };
        let shown = self.show(capture, terminal);
        // What was read before an error or an interrupt is printed first.
        match error {
            Some(error) => Err(error.into()),
            None if flag.load(Ordering::Relaxed) => Err(Failure::already_printed(INTERRUPTED)),
            None => shown,
        }
    }
}

impl Arguments {
    fn show(&self, mut capture: CaptureReport, terminal: &Terminal) -> Result<(), Failure> {
        if let Some(number) = self.flow {
            let count = capture.flows.len();
            capture.retain(number);
            let text = report::one_flow(&capture, terminal.style()).ok_or_else(|| {
                Failure::new(USAGE, format!("there is no connection {number}: the capture has {count}"))
            })?;
            terminal.result(&text);
        } else {
            terminal.result(&report::capture(&capture, self.top, terminal.style()));
        }
        for flow in &capture.flows {
            terminal.event(&Event::Flow(Box::new(flow.clone())));
        }
        for pair in &capture.pairs {
            terminal.event(&Event::FlowPair(Box::new(pair.clone())));
        }
        terminal.document(&Document::new(Content::Capture { capture: Box::new(capture) }));
        Ok(())
    }
}

fn open(file: &Path) -> Result<(PacketFile, String), Failure> {
    if file == Path::new("-") {
        return Ok((PacketFile::new(std::io::stdin(), STANDARD_INPUT)?, STANDARD_INPUT.to_owned()));
    }
    Ok((PacketFile::open(file)?, file.display().to_string()))
}

const STANDARD_INPUT: &str = "standard input";

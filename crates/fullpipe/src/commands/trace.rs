//! `fullpipe trace`: the connections in a capture.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::advice;
use fullpipe_record::{CaptureReport, CapturedTransfer, Content, Diagnosis, Document, Event, Evidence};
use fullpipe_report as report;
use fullpipe_trace::{Explained, PacketFile, Reading, TransferEvidence, read_flows};
use fullpipe_units::BitRate;

use crate::commands::Run;
use crate::commands::output::OutputArguments;
use crate::failure::{Failure, INTERRUPTED, USAGE};
use crate::terminal::{Format, Terminal};

/// The TCP connections in a capture, and what limited the largest.
///
/// Reads pcap and pcapng files, compressed or not, and lists what each connection moved, what was sent again, late,
/// reordered or not captured, its round-trip times and windows, and where on the path the capture was taken. The
/// transfer with most data, or the one of --flow, is judged as `diagnose` judges one: its limit, the figures that decide,
/// and what would help.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Capture file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
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
        let name = self.file.display().to_string();
        let is_piped = self.file == Path::new("-");
        let mut file =
            if is_piped { PacketFile::new(std::io::stdin(), "standard input") } else { PacketFile::open(&self.file) }?;
        let name = if is_piped { "standard input".to_owned() } else { name };
        let flag = super::interrupt_flag()?;
        let explained = self.flow.map_or(Explained::Largest(1), Explained::Flow);
        let Reading { report, transfers, error } = read_flows(&mut file, &name, explained, &flag);
        let transfers = transfers.into_iter().map(|transfer| self.judge(transfer)).collect();
        let shown = self.show(CaptureReport { transfers, ..report }, terminal);
        // What was read before an error or an interrupt is printed first.
        match error {
            Some(error) => Err(error.into()),
            None if flag.load(Ordering::Relaxed) => Err(Failure::already_printed(INTERRUPTED)),
            None => shown,
        }
    }
}

impl Arguments {
    /// Returns what limited a transfer, and what would help.
    fn judge(&self, transfer: TransferEvidence) -> CapturedTransfer {
        let evidence = Evidence { bandwidth: self.bandwidth, ..transfer.evidence };
        let verdict = diagnose(&evidence);
        let remedies = advice(&evidence, &verdict);
        let diagnosis = Diagnosis { transfer: None, verdict, remedies, evidence: Some(evidence) };
        CapturedTransfer { flows: transfer.flows, diagnosis }
    }

    fn show(&self, mut capture: CaptureReport, terminal: &Terminal) -> Result<(), Failure> {
        if let Some(number) = self.flow {
            let count = capture.flows.len();
            capture.flows.retain(|flow| flow.number == number);
            let flow = capture.flows.first().ok_or_else(|| {
                Failure::new(USAGE, format!("there is no connection {number}: the capture has {count}"))
            })?;
            terminal.result(&report::flow(flow, &capture.transfers, terminal.style()));
        } else {
            terminal.result(&report::capture(&capture, self.top, terminal.style()));
        }
        for flow in &capture.flows {
            terminal.event(&Event::Flow(Box::new(flow.clone())));
        }
        terminal.document(&Document::new(Content::Capture { capture: Box::new(capture) }));
        Ok(())
    }
}

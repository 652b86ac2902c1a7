//! The limits of the transfers in a capture, and in two captures of the same transfers.

use std::path::Path;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{CaptureReport, CapturedTransfer, Diagnosis, Evidence, HostSettings};
use fullpipe_trace::{
    CaptureError, Explained, PacketFile, Reading, TransferEvidence, Wanted, of_both, pairs, read_flows,
};
use fullpipe_units::BitRate;

use crate::advice::advice;
use crate::target::Interrupt;

/// Facts of a captured transfer that its packets do not show.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Capacity of the path.
    pub bandwidth: Option<BitRate>,
    /// Settings of the host that sent the data.
    pub sender: Option<HostSettings>,
    /// Settings of the host that received it.
    pub receiver: Option<HostSettings>,
}

/// Returns the content of the file `first`, judged as [`judge_capture`] does; with a `second` file of the same time, as
/// [`judge_captures`] does. Damage ends the reading of a file, and what is before it is judged.
///
/// # Errors
/// Fails if a file cannot be opened, or is no capture.
pub fn judge_files(
    first: &Path,
    second: Option<&Path>,
    explained: Explained<'_>,
    known: &Known,
    interrupt: Interrupt<'_>,
) -> Result<CaptureReport, CaptureError> {
    let read = |path: &Path, explained: Explained<'_>| -> Result<Reading, CaptureError> {
        let mut file = PacketFile::open(path)?;
        let wanted = Wanted { explained, is_compared: second.is_some() };
        Ok(read_flows(&mut file, &path.display().to_string(), wanted, interrupt.0))
    };
    let first = read(first, explained)?;
    let Some(second) = second else { return Ok(judge_capture(first, known)) };
    let second = read(second, first.explained().map_or(explained, Explained::Same))?;
    Ok(judge_captures(first, second, known))
}

/// Returns the connections of a capture, with what limited the transfers of which evidence was asked for and what would
/// help.
pub fn judge_capture(reading: Reading, known: &Known) -> CaptureReport {
    let transfers = judged(reading.transfers, known);
    CaptureReport { transfers, ..reading.report }
}

/// Returns the connections of the first of two captures of the same time, judged, with losses and
/// changes between both. The verdict rests on the capture that was taken at the sender, if one was,
/// and on the work of devices between them.
pub fn judge_captures(first: Reading, second: Reading, known: &Known) -> CaptureReport {
    let pairs = pairs(first.flows(), second.flows());
    let evidence = of_both(first.transfers, &second.transfers, &first.report.flows, &pairs);
    let transfers = judged(evidence, known);
    CaptureReport { transfers, pairs, other: Some(Box::new(second.report)), ..first.report }
}

fn judged(transfers: Vec<TransferEvidence>, known: &Known) -> Vec<CapturedTransfer> {
    let judge = |transfer: TransferEvidence| {
        let Known { bandwidth, sender, receiver } = known.clone();
        let evidence = Evidence { bandwidth, sender, receiver, ..transfer.evidence };
        let verdict = diagnose(&evidence);
        let remedies = advice(&evidence, &verdict);
        let diagnosis = Diagnosis { transfer: None, verdict, remedies, defects: Vec::new(), evidence: Some(evidence) };
        CapturedTransfer { flows: transfer.flows, diagnosis }
    };
    transfers.into_iter().map(judge).collect()
}

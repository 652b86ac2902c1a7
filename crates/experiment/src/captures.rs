//! The limits of the transfers in a capture, and in two captures of the same transfers.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{CaptureReport, CapturedTransfer, Diagnosis, Evidence, HostSettings};
use fullpipe_trace::{Reading, TransferEvidence, of_both, pairs};
use fullpipe_units::BitRate;

use crate::advice::advice;

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

/// Returns the connections of a capture, with what limited the transfers of which evidence was asked for and what would
/// help.
pub fn judge_capture(reading: Reading, known: &Known) -> CaptureReport {
    let transfers = judged(reading.transfers, known);
    CaptureReport { transfers, ..reading.report }
}

/// Returns the same of the first of two captures of the same time, with what was lost and changed between both. The
/// verdict rests on the capture that was taken at the sender, if one was, and on the work of devices between them.
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
        let diagnosis = Diagnosis { transfer: None, verdict, remedies, evidence: Some(evidence) };
        CapturedTransfer { flows: transfer.flows, diagnosis }
    };
    transfers.into_iter().map(judge).collect()
}

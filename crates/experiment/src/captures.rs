//! The limits of the transfers in a capture, and in two captures of the same transfers.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{CaptureReport, CapturedTransfer, Diagnosis, Evidence};
use fullpipe_trace::{Reading, TransferEvidence, of_both, pairs};
use fullpipe_units::BitRate;

use crate::advice::advice;

/// Returns the connections of a capture, with what limited the transfers of which evidence was asked for and what would
/// help. `bandwidth` is the capacity of the path, if it is known.
pub fn judge_capture(reading: Reading, bandwidth: Option<BitRate>) -> CaptureReport {
    let transfers = judged(reading.transfers, bandwidth);
    CaptureReport { transfers, ..reading.report }
}

/// Returns the same of the first of two captures of the same time, with what was lost and changed between both. The
/// verdict rests on the capture that was taken at the sender, if one was, and on the work of devices between them.
pub fn judge_captures(first: Reading, second: Reading, bandwidth: Option<BitRate>) -> CaptureReport {
    let pairs = pairs(first.flows(), second.flows());
    let evidence = of_both(first.transfers, &second.transfers, &first.report.flows, &pairs);
    let transfers = judged(evidence, bandwidth);
    CaptureReport { transfers, pairs, other: Some(Box::new(second.report)), ..first.report }
}

fn judged(transfers: Vec<TransferEvidence>, bandwidth: Option<BitRate>) -> Vec<CapturedTransfer> {
    let judge = |transfer: TransferEvidence| {
        let evidence = Evidence { bandwidth, ..transfer.evidence };
        let verdict = diagnose(&evidence);
        let remedies = advice(&evidence, &verdict);
        let diagnosis = Diagnosis { transfer: None, verdict, remedies, evidence: Some(evidence) };
        CapturedTransfer { flows: transfer.flows, diagnosis }
    };
    transfers.into_iter().map(judge).collect()
}

//! The limits of the transfers in a capture, and in two captures of the same transfers.

use std::path::Path;

use fullpipe_diagnose::diagnose;
use fullpipe_observe::HostCounters;
use fullpipe_record::{CaptureReport, CapturedTransfer, Diagnosis};
use fullpipe_trace::{
    CaptureContent, CaptureError, CaptureUse, ExplainedTransfers, PacketFile, TransferEvidence,
    match_flows, of_both, read_flows,
};

use crate::advice::ranked_remedies;
use crate::prelude::*;
use crate::target::Interrupt;

/// Facts of a captured transfer that its packets do not show.
#[derive(Debug, Clone, Default)]
pub struct KnownFacts {
    /// Capacity of the path.
    pub bandwidth: Option<BitRate>,
    /// Settings of the host that sent the data.
    pub sender: Option<HostSettings>,
    /// Settings of the host that received it.
    pub receiver: Option<HostSettings>,
    /// Counters of the host where the capture was taken, or of the end that they show.
    pub counters: HostCounters,
}

/// Returns the content of the file `first`, judged as [`judge_capture`] does; with a `second` file
/// of the same time, as [`judge_captures`] does. Damage ends the reading of a file, and what is
/// before it is judged.
///
/// # Errors
/// Fails if a file cannot be opened, or is no capture.
pub fn judge_files(
    first: &Path,
    second: Option<&Path>,
    explained: ExplainedTransfers<'_>,
    known: &KnownFacts,
    interrupt: Interrupt<'_>,
) -> Result<CaptureReport, CaptureError> {
    let read =
        |path: &Path, explained: ExplainedTransfers<'_>| -> Result<CaptureContent, CaptureError> {
            let mut file = PacketFile::open(path)?;
            let wanted = CaptureUse {
                explained,
                is_compared: second.is_some(),
            };
            Ok(read_flows(
                &mut file,
                &path.display().to_string(),
                wanted,
                interrupt.0,
            ))
        };
    let first = read(first, explained)?;
    let Some(second) = second else {
        return Ok(judge_capture(first, known));
    };
    let second = read(
        second,
        first
            .explained_flow()
            .map_or(explained, ExplainedTransfers::Same),
    )?;
    Ok(judge_captures(first, second, known))
}

/// Returns the connections of a capture, with what limited the transfers of which evidence was
/// asked for and what would help.
pub fn judge_capture(reading: CaptureContent, known: &KnownFacts) -> CaptureReport {
    let transfers = judge_transfers(reading.transfers, known);
    CaptureReport {
        transfers,
        ..reading.report
    }
}

/// Returns the connections of the first of two captures of the same time, judged, with losses and
/// changes between both. The verdict rests on the capture that was taken at the sender, if one was,
/// and on the work of devices between them.
pub fn judge_captures(
    first: CaptureContent,
    second: CaptureContent,
    known: &KnownFacts,
) -> CaptureReport {
    let pairs = match_flows(first.flows_with_times(), second.flows_with_times());
    let evidence = of_both(
        first.transfers,
        &second.transfers,
        &first.report.flows,
        &pairs,
    );
    let transfers = judge_transfers(evidence, known);
    CaptureReport {
        transfers,
        pairs,
        other: Some(Box::new(second.report)),
        ..first.report
    }
}

fn judge_transfers(transfers: Vec<TransferEvidence>, known: &KnownFacts) -> Vec<CapturedTransfer> {
    transfers
        .into_iter()
        .map(|transfer| CapturedTransfer {
            flows: transfer.flows,
            diagnosis: judge_evidence(transfer.evidence, known.clone()),
        })
        .collect()
}

/// Returns the diagnosis of a transfer, with what is known of it.
fn judge_evidence(evidence: Evidence, known: KnownFacts) -> Diagnosis {
    let mut evidence = Evidence {
        bandwidth: known.bandwidth,
        sender: known.sender,
        receiver: known.receiver,
        ..evidence
    };
    let point = evidence.capture.as_ref().and_then(|capture| capture.point);
    known.counters.add_to(&mut evidence, point);
    let verdict = diagnose(&evidence);
    Diagnosis {
        transfer: None,
        remedies: ranked_remedies(&evidence, &verdict),
        verdict,
        defects: Vec::new(),
        next: Vec::new(),
        evidence: Some(evidence),
    }
}

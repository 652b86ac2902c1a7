//! The evidence of two captures of one transfer.

use fullpipe_record::{At, BurstRate, CaptureEvidence, Evidence, FlowPair, FlowReport};

use crate::changes::window_edit;
use crate::finish::TransferEvidence;

/// Returns the evidence of the transfers of the `first` capture with what the `second` adds to it. `flows` are the
/// connections of the first, and `pairs` those that both have.
pub fn of_both(
    first: Vec<TransferEvidence>,
    second: &[TransferEvidence],
    flows: &[FlowReport],
    pairs: &[FlowPair],
) -> Vec<TransferEvidence> {
    let joined = |transfer: TransferEvidence| {
        let Some(number) = transfer.flows.first().copied() else { return transfer };
        let Some(pair) = pairs.iter().find(|pair| pair.numbers[0] == number) else { return transfer };
        let other = second.iter().find(|other| other.flows.contains(&pair.numbers[1]));
        let (evidence, farther) = nearer_to_sender(transfer.evidence, other.map(|other| other.evidence.clone()));
        let edit = flows.iter().find(|flow| flow.number == number).map(|flow| window_edit(pair, flow.sender()));
        let beyond = farther.and_then(|evidence| evidence.capture).and_then(|capture| arrivals_at_receiver(&capture));
        let capture = evidence.capture.map(|capture| CaptureEvidence { window_edit: edit, beyond, ..capture });
        TransferEvidence { flows: transfer.flows, evidence: Evidence { capture, ..evidence } }
    };
    first.into_iter().map(joined).collect()
}

/// Returns the evidence of the capture that was taken at the sender first, if `other` is that and `one` is not.
fn nearer_to_sender(one: Evidence, other: Option<Evidence>) -> (Evidence, Option<Evidence>) {
    let is_at_sender = |evidence: &Evidence| evidence.capture.and_then(|capture| capture.point) == Some(At::Sender);
    match other {
        Some(other) if is_at_sender(&other) && !is_at_sender(&one) => (other, Some(one)),
        other => (one, other),
    }
}

/// Returns the most frequent rate at which packets arrive, where a capture was taken at the receiver.
fn arrivals_at_receiver(capture: &CaptureEvidence) -> Option<BurstRate> {
    let most = BurstRate::most_frequent([capture.arrivals, capture.departures].into_iter().flatten());
    most.filter(|_| capture.point == Some(At::Receiver))
}

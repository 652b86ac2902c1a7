//! The evidence of two captures of one transfer.

use fullpipe_record::{At, CaptureEvidence, Evidence, FlowPair, FlowReport};

use crate::changes::window_edit;
use crate::table::TransferEvidence;

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
        let evidence = nearer_to_sender(transfer.evidence, other);
        let edit = flows.iter().find(|flow| flow.number == number).map(|flow| window_edit(pair, flow.sender()));
        let capture = evidence.capture.map(|capture| CaptureEvidence { window_edit: edit, ..capture });
        TransferEvidence { flows: transfer.flows, evidence: Evidence { capture, ..evidence } }
    };
    first.into_iter().map(joined).collect()
}

/// Returns the evidence of the capture that was taken at the sender, if `other` is that and `one` is not.
fn nearer_to_sender(one: Evidence, other: Option<&TransferEvidence>) -> Evidence {
    let is_at_sender = |evidence: &Evidence| evidence.capture.and_then(|capture| capture.point) == Some(At::Sender);
    let other = other.map(|other| &other.evidence).filter(|other| is_at_sender(other));
    match other {
        Some(other) if !is_at_sender(&one) => other.clone(),
        _ => one,
    }
}

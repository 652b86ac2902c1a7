//! The evidence of two captures of one transfer.

use fullpipe_record::{At, BurstRate, CaptureEvidence, Evidence, FlowPair, FlowReport};
use fullpipe_units::{Span, median};

use crate::changes::{clamped_mss, window_edit};
use crate::finish::TransferEvidence;

/// Returns the evidence of the transfers of the `first` capture with what the `second` adds to it.
/// `flows` are the connections of the first, and `pairs` those that both have.
pub fn of_both(
    first: Vec<TransferEvidence>,
    second: &[TransferEvidence],
    flows: &[FlowReport],
    pairs: &[FlowPair],
) -> Vec<TransferEvidence> {
    first
        .into_iter()
        .map(|transfer| {
            let pair = pairs
                .iter()
                .find(|pair| transfer.flows.first() == Some(&pair.numbers[0]));
            match pair {
                Some(pair) => evidence_of_both(transfer, second, flows, pair),
                None => transfer,
            }
        })
        .collect()
}

/// Returns the evidence of one transfer, whose largest connection is the first of `pair`.
fn evidence_of_both(
    transfer: TransferEvidence,
    second: &[TransferEvidence],
    flows: &[FlowReport],
    pair: &FlowPair,
) -> TransferEvidence {
    let other = second
        .iter()
        .find(|other| other.flows.contains(&pair.numbers[1]))
        .map(|other| other.evidence.clone());
    let (evidence, farther) = nearer_to_sender(transfer.evidence, other);
    let flow = flows.iter().find(|flow| flow.number == pair.numbers[0]);
    let capture = evidence.capture.map(|capture| CaptureEvidence {
        window_edit: flow.map(|flow| window_edit(pair, flow.sender_index())),
        clamped_mss: clamped_mss(pair),
        beyond: farther.as_ref().and_then(arrivals_at_receiver),
        ..capture
    });
    let loaded_rtt = farther
        .filter(|_| is_at_sender(&evidence))
        .and_then(|farther| without_receiver(&farther));
    TransferEvidence {
        flows: transfer.flows,
        evidence: Evidence {
            capture,
            loaded_rtt,
            ..evidence
        },
    }
}

/// Returns the evidence of the capture that was taken at the sender first, if `other` is that and
/// `one` is not.
fn nearer_to_sender(one: Evidence, other: Option<Evidence>) -> (Evidence, Option<Evidence>) {
    match other {
        Some(other) if is_at_sender(&other) && !is_at_sender(&one) => (other, Some(one)),
        other => (one, other),
    }
}

fn is_at_sender(evidence: &Evidence) -> bool {
    evidence.capture.and_then(|capture| capture.point) == Some(At::Sender)
}

/// Returns the median round-trip time from the receiver to the sender and back, in which data waits
/// on the path and never for the receiver; `None` of a capture that was taken elsewhere, or without
/// timestamps.
fn without_receiver(evidence: &Evidence) -> Option<Span> {
    evidence
        .capture
        .filter(|capture| capture.point == Some(At::Receiver) && capture.by_echo)?;
    median(
        evidence
            .sender_samples
            .iter()
            .filter_map(|sample| sample.tcp.rtt)
            .collect(),
    )
}

/// Returns the most frequent rate at which packets arrive, where a capture was taken at the
/// receiver.
fn arrivals_at_receiver(evidence: &Evidence) -> Option<BurstRate> {
    let capture = evidence
        .capture
        .filter(|capture| capture.point == Some(At::Receiver))?;
    BurstRate::most_frequent([capture.arrivals, capture.departures].into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finish::ExplainedTransfers;
    use crate::table::FlowTable;
    use crate::test_segment::empty_segment;
    use fullpipe_record::{Sample, TcpInfo};
    use fullpipe_units::{ByteCount, Time};
    use fullpipe_wire::CapturedSegment;

    #[test]
    fn round_trips_without_the_receiver_are_those_of_a_capture_there() {
        let data = CapturedSegment {
            payload: 1448,
            ..empty_segment()
        };
        let mut flows = FlowTable::default();
        flows.add_segment(&data, Time::ZERO);
        let evidence = flows
            .finish_flows(ExplainedTransfers::Largest(1))
            .transfers
            .remove(0)
            .evidence;
        let sample = |millis| {
            let rtt = Some(Span::from_millis(millis));
            let tcp = TcpInfo {
                rtt,
                ..TcpInfo::default()
            };
            Sample {
                at: Span::ZERO,
                stream: 0,
                bytes: ByteCount::ZERO,
                tcp,
                memory: None,
            }
        };
        let at = |point, by_echo| {
            let capture = evidence.capture.map(|capture| CaptureEvidence {
                point: Some(point),
                by_echo,
                ..capture
            });
            let sender_samples = [40, 41, 90].map(sample).to_vec();
            without_receiver(&Evidence {
                capture,
                sender_samples,
                ..evidence.clone()
            })
        };
        assert_eq!(at(At::Receiver, true), Some(Span::from_millis(41)));
        assert_eq!((at(At::Receiver, false), at(At::Path, true)), (None, None));
    }
}

//! How much evidence there is, and what it rules out.

use crate::prelude::*;
use crate::signals::{ReceiverView, SeenEnd, SenderView, TransferView};

/// Amount of the evidence, and what it rules out.
pub(crate) struct EvidenceAmount {
    /// Mean rate of the judged part, all streams together.
    pub(crate) rate: BitRate,
    /// Segments with data in the whole transfer, retransmissions included.
    pub(crate) data_segments: Option<u64>,
    /// Round trips of the judged part.
    pub(crate) round_trips: Option<f64>,
    /// True if a full segment came through.
    pub(crate) full_segment_passed: bool,
    /// Looks at each connection, where there are only a few.
    pub(crate) few_looks: Option<u64>,
}

/// Multiple of the rate above which the ceiling of a window shows that something else held the
/// transfer (a choice, not measured).
const MAX_CEILING_FACTOR: f64 = 10.0;
/// Share of the rate below which the ceiling of a window shows that it held nothing back:
/// round-trip times vary.
const MIN_CEILING_SHARE: f64 = 0.67;
impl EvidenceAmount {
    pub(crate) fn from_view(view: &TransferView) -> Self {
        match &view.end {
            SeenEnd::Sender(figures) => Self::from_sender(figures),
            SeenEnd::Receiver(arrivals) => Self::from_receiver(arrivals),
        }
    }

    /// Returns those of the sending end, or of a capture.
    pub(crate) fn from_sender(figures: &SenderView) -> Self {
        let (begin, end) = figures.judged_period();
        let last = figures.flows.iter().filter_map(|flow| flow.whole.last());
        let of_capture = figures
            .evidence
            .capture
            .as_ref()
            .map(|capture| capture.full_segment_acknowledged);
        let by_bytes = last.clone().any(|last| {
            last.tcp
                .bytes_acked
                .zip(last.tcp.snd_mss)
                .is_some_and(is_above_mss)
        });
        Self {
            rate: figures.rate,
            // A capture counts every segment that it has, and may have none.
            data_segments: sum(last.map(|last| last.tcp.data_segs_out)).or(of_capture.map(|_| 0)),
            round_trips: rounds(end.saturating_sub(begin), figures.rtt),
            full_segment_passed: of_capture.unwrap_or(by_bytes),
            few_looks: figures.evidence.few_looks(),
        }
    }

    /// Returns those of the receiving end.
    pub(crate) fn from_receiver(arrivals: &ReceiverView) -> Self {
        let mut last = arrivals.whole.iter().filter_map(|flow| flow.last());
        let judged = arrivals
            .flows
            .iter()
            .filter_map(|flow| Some(flow.last()?.at.saturating_sub(flow.first()?.at)));
        Self {
            rate: arrivals.rate,
            data_segments: sum(last.clone().map(|last| last.tcp.data_segs_in)),
            round_trips: rounds(judged.max().unwrap_or_default(), arrivals.rtt),
            full_segment_passed: last.any(|last| {
                last.tcp
                    .bytes_received
                    .zip(last.tcp.rcv_mss)
                    .is_some_and(is_above_mss)
            }),
            few_looks: arrivals.evidence.few_looks(),
        }
    }

    /// Returns why a window or a buffer with this ceiling cannot be the limit.
    pub(crate) fn contradicted_by_ceiling(&self, ceiling: Option<BitRate>) -> Option<&'static str> {
        let ceiling = ceiling?;
        if ceiling.scale_by(1.0 / MIN_CEILING_SHARE) < self.rate {
            Some("a window that allows as much as was carried")
        } else if ceiling > self.rate.scale_by(MAX_CEILING_FACTOR) {
            Some("what held a transfer that its windows would have let be ten times as fast")
        } else {
            None
        }
    }
}

fn is_above_mss((bytes, mss): (ByteCount, ByteCount)) -> bool {
    mss > ByteCount::ZERO && bytes >= mss
}

pub(crate) fn sum(counts: impl Iterator<Item = Option<SegCount>>) -> Option<u64> {
    counts
        .flatten()
        .map(SegCount::get)
        .reduce(u64::saturating_add)
}

pub(crate) fn rounds(time: Span, rtt: Option<Span>) -> Option<f64> {
    rtt.filter(|rtt| *rtt > Span::ZERO)
        .map(|rtt| time.as_secs_f64() / rtt.as_secs_f64())
}

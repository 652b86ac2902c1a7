//! The gates that every verdict has to pass: how much evidence there is, and what it rules out.

use std::collections::BTreeMap;

use fullpipe_record::{At, LegalVerdict, Limit, MtuVerdict};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::finding::Finding;
use crate::runner_up;
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
/// Segments with data from which a transfer shows how fast it could have been; fewer fit into one
/// flight.
const MIN_DATA_SEGMENTS: u64 = 5;

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

    /// Returns why `found` cannot be the limit, whose ceiling is `ceiling` where it has one; `None`
    /// where nothing speaks against it.
    fn contradiction(&self, found: &Finding, ceiling: Option<BitRate>) -> Option<&'static str> {
        // What a device changes may be seen before it does.
        let is_of_a_size = runner_up::is_of_a_rule(found.limit_kind())
            && found.verdict.limit_place() != At::Middlebox;
        let ceiling = ceiling.filter(|_| is_of_a_size);
        let is_black_hole = found.verdict == LegalVerdict::from(MtuVerdict::BlackHole);
        match () {
            () if is_black_hole && self.full_segment_passed => {
                Some("packets too large to pass (full ones passed)")
            }
            () if ceiling
                .is_some_and(|most| most.scale_by(1.0 / MIN_CEILING_SHARE) < self.rate) =>
            {
                Some("a window that allows as much as was carried")
            }
            () if ceiling.is_some_and(|most| most > self.rate.scale_by(MAX_CEILING_FACTOR)) => {
                Some("what held a transfer that its windows would have let be ten times as fast")
            }
            () if self.is_too_little(found) => Some("more packets (so few show no limit)"),
            () => None,
        }
    }

    /// Returns the first of some findings that nothing speaks against, or else what spoke against
    /// the first; each with the ceilings of its limits.
    pub(crate) fn first_possible(
        &self,
        found: impl Iterator<Item = Finding>,
        ceilings: impl Fn(&Finding) -> BTreeMap<Limit, BitRate>,
    ) -> Result<Finding, Option<&'static str>> {
        let mut lacking = None;
        for one in found {
            let ceiling = ceilings(&one).get(&one.limit_kind()).copied();
            match self.contradiction(&one, ceiling) {
                None => return Ok(one),
                Some(reason) => lacking = lacking.or(Some(reason)),
            }
        }
        Err(lacking)
    }

    /// Returns true if there are too few packets to show how fast the transfer could have been.
    fn is_too_little(&self, found: &Finding) -> bool {
        // Silence and what makes it show in few packets.
        let shows_in_few = matches!(
            found.limit_kind(),
            Limit::Mtu
                | Limit::ReceiverApplication
                | Limit::ReceiveWindow
                | Limit::SenderApplication
                | Limit::Unknown
        );
        !shows_in_few
            && self
                .data_segments
                .is_some_and(|all| all < MIN_DATA_SEGMENTS)
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

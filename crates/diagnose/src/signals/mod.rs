//! Signals of a transfer, each from whatever view there is, and the gates that every verdict has to
//! pass.

pub(crate) mod arrival_course;
pub(crate) mod arrivals;
pub(crate) mod capture;
pub(crate) mod loss_episodes;
pub(crate) mod losses;
pub(crate) mod machine;
pub(crate) mod path;
pub(crate) mod policer_rate;
pub(crate) mod sender;
pub(crate) mod snapshot;
pub(crate) mod spread;
pub(crate) mod stream;
pub(crate) mod syn_quotes;
pub(crate) mod transfer_time;
pub(crate) mod view;

use std::collections::BTreeMap;

use fullpipe_record::{
    At, LegalVerdict, Limit, LossVerdict, MtuVerdict, ReceiverApplicationVerdict,
    SenderApplicationVerdict, TransferTimeUse,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::finding::Finding;
use crate::limits::receiver_application::slow_reader::NO_TIME_TO_READ;
use crate::limits::sender_application::idle::NO_TIME_TO_WRITE;
use crate::thresholds::MIN_LIMIT_SHARE;

pub(crate) use arrival_course::ArrivalCourse;
pub(crate) use arrivals::ReceiverView;
pub(crate) use capture::CaptureView;
pub(crate) use loss_episodes::LossEpisodes;
pub(crate) use sender::{RetransmittedSegments, SenderView, share_of_votes};
pub(crate) use snapshot::JudgedSample;
pub(crate) use stream::SenderStream;
pub(crate) use transfer_time::TransferTime;
pub(crate) use view::{SeenEnd, TransferView};

/// Amount of the evidence, and what it rules out.
pub(crate) struct Signals {
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

impl Signals {
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
        let is_of_a_size = matches!(found.limit_kind(), Limit::ReceiveWindow | Limit::SendBuffer | Limit::ApplicationWindow)
            // What a device changes may be seen before it does.
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

/// Multiple of the time of a transfer from which the silence after it shows that its program has
/// nothing to send (a choice, not measured).
const MIN_SILENCE_FACTOR: f64 = 20.0;

impl TransferTime {
    /// Returns the limit that the largest use of time shows where `found` explains none of it:
    /// timers, or a window that was closed, that took most of the transfer.
    pub(crate) fn decide(&self, found: Finding) -> Finding {
        let of_receiver = matches!(
            found.limit_kind(),
            Limit::ReceiveWindow
                | Limit::ReceiverApplication
                | Limit::ApplicationWindow
                | Limit::Cpu
        );
        if let Some(closed) = self
            .share_if_most(TransferTimeUse::WindowClosed)
            .filter(|_| !of_receiver)
        {
            return Finding::new(ReceiverApplicationVerdict::SlowReader, closed)
                .one_of(&NO_TIME_TO_READ);
        }
        // A program that has long had nothing to send, and asks at most whether the other end is
        // there.
        if self.share_of(TransferTimeUse::AfterTransfer).get() >= MIN_SILENCE_FACTOR
            && !found.may_be(Limit::Mtu)
        {
            return Finding::always(SenderApplicationVerdict::Idle).one_of(&NO_TIME_TO_WRITE);
        }
        let explains_timers =
            of_receiver || found.limit_kind() == Limit::Loss || found.may_be(Limit::Mtu);
        self.share_if_most(TransferTimeUse::RetransmissionTimeout)
            .filter(|_| !explains_timers)
            .map_or(found, |waited| Finding::new(LossVerdict::Random, waited))
    }

    /// Returns the share of the transfer's time that one use took, if that was most of it.
    fn share_if_most(&self, used_for: TransferTimeUse) -> Option<Ratio> {
        Some(self.share_of(used_for)).filter(|share| share.get() >= MIN_LIMIT_SHARE)
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

//! Segments that are needlessly small.

use fullpipe_model::framing;
use fullpipe_record::{
    At, Buffer, CaptureEvidence, CongestionWindowVerdict, Evidence, IpVersion, Limit, MtuVerdict,
    Scope,
};
use fullpipe_units::ByteCount;

use crate::advice::ManualRemedy;
use crate::finding::{Finding, candidate_sets};
use crate::limits::Cause;
use crate::limits::mtu::cause_of_size;
use crate::signals::{Row, SeenEnd, SenderView, TransferView, path, syn_quotes};
use crate::text::size_text;
use crate::thresholds::MIN_LIMIT_SHARE;

pub(crate) const CAUSE: Cause = Cause {
    manual_remedies: &[ManualRemedy::new(
        "larger-segments",
        Scope::Path,
        "A device between the ends lowers the largest segment in the handshake: its clamp should be \
         the MTU of its tunnel less the headers, no lower.",
    )],
    ..cause_of_size(
        &["mtu/mss-clamped"],
        |figures, finding| {
            let effect = if finding.candidates.is_some() {
                "a congestion window of as many of them holds so much less of the path"
            } else {
                "headers take the rest of the path"
            };
            format!(
                "A device {} lowers the size of segments: they carry only {} of data where {} would fit; {effect}, and \
                 {} of data arrives.",
                syn_quotes::device_place(figures.evidence),
                size_text(figures.mss),
                size_text(possible_mss_of_sender(figures)),
                figures.rate,
            )
        },
        |arrivals, _| {
            format!(
                "Segments hold only {}, though this end would take larger ones: their headers take a part of what the \
                 path carries, of which {} is data.",
                size_text(arrivals.mss()),
                arrivals.rate
            )
        },
    )
};

candidate_sets! {
    /// Small segments that are lost.
    SMALL_OR_LOST: [Loss Random, Loss Policer, Loss ShallowQueue],
        "a transfer with full segments: whether packets are lost as before";
    /// A window of small segments that grows back.
    SMALL_OR_RECOVERING: [CongestionWindow Recovering, Loss Random],
        "a transfer with full segments: whether packets are lost as before";
    /// Small segments that come evenly, in a capture.
    SMALL_OR_PACED: [Pacing MaxPacingRate, Pacing Qdisc],
        "whether the sender's program sets a pace, and a transfer with full segments";
}

/// Finds segments so small that their headers take the difference to what the path could carry,
/// though both devices would let larger ones pass and the program did not ask for it.
pub(crate) fn find_cause(view: &TransferView, found: &Finding) -> Option<Finding> {
    let is_automatic = view.evidence.request.buffer == Buffer::Automatic;
    let may_be = match found.limit_kind() {
        Limit::Capacity => true,
        // A receiver that tunes its window by what packets cost it makes a small one of many small
        // packets.
        Limit::ReceiveWindow => is_automatic && view.sender().is_some(),
        _ => false,
    };
    (may_be && has_small_segments(view)?).then(|| found.as_verdict(MtuVerdict::MssClamped))
}

/// Finds such segments behind a limit that counts them: a congestion window of as many large ones
/// would hold more of the path. A short queue takes single ones of many small packets, as chance
/// does, and BBR's pace looks from behind the device like one that a program set.
pub(crate) fn behind_window(view: &TransferView, found: &Finding) -> Option<Finding> {
    let set = match found.limit_kind() {
        Limit::Loss => &SMALL_OR_LOST,
        Limit::CongestionWindow if found.is(CongestionWindowVerdict::Recovering) => {
            &SMALL_OR_RECOVERING
        }
        Limit::Unknown if found.share.get() >= MIN_LIMIT_SHARE => &SMALL_OR_LOST,
        Limit::Pacing if view.packets().is_some() => &SMALL_OR_PACED,
        _ => return None,
    };
    let traced = found.as_verdict(MtuVerdict::MssClamped).one_of(set);
    has_small_segments(view)?.then_some(traced)
}

/// Returns the row on such segments beside another limit.
pub(crate) fn size_row(view: &TransferView) -> Row {
    let small = segment_sizes(view).filter(|_| has_small_segments(view) == Some(true));
    let text = small.map(|[got, possible]| format!("{got} in each, where {possible} would fit"));
    ("data of small segments", text)
}

/// Returns true if the segments of a transfer are so small; `None` where their size or that of the
/// largest possible ones is not known.
fn has_small_segments(view: &TransferView) -> Option<bool> {
    match &view.end {
        SeenEnd::Sender(figures) => is_clamped(figures),
        SeenEnd::Receiver(arrivals) => {
            let timestamps = arrivals.has_timestamps();
            Some(is_needlessly_small(
                segment_sizes(view)?,
                view.evidence,
                timestamps,
            ))
        }
    }
}

/// Returns the payload of a segment and that of the largest possible one.
fn segment_sizes(view: &TransferView) -> Option<[ByteCount; 2]> {
    let possible = match &view.end {
        SeenEnd::Sender(figures) => possible_mss_of_sender(figures)?,
        SeenEnd::Receiver(arrivals) => possible_mss(
            view.evidence,
            arrivals.path_mtu(),
            arrivals.has_timestamps(),
        )?,
    };
    Some([view.mss()?, possible])
}

/// Returns true if the segments of a sender are so small; `None` where their size or that of the
/// largest possible ones is not known.
pub(crate) fn is_clamped(figures: &SenderView) -> Option<bool> {
    let sizes = [figures.mss?, possible_mss_of_sender(figures)?];
    let timestamps = figures.has_timestamps();
    Some(is_needlessly_small(sizes, figures.evidence, timestamps))
}

/// Share of the efficiency of full segments below which small segments are the limit.
const MSS_EFFICIENCY_SHARE: f64 = 0.9;

/// Returns true if segments carry clearly less of a full path as data than the largest possible
/// ones would, and no program asked for it.
fn is_needlessly_small(
    got_and_possible: [ByteCount; 2],
    evidence: &Evidence,
    timestamps: bool,
) -> bool {
    let [got, possible] =
        got_and_possible.map(|mss| path::payload_share(evidence, mss, timestamps).get());
    evidence.request.mss.is_none() && got < possible * MSS_EFFICIENCY_SHARE
}

/// Returns the payload of the largest segment that both devices, as far as they are known, and the
/// path would let pass.
fn possible_mss(
    evidence: &Evidence,
    path_mtu: Option<ByteCount>,
    timestamps: bool,
) -> Option<ByteCount> {
    let headers = framing::tcp_headers(IpVersion::V4, timestamps);
    if let Some(capture) = &evidence.capture {
        let options = headers.saturating_sub(framing::tcp_headers(IpVersion::V4, false));
        return Some(captured_mss(capture).saturating_sub(options));
    }
    let devices = [
        &evidence.sender_machine.device,
        &evidence.receiver_machine.device,
    ];
    let devices = devices.into_iter().flatten().map(|device| device.mtu);
    let known = devices.chain(path_mtu).filter(|mtu| *mtu > ByteCount::ZERO);
    Some(known.min()?.saturating_sub(headers))
}

/// Returns the payload of the largest possible segment, as the sending end knows it.
fn possible_mss_of_sender(figures: &SenderView) -> Option<ByteCount> {
    possible_mss(
        figures.evidence,
        figures.path_mtu(),
        figures.has_timestamps(),
    )
}

/// Returns the payload, with the options of TCP, of the largest segment that a host offers in a
/// capture, or that of an Ethernet where no handshake shows it.
fn captured_mss(capture: &CaptureEvidence) -> ByteCount {
    /// A host that offers more has jumbo frames, which few paths carry.
    const ETHERNET: ByteCount = ByteCount::new(1460);
    /// Every link that carries IPv6 lets it pass (RFC 8200, 5).
    const MIN_USUAL: ByteCount = ByteCount::new(1220);
    let offered = capture.largest_mss.unwrap_or(ETHERNET);
    // Between the ends a device may have lowered what both offered.
    let is_lowered =
        !matches!(capture.point, Some(At::Sender | At::Receiver)) && offered < MIN_USUAL;
    if is_lowered {
        ETHERNET
    } else {
        offered.min(ETHERNET)
    }
}

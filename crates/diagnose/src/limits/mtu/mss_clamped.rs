//! Segments that are needlessly small.

use fullpipe_model::framing;
use fullpipe_record::MtuVerdict;

use crate::limits::mtu::cause_of_size;
use crate::limits::prelude::*;
use crate::signals::{Row, SeenEnd, path, syn_quotes};

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
            let [mss, possible] = small_segments_of_sender(figures).unwrap_or_default();
            format!(
                "A device {} lowers the size of segments: they carry only {mss} of data where {possible} would fit; \
                 {effect}, and {} of data arrives.",
                syn_quotes::device_place(figures.evidence),
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
    (may_be && small_segments(view).is_some()).then(|| found.as_verdict(MtuVerdict::MssClamped))
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
    small_segments(view)?;
    Some(found.as_verdict(MtuVerdict::MssClamped).one_of(set))
}

/// Returns the row on such segments beside another limit.
pub(crate) fn size_row(view: &TransferView) -> Row {
    let text = small_segments(view)
        .map(|[got, possible]| format!("{got} in each, where {possible} would fit"));
    ("data of small segments", text)
}

/// Returns the payload of segments that carry clearly less of a full path as data than the largest
/// possible ones would, though no program asked for it, and that of those; `None` of others.
fn small_segments(view: &TransferView) -> Option<[ByteCount; 2]> {
    match &view.end {
        SeenEnd::Sender(figures) => small_segments_of_sender(figures),
        SeenEnd::Receiver(arrivals) => {
            let (mss, path_mtu) = (arrivals.mss()?, arrivals.path_mtu());
            clearly_smaller(mss, path_mtu, view.evidence, arrivals.has_timestamps())
        }
    }
}

/// Returns those of a sender.
pub(crate) fn small_segments_of_sender(figures: &SenderView) -> Option<[ByteCount; 2]> {
    let (mss, path_mtu) = (figures.mss?, figures.path_mtu());
    clearly_smaller(mss, path_mtu, figures.evidence, figures.has_timestamps())
}

/// Share of the efficiency of full segments below which small segments are the limit.
const MSS_EFFICIENCY_SHARE: f64 = 0.9;

fn clearly_smaller(
    mss: ByteCount,
    path_mtu: Option<ByteCount>,
    evidence: &Evidence,
    timestamps: bool,
) -> Option<[ByteCount; 2]> {
    let sizes = [mss, possible_mss(evidence, path_mtu, timestamps)?];
    let [got, possible] = sizes.map(|mss| path::payload_share(evidence, mss, timestamps).get());
    let is_small = evidence.request.mss.is_none() && got < possible * MSS_EFFICIENCY_SHARE;
    is_small.then_some(sizes)
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

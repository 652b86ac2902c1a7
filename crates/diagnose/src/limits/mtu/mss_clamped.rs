//! Segments that are needlessly small.

use fullpipe_model::framing;
use fullpipe_record::{At, Buffer, CaptureEvidence, Evidence, IpVersion, Limit, MtuVerdict};
use fullpipe_units::ByteCount;

use crate::finding::Finding;
use crate::signals::{ReceiverView, SenderView, path};

/// Finds segments so small that their headers take the difference to what the path could carry,
/// though both devices would let larger ones pass and the program did not ask for it.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let request = &figures.evidence.request;
    // A receiver that tunes its window by what packets cost it makes a small one of many small
    // packets.
    let by_small_packets =
        found.limit_kind() == Limit::ReceiveWindow && request.buffer == Buffer::Automatic;
    if request.mss.is_some() || !(found.limit_kind() == Limit::Capacity || by_small_packets) {
        return None;
    }
    let (got, possible) = (figures.mss?, possible_mss(figures)?);
    are_needlessly_small([got, possible], figures.evidence, figures.has_timestamps())
        .then(|| found.as_verdict(MtuVerdict::MssClamped))
}

/// Share of the efficiency of full segments below which small segments are the limit.
const MSS_EFFICIENCY_SHARE: f64 = 0.9;

/// Returns true if segments carry clearly less of a full path as data than the largest possible
/// ones would.
fn are_needlessly_small(
    got_and_possible: [ByteCount; 2],
    evidence: &Evidence,
    timestamps: bool,
) -> bool {
    let [got, possible] =
        got_and_possible.map(|mss| path::payload_share(evidence, mss, timestamps).get());
    got < possible * MSS_EFFICIENCY_SHARE
}

/// Finds the same from the receiving end, whose device is known.
pub(crate) fn behind_arrivals(arrivals: &ReceiverView, found: &Finding) -> Option<Finding> {
    let evidence = arrivals.evidence;
    let device = evidence
        .receiver_machine
        .device
        .iter()
        .map(|device| device.mtu);
    let stated = arrivals
        .snapshots()
        .filter_map(|snapshot| snapshot.tcp.path_mtu)
        .max();
    let mtu = device
        .chain(stated)
        .filter(|mtu| *mtu > ByteCount::ZERO)
        .min()?;
    let timestamps = arrivals
        .snapshots()
        .find_map(|snapshot| snapshot.tcp.timestamps)
        .unwrap_or(true);
    let possible = mtu.saturating_sub(framing::tcp_headers(IpVersion::V4, timestamps));
    let is_small = are_needlessly_small([arrivals.mss()?, possible], evidence, timestamps);
    let may_be = evidence.request.mss.is_none() && found.limit_kind() == Limit::Capacity;
    (may_be && is_small).then(|| found.as_verdict(MtuVerdict::MssClamped))
}

/// Returns the payload of the largest segment that both devices, as far as they are known, would
/// let pass.
pub(crate) fn possible_mss(figures: &SenderView) -> Option<ByteCount> {
    let evidence = figures.evidence;
    let headers = framing::tcp_headers(IpVersion::V4, figures.has_timestamps());
    if let Some(capture) = &evidence.capture {
        let options = headers.saturating_sub(framing::tcp_headers(IpVersion::V4, false));
        return Some(captured_mss(capture).saturating_sub(options));
    }
    let devices = [
        &evidence.sender_machine.device,
        &evidence.receiver_machine.device,
    ];
    let devices = devices.into_iter().flatten().map(|device| device.mtu);
    let stated = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.path_mtu)
        .max();
    let mtu = devices
        .chain(stated)
        .filter(|mtu| *mtu > ByteCount::ZERO)
        .min()?;
    Some(mtu.saturating_sub(headers))
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

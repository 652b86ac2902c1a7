//! Packets of the wrong size: too large for a link on the way, or needlessly small.

use fullpipe_model::framing;
use fullpipe_record::{
    At, Buffer, CaptureEvidence, Change, Evidence, IpVersion, Limit, MtuVerdict, Remedy, Sample,
    Scope,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount};

use crate::advice::RemedyAdvice;
use crate::arrivals::ReceiverSampleFigures;
use crate::figures::SenderSampleFigures;
use crate::finding::LimitFinding;
use crate::flow::SenderStream;
use crate::limits::LimitFacts;
use crate::manual_remedy::ManualRemedy;
use crate::path;
use crate::syn_quotes;
use crate::text::{self, Row, size_text};
use crate::thresholds::{MIN_TIME_WITHOUT_PROGRESS, MIN_TIMEOUTS, MSS_EFFICIENCY_SHARE};

/// Finds segments so small that their headers take the difference to what the path could carry,
/// though both devices would let larger ones pass and the program did not ask for it.
pub(crate) fn find_cause(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
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
pub(crate) fn behind_arrivals(
    arrivals: &ReceiverSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
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
fn possible_mss(figures: &SenderSampleFigures) -> Option<ByteCount> {
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

/// Finds full segments that vanish: small packets come and go, but none of a full size ever
/// arrived, and the sender times out again and again. A path that has let full ones pass loses
/// packets of any size.
pub(crate) fn without_progress(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let last: Vec<&Sample> = figures
        .flows
        .iter()
        .filter_map(|flow| flow.whole.last().copied())
        .collect();
    let all_silent = !last.is_empty()
        && figures.flows.iter().all(|flow| {
            flow.silent_for(|sample| sample.tcp.bytes_acked) >= MIN_TIME_WITHOUT_PROGRESS
        });
    // A sender that only probes a closed window, or one of less than a segment, has nothing on the
    // way that vanishes.
    let all_time_out = last.iter().all(|sample| {
        sample.outstanding_bytes() != Some(ByteCount::ZERO) && timeout_count(sample) >= MIN_TIMEOUTS
    });
    (no_full_segment_passed(figures, &last) && all_silent && all_time_out)
        .then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
}

/// Returns true if none of a full size ever arrived, as the `last` sample of each stream and those
/// of the receiver show it, and small packets do.
fn no_full_segment_passed(figures: &SenderSampleFigures, last: &[&Sample]) -> bool {
    // Its acknowledgement may have been lost.
    let mut received = figures.evidence.receiver_samples.iter();
    let has_arrived =
        figures.mss.is_some() && received.any(|sample| sample.tcp.bytes_received >= figures.mss);
    // Where it is not known that none passed, only the round trips of echo requests show that small
    // packets do.
    let unknown_passes = figures.evidence.loaded_rtt.is_some();
    let mut tcp = last.iter().map(|sample| &sample.tcp);
    !has_arrived
        && tcp.all(|tcp| {
            tcp.bytes_acked
                .map_or(unknown_passes, |acked| Some(acked) < tcp.snd_mss)
        })
}

/// Returns true if a sender of which no answer was captured sends the same again when its timer
/// expires, and nothing else any more.
pub(crate) fn repeats_without_more(flow: &SenderStream) -> bool {
    let is_silent = flow.silent_for(|sample| sample.bytes) >= MIN_TIME_WITHOUT_PROGRESS;
    is_silent
        && flow
            .whole
            .last()
            .is_some_and(|last| timeout_count(last) >= MIN_TIMEOUTS)
}

/// Returns the timeouts since the last progress.
fn timeout_count(sample: &Sample) -> u64 {
    sample.tcp.timeouts_in_a_row.map_or(0, SegCount::get)
}

/// The figures of packets of the wrong size.
pub(crate) struct PacketSize {
    verdict: MtuVerdict,
    rate: BitRate,
    mss: Option<ByteCount>,
    /// Payload that the devices of both ends would let pass.
    possible: Option<ByteCount>,
    /// Part of the path that has the device.
    place: String,
    shown: Vec<Row>,
}

impl PacketSize {
    pub(crate) fn from_figures(verdict: MtuVerdict, figures: &SenderSampleFigures) -> Self {
        Self {
            verdict,
            rate: figures.rate,
            mss: figures.mss,
            possible: possible_mss(figures),
            place: syn_quotes::device_place(figures.evidence),
            shown: text::trend_rows(figures),
        }
    }
}

impl LimitFacts for PacketSize {
    fn sentence(&self) -> String {
        let mss = size_text(self.mss);
        match self.verdict {
            MtuVerdict::BlackHole => format!(
                "Packets with {mss} of data vanish on the path without an ICMP error: small packets pass, full ones do \
                 not."
            ),
            MtuVerdict::MssClamped => format!(
                "A device {} lowers the size of segments: they carry only {mss} of data where {} would fit; headers \
                 take the rest of the path, and {} of data arrives.",
                self.place,
                size_text(self.possible),
                self.rate,
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("the size of the packets that reached it")
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self.verdict {
            MtuVerdict::BlackHole => vec![probe_the_mtu(advice)],
            MtuVerdict::MssClamped => Vec::new(),
        }
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            MtuVerdict::BlackHole => &[
                ManualRemedy {
                    id: "let-too-big-pass",
                    scope: Scope::Path,
                    at: None,
                    why: "A narrow link drops full packets and its ICMP error is filtered: let ICMP \"too big\" pass, \
                          and the sender learns the size at once.",
                },
                ManualRemedy {
                    id: "lower-the-mtu",
                    scope: Scope::Host,
                    at: Some(At::Sender),
                    why: "An MTU of the device, or of the route, that the narrow link lets pass: with it no packet is \
                          too large.",
                },
            ],
            MtuVerdict::MssClamped => &[ManualRemedy {
                id: "larger-segments",
                scope: Scope::Path,
                at: None,
                why: "A device between the ends lowers the largest segment in the handshake: its clamp should be the \
                      MTU of its tunnel less the headers, no lower.",
            }],
        }
    }
}

/// Lets the sender find a size of packets that arrives.
fn probe_the_mtu(advice: &RemedyAdvice) -> Remedy {
    let changes = vec![Change::Sysctl {
        name: "net.ipv4.tcp_mtu_probing".to_owned(),
        value: "1".to_owned(),
    }];
    let why = "A narrow link drops full packets and its ICMP error does not arrive: with probing the sender tries \
               smaller ones after some timeouts, and keeps to a size that arrives.";
    let predicted = advice
        .outlook
        .as_ref()
        .and_then(|outlook| outlook.forecast_of_probing(&changes));
    let remedy = advice.build_remedy(
        "probe-the-mtu",
        Scope::Namespace,
        At::Sender,
        changes,
        why.to_owned(),
    );
    Remedy {
        predicted,
        ..remedy
    }
}

//! Packets of the wrong size: too large for a link on the way, or needlessly small.

use fullpipe_model::framing;
use fullpipe_record::{At, Buffer, Change, IpVersion, Limit, MtuVerdict, Remedy, Sample, Scope};
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
    let efficiency =
        |mss: ByteCount| path::payload_share(figures.evidence, mss, figures.has_timestamps()).get();
    (efficiency(got) < efficiency(possible) * MSS_EFFICIENCY_SHARE)
        .then(|| found.as_verdict(MtuVerdict::MssClamped))
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
    let efficiency = |mss: ByteCount| path::payload_share(evidence, mss, timestamps).get();
    let is_small = efficiency(arrivals.mss()?) < efficiency(possible) * MSS_EFFICIENCY_SHARE;
    let may_be = evidence.request.mss.is_none() && found.limit_kind() == Limit::Capacity;
    (may_be && is_small).then(|| found.as_verdict(MtuVerdict::MssClamped))
}

/// Returns the payload of the largest segment that both devices, as far as they are known, would
/// let pass; of a capture, the one that a host offers, or that of an Ethernet where no handshake
/// shows it.
fn possible_mss(figures: &SenderSampleFigures) -> Option<ByteCount> {
    /// A host that offers more has jumbo frames, which few paths carry.
    const ETHERNET: ByteCount = ByteCount::new(1460);
    /// Every link that carries IPv6 lets it pass (RFC 8200, 5).
    const MIN_USUAL: ByteCount = ByteCount::new(1220);
    let evidence = figures.evidence;
    let devices = [
        &evidence.sender_machine.device,
        &evidence.receiver_machine.device,
    ];
    let devices = devices.into_iter().flatten().map(|device| device.mtu);
    let stated = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.path_mtu)
        .max();
    let headers = |timestamps: bool| framing::tcp_headers(IpVersion::V4, timestamps);
    let options = headers(figures.has_timestamps()).saturating_sub(headers(false));
    if let Some(capture) = &evidence.capture {
        let offered = capture.largest_mss.unwrap_or(ETHERNET);
        // Between the ends a device may have lowered what both offered.
        let is_lowered =
            !matches!(capture.point, Some(At::Sender | At::Receiver)) && offered < MIN_USUAL;
        let possible = if is_lowered {
            ETHERNET
        } else {
            offered.min(ETHERNET)
        };
        return Some(possible.saturating_sub(options));
    }
    let mtu = devices
        .chain(stated)
        .filter(|mtu| *mtu > ByteCount::ZERO)
        .min()?;
    Some(mtu.saturating_sub(headers(figures.has_timestamps())))
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
    let passed = |sample: &&Sample| {
        sample
            .tcp
            .bytes_acked
            .map(|acked| Some(acked) >= sample.tcp.snd_mss)
    };
    // Where it is not known that none passed, only the round trips of echo requests show that small
    // packets do.
    let unknown_passes = figures.evidence.loaded_rtt.is_some();
    // Its acknowledgement may have been lost.
    let has_arrived =
        |sample: &Sample| figures.mss.is_some() && sample.tcp.bytes_received >= figures.mss;
    let only_small_ones_pass = !figures.evidence.receiver_samples.iter().any(has_arrived)
        && last
            .iter()
            .all(|sample| passed(sample).map_or(unknown_passes, |passed| !passed));
    let is_silent = |flow: &SenderStream| {
        flow.silent_for(|sample| sample.tcp.bytes_acked) >= MIN_TIME_WITHOUT_PROGRESS
    };
    let all_silent = !last.is_empty() && figures.flows.iter().all(is_silent);
    // A sender that only probes a closed window, or one of less than a segment, has nothing on the
    // way that vanishes.
    let all_wait = last
        .iter()
        .all(|sample| sample.outstanding_bytes() != Some(ByteCount::ZERO));
    let all_time_out = all_wait
        && last
            .iter()
            .all(|sample| timeout_count(sample) >= MIN_TIMEOUTS);
    (only_small_ones_pass && all_silent && all_time_out)
        .then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
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

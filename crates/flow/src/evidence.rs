//! Connections as evidence, which a verdict may rest on.

use fullpipe_record::{
    At, CaptureEvidence, CapturePoint, Evidence, Framing, Machine, Request, Sample, WindowEdit,
    find_steady,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

use crate::flow::FlowState;
use crate::followed::FollowedFlow;
use crate::sending::SentData;

/// Data of a connection that is a part of a transfer: at least this share of what the largest
/// connection moved.
const MIN_SHARE: f64 = 0.1;

/// Data from which a connection may be one of several: below it, one that only controls the others
/// is as large.
const MIN_SIDE_BY_SIDE: u64 = 1_000_000;

/// Time for which a rate is sustained rather than that of a burst.
const SUSTAINED: Span = Span::from_millis(200);

/// Data of a connection by what goes back over it at most: in a conversation both ends send.
const FEW_BACK: u64 = 10;

/// Returns the connections that belong to the same transfer as the one at `number`, itself among
/// them: between the same hosts of the same network, to the same server, at the same time and in
/// the same direction. In another network, as within a tunnel, the same packets may pass again.
pub(crate) fn flows_of_transfer(number: usize, flows: &[FollowedFlow]) -> Vec<usize> {
    let largest = &flows[number];
    let enough = largest.sender_bytes() as f64 * MIN_SHARE;
    let belongs = |flow: &FollowedFlow| {
        largest.sender_bytes() >= MIN_SIDE_BY_SIDE
            && flow.host_addresses() == largest.host_addresses()
            && flow.key().network == largest.key().network
            && flow.sender_index() == largest.sender_index()
            && flow.overlaps_mostly(largest)
            && flow.sender_bytes() as f64 >= enough
            && flow.data_back() <= flow.sender_bytes() / FEW_BACK
    };
    flows
        .iter()
        .enumerate()
        .filter(|(index, flow)| *index == number || belongs(flow))
        .map(|(index, _)| index)
        .collect()
}

/// Returns the evidence of a transfer over `flows`, the largest first, between these `ports` of its
/// sender and receiver.
pub(crate) fn transfer_evidence(flows: &[&FlowState], ports: [u16; 2]) -> Option<Evidence> {
    let largest = flows.first()?;
    let by_echo = capture_place(largest) != Some(At::Sender)
        && flows
            .iter()
            .all(|flow| flow.sender_data().is_some_and(SentData::has_echoes));
    let mut samples = sender_samples(flows, by_echo);
    let is_done = flows.iter().all(|flow| is_all_acknowledged(flow));
    let silent_after = cut_silent_end(&mut samples, is_done);
    let idle_rtt = flows.iter().filter_map(|flow| flow.handshake_time()).min();
    let ended = last_time(&samples);
    let capture = CaptureEvidence {
        ports: Some(ports),
        ..capture_evidence(flows, largest, by_echo, &samples, silent_after)
    };
    Some(Evidence {
        request: Request {
            streams: flows.len() as u16,
            duration: ended,
            ..Request::default()
        },
        sender: None,
        receiver: None,
        sender_sockets: Vec::new(),
        receiver_sockets: Vec::new(),
        sender_machine: Machine::default(),
        receiver_machine: Machine::default(),
        program: None,
        is_watched: false,
        steady: find_steady(&samples, idle_rtt, ended),
        sender_samples: samples,
        receiver_samples: Vec::new(),
        idle_rtt,
        idle_spread: None,
        loaded_rtt: None,
        bandwidth: None,
        framing: Framing::Ethernet,
        http2_wait: None,
        capture: Some(capture),
    })
}

/// Returns the samples of the senders of `flows`, in time from the first data on.
fn sender_samples(flows: &[&FlowState], by_echo: bool) -> Vec<Sample> {
    let origin = flows
        .iter()
        .filter_map(|flow| flow.sender_data()?.course.begin_time())
        .min()
        .unwrap_or(Time::ZERO);
    let mut samples = Vec::new();
    for (flow, stream) in flows.iter().zip(0..) {
        let (end, other) = flow.sender_and_receiver();
        if let Some(sending) = end.sent_data() {
            samples.extend(sending.course.interval_samples(
                end.flow_parameters(other, stream, by_echo),
                origin,
                by_echo,
                flow.missing_rtt(by_echo).unwrap_or_default(),
            ));
        }
    }
    samples
}

/// Returns what the packets of `flows` show of the sender and the path, whose `samples` a silence
/// of `silent_after` followed; most figures are those of the `largest`.
fn capture_evidence(
    flows: &[&FlowState],
    largest: &FlowState,
    by_echo: bool,
    samples: &[Sample],
    silent_after: Span,
) -> CaptureEvidence {
    let none = SentData::default();
    let sending = largest.sender_data().unwrap_or(&none);
    let (end, other) = largest.sender_and_receiver();
    let only = largest.only_seen_end();
    let idle = sending.idle_share(by_echo);
    CaptureEvidence {
        point: capture_place(largest),
        only,
        by_echo,
        clocked: sending.clocked_share(by_echo).filter(|_| only.is_none()),
        idle: without_silence(idle, last_time(samples), silent_after),
        train: sending.mean_train(),
        arrivals: sending.arrivals.most_frequent_rate(),
        departures: sending.departures.most_frequent_rate(),
        sustained: sustained_rate(samples),
        faster: sending.departures.beyond_mode(),
        acknowledgements: sending.acknowledgements.most_frequent_rate(),
        beyond: None,
        partial: sending.partial_segment_share(),
        quiet: sending.quiet_rounds(
            by_echo,
            largest.missing_rtt(by_echo).unwrap_or_default(),
            largest.handshake_time(),
        ),
        lost_before: flows
            .iter()
            .filter_map(|flow| flow.sender_data())
            .map(|sending| sending.lost_before)
            .sum(),
        closed: end.has_closed(),
        unseen: end.unseen_bytes(),
        probes: end.probes,
        full_segment_acknowledged: flows
            .iter()
            .any(|flow| flow.sender_and_receiver().0.full_segment_acknowledged()),
        silent_after,
        answers: flows
            .iter()
            .map(|flow| flow.sender_and_receiver().1.data_packets())
            .sum(),
        ports: None,
        largest_mss: end.offered_mss().max(other.offered_mss()),
        sender_opened: largest.sender_index() == 0,
        sender_offers_scale: end.offers_scale(),
        receiver_offers_scale: other.offers_scale(),
        window_edit: (end.is_scale_overwritten() || other.is_scale_overwritten())
            .then_some(WindowEdit::ScaleStripped),
        clamped_mss: None,
    }
}

/// Returns the time of the last of `samples`, zero without any.
fn last_time(samples: &[Sample]) -> Span {
    samples
        .iter()
        .map(|sample| sample.at)
        .max()
        .unwrap_or_default()
}

/// Returns true if all data of a sender was acknowledged where it was captured, though it may have
/// sent nothing since that echoes this.
fn is_all_acknowledged(flow: &FlowState) -> bool {
    flow.sender_data()
        .is_some_and(|sending| sending.course.now.here.flight == 0)
}

/// Removes the samples after all data had been acknowledged, as it was at last if `is_done`, and
/// returns the time that they took. What a connection does after its data, such as asking whether
/// the other end is there, is no part of the transfer.
fn cut_silent_end(samples: &mut Vec<Sample>, is_done: bool) -> Span {
    let streams = samples.chunk_by(|one, next| one.stream == next.stream);
    let ends: Vec<Sample> = streams.filter_map(<[_]>::last).cloned().collect();
    if !is_done || ends.iter().any(may_go_on) {
        return Span::ZERO;
    }
    let before = last_time(samples);
    // The first sample of each stream by which everything had moved stays.
    samples.dedup_by(|later, earlier| {
        later.stream == earlier.stream && is_as_at_end(later, &ends) && is_as_at_end(earlier, &ends)
    });
    before.saturating_sub(last_time(samples))
}

/// Returns true if a sender that was acknowledged everything may have more to send after its `last`
/// sample: where its window was closed at last.
fn may_go_on(last: &Sample) -> bool {
    last.tcp.bytes_acked.is_none() || last.tcp.snd_wnd == Some(ByteCount::ZERO)
}

/// Returns true if everything of a stream had moved by `sample`, of which `ends` has the last one.
fn is_as_at_end(sample: &Sample, ends: &[Sample]) -> bool {
    let moved = |sample: &Sample| (sample.tcp.bytes_sent, sample.tcp.bytes_acked);
    ends.iter()
        .any(|last| last.stream == sample.stream && moved(last) == moved(sample))
}

/// Returns the share of the time until `end` in which a sender had little in flight, of which
/// `idle` is the share with the silence after it.
fn without_silence(idle: Ratio, end: Span, silent_after: Span) -> Ratio {
    let with_silence = (end + silent_after).as_secs_f64() * idle.get();
    Ratio::from_quotient(
        (with_silence - silent_after.as_secs_f64()).max(0.0),
        end.as_secs_f64(),
    )
}

/// Returns the highest rate of the first stream's data over any [`SUSTAINED`] or more; `None` if it
/// is shorter.
fn sustained_rate(samples: &[Sample]) -> Option<BitRate> {
    let own = |sample: &&Sample| sample.stream == 0;
    let sent = |sample: &Sample| Some((sample.at, sample.tcp.bytes_sent?));
    let course: Vec<(Span, ByteCount)> = samples.iter().filter(own).filter_map(sent).collect();
    let mut begin = 0;
    let mut rates = Vec::new();
    for (at, bytes) in &course {
        // The shortest span that is long enough.
        while course
            .get(begin + 1)
            .is_some_and(|next| next.0 + SUSTAINED <= *at)
        {
            begin += 1;
        }
        let (from, before) = course[begin];
        let span = at.saturating_sub(from);
        rates.extend(
            (span >= SUSTAINED).then(|| BitRate::from_bytes_in(bytes.saturating_sub(before), span)),
        );
    }
    rates.into_iter().max()
}

/// Returns the place of the capture, as seen from the sender of `flow`.
fn capture_place(flow: &FlowState) -> Option<At> {
    Some(match (flow.capture_point()?, flow.sender_index()) {
        (CapturePoint::First, 0) | (CapturePoint::Second, 1) => At::Sender,
        (CapturePoint::First | CapturePoint::Second, _) => At::Receiver,
        (CapturePoint::Between, _) => At::Path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;

    #[test]
    fn bursts_are_faster_than_what_is_sustained() {
        // Each 20 ms two trains of 64 kB, 1 ms apart: 51.2 Mbit/s, and 512 Mbit/s from one to the
        // next.
        let sample = |index: u64| {
            let at = Span::from_millis(index / 2 * 20 + index % 2);
            let tcp = TcpInfo {
                bytes_sent: Some(ByteCount::new(index * 64_000)),
                ..TcpInfo::default()
            };
            Sample {
                at,
                stream: 0,
                bytes: ByteCount::ZERO,
                tcp,
                memory: None,
            }
        };
        let samples: Vec<Sample> = (0..400).map(sample).collect();
        let rate = sustained_rate(&samples).unwrap().as_mbps();
        assert!((51.0..54.0).contains(&rate), "{rate}");
        assert_eq!(sustained_rate(&samples[..15]), None, "that is too short");
    }
}

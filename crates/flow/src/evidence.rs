//! Connections as evidence, which a verdict may rest on.

use fullpipe_record::{
    At, CaptureEvidence, CapturePoint, Evidence, Framing, Machine, Request, Sample, find_steady,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

use crate::end::EndState;
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
            && flow.key().network_id() == largest.key().network_id()
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

/// Returns the evidence of a transfer over `flows`, the largest first.
pub(crate) fn transfer_evidence(flows: &[&FlowState]) -> Option<Evidence> {
    let largest = flows.first()?;
    let point = largest
        .capture_point()
        .map(|point| capture_place(point, largest.sender_index()));
    let by_echo = point != Some(At::Sender)
        && flows
            .iter()
            .all(|flow| flow.sender_data().is_some_and(SentData::has_echoes));
    let origin = flows
        .iter()
        .filter_map(|flow| flow.sender_data()?.course.begin_time())
        .min()
        .unwrap_or(Time::ZERO);
    let of_flow = |(flow, stream): (&&FlowState, u16)| -> Vec<Sample> {
        let (end, other) = flow.sender_and_receiver();
        let rest = flow.missing_rtt(by_echo).unwrap_or_default();
        let samples = |sending: &SentData| {
            sending.course.interval_samples(
                end.flow_parameters(other, stream, by_echo),
                origin,
                by_echo,
                rest,
            )
        };
        end.sent_data().map(samples).unwrap_or_default()
    };
    let mut samples: Vec<Sample> = flows.iter().zip(0..).flat_map(of_flow).collect();
    let silent_after = cut_silent_end(&mut samples);
    let idle_rtt = flows.iter().filter_map(|flow| flow.handshake_time()).min();
    let ended = samples
        .iter()
        .map(|sample| sample.at)
        .max()
        .unwrap_or_default();
    let none = SentData::default();
    let sending = largest.sender_data().unwrap_or(&none);
    let sustained = sustained_rate(&samples);
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
        capture: Some(CaptureEvidence {
            point,
            by_echo,
            idle: without_silence(sending.idle_share(by_echo), ended, silent_after),
            sustained,
            silent_after,
            ..capture_figures(flows, by_echo)?
        }),
    })
}

/// Returns what the packets of `flows`, the largest first, show of the sender and the path.
fn capture_figures(flows: &[&FlowState], by_echo: bool) -> Option<CaptureEvidence> {
    let largest = flows.first()?;
    let none = SentData::default();
    let sending = largest.sender_data().unwrap_or(&none);
    let (end, other) = largest.sender_and_receiver();
    let [offered, answered] = [end, other].map(EndState::offers_scale);
    Some(CaptureEvidence {
        point: None,
        only: largest.only_seen_end(),
        by_echo,
        clocked: sending
            .clocked_share(by_echo)
            .filter(|_| largest.only_seen_end().is_none()),
        idle: sending.idle_share(by_echo),
        train: sending.mean_train(),
        arrivals: sending.arrivals.most_frequent_rate(),
        departures: sending.departures.most_frequent_rate(),
        sustained: None,
        faster: sending.departures.beyond_mode(),
        acknowledgements: sending.acknowledgements.most_frequent_rate(),
        beyond: None,
        partial: sending.partial_segment_share(),
        quiet: sending.quiet_rounds(by_echo, largest.missing_rtt(by_echo).unwrap_or_default()),
        lost_before: flows
            .iter()
            .filter_map(|flow| flow.sender_data())
            .map(|sending| sending.lost_before)
            .sum(),
        closed: end.has_closed(),
        unseen: end.unseen_bytes(),
        probes: end.probe_count(),
        full_segment_acknowledged: flows
            .iter()
            .any(|flow| flow.sender_and_receiver().0.full_segment_acknowledged()),
        silent_after: Span::ZERO,
        answers: flows
            .iter()
            .map(|flow| flow.sender_and_receiver().1.data_packets())
            .sum(),
        largest_mss: end.offered_mss().max(other.offered_mss()),
        sender_opened: largest.sender_index() == 0,
        sender_offers_scale: offered,
        receiver_offers_scale: answered,
        window_edit: None,
        clamped_mss: None,
    })
}

/// Removes the samples after all data had been acknowledged, and returns the time that they took.
/// What a connection does after its data, such as asking whether the other end is there, is no part
/// of the transfer.
fn cut_silent_end(samples: &mut Vec<Sample>) -> Span {
    let end = |samples: &[Sample]| {
        samples
            .iter()
            .map(|sample| sample.at)
            .max()
            .unwrap_or_default()
    };
    let moved = |sample: &Sample| (sample.tcp.bytes_sent, sample.tcp.bytes_acked);
    let streams = samples.chunk_by(|one, next| one.stream == next.stream);
    let ends: Vec<Sample> = streams.filter_map(<[_]>::last).cloned().collect();
    // A sender whose window was closed at last may have more to send.
    let may_go_on = |last: &Sample| {
        let waits =
            last.tcp.bytes_acked.is_none() || last.outstanding_bytes() != Some(ByteCount::ZERO);
        waits || last.tcp.snd_wnd == Some(ByteCount::ZERO)
    };
    if ends.iter().any(may_go_on) {
        return Span::ZERO;
    }
    let before = end(samples);
    let is_last = |one: &Sample| {
        ends.iter()
            .any(|last| last.stream == one.stream && moved(last) == moved(one))
    };
    // The first sample of each stream by which everything had moved stays.
    samples.dedup_by(|later, earlier| {
        later.stream == earlier.stream && is_last(later) && is_last(earlier)
    });
    before.saturating_sub(end(samples))
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

fn capture_place(point: CapturePoint, sender: usize) -> At {
    match (point, sender) {
        (CapturePoint::First, 0) | (CapturePoint::Second, 1) => At::Sender,
        (CapturePoint::First | CapturePoint::Second, _) => At::Receiver,
        (CapturePoint::Between, _) => At::Path,
    }
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

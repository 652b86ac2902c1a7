//! Figures of the path that the rules of several limits share.

use fullpipe_model::framing;

use crate::prelude::*;
use crate::signals::{JudgedSample, SenderView};
use crate::thresholds::{INFLATED_RTT_FACTOR, MIN_ECHOES, SEGMENT_TRAIN};

/// Returns the payload that the stated bandwidth can carry; `None` where none was stated.
pub(crate) fn stated_capacity(figures: &SenderView) -> Option<BitRate> {
    stated_payload(figures.evidence, figures.mss?, figures.has_timestamps())
}

/// Returns the payload in segments of `mss` that the stated bandwidth can carry; `None` where none
/// was stated.
pub(crate) fn stated_payload(
    evidence: &Evidence,
    mss: ByteCount,
    timestamps: bool,
) -> Option<BitRate> {
    let payload = evidence
        .bandwidth?
        .scale_by(payload_share(evidence, mss, timestamps).get());
    Some(payload).filter(|capacity| *capacity > BitRate::ZERO)
}

/// Returns the payload of segments of `mss` as a share of the bytes that the path counts.
pub(crate) fn payload_share(evidence: &Evidence, mss: ByteCount, timestamps: bool) -> Ratio {
    framing::payload_share(
        mss,
        framing::tcp_headers(IpVersion::V4, timestamps),
        evidence.framing.packet_overhead(),
    )
}

/// Returns the time that the path takes for two full segments at the rate of the data; zero where
/// there was none.
pub(crate) fn time_on_the_line(figures: &SenderView) -> Option<Span> {
    let two = figures.mss? * 2;
    Some(if figures.rate > BitRate::ZERO {
        figures.rate.time_for(two)
    } else {
        Span::ZERO
    })
}

/// Returns the time that a path of the stated bandwidth takes for two full segments, of which the
/// data may have a small part; that at the rate of the data where none is stated.
fn least_time_on_the_line(figures: &SenderView) -> Option<Span> {
    let at_data_rate = time_on_the_line(figures)?;
    let stated = stated_capacity(figures).zip(figures.mss);
    let at_bandwidth = stated.map(|(stated, mss)| stated.time_for(mss * 2));
    Some(at_bandwidth.map_or(at_data_rate, |time| time.min(at_data_rate)))
}

/// Returns true if so much more is in flight than is in the pipe that the rest keeps a queue
/// filled. A single train of segments waits for itself on a slow link, and is no queue; but where
/// the rate is even, and more waits than is in the pipe, that link is never idle either.
pub(crate) fn exceeds_the_pipe(
    in_flight: ByteCount,
    in_the_pipe: ByteCount,
    is_even: impl Fn() -> bool,
) -> bool {
    let waiting = in_flight.saturating_sub(in_the_pipe);
    waiting > SEGMENT_TRAIN || (waiting > in_the_pipe && is_even())
}

/// Distance of the quartiles of the rate ÷ its median up to which data arrives at one rate
/// (measured: 0.01 at a full link, 0.2 and more where loss limits).
const FLAT_RATE_SPREAD: f64 = 0.06;
/// Segments over which a rate is taken to see whether it is flat, so that one more or less does not
/// count.
const FLAT_RATE_SEGMENTS: u64 = 100;

/// Returns true if a connection carries data at one rate throughout, as one does that keeps a
/// bottleneck busy: bursts and congestion windows that grow and fall make it uneven.
///
/// Takes its samples by time, the bytes that each of them says were moved, and the payload of a
/// segment.
pub(crate) fn is_flat(
    samples: &[&Sample],
    moved: impl Fn(&Sample) -> Option<ByteCount>,
    mss: Option<ByteCount>,
) -> bool {
    let enough = mss.unwrap_or_default() * FLAT_RATE_SEGMENTS;
    let (mut rates, mut last) = (Vec::new(), None);
    for (at, bytes) in samples
        .iter()
        .filter_map(|sample| Some((sample.at, moved(sample)?)))
    {
        let (since, before) = *last.get_or_insert((at, bytes));
        let more = bytes.saturating_sub(before);
        if at > since && more >= enough {
            rates.push(BitRate::from_bytes_in(more, at.saturating_sub(since)).as_f64());
            last = Some((at, bytes));
        }
    }
    if rates.len() < MIN_RATES {
        return false;
    }
    rates.sort_by(f64::total_cmp);
    let last = (rates.len() - 1) as f64;
    let [low, usual, high] = [0.25, 0.5, 0.75].map(|share| rates[(last * share) as usize]);
    (high - low) / usual <= FLAT_RATE_SPREAD
}

/// Fewest rates that show a course.
const MIN_RATES: usize = 4;
/// Multiple of the least idle round-trip time that a tenth of them must exceed for a queue before
/// the load.
const WANDERING_RTT_FACTOR: f64 = 1.1;
/// Time above the least idle round-trip time that half of them must exceed for a queue before the
/// load.
const WANDERING_RTT_MEDIAN: Span = Span::from_millis(2);

/// Returns true if the round-trip time of the idle path wandered as it does where a queue fills and
/// empties; or was longer than `least_seen`, as it is while others keep that queue full.
pub(crate) fn queue_before_the_load(evidence: &Evidence, least_seen: Option<Span>) -> bool {
    evidence.idle_spread.is_some_and(|idle| {
        let least = least_seen.map_or(idle.min, |seen| seen.min(idle.min));
        idle.count >= MIN_ECHOES
            && idle.p90 > least.scale_by(WANDERING_RTT_FACTOR)
            && idle.median > least + WANDERING_RTT_MEDIAN
    })
}

/// Figures that no sample of TCP shows.
pub(crate) const UNSEEN: &str = "the processor time and the pacing of both hosts";

/// Mean in the last third of the judged part ÷ mean in the first.
pub(crate) fn mean_trend(
    figures: &SenderView,
    size: impl Fn(&JudgedSample) -> Option<ByteCount>,
) -> Option<f64> {
    trend_of(figures, |snapshot| size(snapshot).map(ByteCount::as_f64))
}

/// Mean round-trip time in the last third of the judged part ÷ mean in the first.
pub(crate) fn rtt_trend(figures: &SenderView) -> Option<f64> {
    trend_of(figures, |snapshot| {
        snapshot.sample.tcp.rtt.map(Span::as_secs_f64)
    })
}

/// Mean of a figure in the last third of the judged part ÷ mean in the first; of several streams,
/// of the sum of their means.
fn trend_of(figures: &SenderView, figure: impl Fn(&JudgedSample) -> Option<f64>) -> Option<f64> {
    let [first, last] = [false, true].map(|is_last| -> f64 {
        let means = figures.flows.iter().filter_map(|flow| {
            let (all, third) = (flow.snapshots.len(), flow.snapshots.len() / 3);
            let begin = if is_last { all - third } else { 0 };
            let part = &flow.snapshots[begin..begin + third];
            let all: Vec<f64> = part.iter().filter_map(&figure).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        });
        means.sum()
    });
    (first > 0.0).then(|| last / first)
}

/// Rate in the last third of the judged part ÷ rate in the first.
pub(crate) fn rate_trend(figures: &SenderView) -> Option<f64> {
    let progress = TransferProgress::from_samples(&figures.evidence.sender_samples, Span::MAX);
    let (start, end) = judged_part(figures, &progress)?;
    let third = end.saturating_sub(start) / 3;
    let first = progress.mean_rate(start, start + third);
    (first > BitRate::ZERO).then(|| progress.mean_rate(end - third, end).relative_to(first))
}

pub(crate) fn judged_part(
    figures: &SenderView,
    progress: &TransferProgress,
) -> Option<(Span, Span)> {
    let last = *progress.snapshot_times().last()?;
    let (start, end) = figures.judged_period();
    Some((start, end.min(last)))
}

/// Returns true if each stream carries data at one rate throughout.
pub(crate) fn carries_one_rate(figures: &SenderView) -> bool {
    figures.flows.iter().all(|flow| {
        let samples: Vec<&Sample> = flow
            .snapshots
            .iter()
            .map(|snapshot| snapshot.sample)
            .collect();
        is_flat(&samples, |sample| sample.tcp.bytes_acked, figures.mss)
    })
}

/// Returns true if the round-trip time under load shows a standing queue.
///
/// The idle time may stem from the handshake or from echo requests, packets that are small and so
/// are sooner on the line than data: two full segments (an acknowledgement waits for the second)
/// are allowed for.
pub(crate) fn rtt_is_inflated(figures: &SenderView) -> bool {
    figures
        .rtt
        .is_some_and(|rtt| rtt_is_inflated_over(figures, rtt))
}

/// Returns true if a round trip of `rtt` shows a standing queue.
pub(crate) fn rtt_is_inflated_over(figures: &SenderView, rtt: Span) -> bool {
    inflated_rtt(figures).is_some_and(|inflated| rtt > inflated)
}

/// Returns true if echo requests during the load show a standing queue.
pub(crate) fn echoes_wait(figures: &SenderView) -> bool {
    figures
        .evidence
        .loaded_rtt
        .zip(inflated_rtt(figures))
        .is_some_and(|(rtt, inflated)| rtt > inflated)
}

pub(crate) fn inflated_rtt(figures: &SenderView) -> Option<Span> {
    // A path whose time varies by itself shows no queue by doing so.
    let usual = figures
        .evidence
        .idle_spread
        .map_or(Span::ZERO, |idle| idle.p90);
    let idle = figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR).max(usual);
    Some(idle + least_time_on_the_line(figures)?)
}

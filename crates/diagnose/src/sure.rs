//! How sure a test is of its result before its time is over.

use fullpipe_record::{Cause, SureBound};
use fullpipe_stats::{RateInterval, within_run};

use crate::prelude::*;
use crate::signals::SenderView;
use crate::verdict::diagnose;

/// Parts of equal length into which the steady part is cut for the interval of its rate.
const PARTS: u64 = 20;

/// What must have lasted for how long before a verdict is sure.
struct LeastCourse {
    /// The steady part, and its round trips.
    steady: Span,
    round_trips: u64,
    /// Shares of the time so far at whose end the verdict must have been the same.
    same_at: &'static [f64],
}

/// A limit that holds all the time shows at once.
const OF_CONSTANT_LIMIT: LeastCourse = LeastCourse {
    steady: Span::from_secs(1),
    round_trips: 5,
    same_at: &[0.9],
};
/// Losses come by chance, and other flows change.
const OF_CHANCE: LeastCourse = LeastCourse {
    steady: Span::from_millis(1500),
    round_trips: 10,
    same_at: &[0.8, 0.6],
};
/// Segments of a sawtooth of a window of one segment: 3 W² ÷ 8 pass while it grows from half of W to
/// W, by one in each round trip (Mathis et al., 1997).
const SEGMENTS_OF_A_SAWTOOTH: f64 = 0.375;
/// Sawteeth after which the next is expected to be like them.
const SAWTEETH: f64 = 2.0;

/// A verdict and a rate of which a test is sure.
#[derive(Debug, Clone, PartialEq)]
pub struct SureResult {
    /// The verdict so far.
    pub verdict: Verdict,
    /// The steady rate, with its interval.
    pub rate: RateInterval,
}

/// Returns the result of which a test is as sure as `bound` asks, by the `evidence` so far; `None`
/// if it is not, and where no data passes in the steady part: it may any moment.
///
/// Besides the two bounds, the verdict must have been the same before, and longer so where the limit
/// is one of chance.
pub fn sure_result(evidence: &Evidence, bound: SureBound) -> Option<SureResult> {
    let rate = steady_interval(evidence).filter(|rate| rate.is_within(bound.rate))?;
    let verdict = diagnose(evidence);
    if verdict.confidence < bound.confidence {
        return None;
    }
    let (least, steady) = (least_course(&verdict), evidence.steady?);
    let round_trips = evidence.idle_rtt.unwrap_or_default() * least.round_trips;
    if steady.duration < least.steady.max(round_trips)
        || is_of_window(&verdict) && !has_seen_sawteeth(evidence, steady)
    {
        return None;
    }
    let mut shares = least.same_at.iter();
    shares
        .all(|share| was_same(evidence, *share, &verdict))
        .then_some(SureResult { verdict, rate })
}

/// Returns true if the verdict was the same at this share of the time so far.
fn was_same(evidence: &Evidence, share: f64, verdict: &Verdict) -> bool {
    let before = diagnose(&evidence.up_to(evidence.last_sample_at().scale_by(share)));
    (before.kind, before.cause) == (verdict.kind, verdict.cause)
}

/// Returns true if losses end each growth of the sender's window, or would.
const fn is_of_window(verdict: &Verdict) -> bool {
    matches!(
        verdict.kind,
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow
    )
}

/// Returns what must have lasted for a verdict. The receiving end sees no window of the sender.
fn least_course(verdict: &Verdict) -> LeastCourse {
    let is_of_full_link = verdict.kind == Limit::Capacity && verdict.cause != Cause::Shared;
    if is_of_window(verdict) && !(is_of_full_link && verdict.basis != Basis::Receiver) {
        OF_CHANCE
    } else {
        OF_CONSTANT_LIMIT
    }
}

/// Returns true if the steady part is as long as losses take to show that leave the rate of the path
/// to a congestion control that yields to them: [`SAWTEETH`] of the window that fills the path. That
/// of BBR does not yield to few.
fn has_seen_sawteeth(evidence: &Evidence, steady: Steady) -> bool {
    if SenderView::from_evidence(evidence).is_bbr() {
        return true;
    }
    let rtt = evidence.idle_rtt.unwrap_or_default();
    let segment = segment_size(evidence).as_f64();
    let [window, passed] = [rtt, steady.duration].map(|time| {
        steady.rate.bytes_in(time).as_f64() / segment / f64::from(evidence.request.streams.max(1))
    });
    passed >= SAWTEETH * SEGMENTS_OF_A_SAWTOOTH * window * window
}

/// Payload of a segment; that of Ethernet where it is not known.
fn segment_size(evidence: &Evidence) -> ByteCount {
    let samples = evidence
        .sender_samples
        .iter()
        .chain(&evidence.receiver_samples);
    let sizes = samples.filter_map(|sample| sample.tcp.snd_mss.max(sample.tcp.rcv_mss));
    sizes.max().unwrap_or(ByteCount::new(1448))
}

/// Returns the interval of the rate in the steady part; `None` where there is no such part.
pub fn steady_interval(evidence: &Evidence) -> Option<RateInterval> {
    let steady = evidence.steady?;
    let end = steady.ramp + steady.duration;
    let progress = if evidence.sender_samples.is_empty() {
        TransferProgress::of_receiver(&evidence.receiver_samples, end)
    } else {
        TransferProgress::from_samples(&evidence.sender_samples, end)
    };
    let at = |part: u64| steady.ramp + steady.duration * part / PARTS;
    let rates: Vec<BitRate> = (0..PARTS)
        .map(|part| progress.mean_rate(at(part), at(part + 1)))
        .collect();
    within_run(&rates)
}

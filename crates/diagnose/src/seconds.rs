//! The limit of each second of a transfer, so that a transfer which changes its limit half-way
//! shows both.

use fullpipe_record::OtherLimit;

use crate::finding::Finding;
use crate::prelude::*;
use crate::rules::limit_of_part;
use crate::signals::{SenderView, TransferView, time_ratio};

/// Share of the time from which another limit is worth reporting.
const MIN_OTHER_SHARE: f64 = 0.15;

/// Returns the limits other than `whole` that held in some seconds of the transfer, each with its
/// share of the transfer's time, the largest first; and the share of `whole`. Together they have no
/// more than the time that `whole` leaves, by its share of the judged part. Shares that are too
/// small to matter are left out. One direction of packets alone shows none.
pub(crate) fn other_limits(evidence: &Evidence, whole: &Finding) -> (Vec<OtherLimit>, Ratio) {
    if evidence
        .capture
        .is_some_and(|capture| capture.only.is_some())
    {
        return (Vec::new(), Ratio::ZERO);
    }
    let seconds = limit_of_each(evidence, whole);
    let mut others = limits_by_share(&seconds);
    let of_whole: f64 = others
        .iter()
        .filter(|other| other.kind == whole.limit_kind())
        .map(|other| other.share.get())
        .sum();
    others.retain(|other| other.kind != whole.limit_kind() && other.kind != Limit::Unknown);
    let together: f64 = others.iter().map(|other| other.share.get()).sum();
    let part = (left_by(whole, evidence) / together).min(1.0);
    for other in &mut others {
        other.share = Ratio::new(other.share.get() * part);
    }
    others.retain(|other| other.share.get() >= MIN_OTHER_SHARE);
    others.sort_by(|a, b| b.share.get().total_cmp(&a.share.get()));
    (others, Ratio::new(of_whole))
}

/// Returns each limit of some parts of equal length, with its share of them.
fn limits_by_share(parts: &[Finding]) -> Vec<OtherLimit> {
    let share = Ratio::from_quotient(1.0, parts.len() as f64);
    let mut limits: Vec<OtherLimit> = Vec::new();
    for found in parts {
        let (kind, cause, at) = (
            found.limit_kind(),
            found.verdict.limit_cause(),
            found.verdict.limit_place(),
        );
        match limits
            .iter_mut()
            .find(|one| (one.kind, one.cause, one.at) == (kind, cause, at))
        {
            Some(one) => one.share = Ratio::new(one.share.get() + share.get()),
            None => limits.push(OtherLimit {
                kind,
                cause,
                at,
                share,
            }),
        }
    }
    limits
}

/// Returns the share of the transfer's time in which `whole` did not hold, of what was judged.
fn left_by(whole: &Finding, evidence: &Evidence) -> f64 {
    let end = evidence
        .sender_samples
        .iter()
        .map(|sample| sample.at)
        .max()
        .unwrap_or_default();
    let judged = evidence.steady.map_or(end, |steady| steady.duration);
    1.0 - whole.share.get().min(1.0) * time_ratio(judged, end).get().min(1.0)
}

/// Length of the parts in which a transfer is judged one after the other.
const PART_TIME: Span = Span::from_secs(1);
/// Round trips of such a part, where that is longer.
const PART_ROUND_TRIPS: u64 = 2;
/// Largest number of parts that are judged one after the other.
const MAX_PARTS: u64 = 600;

/// Returns the limit of each second, or of two round trips where that is longer; of so much time in
/// a very long transfer that there are not too many.
fn limit_of_each(evidence: &Evidence, whole: &Finding) -> Vec<Finding> {
    let progress = TransferProgress::from_samples(&evidence.sender_samples, Span::MAX);
    let Some(end) = progress.snapshot_times().last().copied() else {
        return Vec::new();
    };
    let rtt = evidence
        .loaded_rtt
        .or(evidence.idle_rtt)
        .unwrap_or_default();
    let length = PART_TIME.max(rtt * PART_ROUND_TRIPS).max(end / MAX_PARTS);
    let ramp_ends = evidence.steady.map_or(Span::ZERO, |steady| steady.ramp);
    (0..end.as_nanos() / length.as_nanos())
        .map(|index| length * index)
        .map(|from| {
            let part = Steady {
                ramp: from,
                ramp_rate: BitRate::ZERO,
                rate: progress.mean_rate(from, from + length),
                duration: length,
            };
            let figures = SenderView::from_part(evidence, Some(part));
            in_second(&TransferView::from_part(figures), whole, from >= ramp_ends)
        })
        .collect()
}

/// Returns the limit of one second. It is too short to show the limit of the path: there the whole
/// transfer's limit stands, or the ramp.
fn in_second(view: &TransferView, whole: &Finding, is_steady: bool) -> Finding {
    let of_path = matches!(
        whole.limit_kind(),
        Limit::Capacity
            | Limit::Loss
            | Limit::CongestionWindow
            | Limit::Pacing
            | Limit::Mtu
            | Limit::Cpu
    );
    match limit_of_part(view) {
        Some(found) => found,
        None if !is_steady => Finding::always(CongestionWindowVerdict::RampUp),
        None if of_path => whole.clone(),
        None => Finding::unknown_limit(Vec::new()),
    }
}

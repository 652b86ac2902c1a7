//! A test that ends once its result is sure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_diagnose::{steady_interval, sure_result};
use fullpipe_probe::{Destination, ProbeError, TestEvent, watch_until};
use fullpipe_record::{Basis, EndReport, Framing, SureBound, TestEnd, UntilSure};

use crate::prelude::*;

/// Least time that counts before a test may end.
const LEAST_TIME: Span = Span::from_secs(1);

/// Events without a loss divided by this are the 95 % bound of their share (the rule of three;
/// Hanley and Lippman-Hand, JAMA 249, 1983).
const RULE_OF_THREE: f64 = 3.0;

/// Measures as [`fullpipe_probe::watch_closely`] does, and ends the test once its result is as sure
/// as `bound` asks, with this bandwidth stated; the duration of `request` is the most that it takes.
/// Judges the samples of this end, a few times a second on the thread of the control connection.
///
/// # Errors
/// Fails as [`fullpipe_probe::measure_transfer`] does.
pub fn measure_until_sure(
    destination: &Destination,
    request: &Request,
    (bound, bandwidth): (SureBound, Option<BitRate>),
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    let enough = AtomicBool::new(false);
    let measured = watch_until(destination, request, interrupt, &enough, &mut |event| {
        if let TestEvent::SoFar(so_far) = event
            && is_sure(so_far, bound, bandwidth)
        {
            enough.store(true, Ordering::Relaxed);
        }
        report(event);
    })?;
    let until_sure = until_sure(&measured, bound, enough.into_inner());
    Ok(Measurement {
        until_sure: Some(Box::new(until_sure)),
        ..measured
    })
}

/// Returns true if what this end has seen so far is sure; of data that goes both ways, the limit is
/// that of the upload, and both rates must be sure.
fn is_sure(so_far: &Measurement, bound: SureBound, bandwidth: Option<BitRate>) -> bool {
    if so_far.summary.duration < LEAST_TIME {
        return false;
    }
    let mut evidence = Evidence::from_measurement(so_far, bandwidth, Framing::Ethernet);
    // The other end's samples come when the test is over, or are few.
    match own_view(so_far.request.direction) {
        Basis::Receiver => evidence.sender_samples.clear(),
        _ => evidence.receiver_samples.clear(),
    }
    is_reverse_sure(so_far, bound) && sure_result(&evidence, bound).is_some()
}

fn is_reverse_sure(so_far: &Measurement, bound: SureBound) -> bool {
    let Some(reverse) = &so_far.reverse else {
        return true;
    };
    let is_download = |sample: &&Sample| sample.stream >= so_far.request.streams;
    let evidence = Evidence {
        receiver_samples: so_far
            .local
            .samples
            .iter()
            .filter(is_download)
            .cloned()
            .collect(),
        steady: reverse.steady,
        ..Evidence::default()
    };
    steady_interval(&evidence).is_some_and(|rate| rate.is_within(bound.rate))
}

const fn own_view(direction: Direction) -> Basis {
    match direction {
        Direction::Upload | Direction::Both => Basis::Sender,
        Direction::Download => Basis::Receiver,
    }
}

/// Returns what ended a test, what that saved, and what it was too short to show.
fn until_sure(measured: &Measurement, bound: SureBound, is_sure: bool) -> UntilSure {
    let evidence = Evidence::from_measurement(measured, None, Framing::Ethernet);
    let is_sure = is_sure && !measured.interrupted && measured.broken_off.is_none();
    let summary = &measured.summary;
    let left = measured.request.duration.saturating_sub(summary.duration);
    let saved_time = if is_sure { left } else { Span::ZERO };
    let rates = [Some(summary), measured.reverse.as_ref()];
    UntilSure {
        bound,
        ended_by: if is_sure {
            TestEnd::Sure
        } else {
            TestEnd::Other
        },
        judged_by: own_view(measured.request.direction),
        rate: steady_interval(&evidence).map(|rate| [rate.low, rate.high]),
        elapsed: summary.duration,
        saved_time,
        saved_bytes: rates
            .into_iter()
            .flatten()
            .map(|summary| summary.steady_or_mean_rate().bytes_in(saved_time))
            .sum(),
        passed: summary.received,
        loss_below: segments_without_loss(measured)
            .map(|count| Ratio::from_quotient(RULE_OF_THREE, count.as_f64())),
    }
}

/// Returns the number of segments with data, if it is known that none was lost.
fn segments_without_loss(measured: &Measurement) -> Option<SegCount> {
    let [sent, received] = [measured.sending_end(), measured.receiving_end()];
    let sent = counted_segments(sent, |sample| sample.tcp.data_segs_out);
    let segments = sent.max(counted_segments(received, |sample| sample.tcp.data_segs_in));
    let is_whole = measured.summary.retransmits == Some(SegCount::ZERO);
    (is_whole && segments > SegCount::ZERO).then_some(segments)
}

fn counted_segments(end: &EndReport, count: fn(&Sample) -> Option<SegCount>) -> SegCount {
    let counted = end
        .samples
        .iter()
        .filter_map(|sample| Some((sample.stream, count(sample)?)));
    counted
        .collect::<BTreeMap<u16, SegCount>>()
        .into_values()
        .sum()
}

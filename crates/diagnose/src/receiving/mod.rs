//! The verdict from the receiving end alone: its own window and buffer, its reader, and the course
//! of the arrivals.

mod loss_figures;
mod on_path;
mod own_end;
mod sender;
mod sentence;

use fullpipe_record::{
    CongestionWindowVerdict, MtuVerdict, PacingVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, Ratio, SegCount};

use crate::arrivals::ReceiverSampleFigures;
use crate::finding::LimitFinding;
use crate::limits::{half_duplex, mtu, receiver_host};
use crate::ramp::is_slow_start;
use crate::signals::Signals;
use crate::thresholds::{MIN_TIME_WITHOUT_PROGRESS, REACHED_RATE_SHARE, WHOLE_RATE_SHARE};

/// Returns the limit of a transfer of which the receiving end alone was seen.
pub(crate) fn find_limit(arrivals: &ReceiverSampleFigures, signals: &Signals) -> LimitFinding {
    let sought = [
        nothing_arrives,
        on_path::full_as_stated,
        ended_early,
        as_asked,
        own_end::too_small_a_window_for_the_sender,
        own_end::slow_reader,
        own_end::own_window_in_use,
        own_end::own_processor,
        on_path::waits_for_timeouts,
        sender::silent_beyond_windows,
        on_path::lengthened_path,
        on_path::queue_on_the_path,
        on_path::out_of_order,
        nearly_as_asked,
        on_path::growing_window,
        sender::silent_sender,
        sender::sender_itself,
    ];
    let found = sought.into_iter().filter_map(|rule| rule(arrivals));
    let found = signals.first_possible(found, |_| arrivals.find_ceilings());
    let found = found
        .unwrap_or_else(|lacking| LimitFinding::unknown_limit(vec![lacking.unwrap_or(OTHER_END)]));
    half_duplex::behind_arrivals(arrivals.evidence, &found)
        .or_else(|| receiver_host::behind_arrivals(arrivals, &found))
        .or_else(|| mtu::behind_arrivals(arrivals, &found))
        .unwrap_or(found)
}

/// Finds full segments that vanish: the connection is open and the far end always has data, but no
/// segment of it ever arrives.
fn nothing_arrives(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let never = arrivals.whole.iter().all(|flow| {
        flow.last().is_some_and(|last| {
            last.at >= MIN_TIME_WITHOUT_PROGRESS && last.tcp.data_segs_in == Some(SegCount::ZERO)
        })
    });
    let found = arrivals.is_own_load() && !arrivals.whole.is_empty() && never;
    found.then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
}

/// Finds a transfer that ended before the sender's congestion window had grown.
fn ended_early(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let (rtt, mss) = (arrivals.rtt?, arrivals.mss()?);
    let found = arrivals.evidence.steady.is_none()
        && arrivals.loss_rounds() == 0
        && arrivals
            .whole
            .iter()
            .all(|flow| is_slow_start(flow, |sample| sample.tcp.bytes_received, mss, rtt));
    found.then(|| LimitFinding::new(CongestionWindowVerdict::RampUp, Ratio::ONE))
}

/// Finds a sender that was asked for a rate, or for a maximum pace, and keeps to it. Of a pace
/// headers and waiting may take a part, and so may a full link that carries no more: a queue shows
/// it.
fn as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    if reaches_rate(arrivals, arrivals.evidence.request.rate, WHOLE_RATE_SHARE) {
        return Some(LimitFinding::new(
            SenderApplicationVerdict::RateLimited,
            Ratio::ONE,
        ));
    }
    let pacing = arrivals.evidence.request.pacing;
    let is_paced = reaches_rate(arrivals, pacing, WHOLE_RATE_SHARE)
        || (reaches_rate(arrivals, pacing, REACHED_RATE_SHARE) && !arrivals.is_inflated());
    is_paced.then(|| LimitFinding::new(PacingVerdict::MaxPacingRate, Ratio::ONE))
}

/// Finds a sender that was asked for a rate and comes near to it, where nothing else shows that
/// would hold it back.
fn nearly_as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    reaches_rate(arrivals, arrivals.evidence.request.rate, REACHED_RATE_SHARE)
        .then(|| LimitFinding::new(SenderApplicationVerdict::RateLimited, Ratio::ONE))
}

/// Returns true if the data arrives at `share` of the rate that each stream was asked for.
fn reaches_rate(arrivals: &ReceiverSampleFigures, asked: Option<BitRate>, share: f64) -> bool {
    let streams = f64::from(arrivals.evidence.request.streams.max(1));
    asked.is_some_and(|rate| arrivals.rate >= rate.scale_by(share * streams))
}

/// Figures that only the other end has.
pub(crate) const OTHER_END: &str =
    "the sender's congestion window, its send buffer and what it sent again";

//! The verdict from the receiving end alone: its own window and buffer, its reader, and the course
//! of the arrivals.

mod loss_figures;
pub(crate) mod on_path;
pub(crate) mod own_end;
pub(crate) mod sender;
mod sentence;

use fullpipe_record::{
    CongestionWindowVerdict, MtuVerdict, PacingVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, Ratio, SegCount};

use crate::arrivals::ReceiverSampleFigures;
use crate::finding::LimitFinding;
use crate::ramp::is_slow_start;
use crate::thresholds::{MIN_TIME_WITHOUT_PROGRESS, REACHED_RATE_SHARE, WHOLE_RATE_SHARE};

/// Finds full segments that vanish: the connection is open and the far end always has data, but no
/// segment of it ever arrives.
pub(crate) fn nothing_arrives(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let never = arrivals.whole.iter().all(|flow| {
        flow.last().is_some_and(|last| {
            last.at >= MIN_TIME_WITHOUT_PROGRESS && last.tcp.data_segs_in == Some(SegCount::ZERO)
        })
    });
    let found = arrivals.is_own_load() && !arrivals.whole.is_empty() && never;
    found.then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
}

/// Finds a transfer that ended before the sender's congestion window had grown.
pub(crate) fn ended_early(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
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
pub(crate) fn as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
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
pub(crate) fn nearly_as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
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

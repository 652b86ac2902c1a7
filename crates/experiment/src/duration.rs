//! The duration of a measurement that is to judge a prediction.

use fullpipe_model::ramp::ramp_range;
use fullpipe_model::window;

use crate::prelude::*;

/// Losses over which the rate of a cell is averaged, if its longest duration allows.
const LOSSES: f64 = 200.0;

/// Smallest steady time of a cell, in round trips.
const MIN_STEADY_ROUND_TRIPS: u64 = 20;
/// Smallest steady time of a cell.
const MIN_STEADY: Span = Span::from_secs(4);

/// Returns the duration that a measurement needs to judge `prediction`: the ramp, and then 20 round
/// trips, 4 s, or the time of 200 losses, whichever is longest.
pub(crate) fn required_duration(prediction: &Prediction, path: &Path, streams: u16) -> Span {
    let rtt = path.rtt();
    let each =
        ByteCount::new(window::bdp(prediction.kernel_model, rtt).get() / u64::from(streams.max(1)));
    let ramp = ramp_range(each, prediction.mss, rtt).latest;
    let per_second = prediction.kernel_model.as_f64() / 8.0 / prediction.mss.as_f64();
    let losses = path
        .forward
        .loss
        .map_or(0.0, |loss| loss.get() * per_second);
    let for_losses = match prediction.limit {
        Limit::Loss => Span::from_secs_f64(LOSSES / losses),
        _ => Span::ZERO,
    };
    ramp * 2 + for_losses.max(rtt * MIN_STEADY_ROUND_TRIPS).max(MIN_STEADY)
}

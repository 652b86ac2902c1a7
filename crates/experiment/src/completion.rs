//! When the transfer of a measurement would be complete, if it went on.

use fullpipe_record::CompletionForecast;
use fullpipe_stats::ProgressHistory;

use crate::prelude::*;

/// Returns when `size` is complete at the rate of a measurement that goes on, since it began, over
/// a path that carries `capacity` of payload. What the measurement carried itself is known. `None`
/// if too little was measured, or nothing passes.
pub fn forecast_size(
    measurement: &Measurement,
    size: ByteCount,
    capacity: Option<BitRate>,
) -> Option<CompletionForecast> {
    let summary = &measurement.summary;
    if measurement.request.bytes.is_some() && summary.received >= size {
        return Some(known_completion(summary.duration).over_path(size, capacity));
    }
    let progress = sender_progress(&measurement.sending_end().samples);
    let (last, passed) = *progress.last()?;
    let mut history = ProgressHistory::default();
    for (at, bytes) in progress {
        if bytes >= size {
            return Some(known_completion(at).over_path(size, capacity));
        }
        history.push_progress(at, bytes);
    }
    let left = size.saturating_sub(passed);
    let forecast = history.forecast_completion(left)?.since_start(last);
    Some(forecast.over_path(size, capacity))
}

/// Returns the bytes that had passed by time, all streams together, as the samples of a sender show
/// them.
pub fn sender_progress(samples: &[Sample]) -> Vec<(Span, ByteCount)> {
    let last = samples.last().map_or(Span::ZERO, |sample| sample.at);
    let progress = TransferProgress::from_samples(samples, last);
    let times = progress.snapshot_times().into_iter();
    times.map(|at| (at, progress.bytes_at(at))).collect()
}

fn known_completion(time: Span) -> CompletionForecast {
    let (low, high) = (time, time);
    CompletionForecast {
        time,
        low,
        high,
        efficiency: None,
    }
}

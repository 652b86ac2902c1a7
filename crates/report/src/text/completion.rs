//! When a transfer will be complete.

use fullpipe_record::{CompletionForecast, FileCompletion};

use super::prelude::*;

/// Returns a length of time in the largest unit of which it has many.
pub(crate) fn rounded_duration(span: Span) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..100.0 => format!("{seconds:.0} s"),
        ..6000.0 => format!("{:.1} min", seconds / 60.0),
        ..360_000.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// Returns a time with its interval: `3.1 min (2.9 min to 3.3 min)`. One that has no width is known.
pub(crate) fn forecast_time(forecast: &CompletionForecast) -> String {
    let [time, low, high] = [forecast.time, forecast.low, forecast.high].map(rounded_duration);
    if low == high {
        time
    } else {
        format!("{time} ({low} to {high})")
    }
}

/// Returns a sentence about the completion efficiency, if it is known.
pub(crate) fn efficiency_sentence(size: ByteCount, forecast: &CompletionForecast) -> String {
    forecast.efficiency.map_text(|share| {
        let ideal = rounded_duration(forecast.time.scale_by(share.get()));
        format!(" At the full rate of the path {size} take {ideal}: completion efficiency {share}.")
    })
}

/// Returns the paragraph about a transfer in virtual time.
pub fn completion_text(size: ByteCount, forecast: &CompletionForecast) -> String {
    let time = forecast_time(forecast);
    let text = format!("{size} take {time}.{}", efficiency_sentence(size, forecast));
    format!("\n{}\n", paragraph(&text, 0))
}

/// Returns the line about a file that a watched program sends.
pub fn file_completion(completion: &FileCompletion) -> String {
    let FileCompletion {
        file,
        size,
        passed,
        forecast,
    } = completion;
    let name = file.as_deref().map_or("the rest", |name| name);
    let left = size.saturating_sub(*passed);
    format!(
        "{left} of {size} left, {name} is complete in {}",
        forecast_time(forecast)
    )
}

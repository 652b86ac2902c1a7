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

/// Returns a time with its interval: `3.1 min (2.9 to 3.3 min)`. One that has no width is known.
pub(crate) fn forecast_time(forecast: &CompletionForecast) -> String {
    let [time, low, high] = [forecast.time, forecast.low, forecast.high].map(rounded_duration);
    if low == high {
        return time;
    }
    let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    let low = match low.rsplit_once(' ') {
        Some((figure, of_low)) if unit(&high).as_deref() == Some(of_low) => figure,
        _ => &low,
    };
    format!("{time} ({low} to {high})")
}

/// Returns the time that a running transfer still takes.
pub fn time_left(forecast: &CompletionForecast) -> String {
    format!("{} left", forecast_time(forecast))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_suits_it_and_its_interval_no_more_than_it_needs() {
        let forecast = |seconds: [u64; 3]| {
            let [low, time, high] = seconds.map(Span::from_secs);
            let efficiency = None;
            forecast_time(&CompletionForecast {
                time,
                low,
                high,
                efficiency,
            })
        };
        assert_eq!(forecast([1500, 1566, 1640]), "26.1 min (25.0 to 27.3 min)");
        assert_eq!(forecast([5900, 6400, 7200]), "1.8 h (98.3 min to 2.0 h)");
        assert_eq!(forecast([5, 5, 5]), "5.0 s");
    }
}

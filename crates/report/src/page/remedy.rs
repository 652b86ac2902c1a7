//! Remedies: what is proposed, and what those did that were tried.

use fullpipe_chart::{Hue, Mark, Panel, Plot, Row, Rows, Series};
use fullpipe_record::{Measurement, Remedy, Trial};

use super::course::{rate, rates, round_trips};
use super::{Section, figures};
use crate::text::{reason, round_trip, shorter};

/// Returns the remedies, best first; `None` without any.
pub(super) fn remedies(remedies: &[Remedy]) -> Option<Section> {
    let first = remedies.first()?;
    let predicted = |remedy: &Remedy| {
        let rate = remedy.predicted.map_or_else(String::new, |rate| rate.bits_per_second.to_string());
        rate + &remedy.command_time.map_or_else(String::new, shorter)
    };
    let row =
        |remedy: &Remedy| [remedy.id.clone(), predicted(remedy), reason(remedy), remedy.commands.apply.join("; ")];
    let gain = first.predicted.map_or_else(String::new, |rate| format!(": {} predicted", rate.bits_per_second));
    let gain = gain + &first.command_time.map_or_else(String::new, shorter);
    let table = figures(["remedy", "predicted", "why", "commands"], remedies.iter().map(row).collect());
    Some(Section::new(format!("Best remedy: {}{gain}", first.id), "Best first.", table))
}

/// Returns the rate with a remedy, next to the one before and the prediction.
pub(super) fn tried(trial: &Trial) -> Section {
    let mut with = Row::new(&trial.remedy, &trial.measured.to_string(), Hue::Green).bar(trial.measured);
    if let Some(forecast) = trial.predicted {
        with = with.expected(forecast.bits_per_second).interval(forecast.low, forecast.high);
    }
    let rows = Rows::new("Rate before and with the remedy", ["", "rate"])
        .with(Row::new("before", &trial.before.to_string(), Hue::Grey).bar(trial.before))
        .with(with);
    let title = format!("{} brings {} → {}", trial.remedy, trial.before, trial.measured);
    Section::new(title, "Payload that arrived; the tick and the thin line are the prediction, fixed before.", rows)
}

/// Returns a section with the effect of a remedy on rate and delay.
pub(super) fn effect(before: &Measurement, remedy: &str, after: &Measurement) -> Section {
    let line = |name: &str, measured: &Measurement, hue| {
        Series::new(name, Mark::Line, hue, rates(measured)).labelled(&format!("{name} {}", rate(measured)))
    };
    let loaded = |name: &str, measured: &Measurement| {
        measured.rtt.loaded.map_or_else(|| name.to_owned(), |rtt| format!("{name} {}", round_trip(rtt.median)))
    };
    let plot = Plot::new("Rate and round-trip time before the remedy and with it")
        .with(Panel::new("rate").with(line("before", before, Hue::Orange)).with(line("with it", after, Hue::Blue)))
        .with(
            Panel::new("round trip")
                .with(round_trips(before, Hue::Orange).named("before").labelled(&loaded("before", before)))
                .with(round_trips(after, Hue::Blue).named("with it").labelled(&loaded("with it", after))),
        );
    let [slow, fast] = [before, after].map(|measured| measured.rtt.loaded.map(|rtt| rtt.median));
    let delay = match slow.zip(fast) {
        Some((slow, fast)) if fast.as_secs_f64() > slow.as_secs_f64() * 1.05 => {
            format!(", and round trips grow to {}", round_trip(fast))
        }
        Some((_, fast)) => format!(", and round trips stay at {}", round_trip(fast)),
        None => String::new(),
    };
    let title = format!("{remedy} brings {}{delay}", rate(after));
    Section::new(title, "Payload that arrived, and round trips, on one axis of time.", plot)
}

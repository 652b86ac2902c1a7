//! Remedies: what is proposed, and what those did that were tried.

use fullpipe_chart::{ChartRow, Hue, Panel, Plot, PlotSeries, RowChart, SeriesForm};
use fullpipe_record::{Measurement, Remedy, Trial};

use super::course::{arrival_rates, round_trips};
use super::{PageSection, compact_table};
use crate::text::{command_time_text, remedy_reason, round_trip, steady_or_mean_rate};

/// Returns the remedies, best first; `None` without any.
pub(super) fn remedies_section(remedies: &[Remedy]) -> Option<PageSection> {
    let first = remedies.first()?;
    let predicted = |remedy: &Remedy| {
        let rate = remedy
            .predicted
            .map_or_else(String::new, |rate| rate.bits_per_second.to_string());
        rate + &remedy
            .command_time
            .map_or_else(String::new, command_time_text)
    };
    let row = |remedy: &Remedy| {
        [
            remedy.id.clone(),
            predicted(remedy),
            remedy_reason(remedy),
            remedy.commands.apply.join("; "),
        ]
    };
    let gain = first.predicted.map_or_else(String::new, |rate| {
        format!(": {} predicted", rate.bits_per_second)
    });
    let gain = gain
        + &first
            .command_time
            .map_or_else(String::new, command_time_text);
    let table = compact_table(
        ["remedy", "predicted", "why", "commands"],
        remedies.iter().map(row).collect(),
    );
    Some(PageSection::new(
        format!("Best remedy: {}{gain}", first.id),
        "Best first.",
        table,
    ))
}

/// Returns the rate with a remedy, next to the one before and the prediction.
pub(super) fn trial_section(trial: &Trial) -> PageSection {
    let mut with = ChartRow::new(&trial.remedy, &trial.measured.to_string(), Hue::Green)
        .with_bar(trial.measured);
    if let Some(forecast) = trial.predicted {
        with = with
            .with_prediction(forecast.bits_per_second)
            .with_interval(forecast.low, forecast.high);
    }
    let rows = RowChart::new("Rate before and with the remedy", ["", "rate"])
        .with_row(
            ChartRow::new("before", &trial.before.to_string(), Hue::Grey).with_bar(trial.before),
        )
        .with_row(with);
    let title = format!(
        "{} brings {} → {}",
        trial.remedy, trial.before, trial.measured
    );
    PageSection::new(
        title,
        "Payload that arrived; the tick and the thin line are the prediction, fixed before.",
        rows,
    )
}

/// Returns a section with the effect of a remedy on rate and delay.
pub(super) fn effect_section(
    before: &Measurement,
    remedy: &str,
    after: &Measurement,
) -> PageSection {
    let line = |name: &str, measured: &Measurement, hue| {
        PlotSeries::new(name, SeriesForm::Line, hue, arrival_rates(measured))
            .with_label(&format!("{name} {}", steady_or_mean_rate(measured)))
    };
    let loaded = |name: &str, measured: &Measurement| {
        measured.rtt.loaded.map_or_else(
            || name.to_owned(),
            |rtt| format!("{name} {}", round_trip(rtt.median)),
        )
    };
    let plot = Plot::new("Rate and round-trip time before the remedy and with it")
        .with_panel(
            Panel::new("rate")
                .with_series(line("before", before, Hue::Orange))
                .with_series(line("with it", after, Hue::Blue)),
        )
        .with_panel(
            Panel::new("round trip")
                .with_series(
                    round_trips(before, Hue::Orange)
                        .with_name("before")
                        .with_label(&loaded("before", before)),
                )
                .with_series(
                    round_trips(after, Hue::Blue)
                        .with_name("with it")
                        .with_label(&loaded("with it", after)),
                ),
        );
    let [slow, fast] = [before, after].map(|measured| measured.rtt.loaded.map(|rtt| rtt.median));
    let delay = match slow.zip(fast) {
        Some((slow, fast)) if fast.as_secs_f64() > slow.as_secs_f64() * 1.05 => {
            format!(", and round trips grow to {}", round_trip(fast))
        }
        Some((_, fast)) => format!(", and round trips stay at {}", round_trip(fast)),
        None => String::new(),
    };
    let title = format!("{remedy} brings {}{delay}", steady_or_mean_rate(after));
    PageSection::new(
        title,
        "Payload that arrived, and round trips, on one axis of time.",
        plot,
    )
}

//! Remedies: what is proposed, and what those did that were tried.

use fullpipe_record::{Remedy, Trial};

use super::course::{arrival_rates, round_trips};
use super::prelude::*;
use crate::text::{command_time_text, remedy_reason};

/// Returns the remedies, best first; `None` without any.
pub(super) fn remedies_section(remedies: &[Remedy]) -> Option<PageSection> {
    let first = remedies.first()?;
    let gain = first
        .predicted
        .map_text(|rate| format!(": {} predicted", rate.bits_per_second));
    let title = format!("Best remedy: {}{gain}{}", first.id, command_time(first));
    let rows = remedies.iter().map(|remedy| {
        let rate = remedy.predicted.map(|rate| rate.bits_per_second);
        [
            remedy.id.clone(),
            or_empty(rate) + &command_time(remedy),
            remedy_reason(remedy),
            remedy.commands.apply.join("; "),
        ]
    });
    let table = compact_table("remedy|predicted|why|commands", rows);
    Some(PageSection::new(title, "Best first.", table))
}

fn command_time(remedy: &Remedy) -> String {
    or_empty(remedy.command_time.map(command_time_text))
}

/// Returns the rate with a remedy, next to the one before and the prediction.
pub(super) fn trial_section(trial: &Trial) -> PageSection {
    let mut with = ChartRow::from_bar(&trial.remedy, trial.measured, Green);
    if let Some(forecast) = trial.predicted {
        with = with
            .with_prediction(forecast.bits_per_second)
            .with_interval(forecast.low, forecast.high);
    }
    let rows = RowChart::new("Rate before and with the remedy", ["", "rate"])
        .with_row(ChartRow::from_bar("before", trial.before, Grey))
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
    let (mut rates, mut delays) = (Panel::new("rate"), Panel::new("round trip"));
    for (name, measured, hue) in [("before", before, Orange), ("with it", after, Blue)] {
        let rate = format!("{name} {}", measured.summary.steady_or_mean_rate());
        let course = arrival_rates(measured);
        let line = PlotSeries::new(name, Line, hue, course);
        rates = rates.with_series(line.with_label(&rate));
        let loaded = measured
            .rtt
            .loaded
            .map_text(|rtt| format!(" {}", round_trip(rtt.median)));
        let line = round_trips(measured, hue).with_name(name);
        delays = delays.with_series(line.with_label(&format!("{name}{loaded}")));
    }
    let plot = Plot::new("Rate and round-trip time before the remedy and with it")
        .with_panel(rates)
        .with_panel(delays);
    let rate = after.summary.steady_or_mean_rate();
    PageSection::new(
        format!("{remedy} brings {rate}{}", delay_clause(before, after)),
        "Payload that arrived, and round trips, on one axis of time.",
        plot,
    )
}

/// Returns the effect of a remedy on the round trips under load, as the end of a title.
fn delay_clause(before: &Measurement, after: &Measurement) -> String {
    let [slow, fast] = [before, after].map(|measured| measured.rtt.loaded.map(|rtt| rtt.median));
    match slow.zip(fast) {
        Some((slow, fast)) if fast.as_secs_f64() > slow.as_secs_f64() * 1.05 => {
            format!(", and round trips grow to {}", round_trip(fast))
        }
        Some((_, fast)) => format!(", and round trips stay at {}", round_trip(fast)),
        None => String::new(),
    }
}

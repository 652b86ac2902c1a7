use crate::chart::value_bar;
use fullpipe_record::{Ceiling, Prediction};

use super::prelude::*;

/// Characters of the longest bar.
const BAR: usize = 10;

/// A prediction: every ceiling as a bar, the lowest named, and the ramp before it.
pub fn prediction_text(prediction: &Prediction) -> String {
    let mut text = String::new();
    if let (Some(bdp), Some(window)) = (prediction.bdp, prediction.window_needed) {
        text += &paragraph(
            &format!(
                "Bandwidth-delay product {bdp} ({} bytes); each stream needs {window} in flight.",
                bdp.get()
            ),
            2,
        );
    }
    text + &ceiling_chart(prediction) + &assumption_notes(prediction)
}

/// Returns every ceiling as a bar, and the rate that they leave.
pub(crate) fn ceiling_chart(prediction: &Prediction) -> String {
    chart_above(&expected_rate(prediction), prediction)
}

/// Returns every ceiling as a bar, and what follows from them.
pub(crate) fn chart_above(outcome: &str, prediction: &Prediction) -> String {
    // The arrow takes the place of the first line's indent, so that the text hangs behind it.
    let rate = bold_paragraph(outcome, 4).replacen("    ", "  → ", 1);
    ceiling_rows(prediction) + &rate
}

/// Returns the assumptions of the prediction.
pub(crate) fn assumption_notes(prediction: &Prediction) -> String {
    prediction
        .notes
        .iter()
        .map(|note| dim_paragraph(&format!("Note: {note}"), 2))
        .collect()
}

/// A prediction under its heading.
pub(crate) fn under_heading(title: &str, shown: &Prediction) -> String {
    heading_line(title) + &prediction_text(shown)
}

fn expected_rate(prediction: &Prediction) -> String {
    let ramp = format_if(prediction.ramp.rounds > 0, || {
        format!(
            ", after a ramp of {} ({} round trips)",
            prediction.ramp.duration, prediction.ramp.rounds
        )
    });
    format!(
        "{} of payload, limited by {}{ramp}",
        rate_with_interval(prediction),
        prediction.limit.name()
    )
}

/// The kernel model's rate, with its interval if chance makes that wide.
fn rate_with_interval(prediction: &Prediction) -> String {
    const WIDE: f64 = 1.2;
    if prediction.high.as_f64() > WIDE * prediction.low.as_f64() {
        format!(
            "{} ({} to {})",
            prediction.kernel_model, prediction.low, prediction.high
        )
    } else {
        prediction.kernel_model.to_string()
    }
}

fn ceiling_rows(prediction: &Prediction) -> String {
    let full = bar_scale(&prediction.ceilings);
    let mut table = TextTable::new("|>||");
    for ceiling in &prediction.ceilings {
        table.push_row(cells![
            ceiling.kind.name(),
            ceiling.kernel_model,
            value_bar(ceiling.kernel_model.as_f64(), full, BAR),
            ceiling.formula
        ]);
    }
    table.render(2)
}

/// The longest bar stands for the capacity, or for the highest ceiling where the capacity is not
/// known: what lies above a full pipe needs no length of its own.
fn bar_scale(ceilings: &[Ceiling]) -> f64 {
    let capacity = ceilings
        .iter()
        .find(|ceiling| ceiling.kind == Limit::Capacity);
    capacity
        .or_else(|| ceilings.iter().max_by_key(|ceiling| ceiling.kernel_model))
        .map_or(BitRate::ZERO, |ceiling| ceiling.kernel_model)
        .as_f64()
}

//! The loop: before a remedy and with it.

use fullpipe_record::{Experiment, Prediction};

use super::prelude::*;
use super::remedy::{effect_section, remedies_section};
use super::transfer::{
    evidence_section, from_to, limit_phrase, measurement_faults, transfer_sections,
};

/// Returns the article on an experiment.
pub(super) fn experiment_article(experiment: &Experiment) -> Article {
    let path = &experiment.path;
    let bottleneck = text_or(path.forward.rate, "no rate limit");
    Article {
        origin: format!(
            "fullpipe demo · emulated path, {bottleneck} × {}",
            path.rtt()
        ),
        headline: experiment_headline(experiment),
        sentences: experiment_sentences(experiment),
        facts: experiment_facts(experiment),
        sections: experiment_sections(experiment),
        ..Article::default()
    }
}

fn experiment_sections(experiment: &Experiment) -> Vec<PageSection> {
    let before = &experiment.measurement;
    let proof = experiment.proof.as_ref();
    let (predicted, verdict) = (&experiment.prediction, &experiment.verdict);
    let mut all = vec![];
    all.extend(proof.map(|proof| effect_section(before, &proof.remedy.id, &proof.measurement)));
    all.push(predictions_section(experiment));
    all.extend(remedies_section(&experiment.remedies));
    all.extend(transfer_sections(before, Some(predicted), Some(verdict)));
    all.extend(evidence_section(verdict));
    all
}

fn experiment_headline(experiment: &Experiment) -> String {
    let before = experiment.measurement.summary.steady_or_mean_rate();
    let limit = limit_phrase(experiment.verdict.kind);
    match &experiment.proof {
        Some(proof) => {
            let after = proof.measurement.summary.steady_or_mean_rate();
            let rates = from_to(&before.to_string(), &after.to_string());
            if before == BitRate::ZERO {
                return format!("{rates}: without the limit of {limit}");
            }
            let times = after.relative_to(before);
            format!("{rates}: without the limit of {limit}, {times:.1} times as much arrives")
        }
        None => format!("{before}: limited by {limit}"),
    }
}

fn experiment_sentences(experiment: &Experiment) -> Vec<String> {
    let proof = experiment.proof.as_ref();
    let mut all = vec![experiment.verdict.sentence.clone()];
    all.extend(proof.map(|proof| format!("With {}: {}", proof.remedy.id, proof.verdict.sentence)));
    all.extend(measurement_faults(&experiment.measurement));
    all.extend(
        proof
            .into_iter()
            .flat_map(|proof| measurement_faults(&proof.measurement)),
    );
    if experiment
        .undone
        .as_ref()
        .is_some_and(|undone| !undone.restored)
    {
        all.push("The settings do not read back as they were before.".to_owned());
    }
    all.dedup();
    all
}

fn experiment_facts(experiment: &Experiment) -> Vec<(String, String)> {
    let mut facts = vec![fact(
        experiment.measurement.summary.steady_or_mean_rate(),
        "before",
    )];
    let (accuracy, of_what) = if let Some(proof) = &experiment.proof {
        facts.push(fact(
            proof.measurement.summary.steady_or_mean_rate(),
            format!("with {}", proof.remedy.id),
        ));
        let loaded = [&experiment.measurement, &proof.measurement]
            .map(|measured| measured.rtt.loaded.map(|rtt| round_trip(rtt.median)));
        if let [Some(before), Some(after)] = loaded {
            facts.push(fact(from_to(&before, &after), "round trip under load"));
        }
        (proof.accuracy, "of the rate predicted with the remedy")
    } else {
        (experiment.accuracy, "of the predicted rate")
    };
    facts.extend(accuracy.map(|share| fact(tenths_of_percent(share), of_what)));
    facts
}

/// Returns predicted and measured rates next to each other.
fn predictions_section(experiment: &Experiment) -> PageSection {
    let mut rows = RowChart::new("Predicted and measured rates", ["", "measured, predicted"]);
    rows = rows.with_row(prediction_row(
        "before",
        &experiment.measurement,
        &experiment.prediction,
        Orange,
    ));
    let mut accuracies = vec![experiment.accuracy];
    if let Some(proof) = &experiment.proof {
        rows = rows.with_row(prediction_row(
            &format!("with {}", proof.remedy.id),
            &proof.measurement,
            &proof.prediction,
            Blue,
        ));
        accuracies.push(proof.accuracy);
    }
    let shares: Vec<String> = accuracies
        .into_iter()
        .flatten()
        .map(tenths_of_percent)
        .collect();
    let title = match shares.as_slice() {
        [] => "Measured, next to the prediction".to_owned(),
        shares => format!("Measured: {} of the prediction", shares.join(" and ")),
    };
    PageSection::new(
        title,
        "Bars: measured. Tick and thin line: predicted before the first packet, with its interval.",
        rows,
    )
}

fn prediction_row(
    name: &str,
    measured: &Measurement,
    predicted: &Prediction,
    hue: Hue,
) -> ChartRow {
    let (rate, expected) = (
        measured.summary.steady_or_mean_rate(),
        predicted.kernel_model,
    );
    ChartRow::from_bar(name, rate, hue)
        .with_detail(&format!("predicted {expected}"))
        .with_interval(predicted.low, predicted.high)
        .with_prediction(expected)
}

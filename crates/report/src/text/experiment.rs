//! The loop's stages as text, each printed when it has happened.

use fullpipe_record::{
    Experiment, Path, PathDirection, Prediction, Remedy, Steady, Undone, Verdict,
};

use super::diagnosis::{numbered_remedy, remedy_gain, verdict_sentences};
use super::measurement::rounded_time;
use super::prediction::under_heading;
use super::prelude::*;

/// Time of the loop outside of its two measurements: start of the hosts, round trips before the
/// load, undo.
const AROUND: Span = Span::from_secs(3);

/// Returns the announcement of at most two measurements, each of which lasts `each`.
pub fn experiment_announcement(each: Span) -> String {
    let whole = each * 2 + AROUND;
    let seconds = (whole.as_secs_f64() / 5.0).ceil() * 5.0;
    let title =
        format!("Two hosts, an emulated path between them, one TCP stream: about {seconds} s.");
    bold_paragraph(&title, 0)
}

/// The path, and what it should carry.
pub fn path_text(path: &Path, expected: &Prediction) -> String {
    let mut text = heading_line("1. The path, and what it should carry");
    if path.forward == path.reverse {
        text += &paragraph(&describe_direction(&path.forward), 2);
    } else {
        text += &paragraph(
            &format!("forward: {}", describe_direction(&path.forward)),
            2,
        );
        text += &paragraph(&format!("back: {}", describe_direction(&path.reverse)), 2);
    }
    if let (Some(bdp), Some(capacity)) = (expected.bdp, expected_capacity(expected)) {
        let need = format!(
            "Round trip {}. To fill it, {bdp} must be under way at any moment (bandwidth × delay), and both hosts must \
             have room for that. Then it carries {capacity} of payload.",
            path.rtt()
        );
        text += &paragraph(&need, 2);
    } else {
        text += &paragraph(&format!("Round trip {}; no rate limit.", path.rtt()), 2);
    }
    text + &under_heading("2. Prediction, fixed before the first packet", expected)
}

/// Returns the limit of the transfer and the evidence.
pub fn verdict_text(verdict: &Verdict) -> String {
    let mut text = heading_line("3. The limit");
    text += &verdict_sentences(verdict);
    text + &pair_table(&verdict.evidence, 4)
}

/// Remedies, best first.
pub fn remedies_text(remedies: &[Remedy], present: Option<Steady>) -> String {
    let present = present.map_or(BitRate::ZERO, |steady| steady.rate);
    let mut text = heading_line("4. What would help");
    for (index, remedy) in remedies.iter().enumerate() {
        let title = format!("{}{}", remedy.id, remedy_gain(remedy, present));
        text += &numbered_remedy(index, &title, remedy);
    }
    text
}

/// Announces the second measurement.
pub fn proof_begins(remedy: &Remedy, expected: &Prediction) -> String {
    let title = format!(
        "5. Proof: {} applied, predicted again, measured again",
        remedy.id
    );
    under_heading(&title, expected)
}

/// The way back.
pub fn undo_text(undone: &Undone) -> String {
    let state = if undone.restored {
        success_text("Both hosts have the settings that they had before (read back).")
    } else {
        failure_text("The settings do not read back as they were before.")
    };
    format!("{}  {state}\n", heading_line("6. Undone"))
}

/// Predicted and measured side by side, before and after, ramp and steady state apart, and the
/// whole in one line.
pub fn experiment_result(experiment: &Experiment) -> String {
    let mut table = TextTable::new("||>predicted|>measured|>accuracy|limit");
    let before = ExperimentRun {
        name: "before",
        expected: &experiment.prediction,
        steady: experiment.measurement.summary.steady,
        accuracy: experiment.accuracy,
        verdict: &experiment.verdict,
    };
    let after = experiment.proof.as_ref().map(|proof| ExperimentRun {
        name: "after",
        expected: &proof.prediction,
        steady: proof.measurement.summary.steady,
        accuracy: proof.accuracy,
        verdict: &proof.verdict,
    });
    for run in std::iter::once(before).chain(after) {
        table.push_row(run.ramp_row());
        table.push_row(run.steady_row());
    }
    let mut text = heading_line("Result");
    text += &table.render(2);
    text += &bold_paragraph(&experiment_status(experiment), 2);
    let runs = std::iter::once(&experiment.measurement)
        .chain(experiment.proof.as_ref().map(|proof| &proof.measurement));
    for reason in runs.flat_map(|run| &run.validity.broken) {
        text += &failure_paragraph(&format!("This result does not count: {reason}."), 2);
    }
    text
}

/// One of the two measurements of an experiment, and what was expected of it.
struct ExperimentRun<'e> {
    name: &'static str,
    expected: &'e Prediction,
    steady: Option<Steady>,
    accuracy: Option<Ratio>,
    verdict: &'e Verdict,
}

impl ExperimentRun<'_> {
    fn ramp_row(&self) -> [String; 6] {
        cells![
            self.name,
            "ramp",
            rounded_time(self.expected.ramp.duration),
            or_dash(self.steady.map(|steady| rounded_time(steady.ramp))),
            "",
            ""
        ]
    }

    fn steady_row(&self) -> [String; 6] {
        cells![
            "",
            "steady",
            self.expected.kernel_model,
            or_dash(self.steady.map(|steady| steady.rate)),
            accuracy_percent(self.accuracy),
            self.verdict.kind.name()
        ]
    }
}

fn experiment_status(experiment: &Experiment) -> String {
    let before = experiment.measurement.summary.steady_or_mean_rate();
    let limit = experiment.verdict.kind.name();
    match &experiment.proof {
        Some(proof) => {
            let after = proof.measurement.summary.steady_or_mean_rate();
            let times = format_if(before > BitRate::ZERO, || {
                format!(" ({:.1}×)", after.relative_to(before))
            });
            format!(
                "{before} → {after}{times}: the limit was {limit}, now it is {}.",
                proof.verdict.kind.name()
            )
        }
        None if experiment.interrupted => {
            format!("{before}: limited by {limit}; interrupted before a remedy was proven.")
        }
        None => format!("{before}: limited by {limit}; no setting would lift it."),
    }
}

fn expected_capacity(expected: &Prediction) -> Option<BitRate> {
    expected
        .find_ceiling(fullpipe_record::Limit::Capacity)
        .map(|ceiling| ceiling.kernel_model)
}

fn describe_direction(direction: &PathDirection) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = direction.rate {
        parts.push(rate.to_string());
    }
    parts.push(format!("{} each way", direction.delay));
    if let Some(queue) = direction.queue {
        parts.push(format!("a drop-tail queue of {queue}"));
    }
    parts.push(format!("MTU {}", direction.mtu.get()));
    if let Some(loss) = direction.loss.filter(|loss| *loss > Ratio::ZERO) {
        parts.push(format!("{loss} of packets lost"));
    }
    parts.extend(direction.effects.effect_texts());
    parts.join(", ")
}

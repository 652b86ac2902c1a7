//! The share of right verdicts, and the verdicts that were given in place of others.

use std::collections::BTreeMap;
use std::fmt::Write;

use fullpipe_diagnose::diagnose;
use fullpipe_record::Verdict;

use super::case_record::CaseRecord;
use crate::accuracy::{Accuracy, Untouched};
use crate::views::without_receiver;

/// Whose view the judgement has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Both ends.
    BothEnds,
    /// The sending end alone, as with a far end that reports nothing.
    Sender,
}

/// A way of judging every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    /// With whose view.
    pub(crate) view: View,
    /// True if the bandwidth of the path is stated.
    pub(crate) stated: bool,
}

/// Every way, the best informed first.
pub(crate) const COLUMNS: [Column; 4] = [
    Column {
        view: View::BothEnds,
        stated: true,
    },
    Column {
        view: View::BothEnds,
        stated: false,
    },
    Column {
        view: View::Sender,
        stated: true,
    },
    Column {
        view: View::Sender,
        stated: false,
    },
];

/// Share that must be right in kind and cause: from both ends, and from the sender alone.
const REQUIRED: [f64; 2] = [0.95, 0.90];

impl Column {
    /// The way that knows most.
    pub(crate) const BEST_INFORMED: Self = COLUMNS[0];

    /// Its name: `both ends, bandwidth stated`.
    pub(crate) fn name(self) -> String {
        let view = match self.view {
            View::BothEnds => "both ends",
            View::Sender => "sender alone",
        };
        format!(
            "{view}, bandwidth {}",
            if self.stated { "stated" } else { "not stated" }
        )
    }

    /// The share that must be right.
    pub(crate) fn required(self) -> f64 {
        REQUIRED[usize::from(self.view == View::Sender)]
    }

    /// Returns the verdict of `record` in this view.
    pub(crate) fn verdict(self, record: &CaseRecord) -> Verdict {
        let bandwidth = record.bandwidth.filter(|_| self.stated);
        let evidence = record.evidence(bandwidth);
        diagnose(&match self.view {
            View::BothEnds => evidence,
            View::Sender => without_receiver(evidence),
        })
    }
}

/// The verdicts of the records in one column.
#[derive(Debug)]
pub(crate) struct Score {
    /// Which.
    pub(crate) column: Column,
    /// Number of records that were judged.
    pub(crate) all: usize,
    /// Kind and cause are those that were planted.
    pub(crate) right: usize,
    /// The kind is.
    pub(crate) right_kind: usize,
    /// The verdict is another one, and has that which was planted among its candidates.
    candidate: usize,
    /// Label → what was said of it → how often.
    confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    misses: Vec<String>,
}

impl Score {
    /// Judges `records` as `column` has it.
    pub(crate) fn of(column: Column, records: &[&CaseRecord]) -> Self {
        let mut score = Self {
            column,
            all: records.len(),
            right: 0,
            right_kind: 0,
            candidate: 0,
            confusion: BTreeMap::new(),
            misses: Vec::new(),
        };
        for record in records {
            score.judge(record);
        }
        score
    }

    fn judge(&mut self, record: &CaseRecord) {
        let verdict = self.column.verdict(record);
        let (label, said) = (record.expected_verdict, verdict.name());
        *self
            .confusion
            .entry(label.name())
            .or_default()
            .entry(said)
            .or_default() += 1;
        self.right_kind += usize::from(verdict.kind == label.limit_kind());
        if (verdict.kind, verdict.cause) == (label.limit_kind(), label.limit_cause()) {
            self.right += 1;
        } else {
            self.candidate += usize::from(
                verdict
                    .candidates
                    .iter()
                    .any(|candidate| candidate.name() == label.name()),
            );
            self.misses
                .push(format!("{}: {said}: {}", record.name, verdict.sentence));
        }
    }

    /// Share of all that are right in kind and cause.
    pub(crate) fn share(&self) -> f64 {
        self.right as f64 / (self.all as f64).max(1.0)
    }

    /// Returns whether enough are right.
    pub(crate) fn is_enough(&self) -> bool {
        self.share() >= self.column.required()
    }

    /// The score, the confusion matrix and each miss, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "\n{}: {} of {} right ({:.1} %, {:.0} % are required), {} in kind; \
             {} more have it among their candidates\n\n",
            self.column.name(),
            self.right,
            self.all,
            self.share() * 100.0,
            self.column.required() * 100.0,
            self.right_kind,
            self.candidate
        );
        for (label, said) in &self.confusion {
            let total: usize = said.values().sum();
            let right = said.get(label).copied().unwrap_or(0);
            let others = said.iter().filter(|(name, _)| *name != label);
            let others: Vec<String> = others
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            let _ = writeln!(
                text,
                "  {label:<42} {right:>3} of {total:<3} {}",
                others.join(", ")
            );
        }
        if !self.misses.is_empty() {
            text.push_str("\n  missed\n");
        }
        for miss in &self.misses {
            let _ = writeln!(text, "  {miss}");
        }
        text
    }
}

/// Returns the model's figures compared with those of all records whose limit it can know.
pub(crate) fn accuracy(records: &[&CaseRecord]) -> Accuracy {
    let mut accuracy = Accuracy::default();
    for record in records {
        if let Some(steady) = record.observation.steady() {
            accuracy.hold_prediction(&Untouched {
                name: &record.name,
                expected: record.expected_verdict,
                prediction: &record.prediction,
                request: record.observation.request(),
                steady,
            });
        }
        if let Some(result) = &record.remedy_result {
            accuracy.hold_promise(&record.name, result, None);
        }
    }
    accuracy
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{LossVerdict, ReceiveWindowVerdict};

    /// A window that a program fixed, on 100 Mbit/s × 40 ms.
    fn record() -> CaseRecord {
        serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap()
    }

    #[test]
    fn a_verdict_counts_by_kind_and_cause() {
        let right = record();
        let wrong_cause = CaseRecord {
            expected_verdict: ReceiveWindowVerdict::WindowClamped.into(),
            ..record()
        };
        let wrong = CaseRecord {
            expected_verdict: LossVerdict::Random.into(),
            ..record()
        };
        let score = Score::of(COLUMNS[0], &[&right, &wrong_cause, &wrong]);
        assert_eq!((score.all, score.right, score.right_kind), (3, 1, 2));
        assert!(!score.is_enough());
        let text = score.text();
        assert!(
            text.contains("receive-window/so-rcvbuf                     1 of 1"),
            "{text}"
        );
        assert!(
            text.contains(
                "loss/random                                  0 of 1   1 receive-window/so-rcvbuf"
            ),
            "{text}"
        );
        assert!(text.contains("missed"), "{text}");
    }

    #[test]
    fn the_sender_alone_knows_nothing_of_the_receiver() {
        let both = record().evidence(None);
        assert!(both.receiver.is_some() && !both.receiver_samples.is_empty());
        let alone = without_receiver(both.clone());
        assert!(
            alone.receiver.is_none()
                && alone.receiver_samples.is_empty()
                && alone.receiver_sockets.is_empty()
        );
        assert_eq!(
            (alone.sender, alone.sender_samples),
            (both.sender, both.sender_samples)
        );
    }

    #[test]
    fn the_model_is_held_against_what_it_knows() {
        let record = record();
        let accuracy = accuracy(&[&record]);
        let steady = record.observation.steady().unwrap().rate;
        let off = (steady.relative_to(record.prediction.kernel_model) - 1.0).abs();
        assert_eq!(accuracy.deterministic, [off]);
        let stripped = ReceiveWindowVerdict::WindowScaleStripped.into();
        assert!(
            super::accuracy(&[&CaseRecord {
                expected_verdict: stripped,
                ..record
            }])
            .deterministic
            .is_empty()
        );
    }
}

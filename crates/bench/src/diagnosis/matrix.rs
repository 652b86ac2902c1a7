//! The share of right verdicts, and the verdicts that were given in place of others.

use std::collections::BTreeMap;
use std::fmt::Write;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit, Machine, Verdict, Writer};
use fullpipe_units::BitRate;

use super::case_record::CaseRecord;

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
    Column { view: View::BothEnds, stated: true },
    Column { view: View::BothEnds, stated: false },
    Column { view: View::Sender, stated: true },
    Column { view: View::Sender, stated: false },
];

/// Share that must be right in kind and cause: from both ends, and from the sender alone.
const REQUIRED: [f64; 2] = [0.95, 0.90];

impl Column {
    /// Its name: `both ends, bandwidth stated`.
    pub(crate) fn name(self) -> String {
        let view = match self.view {
            View::BothEnds => "both ends",
            View::Sender => "sender alone",
        };
        format!("{view}, bandwidth {}", if self.stated { "stated" } else { "not stated" })
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
            View::Sender => of_sender(evidence),
        })
    }
}

/// Returns the evidence of the sending end alone.
fn of_sender(evidence: Evidence) -> Evidence {
    Evidence {
        receiver: None,
        receiver_sockets: Vec::new(),
        receiver_samples: Vec::new(),
        receiver_machine: Machine::default(),
        ..evidence
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
        *self.confusion.entry(label.name()).or_default().entry(said).or_default() += 1;
        self.right_kind += usize::from(verdict.kind == label.kind());
        if (verdict.kind, verdict.cause) == (label.kind(), label.cause()) {
            self.right += 1;
        } else {
            self.misses.push(format!("{}: {said}: {}", record.name, verdict.sentence));
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
            "\n{}: {} of {} right ({:.1} %, {:.0} % are required), {} in kind\n\n",
            self.column.name(),
            self.right,
            self.all,
            self.share() * 100.0,
            self.column.required() * 100.0,
            self.right_kind
        );
        for (label, said) in &self.confusion {
            let total: usize = said.values().sum();
            let right = said.get(label).copied().unwrap_or(0);
            let others = said.iter().filter(|(name, _)| *name != label);
            let others: Vec<String> = others.map(|(name, count)| format!("{count} {name}")).collect();
            let _ = writeln!(text, "  {label:<42} {right:>3} of {total:<3} {}", others.join(", "));
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

/// The model's figures compared with measured ones.
#[derive(Debug, Default)]
pub(crate) struct Accuracy {
    /// |measured ÷ predicted − 1| of ceilings that a rule gives, ascending.
    pub(crate) deterministic: Vec<f64>,
    /// Records with a ceiling that chance has a part in.
    pub(crate) random: usize,
    /// Of these, inside the interval stated.
    pub(crate) inside: usize,
    /// Remedies that were tried.
    pub(crate) proofs: usize,
    /// Of these, inside their interval or within 0.90 to 1.15 of what they promised.
    pub(crate) proven: usize,
    misses: Vec<String>,
}

/// Causes that the model knows, of path, settings and buffers; a device that edits packets, a program's own pace or
/// another flow is beyond it.
const MODELLED: [Cause; 7] = [
    Cause::SoRcvbuf,
    Cause::TcpRmemMax,
    Cause::NoWindowScaling,
    Cause::SoSndbuf,
    Cause::TcpWmemMax,
    Cause::Link,
    Cause::Random,
];

/// A deterministic ceiling may be missed by this, in the median and at the 95th percentile.
const MEDIAN: f64 = 0.03;
const PERCENTILE_95: f64 = 0.08;
/// Measured rate after a remedy ÷ predicted rate.
const PROMISE: std::ops::RangeInclusive<f64> = 0.90..=1.15;

impl Accuracy {
    /// Of all records whose limit the model can know.
    pub(crate) fn of(records: &[&CaseRecord]) -> Self {
        let mut accuracy = Self::default();
        for record in records {
            accuracy.hold_prediction(record);
            accuracy.hold_promise(record);
        }
        accuracy.deterministic.sort_by(f64::total_cmp);
        accuracy
    }

    fn hold_prediction(&mut self, record: &CaseRecord) {
        let prediction = &record.prediction;
        let knows =
            MODELLED.contains(&record.expected_verdict.cause()) && prediction.limit == record.expected_verdict.kind();
        let Some(steady) = record.observation.steady().filter(|_| knows) else { return };
        let name = &record.name;
        // When a sleeping writer is woken is up to the scheduler, and to how acknowledgements arrive.
        let by_chance = prediction.limit == Limit::Loss || record.observation.request().writer == Writer::Blocking;
        if by_chance {
            self.random += 1;
            if (prediction.low..=prediction.high).contains(&steady.rate) {
                self.inside += 1;
            } else {
                let [low, high] = [prediction.low, prediction.high];
                self.misses.push(format!("{name}: {} is not in {low} to {high}", steady.rate));
            }
            return;
        }
        let off = steady.rate.relative_to(prediction.kernel_model) - 1.0;
        self.deterministic.push(off.abs());
        if off.abs() > MEDIAN {
            self.misses.push(format!(
                "{name}: {} is {:+.1} % of {}",
                steady.rate,
                off * 100.0,
                prediction.kernel_model
            ));
        }
    }

    fn hold_promise(&mut self, record: &CaseRecord) {
        let Some(result) = &record.remedy_result else { return };
        let promised = result.predicted;
        let share = result.measured.relative_to(promised.bits_per_second);
        let inside = (promised.low..=promised.high).contains(&result.measured);
        self.proofs += 1;
        if inside || PROMISE.contains(&share) {
            self.proven += 1;
        } else {
            let promised: BitRate = promised.bits_per_second;
            self.misses
                .push(format!("{}: {} gave {}, {share:.2} of {promised}", record.name, result.remedy, result.measured));
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let last = self.deterministic.len().saturating_sub(1);
        self.deterministic.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }

    /// The figures and what misses them, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "\npredictions: {} of deterministic ceilings, off by {:.1} % in the median ({:.0} % allowed) and {:.1} % \
             at the 95th percentile ({:.0} % allowed)\n{} of {} with chance in them are inside their interval; {} of \
             {} remedies gave what they promised\n",
            self.deterministic.len(),
            self.quantile(0.5) * 100.0,
            MEDIAN * 100.0,
            self.quantile(0.95) * 100.0,
            PERCENTILE_95 * 100.0,
            self.inside,
            self.random,
            self.proven,
            self.proofs
        );
        for miss in &self.misses {
            let _ = writeln!(text, "  {miss}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::case_record::RemedyResult;
    use fullpipe_record::{Forecast, LossVerdict, ReceiveWindowVerdict};

    /// A window that a program fixed, on 100 Mbit/s × 40 ms.
    fn record() -> CaseRecord {
        serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap()
    }

    #[test]
    fn a_verdict_counts_by_kind_and_cause() {
        let right = record();
        let wrong_cause = CaseRecord { expected_verdict: ReceiveWindowVerdict::WindowClamped.into(), ..record() };
        let wrong = CaseRecord { expected_verdict: LossVerdict::Random.into(), ..record() };
        let score = Score::of(COLUMNS[0], &[&right, &wrong_cause, &wrong]);
        assert_eq!((score.all, score.right, score.right_kind), (3, 1, 2));
        assert!(!score.is_enough());
        let text = score.text();
        assert!(text.contains("receive-window/so-rcvbuf                     1 of 1"), "{text}");
        assert!(
            text.contains("loss/random                                  0 of 1   1 receive-window/so-rcvbuf"),
            "{text}"
        );
        assert!(text.contains("missed"), "{text}");
    }

    #[test]
    fn the_sender_alone_knows_nothing_of_the_receiver() {
        let both = record().evidence(None);
        assert!(both.receiver.is_some() && !both.receiver_samples.is_empty());
        let alone = of_sender(both.clone());
        assert!(alone.receiver.is_none() && alone.receiver_samples.is_empty() && alone.receiver_sockets.is_empty());
        assert_eq!((alone.sender, alone.sender_samples), (both.sender, both.sender_samples));
    }

    #[test]
    fn the_model_is_held_against_what_it_knows() {
        let record = record();
        let accuracy = Accuracy::of(&[&record]);
        let steady = record.observation.steady().unwrap().rate;
        let off = (steady.relative_to(record.prediction.kernel_model) - 1.0).abs();
        assert_eq!(accuracy.deterministic, [off]);
        let stripped = ReceiveWindowVerdict::WindowScaleStripped.into();
        assert!(Accuracy::of(&[&CaseRecord { expected_verdict: stripped, ..record }]).deterministic.is_empty());
    }

    #[test]
    fn a_remedy_keeps_its_promise_inside_its_interval_or_near_its_figure() {
        let mbps = BitRate::from_mbps;
        let proven = |figure, low, high, measured| {
            let predicted = Forecast { bits_per_second: mbps(figure), low: mbps(low), high: mbps(high) };
            let result = RemedyResult { remedy: "raise-so-rcvbuf".to_owned(), predicted, measured: mbps(measured) };
            Accuracy::of(&[&CaseRecord { remedy_result: Some(result), ..record() }]).proven
        };
        assert_eq!(proven(90, 88, 94, 81), 1, "0.90 of it");
        assert_eq!(proven(90, 50, 94, 60), 1, "in its interval");
        assert_eq!((proven(90, 88, 94, 80), proven(90, 88, 94, 104)), (0, 0));
    }
}

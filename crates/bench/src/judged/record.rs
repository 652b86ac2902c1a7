//! Records of cases as files of JSON, from which the verdict can be computed again without a
//! network.

use std::fs;
use std::io;
use std::path::Path as FilePath;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_model::predict;
use fullpipe_record::{Evidence, LegalVerdict, Path, Prediction, Remedy, Sample, Verdict};
use fullpipe_units::{BitRate, Ratio, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::accuracy::{Accuracy, RemedyResult, Untouched};
use super::view::{JudgedView, Judgement};

/// A case, and what was seen of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Name of the case, such as `loss/random 20M×150ms cubic 0.25`.
    pub(crate) name: String,
    /// View from which it was judged when it ran.
    pub(crate) view: JudgedView,
    /// Kind and cause that were planted.
    pub(crate) expected: String,
    /// Rate of the path; `None` if it has none.
    pub(crate) bandwidth: Option<BitRate>,
    /// Set if the user stated that rate.
    pub(crate) states_rate: bool,
    /// The path from the sender to the receiver and back.
    pub(crate) path: Path,
    /// Why the run is invalid by its own checks.
    pub(crate) broken: Option<String>,
    /// Why the planted limit was none.
    pub(crate) not_planted: Option<String>,
    /// Why there is no verdict.
    pub(crate) failed: Option<String>,
    pub(crate) verdict: Option<Verdict>,
    #[serde(default)]
    pub(crate) remedies: Vec<Remedy>,
    pub(crate) evidence: Option<Evidence>,
    /// Result of the best remedy, where a part of it was carried out.
    pub(crate) remedy_result: Option<RemedyResult>,
    /// Share of its rate that a transfer of another program keeps under the first remedy that
    /// changes a host.
    pub(crate) kept_by_others: Option<Ratio>,
}

/// Least time between two samples of a stream that [`Record::thin_samples`] leaves, for each of at
/// most four streams.
const SAMPLE_SPACING: Span = Span::from_millis(50);

/// Share of its rate that another transfer must keep under a remedy.
pub(crate) const MUST_KEEP: f64 = 0.95;

impl Record {
    /// Returns the record of a case that has no evidence yet.
    pub(crate) fn new(name: &str, view: JudgedView, expected: &str, path: Path) -> Self {
        Self {
            name: name.to_owned(),
            view,
            expected: expected.to_owned(),
            bandwidth: path.forward.rate,
            states_rate: false,
            path,
            broken: None,
            not_planted: None,
            failed: None,
            verdict: None,
            remedies: Vec::new(),
            evidence: None,
            remedy_result: None,
            kept_by_others: None,
        }
    }

    /// Returns the rate of the path, if the user states it.
    pub(crate) fn stated(&self) -> Option<BitRate> {
        self.bandwidth.filter(|_| self.states_rate)
    }

    /// Writes it into `folder`, without what is unknown: most figures of a sample are.
    ///
    /// # Errors
    /// Fails if the folder or the file cannot be written.
    pub(crate) fn write(&self, folder: &FilePath) -> io::Result<()> {
        let mut value = serde_json::to_value(self)?;
        remove_nulls(&mut value);
        fs::create_dir_all(folder)?;
        let name = format!("{}.json", self.stem());
        fs::write(folder.join(name), serde_json::to_vec(&value)?)
    }

    /// Returns the name of its file, without the ending.
    pub(crate) fn stem(&self) -> String {
        file_name(&format!("{:?} {}", self.view, self.name))
    }

    /// Removes samples, so that those of a stream are some time apart; the last one stays.
    pub(crate) fn thin_samples(&mut self) {
        let Some(evidence) = &mut self.evidence else {
            return;
        };
        let spacing = SAMPLE_SPACING * u64::from(evidence.request.streams).clamp(1, 4);
        for samples in [&mut evidence.sender_samples, &mut evidence.receiver_samples] {
            *samples = thinned(samples, spacing);
        }
    }

    /// Replaces the verdict and what it promises by those of the present rules. The result of a
    /// remedy that they do not have is dropped.
    pub(crate) fn judge_again(&mut self) {
        let Some(evidence) = &self.evidence else {
            return;
        };
        let verdict = diagnose(evidence);
        self.remedies = find_remedies(evidence, &verdict);
        self.verdict = Some(verdict);
        self.remedy_result = self.remedy_result.take().and_then(|result| {
            let mut remedies = self.remedies.iter();
            let remedy = remedies.find(|remedy| remedy.id == result.remedy)?;
            Some(RemedyResult {
                predicted: remedy.predicted?,
                predicted_rtt: remedy.rtt,
                ..result
            })
        });
    }

    /// Returns why the case does not count; `None` if it does.
    pub(crate) fn left_out(&self) -> Option<&String> {
        self.broken.as_ref().or(self.not_planted.as_ref())
    }

    /// Returns the prediction of the untouched path, where the settings of both ends are known.
    pub(crate) fn prediction(&self) -> Option<Prediction> {
        let evidence = self.evidence.as_ref()?;
        let (sender, receiver) = evidence.sender.as_ref().zip(evidence.receiver.as_ref())?;
        Some(predict(&self.path, sender, receiver, &evidence.request))
    }

    /// Holds predictions against what was measured: that of the untouched path, and that of the
    /// remedy.
    pub(crate) fn hold(&self, accuracy: &mut Accuracy) {
        if let Some(result) = &self.remedy_result {
            let path = self.bandwidth.filter(|_| !self.states_rate);
            accuracy.hold_promise(&self.name, result, path);
        }
        let expected = LegalVerdict::from_name(&self.expected);
        let steady = self
            .evidence
            .as_ref()
            .and_then(|evidence| Some((&evidence.request, evidence.steady?)));
        if let (Some(expected), Some((request, steady)), Some(prediction)) =
            (expected, steady, self.prediction())
        {
            accuracy.hold_prediction(&Untouched {
                name: &self.name,
                expected,
                prediction: &prediction,
                request,
                steady,
            });
        }
    }

    /// Returns the verdict of the run.
    pub(crate) fn judgement(&self) -> Judgement {
        Judgement {
            transfer: self.name.clone(),
            view: self.view,
            expected: self.expected.clone(),
            verdict: self.verdict.clone(),
        }
    }

    /// Returns the verdicts of the present rules from these views, with this bandwidth stated; of a
    /// program that was watched, from its own view alone.
    pub(crate) fn judged_from(
        &self,
        views: &[JudgedView],
        bandwidth: Option<BitRate>,
    ) -> Vec<Judgement> {
        let Some(evidence) = &self.evidence else {
            return Vec::new();
        };
        let views = if evidence.is_watched {
            &[self.view]
        } else {
            views
        };
        let judged = views.iter().map(|view| Judgement {
            view: *view,
            verdict: Some(diagnose(&view.evidence(evidence, bandwidth))),
            ..self.judgement()
        });
        judged.collect()
    }

    /// Returns the verdicts on listings of the sender, the last of which is taken at a share of the
    /// transfer's time.
    pub(crate) fn listed(&self, share: f64, bandwidth: Option<BitRate>) -> Vec<Judgement> {
        let sender = self.evidence.iter();
        sender
            .flat_map(|sender| self.judgement().listed(sender, share, bandwidth))
            .collect()
    }
}

fn thinned(samples: &[Sample], spacing: Span) -> Vec<Sample> {
    let mut left: Vec<Sample> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let is_same = |other: &&Sample| other.stream == sample.stream;
        let previous = left.iter().rev().find(is_same);
        let is_last = !samples[index + 1..].iter().any(|later| is_same(&later));
        let is_apart = |previous: &Sample| sample.at.saturating_sub(previous.at) >= spacing;
        if is_last || previous.is_none_or(is_apart) {
            left.push(sample.clone());
        }
    }
    left
}

/// Removes every field that is null, at every depth.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Returns `name` with a hyphen in place of every character that is neither an ASCII letter, an
/// ASCII digit nor a dot, so that a shell needs no quotes around the file name.
fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    name.chars()
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a transfer over a lab whose receiver's buffer was fixed.
    fn recorded() -> Record {
        serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap()
    }

    #[test]
    fn a_file_name_needs_no_quotes_in_a_shell() {
        assert_eq!(
            file_name("loss/random 20M×150ms cubic 0.25"),
            "loss-random-20M-150ms-cubic-0.25"
        );
    }

    #[test]
    fn a_record_is_judged_as_it_was_when_it_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = recorded();
        record.judge_again();
        record.write(folder.path()).unwrap();
        let file = folder.path().join(format!("{}.json", record.stem()));
        let mut back: Record = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        back.judge_again();
        assert_eq!(back, record);
        assert!(record.judgement().is_right());
    }

    #[test]
    fn thin_samples_are_some_time_apart_and_end_with_the_last() {
        let mut record = recorded();
        let last = |record: &Record| {
            record
                .evidence
                .as_ref()
                .unwrap()
                .sender_samples
                .last()
                .cloned()
        };
        let before = last(&record);
        record.thin_samples();
        assert_eq!(last(&record), before);
        let samples = &record.evidence.unwrap().sender_samples;
        let pairs = samples[..samples.len() - 1].windows(2);
        assert!(pairs.clone().count() > 0);
        for pair in pairs {
            assert!(pair[1].at.saturating_sub(pair[0].at) >= SAMPLE_SPACING);
        }
    }

    #[test]
    fn the_model_is_held_against_what_it_knows() {
        let record = recorded();
        let mut accuracy = Accuracy::default();
        record.hold(&mut accuracy);
        let rate = record.evidence.as_ref().unwrap().steady.unwrap().rate;
        let off = rate.relative_to(record.prediction().unwrap().kernel_model) - 1.0;
        assert_eq!(accuracy.deterministic, [off.abs()]);
        let mut accuracy = Accuracy::default();
        let expected = "receive-window/window-scale-stripped".to_owned();
        Record { expected, ..record }.hold(&mut accuracy);
        assert!(accuracy.deterministic.is_empty());
    }
}

//! Records of cases as JSON files, from which the verdict can be computed again without a network.

use std::fs;
use std::io;
use std::path::Path as FilePath;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_model::predict;
use fullpipe_record::{Evidence, LegalVerdict, Path, Remedy, Verdict};
use fullpipe_units::{BitRate, Ratio};
use serde::{Deserialize, Serialize};

use super::case::View;
use crate::accuracy::{Accuracy, Bandwidth, RemedyResult, Untouched};
use crate::records::file_name;
use crate::views::Judgement;

/// A case, what the program printed of it, and the evidence that it printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) view: View,
    /// Kind and cause that were planted.
    pub(crate) expected: String,
    /// Rate of the path.
    pub(crate) bandwidth: BitRate,
    /// Set if the user stated that rate.
    pub(crate) states_rate: bool,
    /// The path from the sender to the receiver and back.
    pub(crate) path: Path,
    /// Why the run is invalid by its own checks.
    pub(crate) broken: Option<String>,
    /// Why the planted limit was none.
    #[serde(default)]
    pub(crate) not_planted: Option<String>,
    /// Why there is no verdict.
    pub(crate) failed: Option<String>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) remedies: Vec<Remedy>,
    pub(crate) evidence: Option<Evidence>,
    /// Result of the best remedy, where a part of it was carried out.
    #[serde(default)]
    pub(crate) remedy_result: Option<RemedyResult>,
    /// Share of its rate that a transfer of another program keeps under the first remedy that
    /// changes a host.
    #[serde(default)]
    pub(crate) kept_by_others: Option<Ratio>,
}

/// Returns the begin of the names of all files of a case.
pub(crate) fn stem(view: View, name: &str) -> String {
    file_name(&format!("{view:?} {name}"))
}

impl Record {
    /// Writes it into `folder`.
    ///
    /// # Errors
    /// If the folder or the file cannot be written.
    pub(crate) fn write(&self, folder: &FilePath) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(
            folder.join(format!("{}.json", self.stem())),
            serde_json::to_vec(self)?,
        )
    }

    /// Name of its file, without the ending.
    pub(crate) fn stem(&self) -> String {
        stem(self.view, &self.name)
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
        let tried = self.remedy_result.take().and_then(|result| {
            let remedy = self
                .remedies
                .iter()
                .find(|remedy| remedy.id == result.remedy)?;
            Some(RemedyResult {
                predicted: remedy.predicted?,
                predicted_rtt: remedy.rtt,
                ..result
            })
        });
        self.remedy_result = tried;
    }

    /// Returns why the case does not count; `None` if it does.
    pub(crate) fn left_out(&self) -> Option<&String> {
        self.broken.as_ref().or(self.not_planted.as_ref())
    }

    /// Compares the predictions of the untouched path, if the settings of both ends are known, and
    /// of the remedy with what was measured.
    pub(crate) fn hold(&self, accuracy: &mut Accuracy) {
        if let Some(result) = &self.remedy_result {
            let path = Bandwidth {
                rate: self.bandwidth,
                is_stated: self.states_rate,
            };
            accuracy.hold_promise(&self.name, result, Some(path));
        }
        let Some(Evidence {
            sender: Some(sender),
            receiver: Some(receiver),
            request,
            steady: Some(steady),
            ..
        }) = &self.evidence
        else {
            return;
        };
        let Some(expected) = LegalVerdict::from_name(&self.expected) else {
            return;
        };
        let prediction = &predict(&self.path, sender, receiver, request);
        accuracy.hold_prediction(&Untouched {
            name: &self.name,
            expected,
            prediction,
            request,
            steady: *steady,
        });
    }

    /// Returns the verdicts on listings of its sender, where its figures are known.
    pub(crate) fn listed(&self) -> Vec<Judgement> {
        /// Share of the transfer's time after which the last listing is taken.
        const LISTED_AT: f64 = 0.85;
        let stated = Some(self.bandwidth).filter(|_| self.states_rate);
        let sender = self.evidence.iter();
        sender
            .flat_map(|sender| self.judgement().listed(sender, LISTED_AT, stated))
            .collect()
    }

    /// Returns the verdict of its view.
    pub(crate) fn judgement(&self) -> Judgement {
        Judgement {
            transfer: self.name.clone(),
            view: self.view.into(),
            expected: self.expected.clone(),
            verdict: self.verdict.clone(),
        }
    }
}

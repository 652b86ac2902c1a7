use serde::de;

use crate::indentation::indent_json;
use crate::prelude::*;
use crate::{
    ArchiveCheck, ArchiveReport, ArchiveThinned, Calculation, CaptureReport, Combination,
    CompletionForecast, CopyReport, DiagnosisReport, DifferenceReport, Experiment, GridReport,
    HistoryReport, HostAdvice, HostApplied, HostReport, HostUndone, ImportedFile, LabReport,
    Measurement, Path, PathTruth, ProgramsReport, RampReport, SCHEMA_VERSION, SimulatedTransfer,
    StoredDocument, SweepPlan, SweepReport, SweepRunRecord, WhatIfReport,
};

/// Error of a command that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// Error message: the sentence that the command prints on standard error.
    pub message: String,
    /// Exit code of the program.
    pub exit_code: u8,
}

/// JSON document that a command prints with `--json`: the version of the schema, the result with
/// its `kind`, and the error if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Version of the JSON schema.
    pub schema: u32,
    /// Result of the command; partial if the command failed or was interrupted after the work had
    /// begun.
    #[serde(flatten)]
    pub content: Content,
    /// Error with which the command failed. Absent if the command succeeded, and also if only the
    /// result itself shows why the exit code is not 0: `lab run` or `lab grid` missed a bound, a
    /// run was invalid, not every setting was restored, or the user interrupted the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}

impl Document {
    /// Returns a document with `content` and without an error.
    pub const fn new(content: Content) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            content,
            error: None,
        }
    }

    /// Returns the document of a command that failed with `error` before there was a result.
    pub const fn from_error(error: ErrorReport) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            content: Content::Error,
            error: Some(error),
        }
    }

    /// Returns this document with `error` in place of its error; `None` removes the error.
    #[must_use]
    pub fn with_error(self, error: Option<ErrorReport>) -> Self {
        Self { error, ..self }
    }
}

// The code that reads and writes a document is large. It is compiled here, once, in place of once
// for each crate that reads or writes one.
impl Document {
    /// Returns the document that `json` holds.
    ///
    /// # Errors
    /// Fails if it holds anything else, or a document of a newer version of the schema.
    pub fn from_json(json: &[u8]) -> serde_json::Result<Self> {
        let document = serde_json::from_slice(json);
        // A newer document may have what this program does not know, and is reported for its
        // version first.
        match serde_json::from_slice(json) {
            Ok(version) => DocumentVersion::check_supported(version).and(document),
            Err(_) => document,
        }
    }

    /// Returns the document that is the JSON value `value`.
    ///
    /// # Errors
    /// Fails if it is anything else, or a document of a newer version of the schema.
    pub fn from_value(value: serde_json::Value) -> serde_json::Result<Self> {
        if let Some(schema) = value.get("schema").and_then(serde_json::Value::as_u64) {
            DocumentVersion { schema }.check_supported()?;
        }
        serde_json::from_value(value)
    }

    /// Returns this document as JSON on one line, without a newline at its end.
    ///
    /// # Panics
    /// Never: records hold strings, numbers and lists, all of which can be written.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record can always be written as JSON")
    }

    /// Returns this document as JSON, one value a line, with a newline at its end.
    ///
    /// # Panics
    /// Never, for the same reason.
    pub fn to_indented_json(&self) -> String {
        let mut text = indent_json(&self.to_json());
        text.push(b'\n');
        String::from_utf8(text).expect("a document is text")
    }
}

/// The version of a document, whatever else is in it.
#[derive(Deserialize)]
struct DocumentVersion {
    schema: u64,
}

impl Content {
    /// Returns the measurement that this is the result of; of a loop with a remedy, the one before
    /// it.
    pub fn measurement(&self) -> Option<&Measurement> {
        match self {
            Self::Measurement { measurement, .. }
            | Self::Diagnosis {
                measurement: Some(measurement),
                ..
            } => Some(measurement),
            Self::Experiment { experiment } => Some(&experiment.measurement),
            _ => None,
        }
    }
}

impl DocumentVersion {
    fn check_supported(self) -> serde_json::Result<()> {
        if self.schema <= SCHEMA_VERSION.into() {
            return Ok(());
        }
        let Self { schema } = self;
        let why = format!(
            "it has schema {schema} of a newer fullpipe; this one knows up to {SCHEMA_VERSION}"
        );
        Err(de::Error::custom(why))
    }
}

/// Result of a command; the JSON key `kind` names the variant in kebab case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Content {
    /// Result of `fullpipe demo`.
    Experiment {
        /// Prediction, measurement, verdict, remedy with its measurement, and the restored
        /// settings.
        experiment: Box<Experiment>,
    },
    /// Result of `fullpipe measure`, and of `fullpipe simulate` for one transfer.
    Measurement {
        /// Measurement of one test.
        measurement: Box<Measurement>,
        /// The simulated path; absent if the path was a real one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<Box<Path>>,
        /// When the stated size is complete; absent if none was stated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        completion: Option<CompletionForecast>,
        /// The upload that followed a download with a server of ndt7.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        followed_by: Option<Box<Measurement>>,
    },
    /// Result of `fullpipe measure --ramp`.
    Ramp {
        /// Round-trip time and loss at each load.
        ramp: Box<RampReport>,
    },
    /// Result of `fullpipe diagnose`.
    Diagnosis {
        /// Measurement that was judged; absent if the transfers of another program were watched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measurement: Option<Box<Measurement>>,
        /// Limit and remedies of each transfer.
        diagnosis: Box<DiagnosisReport>,
    },
    /// Result of `fullpipe diff`.
    Difference {
        /// Difference of A and B, and the runs that show it.
        difference: Box<DifferenceReport>,
    },
    /// Result of `fullpipe copy`.
    Copy {
        /// Files, bytes, rate, and what limited it.
        copy: Box<CopyReport>,
    },
    /// Result of `fullpipe calc` for one value of each quantity.
    Calculation {
        /// Solved equation, prediction, needs of the target, and what-ifs.
        calculation: Box<Calculation>,
    },
    /// Result of `fullpipe calc` for a range or a list of values of at least one quantity.
    Table {
        /// One row for each combination of the values.
        table: Vec<Combination>,
    },
    /// Result of `fullpipe lab run`.
    Lab {
        /// One report for each scenario that was run.
        lab: Vec<LabReport>,
    },
    /// Result of `fullpipe lab grid`.
    Grid {
        /// Report of all measured cells of the grid.
        grid: Box<GridReport>,
    },
    /// Result of `fullpipe sweep` and `fullpipe lab sweep`.
    Sweep {
        /// Runs, the surface through them, and the knee.
        sweep: Box<SweepReport>,
    },
    /// Result of `fullpipe lab compare`.
    Programs {
        /// Rates and limits of each program under each set of settings.
        programs: Box<ProgramsReport>,
    },
    /// Plan of a sweep, as it is kept, and as `--dry-run` prints it.
    SweepPlan {
        /// Grid, round-trip time, budget.
        sweep_plan: Box<SweepPlan>,
    },
    /// A run of a sweep, as it is kept.
    SweepRun {
        /// The run with its measurement.
        sweep_run: Box<SweepRunRecord>,
    },
    /// Result of `fullpipe simulate` for several transfers, or several seeds of one.
    Simulations {
        /// One for each transfer.
        simulations: Vec<SimulatedTransfer>,
    },
    /// Result of `fullpipe simulate --from`.
    WhatIf {
        /// One report for each measurement of the document that was read.
        what_if: Vec<WhatIfReport>,
    },
    /// Result of `fullpipe host show`.
    HostSettings {
        /// Settings of this host.
        host_settings: Box<HostReport>,
    },
    /// Result of `fullpipe host advise`.
    HostAdvice {
        /// Advised changes of the settings of this host.
        host_advice: Box<HostAdvice>,
    },
    /// Result of `fullpipe host apply`.
    HostApplied {
        /// Changes that were made, or that would be made without `--dry-run`.
        host_applied: Box<HostApplied>,
    },
    /// Result of `fullpipe host undo`.
    HostUndone {
        /// Settings that were restored, and settings that could not be restored.
        host_undone: Box<HostUndone>,
    },
    /// Result of `fullpipe trace`.
    Capture {
        /// The connections in the capture.
        capture: Box<CaptureReport>,
    },
    /// Record of an emulated path, which `fullpipe lab run --capture` writes with the captures of
    /// its ends.
    PathTruth {
        /// Effects of the path on the packets.
        path_truth: Box<PathTruth>,
    },
    /// Result of `fullpipe store create` and `fullpipe store path`.
    Archive {
        /// The archive as a whole.
        archive: Box<ArchiveReport>,
    },
    /// Result of `fullpipe store list`, `fullpipe store show` and each line of
    /// `fullpipe store export --json-lines`.
    Stored {
        /// Documents of the archive with their facts, newest first.
        stored: Vec<StoredDocument>,
    },
    /// Result of `fullpipe store import`.
    Imported {
        /// One for each file.
        imported: Vec<ImportedFile>,
    },
    /// Result of `fullpipe store check`.
    ArchiveCheck {
        /// Damaged documents and stale facts.
        archive_check: Box<ArchiveCheck>,
    },
    /// Result of `fullpipe store thin`.
    ArchiveThinned {
        /// Removed samples and bodies.
        archive_thinned: ArchiveThinned,
    },
    /// Result of `fullpipe history`.
    History {
        /// Runs towards one host by path and request.
        history: Box<HistoryReport>,
    },
    /// No result: the command failed before there was one.
    Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_prints_the_kind_error_and_the_error() {
        let error = ErrorReport {
            message: "no route to host".to_owned(),
            exit_code: 1,
        };
        let document = Document::from_error(error);
        let json = String::from_utf8(document.to_json()).unwrap();
        assert_eq!(
            json,
            r#"{"schema":2,"kind":"error","error":{"message":"no route to host","exit_code":1}}"#
        );
        assert_eq!(Document::from_json(json.as_bytes()).unwrap(), document);
    }

    #[test]
    fn a_result_is_printed_next_to_its_kind() {
        let document = Document::new(Content::Table { table: Vec::new() });
        let json = String::from_utf8(document.to_json()).unwrap();
        assert_eq!(json, r#"{"schema":2,"kind":"table","table":[]}"#);
        assert_eq!(
            Document::from_value(json.parse().unwrap()).unwrap(),
            document
        );
    }

    #[test]
    fn a_document_of_a_newer_version_is_refused_for_that() {
        for json in [
            r#"{"schema":999,"kind":"table","table":[]}"#,
            r#"{"schema":999,"kind":"tomorrow"}"#,
        ] {
            for refused in [
                Document::from_json(json.as_bytes()),
                Document::from_value(json.parse().unwrap()),
            ] {
                assert!(
                    refused
                        .unwrap_err()
                        .to_string()
                        .contains("schema 999 of a newer fullpipe"),
                    "{json}"
                );
            }
        }
        assert!(
            Document::from_json(br#"{"kind":"table"}"#)
                .unwrap_err()
                .to_string()
                .contains("missing field")
        );
    }
}

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Calculation, Combination, DiagnosisReport, Experiment, GridReport, HostAdvice, HostApplied, HostReport, HostUndone,
    LabReport, Measurement, RampReport, SCHEMA_VERSION,
};

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// The sentence on standard error.
    pub message: String,
    /// The exit code of the program.
    pub exit_code: u8,
}

/// The one JSON document that a command prints with `--json`: the version of the schema, the result tagged with its
/// `kind`, and the error if the command failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Version of the schema.
    pub schema: u32,
    /// The result; partial where the command failed after it had begun.
    #[serde(flatten)]
    pub content: Content,
    /// Why the command failed; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}

impl Document {
    /// Returns the document of a command that did not fail.
    pub const fn new(content: Content) -> Self {
        Self { schema: SCHEMA_VERSION, content, error: None }
    }

    /// Returns the document of a command that failed before it had a result.
    pub const fn failed(error: ErrorReport) -> Self {
        Self { schema: SCHEMA_VERSION, content: Content::Error, error: Some(error) }
    }

    /// Returns the same document with `error`, if there is one.
    #[must_use]
    pub fn with_error(self, error: Option<ErrorReport>) -> Self {
        Self { error, ..self }
    }
}

/// The result of a command, tagged with its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Content {
    /// From `fullpipe demo`.
    Experiment {
        /// The whole loop.
        experiment: Box<Experiment>,
    },
    /// From `fullpipe measure`.
    Measurement {
        /// The measurement.
        measurement: Box<Measurement>,
    },
    /// From `fullpipe measure --ramp`.
    Ramp {
        /// Round-trip time and loss by load.
        ramp: Box<RampReport>,
    },
    /// From `fullpipe diagnose`.
    Diagnosis {
        /// The measurement that was judged, where fullpipe measured itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measurement: Option<Box<Measurement>>,
        /// Limits and remedies.
        diagnosis: Box<DiagnosisReport>,
    },
    /// From `fullpipe calc`.
    Calculation {
        /// The solved equations.
        calculation: Box<Calculation>,
    },
    /// From `fullpipe calc`, where a quantity was given as a range or a list.
    Table {
        /// One row for each combination.
        table: Vec<Combination>,
    },
    /// From `fullpipe lab run`.
    Lab {
        /// One report for each scenario.
        lab: Vec<LabReport>,
    },
    /// From `fullpipe lab grid`.
    Grid {
        /// The grid.
        grid: Box<GridReport>,
    },
    /// From `fullpipe host show`.
    HostSettings {
        /// The settings.
        host_settings: Box<HostReport>,
    },
    /// From `fullpipe host advise`.
    HostAdvice {
        /// The advised changes.
        host_advice: Box<HostAdvice>,
    },
    /// From `fullpipe host apply`.
    HostApplied {
        /// The changes that were made.
        host_applied: Box<HostApplied>,
    },
    /// From `fullpipe host undo`.
    HostUndone {
        /// The changes that were taken back.
        host_undone: Box<HostUndone>,
    },
    /// From any command that failed before it had a result.
    Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_exactly_one_document() {
        let error = ErrorReport { message: "no route to host".to_owned(), exit_code: 1 };
        let document = Document::failed(error);
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(json, r#"{"schema":2,"kind":"error","error":{"message":"no route to host","exit_code":1}}"#);
        assert_eq!(serde_json::from_str::<Document>(&json).unwrap(), document);
    }

    #[test]
    fn a_result_stands_next_to_its_kind() {
        let document = Document::new(Content::Table { table: Vec::new() });
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(json, r#"{"schema":2,"kind":"table","table":[]}"#);
        assert_eq!(serde_json::from_str::<Document>(&json).unwrap(), document);
    }
}

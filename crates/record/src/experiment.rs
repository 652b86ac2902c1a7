use fullpipe_units::Ratio;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Calculation, Combination, DiagnosisReport, GridReport, HostAdvice, HostApplied, HostReport, HostSettings,
    HostUndone, LabReport, Measurement, Path, Prediction, RampReport, Remedy, Request, SCHEMA_VERSION, Verdict,
};

/// A remedy carried out, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Which remedy.
    pub remedy: Remedy,
    /// The prediction for the changed settings, fixed before the second measurement.
    pub prediction: Prediction,
    /// The second measurement.
    pub measurement: Measurement,
    /// What limits it now.
    pub verdict: Verdict,
    /// Steady rate measured ÷ predicted; `None` without a steady part.
    pub accuracy: Option<Ratio>,
}

/// The way back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undone {
    /// Sender's settings, read after the undo.
    pub sender: HostSettings,
    /// Receiver's settings, read after the undo.
    pub receiver: HostSettings,
    /// Whether both equal what they were at first.
    pub restored: bool,
}

/// The whole loop: predicted, measured, judged, applied, proven, undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// The path.
    pub path: Path,
    /// The load.
    pub request: Request,
    /// Sender's settings at first.
    pub sender: HostSettings,
    /// Receiver's settings at first.
    pub receiver: HostSettings,
    /// Fixed before the first measurement.
    pub prediction: Prediction,
    /// The first measurement.
    pub measurement: Measurement,
    /// What limits it.
    pub verdict: Verdict,
    /// Steady rate measured ÷ predicted; `None` without a steady part.
    pub accuracy: Option<Ratio>,
    /// What would help, best first.
    pub remedies: Vec<Remedy>,
    /// The best of them carried out; `None` where none can be.
    pub proof: Option<Proof>,
    /// The way back; `None` where nothing was changed.
    pub undone: Option<Undone>,
    /// Whether it was cut short by the user; what there is was kept.
    pub interrupted: bool,
}

/// What went wrong, for a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// The sentence that a person would have read.
    pub message: String,
    /// The exit code of the program.
    pub exit_code: u8,
}

/// What `--json` prints: the version and one of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Version of the schema.
    pub schema: u32,
    /// From `fullpipe demo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    /// From `fullpipe measure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
    /// From `fullpipe calc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calculation: Option<Calculation>,
    /// From `fullpipe calc`, where a quantity was given as a range or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Vec<Combination>>,
    /// From `fullpipe lab run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<Vec<LabReport>>,
    /// From `fullpipe lab grid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridReport>,
    /// From `fullpipe measure --ramp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampReport>,
    /// From `fullpipe host show`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_settings: Option<HostReport>,
    /// From `fullpipe host advise`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_advice: Option<HostAdvice>,
    /// From `fullpipe host apply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_applied: Option<HostApplied>,
    /// From `fullpipe host undo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_undone: Option<HostUndone>,
    /// From `fullpipe diagnose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<DiagnosisReport>,
    /// From any of them, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}

impl Document {
    /// An empty document of this version.
    pub const fn new() -> Self {
        Self {
            schema: SCHEMA_VERSION,
            experiment: None,
            measurement: None,
            calculation: None,
            table: None,
            lab: None,
            grid: None,
            ramp: None,
            host_settings: None,
            host_advice: None,
            host_applied: None,
            host_undone: None,
            diagnosis: None,
            error: None,
        }
    }
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

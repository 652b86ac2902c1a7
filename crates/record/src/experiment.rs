use fullpipe_units::Ratio;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HostSettings, Measurement, Path, Prediction, Remedy, Request, Verdict};

/// A remedy carried out, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Which remedy.
    pub remedy: Remedy,
    /// The prediction for the changed settings, fixed before the second measurement.
    pub prediction: Prediction,
    /// The second measurement.
    pub measurement: Measurement,
    /// The limit now.
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
    /// True if both equal what they were at first.
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
    /// The limit.
    pub verdict: Verdict,
    /// Steady rate measured ÷ predicted; `None` without a steady part.
    pub accuracy: Option<Ratio>,
    /// Remedies, best first.
    pub remedies: Vec<Remedy>,
    /// The best of them carried out; `None` where none can be.
    pub proof: Option<Proof>,
    /// The way back; `None` where nothing was changed.
    pub undone: Option<Undone>,
    /// True if the user cut it short; what there is was kept.
    pub interrupted: bool,
}

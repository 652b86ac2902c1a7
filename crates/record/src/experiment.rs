use crate::prelude::*;
use crate::{HostSettings, Measurement, Path, Prediction, Remedy, Request, Verdict};

/// Remedy that was applied, with the second measurement that shows its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Remedy that was applied.
    pub remedy: Remedy,
    /// Prediction for the changed settings, computed before the second measurement.
    pub prediction: Prediction,
    /// Second measurement, with the remedy applied.
    pub measurement: Measurement,
    /// Limit of the second measurement.
    pub verdict: Verdict,
    /// Measured steady rate ÷ rate of the kernel model; `None` if the measurement has no steady
    /// part.
    pub accuracy: Option<Ratio>,
}

/// Restoration of the settings after the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undone {
    /// Settings of the sender, read after they were restored.
    pub sender: HostSettings,
    /// Settings of the receiver, read after they were restored.
    pub receiver: HostSettings,
    /// True if the settings of both hosts equal those before the first measurement.
    pub restored: bool,
}

/// Result of `fullpipe demo`: a measurement with its prediction and verdict, and a second
/// measurement with the best remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// Path between the hosts.
    pub path: Path,
    /// Load of the first measurement; the remedy may change the load of the second one.
    pub request: Request,
    /// Settings of the sender before the first measurement.
    pub sender: HostSettings,
    /// Settings of the receiver before the first measurement.
    pub receiver: HostSettings,
    /// Prediction, computed before the first measurement.
    pub prediction: Prediction,
    /// First measurement.
    pub measurement: Measurement,
    /// Limit of the first measurement.
    pub verdict: Verdict,
    /// Measured steady rate ÷ rate of the kernel model; `None` if the measurement has no steady
    /// part.
    pub accuracy: Option<Ratio>,
    /// Remedies for the limit, the best one first.
    pub remedies: Vec<Remedy>,
    /// Best remedy and its measurement; `None` if no remedy can be applied or the user interrupted
    /// the experiment.
    pub proof: Option<Proof>,
    /// Restoration of the settings; `None` if no remedy was applied.
    pub undone: Option<Undone>,
    /// True if the user interrupted the experiment; the fields then hold the results up to that
    /// time.
    pub interrupted: bool,
}

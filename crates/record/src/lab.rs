use crate::prelude::*;
use crate::{Measurement, Path, Prediction, RampReport, Request};

/// Published figures of a step of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Published {
    /// The rate; of a ramp, the load at which round trips began to grow.
    pub rate: Option<BitRate>,
    /// Datagrams that were lost, as a share of those sent.
    pub loss: Option<Ratio>,
    /// Interarrival jitter.
    pub jitter: Option<Span>,
    /// Datagrams that came out of order.
    pub reordered: Option<u64>,
}

/// The datagrams of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabDatagrams {
    /// Rate that the sender really offered, all streams together.
    pub offered: BitRate,
    /// Share to be lost by what was asked for and the link's rate.
    pub loss_textbook: Ratio,
    /// Share to be lost by what was really offered and the time in which the link was sending;
    /// `None` where the link has no rate.
    pub loss_kernel_model: Option<Ratio>,
    /// Share that was lost.
    pub loss: Ratio,
    /// Interarrival jitter.
    pub jitter: Span,
    /// Datagrams that came behind a later one.
    pub reordered: u64,
    /// Packets that the link let later ones pass meanwhile, of this load or around it.
    #[serde(default)]
    pub reordered_by_link: Option<u64>,
}

/// A load of cross traffic during a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabCrossTraffic {
    /// The load that was asked for; its duration is that of one phase.
    pub request: Request,
    /// Number of phases.
    pub phases: u32,
    /// Figures that the source printed.
    pub published: Option<Published>,
    /// Rate that arrived while it was on, in the run that is shown.
    pub measured: Option<BitRate>,
    /// Datagrams that were lost, as a share of those sent.
    pub loss: Option<Ratio>,
    /// Greatest interarrival jitter of a phase.
    pub jitter: Option<Span>,
}

/// One step of a scenario, done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabStep {
    /// Name of the step in the file.
    pub name: String,
    /// The load.
    pub request: Request,
    /// Path of the step, where it is not that of the scenario.
    #[serde(default)]
    pub path: Option<Path>,
    /// Figures that the source printed.
    pub published: Option<Published>,
    /// Fixed before the step ran.
    pub prediction: Prediction,
    /// Valid and invalid runs, in order.
    pub runs: Vec<Measurement>,
    /// Receive buffer that the kernel stored, where the step fixed one.
    pub buffer: Option<ByteCount>,
    /// Largest window that the sender saw advertised.
    pub window_seen: Option<ByteCount>,
    /// Median rate of the valid runs: the steady one, or that of all that was counted where the
    /// load is of datagrams or has cross traffic. Of a ramp, the least load at which round trips
    /// are longer.
    pub measured: Option<BitRate>,
    /// `measured` ÷ the kernel model's prediction.
    pub accuracy: Option<Ratio>,
    /// `measured` ÷ plain prediction.
    pub accuracy_textbook: Option<Ratio>,
    /// Datagrams of the last valid run, where it sent any.
    #[serde(default)]
    pub datagrams: Option<LabDatagrams>,
    /// Cross traffic of the last valid run.
    #[serde(default)]
    pub cross_traffic: Vec<LabCrossTraffic>,
    /// Share of the link that the step and its cross traffic filled together, in the last valid
    /// run.
    #[serde(default)]
    pub filled: Option<Ratio>,
    /// Round-trip time and loss by load, where the load grew.
    #[serde(default)]
    pub ramp: Option<RampReport>,
    /// True if the bounds of the file hold: `None` if the step has none or no run was valid.
    pub passed: Option<bool>,
    /// Bounds that were missed, each with the difference.
    pub missed: Vec<String>,
}

/// One scenario, run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabReport {
    /// Name of the scenario.
    pub scenario: String,
    /// One line on what it shows.
    pub title: String,
    /// The source of its figures.
    pub source: Option<String>,
    /// The path.
    pub path: Path,
    /// Round-trip time of the empty path.
    pub rtt: Span,
    /// The steps.
    pub steps: Vec<LabStep>,
    /// Bounds between steps that were missed.
    pub missed: Vec<String>,
    /// True if the user cut it short; the steps that were done were kept.
    pub interrupted: bool,
    /// True if every step and every bound passed.
    pub passed: bool,
}

impl LabReport {
    /// Runs of all steps, and how many of them were invalid.
    pub fn run_counts(&self) -> (usize, usize) {
        let runs = self.steps.iter().flat_map(|step| &step.runs);
        (
            runs.clone().count(),
            runs.filter(|run| !run.validity.is_valid()).count(),
        )
    }
}

use std::fmt;

use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting of a sweep: an advertised window of each stream, and a number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SweepCell {
    /// Window that the receiver advertises on each stream.
    pub window: ByteCount,
    /// Parallel streams.
    pub streams: u16,
}

impl SweepCell {
    /// Returns the bytes that all streams together can have in flight.
    pub fn product(self) -> ByteCount {
        ByteCount::new(self.window.get().saturating_mul(self.streams.into()))
    }
}

impl fmt::Display for SweepCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.streams, self.window)
    }
}

/// The reason for a run of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepReason {
    /// One of the first settings, which span the grid.
    Anchor,
    /// It may be the fastest of all.
    Best,
    /// It is cheap, and may be as good as the fastest.
    Edge,
    /// The answer depends on it, and it has few runs.
    Repeat,
    /// It was measured before, and shows if the path is still the same.
    Reference,
    /// The run before did not count.
    Again,
    /// It shows if the rate stays at a lower level for a while.
    Level,
    /// The whole grid is measured.
    Grid,
}

/// A run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRun {
    /// The setting.
    pub cell: SweepCell,
    /// The reason for the run.
    pub reason: SweepReason,
    /// Goodput after the ramp; `None` if the run does not count.
    pub rate: Option<BitRate>,
    /// Payload that was sent, the ramp included.
    pub sent: ByteCount,
    /// Time of the run: set-up, ramp, drain, and the rest after it.
    pub took: Span,
    /// Least round-trip time before the run, without load.
    pub idle_rtt: Option<Span>,
    /// Median round-trip time under load.
    pub loaded_rtt: Option<Span>,
    /// Segments that were sent again.
    pub retransmits: Option<SegCount>,
    /// The reasons why the run does not count, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
}

/// The rate of a setting, by all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepEstimate {
    /// The setting.
    pub cell: SweepCell,
    /// Expected rate.
    pub rate: BitRate,
    /// Lower end of the 95 % interval of the rate.
    pub low: BitRate,
    /// Upper end.
    pub high: BitRate,
    /// Runs of this setting that count; the rate of a setting without any follows from its neighbours.
    pub runs: u32,
}

/// The form of the rates over the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepShape {
    /// The rate grows up to a knee.
    Knee,
    /// The rate still grows where the grid ends: the knee lies beyond.
    BeyondGrid,
    /// All settings have the same rate: the knee lies below the grid.
    Flat,
    /// The rate stays at a lower level for a while before it grows to the best.
    TwoPlateaus,
}

/// The answer of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepAnswer {
    /// The cheapest setting, by streams × window, that has 95 % of the best rate.
    pub knee: SweepEstimate,
    /// True if that is sure, false if it is the best within the budget.
    pub sure: bool,
    /// The form of the rates.
    pub shape: SweepShape,
    /// The fastest setting of those that were measured.
    pub best: SweepEstimate,
    /// The cheapest setting that may be the knee.
    pub cheapest: SweepCell,
    /// The dearest setting that may be the knee.
    pub dearest: SweepCell,
    /// The setting with the fewest streams that does.
    pub fewest_streams: SweepEstimate,
    /// The setting with the smallest window that does.
    pub smallest_window: SweepEstimate,
    /// For each number of streams, the smallest window that does, if any.
    pub frontier: Vec<SweepEstimate>,
}

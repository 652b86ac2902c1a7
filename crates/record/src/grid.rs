use fullpipe_units::{BitRate, Ratio, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Path, Prediction, Request};

/// One run of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GridRun {
    /// Rate of the payload that arrived, over the whole run.
    pub rate: BitRate,
    /// Rate of its steady part.
    pub steady: Option<BitRate>,
    /// Retransmitted segments.
    pub retransmits: Option<SegCount>,
}

/// One path of a grid, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridCell {
    /// Identifier of a cell in virtual time, which follows from all that was simulated and from the
    /// version of the program (UUID version 8); empty for a cell that a kernel ran.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The limit that it was made for, in few words: `window 0.5 BDP`.
    pub bound: String,
    /// The path.
    pub path: Path,
    /// The load.
    pub request: Request,
    /// Fixed before it ran.
    pub prediction: Prediction,
    /// Steady rate of the first valid run, which is the simulated one in a grid that ran in virtual
    /// time; `None` if no run was valid.
    pub measured: Option<BitRate>,
    /// `measured` ÷ the kernel model's prediction.
    pub accuracy: Option<Ratio>,
    /// True if `measured` lies in the prediction's interval.
    pub inside: Option<bool>,
    /// Packets that the path lost at random in that run.
    pub losses: Option<u64>,
    /// The first valid run of this machine's kernel; `None` in a grid that ran in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<GridRun>,
    /// A run of this path, load and settings in virtual time, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<GridRun>,
    /// Why runs did not count.
    pub broken: Vec<String>,
}

/// Accuracy of the predictions of some cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridAccuracy {
    /// Cells that were measured.
    pub cells: u32,
    /// Median of |measured ÷ predicted − 1|.
    pub median: Ratio,
    /// 95th percentile of |measured ÷ predicted − 1|, by nearest rank.
    pub p95: Ratio,
    /// Share of the cells within their interval.
    pub inside: Ratio,
}

/// Agreement of simulated runs with those of the kernel. Each error is |simulated ÷ kernel − 1|,
/// quantiles are by nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridAgreement {
    /// Cells with a run of both.
    pub cells: u32,
    /// Median error of the rate over the whole run.
    pub rate_median: Ratio,
    /// 90th percentile of the error of the rate.
    pub rate_p90: Ratio,
    /// Median error of the retransmissions; a kernel without any counts as one.
    pub retransmits_median: Ratio,
    /// 90th percentile of the error of the retransmissions.
    pub retransmits_p90: Ratio,
}

/// A grid of paths, measured and held against the prediction of each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GridReport {
    /// Name of the grid.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// The cells, in order.
    pub cells: Vec<GridCell>,
    /// Accuracy on cells that a rule limits: receive window, send buffer, capacity; `None` where
    /// there are none.
    pub by_rule: Option<GridAccuracy>,
    /// Accuracy on cells that loss limits; `None` where there are none.
    pub by_loss: Option<GridAccuracy>,
    /// The simulation against the kernel on paths without random loss; `None` where there are no
    /// such cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_without_loss: Option<GridAgreement>,
    /// The simulation against the kernel on paths with random loss, where single runs differ by
    /// their chance; `None` where there are no such cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_with_loss: Option<GridAgreement>,
    /// True if the grid ran in virtual time, without a kernel.
    #[serde(default)]
    pub is_virtual: bool,
    /// Bounds that were missed.
    pub missed: Vec<String>,
    /// Duration of the whole grid.
    pub took: Span,
    /// True if the user cut it short; the cells that were done were kept.
    pub interrupted: bool,
    /// True if every cell was measured and every bound met.
    pub passed: bool,
}

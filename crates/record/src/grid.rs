use fullpipe_units::{BitRate, Ratio, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Path, Prediction, Request};

/// One path of a grid, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridCell {
    /// The limit that it was made for, in few words: `window 0.5 BDP`.
    pub bound: String,
    /// The path.
    pub path: Path,
    /// The load.
    pub request: Request,
    /// Fixed before it ran.
    pub prediction: Prediction,
    /// Steady rate of the first valid run; `None` if no run was valid.
    pub measured: Option<BitRate>,
    /// `measured` ÷ the kernel model's prediction.
    pub accuracy: Option<Ratio>,
    /// True if `measured` lies in the prediction's interval.
    pub inside: Option<bool>,
    /// Packets that the path lost at random in that run.
    pub losses: Option<u64>,
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
    /// Its 95th percentile, by nearest rank.
    pub p95: Ratio,
    /// Share of the cells within their interval.
    pub inside: Ratio,
}

/// A grid of paths, measured and held against the prediction of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GridReport {
    /// Its name.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// The cells, in order.
    pub cells: Vec<GridCell>,
    /// Those that a rule limits: receive window, send buffer, capacity; `None` where there are none.
    pub by_rule: Option<GridAccuracy>,
    /// Those that loss limits; `None` where there are none.
    pub by_loss: Option<GridAccuracy>,
    /// Bounds that were missed.
    pub missed: Vec<String>,
    /// Duration of the whole grid.
    pub took: Span,
    /// True if the user cut it short; the cells that were done were kept.
    pub interrupted: bool,
    /// True if every cell was measured and every bound met.
    pub passed: bool,
}

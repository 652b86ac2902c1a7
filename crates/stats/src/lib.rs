//! Runs → how sure: intervals within a run, differences between runs, what a campaign can show,
//! changes in a history, rank correlation.
//!
//! The unit is the run. Samples within one are alike, so an interval over them says nothing about
//! the next run ([`within_run`]); differences are between runs, measured in pairs in random order
//! ([`pair_orders`], [`paired_difference`]) or not ([`unpaired_difference`]). All intervals hold
//! the true value in 95 % of all cases, whatever the distribution of the noise; the error rates are
//! simulated in `tests/`. Rates, times and counts are compared by their ratios, as logarithms.
//!
//! [`campaign`] finds the next run of a sweep from those so far.

pub mod campaign;
mod changes;
mod completion;
mod correlation;
mod detectable;
mod difference;
mod magnitude;
mod order;
mod order_statistics;
mod rank_sum;
mod search;
mod signed_rank;
mod student;
mod within_run;

pub use changes::{
    HistoryLevelChange, MIN_RUNS_WITH_CHANGE, detectable_change, find_level_changes,
};
pub use completion::ProgressHistory;
pub use correlation::{Correlation, rank_correlation};
pub use detectable::{detectable_difference, pairs_needed};
pub use difference::{
    Conclusion, RatioDifference, SAME_WITHIN, paired_difference, unpaired_difference,
};
pub use magnitude::Magnitude;
pub use order::{PairOrder, pair_orders};
pub use within_run::{RateInterval, within_run};

/// Standard deviation of single runs, as a share, below which none is assumed: runs that agree do
/// so by chance, or as their rates are rounded.
const MIN_NOISE: f64 = 0.004;

/// Quantile of the normal distribution with 2.5 % above it.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// Quantile of the normal distribution with 20 % above it.
const NORMAL_80: f64 = 0.841_621_233_572_914_3;

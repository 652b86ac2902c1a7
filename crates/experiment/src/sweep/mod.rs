//! Sweeps over windows and streams: a plan and something that measures in, the knee out.
//!
//! [`fullpipe_stats::campaign`] decides which run is next. This module carries it out, and hands over each run
//! to be kept before the next begins, so that a sweep that was ended goes on with the very run that
//! it would have made.

mod course;
mod device;
mod kept;
mod prepare;
mod run;

pub use kept::{KeptError, KeptSweep, PendingRuns};
pub use prepare::{SweepWishes, light_request, plan_sweep, predicted_grid_cost};
pub use run::{RunningSweep, SweepMeasurer};

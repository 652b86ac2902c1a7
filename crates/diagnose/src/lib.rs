//! Evidence in, verdict out: what limits a transfer, and what would lift the limit.
//!
//! [`fullpipe_record::steady()`] finds the part of a transfer that can be judged, [`diagnose`] names its limit, [`remedies()`] tells what would
//! lift it and what that should bring. All are pure functions of records, so that a verdict can be recomputed from an
//! archived one.

mod application;
mod ceilings;
mod ends;
mod explain;
mod figures;
mod finding;
mod flow;
mod losses;
mod machine;
mod manual;
mod middlebox;
mod outlook;
mod pacing;
mod path;
mod policer_rate;
mod receiving;
mod remedies;
mod remedies_of_hosts;
mod remedies_of_pace;
mod rules;
mod runner_up;
mod seconds;
mod snapshot;
mod syn_quotes;
mod thresholds;
mod verdict;

pub use remedies::remedies;
pub use verdict::diagnose;

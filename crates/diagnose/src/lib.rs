//! Evidence in, verdict out: the limit of a transfer, and the changes that would lift it.
//!
//! [`fullpipe_record::find_steady()`] finds the part of a transfer that can be judged, [`diagnose`]
//! names its limit, [`find_remedies()`] lists what would lift it and the gain to expect. All are
//! pure functions of records, so that a verdict can be recomputed from an archived one.

mod advice;
mod ceilings;
mod confidence;
mod finding;
mod gates;
mod host_counters;
mod limits;
mod prelude;
mod remedies;
mod rules;
mod runner_up;
mod seconds;
mod signals;
mod sure;
mod text;
mod thresholds;
mod time_account;
mod transfer_time;
mod verdict;

pub use remedies::find_remedies;
pub use sure::{SureResult, steady_interval, sure_result};
pub use time_account::time_account;
pub use verdict::diagnose;

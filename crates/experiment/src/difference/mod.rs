//! Two results, or two settings measured in pairs: the difference with its interval.

mod comparable;
mod figures;
mod pairs;
mod report;
mod sentence;
#[cfg(test)]
mod test_run;

pub use comparable::comparability_faults;
pub use pairs::{PairedSide, forecast_pairs, run_pairs};
pub use report::{NamedRuns, compare_samples};

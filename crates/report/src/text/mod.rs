//! Records as text of at most 80 columns for people to read.

mod calculation;
mod capture;
mod course;
mod diagnosis;
mod experiment;
mod grid;
mod host;
mod lab;
mod measurement;
mod prediction;
mod ramp;
mod route;
mod simulation;
mod style;
mod sweep;
mod table;
mod two_captures;

pub use calculation::{calculation, table};
pub use capture::{capture, one_flow, own_capture, redacted};
pub use diagnosis::{command_end, diagnosis, elsewhere, trial};
pub use experiment::{begins, judged, path, proof_begins, remedies, result, undone};
pub use grid::grid_report;
pub use host::{host_advice, host_applied, host_settings, host_undone};
pub use lab::{lab_report, lab_summary};
pub use measurement::{figures, interval_head, interval_line, measurement};
pub use prediction::prediction;
pub use ramp::{ramp, ramp_step};
pub use route::route;
pub use simulation::{seeds, simulations, simulations_csv_head, simulations_csv_row, what_if};
pub use style::Style;
pub use sweep::{sweep, sweep_plan, sweep_run};

//! Records as people and scripts read them: aligned text of at most 80 columns, and JSON.
//!
//! Nothing here prints: every function returns what is to be printed. The text is the same with and without colour, but
//! for the colour.

#![expect(clippy::format_push_string, reason = "a report is not on any hot path, and this reads best")]

mod calculation;
mod diagnosis;
mod experiment;
mod grid;
mod host;
pub mod iperf3;
mod json;
mod lab;
mod measurement;
mod prediction;
mod ramp;
mod route;
mod style;
mod table;

pub use calculation::{calculation, table};
pub use diagnosis::{command_end, diagnosis, elsewhere, trial};
pub use experiment::{begins, judged, path, proof_begins, remedies, result, undone};
pub use grid::grid_report;
pub use host::{host_advice, host_applied, host_settings, host_undone};
pub use json::{document, schema};
pub use lab::{lab_report, lab_summary};
pub use measurement::{figures, interval_head, interval_line, measurement};
pub use prediction::prediction;
pub use ramp::{ramp, ramp_step};
pub use route::route;
pub use style::Style;

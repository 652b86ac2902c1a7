//! Records as text of at most 80 columns for people to read.

mod archive;
mod calculation;
mod capture;
mod course;
mod diagnosis;
mod difference;
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

pub(crate) use diagnosis::{limit_name, reason};
pub(crate) use measurement::round_trip;
pub(crate) use simulation::described;
pub(crate) use style::{heading, wrapped};
pub(crate) use sweep::{added_rtt, named_settings, rate_map, sweep_sentences};
pub(crate) use table::{Align, Table};
pub(crate) use two_captures::field;

pub use archive::{archive, archive_check, archive_thinned, history, imported, stored, stored_document};
pub use calculation::{calculation, table};
pub use capture::{capture, one_flow, own_capture, redacted};
pub use diagnosis::{command_end, diagnosis, elsewhere, trial};
pub use difference::{difference, pair_forecast};
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

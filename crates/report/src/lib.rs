//! Records as people and scripts read them: aligned text of at most 80 columns, and JSON.
//!
//! Nothing here prints: every function returns what is to be printed. The text is the same with and without colour, but
//! for the colour.

#![expect(clippy::format_push_string, reason = "a report is not on any hot path, and this reads best")]

pub mod iperf3;
mod json;
mod text;

pub use json::{document, event_schema, schema};
pub use text::{
    Style, begins, calculation, capture, command_end, diagnosis, elsewhere, figures, grid_report, host_advice,
    host_applied, host_settings, host_undone, interval_head, interval_line, judged, lab_report, lab_summary,
    measurement, one_flow, own_capture, path, prediction, proof_begins, ramp, ramp_step, redacted, remedies, result,
    route, seeds, simulations, simulations_csv_head, simulations_csv_row, sweep, sweep_plan, sweep_run, table, trial,
    undone, what_if,
};

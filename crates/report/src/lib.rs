//! Records as people and scripts read them: aligned text, JSON, and pages with charts.
//!
//! Nothing here prints: every function returns what is to be printed. The text is the same with and without colour, but
//! for the colour.

#![expect(clippy::format_push_string, reason = "a report is not on any hot path, and this reads best")]

pub mod iperf3;
mod json;
mod page;
mod text;
mod timeline;

pub use json::{document, event_schema, schema};
pub use page::{PageError, Source, html_page, text_page};
pub use text::{
    DEFAULT_COLUMNS, Style, archive, archive_check, archive_thinned, begins, calculation, capture, command_end,
    commands_elsewhere, copied, copy_progress, diagnosis, difference, figures, grid_report, history, host_advice,
    host_applied, host_settings, host_undone, imported, interval_head, interval_line, judged, lab_report, lab_summary,
    longest_use, markdown, measurement, measurement_line, name_list, not_valid, one_flow, own_capture, pair_forecast,
    paragraph, path, prediction, program_moved, programs, proof_begins, ramp, ramp_step, redacted, relay_progress,
    relayed, remedies, result, route, seeds, set_columns, simulations, simulations_csv_head, simulations_csv_row,
    stored, stored_document, sweep, sweep_forecast, sweep_kept, sweep_plan, sweep_run, table, time_account, trial,
    undone, what_if,
};

//! Records as people and scripts read them: aligned text, pages with charts, and iperf3's text and JSON.
//!
//! Nothing here prints: every function returns what is to be printed. The text is the same with and
//! without colour, but for the colour.

#![expect(
    clippy::format_push_string,
    reason = "a report is not on any hot path, and this reads best"
)]

pub mod chart;
pub mod iperf3;
mod page;
mod prelude;
mod text;
mod timeline;

pub use page::{
    PageContent, PageError, PageSource, difference_text, html_page, page_content, page_script,
    page_style, sweep_text, text_page,
};
pub use text::{
    DEFAULT_COLUMNS, archive_check, archive_text, archive_thinned, bold_text, calculation_text,
    capture_text, combination_table, command_end, commands_elsewhere, completion_text,
    copy_progress, copy_summary, cut_time, diagnosis_text, document_list, experiment_announcement,
    experiment_result, file_completion, grid_report, history_text, host_advice, host_applied,
    host_settings, host_undone, http1_text, imported_files, interval_head, interval_line,
    lab_report, lab_summary, longest_use, markdown_text, measurement_figures, measurement_line,
    measurement_text, name_list, not_valid, one_flow, own_capture, pair_forecast, paragraph,
    path_text, prediction_text, program_moved, programs_text, proof_begins, ramp_step, ramp_text,
    redaction_text, relay_line, relay_progress, remedies_text, route_text, seed_spreads,
    set_columns, simulations_csv_head, simulations_csv_row, simulations_text, stored_document,
    sweep_forecast, sweep_kept, sweep_plan, sweep_run, time_account, time_left, trial_text,
    undo_text, verdict_text, what_if, without_marks,
};

//! Records as text for people to read, in 80 columns or those that the terminal has.

mod archive;
mod calculation;
mod capture;
mod completion;
mod copy;
mod course;
mod diagnosis;
mod difference;
mod experiment;
mod grid;
mod host;
mod lab;
mod markdown;
pub(crate) mod measurement;
mod prediction;
pub(crate) mod prelude;
mod programs;
mod ramp;
mod relay;
mod route;
mod simulation;
pub(crate) mod style;
mod sweep;
pub(crate) mod table;
mod time_account;
mod two_captures;

pub use archive::cut_time;
pub(crate) use archive::{no_change, short_id};
pub(crate) use completion::rounded_duration;
pub(crate) use diagnosis::{
    command_time_text, confidence_percent, limit_name, remedy_reason, sorted_ceilings,
};
pub(crate) use difference::ratio_change;
pub(crate) use simulation::transfer_names;
pub(crate) use sweep::{
    added_rtt, ended_early, named_settings, rate_interval, rate_map, sweep_sentences,
};
pub(crate) use time_account::{main_use, uses_of_time};
pub(crate) use two_captures::{field_name, losses_between};

pub use archive::{
    archive_check, archive_text, archive_thinned, document_list, history_text, imported_files,
    stored_document,
};
pub use calculation::{calculation_text, combination_table};
pub use capture::{capture_text, one_flow, own_capture, redaction_text};
pub use completion::{completion_text, file_completion, time_left};
pub use copy::{copy_progress, copy_summary};
pub use diagnosis::{command_end, commands_elsewhere, diagnosis_text, http1_text, trial_text};
pub use difference::pair_forecast;
pub use experiment::{
    experiment_announcement, experiment_result, path_text, proof_begins, remedies_text, undo_text,
    verdict_text,
};
pub use grid::grid_report;
pub use host::{host_advice, host_applied, host_settings, host_undone};
pub use lab::{lab_report, lab_summary};
pub(crate) use lab::{outcome_label, total_run_counts};
pub use markdown::markdown_text;
pub use measurement::{
    interval_head, interval_line, measurement_figures, measurement_line, measurement_text,
    not_valid,
};
pub use prediction::prediction_text;
pub(crate) use programs::whole_megabits;
pub use programs::{program_moved, programs_text};
pub use ramp::{ramp_step, ramp_text};
pub use relay::{relay_line, relay_progress};
pub use route::route_text;
pub use simulation::{
    seed_spreads, simulations_csv_head, simulations_csv_row, simulations_text, what_if,
};
pub use style::{DEFAULT_COLUMNS, bold_text, name_list, paragraph, set_columns, without_marks};
pub use sweep::{sweep_forecast, sweep_kept, sweep_plan, sweep_run};
pub use time_account::{longest_use, time_account};

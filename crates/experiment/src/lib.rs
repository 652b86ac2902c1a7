//! The loop over a target: predict → measure → judge → apply → prove → undo; and scenarios, which
//! run a part of it in steps against published figures. Captures of transfers are judged as well.
//!
//! On other systems than Linux, transfers are simulated and results of others judged and compared.

#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod advice;
mod captures;
mod completion;
mod difference;
mod error;
mod inferred;
mod phases;
mod ramp;
mod run;
mod simulated;
mod target;
mod virtual_target;
mod what_if;

pub use advice::ranked_remedies;
pub use captures::{KnownFacts, judge_capture, judge_captures, judge_files};
pub use completion::{forecast_size, sender_progress};
pub use difference::{
    NamedRuns, PairedSide, comparability_faults, compare_samples, forecast_pairs, run_pairs,
};
pub use error::ExperimentError;
pub use phases::cross_traffic_phases;
pub use ramp::{LoadRamp, RAMP_STEP, RampLoads, run_ramp};
pub use run::run;
pub use simulated::{
    Attendant, NamedPlan, TracePoint, simulate_attended, simulate_captured, simulate_each,
    simulate_plan, simulate_summaries, simulate_traced,
};
pub use target::{EndSettings, ExperimentTarget, Interrupt};
pub use virtual_target::VirtualTarget;
pub use what_if::{PastChange, PastOptions, PastTransfer};

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod arguments;
        mod compare;
        mod cross_traffic;
        mod duration;
        mod far_end;
        mod grid;
        mod in_lab;
        mod judged;
        mod loaded;
        mod pending_changes;
        mod real;
        mod steps;
        mod sweep;
        mod until_sure;

        pub use arguments::measure_arguments;
        pub use compare::{
            CompareError, ComparisonRequest, RemoteServers, TransferProgram, compare_programs,
            compare_with_servers,
        };
        pub use cross_traffic::keep_cross_traffic;
        pub use far_end::{FarEnd, FarEndFailure, serve_far_end};
        pub use grid::{GridPlace, KnownCells, grid_duration, run_grid, virtual_cell_ids};
        pub use in_lab::LabTarget;
        pub use loaded::EmulatedTarget;
        pub use pending_changes::WatchedJournal;
        pub use real::OwnPart;
        pub use steps::{CaptureNumbers, CaptureTo, run_scenario, run_scenario_virtually};
        pub use sweep::{
            KeptError, KeptSweep, PendingRuns, RunningSweep, SweepMeasurer, SweepWishes,
            light_request, plan_sweep, predicted_grid_cost,
        };
        pub use until_sure::measure_until_sure;
    }
}

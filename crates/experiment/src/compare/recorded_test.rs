//! Steady rates that were measured in the lab, next to what is predicted now.
//!
//! The rates are of machines with two processors, Linux 6.18, 250 MB a transfer; `docs/compare.md`
//! has what came out of each comparison. No figure of a prediction was fitted to them.

use std::sync::atomic::AtomicBool;

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_record::ProgramRow;
use fullpipe_scenario::Scenario;

use super::findings::is_near;
use super::program::TransferProgram;
use super::rounds::program_row;
use super::transfer::PredictedTransfer;

/// A step of a scenario, a program, and its steady rates in Mbit/s, one of each run.
type Recorded<'r> = (&'r str, TransferProgram, &'r [f64]);

const OCI: &[Recorded<'_>] = &[
    (
        "batch 1: default buffers",
        TransferProgram::Iperf3,
        &[288.6, 290.6],
    ),
    (
        "batch 1: default buffers",
        TransferProgram::Curl,
        &[245.4, 242.9],
    ),
    (
        "batch 1: default buffers",
        TransferProgram::RsyncDaemon,
        &[222.5, 221.6],
    ),
    (
        "batch 1: default buffers",
        TransferProgram::Scp,
        &[164.8, 164.2],
    ),
    (
        "batch 1: default buffers",
        TransferProgram::Copy,
        &[918.4, 939.8, 972.3],
    ),
    (
        "batch 1: default buffers",
        TransferProgram::Aria2,
        &[836.0, 747.4],
    ),
    (
        "batch 2: 12.5 MB",
        TransferProgram::Iperf3,
        &[676.3, 673.8, 682.7],
    ),
    (
        "batch 2: 12.5 MB",
        TransferProgram::RsyncDaemon,
        &[653.2, 646.0, 659.1],
    ),
    ("batch 2: 12.5 MB", TransferProgram::Aria2, &[802.7, 721.8]),
    (
        "batch 3: 24.5 MB",
        TransferProgram::Copy,
        &[
            922.6, 924.6, 949.0, 870.0, 904.0, 959.7, 922.7, 933.0, 872.9, 925.5, 915.1,
        ],
    ),
    (
        "batch 3: 24.5 MB",
        TransferProgram::Aria2,
        &[
            878.1, 868.7, 765.7, 943.8, 613.3, 837.9, 813.5, 704.4, 881.3, 840.9, 856.7, 849.5,
            844.0, 860.0, 737.0, 816.6, 681.4,
        ],
    ),
];

const PLANTED: &[Recorded<'_>] = &[
    (
        "1 Gbit/s, 98 ms: 4 MiB of send buffer, or the channel of ssh",
        TransferProgram::Iperf3,
        &[289.8],
    ),
    (
        "1 Gbit/s, 98 ms: 4 MiB of send buffer, or the channel of ssh",
        TransferProgram::RsyncDaemon,
        &[223.6],
    ),
    (
        "500 Mbit/s, 50 ms: 1 MiB of receive buffer",
        TransferProgram::Iperf3,
        &[103.4],
    ),
    (
        "500 Mbit/s, 50 ms: 1 MiB of receive buffer",
        TransferProgram::Aria2,
        &[465.1],
    ),
    (
        "500 Mbit/s, 10 ms: a loss of 0.1 %",
        TransferProgram::Copy,
        &[463.5],
    ),
];

/// Prints each row, and returns how many of the measured medians are near the prediction or its
/// range.
#[expect(clippy::print_stdout, reason = "the figures, with --nocapture")]
fn count_near_predictions(scenario: &str, recorded: &[Recorded<'_>]) -> usize {
    let scenario = Scenario::parse("x.toml", scenario).unwrap();
    let is_near = |(name, program, rates): &Recorded<'_>| {
        let step = scenario
            .steps
            .iter()
            .find(|step| step.name == *name)
            .unwrap();
        let [sender, receiver] = scenario
            .hosts_of(step)
            .map(|changes| HostSettings::of_linux_6_18().changed_by(&changes));
        let size = ByteCount::new(250_000_000);
        let predicted = PredictedTransfer {
            path: scenario.path_of(step),
            hosts: [&sender, &receiver],
            size,
            iperf3: Some((3, 12)),
        };
        let prediction = predicted.predict_program(*program, Interrupt(&AtomicBool::new(false)));
        let steady = median(
            rates
                .iter()
                .map(|mbps| BitRate::from_bps_f64(mbps * 1e6))
                .collect(),
        );
        let row = ProgramRow {
            steady,
            ..program_row(program.name(), Some(&prediction), Vec::new())
        };
        let is_near = is_near(&row) == Some(true);
        println!(
            "{} {:7} measured {:5.0}, predicted {:5.0} ({}) by {:?}, as near {:?}, {name}",
            if is_near { "near" } else { "OFF " },
            program.name(),
            steady.unwrap().as_mbps(),
            prediction.rate.as_mbps(),
            prediction
                .range
                .map_or_else(String::new, |[low, high]| format!(
                    "{:.0}–{:.0}",
                    low.as_mbps(),
                    high.as_mbps()
                )),
            prediction.limit,
            prediction.near_limits,
        );
        is_near
    };
    recorded.iter().filter(|row| is_near(row)).count()
}

#[test]
fn what_was_measured_over_paths_of_known_limits_is_near_what_is_predicted() {
    let scenario = include_str!("../../../../scenarios/comparisons/planted-limits.toml");
    assert_eq!(count_near_predictions(scenario, PLANTED), PLANTED.len());
}

#[test]
fn what_was_measured_under_three_batches_of_buffers_is_near_what_is_predicted() {
    let scenario = include_str!("../../../../scenarios/comparisons/oci-applications.toml");
    assert_eq!(count_near_predictions(scenario, OCI), OCI.len());
}

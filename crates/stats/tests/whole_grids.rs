//! Sweeps over whole grids: each setting is measured, and each run counts for the answer.

use fullpipe_record::{SweepCell, SweepCost, SweepOrder, SweepPlan, SweepReason, SweepRun};
use fullpipe_stats::campaign::{CampaignEnd, CampaignPlan, CampaignStep, SweepGrid};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Rates in Mbit/s of 16 to 128 KiB, a line for each of 1 to 4 streams.
const RATES: [[f64; 4]; 4] = [
    [5.0, 10.0, 20.0, 40.0],
    [10.0, 20.0, 40.0, 50.8],
    [15.0, 30.0, 50.0, 51.6],
    [20.0, 40.0, 51.0, 50.0],
];

fn plan(order: SweepOrder) -> CampaignPlan {
    let grid =
        SweepGrid::from_ranges(ByteCount::from_kib(16)..=ByteCount::from_kib(128), 1..=4).unwrap();
    CampaignPlan::new(SweepPlan {
        id: "whole".to_owned(),
        target: "whole".to_owned(),
        is_virtual: true,
        windows: grid.windows().to_vec(),
        streams: grid.streams().to_vec(),
        order: Some(order),
        seed: 1,
        rtt: Span::from_millis(20),
        ..SweepPlan::default()
    })
    .unwrap()
}

fn cell(streams: u16, kib: u64) -> SweepCell {
    SweepCell {
        window: ByteCount::from_kib(kib),
        streams,
    }
}

/// Returns a run with the rate of its setting.
fn run(cell: SweepCell, reason: SweepReason) -> SweepRun {
    let window = (cell.window.get() / ByteCount::from_kib(16).get()).ilog2() as usize;
    let rate = BitRate::from_bps_f64(RATES[usize::from(cell.streams) - 1][window] * 1e6);
    SweepRun::from_cost(
        cell,
        reason,
        rate,
        SweepCost {
            bytes: ByteCount::from_mib(1),
            time: Span::from_secs(10),
        },
    )
}

/// Carries out `plan`; each run is as `change` makes it from its number.
fn runs(plan: &CampaignPlan, change: impl Fn(usize, SweepRun) -> SweepRun) -> Vec<SweepRun> {
    let mut runs = Vec::new();
    while let CampaignStep::Run { cell, reason } = plan.next_step(&runs) {
        runs.push(change(runs.len(), run(cell, reason)));
        assert!(runs.len() < 100, "it has no end");
    }
    runs
}

fn broken(run: SweepRun) -> SweepRun {
    SweepRun {
        rate: None,
        broken: vec!["the connection was reset".to_owned()],
        ..run
    }
}

#[test]
fn each_setting_counts_in_whatever_order() {
    for (order, times) in [
        (SweepOrder::Nested, 1),
        (SweepOrder::Scrambled, 1),
        (SweepOrder::Both, 2),
    ] {
        let plan = plan(order);
        let runs = runs(&plan, |_, run| run);
        let surface = plan.rate_estimates(&runs);
        assert!(
            surface.len() == 16 && surface.iter().all(|of| of.runs == times),
            "{order:?}: {surface:?}"
        );
        assert_eq!(
            (plan.counts_from(&runs), plan.next_step(&runs)),
            (0, CampaignStep::Done(CampaignEnd::Sure))
        );
    }
}

#[test]
fn the_knee_and_the_fewest_streams_are_those_of_all_runs() {
    for order in [SweepOrder::Nested, SweepOrder::Scrambled, SweepOrder::Both] {
        let plan = plan(order);
        let answer = plan.current_answer(&runs(&plan, |_, run| run)).unwrap();
        // By the surface 3 × 64 KiB has 94 % of the best, and 4 × 64 KiB, which was the answer
        // once, is dearer.
        assert_eq!(
            (answer.knee.cell, answer.fewest_streams.cell),
            (cell(2, 128), cell(2, 128)),
            "{order:?}"
        );
        let cheapest = answer
            .frontier
            .iter()
            .map(|of| of.cell.flight_capacity())
            .min();
        assert_eq!(
            cheapest,
            Some(answer.knee.cell.flight_capacity()),
            "{order:?}: {:?}",
            answer.frontier
        );
    }
}

#[test]
fn a_burst_amid_the_second_order_leaves_an_answer() {
    let plan = plan(SweepOrder::Both);
    for slow in 16..32 {
        let slower = |number, run: SweepRun| SweepRun {
            rate: run
                .rate
                .map(|rate| rate.scale_by(if number == slow { 0.81 } else { 1.0 })),
            ..run
        };
        let answer = plan
            .current_answer(&runs(&plan, slower))
            .expect("an answer");
        assert!(
            answer.knee.rate >= BitRate::from_mbps(45),
            "{slow}: {answer:?}"
        );
    }
}

#[test]
fn a_path_that_changed_is_reported_and_the_grid_still_has_an_answer() {
    let plan = plan(SweepOrder::Nested);
    let longer = |number, run| SweepRun {
        idle_rtt: Some(Span::from_millis(if number < 3 { 20 } else { 60 })),
        ..run
    };
    let runs = runs(&plan, longer);
    assert_eq!(
        (plan.segment_starts(&runs), plan.counts_from(&runs)),
        (vec![0, 3], 0)
    );
    assert!(plan.current_answer(&runs[..6]).is_some());
}

#[test]
fn a_run_that_does_not_count_is_repeated_before_the_next_setting() {
    let plan = plan(SweepOrder::Nested);
    let runs = runs(&plan, |number, run| {
        if [2, 5, 6].contains(&number) {
            broken(run)
        } else {
            run
        }
    });
    let cells: Vec<SweepCell> = runs.iter().map(|run| run.cell).collect();
    assert_eq!(
        (runs.len(), cells[2], cells[5], cells[7]),
        (18, cells[3], cells[6], cell(2, 32))
    );
    assert!(
        [3, 6].map(|number| runs[number].reason) == [SweepReason::Again; 2],
        "{runs:?}"
    );
    assert_eq!(plan.left_out(&runs), [cells[5]]);
    assert!(plan.current_answer(&runs).is_some());
}

#[test]
fn three_settings_in_a_row_that_do_not_count_end_it() {
    let plan = plan(SweepOrder::Nested);
    let runs = runs(
        &plan,
        |number, run| if number < 6 { run } else { broken(run) },
    );
    assert_eq!(
        (runs.len(), plan.next_step(&runs)),
        (12, CampaignStep::Done(CampaignEnd::Broken))
    );
    assert!(plan.current_answer(&runs).is_some());
}

#[test]
fn the_bytes_that_are_permitted_end_it() {
    let fixed = plan(SweepOrder::Nested).fixed_plan().clone();
    let plan = CampaignPlan::new(SweepPlan {
        max_bytes: Some(ByteCount::from_mib(4)),
        ..fixed
    })
    .unwrap();
    let runs = runs(&plan, |_, run| run);
    assert_eq!(
        (runs.len(), plan.next_step(&runs)),
        (5, CampaignStep::Done(CampaignEnd::Budget))
    );
}

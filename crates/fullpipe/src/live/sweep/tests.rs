use super::*;
use crate::live::frame::tests::shown as drawn;
use fullpipe_probe::StreamSnapshot;
use fullpipe_record::{Direction, SweepShape};
use fullpipe_units::ByteCount;

fn plan(windows: u32, streams: &[u16]) -> SweepPlan {
    SweepPlan {
        id: "1".to_owned(),
        target: "server.example".to_owned(),
        windows: (0..windows)
            .map(|power| ByteCount::from_kib(8 << power))
            .collect(),
        streams: streams.to_vec(),
        seed: 1,
        rtt: Span::from_millis(20),
        duty: Ratio::new(0.5),
        budget: Ratio::new(0.2),
        ..SweepPlan::default()
    }
}

fn estimate(cell: SweepCell, runs: u32) -> SweepEstimate {
    let rate = BitRate::from_bytes_in(cell.flight_capacity(), Span::from_millis(20))
        .min(BitRate::from_mbps(622));
    SweepEstimate {
        cell,
        rate,
        low: rate,
        high: rate,
        runs,
    }
}

fn page() -> SweepPage {
    let plan = plan(10, &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 90]);
    let mut page = SweepPage::new(&plan);
    let cell = |streams, window| SweepCell {
        streams,
        window: ByteCount::from_kib(window),
    };
    let measured = [cell(8, 4096), cell(90, 4096), cell(1, 4096), cell(24, 64)];
    let run = |cell| SweepRun {
        cell,
        reason: SweepReason::Anchor,
        rate: Some(estimate(cell, 1).rate),
        sent: ByteCount::from_mib(80),
        took: Span::from_secs(8),
        idle_rtt: Some(Span::from_millis(20)),
        loaded_rtt: Some(Span::from_millis(31)),
        retransmits: None,
        together: None,
        load: None,
        device: None,
        broken: Vec::new(),
    };
    let runs = measured.map(run).to_vec();
    let cells = plan.streams.iter().flat_map(|&streams| {
        plan.windows
            .iter()
            .map(move |&window| SweepCell { window, streams })
    });
    let surface: Vec<SweepEstimate> = cells
        .map(|cell| estimate(cell, u32::from(measured.contains(&cell))))
        .collect();
    let [knee, best] = [estimate(measured[3], 1), estimate(measured[0], 1)];
    let answer = SweepAnswer {
        knee,
        sure: false,
        shape: SweepShape::Knee,
        best,
        cheapest: knee.cell,
        dearest: best.cell,
        fewest_streams: best,
        smallest_window: knee,
        frontier: Vec::new(),
    };
    let grid = SweepCost {
        bytes: ByteCount::from_mib(40_000),
        time: Span::from_secs(2_600),
    };
    page.apply_update(
        Span::ZERO,
        SweepUpdate::Known {
            runs,
            surface,
            answer: Some(Box::new(answer)),
            grid,
        },
    );
    let next = SweepUpdate::Next {
        cell: cell(12, 128),
        reason: SweepReason::Best,
    };
    page.apply_update(Span::from_secs(33), next);
    for tenth in 1..=20 {
        let stream = StreamSnapshot {
            direction: Direction::Upload,
            bytes: ByteCount::new(tenth * 7_500_000),
        };
        let at = Span::from_millis(tenth * 100);
        let snapshot = TestSnapshot {
            at,
            rtt: Some(Span::from_millis(24)),
            streams: vec![stream],
        };
        page.apply_update(Span::from_secs(33), SweepUpdate::Snapshot(snapshot));
    }
    page
}

#[test]
fn a_sweep_on_terminals_of_three_sizes() {
    let (page, now) = (page(), Span::from_secs(35));
    insta::assert_snapshot!("sweep_80x24", drawn(&page, now, 80, 24));
    insta::assert_snapshot!("sweep_120x40", drawn(&page, now, 120, 40));
    insta::assert_snapshot!("sweep_40x10", drawn(&page, now, 40, 10));
}

#[test]
fn a_setting_of_which_no_run_counts_any_more_has_the_rate_of_its_runs() {
    let mut page = page();
    let figure = |page: &SweepPage| {
        drawn(page, Span::from_secs(35), 120, 40)
            .matches(" 100")
            .count()
    };
    let all = figure(&page);
    for of in &mut page.surface {
        of.runs = if of.cell.streams == 8 { 0 } else { of.runs };
    }
    assert_eq!(
        figure(&page),
        all,
        "{}",
        drawn(&page, Span::from_secs(35), 120, 40)
    );
}

#[test]
fn the_run_that_is_made_is_on_every_map() {
    let page = page();
    for width in (40..120).step_by(9) {
        for height in (10..40).step_by(3) {
            let picture = drawn(&page, Span::ZERO, width, height);
            assert!(
                picture.contains(">·<") && picture.contains("Spent: "),
                "{width} × {height}: {picture}"
            );
        }
    }
}

#[test]
fn a_grid_of_one_setting_is_a_map() {
    let page = SweepPage::new(&plan(1, &[1]));
    let picture = drawn(&page, Span::ZERO, 80, 24);
    assert!(
        picture.contains("too few runs") && picture.contains("8 KiB   ·"),
        "{picture}"
    );
}

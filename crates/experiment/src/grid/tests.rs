use super::*;
use fullpipe_scenario::builtin_grids;

fn builtin() -> ScenarioGrid {
    let (name, text) = builtin_grids()[0];
    ScenarioGrid::parse(name, text).unwrap()
}

#[test]
fn the_builtin_grid_has_sixty_paths_of_every_kind() {
    let grid = builtin();
    assert!(grid.cells.len() >= 60, "{}", grid.cells.len());
    let settings = HostSettings::of_linux_6_18();
    let limits: Vec<Limit> = grid
        .cells
        .iter()
        .map(|cell| predict_cell(cell, &cell.steps[0], &settings).limit)
        .collect();
    for (kind, at_least) in [
        (Limit::ReceiveWindow, 20),
        (Limit::SendBuffer, 8),
        (Limit::Capacity, 12),
        (Limit::Loss, 12),
    ] {
        let count = limits.iter().filter(|limit| **limit == kind).count();
        assert!(count >= at_least, "{}: {count}", kind.name());
    }
}

#[test]
fn errors_are_ranked_and_intervals_counted() {
    let cells = |count: u32| {
        (1..=count)
            .map(|n| (Ratio::new(1.0 + f64::from(n) / 100.0), n % 2 == 0))
            .collect()
    };
    assert_eq!(quotient_accuracy(cells(0)), None);
    let of_twenty = quotient_accuracy(cells(20)).unwrap();
    let figures =
        [of_twenty.median, of_twenty.p95, of_twenty.inside].map(|of| format!("{:.3}", of.get()));
    assert_eq!(
        (of_twenty.cells, figures),
        (20, ["0.105", "0.190", "0.500"].map(str::to_owned))
    );
    assert_eq!(
        quotient_accuracy(vec![(Ratio::new(0.9), true)])
            .map(|one| format!("{:.2}", one.p95.get()))
            .unwrap(),
        "0.10"
    );
}

fn cell(loss: f64, simulated: (u64, u64), kernel: (u64, u64)) -> GridCell {
    let grid = builtin();
    let mut cell = grid.cells[0].clone();
    cell.path.forward.loss = Some(Ratio::new(loss));
    let run = |(mbps, again): (u64, u64)| GridRun {
        rate: fullpipe_units::BitRate::from_mbps(mbps),
        steady: None,
        retransmits: Some(fullpipe_units::SegCount::new(again)),
    };
    GridCell {
        id: String::new(),
        bound: String::new(),
        prediction: predict_cell(&cell, &cell.steps[0], &HostSettings::of_linux_6_18()),
        path: cell.path,
        request: cell.steps[0].request.clone(),
        measured: None,
        accuracy: None,
        inside: None,
        losses: None,
        kernel: Some(run(kernel)),
        simulated: Some(run(simulated)),
        broken: Vec::new(),
    }
}

#[test]
fn simulated_runs_are_held_against_those_of_the_kernel() {
    let cells = [
        cell(0.0, (99, 0), (100, 0)),
        cell(0.0, (102, 90), (100, 100)),
        cell(0.0, (100, 3), (100, 0)),
        {
            let lossy = cell(0.01, (50, 10), (100, 10));
            GridCell {
                simulated: None,
                ..lossy
            }
        },
    ];
    let without = run_agreement(&cells, |loss| loss == Ratio::ZERO).unwrap();
    let figures = [
        without.rate_median,
        without.rate_p90,
        without.retransmits_median,
        without.retransmits_p90,
    ];
    assert_eq!(
        figures.map(|figure| format!("{:.2}", figure.get())),
        ["0.01", "0.02", "0.10", "2.00"]
    );
    assert_eq!(
        (
            without.cells,
            run_agreement(&cells, |loss| loss > Ratio::ZERO)
        ),
        (3, None)
    );
}

#[test]
fn a_virtual_grid_is_of_simulated_runs_and_names_what_is_not_modelled() {
    let grid = builtin();
    let mut unmodelled = grid.cells[0].clone();
    unmodelled.steps[0].request.congestion = Some("htcp".to_owned());
    let grid = ScenarioGrid {
        cells: vec![grid.cells[0].clone(), unmodelled],
        ..grid
    };
    let idle = std::sync::atomic::AtomicBool::new(false);
    let settings = HostSettings::of_linux_6_18();
    let report = run_grid(
        &grid,
        &settings,
        (GridPlace::Virtual, &KnownCells::new()),
        Interrupt(&idle),
        &mut |_| {},
    )
    .unwrap();
    let [first, second] = report.cells.as_slice() else {
        panic!("two cells")
    };
    assert!(report.is_virtual && !report.passed && first.kernel.is_none());
    assert_eq!(
        (first.simulated.and_then(|run| run.steady), first.inside),
        (first.measured, Some(true))
    );
    assert!(
        second.simulated.is_none() && second.broken[0].contains("\"htcp\" is not modelled"),
        "{second:?}"
    );
}

#[test]
fn what_misses_a_bound_is_said() {
    let got = GridAccuracy {
        cells: 9,
        median: Ratio::new(0.02),
        p95: Ratio::new(0.1),
        inside: Ratio::new(0.8),
    };
    let bounds = GridBounds {
        median: Some(Ratio::new(0.03)),
        p95: Some(Ratio::new(0.08)),
        inside: Some(Ratio::new(0.9)),
    };
    let missed = missed_bounds(&bounds, Some(got), Some(got));
    assert_eq!(missed.len(), 2, "{missed:?}");
    assert!(
        missed[0].starts_with("the 95th percentile") && missed[1].starts_with("80 % of the cells")
    );
}

use std::ops::Add;

use fullpipe_record::{SweepCell, SweepCost, SweepPlan, SweepRun};
use fullpipe_units::{BitRate, Span};

use super::grid::SweepGrid;
use super::judged::JudgedCells;

/// Time of a run over the whole grid, as SLAC measured it.
pub(crate) const GRID_RUN: Span = Span::from_secs(10);

/// Least duty.
const MIN_DUTY: f64 = 0.01;

/// The length of a run's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// Until slow start has filled the path: 12 round trips.
    pub ramp: Span,
    /// Then measured: 20 round trips, 2 s at least.
    pub steady: Span,
}

impl RunLength {
    /// Returns the length for a path with this round-trip time.
    pub fn from_rtt(rtt: Span) -> Self {
        Self {
            ramp: (rtt * 12).max(Span::from_millis(300)),
            steady: (rtt * 20).max(Span::from_secs(2)),
        }
    }

    /// Returns both together.
    pub fn total_time(self) -> Span {
        self.ramp + self.steady
    }
}

/// Returns the cost of a load for `load` at `rate`, with set-up, drain and the rest that keeps the
/// duty of `plan`.
pub fn run_cost(plan: &SweepPlan, load: Span, rate: BitRate) -> SweepCost {
    let time = (load + plan.overhead).scale_by(1.0 / plan.duty.get().clamp(MIN_DUTY, 1.0));
    SweepCost {
        bytes: rate.bytes_in(load),
        time,
    }
}

/// Returns the cost of what was run.
pub fn spent_cost(runs: &[SweepRun]) -> SweepCost {
    let costs = runs.iter().map(|run| SweepCost {
        bytes: run.sent,
        time: run.took,
    });
    costs.fold(SweepCost::default(), Add::add)
}

/// Returns the cost of the whole grid: each cell at the rate that its window permits with this
/// round-trip time, or that the runs so far show if that is less.
pub(crate) fn grid_cost(plan: &SweepPlan, grid: &SweepGrid, judged: &JudgedCells) -> SweepCost {
    let fastest = judged.fastest_rate().unwrap_or(f64::MAX);
    let cells = grid.all_cells().into_iter().enumerate();
    let rates = cells.map(|(index, cell)| {
        let expected = judged.expected_rate(index).min(fastest);
        BitRate::from_bps_f64(expected.min(permitted_rate(plan, cell)))
    });
    rates
        .map(|rate| run_cost(plan, GRID_RUN, rate))
        .fold(SweepCost::default(), Add::add)
}

/// Returns the rate in bits per second that the windows of `cell` permit over the path of `plan`.
pub(crate) fn permitted_rate(plan: &SweepPlan, cell: SweepCell) -> f64 {
    cell.flight_capacity().as_f64() * 8.0 / plan.rtt.as_secs_f64().max(1e-6)
}

use std::ops::Add;

use fullpipe_record::{SweepCell, SweepRun};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::judged::Judged;
use crate::plan::Plan;

/// Time of a run over the whole grid, as SLAC measured it.
const GRID_RUN: Span = Span::from_secs(10);

/// The length of a run's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Until slow start has filled the path: 12 round trips.
    pub ramp: Span,
    /// Then measured: 20 round trips, 2 s at least.
    pub steady: Span,
}

impl Length {
    /// Returns the length for a path with this round-trip time.
    pub fn of(rtt: Span) -> Self {
        Self { ramp: (rtt * 12).max(Span::from_millis(300)), steady: (rtt * 20).max(Span::from_secs(2)) }
    }

    /// Returns both together.
    pub fn total(self) -> Span {
        self.ramp + self.steady
    }
}

/// Payload and time of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Payload that is sent.
    pub bytes: ByteCount,
    /// Time, the rests included.
    pub time: Span,
}

impl Cost {
    /// Returns the cost of a run of `length` at `rate`, with the rest that keeps `duty`.
    pub fn of_run(length: Length, rate: BitRate, duty: Ratio) -> Self {
        Self::of(length.total(), rate, duty)
    }

    fn of(load: Span, rate: BitRate, duty: Ratio) -> Self {
        Self { bytes: rate.bytes_in(load), time: load.scaled(1.0 / duty.get().clamp(0.01, 1.0)) }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, time: self.time + other.time }
    }
}

/// Returns the cost of what was run.
pub(crate) fn spent(runs: &[SweepRun]) -> Cost {
    let cost = |run: &SweepRun| Cost { bytes: run.sent, time: run.took };
    runs.iter().map(cost).fold(Cost::default(), Add::add)
}

/// Returns the cost of the whole grid: each cell at the rate that its window permits with this round-trip time, or that
/// the runs so far show if that is less.
pub(crate) fn grid_cost(plan: &Plan, judged: &Judged) -> Cost {
    let fastest = judged.fastest().unwrap_or(f64::MAX);
    let rtt = plan.rtt.as_secs_f64().max(1e-6);
    let rate = |(index, cell): (usize, SweepCell)| {
        let permitted = cell.product().as_f64() * 8.0 / rtt;
        BitRate::from_bps_f64(judged.expected(index).min(fastest).min(permitted))
    };
    let cells = plan.grid.cells().into_iter().enumerate();
    cells.map(|cell| Cost::of(GRID_RUN, rate(cell), plan.duty)).fold(Cost::default(), Add::add)
}

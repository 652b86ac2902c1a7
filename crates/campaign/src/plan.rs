//! The next run: anchors first, then in turn the cell that may be fastest and the cheapest that may do.

use fullpipe_record::{SweepAnswer, SweepCell, SweepEstimate, SweepReason, SweepRun};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::answer::{answer, estimates};
use crate::cost::{Cost, Length, grid_cost, spent};
use crate::grid::{Grid, Index};
use crate::judged::Judged;
use crate::segment::{Segment, segments};
use crate::shape::level;
use crate::surface::Plane;

/// Streams of the anchors, in this order; the first have the largest window, the others one that gives twice the flight
/// of the fastest so far.
const ANCHORS: [u16; 4] = [8, 90, 1, 24];

/// Flight of an anchor, in rates so far × round-trip times.
const AMPLE: f64 = 2.0;

/// Share of the flight that a window permits from which on the window limits the rate.
const BY_WINDOW: f64 = 0.8;

/// A cheaper cell is measured while its chance to do is at least this.
const MAYBE: f64 = 0.4;

/// Runs of a cell after which no further one of it shows more.
const MAX_RUNS: usize = 5;

/// Runs of the answer.
const MIN_RUNS_OF_KNEE: usize = 2;

/// Runs of the fastest cell.
const MIN_RUNS_OF_BEST: usize = 3;

/// Runs of a campaign.
const MIN_RUNS: usize = 10;

/// Runs from one reference to the next.
const REFERENCE_EVERY: usize = 6;

/// Part of the budget that is kept for references.
const KEPT: f64 = 0.06;

/// Preference, in logarithms of a rate, for a cell with one run less.
const REPEAT_COST: f64 = 0.02;

/// What is fixed before the first run. The same plan and the same runs give the same next run, so that a campaign can
/// go on from its documents alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The settings.
    pub grid: Grid,
    /// Round-trip time without load before the first run.
    pub rtt: Span,
    /// Share of the time in which the path has load; the rest of it is rest.
    pub duty: Ratio,
    /// Bytes and time at most, as shares of those of the whole grid at 10 s a cell.
    pub budget: Ratio,
    /// Bytes at most, in all.
    pub max_bytes: Option<ByteCount>,
    /// Rates that are expected of the cells, in the order of [`Grid::cells`]; empty if nothing is known. They choose
    /// one of the first runs, and no more.
    pub predicted: Vec<BitRate>,
}

/// The next step of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A run.
    Run {
        /// Its setting.
        cell: SweepCell,
        /// Its reason.
        reason: SweepReason,
    },
    /// The end.
    Done(End),
}

/// The end of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The knee is sure.
    Sure,
    /// The next run does not fit into the budget.
    Budget,
}

impl Plan {
    /// Returns the next step after `runs`, which are all so far in their order.
    pub fn next(&self, runs: &[SweepRun]) -> Next {
        let state = self.state(runs);
        let Some(wanted) = self.wanted(&state, runs) else { return Next::Done(End::Sure) };
        let affordable = [Some(wanted), self.last_reference(&state.segment)];
        match affordable.into_iter().flatten().find(|(cell, reason)| self.affords(runs, &state.judged, *cell, *reason))
        {
            Some((cell, reason)) => Next::Run { cell: self.grid.cells()[cell], reason },
            None => Next::Done(End::Budget),
        }
    }

    /// Returns the answer that `runs` give; `None` if there are too few over the path as it is now.
    pub fn answer(&self, runs: &[SweepRun]) -> Option<SweepAnswer> {
        let state = self.state(runs);
        let is_changing =
            state.begins.len() > 1 && state.judged.runs() <= ANCHORS.len() || state.segment.suspicious > 1;
        let sure = self.wanted(&state, runs).is_none();
        let flight = flight(self.rtt, &state.judged);
        (state.judged.runs() > 0 && !is_changing).then(|| answer(&self.grid, &state.judged, flight, sure))
    }

    /// Returns the rates of all settings that the runs over the present path show, in the order of [`Grid::cells`].
    pub fn surface(&self, runs: &[SweepRun]) -> Vec<SweepEstimate> {
        estimates(&self.grid, &self.state(runs).judged)
    }

    /// Returns the numbers of the runs, from 0, at which the path was another than before; the first is 0.
    pub fn segments(&self, runs: &[SweepRun]) -> Vec<usize> {
        segments(runs, ANCHORS.len()).0
    }

    /// Returns the length of every run.
    pub fn length(&self) -> Length {
        Length::of(self.rtt)
    }

    /// Returns the cost of the whole grid at 10 s a cell, as far as `runs` show.
    pub fn grid_cost(&self, runs: &[SweepRun]) -> Cost {
        grid_cost(self, &self.state(runs).judged)
    }

    fn state(&self, runs: &[SweepRun]) -> State {
        let (begins, segment) = segments(runs, ANCHORS.len());
        let judged = Judged::of(&self.grid, Plane::of(&self.grid), &runs[segment.from..]);
        State { judged, begins, segment }
    }

    /// Returns the cell that is wanted next, or nothing if the answer is sure.
    fn wanted(&self, state: &State, runs: &[SweepRun]) -> Option<(Index, SweepReason)> {
        let State { judged, segment, .. } = state;
        if let Some(again) = again(&runs[segment.from..]).and_then(|cell| self.grid.index(cell)) {
            return Some((again, SweepReason::Again));
        }
        if judged.runs() < ANCHORS.len() {
            return Some((self.anchor(judged), SweepReason::Anchor));
        }
        let is_due = segment.suspicious > 0 || segment.references < 2 || segment.since_reference + 1 >= REFERENCE_EVERY;
        let due = self.reference(segment).filter(|_| is_due);
        due.or_else(|| self.of_level(judged))
            .or_else(|| self.undecided(judged))
            .or_else(|| self.last_reference(segment))
    }

    fn reference(&self, segment: &Segment) -> Option<(Index, SweepReason)> {
        let cell = segment.reference.and_then(|cell| self.grid.index(cell));
        cell.map(|cell| (cell, SweepReason::Reference))
    }

    /// Returns the reference with which a campaign ends, unless it has just been measured or still differs.
    fn last_reference(&self, segment: &Segment) -> Option<(Index, SweepReason)> {
        self.reference(segment).filter(|_| segment.since_reference > 1 || segment.suspicious > 0)
    }

    fn anchor(&self, judged: &Judged) -> Index {
        let streams = self.grid.nearest(ANCHORS[judged.runs()]);
        let cells = self.grid.cells();
        let largest = judged.measured().map(|cell| cells[cell].product()).max();
        let flight = flight(self.rtt, judged);
        // Where windows alone limit the fastest, nobody knows what would be ample.
        let by_window = largest.is_none_or(|product| flight >= BY_WINDOW * product.as_f64());
        self.grid.filling(if by_window { f64::MAX } else { AMPLE * flight }, streams)
    }

    /// Returns the cell on which the decision hangs.
    fn undecided(&self, judged: &Judged) -> Option<(Index, SweepReason)> {
        let knee = judged.knee();
        let may_do = |cell: &Index| judged.chance(*cell) >= MAYBE && judged.count(*cell) < MAX_RUNS;
        let edge = judged.order().iter().copied().take_while(|cell| *cell != knee).find(may_do);
        let few = [(knee, MIN_RUNS_OF_KNEE), (judged.best(), MIN_RUNS_OF_BEST)];
        let repeat = few.into_iter().find(|(cell, enough)| judged.count(*cell) < *enough).map(|(cell, _)| cell);
        if judged.runs() >= MIN_RUNS && edge.is_none() && repeat.is_none() {
            return None;
        }
        let edge = edge.map(|cell| (cell, SweepReason::Edge));
        let repeat = repeat.map(|cell| (cell, SweepReason::Repeat));
        let wanted = if judged.runs().is_multiple_of(2) { None } else { edge.or(repeat) };
        wanted.or_else(|| Some((most_promising(judged), SweepReason::Best)))
    }

    /// Returns the cell that shows if there is a lower level.
    fn of_level(&self, judged: &Judged) -> Option<(Index, SweepReason)> {
        if judged.runs() < MIN_RUNS {
            return None;
        }
        let level = level(&self.grid, judged, flight(self.rtt, judged))?;
        Some((level.next(judged)?, SweepReason::Level))
    }

    /// Returns true if a run of `cell` stays within the budget, of which a part is kept for references.
    fn affords(&self, runs: &[SweepRun], judged: &Judged, cell: Index, reason: SweepReason) -> bool {
        let Some(fastest) = judged.fastest() else { return true };
        let next = Cost::of_run(self.length(), BitRate::from_bps_f64(judged.expected(cell).min(fastest)), self.duty);
        let cost = spent(runs) + next;
        let grid = grid_cost(self, judged);
        let free = if reason == SweepReason::Reference { 1.0 } else { 1.0 - KEPT };
        let share = self.budget.get() * free;
        let bytes = grid.bytes.scaled(share).min(self.max_bytes.unwrap_or(ByteCount::new(u64::MAX)));
        cost.bytes <= bytes && cost.time <= grid.time.scaled(share)
    }
}

/// Runs, judged.
struct State {
    judged: Judged,
    /// The first run of each segment.
    begins: Vec<usize>,
    segment: Segment,
}

/// Returns the cell whose rate may be the highest.
fn most_promising(judged: &Judged) -> Index {
    let hope = |cell: &Index| judged.logarithm(*cell, 1.0) - REPEAT_COST * judged.count(*cell) as f64;
    (0..judged.cells()).max_by(|a, b| hope(a).total_cmp(&hope(b))).unwrap_or(0)
}

/// Returns the bytes in flight of the fastest runs.
fn flight(rtt: Span, judged: &Judged) -> f64 {
    judged.fastest().unwrap_or(f64::MAX) * rtt.as_secs_f64() / 8.0
}

/// Returns the cell of the last run if that run does not count and was the first of its kind.
fn again(runs: &[SweepRun]) -> Option<SweepCell> {
    let last = runs.last().filter(|run| run.rate.is_none())?;
    let before = runs.iter().rev().nth(1).is_some_and(|run| run.rate.is_none() && run.cell == last.cell);
    (!before).then_some(last.cell)
}

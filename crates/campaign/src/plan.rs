//! The next run: anchors first, then in turn the cell that may be fastest and the cheapest that may do.

use fullpipe_record::{SweepAnswer, SweepCell, SweepCost, SweepEstimate, SweepPlan, SweepReason, SweepRun};
use fullpipe_units::{BitRate, Span};

use crate::answer::{Certainty, answer, estimates};
use crate::cost::{GRID_RUN, Length, grid_cost, permitted, run_cost, spent};
use crate::grid::{Grid, Index};
use crate::judged::{ENOUGH, Judged, order};
use crate::left_out::{Attempts, failing};
use crate::order::ordered;
use crate::segment::{Segment, segments};
use crate::shape::{BY_WINDOW, cheapest_of_flat, level};
use crate::surface::Plane;

/// Streams of the anchors, in this order; the first have the largest window, the others one that gives twice the flight
/// of the fastest so far.
const ANCHORS: [u16; 4] = [8, 90, 1, 24];

/// Numbers of streams in the grid from one to its double.
const STEPS_OF_DOUBLING: usize = 2;

/// Flight of an anchor, in rates so far × round-trip times.
const AMPLE: f64 = 2.0;

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

/// Settings in a row of which no run counts with which a campaign ends: it would never have an answer, and no end. Each
/// is tried twice.
const MAX_FAILING: usize = 3;

/// Runs from one reference to the next.
const REFERENCE_EVERY: usize = 6;

/// References whose cost is kept back: a change of the path amid the last runs is noticed and confirmed.
const KEPT: f64 = 3.0;

/// Preference, in logarithms of a rate, for a cell with one run less.
const REPEAT_COST: f64 = 0.02;

/// The plan of a campaign, ready to decide. The same plan and the same runs give the same next run, so that
/// a campaign can go on from its documents alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) fixed: SweepPlan,
    pub(crate) grid: Grid,
    pub(crate) plane: Plane,
    /// The cells of a sweep over the whole grid, in their order.
    whole: Option<Vec<SweepCell>>,
    /// The cheapest cell that is predicted to do.
    predicted: Option<Index>,
}

/// The next step of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A run.
    Run {
        /// The setting to measure: window and number of streams.
        cell: SweepCell,
        /// The reason for the run.
        reason: SweepReason,
    },
    /// The end.
    Done(End),
}

/// The end of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The knee is sure, or the whole grid is measured.
    Sure,
    /// The next run does not fit into the budget.
    Budget,
    /// No run of several settings, one after another, counts.
    Broken,
}

impl Plan {
    /// Returns the plan of what is fixed.
    ///
    /// # Errors
    /// A sentence if there is no grid of these windows and streams.
    pub fn new(fixed: SweepPlan) -> Result<Self, String> {
        let grid = Grid::new(fixed.windows.clone(), fixed.streams.clone())?;
        let whole = fixed.order.map(|order| ordered(&grid, order, fixed.seed));
        let predicted = predicted_knee(&grid, &fixed.predicted);
        Ok(Self { fixed, plane: Plane::of(&grid), grid, whole, predicted })
    }

    /// Returns the plan as it is kept.
    pub fn fixed(&self) -> &SweepPlan {
        &self.fixed
    }

    /// Returns the cheapest setting for which 95 % of the best rate is predicted, if rates are.
    pub fn predicted_knee(&self) -> Option<SweepCell> {
        self.predicted.map(|cell| self.grid.cells()[cell])
    }

    /// Returns the plan with the forecast before its first run.
    #[must_use]
    pub fn with_forecast(mut self) -> Self {
        self.fixed.forecast = self.forecast(&[]);
        self
    }

    /// Returns the next step after `runs`, which are all so far in their order.
    pub fn next(&self, runs: &[SweepRun]) -> Next {
        if let Some(whole) = &self.whole {
            return self.next_of_whole(whole, runs);
        }
        let state = self.state(runs);
        let Some(wanted) = self.wanted(&state, runs) else {
            return Next::Done(if state.judged.can_go_on() { End::Sure } else { End::Broken });
        };
        if failing(runs) >= MAX_FAILING && wanted.1 != SweepReason::Again {
            return Next::Done(End::Broken);
        }
        let reference = self.last_reference(&state.segment).filter(|(cell, _)| state.judged.may_run(*cell));
        let affordable = [Some(wanted), reference];
        match affordable.into_iter().flatten().find(|(cell, reason)| self.affords(runs, &state.judged, *cell, *reason))
        {
            Some((cell, reason)) => Next::Run { cell: self.grid.cells()[cell], reason },
            None => Next::Done(End::Budget),
        }
    }

    /// Returns the answer that `runs` give; `None` if there are too few over the path as it is now.
    pub fn answer(&self, runs: &[SweepRun]) -> Option<SweepAnswer> {
        let state = self.state(runs);
        let is_whole = self.whole.is_some();
        let is_changing =
            state.begins.len() > 1 && state.judged.runs() <= self.anchors() || state.segment.suspicious > 0;
        let sure = !is_whole && state.judged.can_go_on() && self.wanted(&state, runs).is_none();
        let flight = flight(self.fixed.rtt, &state.judged);
        let has_answer = state.judged.has_best() && (is_whole || !is_changing);
        has_answer.then(|| answer(&self.grid, &state.judged, flight, Certainty { sure, is_whole }))
    }

    /// Returns the rates of all settings that the runs over the present path show, in the order of [`Grid::cells`].
    pub fn surface(&self, runs: &[SweepRun]) -> Vec<SweepEstimate> {
        estimates(&self.grid, &self.state(runs).judged)
    }

    /// Returns the numbers of the runs, from 0, at which the path was another than before; the first is 0.
    pub fn segments(&self, runs: &[SweepRun]) -> Vec<usize> {
        self.course(runs).0
    }

    /// Returns the number of the first run that counts for the answer, from 0: those before it were made over another
    /// path, or before a setting was known whose rate shows a change of the path. All runs of a sweep over the whole
    /// grid count, as it measures no setting anew.
    pub fn counts_from(&self, runs: &[SweepRun]) -> usize {
        self.course(runs).1.from
    }

    /// Returns the settings that are left out over the path as it is now: at least two of their runs, and more than
    /// half, do not count, as on a machine for which they are too much.
    pub fn left_out(&self, runs: &[SweepRun]) -> Vec<SweepCell> {
        Attempts::of(&runs[self.counts_from(runs)..]).left_out().collect()
    }

    /// Returns the length of every run.
    pub fn length(&self) -> Length {
        let short = Length::of(self.fixed.rtt);
        if self.whole.is_none() {
            return short;
        }
        Length { steady: GRID_RUN.saturating_sub(short.ramp).max(short.steady), ..short }
    }

    /// Returns the cost of the whole grid at 10 s a cell, as far as `runs` show.
    pub fn grid_cost(&self, runs: &[SweepRun]) -> SweepCost {
        grid_cost(&self.fixed, &self.grid, &self.state(runs).judged)
    }

    /// Returns the logarithm of the rate that each cell is expected to have: the predicted one, or else what its window
    /// permits and the fastest cell has, once the anchors show that.
    pub(crate) fn expected(&self, judged: &Judged) -> Option<Vec<f64>> {
        let cells = self.grid.cells();
        if self.fixed.predicted.len() == cells.len() {
            return Some(self.fixed.predicted.iter().map(|rate| libm::log(rate.as_f64().max(1.0))).collect());
        }
        let fastest = judged.fastest().filter(|_| self.whole.is_none() && judged.runs() >= self.anchors())?;
        let permitted = |cell: &SweepCell| libm::log(permitted(&self.fixed, *cell).min(fastest));
        Some(cells.iter().map(permitted).collect())
    }

    fn state(&self, runs: &[SweepRun]) -> State {
        let (begins, segment) = self.course(runs);
        let judged = Judged::of(&self.grid, &self.plane, &runs[segment.from..]);
        State { judged, begins, segment }
    }

    /// Returns the index of each segment's first run, and the state of the last. A sweep over the
    /// whole grid has no reference, and all its runs count: what it left out, it would not measure
    /// again.
    fn course(&self, runs: &[SweepRun]) -> (Vec<usize>, Segment) {
        let (begins, segment) = segments(runs, self.anchors());
        (begins, if self.whole.is_some() { Segment::default() } else { segment })
    }

    /// Returns the next run of the whole grid: the one that did not count once more, or the next setting.
    fn next_of_whole(&self, whole: &[SweepCell], runs: &[SweepRun]) -> Next {
        let again = again(runs).map(|cell| Next::Run { cell, reason: SweepReason::Again });
        if again.is_none() && failing(runs) >= MAX_FAILING {
            return Next::Done(End::Broken);
        }
        let settings = runs.iter().filter(|run| run.reason != SweepReason::Again).count();
        let next = whole.get(settings).map(|cell| Next::Run { cell: *cell, reason: SweepReason::Grid });
        let Some(next) = again.or(next) else { return Next::Done(End::Sure) };
        if self.permits(spent(runs)) { next } else { Next::Done(End::Budget) }
    }

    /// Returns the cell that is wanted next, or nothing if the answer is sure.
    fn wanted(&self, state: &State, runs: &[SweepRun]) -> Option<(Index, SweepReason)> {
        let State { judged, segment, .. } = state;
        let again = again(&runs[segment.from..]).and_then(|cell| self.grid.index(cell));
        if let Some(again) = again.filter(|cell| judged.may_run(*cell)) {
            return Some((again, SweepReason::Again));
        }
        if let Some(control) = self.control(state, runs) {
            return Some(control);
        }
        if judged.runs() < self.anchors() {
            return self.anchor(judged).map(|cell| (cell, SweepReason::Anchor));
        }
        let is_due = segment.suspicious > 0 || segment.references < 2 || segment.since_reference + 1 >= REFERENCE_EVERY;
        let due = self.reference(segment).filter(|(cell, _)| is_due && judged.may_run(*cell));
        due.or_else(|| self.of_shape(judged)).or_else(|| undecided(judged)).or_else(|| self.last(judged, segment))
    }

    /// Returns a cell whose runs count, once those of two others did not: it shows if they are too much for the machine
    /// or the machine is busy.
    fn control(&self, State { judged, segment, .. }: &State, runs: &[SweepRun]) -> Option<(Index, SweepReason)> {
        if failing(&runs[segment.from..]) + 1 != MAX_FAILING || judged.runs() == 0 {
            return None;
        }
        let best = (judged.best(), SweepReason::Repeat);
        let mut known = self.reference(segment).into_iter().chain([best]);
        known.find(|(cell, _)| judged.count(*cell) > 0 && judged.may_run(*cell))
    }

    fn reference(&self, segment: &Segment) -> Option<(Index, SweepReason)> {
        let cell = segment.reference.and_then(|cell| self.grid.index(cell));
        cell.map(|cell| (cell, SweepReason::Reference))
    }

    /// Returns the reference with which a campaign ends, unless it has just been measured or still differs.
    fn last_reference(&self, segment: &Segment) -> Option<(Index, SweepReason)> {
        self.reference(segment).filter(|_| segment.since_reference > 0 || segment.suspicious > 0)
    }

    /// Returns the reference with which a campaign ends; if that waits, another run before it.
    fn last(&self, judged: &Judged, segment: &Segment) -> Option<(Index, SweepReason)> {
        let reference = self.last_reference(segment)?;
        if judged.may_run(reference.0) { Some(reference) } else { most_promising(judged) }
    }

    fn anchors(&self) -> usize {
        ANCHORS.len() + usize::from(self.predicted.is_some())
    }

    /// Returns the next anchor, or the one that takes its place if that is left out: with half the streams, and so on;
    /// `None` if all are left out.
    fn anchor(&self, judged: &Judged) -> Option<Index> {
        let Some(streams) = ANCHORS.get(judged.runs()) else { return self.predicted_anchor(judged) };
        let streams = self.grid.nearest(*streams);
        let cells = self.grid.cells();
        let largest = judged.measured().map(|cell| cells[cell].product()).max();
        let flight = flight(self.fixed.rtt, judged);
        // Where windows alone limit the fastest, no run shows what would be ample.
        let by_window = largest.is_none_or(|product| flight >= BY_WINDOW * product.as_f64());
        let ample = if by_window { f64::MAX } else { AMPLE * flight };
        let halved = (0..=streams).rev().step_by(STEPS_OF_DOUBLING);
        let places = halved.chain(0..self.grid.streams().len());
        let ample = places.map(|streams| self.grid.filling(ample, streams)).find(|cell| judged.may_run(*cell));
        ample.or_else(|| (0..cells.len()).find(|cell| judged.may_run(*cell)))
    }

    /// Returns the cheapest cell that is predicted to do, or the next dearer one that is not left out.
    fn predicted_anchor(&self, judged: &Judged) -> Option<Index> {
        let from = judged.order().iter().position(|cell| Some(*cell) == self.predicted).unwrap_or(0);
        let (cheaper, dearer) = judged.order().split_at(from);
        dearer.iter().chain(cheaper).copied().find(|cell| judged.may_run(*cell))
    }

    /// Returns the cell that shows if the surface is flat, or has a lower level.
    fn of_shape(&self, judged: &Judged) -> Option<(Index, SweepReason)> {
        if judged.runs() < MIN_RUNS {
            return None;
        }
        let may_run = |cell: &Index| judged.may_run(*cell);
        if let Some(cheapest) = cheapest_of_flat(judged).filter(may_run) {
            return Some((cheapest, SweepReason::Edge));
        }
        let level = level(&self.grid, judged, flight(self.fixed.rtt, judged))?;
        Some((level.next(judged).filter(may_run)?, SweepReason::Level))
    }

    /// Returns true if a run of `cell` stays within the budget, of which a part is kept for references.
    fn affords(&self, runs: &[SweepRun], judged: &Judged, cell: Index, reason: SweepReason) -> bool {
        let Some(fastest) = judged.fastest() else { return self.permits(spent(runs)) };
        let rate = BitRate::from_bps_f64(judged.expected(cell).min(fastest));
        let load = self.length().total();
        let cost = spent(runs) + run_cost(&self.fixed, load, rate);
        let grid = grid_cost(&self.fixed, &self.grid, judged);
        let share = self.fixed.budget.get();
        let kept = match reason {
            SweepReason::Anchor | SweepReason::Reference => 0.0,
            _ => KEPT,
        };
        let reference = run_cost(&self.fixed, load, BitRate::from_bps_f64(fastest));
        self.permits(cost)
            && cost.bytes + reference.bytes.scaled(kept) <= grid.bytes.scaled(share)
            && cost.time + reference.time.scaled(kept) <= grid.time.scaled(share)
    }

    fn permits(&self, cost: SweepCost) -> bool {
        self.fixed.max_bytes.is_none_or(|most| cost.bytes <= most)
    }
}

/// Runs, judged.
struct State {
    judged: Judged,
    /// The first run of each segment.
    begins: Vec<usize>,
    segment: Segment,
}

/// Returns the cell on which the decision hangs.
fn undecided(judged: &Judged) -> Option<(Index, SweepReason)> {
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
    wanted.filter(|(cell, _)| judged.may_run(*cell)).or_else(|| most_promising(judged))
}

/// Returns the cell whose rate may be the highest.
fn most_promising(judged: &Judged) -> Option<(Index, SweepReason)> {
    let hope = |cell: &Index| judged.logarithm(*cell, 1.0) - REPEAT_COST * judged.count(*cell) as f64;
    let cells = (0..judged.cells()).filter(|cell| judged.may_run(*cell));
    cells.max_by(|a, b| hope(a).total_cmp(&hope(b))).map(|cell| (cell, SweepReason::Best))
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

/// Returns the cheapest cell that is predicted to have enough of the best rate.
fn predicted_knee(grid: &Grid, predicted: &[BitRate]) -> Option<Index> {
    let best = predicted.iter().max().filter(|_| predicted.len() == grid.cells().len())?;
    order(grid).into_iter().find(|cell| predicted[*cell] >= best.scaled(ENOUGH))
}

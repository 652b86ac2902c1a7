//! The next run: anchors first, then in turn the cell that may be fastest and the cheapest that may
//! do.

use fullpipe_record::{
    SweepAnswer, SweepCell, SweepCost, SweepEstimate, SweepPlan, SweepReason, SweepRun,
};
use fullpipe_units::{BitRate, Span};

use super::answer::{AnswerCertainty, cell_estimates, sweep_answer};
use super::cost::{GRID_RUN, RunLength, grid_cost, permitted_rate, run_cost, spent_cost};
use super::grid::{Index, SweepGrid};
use super::judged::{ENOUGH, JudgedCells, order_by_cost};
use super::left_out::{AttemptCounts, failing_settings};
use super::order::order_cells;
use super::segment::{PathSegment, split_segments};
use super::shape::{BY_WINDOW, cheapest_of_flat, lower_level};
use super::surface::CellPlane;

/// Streams of the anchors, in this order; the first have the largest window, the others one that
/// gives twice the flight of the fastest so far.
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

/// Settings in a row of which no run counts with which a campaign ends: it would never have an
/// answer, and no end. Each is tried twice.
const MAX_FAILING: usize = 3;

/// Runs from one reference to the next.
const REFERENCE_EVERY: usize = 6;

/// References whose cost is kept back: a change of the path amid the last runs is noticed and
/// confirmed.
const KEPT: f64 = 3.0;

/// Preference, in logarithms of a rate, for a cell with one run less.
const REPEAT_COST: f64 = 0.02;

/// The plan of a campaign, ready to decide. The same plan and the same runs give the same next run,
/// so that a campaign can go on from its documents alone.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignPlan {
    pub(crate) fixed: SweepPlan,
    pub(crate) grid: SweepGrid,
    pub(crate) plane: CellPlane,
    /// The cells of a sweep over the whole grid, in their order.
    whole: Option<Vec<SweepCell>>,
    /// The cheapest cell that is predicted to do.
    predicted: Option<Index>,
}

/// The next step of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CampaignStep {
    /// A run.
    Run {
        /// The setting to measure: window and number of streams.
        cell: SweepCell,
        /// The reason for the run.
        reason: SweepReason,
    },
    /// The end.
    Done(CampaignEnd),
}

/// The end of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CampaignEnd {
    /// The knee is sure, or the whole grid is measured.
    Sure,
    /// The next run does not fit into the budget.
    Budget,
    /// No run of several settings, one after another, counts.
    Broken,
}

impl CampaignPlan {
    /// Returns the plan of what is fixed.
    ///
    /// # Errors
    /// A sentence if there is no grid of these windows and streams.
    pub fn new(fixed: SweepPlan) -> Result<Self, String> {
        let grid = SweepGrid::new(fixed.windows.clone(), fixed.streams.clone())?;
        let whole = fixed
            .order
            .map(|order| order_cells(&grid, order, fixed.seed));
        let predicted = predicted_knee(&grid, &fixed.predicted);
        Ok(Self {
            fixed,
            plane: CellPlane::from_grid(&grid),
            grid,
            whole,
            predicted,
        })
    }

    /// Returns the plan as it is kept.
    pub fn fixed_plan(&self) -> &SweepPlan {
        &self.fixed
    }

    /// Returns the cheapest setting for which 95 % of the best rate is predicted, if rates are.
    pub fn predicted_knee(&self) -> Option<SweepCell> {
        self.predicted.map(|cell| self.grid.all_cells()[cell])
    }

    /// Returns the plan with the forecast before its first run.
    #[must_use]
    pub fn with_forecast(mut self) -> Self {
        self.fixed.forecast = self.forecast_cost(&[]);
        self
    }

    /// Returns the next step after `runs`, which are all so far in their order.
    pub fn next_step(&self, runs: &[SweepRun]) -> CampaignStep {
        if let Some(whole) = &self.whole {
            return self.next_of_whole(whole, runs);
        }
        let state = self.current_state(runs);
        let Some(wanted) = self.wanted_cell(&state, runs) else {
            return CampaignStep::Done(if state.judged.can_go_on() {
                CampaignEnd::Sure
            } else {
                CampaignEnd::Broken
            });
        };
        if failing_settings(runs) >= MAX_FAILING && wanted.1 != SweepReason::Again {
            return CampaignStep::Done(CampaignEnd::Broken);
        }
        let reference = self
            .last_reference(&state.segment)
            .filter(|(cell, _)| state.judged.may_run(*cell));
        let affordable = [Some(wanted), reference];
        match affordable
            .into_iter()
            .flatten()
            .find(|(cell, reason)| self.can_afford(runs, &state.judged, *cell, *reason))
        {
            Some((cell, reason)) => CampaignStep::Run {
                cell: self.grid.all_cells()[cell],
                reason,
            },
            None => CampaignStep::Done(CampaignEnd::Budget),
        }
    }

    /// Returns the answer that `runs` give; `None` if there are too few over the path as it is now.
    pub fn current_answer(&self, runs: &[SweepRun]) -> Option<SweepAnswer> {
        let state = self.current_state(runs);
        let is_whole = self.whole.is_some();
        let is_changing = state.begins.len() > 1 && state.judged.run_count() <= self.anchor_count()
            || state.segment.suspicious > 0;
        let sure =
            !is_whole && state.judged.can_go_on() && self.wanted_cell(&state, runs).is_none();
        let flight = flight_bytes(self.fixed.rtt, &state.judged);
        let has_answer = state.judged.has_best && (is_whole || !is_changing);
        has_answer.then(|| {
            sweep_answer(
                &self.grid,
                &state.judged,
                flight,
                AnswerCertainty { sure, is_whole },
            )
        })
    }

    /// Returns the rates of all settings that the runs over the present path show, in the order of
    /// [`SweepGrid::all_cells`].
    pub fn rate_estimates(&self, runs: &[SweepRun]) -> Vec<SweepEstimate> {
        cell_estimates(&self.grid, &self.current_state(runs).judged)
    }

    /// Returns the numbers of the runs, from 0, at which the path was another than before; the
    /// first is 0.
    pub fn segment_starts(&self, runs: &[SweepRun]) -> Vec<usize> {
        self.current_segment(runs).0
    }

    /// Returns the number of the first run that counts for the answer, from 0: those before it were
    /// made over another path, or before a setting was known whose rate shows a change of the path.
    /// All runs of a sweep over the whole grid count, as it measures no setting anew.
    pub fn counts_from(&self, runs: &[SweepRun]) -> usize {
        self.current_segment(runs).1.from
    }

    /// Returns the settings that are left out over the path as it is now: at least two of their
    /// runs, and more than half, do not count, as on a machine for which they are too much.
    pub fn left_out(&self, runs: &[SweepRun]) -> Vec<SweepCell> {
        AttemptCounts::from_runs(&runs[self.counts_from(runs)..])
            .left_out()
            .collect()
    }

    /// Returns the length of every run.
    pub fn run_length(&self) -> RunLength {
        let short = RunLength::from_rtt(self.fixed.rtt);
        if self.whole.is_none() {
            return short;
        }
        RunLength {
            steady: GRID_RUN.saturating_sub(short.ramp).max(short.steady),
            ..short
        }
    }

    /// Returns the cost of the whole grid at 10 s a cell, as far as `runs` show.
    pub fn grid_cost(&self, runs: &[SweepRun]) -> SweepCost {
        grid_cost(&self.fixed, &self.grid, &self.current_state(runs).judged)
    }

    /// Returns the logarithm of the rate that each cell is expected to have: the predicted one, or
    /// else what its window permits and the fastest cell has, once the anchors show that.
    pub(crate) fn expected_logarithms(&self, judged: &JudgedCells) -> Option<Vec<f64>> {
        let cells = self.grid.all_cells();
        if self.fixed.predicted.len() == cells.len() {
            return Some(
                self.fixed
                    .predicted
                    .iter()
                    .map(|rate| libm::log(rate.as_f64().max(1.0)))
                    .collect(),
            );
        }
        let fastest = judged
            .fastest_rate()
            .filter(|_| self.whole.is_none() && judged.run_count() >= self.anchor_count())?;
        let permitted =
            |cell: &SweepCell| libm::log(permitted_rate(&self.fixed, *cell).min(fastest));
        Some(cells.iter().map(permitted).collect())
    }

    fn current_state(&self, runs: &[SweepRun]) -> CampaignState {
        let (begins, segment) = self.current_segment(runs);
        let judged = JudgedCells::from_runs(&self.grid, &self.plane, &runs[segment.from..]);
        CampaignState {
            judged,
            begins,
            segment,
        }
    }

    /// Returns the index of each segment's first run, and the state of the last. A sweep over the
    /// whole grid has no reference, and all its runs count: what it left out, it would not measure
    /// again.
    fn current_segment(&self, runs: &[SweepRun]) -> (Vec<usize>, PathSegment) {
        let (begins, segment) = split_segments(runs, self.anchor_count());
        (
            begins,
            if self.whole.is_some() {
                PathSegment::default()
            } else {
                segment
            },
        )
    }

    /// Returns the next run of the whole grid: the one that did not count once more, or the next
    /// setting.
    fn next_of_whole(&self, whole: &[SweepCell], runs: &[SweepRun]) -> CampaignStep {
        let again = retry_cell(runs).map(|cell| CampaignStep::Run {
            cell,
            reason: SweepReason::Again,
        });
        if again.is_none() && failing_settings(runs) >= MAX_FAILING {
            return CampaignStep::Done(CampaignEnd::Broken);
        }
        let settings = runs
            .iter()
            .filter(|run| run.reason != SweepReason::Again)
            .count();
        let next = whole.get(settings).map(|cell| CampaignStep::Run {
            cell: *cell,
            reason: SweepReason::Grid,
        });
        let Some(next) = again.or(next) else {
            return CampaignStep::Done(CampaignEnd::Sure);
        };
        if self.is_within_budget(spent_cost(runs)) {
            next
        } else {
            CampaignStep::Done(CampaignEnd::Budget)
        }
    }

    /// Returns the cell that is wanted next, or nothing if the answer is sure.
    fn wanted_cell(
        &self,
        state: &CampaignState,
        runs: &[SweepRun],
    ) -> Option<(Index, SweepReason)> {
        let CampaignState {
            judged, segment, ..
        } = state;
        let again = retry_cell(&runs[segment.from..]).and_then(|cell| self.grid.cell_index(cell));
        if let Some(again) = again.filter(|cell| judged.may_run(*cell)) {
            return Some((again, SweepReason::Again));
        }
        if let Some(control) = self.control_cell(state, runs) {
            return Some(control);
        }
        if judged.run_count() < self.anchor_count() {
            return self
                .next_anchor(judged)
                .map(|cell| (cell, SweepReason::Anchor));
        }
        let is_due = segment.suspicious > 0
            || segment.references < 2
            || segment.since_reference + 1 >= REFERENCE_EVERY;
        let due = self
            .reference_cell(segment)
            .filter(|(cell, _)| is_due && judged.may_run(*cell));
        due.or_else(|| self.of_shape(judged))
            .or_else(|| undecided_cell(judged))
            .or_else(|| self.closing_cell(judged, segment))
    }

    /// Returns a cell whose runs count, once those of two others did not: it shows if they are too
    /// much for the machine or the machine is busy.
    fn control_cell(
        &self,
        CampaignState {
            judged, segment, ..
        }: &CampaignState,
        runs: &[SweepRun],
    ) -> Option<(Index, SweepReason)> {
        if failing_settings(&runs[segment.from..]) + 1 != MAX_FAILING || judged.run_count() == 0 {
            return None;
        }
        let best = (judged.best_cell(), SweepReason::Repeat);
        let mut known = self.reference_cell(segment).into_iter().chain([best]);
        known.find(|(cell, _)| judged.runs_of_cell(*cell) > 0 && judged.may_run(*cell))
    }

    fn reference_cell(&self, segment: &PathSegment) -> Option<(Index, SweepReason)> {
        let cell = segment
            .reference
            .and_then(|cell| self.grid.cell_index(cell));
        cell.map(|cell| (cell, SweepReason::Reference))
    }

    /// Returns the reference with which a campaign ends, unless it has just been measured or still
    /// differs.
    fn last_reference(&self, segment: &PathSegment) -> Option<(Index, SweepReason)> {
        self.reference_cell(segment)
            .filter(|_| segment.since_reference > 0 || segment.suspicious > 0)
    }

    /// Returns the reference with which a campaign ends; if that waits, another run before it.
    fn closing_cell(
        &self,
        judged: &JudgedCells,
        segment: &PathSegment,
    ) -> Option<(Index, SweepReason)> {
        let reference = self.last_reference(segment)?;
        if judged.may_run(reference.0) {
            Some(reference)
        } else {
            most_promising(judged)
        }
    }

    fn anchor_count(&self) -> usize {
        ANCHORS.len() + usize::from(self.predicted.is_some())
    }

    /// Returns the next anchor, or the one that takes its place if that is left out: with half the
    /// streams, and so on; `None` if all are left out.
    fn next_anchor(&self, judged: &JudgedCells) -> Option<Index> {
        let Some(streams) = ANCHORS.get(judged.run_count()) else {
            return self.predicted_anchor(judged);
        };
        let streams = self.grid.nearest_streams(*streams);
        let cells = self.grid.all_cells();
        let largest = judged
            .measured_cells()
            .map(|cell| cells[cell].flight_capacity())
            .max();
        let flight = flight_bytes(self.fixed.rtt, judged);
        // Where windows alone limit the fastest, no run shows what would be ample.
        let by_window = largest.is_none_or(|product| flight >= BY_WINDOW * product.as_f64());
        let ample = if by_window { f64::MAX } else { AMPLE * flight };
        let halved = (0..=streams).rev().step_by(STEPS_OF_DOUBLING);
        let places = halved.chain(0..self.grid.streams().len());
        let ample = places
            .map(|streams| self.grid.filling_index(ample, streams))
            .find(|cell| judged.may_run(*cell));
        ample.or_else(|| (0..cells.len()).find(|cell| judged.may_run(*cell)))
    }

    /// Returns the cheapest cell that is predicted to do, or the next dearer one that is not left
    /// out.
    fn predicted_anchor(&self, judged: &JudgedCells) -> Option<Index> {
        let from = judged
            .cells_by_cost()
            .iter()
            .position(|cell| Some(*cell) == self.predicted)
            .unwrap_or(0);
        let (cheaper, dearer) = judged.cells_by_cost().split_at(from);
        dearer
            .iter()
            .chain(cheaper)
            .copied()
            .find(|cell| judged.may_run(*cell))
    }

    /// Returns the cell that shows if the surface is flat, or has a lower level.
    fn of_shape(&self, judged: &JudgedCells) -> Option<(Index, SweepReason)> {
        if judged.run_count() < MIN_RUNS {
            return None;
        }
        if let Some(cheapest) = cheapest_of_flat(judged).filter(|cell| judged.may_run(*cell)) {
            return Some((cheapest, SweepReason::Edge));
        }
        let level = lower_level(&self.grid, judged, flight_bytes(self.fixed.rtt, judged))?;
        let next = level.next_cell(judged)?;
        judged.may_run(next).then_some((next, SweepReason::Level))
    }

    /// Returns true if a run of `cell` stays within the budget, of which a part is kept for
    /// references.
    fn can_afford(
        &self,
        runs: &[SweepRun],
        judged: &JudgedCells,
        cell: Index,
        reason: SweepReason,
    ) -> bool {
        let Some(fastest) = judged.fastest_rate() else {
            return self.is_within_budget(spent_cost(runs));
        };
        let rate = BitRate::from_bps_f64(judged.expected_rate(cell).min(fastest));
        let load = self.run_length().total_time();
        let cost = spent_cost(runs) + run_cost(&self.fixed, load, rate);
        let grid = grid_cost(&self.fixed, &self.grid, judged);
        let share = self.fixed.budget.get();
        let kept = match reason {
            SweepReason::Anchor | SweepReason::Reference => 0.0,
            _ => KEPT,
        };
        let reference = run_cost(&self.fixed, load, BitRate::from_bps_f64(fastest));
        self.is_within_budget(cost)
            && cost.bytes + reference.bytes.scale_by(kept) <= grid.bytes.scale_by(share)
            && cost.time + reference.time.scale_by(kept) <= grid.time.scale_by(share)
    }

    fn is_within_budget(&self, cost: SweepCost) -> bool {
        self.fixed.max_bytes.is_none_or(|most| cost.bytes <= most)
    }
}

/// Runs, judged.
struct CampaignState {
    judged: JudgedCells,
    /// The first run of each segment.
    begins: Vec<usize>,
    segment: PathSegment,
}

/// Returns the cell on which the decision hangs.
fn undecided_cell(judged: &JudgedCells) -> Option<(Index, SweepReason)> {
    let knee = judged.knee_cell();
    let edge = judged
        .cells_by_cost()
        .iter()
        .copied()
        .take_while(|cell| *cell != knee)
        .find(|cell| {
            judged.near_best_chance(*cell) >= MAYBE && judged.runs_of_cell(*cell) < MAX_RUNS
        });
    let few = [
        (knee, MIN_RUNS_OF_KNEE),
        (judged.best_cell(), MIN_RUNS_OF_BEST),
    ];
    let repeat = few
        .into_iter()
        .find(|(cell, enough)| judged.runs_of_cell(*cell) < *enough)
        .map(|(cell, _)| cell);
    if judged.run_count() >= MIN_RUNS && edge.is_none() && repeat.is_none() {
        return None;
    }
    let edge = edge.map(|cell| (cell, SweepReason::Edge));
    let repeat = repeat.map(|cell| (cell, SweepReason::Repeat));
    let wanted = if judged.run_count().is_multiple_of(2) {
        None
    } else {
        edge.or(repeat)
    };
    wanted
        .filter(|(cell, _)| judged.may_run(*cell))
        .or_else(|| most_promising(judged))
}

/// Returns the cell whose rate may be the highest.
fn most_promising(judged: &JudgedCells) -> Option<(Index, SweepReason)> {
    let cells = (0..judged.cell_count()).filter(|cell| judged.may_run(*cell));
    let hopes = cells.map(|cell| {
        let cost = REPEAT_COST * judged.runs_of_cell(cell) as f64;
        (cell, judged.rate_logarithm(cell, 1.0) - cost)
    });
    hopes
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(cell, _)| (cell, SweepReason::Best))
}

/// Returns the bytes in flight of the fastest runs.
fn flight_bytes(rtt: Span, judged: &JudgedCells) -> f64 {
    judged.fastest_rate().unwrap_or(f64::MAX) * rtt.as_secs_f64() / 8.0
}

/// Returns the cell of the last run if that run does not count and was the first of its kind.
fn retry_cell(runs: &[SweepRun]) -> Option<SweepCell> {
    let last = runs.last().filter(|run| run.rate.is_none())?;
    let before = runs
        .iter()
        .rev()
        .nth(1)
        .is_some_and(|run| run.rate.is_none() && run.cell == last.cell);
    (!before).then_some(last.cell)
}

/// Returns the cheapest cell that is predicted to have enough of the best rate.
fn predicted_knee(grid: &SweepGrid, predicted: &[BitRate]) -> Option<Index> {
    let best = predicted
        .iter()
        .max()
        .filter(|_| predicted.len() == grid.all_cells().len())?;
    order_by_cost(grid)
        .into_iter()
        .find(|cell| predicted[*cell] >= best.scale_by(ENOUGH))
}

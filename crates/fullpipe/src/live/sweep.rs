//! A sweep under way: the map so far, the run that is made and why.

use fullpipe_probe::TestSnapshot;
use fullpipe_record::{
    SweepAnswer, SweepCell, SweepCost, SweepEstimate, SweepPlan, SweepReason, SweepRun,
};
use fullpipe_report::chart::displayable_text;
use fullpipe_units::{BitRate, OptionText, Ratio, Span, median};
use ratatui_core::layout::Size;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span as Words};

use crate::live::course::TransferHistory;
use crate::live::frame::{LivePage, clock_text, dim_line, dim_style, named_line, share_bar};

/// Characters of a tile.
const TILE: usize = 5;

/// Characters of a window at the left of its tiles.
const LEFT: usize = 9;

/// Lines of the run, the knee and what is spent, below the map.
const BELOW: usize = 3;

/// Lines from which on the map leaves room for blank lines and the last runs.
const ROOM_FOR_RUNS: usize = 18;

/// Lines of blanks and runs where there is room for them.
const RUNS: usize = 4;

/// Backgrounds of tiles by their rate, the darkest for the least: even steps of one hue among the
/// 256 colours.
const SHADES: [u8; 5] = [17, 18, 24, 31, 38];

/// Something that happened in a sweep.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SweepUpdate {
    /// A run begins.
    Next {
        /// The setting that is measured.
        cell: SweepCell,
        /// The reason for the run.
        reason: SweepReason,
    },
    /// A tenth of a second of a run has passed.
    Snapshot(TestSnapshot),
    /// The map and the answer of all runs so far.
    Known {
        /// The runs.
        runs: Vec<SweepRun>,
        /// Rates of all settings: all windows with the fewest streams first.
        surface: Vec<SweepEstimate>,
        /// The answer, if there is one.
        answer: Option<Box<SweepAnswer>>,
        /// Cost of the whole grid at 10 s a setting.
        grid: SweepCost,
    },
}

/// The state of a sweep.
#[derive(Debug, Clone)]
pub(crate) struct SweepPage {
    plan: SweepPlan,
    runs: Vec<SweepRun>,
    surface: Vec<SweepEstimate>,
    answer: Option<SweepAnswer>,
    grid: SweepCost,
    now: Option<CurrentRun>,
}

/// The run that is made.
#[derive(Debug, Clone)]
struct CurrentRun {
    cell: SweepCell,
    reason: SweepReason,
    begun: Span,
    course: TransferHistory,
}

impl SweepPage {
    /// Returns the state of a sweep of which nothing is known.
    pub(crate) fn new(plan: &SweepPlan) -> Self {
        Self {
            plan: plan.clone(),
            runs: Vec::new(),
            surface: Vec::new(),
            answer: None,
            grid: SweepCost::default(),
            now: None,
        }
    }

    fn spent_cost(&self) -> SweepCost {
        let costs = self.runs.iter().map(|run| SweepCost {
            bytes: run.sent,
            time: run.took,
        });
        costs.fold(SweepCost::default(), std::ops::Add::add)
    }

    /// Draws the map in at most so many columns and lines. Windows and numbers of streams without
    /// room are left out, but for those of the run that is made.
    fn draw_map(&self, width: usize, lines: usize) -> Vec<Line<'static>> {
        let SweepPlan {
            windows, streams, ..
        } = &self.plan;
        let rows = choose_positions(
            windows.len(),
            lines.saturating_sub(1),
            self.run_position(windows, |cell| cell.window),
        );
        let columns = choose_positions(
            streams.len(),
            width.saturating_sub(LEFT) / TILE,
            self.run_position(streams, |cell| cell.streams),
        );
        let fastest = self
            .surface
            .iter()
            .filter_map(|of| self.known_rate(of))
            .max()
            .unwrap_or_default();
        rows.into_iter()
            .rev()
            .map(|row| self.draw_row(row, &columns, fastest))
            .chain([self.column_heads(&columns)])
            .collect()
    }

    fn draw_row(&self, row: usize, columns: &[usize], fastest: BitRate) -> Line<'static> {
        let window = self.plan.windows[row].to_string();
        let mut line = Line::raw(format!("{window:>LEFT$}"));
        line.extend(
            columns
                .iter()
                .map(|column| self.draw_tile(row, *column, fastest)),
        );
        line
    }

    /// Returns the numbers of streams, below their columns.
    fn column_heads(&self, columns: &[usize]) -> Line<'static> {
        let counts = columns.iter().map(|column| self.plan.streams[*column]);
        let counts: Vec<String> = counts.map(|count| format!("{count:>4} ")).collect();
        dim_line(format!("{:>LEFT$}{}", "streams", counts.concat()))
    }

    /// Returns the place of the run that is made among `values`.
    fn run_position<T: PartialEq>(
        &self,
        values: &[T],
        of: impl Fn(SweepCell) -> T,
    ) -> Option<usize> {
        let cell = self.now.as_ref()?.cell;
        values.iter().position(|value| *value == of(cell))
    }

    /// Returns the rate of a setting that was measured; by runs before those that count, if there
    /// are no others.
    fn known_rate(&self, of: &SweepEstimate) -> Option<BitRate> {
        let own = self
            .runs
            .iter()
            .filter(|run| run.cell == of.cell)
            .filter_map(|run| run.rate);
        if of.runs > 0 {
            Some(of.rate)
        } else {
            median(own.collect())
        }
    }

    /// Draws a setting: its rate in percent of the fastest, or a dot if it was not measured.
    fn draw_tile(&self, row: usize, column: usize, fastest: BitRate) -> Words<'static> {
        let index = self.plan.windows.len() * column + row;
        let cell = SweepCell {
            window: self.plan.windows[row],
            streams: self.plan.streams[column],
        };
        let known = self.surface.get(index).and_then(|of| self.known_rate(of));
        let share = known.map(|rate| Ratio::from_quotient(rate.as_f64(), fastest.as_f64()));
        let (figure, style) = match share {
            Some(share) => (format!("{:.0}", share.as_percent()), tile_style(share)),
            None => ("·".to_owned(), dim_style()),
        };
        if self.now.as_ref().is_some_and(|run| run.cell == cell) {
            let marked = format!(">{figure}<");
            Words::styled(
                format!("{marked:>5}"),
                style.add_modifier(Modifier::REVERSED),
            )
        } else if matches!(&self.answer, Some(answer) if answer.knee.cell == cell) {
            Words::styled(format!("{figure:>4}*"), style.add_modifier(Modifier::BOLD))
        } else {
            Words::styled(format!("{figure:>4} "), style)
        }
    }

    fn run_line(&self, now: Span) -> Line<'static> {
        let Some(run) = &self.now else {
            return Line::default();
        };
        let course = &run.course;
        let rate = course.recent_rate().map_text(|rate| format!(", {rate}"));
        let rtt = course.last_rtt().map_text(|rtt| format!(", RTT {rtt}"));
        let since = clock_text(now.saturating_sub(run.begun));
        named_line(
            "Now:",
            format!(
                "{}, because {}; {since}{rate}{rtt}",
                run.cell,
                reason_phrase(run.reason)
            ),
        )
    }

    fn knee_line(&self) -> Line<'static> {
        let Some(answer) = &self.answer else {
            return named_line("Knee so far:", "too few runs".to_owned());
        };
        let sure = if answer.sure { "sure" } else { "not sure" };
        let (knee, best) = (&answer.knee, &answer.best);
        named_line(
            "Knee so far:",
            format!(
                "{}, {}; {sure}; fastest {}, {}",
                knee.cell, knee.rate, best.cell, best.rate
            ),
        )
    }

    fn cost_line(&self, width: usize) -> Line<'static> {
        let spent = self.spent_cost();
        let whole = self.plan.order.is_some();
        let share = if whole { 1.0 } else { self.plan.budget.get() };
        let allowed = self
            .grid
            .bytes
            .scale_by(share)
            .min(self.plan.max_bytes.unwrap_or(self.grid.bytes));
        let time = self.grid.time.scale_by(share);
        let text = format!(
            "{} of {allowed}, {} of {}",
            spent.bytes,
            clock_text(spent.time),
            clock_text(time)
        );
        let used = Ratio::from_quotient(spent.bytes.as_f64(), allowed.as_f64())
            .get()
            .max(Ratio::from_quotient(spent.time.as_secs_f64(), time.as_secs_f64()).get());
        let bar = share_bar(
            used,
            width.saturating_sub(text.chars().count() + 10).min(30),
        );
        named_line("Spent:", format!("{text}  {bar}"))
    }

    /// Draws up to `most` of the last runs, the last first.
    fn last_runs(&self, most: usize) -> impl Iterator<Item = Line<'static>> {
        let last = self.runs.iter().enumerate().rev().take(most);
        last.map(|(index, run)| {
            let rate = run
                .rate
                .map_or_else(|| "does not count".to_owned(), |rate| rate.to_string());
            let rtt = run.loaded_rtt.map_text(|rtt| format!("RTT {rtt}"));
            let cell = run.cell.to_string();
            dim_line(format!("{:>4}  {cell:<14} {rate:>14}  {rtt}", index + 1))
        })
    }
}

impl LivePage for SweepPage {
    type Update = SweepUpdate;

    fn apply_update(&mut self, now: Span, update: SweepUpdate) {
        match update {
            SweepUpdate::Next { cell, reason } => {
                self.now = Some(CurrentRun {
                    cell,
                    reason,
                    begun: now,
                    course: TransferHistory::new(),
                });
            }
            SweepUpdate::Snapshot(snapshot) => {
                if let Some(run) = &mut self.now {
                    run.course.push(snapshot);
                }
            }
            SweepUpdate::Known {
                runs,
                surface,
                answer,
                grid,
            } => {
                (self.runs, self.surface, self.grid) = (runs, surface, grid);
                self.answer = answer.map(|answer| *answer);
            }
        }
    }

    fn title(&self) -> (String, String) {
        (
            format!("fullpipe sweep {}", displayable_text(&self.plan.target)),
            format!("run {}", self.runs.len() + 1),
        )
    }

    fn page_lines(&self, now: Span, room: Size) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(room.width), usize::from(room.height));
        let runs = if height < ROOM_FOR_RUNS { 0 } else { RUNS };
        let mut lines = self.draw_map(width, height.saturating_sub(BELOW + runs));
        let blank = (height >= lines.len() + BELOW + RUNS).then(Line::default);
        lines.extend(blank.clone());
        lines.extend([self.run_line(now), self.knee_line(), self.cost_line(width)]);
        lines.extend(blank);
        let most = height.saturating_sub(lines.len());
        lines.extend(self.last_runs(most));
        lines.truncate(height);
        lines
    }
}

/// Returns the places of at most `most` of `count` values: every one, or every second and so on,
/// with `wanted` in place of its neighbour.
fn choose_positions(count: usize, most: usize, wanted: Option<usize>) -> Vec<usize> {
    let step = count.div_ceil(most.max(1)).max(1);
    let from = wanted.map_or(0, |wanted| wanted % step);
    (from..count).step_by(step).collect()
}

/// Returns the style of a tile with this share of the fastest rate.
fn tile_style(share: Ratio) -> Style {
    let index = ((share.get() * SHADES.len() as f64) as usize).min(SHADES.len() - 1);
    Style::new()
        .fg(Color::Indexed(255))
        .bg(Color::Indexed(SHADES[index]))
}

/// Returns the reason for a run as the end of a sentence.
fn reason_phrase(reason: SweepReason) -> &'static str {
    match reason {
        SweepReason::Anchor => "the first runs span the grid",
        SweepReason::Best => "it may be the fastest",
        SweepReason::Edge => "it is cheap, and may be as good as the fastest",
        SweepReason::Repeat => "the answer depends on it",
        SweepReason::Reference => "it shows if the path is still the same",
        SweepReason::Again => "the run before did not count",
        SweepReason::Level => "it shows if the rate stays at a lower level",
        SweepReason::Grid => "the whole grid is measured",
    }
}

#[cfg(test)]
mod tests;

//! Lines and dots over one axis, in panels below each other.

mod axis;
mod draw;
mod table;
mod text;

use crate::figures::Figures;
use crate::quantity::{Dimension, Quantity};
use crate::svg::{Hue, escape, shown};
use crate::thin::{thinned, thinned_bars, thinned_dots, thinned_ranges};

/// The sentence in place of a chart without data.
pub(crate) const NOTHING: &str = "Nothing to draw: there are no samples.";

/// The form of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Points joined by a line.
    Line,
    /// A line that keeps each value until the next point.
    Steps,
    /// A dot for each point.
    Dots,
    /// A vertical line for each pair of points, from the first to the second.
    Ranges,
    /// A bar for each pair of points of the same height: it stands on the axis from the first to the second.
    Bars,
}

/// Points of one quantity over another, drawn alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    label: Option<String>,
    mark: Mark,
    hue: Hue,
    x: Dimension,
    y: Dimension,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// Returns a series of `points` in any order, with its `name` for the table and the reader of the screen. Points
    /// that are no finite numbers are left out. Of more than 2 000, those are kept that a reader can distinguish, and
    /// the least and the most of each column of pixels.
    pub fn new<X: Quantity, Y: Quantity>(
        name: &str,
        mark: Mark,
        hue: Hue,
        points: impl IntoIterator<Item = (X, Y)>,
    ) -> Self {
        let numbers = points.into_iter().map(|(x, y)| (x.number(), y.number()));
        let mut points: Vec<(f64, f64)> = numbers.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        if !points.is_sorted_by(|one, next| one.0 <= next.0) {
            points.sort_by(|one, next| one.0.total_cmp(&next.0));
        }
        Self { points, ..Self::empty::<X, Y>(name, mark, hue) }.thinned()
    }

    fn empty<X: Quantity, Y: Quantity>(name: &str, mark: Mark, hue: Hue) -> Self {
        Self { name: shown(name), label: None, mark, hue, x: X::DIMENSION, y: Y::DIMENSION, points: Vec::new() }
    }

    fn thinned(self) -> Self {
        let points = match self.mark {
            Mark::Line | Mark::Steps => thinned(&self.points),
            Mark::Dots => thinned_dots(&self.points),
            Mark::Ranges => thinned_ranges(&self.points),
            Mark::Bars => thinned_bars(&self.points),
        };
        Self { points, ..self }
    }

    /// Returns a series of vertical lines, each at a place from a low to a high value, as intervals have them.
    pub fn ranges<X: Quantity, Y: Quantity>(name: &str, hue: Hue, ranges: impl IntoIterator<Item = (X, Y, Y)>) -> Self {
        Self::new(name, Mark::Ranges, hue, ranges.into_iter().flat_map(|(x, low, high)| [(x, low), (x, high)]))
    }

    /// Returns a series of bars, each from a place to another and of one height, as means over parts of the axis have
    /// them. A bar that reaches into the next one ends there; one without width is left out.
    pub fn bars<X: Quantity, Y: Quantity>(name: &str, hue: Hue, bars: impl IntoIterator<Item = (X, X, Y)>) -> Self {
        let numbers = bars.into_iter().map(|(from, to, y)| [from.number(), to.number(), y.number()]);
        let mut bars: Vec<[f64; 3]> = numbers.filter(|bar| bar.iter().all(|number| number.is_finite())).collect();
        bars.sort_by(|one, next| one[0].total_cmp(&next[0]));
        let ends: Vec<f64> = bars.iter().skip(1).map(|next| next[0]).chain([f64::MAX]).collect();
        let cut = bars.into_iter().zip(ends).map(|([from, to, y], end)| [(from, y), (to.min(end), y)]);
        let points = cut.filter(|[from, to]| from.0 < to.0).flatten().collect();
        Self { points, ..Self::empty::<X, Y>(name, Mark::Bars, hue) }.thinned()
    }

    /// Returns the share of `values` that are at most as large as each: their empirical distribution.
    pub fn distribution<X: Quantity + Ord>(name: &str, hue: Hue, mut values: Vec<X>) -> Self {
        /// Steps of the curve that can be distinguished: a panel is 160 pixels high.
        const MAX_STEPS: usize = 200;
        values.sort_unstable();
        let (count, every) = (values.len(), values.len().div_ceil(MAX_STEPS).max(1));
        let share = |index: usize| fullpipe_units::Ratio::of((index + 1) as f64, count as f64);
        let is_kept = |index: &usize| index.is_multiple_of(every) || index + 1 == count;
        let first = values.first().map(|least| (*least, fullpipe_units::Ratio::ZERO));
        let rest = (0..count).filter(is_kept).map(|index| (values[index], share(index)));
        Self::new(name, Mark::Steps, hue, first.into_iter().chain(rest))
    }

    /// Returns the same series with another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: shown(name), ..self }
    }

    /// Returns the same series with a label at its end.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        Self { label: Some(shown(label)), ..self }
    }

    /// Returns the points at which a value begins to hold: all, and of bars their left ends.
    fn begins(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().copied().step_by(if self.mark == Mark::Bars { 2 } else { 1 })
    }

    /// Returns the points as a line passes through them.
    fn vertices(&self) -> Vec<(f64, f64)> {
        match self.mark {
            Mark::Line | Mark::Dots | Mark::Ranges => return self.points.clone(),
            Mark::Bars => {
                let outline = |ends: &[(f64, f64)]| [(ends[0].0, 0.0), ends[0], ends[1], (ends[1].0, 0.0)];
                return self.points.chunks_exact(2).flat_map(outline).collect();
            }
            Mark::Steps => {}
        }
        let corners = self.points.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
        let mut vertices: Vec<(f64, f64)> = self.points.first().copied().into_iter().chain(corners).collect();
        vertices.dedup();
        vertices
    }
}

/// A dotted line across a panel.
#[derive(Debug, Clone, PartialEq)]
struct Level {
    value: f64,
    label: String,
}

/// Series with one axis for their values, which begins at zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    name: String,
    series: Vec<Series>,
    levels: Vec<Level>,
}

impl Panel {
    /// Returns a panel without series; its `name` stands above it, before the unit.
    pub fn new(name: &str) -> Self {
        Self { name: shown(name), series: Vec::new(), levels: Vec::new() }
    }

    /// Returns the same panel with one more series; one without points is left out.
    ///
    /// # Panics
    /// If its values have another dimension than those of the panel.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        assert!(self.series.iter().all(|other| other.y == series.y), "a panel has one axis");
        if !series.points.is_empty() {
            self.series.push(series);
        }
        self
    }

    /// Returns the same panel with a dotted line at `value`.
    #[must_use]
    pub fn level(mut self, value: impl Quantity, label: &str) -> Self {
        self.levels.push(Level { value: value.number(), label: shown(label) });
        self
    }

    fn dimension(&self) -> Dimension {
        self.series.first().map_or(Dimension::Count, |series| series.y)
    }

    fn most(&self) -> f64 {
        let levels = self.levels.iter().map(|level| level.value);
        let points = self.series.iter().flat_map(|series| &series.points).map(|point| point.1);
        levels.chain(points).fold(0.0, f64::max)
    }
}

/// A part of the axis with a name, as the ramp of a transfer.
#[derive(Debug, Clone, PartialEq)]
struct Shade {
    from: f64,
    to: f64,
    label: String,
}

/// Panels below each other with one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    title: String,
    axis: Option<String>,
    is_logarithmic: bool,
    /// Place to which the axis reaches at least.
    reaches: Option<f64>,
    panels: Vec<Panel>,
    shades: Vec<Shade>,
}

impl Plot {
    /// Returns a plot without panels; `title` is read by programs that read the screen.
    pub fn new(title: &str) -> Self {
        Self {
            title: shown(title),
            axis: None,
            is_logarithmic: false,
            reaches: None,
            panels: Vec::new(),
            shades: Vec::new(),
        }
    }

    /// Returns a plot without panels whose axis has a logarithmic scale. Points at zero or below have no place on it
    /// and are left out.
    pub fn logarithmic(title: &str) -> Self {
        Self { is_logarithmic: true, ..Self::new(title) }
    }

    /// Returns the same plot with a name below its axis; one of time needs none.
    #[must_use]
    pub fn axis(self, name: &str) -> Self {
        Self { axis: Some(shown(name)), ..self }
    }

    /// Returns the same plot with an axis that reaches at least to `end`, as that of a transfer under way does.
    #[must_use]
    pub fn reaching<X: Quantity>(self, end: X) -> Self {
        Self { reaches: Some(end.number()).filter(|end| end.is_finite()), ..self }
    }

    /// Returns the same plot with one more panel below; one without series is left out.
    #[must_use]
    pub fn with(mut self, mut panel: Panel) -> Self {
        if self.is_logarithmic {
            panel.series.iter_mut().for_each(|series| series.points.retain(|point| point.0 > 0.0));
            panel.series.retain(|series| !series.points.is_empty());
        }
        if !panel.series.is_empty() {
            self.panels.push(panel);
        }
        self
    }

    /// Returns the same plot with a part of its axis shaded.
    #[must_use]
    pub fn shade<X: Quantity>(mut self, from: X, to: X, label: &str) -> Self {
        self.shades.push(Shade { from: from.number(), to: to.number(), label: shown(label) });
        self
    }

    /// Returns the plot as an SVG element as wide as its place on the page, or a sentence as a paragraph if there is
    /// nothing to draw.
    pub fn svg(&self) -> String {
        if self.is_empty() { format!("<p class=\"none\">{}</p>", escape(NOTHING)) } else { draw::svg(self) }
    }

    /// Returns the plot as lines of at most 80 columns, or a sentence if there is nothing to draw.
    pub fn text(&self) -> String {
        self.text_in(text::WIDTH, &text::LINES)
    }

    /// Returns the plot as lines of at most `width` columns, at least 20, with panels of as many lines as `lines` has,
    /// the last number for all further ones; or a sentence if there is nothing to draw. A panel has one more line above
    /// it, and the plot one for the ticks of its axis.
    pub fn text_in(&self, width: usize, lines: &[usize]) -> String {
        if self.is_empty() { format!("{NOTHING}\n") } else { text::text(self, width.max(text::MIN_WIDTH), lines) }
    }

    /// Returns the drawn values as a table: a row for each place on the axis, or for each fortieth
    /// of it if there are more than 60 places, with the range of the values in it.
    pub fn figures(&self) -> Figures {
        table::figures(self)
    }

    fn is_empty(&self) -> bool {
        self.points().next().is_none()
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points)
    }

    fn dimension(&self) -> Dimension {
        self.panels.first().and_then(|panel| panel.series.first()).map_or(Dimension::Time, |series| series.x)
    }
}

#[cfg(test)]
mod tests;

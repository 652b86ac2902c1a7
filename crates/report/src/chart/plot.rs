//! Lines and dots over one axis, in panels below each other.

mod axis;
mod draw;
mod table;
mod text;

use crate::chart::figures::FigureTable;
use crate::chart::quantity::{AxisQuantity, Dimension};
use crate::chart::svg::{Hue, displayable_text, nothing_paragraph};
use crate::chart::thin::thin_points;

/// The sentence in place of a chart without data.
pub(crate) const NOTHING: &str = "Nothing to draw: there are no samples.";

/// The form of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesForm {
    /// Points joined by a line.
    Line,
    /// A line that keeps each value until the next point.
    Steps,
    /// A dot for each point.
    Dots,
    /// A vertical line for each pair of points, from the first to the second.
    Ranges,
    /// A bar for each pair of points of the same height: it stands on the axis from the first to
    /// the second.
    Bars,
}

/// Points of one quantity over another, drawn alike.
#[derive(Debug, Clone, PartialEq)]
pub struct PlotSeries {
    name: String,
    label: Option<String>,
    mark: SeriesForm,
    hue: Hue,
    x: Dimension,
    y: Dimension,
    points: Vec<(f64, f64)>,
}

impl PlotSeries {
    /// Returns a series of `points` in any order, with its `name` for the table and the reader of
    /// the screen. Points that are no finite numbers are left out. Of more than 2 000, those are
    /// kept that a reader can distinguish, and the least and the most of each column of pixels.
    pub fn new<X: AxisQuantity, Y: AxisQuantity>(
        name: &str,
        mark: SeriesForm,
        hue: Hue,
        points: impl IntoIterator<Item = (X, Y)>,
    ) -> Self {
        let numbers = points.into_iter().map(|(x, y)| (x.number(), y.number()));
        let mut points: Vec<(f64, f64)> = numbers
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        if !points.is_sorted_by(|one, next| one.0 <= next.0) {
            points.sort_by(|one, next| one.0.total_cmp(&next.0));
        }
        Self::from_sorted::<X, Y>(name, mark, hue, &points)
    }

    fn from_sorted<X: AxisQuantity, Y: AxisQuantity>(
        name: &str,
        mark: SeriesForm,
        hue: Hue,
        points: &[(f64, f64)],
    ) -> Self {
        Self {
            name: displayable_text(name),
            label: None,
            mark,
            hue,
            x: X::DIMENSION,
            y: Y::DIMENSION,
            points: thin_points(mark, points),
        }
    }

    /// Returns a series of vertical lines, each at a place from a low to a high value, as intervals
    /// have them.
    pub fn from_ranges<X: AxisQuantity, Y: AxisQuantity>(
        name: &str,
        hue: Hue,
        ranges: impl IntoIterator<Item = (X, Y, Y)>,
    ) -> Self {
        Self::new(
            name,
            SeriesForm::Ranges,
            hue,
            ranges
                .into_iter()
                .flat_map(|(x, low, high)| [(x, low), (x, high)]),
        )
    }

    /// Returns a series of bars, each from a place to another and of one height, as means over
    /// parts of the axis have them. A bar that reaches into the next one ends there; one without
    /// width is left out.
    pub fn from_bars<X: AxisQuantity, Y: AxisQuantity>(
        name: &str,
        hue: Hue,
        bars: impl IntoIterator<Item = (X, X, Y)>,
    ) -> Self {
        let numbers = bars
            .into_iter()
            .map(|(from, to, y)| [from.number(), to.number(), y.number()]);
        let mut bars: Vec<[f64; 3]> = numbers
            .filter(|bar| bar.iter().all(|number| number.is_finite()))
            .collect();
        bars.sort_by(|one, next| one[0].total_cmp(&next[0]));
        let ends: Vec<f64> = bars
            .iter()
            .skip(1)
            .map(|next| next[0])
            .chain([f64::MAX])
            .collect();
        let cut = bars
            .into_iter()
            .zip(ends)
            .map(|([from, to, y], end)| [(from, y), (to.min(end), y)]);
        let wide = cut.filter(|[from, to]| from.0 < to.0);
        let points: Vec<(f64, f64)> = wide.flatten().collect();
        Self::from_sorted::<X, Y>(name, SeriesForm::Bars, hue, &points)
    }

    /// Returns the share of `values` that are at most as large as each: their empirical
    /// distribution.
    pub fn from_distribution<X: AxisQuantity + Ord>(
        name: &str,
        hue: Hue,
        mut values: Vec<X>,
    ) -> Self {
        /// Steps of the curve that can be distinguished: a panel is 160 pixels high.
        const MAX_STEPS: usize = 200;
        values.sort_unstable();
        let (count, every) = (values.len(), values.len().div_ceil(MAX_STEPS).max(1));
        let share =
            |index: usize| fullpipe_units::Ratio::from_quotient((index + 1) as f64, count as f64);
        let first = values
            .first()
            .map(|least| (*least, fullpipe_units::Ratio::ZERO));
        let rest = (0..count)
            .filter(|index| index.is_multiple_of(every) || index + 1 == count)
            .map(|index| (values[index], share(index)));
        Self::new(name, SeriesForm::Steps, hue, first.into_iter().chain(rest))
    }

    /// Returns the same series with another name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self {
            name: displayable_text(name),
            ..self
        }
    }

    /// Returns the same series with a label at its end.
    #[must_use]
    pub fn with_label(self, label: &str) -> Self {
        Self {
            label: Some(displayable_text(label)),
            ..self
        }
    }

    /// Returns the same series with its name as the label at its end.
    #[must_use]
    pub fn with_name_as_label(self) -> Self {
        Self {
            label: Some(self.name.clone()),
            ..self
        }
    }

    /// Returns the points at which a value begins to hold: all, and of bars their left ends.
    fn start_points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points
            .iter()
            .copied()
            .step_by(if self.mark == SeriesForm::Bars { 2 } else { 1 })
    }

    /// Returns the points as a line passes through them.
    fn line_vertices(&self) -> Vec<(f64, f64)> {
        match self.mark {
            SeriesForm::Line | SeriesForm::Dots | SeriesForm::Ranges => return self.points.clone(),
            SeriesForm::Bars => {
                let outline =
                    |ends: &[(f64, f64)]| [(ends[0].0, 0.0), ends[0], ends[1], (ends[1].0, 0.0)];
                return self.points.chunks_exact(2).flat_map(outline).collect();
            }
            SeriesForm::Steps => {}
        }
        let corners = self
            .points
            .windows(2)
            .flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
        let mut vertices: Vec<(f64, f64)> = self
            .points
            .first()
            .copied()
            .into_iter()
            .chain(corners)
            .collect();
        vertices.dedup();
        vertices
    }
}

/// A dotted line across a panel.
#[derive(Debug, Clone, PartialEq)]
struct LevelLine {
    value: f64,
    label: String,
}

/// Series with one axis for their values, which begins at zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    name: String,
    series: Vec<PlotSeries>,
    levels: Vec<LevelLine>,
}

impl Panel {
    /// Returns a panel without series; its `name` stands above it, before the unit.
    pub fn new(name: &str) -> Self {
        Self {
            name: displayable_text(name),
            series: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Returns the same panel with one more series; one without points is left out.
    ///
    /// # Panics
    /// If its values have another dimension than those of the panel.
    #[must_use]
    pub fn with_series(mut self, series: PlotSeries) -> Self {
        assert!(
            self.series.iter().all(|other| other.y == series.y),
            "a panel has one axis"
        );
        if !series.points.is_empty() {
            self.series.push(series);
        }
        self
    }

    /// Returns the same panel with a series of these points, as [`PlotSeries::new`] takes them.
    #[must_use]
    pub fn with_points<X: AxisQuantity, Y: AxisQuantity>(
        self,
        name: &str,
        mark: SeriesForm,
        hue: Hue,
        points: impl IntoIterator<Item = (X, Y)>,
    ) -> Self {
        self.with_series(PlotSeries::new(name, mark, hue, points))
    }

    /// Returns the same panel with a series of these points that has its name as the label at its
    /// end.
    #[must_use]
    pub fn with_labelled_points<X: AxisQuantity, Y: AxisQuantity>(
        self,
        name: &str,
        mark: SeriesForm,
        hue: Hue,
        points: impl IntoIterator<Item = (X, Y)>,
    ) -> Self {
        self.with_series(PlotSeries::new(name, mark, hue, points).with_name_as_label())
    }

    /// Returns the same panel with a dotted line at `value`.
    #[must_use]
    pub fn with_level(mut self, value: impl AxisQuantity, label: &str) -> Self {
        self.levels.push(LevelLine {
            value: value.number(),
            label: displayable_text(label),
        });
        self
    }

    fn dimension(&self) -> Dimension {
        self.series
            .first()
            .map_or(Dimension::Count, |series| series.y)
    }

    fn max_value(&self) -> f64 {
        let levels = self.levels.iter().map(|level| level.value);
        let points = self
            .series
            .iter()
            .flat_map(|series| &series.points)
            .map(|point| point.1);
        levels.chain(points).fold(0.0, f64::max)
    }
}

/// A part of the axis with a name, as the ramp of a transfer.
#[derive(Debug, Clone, PartialEq)]
struct ShadedRange {
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
    shades: Vec<ShadedRange>,
}

impl Plot {
    /// Returns a plot without panels; `title` is read by programs that read the screen.
    pub fn new(title: &str) -> Self {
        Self {
            title: displayable_text(title),
            axis: None,
            is_logarithmic: false,
            reaches: None,
            panels: Vec::new(),
            shades: Vec::new(),
        }
    }

    /// Returns a plot without panels whose axis has a logarithmic scale. Points at zero or below
    /// have no place on it and are left out.
    pub fn new_logarithmic(title: &str) -> Self {
        Self {
            is_logarithmic: true,
            ..Self::new(title)
        }
    }

    /// Returns the same plot with a name below its axis; one of time needs none.
    #[must_use]
    pub fn with_axis_name(self, name: &str) -> Self {
        Self {
            axis: Some(displayable_text(name)),
            ..self
        }
    }

    /// Returns the same plot with an axis that reaches at least to `end`, as that of a transfer
    /// under way does.
    #[must_use]
    pub fn with_axis_end<X: AxisQuantity>(self, end: X) -> Self {
        Self {
            reaches: Some(end.number()).filter(|end| end.is_finite()),
            ..self
        }
    }

    /// Returns the same plot with one more panel below; one without series is left out.
    #[must_use]
    pub fn with_panel(mut self, mut panel: Panel) -> Self {
        if self.is_logarithmic {
            panel
                .series
                .iter_mut()
                .for_each(|series| series.points.retain(|point| point.0 > 0.0));
            panel.series.retain(|series| !series.points.is_empty());
        }
        if !panel.series.is_empty() {
            self.panels.push(panel);
        }
        self
    }

    /// Returns the same plot with a part of its axis shaded.
    #[must_use]
    pub fn with_shade<X: AxisQuantity>(mut self, from: X, to: X, label: &str) -> Self {
        self.shades.push(ShadedRange {
            from: from.number(),
            to: to.number(),
            label: displayable_text(label),
        });
        self
    }

    /// Returns the plot as an SVG element as wide as its place on the page, or a sentence as a
    /// paragraph if there is nothing to draw.
    pub fn to_svg(&self) -> String {
        if self.is_empty() {
            nothing_paragraph()
        } else {
            draw::draw_plot(self)
        }
    }

    /// Returns the plot as lines of at most 80 columns, or a sentence if there is nothing to draw.
    pub fn to_text(&self) -> String {
        self.text_in(text::WIDTH, &text::LINES)
    }

    /// Returns the plot as lines of at most `width` columns, at least 20, with panels of as many
    /// lines as `lines` has, the last number for all further ones; or a sentence if there is
    /// nothing to draw. A panel has one more line above it, and the plot one for the ticks of its
    /// axis.
    pub fn text_in(&self, width: usize, lines: &[usize]) -> String {
        if self.is_empty() {
            format!("{NOTHING}\n")
        } else {
            text::plot_text(self, width.max(text::MIN_WIDTH), lines)
        }
    }

    /// Returns the drawn values as a table: a row for each place on the axis, or for each fortieth
    /// of it if there are more than 60 places, with the range of the values in it.
    pub fn to_figures(&self) -> FigureTable {
        table::plot_figures(self)
    }

    fn is_empty(&self) -> bool {
        self.series_points().next().is_none()
    }

    fn all_series(&self) -> impl Iterator<Item = &PlotSeries> {
        self.panels.iter().flat_map(|panel| &panel.series)
    }

    fn series_points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.all_series().flat_map(|series| &series.points)
    }

    fn dimension(&self) -> Dimension {
        self.all_series()
            .next()
            .map_or(Dimension::Time, |series| series.x)
    }
}

#[cfg(test)]
mod tests;

//! Bars, dots and intervals, a row each, over one axis.

use std::fmt::Display;

use crate::chart::braille::share_index;
use crate::chart::figures::FigureTable;
use crate::chart::plot::NOTHING;
use crate::chart::quantity::{AxisQuantity, AxisUnit, Dimension, value_range};
use crate::chart::svg::{
    Hue, cut_text, displayable_text, escape_html, format_coordinate, format_percent,
    nothing_paragraph, text_element,
};
use crate::chart::ticks;
use crate::chart::words::text_if;

/// Height of a row in pixels: a line of text, and the marks below it.
const ROW: f64 = 44.0;

/// Room below the last row for the ticks.
const BELOW: f64 = 26.0;

/// Rows that are drawn; the table has all.
const MAX_ROWS: usize = 120;

/// Characters of a name.
const NAME: usize = 40;

/// A row: its name, its figure in words, and its marks.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartRow {
    name: String,
    figure: String,
    detail: String,
    dimension: Dimension,
    hue: Hue,
    bar: Option<f64>,
    dots: Vec<f64>,
    centre: Option<f64>,
    interval: Option<(f64, f64)>,
    expected: Option<f64>,
    is_hollow: bool,
}

impl ChartRow {
    /// Returns a row without marks. `figure` stands at its right end.
    pub fn new(name: &str, figure: &str, hue: Hue) -> Self {
        Self {
            name: displayable_text(name),
            figure: displayable_text(figure),
            detail: String::new(),
            dimension: Dimension::Count,
            hue,
            bar: None,
            dots: Vec::new(),
            centre: None,
            interval: None,
            expected: None,
            is_hollow: false,
        }
    }

    /// Returns a row with a bar from zero to a value, which is its figure.
    pub fn from_bar<Q: AxisQuantity + Display>(name: &str, value: Q, hue: Hue) -> Self {
        Self::new(name, &value.to_string(), hue).with_bar(value)
    }

    /// Returns a row with a dot at a value, which is its figure.
    pub fn from_dot<Q: AxisQuantity + Display>(name: &str, value: Q, hue: Hue) -> Self {
        Self::new(name, &value.to_string(), hue).with_dot(value)
    }

    /// Returns the same row with more words behind its figure, in the table and where the pointer
    /// is.
    #[must_use]
    pub fn with_detail(self, detail: &str) -> Self {
        Self {
            detail: displayable_text(detail),
            ..self
        }
    }

    /// Returns the figure with the details.
    fn figure_words(&self) -> String {
        if self.detail.is_empty() {
            self.figure.clone()
        } else {
            format!("{}, {}", self.figure, self.detail)
        }
    }

    /// Returns the same row with a bar from zero to `value`.
    #[must_use]
    pub fn with_bar<Q: AxisQuantity>(self, value: Q) -> Self {
        Self {
            bar: Some(value.number()),
            ..self.with_dimension::<Q>()
        }
    }

    /// Returns the same row with a small dot for each of `values`, as single runs have them.
    #[must_use]
    pub fn with_dots<Q: AxisQuantity>(self, values: impl IntoIterator<Item = Q>) -> Self {
        Self {
            dots: values.into_iter().map(AxisQuantity::number).collect(),
            ..self.with_dimension::<Q>()
        }
    }

    /// Returns the same row with a dot at `value`, as a median has it.
    #[must_use]
    pub fn with_dot<Q: AxisQuantity>(self, value: Q) -> Self {
        Self {
            centre: Some(value.number()),
            ..self.with_dimension::<Q>()
        }
    }

    /// Returns the same row with a thin line from `low` to `high`.
    #[must_use]
    pub fn with_interval<Q: AxisQuantity>(self, low: Q, high: Q) -> Self {
        Self {
            interval: Some((low.number(), high.number())),
            ..self.with_dimension::<Q>()
        }
    }

    /// Returns the same row with a tick at `value`, as a prediction has it.
    #[must_use]
    pub fn with_prediction<Q: AxisQuantity>(self, value: Q) -> Self {
        Self {
            expected: Some(value.number()),
            ..self.with_dimension::<Q>()
        }
    }

    /// Returns the same row with a hollow dot: no difference was shown.
    #[must_use]
    pub fn with_hollow_dot(self) -> Self {
        Self {
            is_hollow: true,
            ..self
        }
    }

    fn with_dimension<Q: AxisQuantity>(self) -> Self {
        Self {
            dimension: Q::DIMENSION,
            ..self
        }
    }

    fn mark_values(&self) -> impl Iterator<Item = f64> {
        let interval = self
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        let single = [self.bar, self.centre, self.expected].into_iter().flatten();
        single
            .chain(interval)
            .chain(self.dots.iter().copied())
            .filter(|value| value.is_finite())
    }
}

/// Rows over one axis: of a quantity from zero, or of changes with no change in its place between
/// gains and losses.
#[derive(Debug, Clone, PartialEq)]
pub struct RowChart {
    title: String,
    heads: [String; 2],
    all: Vec<ChartRow>,
}

impl RowChart {
    /// Returns a chart without rows; `title` is read by programs that read the screen, `heads`
    /// stand over the names and the figures in the table.
    pub fn new(title: &str, heads: [&str; 2]) -> Self {
        Self {
            title: displayable_text(title),
            heads: heads.map(displayable_text),
            all: Vec::new(),
        }
    }

    /// Returns the same chart with more rows.
    #[must_use]
    pub fn with_rows(mut self, rows: impl IntoIterator<Item = ChartRow>) -> Self {
        self.all.extend(rows);
        self
    }

    /// Returns the same chart with one more row.
    #[must_use]
    pub fn with_row(mut self, row: ChartRow) -> Self {
        self.all.push(row);
        self
    }

    /// Returns the chart as an SVG element as wide as its place on the page, or a sentence as a
    /// paragraph if there is nothing to draw. Of more than 120 rows the first are drawn.
    pub fn to_svg(&self) -> String {
        let Some(scale) = RowScale::from_rows(&self.all) else {
            return nothing_paragraph();
        };
        let drawn = &self.all[..self.all.len().min(MAX_ROWS)];
        let bottom = ROW * drawn.len() as f64;
        let mut svg = format!(
            "<svg class=\"chart rows\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" height=\"{}\">",
            escape_html(&self.title),
            bottom + BELOW
        );
        let ticks = scale.labelled_ticks(8.0);
        // The last has the unit, and on a narrow page no room for the one before it.
        let narrow = ticks.len().saturating_sub(2);
        for (index, (place, label)) in ticks.into_iter().enumerate() {
            let is_odd = index % 2 == 1 || index == narrow;
            svg += &draw_tick(&scale, (place, &label), is_odd, bottom);
        }
        for (index, row) in drawn.iter().enumerate() {
            svg += &draw_row(row, &scale, ROW * index as f64);
        }
        svg += "</svg>";
        let rest = self.all.len() - drawn.len();
        if rest > 0 {
            svg += &format!("<p class=\"none\">{rest} more in the table.</p>");
        }
        svg
    }

    /// Returns the chart as lines of at most 80 columns, or a sentence if there is nothing to draw.
    pub fn to_text(&self) -> String {
        let Some(scale) = RowScale::from_rows(&self.all) else {
            return format!("{NOTHING}\n");
        };
        let mut text = String::new();
        let lengths = self
            .all
            .iter()
            .map(|row| row.figure_words().chars().count());
        let longest = lengths.max().unwrap_or(0);
        let figures = longest.clamp(MARKS[1], MARKS[0] + MARKS[1] - MIN_MARKS);
        let marks = MARKS[0] + MARKS[1] - figures;
        for row in self.all.iter().take(MAX_ROWS) {
            let name = cut_text(&row.name, 24);
            let figure = cut_text(&row.figure_words(), figures);
            let line = format!("{name:<24} {} {figure}", row_characters(row, &scale, marks));
            text += &format!("{}\n", line.trim_end());
        }
        let rest = self.all.len().saturating_sub(MAX_ROWS);
        if rest > 0 {
            text += &format!("{rest} more\n");
        }
        text
    }

    /// Returns the names and the figures as a table.
    pub fn to_figures(&self) -> FigureTable {
        let rows = self.all.iter();
        FigureTable {
            heads: self.heads.to_vec(),
            rows: rows
                .map(|row| vec![row.name.clone(), row.figure_words()])
                .collect(),
        }
    }
}

/// The axis of all rows.
struct RowScale {
    dimension: Dimension,
    unit: AxisUnit,
    low: f64,
    high: f64,
}

impl RowScale {
    /// Returns the axis; `None` without values.
    fn from_rows(rows: &[ChartRow]) -> Option<Self> {
        let with_marks = rows.iter().find(|row| row.mark_values().next().is_some())?;
        let (least, most) = value_range(rows.iter().flat_map(ChartRow::mark_values));
        let dimension = with_marks.dimension;
        if dimension == Dimension::Change {
            // A change to nothing has no place among factors.
            let (low, high) = (least.clamp(0.01, 0.9) * 0.95, most.clamp(1.1, 100.0) * 1.05);
            return Some(Self {
                dimension,
                unit: dimension.largest_unit(1.0),
                low,
                high,
            });
        }
        let unit = dimension.largest_unit(most);
        let end = ticks::end_of(most.max(0.0) / unit.size, 8.0) * unit.size;
        Some(Self {
            dimension,
            unit,
            low: 0.0,
            high: if end > 0.0 { end } else { unit.size },
        })
    }

    /// Returns the place of a value between 0 and 1.
    fn value_position(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.dimension {
            Dimension::Change => libm::log(value / self.low) / libm::log(self.high / self.low),
            _ => value / self.high,
        }
    }

    /// Returns the place of a value as a percentage.
    fn format_position(&self, value: f64) -> String {
        format_percent(self.value_position(value))
    }

    /// Returns the place from which changes go either way, or where bars begin.
    fn base_value(&self) -> f64 {
        if self.dimension == Dimension::Change {
            1.0
        } else {
            0.0
        }
    }

    fn is_base(&self, place: f64) -> bool {
        place.to_bits() == self.base_value().to_bits()
    }

    /// Returns true if the label of a tick would be on that of no change.
    fn is_too_near(&self, place: f64) -> bool {
        const LABEL: f64 = 0.06;
        let is_change = self.dimension == Dimension::Change && !self.is_base(place);
        is_change
            && (self.value_position(place) - self.value_position(self.base_value())).abs() < LABEL
    }

    fn labelled_ticks(&self, count: f64) -> Vec<(f64, String)> {
        let unit = self.unit;
        let places = match self.dimension {
            Dimension::Change => ticks::logarithmic_ticks(self.dimension, self.low, self.high),
            _ => ticks::from_zero(self.dimension, self.high / unit.size, count)
                .iter()
                .map(|tick| tick * unit.size)
                .collect(),
        };
        let places: Vec<f64> = places
            .into_iter()
            .filter(|place| !self.is_too_near(*place))
            .collect();
        let last = places.len().checked_sub(1);
        ticks::labelled_ticks(self.dimension, places, unit, last)
    }
}

/// Draws the line of a tick down to `bottom`, and its label below; one that is odd is left out of a
/// narrow page.
fn draw_tick(scale: &RowScale, (place, label): (f64, &str), is_odd: bool, bottom: f64) -> String {
    let x = scale.format_position(place);
    let line = if scale.is_base(place) { "zero" } else { "grid" };
    let class = match is_odd {
        _ if scale.value_position(place) > 0.97 => "tick last",
        true => "tick mid odd",
        false => "tick mid",
    };
    format!("<line class=\"{line}\" x1=\"{x}\" x2=\"{x}\" y1=\"4\" y2=\"{bottom}\"/>")
        + &text_element(class, &x, bottom + 18.0, label)
}

/// Draws a row whose top is at `top`.
fn draw_row(row: &ChartRow, scale: &RowScale, top: f64) -> String {
    let title = escape_html(&format!("{}: {}", row.name, row.figure_words()));
    let class = row.hue.css_class();
    let y = format_coordinate(top, 1);
    let mut svg = format!(
        "<g class=\"m row {class}\"><title>{title}</title>\
         <rect class=\"hit\" width=\"100%\" y=\"{y}\" height=\"{ROW}\"/>"
    );
    let (name, figure) = (cut_text(&row.name, NAME), cut_text(&row.figure, NAME));
    svg += &text_element("lab halo first", "0", top + 17.0, &name);
    svg += &text_element("lab halo last", "100%", top + 17.0, &figure);
    if let Some(value) = row.bar {
        svg += &draw_bar(value, scale, top + 24.0);
    }
    svg + &draw_points(row, scale, top) + "</g>"
}

fn draw_bar(value: f64, scale: &RowScale, top: f64) -> String {
    let [from, to] = [scale.base_value(), value].map(|end| scale.value_position(end));
    let [left, width] = [from.min(to), (to - from).abs()].map(format_percent);
    let y = format_coordinate(top, 1);
    format!("<rect class=\"bar\" x=\"{left}\" width=\"{width}\" y=\"{y}\" height=\"12\"/>")
}

/// Draws the marks over the bar of a row: interval, dots and prediction.
fn draw_points(row: &ChartRow, scale: &RowScale, top: f64) -> String {
    let middle = format_coordinate(top + 30.0, 1);
    let mut svg = String::new();
    if let Some((low, high)) = row.interval {
        let [low, high] = [low, high].map(|end| scale.format_position(end));
        svg += &format!(
            "<line class=\"interval\" x1=\"{low}\" x2=\"{high}\" y1=\"{middle}\" y2=\"{middle}\"/>"
        );
    }
    if !row.dots.is_empty() {
        svg += &format!("<g class=\"runs\" transform=\"translate(0 {middle})\">");
        // A circle each, since those that lie on others must be darker.
        for value in &row.dots {
            svg += &format!("<circle cx=\"{}\"/>", scale.format_position(*value));
        }
        svg += "</g>";
    }
    if let Some(value) = row.centre {
        let hollow = text_if(row.is_hollow, " hollow");
        let x = scale.format_position(value);
        svg += &format!("<circle class=\"centre{hollow}\" cx=\"{x}\" cy=\"{middle}\" r=\"5\"/>");
    }
    if let Some(value) = row.expected {
        let x = scale.format_position(value);
        let [from, to] = [top + 21.0, top + 39.0].map(|y| format_coordinate(y, 1));
        svg +=
            &format!("<line class=\"expected\" x1=\"{x}\" x2=\"{x}\" y1=\"{from}\" y2=\"{to}\"/>");
    }
    svg
}

/// Characters of a row's marks in text, and of its figure; a longer figure has some of the marks'.
const MARKS: [usize; 2] = [27, 27];
const MIN_MARKS: usize = 12;

/// Returns the marks of a row as so many characters.
fn row_characters(row: &ChartRow, scale: &RowScale, marks: usize) -> String {
    let mut line = vec![' '; marks];
    let index = |value| share_index(scale.value_position(value), marks);
    if scale.dimension == Dimension::Change {
        line[index(1.0)] = '┊';
    }
    if let Some(value) = row.bar {
        let (from, to) = (index(scale.base_value()), index(value));
        line[from.min(to)..=from.max(to)].fill(if value > 0.0 { '█' } else { ' ' });
    }
    if let Some((low, high)) = row.interval {
        line[index(low)..=index(high).max(index(low))].fill('─');
    }
    row.dots.iter().for_each(|value| line[index(*value)] = '·');
    if let Some(value) = row.centre {
        line[index(value)] = if row.is_hollow { '○' } else { '●' };
    }
    if let Some(value) = row.expected {
        line[index(value)] = '│';
    }
    line.iter().collect()
}

#[cfg(test)]
mod tests;

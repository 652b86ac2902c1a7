//! Bars, dots and intervals, a row each, over one axis.

use crate::figures::Figures;
use crate::plot::NOTHING;
use crate::quantity::{Dimension, Quantity, Unit};
use crate::svg::{Hue, cut, escape, number, percent, shown, text};
use crate::ticks;

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
pub struct Row {
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

impl Row {
    /// Returns a row without marks. `figure` stands at its right end.
    pub fn new(name: &str, figure: &str, hue: Hue) -> Self {
        Self {
            name: shown(name),
            figure: shown(figure),
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

    /// Returns the same row with more words behind its figure, in the table and where the pointer is.
    #[must_use]
    pub fn detail(self, detail: &str) -> Self {
        Self { detail: shown(detail), ..self }
    }

    /// Returns the figure with the details.
    fn words(&self) -> String {
        if self.detail.is_empty() { self.figure.clone() } else { format!("{}, {}", self.figure, self.detail) }
    }

    /// Returns the same row with a bar from zero to `value`.
    #[must_use]
    pub fn bar<Q: Quantity>(self, value: Q) -> Self {
        Self { bar: Some(value.number()), ..self.of::<Q>() }
    }

    /// Returns the same row with a small dot for each of `values`, as single runs have them.
    #[must_use]
    pub fn dots<Q: Quantity>(self, values: impl IntoIterator<Item = Q>) -> Self {
        Self { dots: values.into_iter().map(Quantity::number).collect(), ..self.of::<Q>() }
    }

    /// Returns the same row with a dot at `value`, as a median has it.
    #[must_use]
    pub fn dot<Q: Quantity>(self, value: Q) -> Self {
        Self { centre: Some(value.number()), ..self.of::<Q>() }
    }

    /// Returns the same row with a thin line from `low` to `high`.
    #[must_use]
    pub fn interval<Q: Quantity>(self, low: Q, high: Q) -> Self {
        Self { interval: Some((low.number(), high.number())), ..self.of::<Q>() }
    }

    /// Returns the same row with a tick at `value`, as a prediction has it.
    #[must_use]
    pub fn expected<Q: Quantity>(self, value: Q) -> Self {
        Self { expected: Some(value.number()), ..self.of::<Q>() }
    }

    /// Returns the same row with a hollow dot: no difference was shown.
    #[must_use]
    pub fn hollow(self) -> Self {
        Self { is_hollow: true, ..self }
    }

    fn of<Q: Quantity>(self) -> Self {
        Self { dimension: Q::DIMENSION, ..self }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let interval = self.interval.into_iter().flat_map(|(low, high)| [low, high]);
        let single = [self.bar, self.centre, self.expected].into_iter().flatten();
        single.chain(interval).chain(self.dots.iter().copied()).filter(|value| value.is_finite())
    }
}

/// Rows over one axis: of a quantity from zero, or of changes with no change in its place between gains and losses.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    title: String,
    heads: [String; 2],
    all: Vec<Row>,
}

impl Rows {
    /// Returns a chart without rows; `title` is read by programs that read the screen, `heads` stand over the names and
    /// the figures in the table.
    pub fn new(title: &str, heads: [&str; 2]) -> Self {
        Self { title: shown(title), heads: heads.map(shown), all: Vec::new() }
    }

    /// Returns the same chart with one more row.
    #[must_use]
    pub fn with(mut self, row: Row) -> Self {
        self.all.push(row);
        self
    }

    /// Returns the chart as an SVG element as wide as its place on the page, or a sentence as a paragraph if there is
    /// nothing to draw. Of more than 120 rows the first are drawn.
    pub fn svg(&self) -> String {
        let Some(scale) = Scale::of(&self.all) else { return format!("<p class=\"none\">{}</p>", escape(NOTHING)) };
        let drawn = &self.all[..self.all.len().min(MAX_ROWS)];
        let bottom = ROW * drawn.len() as f64;
        let mut svg = format!(
            "<svg class=\"chart rows\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" height=\"{}\">",
            escape(&self.title),
            bottom + BELOW
        );
        let ticks = scale.ticks(8.0);
        // The last has the unit, and on a narrow page no room for the one before it.
        let narrow = ticks.len().saturating_sub(2);
        for (index, (place, label)) in ticks.into_iter().enumerate() {
            let x = percent(scale.share(place));
            let class = if scale.is_base(place) { "zero" } else { "grid" };
            svg += &format!("<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"4\" y2=\"{bottom}\"/>");
            let class = match index {
                _ if scale.share(place) > 0.97 => "tick last",
                _ if index % 2 == 1 || index == narrow => "tick mid odd",
                _ => "tick mid",
            };
            svg += &text(class, &x, bottom + 18.0, &label);
        }
        for (index, row) in drawn.iter().enumerate() {
            svg += &draw(row, &scale, ROW * index as f64);
        }
        let rest = self.all.len() - drawn.len();
        let more = if rest > 0 { format!("<p class=\"none\">{rest} more in the table.</p>") } else { String::new() };
        format!("{svg}</svg>{more}")
    }

    /// Returns the chart as lines of at most 80 columns, or a sentence if there is nothing to draw.
    pub fn text(&self) -> String {
        let Some(scale) = Scale::of(&self.all) else { return format!("{NOTHING}\n") };
        let mut text = String::new();
        let longest = self.all.iter().map(|row| row.words().chars().count()).max().unwrap_or(0);
        let figures = longest.clamp(MARKS[1], MARKS[0] + MARKS[1] - MIN_MARKS);
        let marks = MARKS[0] + MARKS[1] - figures;
        for row in self.all.iter().take(MAX_ROWS) {
            let (name, figure) = (cut(&row.name, 24), cut(&row.words(), figures));
            text += format!("{name:<24} {} {figure}", characters(row, &scale, marks)).trim_end();
            text += "\n";
        }
        let rest = self.all.len().saturating_sub(MAX_ROWS);
        if rest > 0 { format!("{text}{rest} more\n") } else { text }
    }

    /// Returns the names and the figures as a table.
    pub fn figures(&self) -> Figures {
        let row = |row: &Row| vec![row.name.clone(), row.words()];
        Figures { heads: self.heads.to_vec(), rows: self.all.iter().map(row).collect() }
    }
}

/// The axis of all rows.
struct Scale {
    dimension: Dimension,
    unit: Unit,
    low: f64,
    high: f64,
}

impl Scale {
    /// Returns the axis; `None` without values.
    fn of(rows: &[Row]) -> Option<Self> {
        let with_marks = rows.iter().find(|row| row.values().next().is_some())?;
        let values = || rows.iter().flat_map(Row::values);
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        let dimension = with_marks.dimension;
        if dimension == Dimension::Change {
            // A change to nothing has no place among factors.
            let (low, high) = (least.clamp(0.01, 0.9) * 0.95, most.clamp(1.1, 100.0) * 1.05);
            return Some(Self { dimension, unit: dimension.unit(1.0), low, high });
        }
        let unit = dimension.unit(most);
        let end = ticks::end_of(most.max(0.0) / unit.size, 8.0) * unit.size;
        Some(Self { dimension, unit, low: 0.0, high: if end > 0.0 { end } else { unit.size } })
    }

    /// Returns the place of a value between 0 and 1.
    fn share(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.dimension {
            Dimension::Change => libm::log(value / self.low) / libm::log(self.high / self.low),
            _ => value / self.high,
        }
    }

    /// Returns the place from which changes go either way, or where bars begin.
    fn base(&self) -> f64 {
        if self.dimension == Dimension::Change { 1.0 } else { 0.0 }
    }

    fn is_base(&self, place: f64) -> bool {
        place.to_bits() == self.base().to_bits()
    }

    /// Returns true if the label of a tick would be on that of no change.
    fn is_too_near(&self, place: f64) -> bool {
        const LABEL: f64 = 0.06;
        let is_change = self.dimension == Dimension::Change && !self.is_base(place);
        is_change && (self.share(place) - self.share(self.base())).abs() < LABEL
    }

    fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        let unit = self.unit;
        let places = match self.dimension {
            Dimension::Change => ticks::logarithmic(self.dimension, self.low, self.high),
            _ => ticks::from_zero(self.dimension, self.high / unit.size, count)
                .iter()
                .map(|tick| tick * unit.size)
                .collect(),
        };
        let places: Vec<f64> = places.into_iter().filter(|place| !self.is_too_near(*place)).collect();
        let last = places.len().saturating_sub(1);
        let label = |(index, place): (usize, f64)| {
            let number = ticks::label(self.dimension, place, unit.size);
            let has_unit = index == last && !unit.name.is_empty();
            (place, if has_unit { format!("{number} {}", unit.name) } else { number })
        };
        places.into_iter().enumerate().map(label).collect()
    }
}

/// Draws a row whose top is at `top`.
fn draw(row: &Row, scale: &Scale, top: f64) -> String {
    let (name, figure, class) = (cut(&row.name, NAME), cut(&row.figure, NAME), row.hue.class());
    let title = format!("{}: {}", row.name, row.words());
    let middle = number(top + 30.0, 1);
    let mut svg = format!("<g class=\"m row {class}\"><title>{}</title>", escape(&title));
    svg += &format!("<rect class=\"hit\" width=\"100%\" y=\"{}\" height=\"{ROW}\"/>", number(top, 1));
    svg += &text("lab halo first", "0", top + 17.0, &name);
    svg += &text("lab halo last", "100%", top + 17.0, &figure);
    let x = |value: f64| percent(scale.share(value));
    if let Some(value) = row.bar {
        let (from, to) = (scale.share(scale.base()), scale.share(value));
        let (left, width) = (percent(from.min(to)), percent((to - from).abs()));
        svg += &format!(
            "<rect class=\"bar\" x=\"{left}\" width=\"{width}\" y=\"{}\" height=\"12\"/>",
            number(top + 24.0, 1)
        );
    }
    if let Some((low, high)) = row.interval {
        svg +=
            &format!("<line class=\"interval\" x1=\"{}\" x2=\"{}\" y1=\"{middle}\" y2=\"{middle}\"/>", x(low), x(high));
    }
    if !row.dots.is_empty() {
        // A circle each, since those that lie on others must be darker.
        let circle = |value: &f64| format!("<circle cx=\"{}\"/>", x(*value));
        let circles: String = row.dots.iter().map(circle).collect();
        svg += &format!("<g class=\"runs\" transform=\"translate(0 {middle})\">{circles}</g>");
    }
    if let Some(value) = row.centre {
        let class = if row.is_hollow { "centre hollow" } else { "centre" };
        svg += &format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{middle}\" r=\"5\"/>", x(value));
    }
    if let Some(value) = row.expected {
        let (x, from, to) = (x(value), number(top + 21.0, 1), number(top + 39.0, 1));
        svg += &format!("<line class=\"expected\" x1=\"{x}\" x2=\"{x}\" y1=\"{from}\" y2=\"{to}\"/>");
    }
    svg + "</g>"
}

/// Characters of a row's marks in text, and of its figure; a longer figure has some of the marks'.
const MARKS: [usize; 2] = [27, 27];
const MIN_MARKS: usize = 12;

/// Returns the marks of a row as so many characters.
fn characters(row: &Row, scale: &Scale, marks: usize) -> String {
    let mut line = vec![' '; marks];
    let index = |value: f64| (scale.share(value) * (marks - 1) as f64).round() as usize;
    if scale.dimension == Dimension::Change {
        line[index(1.0)] = '┊';
    }
    if let Some(value) = row.bar {
        let (from, to) = (index(scale.base()), index(value));
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
mod tests {
    use super::*;
    use crate::quantity::Change;
    use fullpipe_units::{BitRate, Ratio};

    fn ceilings() -> Rows {
        Rows::new("Ceilings", ["limit", "ceiling"])
            .with(Row::new("send-buffer", "323 Mbit/s, the limit", Hue::Orange).bar(BitRate::from_mbps(323)))
            .with(Row::new("capacity", "941.5 Mbit/s", Hue::Grey).bar(BitRate::from_bps(941_500_000)))
    }

    #[test]
    fn bars_begin_at_zero() {
        let svg = ceilings().svg();
        assert!(svg.contains("class=\"bar\" x=\"0%\" width=\"32.3%\""), "{svg}");
        assert!(
            svg.contains("<title>send-buffer: 323 Mbit/s, the limit</title>") && svg.contains(">1000 Mbit/s<"),
            "{svg}"
        );
        let text = ceilings().text();
        let bar = |count: usize| "█".repeat(count);
        assert!(text.starts_with(&format!("send-buffer              {:<27} 323 Mbit/s", bar(9))), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn changes_lie_on_both_sides_of_none() {
        let change = |factor| Change(Ratio::new(factor));
        let row = Row::new("CUBIC → BBR", "+3.1 % (+0.8 to +5.4 %)", Hue::Green);
        let rows = Rows::new("Changes", ["change", "difference"])
            .with(row.dot(change(1.031)).interval(change(1.008), change(1.054)))
            .with(Row::new("to nothing", "−100 %", Hue::Orange).dot(change(0.0)))
            .with(Row::new("MTU", "no difference shown", Hue::Grey).dot(change(1.01)).hollow());
        let (svg, text) = (rows.svg(), rows.text());
        assert!(svg.contains(">0 %<") && svg.contains("centre hollow") && !svg.contains("NaN"), "{svg}");
        assert!(text.contains('○') && text.contains('●'), "{text}");
    }

    #[test]
    fn nothing_is_a_sentence_and_many_rows_are_the_first() {
        assert!(Rows::new("", ["", ""]).svg().contains(NOTHING));
        assert!(Rows::new("", ["", ""]).with(Row::new("a", "b", Hue::Blue)).text().contains(NOTHING));
        let row = |index: u64| Row::new(&index.to_string(), "", Hue::Blue).bar(BitRate::from_mbps(index));
        let many = (0..1_000).fold(Rows::new("Many", ["a", "b"]), |rows, index| rows.with(row(index)));
        assert!(many.svg().ends_with("<p class=\"none\">880 more in the table.</p>"));
        assert_eq!(many.figures().rows.len(), 1_000);
        let zero = Rows::new("Zero", ["a", "b"]).with(Row::new("z", "0", Hue::Blue).bar(BitRate::ZERO));
        assert!(!zero.svg().contains("NaN") && !zero.text().contains('█'), "{}", zero.text());
    }
}

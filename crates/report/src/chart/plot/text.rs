//! A plot as text.

use fullpipe_units::OptionText;

use super::axis::{PlotAxis, ValueAxis, with_unit};
use super::{Panel, Plot, PlotSeries, SeriesForm};
use crate::chart::braille::DotGrid;
use crate::chart::quantity::Dimension;
use crate::chart::svg::cut_text;

/// Usual characters of a line.
pub(super) const WIDTH: usize = 80;

/// Least characters of a line.
pub(super) const MIN_WIDTH: usize = 20;

/// Ticks of an axis of the usual width.
const TICKS: f64 = 6.0;

/// Characters of the values at the left, with the blank behind them.
const LEFT: usize = 8;

/// Usual lines of the first panel and of the others.
pub(super) const LINES: [usize; 2] = [7, 5];

/// Returns the plot in lines of `width` characters, with `lines` of each panel, of which the last
/// is for all further ones.
pub(super) fn plot_text(plot: &Plot, width: usize, lines: &[usize]) -> String {
    let axis = PlotAxis::from_plot(plot);
    let last = lines.last().copied().unwrap_or(1);
    let lines = lines.iter().copied().chain(std::iter::repeat(last));
    let panels = plot.panels.iter().zip(lines);
    let mut text: String = panels
        .map(|(panel, lines)| draw_panel(panel, &axis, width, lines.max(1)))
        .collect();
    text += &tick_line(plot, &axis, width);
    text
}

fn draw_panel(panel: &Panel, axis: &PlotAxis, width: usize, lines: usize) -> String {
    let values = ValueAxis::with_maximum(panel.dimension(), panel.max_value());
    let mut grid = DotGrid::new(width - LEFT, lines);
    for series in &panel.series {
        draw_series(&mut grid, series, axis, &values);
    }
    let mut text = format!("{}\n", panel_head(panel, &values, width));
    for (index, line) in grid.text_lines().iter().enumerate() {
        let label = value_label(&values, index, lines);
        text += format!("{label:>width$} {line}", width = LEFT - 1).trim_end();
        text += "\n";
    }
    text
}

fn draw_series(grid: &mut DotGrid, series: &PlotSeries, axis: &PlotAxis, values: &ValueAxis) {
    let vertices = series.line_vertices().into_iter();
    let points: Vec<(f64, f64)> = vertices
        .map(|(x, y)| (axis.value_position(x), values.value_position(y)))
        .collect();
    // Of ranges, every second pair of neighbours is one.
    let lines = match series.mark {
        SeriesForm::Line | SeriesForm::Steps | SeriesForm::Bars => points.windows(2).step_by(1),
        SeriesForm::Ranges => points.windows(2).step_by(2),
        SeriesForm::Dots => [].windows(2).step_by(1),
    };
    for pair in lines {
        grid.draw_line(pair[0], pair[1]);
    }
    for (x, y) in points {
        grid.draw_dot(x, y);
    }
}

/// Returns the label at the left of line `index` of `lines`.
fn value_label(values: &ValueAxis, index: usize, lines: usize) -> String {
    let value = match index {
        0 => values.end,
        _ if index + 1 == lines => return "0".to_owned(),
        // The middle of numbers need not be one.
        _ if index == lines / 2 && values.dimension != Dimension::Count => values.end / 2.0,
        _ => return String::new(),
    };
    values.tick_label(value)
}

/// Returns the name of the panel with its unit, and the labels of series and levels at the right.
fn panel_head(panel: &Panel, values: &ValueAxis, width: usize) -> String {
    let name = cut_text(&with_unit(&panel.name, values.unit), 30.min(width / 2));
    let series = panel
        .series
        .iter()
        .filter_map(|series| series.label.clone());
    let labels = series.chain(panel.levels.iter().map(|level| level.label.clone()));
    let labels: Vec<String> = labels.filter(|label| !label.is_empty()).collect();
    let labels = cut_text(&labels.join(" · "), width - 2 - name.chars().count());
    let gap = width.saturating_sub(name.chars().count() + labels.chars().count());
    format!("{name}{}{labels}", " ".repeat(gap))
        .trim_end()
        .to_owned()
}

/// Returns the line of ticks below the last panel.
fn tick_line(plot: &Plot, axis: &PlotAxis, width: usize) -> String {
    let mut line = vec![' '; width];
    let mut free = 0;
    for (place, label) in
        axis.labelled_ticks(TICKS * width as f64 / WIDTH as f64, plot.axis.is_some())
    {
        let length = label.chars().count();
        let middle = LEFT + (axis.value_position(place) * (width - LEFT - 1) as f64) as usize;
        let begin = middle
            .saturating_sub(length / 2)
            .min(width.saturating_sub(length));
        if begin >= free && length <= width {
            line.splice(begin..begin + length, label.chars());
            free = begin + length + 1;
        }
    }
    let ticks = line.into_iter().collect::<String>();
    let name = plot.axis.as_ref().map_text(|name| {
        format!(
            "{:>LEFT$}{}\n",
            "",
            cut_text(&with_unit(name, axis.unit), 60.min(width - LEFT))
        )
    });
    format!("{}\n{name}", ticks.trim_end())
}

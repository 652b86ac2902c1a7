//! A plot as SVG.
//!
//! The element is as wide as the plot itself: labels stand outside of it, where the style sheet
//! leaves room. Places across are percentages, so that text keeps its size at every width. Series
//! lie in a nested element whose coordinates are the values in their units: the script reads values
//! from it, and zooms by its view box.

use fullpipe_units::OptionText;

use super::axis::{PlotAxis, ValueAxis, with_unit};
use super::{Panel, Plot, PlotSeries, SeriesForm};
use crate::chart::quantity::value_range;
use crate::chart::svg::{
    Hue, escape_html, format_coordinate, format_percent, text_element, value_places,
};

/// Height of the first panel and of the others, in pixels.
const HEIGHTS: [f64; 2] = [160.0, 104.0];

/// Room above a panel for its name.
const ABOVE: f64 = 30.0;

/// Room below the last panel for the ticks, and for a name below them.
const BELOW: [f64; 2] = [26.0, 44.0];

/// Distance of labels that would overlap, in pixels.
const LINE: f64 = 16.0;

/// Dots of a plot up to which each has an element, and so a title.
const MAX_TITLED_DOTS: usize = 80;

pub(super) fn draw_plot(plot: &Plot) -> String {
    let axis = PlotAxis::from_plot(plot);
    let inner: f64 = (0..plot.panels.len())
        .map(|index| panel_height(index) + ABOVE)
        .sum();
    let whole = inner + BELOW[usize::from(plot.axis.is_some())];
    let mut svg = format!(
        "<svg class=\"chart plot\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" height=\"{whole}\" data-x=\"{}\" \
         data-o=\"{}\">",
        escape_html(&plot_description(plot)),
        axis.unit.name,
        axis_kind(&axis)
    );
    let mut top = 0.0;
    for (index, panel) in plot.panels.iter().enumerate() {
        top += ABOVE;
        svg += &draw_panel(plot, panel, &axis, (top, panel_height(index)));
        top += panel_height(index);
    }
    for shade in &plot.shades {
        svg += &text_element(
            "note halo",
            &format_percent(axis.value_position(shade.from.max(0.0)).max(0.0) + 0.006),
            top - 7.0,
            &shade.label,
        );
    }
    svg + &draw_axis(plot, &axis, top) + "</svg>"
}

fn panel_height(index: usize) -> f64 {
    HEIGHTS[index.min(1)]
}

/// Returns the kind of the axis for the script: `log`, the moment at its coordinate 0, or nothing.
fn axis_kind(axis: &PlotAxis) -> String {
    match (axis.is_logarithmic, axis.axis_origin()) {
        (true, _) => "log".to_owned(),
        (false, 0.0) => String::new(),
        (false, origin) => format_coordinate(origin, 0),
    }
}

/// Returns the title and the range of each series, for programs that read the screen.
fn plot_description(plot: &Plot) -> String {
    let parts: Vec<String> = plot.all_series().take(12).map(series_summary).collect();
    format!("{}. {}", plot.title, parts.join("; "))
}

/// Returns the name of a series and the range of its values.
fn series_summary(series: &PlotSeries) -> String {
    let (least, most) = value_range(series.points.iter().map(|point| point.1));
    format!("{}: {}", series.name, series.y.format_range(least, most))
}

/// Draws the ticks below the last panel, and the name of the axis.
fn draw_axis(plot: &Plot, axis: &PlotAxis, top: f64) -> String {
    let mut svg = "<g class=\"across\">".to_owned();
    let ticks = axis.labelled_ticks(10.0, plot.axis.is_some());
    let classes = ["tick mid", "tick mid odd"].into_iter().cycle();
    for ((place, label), class) in ticks.into_iter().zip(classes) {
        let x = format_percent(axis.value_position(place));
        svg += &text_element(class, &x, top + 18.0, &label);
    }
    svg += "</g>";
    if let Some(name) = &plot.axis {
        let name = with_unit(name, axis.unit);
        svg += &text_element("tick mid name", "50%", top + 37.0, &name);
    }
    svg
}

fn draw_panel(plot: &Plot, panel: &Panel, axis: &PlotAxis, (top, height): (f64, f64)) -> String {
    let values = ValueAxis::with_maximum(panel.dimension(), panel.max_value());
    let name = with_unit(&panel.name, values.unit);
    let mut svg = text_element("tick unit", "0", top - 11.0, &name);
    svg += &draw_value_ticks(&values, (top, height));
    let (low, high) = axis.axis_ends();
    svg += &format!(
        "<svg class=\"view\" y=\"{top}\" width=\"100%\" height=\"{height}\" preserveAspectRatio=\"none\" \
         viewBox=\"{} {} {} {}\" data-n=\"{}\" data-y=\"{}\">",
        axis.format_coordinate(low),
        format_coordinate(-values.end, 9),
        axis.format_coordinate(high - low),
        format_coordinate(values.end, 9),
        escape_html(&panel.name),
        values.unit.name
    );
    svg += &draw_shades(plot, axis, &values);
    svg += &draw_grid(panel, axis, &values);
    let are_titled = has_few_dots(plot);
    for series in &panel.series {
        svg += &SeriesDrawing::new(series, axis, &values).draw(are_titled);
    }
    svg + "</svg>" + &draw_labels(panel, &values, (top, height))
}

fn has_few_dots(plot: &Plot) -> bool {
    let dots = plot
        .all_series()
        .filter(|series| series.mark == SeriesForm::Dots);
    let all = dots.map(|series| series.points.len()).sum::<usize>();
    all <= MAX_TITLED_DOTS
}

/// Draws the ticks at the left of a panel.
fn draw_value_ticks(values: &ValueAxis, (top, height): (f64, f64)) -> String {
    let labels = values.ticks().into_iter().map(|tick| {
        let y = top + height * (1.0 - tick / values.end) + 4.0;
        text_element("", "0", y, &values.tick_label(tick))
    });
    format!("<g class=\"tick left\">{}</g>", labels.collect::<String>())
}

fn draw_shades(plot: &Plot, axis: &PlotAxis, values: &ValueAxis) -> String {
    let (low, high) = axis.axis_ends();
    let [y, tall] = [-values.end, values.end].map(|end| format_coordinate(end, 9));
    let mut svg = String::new();
    for shade in &plot.shades {
        let from = axis.coordinate(shade.from).max(low);
        let to = axis.coordinate(shade.to).min(high);
        if to > from {
            let [x, width] = [from, to - from].map(|across| axis.format_coordinate(across));
            svg += &format!(
                "<rect class=\"shade\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{tall}\"/>"
            );
        }
    }
    svg
}

/// Draws the lines across a panel: those of its ticks, of zero and of its levels.
fn draw_grid(panel: &Panel, axis: &PlotAxis, values: &ValueAxis) -> String {
    let ticks = values.ticks().into_iter().filter(|tick| *tick > 0.0);
    let mut svg = format!(
        "<path class=\"grid\" d=\"{}\"/><path class=\"zero\" d=\"{}\"/>",
        ticks
            .map(|tick| line_across(axis, values, tick))
            .collect::<String>(),
        line_across(axis, values, 0.0)
    );
    for level in &panel.levels {
        svg += &format!(
            "<path class=\"level\" d=\"{}\"/>",
            line_across(axis, values, level.value / values.unit.size)
        );
    }
    svg
}

/// Returns the path across a panel at a value, in its unit.
fn line_across(axis: &PlotAxis, values: &ValueAxis, value: f64) -> String {
    let y = format_coordinate(-value, value_places(values.end));
    let (low, high) = axis.axis_ends();
    format!(
        "M{},{y}H{}",
        axis.format_coordinate(low),
        axis.format_coordinate(high)
    )
}

/// A series in the coordinates of its values, with their decimal places.
struct SeriesDrawing<'p> {
    series: &'p PlotSeries,
    axis: &'p PlotAxis,
    values: &'p ValueAxis,
    decimals: [usize; 2],
}

impl<'p> SeriesDrawing<'p> {
    fn new(series: &'p PlotSeries, axis: &'p PlotAxis, values: &'p ValueAxis) -> Self {
        // A logarithm has one more, for its number to be right.
        let across = axis.decimal_places() + usize::from(axis.is_logarithmic);
        // Means over parts of the axis, of which there are many, need not be exact beyond a pixel.
        let is_mean = series.mark == SeriesForm::Bars;
        let up = value_places(values.end).saturating_sub(usize::from(is_mean));
        Self {
            series,
            axis,
            values,
            decimals: [across, up],
        }
    }

    /// Draws the series; each dot with a title if `are_titled`.
    fn draw(&self, are_titled: bool) -> String {
        let points = &self.series.points;
        let (mark, path) = match self.series.mark {
            // A line of one point would not be seen.
            SeriesForm::Line if points.len() > 1 => ("line", self.line_path(points)),
            SeriesForm::Steps if points.len() > 1 => ("line", step_path(&self.places(points))),
            SeriesForm::Ranges => {
                let ranges = points.chunks(2).map(|ends| self.line_path(ends));
                ("range", ranges.collect())
            }
            SeriesForm::Bars => {
                let tops: Vec<Place> = points.iter().map(|point| self.place(*point)).collect();
                ("area", bar_outlines(&tops))
            }
            _ if are_titled || points.len() == 1 => return self.titled_dots(),
            _ => (
                "dot small",
                self.places(points).iter().map(dot_path).collect(),
            ),
        };
        self.mark_element(mark, &path, &series_summary(self.series))
    }

    fn titled_dots(&self) -> String {
        let (axis, values) = (self.axis, self.values);
        let distinct = self.distinct_points(&self.series.points).into_iter();
        let dots = distinct.map(|((x, y), place)| {
            let value = values.dimension.text_in(y, values.unit);
            let at = axis.dimension.text_in(x, axis.unit);
            let title = format!("{}: {value} at {at}", self.series.name);
            self.mark_element("dot", &dot_path(&place), &title)
        });
        dots.collect()
    }

    fn mark_element(&self, mark: &str, path: &str, title: &str) -> String {
        let (name, title) = (escape_html(&self.series.name), escape_html(title));
        let class = self.series.hue.css_class();
        format!(
            "<path class=\"m {mark} {class}\" data-n=\"{name}\" d=\"{path}\"><title>{title}</title></path>"
        )
    }

    /// Returns the path that joins points by lines.
    fn line_path(&self, points: &[(f64, f64)]) -> String {
        let places: Vec<String> = self.places(points).iter().map(coordinate_pair).collect();
        format!("M{}", places.join(" "))
    }

    fn places(&self, points: &[(f64, f64)]) -> Vec<Place> {
        let distinct = self.distinct_points(points).into_iter();
        distinct.map(|(_, place)| place).collect()
    }

    /// Returns points with their places. Values that differ by less than the drawing resolves are
    /// one place to the keyboard.
    fn distinct_points(&self, points: &[(f64, f64)]) -> Vec<((f64, f64), Place)> {
        let mut places: Vec<_> = points.iter().map(|at| (*at, self.place(*at))).collect();
        places.dedup_by(|next, one| next.1 == one.1);
        places
    }

    fn place(&self, (x, y): (f64, f64)) -> Place {
        let [across, up] = self.decimals;
        (
            format_coordinate(self.axis.coordinate(x), across),
            format_coordinate(-y / self.values.unit.size, up),
        )
    }
}

fn dot_path(place: &Place) -> String {
    format!("M{}z", coordinate_pair(place))
}

/// Coordinates as they are written.
type Place = (String, String);

/// Returns coordinates for a path; a sign divides them as well as a comma.
fn coordinate_pair((x, y): &Place) -> String {
    if y.starts_with('-') {
        format!("{x}{y}")
    } else {
        format!("{x},{y}")
    }
}

/// Returns the path through places that goes across and then up or down to each.
fn step_path(places: &[Place]) -> String {
    let mut path = places
        .first()
        .map_text(|first| format!("M{}", coordinate_pair(first)));
    for both in places.windows(2) {
        let [(from, before), (to, after)] = both else {
            continue;
        };
        if from != to {
            path += &format!("H{to}");
        }
        if before != after {
            path += &format!("V{after}");
        }
    }
    path
}

/// Returns the outlines of bars, of which each pair of places is the top of one; bars that touch
/// have one outline. The way back along the axis is written with a small letter and a blank, which
/// the script passes over: it has no values.
fn bar_outlines(tops: &[Place]) -> String {
    let bars: Vec<&[Place]> = tops.chunks_exact(2).collect();
    bars.chunk_by(|one, next| one[1].0 == next[0].0)
        .map(bar_outline)
        .collect()
}

fn bar_outline(bars: &[&[Place]]) -> String {
    let [Some([first, _]), Some([_, last])] = [bars.first(), bars.last()] else {
        return String::new();
    };
    let mut path = format!("M{}", coordinate_pair(first));
    let mut top = first;
    for bar in bars {
        if bar[0].1 != top.1 {
            path += &format!("V{}", bar[0].1);
        }
        if bar[0].0 != bar[1].0 {
            path += &format!("H{}", bar[1].0);
        }
        top = &bar[1];
    }
    path + &format!("v{}L{} 0z", last.1.trim_start_matches('-'), first.0)
}

/// Draws the labels at the right of a panel, moved apart where they would overlap.
fn draw_labels(panel: &Panel, values: &ValueAxis, (top, height): (f64, f64)) -> String {
    let levels = panel.levels.iter().map(|level| {
        let share = values.value_position(level.value);
        (share, label_class(Hue::Grey), level.label.clone())
    });
    let series = panel.series.iter().filter_map(|series| {
        let share = values.value_position(series.points.last()?.1);
        Some((share, label_class(series.hue), series.label.clone()?))
    });
    let mut all: Vec<(f64, &str, String)> = levels
        .chain(series)
        .filter(|(_, _, label)| !label.is_empty())
        .collect();
    all.sort_by(|one, next| next.0.total_cmp(&one.0));
    let wanted: Vec<f64> = all
        .iter()
        .map(|(share, ..)| top + height * (1.0 - share.clamp(0.0, 1.0)) + 4.0)
        .collect();
    let places = spread_positions(&wanted, top + height + 4.0);
    let draw =
        |((_, class, label), y): (&(f64, &str, String), f64)| text_element(class, "100%", y, label);
    all.iter().zip(places).map(draw).collect()
}

fn label_class(hue: Hue) -> &'static str {
    [
        "lab end strong c0",
        "lab end strong c1",
        "lab end strong c2",
        "lab end strong c3",
        "lab end c4",
    ][hue as usize]
}

/// Returns places at least a line apart, in order, as near as that allows to those that are wanted,
/// the last at most at `end`.
fn spread_positions(wanted: &[f64], end: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for index in 1..places.len() {
        places[index] = places[index].max(places[index - 1] + LINE);
    }
    let mut most = end;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - LINE;
    }
    places
}

#[cfg(test)]
mod tests;

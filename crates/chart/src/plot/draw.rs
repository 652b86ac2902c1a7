//! A plot as SVG.
//!
//! The element is as wide as the plot itself: labels stand outside of it, where the style sheet
//! leaves room. Places across are percentages, so that text keeps its size at every width. Series
//! lie in a nested element whose coordinates are the values in their units: the script reads values
//! from it, and zooms by its view box.

use super::axis::{PlotAxis, ValueAxis, with_unit};
use super::{Panel, Plot, PlotSeries, SeriesForm};
use crate::svg::{
    decimal_places, escape_html, format_coordinate, format_percent, text_element, value_places,
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
    let height = |index: usize| HEIGHTS[index.min(1)];
    let inner: f64 = (0..plot.panels.len())
        .map(|index| height(index) + ABOVE)
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
        svg += &draw_panel(plot, panel, &axis, (top, height(index)));
        top += height(index);
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
    let all = plot.panels.iter().flat_map(|panel| &panel.series);
    let parts: Vec<String> = all.take(12).map(series_summary).collect();
    format!("{}. {}", plot.title, parts.join("; "))
}

/// Returns the name of a series and the range of its values.
fn series_summary(series: &PlotSeries) -> String {
    let values = || series.points.iter().map(|point| point.1);
    let (least, most) = (
        values().fold(f64::MAX, f64::min),
        values().fold(f64::MIN, f64::max),
    );
    format!("{}: {}", series.name, series.y.format_range(least, most))
}

/// Draws the ticks below the last panel, and the name of the axis.
fn draw_axis(plot: &Plot, axis: &PlotAxis, top: f64) -> String {
    let mut svg = "<g class=\"across\">".to_owned();
    for (index, (place, label)) in axis
        .labelled_ticks(10.0, plot.axis.is_some())
        .into_iter()
        .enumerate()
    {
        let class = if index % 2 == 1 {
            "tick mid odd"
        } else {
            "tick mid"
        };
        svg += &text_element(
            class,
            &format_percent(axis.value_position(place)),
            top + 18.0,
            &label,
        );
    }
    svg += "</g>";
    if let Some(name) = &plot.axis {
        svg += &text_element(
            "tick mid name",
            "50%",
            top + 37.0,
            &with_unit(name, axis.unit),
        );
    }
    svg
}

fn draw_panel(plot: &Plot, panel: &Panel, axis: &PlotAxis, (top, height): (f64, f64)) -> String {
    let values = ValueAxis::with_maximum(panel.dimension(), panel.max_value());
    let at = |share: f64| top + height * (1.0 - share);
    let mut svg = text_element(
        "tick unit",
        "0",
        top - 11.0,
        &with_unit(&panel.name, values.unit),
    );
    let label = |tick: &f64| {
        text_element(
            "",
            "0",
            at(tick / values.end) + 4.0,
            &crate::ticks::tick_label(values.dimension, *tick, 1.0),
        )
    };
    svg += &format!(
        "<g class=\"tick left\">{}</g>",
        values.ticks().iter().map(label).collect::<String>()
    );
    let (low, high) = axis.axis_ends();
    svg += &format!(
        "<svg class=\"view\" y=\"{top}\" width=\"100%\" height=\"{height}\" preserveAspectRatio=\"none\" \
         viewBox=\"{} {} {} {}\" data-n=\"{}\" data-y=\"{}\">",
        format_coordinate(low, decimal_places(high - low)),
        format_coordinate(-values.end, 9),
        format_coordinate(high - low, decimal_places(high - low)),
        format_coordinate(values.end, 9),
        escape_html(&panel.name),
        values.unit.name
    );
    for shade in &plot.shades {
        let (from, to) = (
            axis.coordinate(shade.from).max(low),
            axis.coordinate(shade.to).min(high),
        );
        if to > from {
            let (x, width) = (
                format_coordinate(from, decimal_places(high - low)),
                format_coordinate(to - from, decimal_places(high - low)),
            );
            let (y, tall) = (
                format_coordinate(-values.end, 9),
                format_coordinate(values.end, 9),
            );
            svg += &format!(
                "<rect class=\"shade\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{tall}\"/>"
            );
        }
    }
    let across = |value: f64| {
        let y = format_coordinate(-value, value_places(values.end));
        format!(
            "M{},{y}H{}",
            format_coordinate(low, decimal_places(high - low)),
            format_coordinate(high, decimal_places(high - low))
        )
    };
    let grid: String = values
        .ticks()
        .into_iter()
        .filter(|tick| *tick > 0.0)
        .map(across)
        .collect();
    svg += &format!(
        "<path class=\"grid\" d=\"{grid}\"/><path class=\"zero\" d=\"{}\"/>",
        across(0.0)
    );
    for level in &panel.levels {
        svg += &format!(
            "<path class=\"level\" d=\"{}\"/>",
            across(level.value / values.unit.size)
        );
    }
    let dots = plot
        .panels
        .iter()
        .flat_map(|panel| &panel.series)
        .filter(|series| series.mark == SeriesForm::Dots);
    let are_titled = dots.map(|series| series.points.len()).sum::<usize>() <= MAX_TITLED_DOTS;
    for series in &panel.series {
        svg += &draw_series(series, axis, &values, are_titled);
    }
    svg + "</svg>" + &draw_labels(panel, &values, (top, height))
}

/// Draws a series in the coordinates of its values; each dot with a title if `are_titled`.
fn draw_series(
    series: &PlotSeries,
    axis: &PlotAxis,
    values: &ValueAxis,
    are_titled: bool,
) -> String {
    let (low, high) = axis.axis_ends();
    // A logarithm has one more, for its number to be right.
    let across = decimal_places(high - low) + usize::from(axis.is_logarithmic);
    // Means over parts of the axis, of which there are many, need not be exact beyond a pixel.
    let up = value_places(values.end).saturating_sub(usize::from(series.mark == SeriesForm::Bars));
    let place = |(x, y): (f64, f64)| {
        (
            format_coordinate(axis.coordinate(x), across),
            format_coordinate(-y / values.unit.size, up),
        )
    };
    let class = series.hue.css_class();
    let path = |mark: &str, d: &str, title: &str| {
        let (name, title) = (escape_html(&series.name), escape_html(title));
        format!(
            "<path class=\"m {mark} {class}\" data-n=\"{name}\" d=\"{d}\"><title>{title}</title></path>"
        )
    };
    // Values that differ by less than the drawing resolves are one place to the keyboard.
    let places_of = |points: &[(f64, f64)]| {
        let mut places: Vec<((f64, f64), Place)> =
            points.iter().map(|at| (*at, place(*at))).collect();
        places.dedup_by(|next, one| next.1 == one.1);
        places
    };
    let only = |points: &[(f64, f64)]| {
        places_of(points)
            .into_iter()
            .map(|(_, place)| place)
            .collect::<Vec<Place>>()
    };
    let joined = |points: &[(f64, f64)]| {
        only(points)
            .iter()
            .map(coordinate_pair)
            .collect::<Vec<String>>()
            .join(" ")
    };
    let dot = |place: &Place| format!("M{}z", coordinate_pair(place));
    match series.mark {
        // A line of one point would not be seen.
        SeriesForm::Line if series.points.len() > 1 => path(
            "line",
            &format!("M{}", joined(&series.points)),
            &series_summary(series),
        ),
        SeriesForm::Steps if series.points.len() > 1 => path(
            "line",
            &step_path(&only(&series.points)),
            &series_summary(series),
        ),
        SeriesForm::Ranges => {
            let range = |ends: &[(f64, f64)]| format!("M{}", joined(ends));
            path(
                "range",
                &series.points.chunks(2).map(range).collect::<String>(),
                &series_summary(series),
            )
        }
        SeriesForm::Bars => {
            let places: Vec<Place> = series.points.iter().map(|at| place(*at)).collect();
            path("area", &bar_outlines(&places), &series_summary(series))
        }
        _ if are_titled || series.points.len() == 1 => {
            let titled = |(at, place): ((f64, f64), Place)| {
                let value = values.dimension.text_in(at.1, values.unit);
                let title = format!(
                    "{}: {value} at {}",
                    series.name,
                    axis.dimension.text_in(at.0, axis.unit)
                );
                path("dot", &dot(&place), &title)
            };
            places_of(&series.points).into_iter().map(titled).collect()
        }
        _ => path(
            "dot small",
            &only(&series.points).iter().map(dot).collect::<String>(),
            &series_summary(series),
        ),
    }
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
        .map_or_else(String::new, |first| format!("M{}", coordinate_pair(first)));
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
    let of_level = |level: &super::LevelLine| {
        (
            values.value_position(level.value),
            "lab end c4",
            level.label.clone(),
        )
    };
    let of_series = |series: &PlotSeries| {
        let class = [
            "lab end strong c0",
            "lab end strong c1",
            "lab end strong c2",
            "lab end strong c3",
            "lab end c4",
        ][series.hue as usize];
        Some((
            values.value_position(series.points.last()?.1),
            class,
            series.label.clone()?,
        ))
    };
    let mut all: Vec<(f64, &str, String)> = panel
        .levels
        .iter()
        .map(of_level)
        .chain(panel.series.iter().filter_map(of_series))
        .collect();
    all.retain(|(_, _, label)| !label.is_empty());
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
mod tests {
    use super::*;

    #[test]
    fn steps_go_across_and_then_up_or_down() {
        let places = [("0", "0"), ("1", "0"), ("2", "-3"), ("2", "-4")];
        assert_eq!(
            step_path(&places.map(|(x, y)| (x.to_owned(), y.to_owned()))),
            "M0,0H1H2V-3V-4"
        );
        assert_eq!(
            (
                coordinate_pair(&("1".into(), "-2".into())),
                coordinate_pair(&("1".into(), "0".into()))
            ),
            ("1-2".into(), "1,0".into())
        );
    }

    #[test]
    fn bars_stand_on_the_axis_and_touch_or_not() {
        let bars = [
            ("0", "-3"),
            ("1", "-3"),
            ("1", "-4"),
            ("2", "-4"),
            ("5", "0"),
            ("6", "0"),
            ("6", "0"),
            ("7", "0"),
        ];
        let outlines = |bars: &[(&str, &str)]| {
            bar_outlines(
                &bars
                    .iter()
                    .map(|(x, y)| ((*x).to_owned(), (*y).to_owned()))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(outlines(&bars), "M0-3H1V-4H2v4L0 0zM5,0H6H7v0L5 0z");
        assert_eq!(outlines(&[]), "");
    }

    #[test]
    fn labels_do_not_overlap() {
        assert_eq!(
            spread_positions(&[10.0, 12.0, 80.0], 100.0),
            [10.0, 26.0, 80.0]
        );
        assert_eq!(
            spread_positions(&[90.0, 95.0, 99.0], 100.0),
            [68.0, 84.0, 100.0]
        );
        assert_eq!(spread_positions(&[], 100.0), Vec::<f64>::new());
    }
}

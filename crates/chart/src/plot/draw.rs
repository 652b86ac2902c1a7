//! A plot as SVG.
//!
//! The element is as wide as the plot itself: labels stand outside of it, where the style sheet leaves room. Places
//! across are percentages, so that text keeps its size at every width. Series lie in a nested element whose coordinates
//! are the values in their units: the script reads values from it, and zooms by its view box.

use super::axis::{Axis, Height, with_unit};
use super::{Mark, Panel, Plot, Series};
use crate::svg::{escape, number, percent, places, text};

/// Height of the first panel and of the others, in pixels.
const HEIGHTS: [f64; 2] = [160.0, 104.0];

/// Room above a panel for its name.
const ABOVE: f64 = 30.0;

/// Room below the last panel for the ticks, and for a name below them.
const BELOW: [f64; 2] = [26.0, 44.0];

/// Distance of labels that would overlap, in pixels.
const LINE: f64 = 16.0;

/// Dots with an element, and so a title, each.
const MAX_TITLED_DOTS: usize = 80;

pub(super) fn svg(plot: &Plot) -> String {
    let axis = Axis::of(plot);
    let height = |index: usize| HEIGHTS[index.min(1)];
    let inner: f64 = (0..plot.panels.len()).map(|index| height(index) + ABOVE).sum();
    let whole = inner + BELOW[usize::from(plot.axis.is_some())];
    let mut svg = format!(
        "<svg class=\"chart plot\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" height=\"{whole}\" data-x=\"{}\" \
         data-o=\"{}\">",
        escape(&description(plot)),
        axis.unit.name,
        origin(&axis)
    );
    let mut top = 0.0;
    for (index, panel) in plot.panels.iter().enumerate() {
        top += ABOVE;
        svg += &draw_panel(plot, panel, &axis, (top, height(index)));
        top += height(index);
    }
    for shade in &plot.shades {
        svg += &text("note halo", &percent(axis.share(shade.from.max(0.0)).max(0.0) + 0.006), top - 7.0, &shade.label);
    }
    svg + &across(plot, &axis, top) + "</svg>"
}

/// Returns the kind of the axis for the script: `log`, the moment at its coordinate 0, or nothing.
fn origin(axis: &Axis) -> String {
    match (axis.is_logarithmic, axis.origin()) {
        (true, _) => "log".to_owned(),
        (false, 0.0) => String::new(),
        (false, origin) => number(origin, 0),
    }
}

/// Returns the title and the range of each series, for programs that read the screen.
fn description(plot: &Plot) -> String {
    let all = plot.panels.iter().flat_map(|panel| &panel.series);
    let parts: Vec<String> = all.take(12).map(summary).collect();
    format!("{}. {}", plot.title, parts.join("; "))
}

/// Returns the name of a series and the range of its values.
fn summary(series: &Series) -> String {
    let values = || series.points.iter().map(|point| point.1);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let (least, most) = (series.y.text(least), series.y.text(most));
    if least == most { format!("{}: {least}", series.name) } else { format!("{}: {least} to {most}", series.name) }
}

/// Draws the ticks below the last panel, and the name of the axis.
fn across(plot: &Plot, axis: &Axis, top: f64) -> String {
    let mut svg = "<g class=\"across\">".to_owned();
    for (index, (place, label)) in axis.ticks(10.0, plot.axis.is_some()).into_iter().enumerate() {
        let class = if index % 2 == 1 { "tick mid odd" } else { "tick mid" };
        svg += &text(class, &percent(axis.share(place)), top + 18.0, &label);
    }
    svg += "</g>";
    if let Some(name) = &plot.axis {
        svg += &text("tick mid name", "50%", top + 37.0, &with_unit(name, axis.unit));
    }
    svg
}

fn draw_panel(plot: &Plot, panel: &Panel, axis: &Axis, (top, height): (f64, f64)) -> String {
    let values = Height::of(panel.dimension(), panel.most());
    let at = |share: f64| top + height * (1.0 - share);
    let mut svg = text("tick unit", "0", top - 11.0, &with_unit(&panel.name, values.unit));
    for tick in values.ticks() {
        let y = at(tick / values.end);
        let class = if tick == 0.0 { "zero" } else { "grid" };
        svg += &format!("<line class=\"{class}\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        svg += &text("tick left", "0", y + 4.0, &crate::ticks::label(values.dimension, tick, 1.0));
    }
    let (low, high) = axis.ends();
    svg += &format!(
        "<svg class=\"view\" y=\"{top}\" width=\"100%\" height=\"{height}\" preserveAspectRatio=\"none\" \
         viewBox=\"{} {} {} {}\" data-n=\"{}\" data-y=\"{}\">",
        number(low, places(high - low)),
        number(-values.end, 9),
        number(high - low, places(high - low)),
        number(values.end, 9),
        escape(&panel.name),
        values.unit.name
    );
    for shade in &plot.shades {
        let (from, to) = (axis.coordinate(shade.from).max(low), axis.coordinate(shade.to).min(high));
        if to > from {
            let (x, width) = (number(from, places(high - low)), number(to - from, places(high - low)));
            let (y, tall) = (number(-values.end, 9), number(values.end, 9));
            svg += &format!("<rect class=\"shade\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{tall}\"/>");
        }
    }
    for level in &panel.levels {
        let y = number(-level.value / values.unit.size, places(values.end));
        svg += &format!("<path class=\"level\" d=\"M{},{y}H{}\"/>", number(low, 6), number(high, 6));
    }
    for series in &panel.series {
        svg += &draw_series(series, axis, &values);
    }
    svg + "</svg>" + &labels(panel, &values, (top, height))
}

/// Draws a series in the coordinates of its values.
fn draw_series(series: &Series, axis: &Axis, values: &Height) -> String {
    let (low, high) = axis.ends();
    let (across, up) = (places(high - low), places(values.end));
    let point =
        |(x, y): (f64, f64)| format!("{},{}", number(axis.coordinate(x), across), number(-y / values.unit.size, up));
    let class = series.hue.class();
    let path = |mark: &str, d: &str, title: &str| {
        let (name, title) = (escape(&series.name), escape(title));
        format!("<path class=\"m {mark} {class}\" data-n=\"{name}\" d=\"{d}\"><title>{title}</title></path>")
    };
    // Values that differ by less than the drawing resolves are one place to the keyboard.
    let places_of = |points: &[(f64, f64)]| {
        let mut places: Vec<((f64, f64), String)> = points.iter().map(|at| (*at, point(*at))).collect();
        places.dedup_by(|next, one| next.1 == one.1);
        places
    };
    let joined =
        |points: &[(f64, f64)]| places_of(points).into_iter().map(|(_, place)| place).collect::<Vec<_>>().join(" ");
    let dot = |place: &str| format!("M{place}h0");
    match series.mark {
        // A line of one point would not be seen.
        Mark::Line | Mark::Steps if series.points.len() > 1 => {
            path("line", &format!("M{}", joined(&series.vertices())), &summary(series))
        }
        Mark::Ranges => {
            let range = |pair: &[(f64, f64)]| format!("M{}", joined(pair));
            path("range", &series.points.chunks(2).map(range).collect::<String>(), &summary(series))
        }
        _ if series.points.len() <= MAX_TITLED_DOTS => {
            let titled = |(at, place): ((f64, f64), String)| {
                let value = values.dimension.text_in(at.1, values.unit);
                let title = format!("{}: {value} at {}", series.name, axis.dimension.text_in(at.0, axis.unit));
                path("dot", &dot(&place), &title)
            };
            places_of(&series.points).into_iter().map(titled).collect()
        }
        _ => {
            let dots: String = places_of(&series.points).iter().map(|(_, place)| dot(place)).collect();
            path("dot small", &dots, &summary(series))
        }
    }
}

/// Draws the labels at the right of a panel, moved apart where they would overlap.
fn labels(panel: &Panel, values: &Height, (top, height): (f64, f64)) -> String {
    let of_level = |level: &super::Level| (values.share(level.value), "lab end c4", level.label.clone());
    let of_series = |series: &Series| {
        let class = ["lab end strong c0", "lab end strong c1", "lab end strong c2", "lab end strong c3", "lab end c4"]
            [series.hue as usize];
        Some((values.share(series.points.last()?.1), class, series.label.clone()?))
    };
    let mut all: Vec<(f64, &str, String)> =
        panel.levels.iter().map(of_level).chain(panel.series.iter().filter_map(of_series)).collect();
    all.retain(|(_, _, label)| !label.is_empty());
    all.sort_by(|one, next| next.0.total_cmp(&one.0));
    let wanted: Vec<f64> = all.iter().map(|(share, ..)| top + height * (1.0 - share.clamp(0.0, 1.0)) + 4.0).collect();
    let places = apart(&wanted, top + height + 4.0);
    let draw = |((_, class, label), y): (&(f64, &str, String), f64)| text(class, "100%", y, label);
    all.iter().zip(places).map(draw).collect()
}

/// Returns places at least a line apart, in order, as near as that allows to those that are wanted, the last at most at
/// `end`.
fn apart(wanted: &[f64], end: f64) -> Vec<f64> {
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
    fn labels_do_not_overlap() {
        assert_eq!(apart(&[10.0, 12.0, 80.0], 100.0), [10.0, 26.0, 80.0]);
        assert_eq!(apart(&[90.0, 95.0, 99.0], 100.0), [68.0, 84.0, 100.0]);
        assert_eq!(apart(&[], 100.0), Vec::<f64>::new());
    }
}

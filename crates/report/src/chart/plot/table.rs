//! A plot as a table.

use super::{Panel, Plot, PlotSeries};
use crate::chart::figures::FigureTable;
use crate::chart::quantity::value_range;
use crate::chart::words::format_if;

/// Places on the axis that have a row each.
const MAX_ROWS: usize = 60;

/// Rows of a plot with more places.
const BINS: usize = 40;

pub(super) fn plot_figures(plot: &Plot) -> FigureTable {
    let columns: Vec<(&Panel, &PlotSeries)> = plot
        .panels
        .iter()
        .flat_map(|panel| panel.series.iter().map(move |series| (panel, series)))
        .collect();
    let starts = columns.iter().flat_map(|(_, series)| series.start_points());
    let mut places: Vec<f64> = starts.map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let Some(&high) = places.last() else {
        return FigureTable::default();
    };
    let places = row_places(places);
    let mut heads = vec![plot.axis.clone().unwrap_or_else(|| "from".to_owned())];
    for (panel, series) in &columns {
        heads.push(column_head(panel, series));
    }
    let unit = plot.dimension().largest_unit(high);
    let mut rows = Vec::new();
    for (from, to) in places.iter().zip(places.iter().skip(1).chain([&f64::MAX])) {
        let cells = columns
            .iter()
            .map(|(_, series)| series_cell(series, (*from, *to)));
        let place = plot.dimension().text_in(*from, unit);
        rows.push(std::iter::once(place).chain(cells).collect());
    }
    FigureTable { heads, rows }
}

/// Returns these places, or as many parts of the axis if there are more than have a row each.
fn row_places(places: Vec<f64>) -> Vec<f64> {
    let [Some(low), Some(high)] = [places.first(), places.last()] else {
        return places;
    };
    if places.len() <= MAX_ROWS {
        return places;
    }
    (0..BINS)
        .map(|bin| low + (high - low) * bin as f64 / BINS as f64)
        .collect()
}

/// Returns the head of a column: panel and series, or one of both if they are called alike.
fn column_head(panel: &Panel, series: &PlotSeries) -> String {
    if panel.name == series.name {
        series.name.clone()
    } else {
        format!("{}: {}", panel.name, series.name)
    }
}

/// Returns the least and the most of a series from one place to the next.
fn series_cell(series: &PlotSeries, (from, to): (f64, f64)) -> String {
    let within = series
        .start_points()
        .skip_while(|point| point.0 < from)
        .take_while(|point| point.0 < to);
    let (least, most) = value_range(within.map(|point| point.1));
    format_if(least <= most, || series.y.format_range(least, most))
}

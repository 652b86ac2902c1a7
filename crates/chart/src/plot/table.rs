//! A plot as a table.

use super::{Panel, Plot, PlotSeries};
use crate::figures::FigureTable;

/// Places on the axis that have a row each.
const MAX_ROWS: usize = 60;

/// Rows of a plot with more places.
const BINS: usize = 40;

pub(super) fn plot_figures(plot: &Plot) -> FigureTable {
    let series: Vec<&PlotSeries> = plot.panels.iter().flat_map(|panel| &panel.series).collect();
    let mut places: Vec<f64> = series
        .iter()
        .flat_map(|series| series.start_points())
        .map(|point| point.0)
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let [Some(&low), Some(&high)] = [places.first(), places.last()] else {
        return FigureTable::default();
    };
    if places.len() > MAX_ROWS {
        places = (0..BINS)
            .map(|bin| low + (high - low) * bin as f64 / BINS as f64)
            .collect();
    }
    let dimension = plot.dimension();
    let unit = dimension.largest_unit(high);
    let first = plot.axis.clone().unwrap_or_else(|| "from".to_owned());
    let of_panel = |panel: &Panel| {
        panel
            .series
            .iter()
            .map(|series| column_head(panel, series))
            .collect::<Vec<_>>()
    };
    let heads = std::iter::once(first)
        .chain(plot.panels.iter().flat_map(of_panel))
        .collect();
    let row = |index: usize| {
        let to = places.get(index + 1).copied().unwrap_or(f64::MAX);
        let cells = series
            .iter()
            .map(|series| series_cell(series, (places[index], to)));
        std::iter::once(dimension.text_in(places[index], unit))
            .chain(cells)
            .collect()
    };
    FigureTable {
        heads,
        rows: (0..places.len()).map(row).collect(),
    }
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
    let within = within.map(|point| point.1);
    let (least, most) = within.fold((f64::MAX, f64::MIN), |(least, most), y| {
        (least.min(y), most.max(y))
    });
    match (least, most) {
        _ if least > most => String::new(),
        _ => series.y.format_range(least, most),
    }
}

//! The axis that all panels share.

use super::Plot;
use crate::chart::quantity::{AxisUnit, Dimension, value_range};
use crate::chart::svg::{decimal_places, format_coordinate};
use crate::chart::ticks;

/// Share of an axis of moments or with a logarithmic scale that is left free at each end.
const MARGIN: f64 = 0.02;

/// An axis from its low to its high end, in the numbers of its dimension.
pub(super) struct PlotAxis {
    pub dimension: Dimension,
    pub is_logarithmic: bool,
    pub unit: AxisUnit,
    low: f64,
    high: f64,
}

impl PlotAxis {
    /// Returns the axis of a plot with at least one point.
    pub(super) fn from_plot(plot: &Plot) -> Self {
        let dimension = plot.dimension();
        let ends = value_range(plot.series_points().map(|point| point.0));
        let (low, high) = match (dimension, plot.is_logarithmic) {
            (_, true) => {
                let margin = libm::pow((ends.1 / ends.0).max(1.1), MARGIN);
                (ends.0 / margin, ends.1 * margin)
            }
            (Dimension::Date, false) => {
                let margin = (ends.1 - ends.0).max(60.0) * MARGIN;
                (ends.0 - margin, ends.1 + margin)
            }
            // What begins late in a record is drawn from there.
            (_, false) if ends.0 > 0.5 * ends.1 && ends.1 > ends.0 => ends,
            (_, false) => (ends.0.min(0.0), ends.1),
        };
        let high = plot.reaches.map_or(high, |end| high.max(end));
        let high = if high > low { high } else { low + 1.0 };
        Self {
            dimension,
            is_logarithmic: plot.is_logarithmic,
            unit: dimension.largest_unit(high),
            low,
            high,
        }
    }

    /// Returns the coordinate of `x` within the drawing: in the unit, from the low end; the
    /// logarithm, on such a scale.
    pub(super) fn coordinate(&self, x: f64) -> f64 {
        if self.is_logarithmic {
            libm::log(x / self.unit.size)
        } else {
            (x - self.axis_origin()) / self.unit.size
        }
    }

    /// Returns the place at coordinate 0: a moment of an axis of dates, whose numbers are long.
    pub(super) fn axis_origin(&self) -> f64 {
        if self.dimension == Dimension::Date {
            libm::floor(self.low)
        } else {
            0.0
        }
    }

    /// Returns the coordinates of both ends.
    pub(super) fn axis_ends(&self) -> (f64, f64) {
        (self.coordinate(self.low), self.coordinate(self.high))
    }

    /// Returns the place of `x` between 0 and 1.
    pub(super) fn value_position(&self, x: f64) -> f64 {
        let (low, high) = self.axis_ends();
        (self.coordinate(x) - low) / (high - low)
    }

    /// Returns a coordinate or a distance of two as it is written, right to a tenth of a pixel.
    pub(super) fn format_coordinate(&self, coordinate: f64) -> String {
        format_coordinate(coordinate, self.decimal_places())
    }

    /// Returns the decimal places of coordinates that are right to a tenth of a pixel.
    pub(super) fn decimal_places(&self) -> usize {
        let (low, high) = self.axis_ends();
        decimal_places(high - low)
    }

    /// Returns about `count` ticks with their labels; the first has the unit, if the axis has no
    /// name.
    pub(super) fn labelled_ticks(&self, count: f64, has_name: bool) -> Vec<(f64, String)> {
        if self.dimension == Dimension::Date {
            return ticks::date_ticks(self.low, self.high, count);
        }
        let unit = self.unit;
        let places = if self.is_logarithmic {
            ticks::logarithmic_ticks(self.dimension, self.low, self.high)
        } else {
            ticks::linear_ticks(self.low / unit.size, self.high / unit.size, count)
                .iter()
                .map(|at| at * unit.size)
                .collect()
        };
        ticks::labelled_ticks(self.dimension, places, unit, (!has_name).then_some(0))
    }
}

/// The axis of a panel's values, from zero.
pub(super) struct ValueAxis {
    pub dimension: Dimension,
    pub unit: AxisUnit,
    /// End, in the unit.
    pub end: f64,
}

impl ValueAxis {
    /// Returns the axis of values up to `most`.
    pub(super) fn with_maximum(dimension: Dimension, most: f64) -> Self {
        let unit = dimension.largest_unit(most);
        let end = ticks::end_of(most / unit.size, 4.0);
        Self {
            dimension,
            unit,
            end: if end > 0.0 { end } else { 1.0 },
        }
    }

    /// Returns the ticks, in the unit.
    pub(super) fn ticks(&self) -> Vec<f64> {
        ticks::from_zero(self.dimension, self.end, 4.0)
    }

    /// Returns the label of a tick that is in the unit.
    pub(super) fn tick_label(&self, tick: f64) -> String {
        ticks::tick_label(self.dimension, tick, 1.0)
    }

    /// Returns the place of a value between 0 and 1.
    pub(super) fn value_position(&self, value: f64) -> f64 {
        value / self.unit.size / self.end
    }
}

/// Returns a name with a unit behind it, if there is one.
pub(super) fn with_unit(name: &str, unit: AxisUnit) -> String {
    if unit.name.is_empty() {
        name.to_owned()
    } else {
        format!("{name}, {}", unit.name)
    }
}

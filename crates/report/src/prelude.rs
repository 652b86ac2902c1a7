//! The names that most texts and pages use.

pub(crate) use crate::chart::Hue::{Blue, Green, Grey, Orange, Plum};
pub(crate) use crate::chart::SeriesForm::{Dots, Line, Steps};
pub(crate) use crate::chart::{
    ChartRow, FigureTable, HeatMap, Hue, Panel, Plot, PlotSeries, RowChart,
};
pub(crate) use fullpipe_record::{Direction, Limit, Measurement, Transport};
pub(crate) use fullpipe_units::{
    BitRate, ByteCount, Ratio, SegCount, Span, count_noun, median, printable_line,
};

/// A value that may be unknown, as text.
pub(crate) trait OptionText<T> {
    /// Returns the text of the value, or an empty one without a value.
    fn map_text(self, to_text: impl FnOnce(T) -> String) -> String;
}

impl<T> OptionText<T> for Option<T> {
    fn map_text(self, to_text: impl FnOnce(T) -> String) -> String {
        self.map(to_text).unwrap_or_default()
    }
}

//! The names that most texts and pages use.

pub(crate) use fullpipe_chart::Hue::{Blue, Green, Grey, Orange, Plum};
pub(crate) use fullpipe_chart::SeriesForm::{Dots, Line, Steps};
pub(crate) use fullpipe_chart::{
    ChartRow, FigureTable, HeatMap, Hue, Panel, Plot, PlotSeries, RowChart,
};
pub(crate) use fullpipe_record::{Direction, Limit, Measurement, Transport};
pub(crate) use fullpipe_units::{
    BitRate, ByteCount, Ratio, SegCount, Span, count_noun, median, printable_line,
};

pub(crate) use crate::page::{Article, PageSection, compact_table, max_percent, or_empty};
pub(crate) use crate::text::measurement::{accuracy_percent, round_trip, steady_or_mean_rate};
pub(crate) use crate::text::style::{
    bold_paragraph, bold_text, cut_text, dim_paragraph, dim_text, failure_paragraph, failure_text,
    heading_line, paragraph, success_text,
};
pub(crate) use crate::text::table::{TextTable, UNKNOWN, or_dash, pair_table};

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

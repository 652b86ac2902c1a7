//! The names that most texts and pages use.

pub(crate) use crate::chart::Hue::{Blue, Green, Grey, Orange, Plum};
pub(crate) use crate::chart::SeriesForm::{Dots, Line, Steps};
pub(crate) use crate::chart::{
    ChartRow, FigureTable, HeatMap, Hue, Panel, Plot, PlotSeries, RowChart, format_if, text_if,
};
pub(crate) use fullpipe_record::{Direction, Limit, Measurement, Transport};
pub(crate) use fullpipe_units::{
    BitRate, ByteCount, OptionText, Ratio, SegCount, Span, count_noun, median, printable_line,
};

//! The names that most texts use.

pub(crate) use super::measurement::{accuracy_percent, round_trip, tenths_of_percent};
pub(crate) use super::style::{
    bold_paragraph, bold_text, cut_text, dim_paragraph, dim_text, failure_paragraph, failure_text,
    heading_line, paragraph, success_text,
};
pub(crate) use super::table::{
    TextTable, UNKNOWN, cells, figure_text, nonzero_count, or_dash, pair_table, text_or,
};
pub(crate) use crate::prelude::*;

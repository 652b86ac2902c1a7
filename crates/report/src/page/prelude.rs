//! The names that most pages use.

pub(super) use super::{
    Article, PageSection, compact_table, count_each, fact, known_sections, max_percent, or_empty,
};
pub(super) use crate::text::prelude::*;

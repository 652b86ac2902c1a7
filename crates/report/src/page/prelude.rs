//! The names that most pages use.

pub(super) use super::{Article, PageSection, compact_table, max_percent, or_empty};
pub(super) use crate::text::prelude::*;

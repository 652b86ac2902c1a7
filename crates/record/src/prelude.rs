//! The names that most modules use.

pub(crate) use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};
pub(crate) use schemars::JsonSchema;
pub(crate) use serde::{Deserialize, Serialize};

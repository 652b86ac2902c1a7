//! The names that most commands use.

pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use clap::{Args, Subcommand};
pub(crate) use fullpipe_experiment::Interrupt;
#[cfg(target_os = "linux")]
pub(crate) use fullpipe_probe::Destination;
pub(crate) use fullpipe_record::{
    Content, Direction, Document, ErrorReport, Event, Measurement, Request, Transport,
};
pub(crate) use fullpipe_report as report;
pub(crate) use fullpipe_units::{
    BitRate, ByteCount, OptionText, Ratio, Span, count_noun, parse_quantity,
};

pub(crate) use super::RunCommand;
pub(crate) use super::keep::{KeepArguments, PlaceArgument};
#[cfg(target_os = "linux")]
pub(crate) use super::live::{InterruptFlags, LiveArgument};
pub(crate) use super::output::{JsonArgument, OutputArguments, OutputChoice};
pub(crate) use crate::failure::{
    FAILED, Failure, INTERRUPTED, LACKING, Result, USAGE, cannot, run_failure, usage_failure,
};
pub(crate) use crate::terminal::{OutputFormat, Terminal};
pub(crate) use crate::values::{
    integer_parser, parse_capacity, parse_duration, some_bytes, value_within,
};

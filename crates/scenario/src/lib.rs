//! Scenario files: what to run over which path between which hosts, and what must come out.
//!
//! [`Scenario::parse`] turns TOML text into a checked [`Scenario`], or into one sentence with file,
//! line and column. [`parse_path_flag`] and [`parse_host_flag`] read the same keys from the command
//! line: each key is defined once, so files and flags cannot drift apart. [`builtin_scenarios`] has
//! the scenarios that the program brings along.
//!
#![doc = include_str!("../../../docs/scenarios.md")]

mod bound;
mod builtin;
mod cross_traffic;
mod error;
mod flag;
mod grid;
mod host;
mod key;
mod path;
mod scenario;
mod section;
mod step;
mod trace;

pub use bound::{AccuracyBound, ExpectedRatio, ExpectedVerdict, RatioBound, StepBounds};
pub use builtin::{builtin_comparisons, builtin_grids, builtin_scenarios};
pub use cross_traffic::{CrossTraffic, LoadStart};
pub use error::{FileLocation, FlagError, ScenarioError};
pub use flag::{parse_host_flag, parse_path_flag, parse_path_flag_with};
pub use grid::{GridBounds, ScenarioGrid};
pub use path::{PathSpec, ReadFile, Stretches};
pub use scenario::{RequiredControl, Scenario};
pub use step::{ScenarioStep, StepRamp};

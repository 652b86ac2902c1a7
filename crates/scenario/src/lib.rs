//! Scenario files: what to run over which path between which hosts, and what must come out.
//!
//! [`Scenario::parse`] turns TOML text into a checked [`Scenario`], or into one sentence with file, line and column.
//! [`parse_path_flag`] and [`parse_host_flag`] read the same keys from the command line: each key is defined once, so
//! files and flags cannot drift apart. [`builtin`] has the scenarios that the program brings along.
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

pub use bound::{Bound, Expected, ExpectedVerdict, RatioBound, StepBounds};
pub use builtin::{builtin, builtin_comparisons, builtin_grids};
pub use cross_traffic::{CrossTraffic, Starts};
pub use error::{FlagError, Place, ScenarioError};
pub use flag::{parse_host_flag, parse_path_flag, parse_path_flag_with};
pub use grid::{Grid, GridBounds};
pub use path::{PathSpec, ReadFile, Stretches};
pub use scenario::{Control, Scenario};
pub use step::{Step, StepRamp};

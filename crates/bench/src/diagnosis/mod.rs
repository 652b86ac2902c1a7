//! The labelled bench of the diagnosis: transfers with one planted limit each, measured over a lab, and judged.
//!
//! [`cases()`] is the plan, [`Runner`] runs a case, [`Recorded`] is what is kept of it: judged again without a network, the
//! rules can be developed against it. [`Score`] counts, [`Accuracy`] holds the model against the same measurements.

mod cases;
mod matrix;
mod plant;
mod recorded;
mod run;

pub use cases::{Case, Label, cases};
pub use matrix::{Accuracy, COLUMNS, Column, Score, View};
pub use plant::Plant;
pub use recorded::{Proven, Recorded};
pub use run::{RunError, Runner};

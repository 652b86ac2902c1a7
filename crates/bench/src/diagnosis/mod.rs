//! The labelled bench of the diagnosis: transfers with one planted limit each, measured over a lab, and judged.
//!
//! [`cases`] is the plan, [`run`] runs a case of it, [`recorded`] is what is kept: judged again without a network,
//! rules can be developed against it. [`matrix`] counts, and holds the model against the same measurements.

mod cases;
mod command;
mod matrix;
mod plant;
mod recorded;
mod run;
mod ssh;

pub(crate) use command::Judging;

//! The labelled bench of the diagnosis: transfers with one planted limit each, measured over a lab,
//! and judged.
//!
//! [`cases`] is the plan and [`run`] runs one case. [`case_record`] stores the result in a file,
//! from which the verdict can be computed again without a network while a rule is developed.
//! [`matrix`] counts the right verdicts, and compares the model with the same measurements.
//! [`captures`] judges the packets of the same transfers, [`imperfect`] makes worse captures of
//! them, and [`in_virtual_time`] runs the cases that can be simulated.

mod captures;
mod case_record;
mod cases;
mod command;
mod imperfect;
mod in_virtual_time;
mod matrix;
mod plant;
mod run;
mod ssh;

pub(crate) use command::Judging;
pub(crate) use plant::{Quota, slowed};

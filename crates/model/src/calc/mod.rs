//! The reference calculator: computes the whole answer from the [`Inputs`](fullpipe_record::Inputs)
//! of a transfer and the settings of two hosts.
//!
//! * [`calculate`] answers one question: what follows from the inputs, the value of each quantity
//!   that the target needs, the changes that raise the predicted rate, and what-ifs;
//! * [`CombinationAxes`] answers many, one for each combination of ranges and lists;
//! * [`CalculationBatch`] answers as many as a file has rows, fast: CSV in, CSV out.
//!
//! Each of them asks the one predictor, [`predict`](crate::predict()), by way of one function that makes a path
//! and a request of the inputs. Text is read here ([`read_values`], [`WhatIfChange`]), so that a
//! flag, a what-if and a cell of a file take the same values and refuse the same nonsense.

mod axes;
mod batch;
mod calculate;
mod case;
mod critical;
mod error;
mod improvement;
mod needs;
mod range;
mod setting;
mod sizing;
mod target;
mod what_if;

pub use axes::CombinationAxes;
pub use batch::{BatchError, CalculationBatch};
pub use calculate::{PAUSE_ALONE, calculate, load_fault};
pub use case::{HostPair, load_of_inputs};
pub use error::InputError;
pub use range::{numbers_between, read_values};
pub use setting::{QuantitySetting, READABLE};
pub use what_if::WhatIfChange;

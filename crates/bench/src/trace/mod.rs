//! `bench trace`: the speed at which captures are read.
//!
//! [`made`] makes captures in memory, and [`command`] lets programs read them in turn.

mod command;
mod made;

pub(crate) use command::CaptureReading;

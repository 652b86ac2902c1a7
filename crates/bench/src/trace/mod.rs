//! `bench trace`: the speed at which captures are read.
//!
//! [`generate`] makes captures in memory, [`reader`] runs a program over one of them on one
//! processor, [`case`] says which captures there are and who reads them, and [`command`] does that
//! in turn and prints it.

mod case;
mod command;
mod frame;
mod generate;
mod reader;

pub(crate) use command::Reading;

//! `bench simulator`: transfers over the lab's path with the machine's own kernel, recorded, and the same transfers in
//! virtual time: how far the model is from the kernel.

mod cell;
mod command;
mod course;
mod ranks;
mod recorded;
mod summary;

pub(crate) use command::Simulating;

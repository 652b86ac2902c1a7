//! Real, unmodified programs that move one file from one host to another, side by side.
//!
//! * In: programs of a closed list ([`TransferProgram`]), a command of the user's, and either a
//!   scenario, whose path and settings are emulated ([`compare_programs`]), or another host with
//!   its servers ([`compare_with_servers`]).
//! * Out: for each, the rate as a user sees it, its parts, the processor time, the prediction, and
//!   the limit that the kernel's figures show at the end that was watched.
//!
//! In a lab, servers, keys, configurations and files live on a file system of its own namespace and
//! end with it, however that comes. Files elsewhere are in a folder that a script of its own
//! removes.

mod error;
mod figures;
mod findings;
mod folder;
mod hosts;
mod in_lab;
mod local;
mod participant;
mod prediction;
mod program;
#[cfg(test)]
mod recorded_test;
mod rounds;
mod servers;
mod simulation;
mod transfer;

pub use error::CompareError;
pub use in_lab::{ComparisonRequest, compare_programs};
pub use program::TransferProgram;
pub use servers::{RemoteServers, compare_with_servers};

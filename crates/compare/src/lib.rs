//! Real, unmodified programs that move one file from one host of a lab to the other, side by side.
//!
//! * In: a scenario, whose path and settings are used, and programs of a closed list ([`Program`]).
//! * Out: for each, the rate as a user sees it, its parts, the prediction, and the limit that the kernel's figures show
//!   at the host that sends ([`compare`]).
//!
//! Servers, keys, configurations and files live on a file system of the lab's own namespace and end with it, however
//! that comes.

mod compare;
mod error;
mod figures;
mod findings;
mod hosts;
mod program;

pub use compare::{Wishes, compare};
pub use error::CompareError;
pub use program::Program;

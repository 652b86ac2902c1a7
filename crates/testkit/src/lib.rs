//! Support for tests that need a real kernel, a real path or a real peer.
//!
//! Such a test names what it needs with [`require!`]: where the machine lacks it, the test skips,
//! says why on standard error and in `target/skipped.txt`, and fails instead if
//! `FULLPIPE_REQUIRE=all`.

mod browser;
mod connections;
mod content;
mod deadline;
mod false_server;
pub mod http2;
mod lateness;
mod mark;
mod need;
mod network;
mod outcome;
mod path;
mod postgres;
mod process;
mod program;
mod relay;
mod secret;
mod slurm;
mod ssh;
mod validity;
pub mod websocket;

pub use browser::Browser;
pub use connections::{Carried, ManyConnections, allow_descriptors};
pub use content::{make_digits, random_bytes, random_digits};
pub use deadline::within;
pub use false_server::{FalseServer, Part};
pub use lateness::lateness;
pub use mark::Mark;
pub use need::{Need, missing, note_skipped, npm_file};
pub use network::{free_port, loopback_addresses, network_sysctls, wait_for_listener};
pub use outcome::{assert_says, document, sentence};
pub use path::{PathLock, load_slot, path};
pub use postgres::Postgres;
pub use process::{Running, fullpipe};
pub use program::write_program;
pub use relay::{Fate, Heading, Relay};
pub use secret::write_secret;
pub use slurm::Slurm;
pub use ssh::SshServer;
pub use validity::valid_within;

/// Ends the test here, skipped with a reason, unless the machine has everything named:
/// `require!(Lab, Iperf3)`.
#[macro_export]
macro_rules! require {
    ($($need:ident),+ $(,)?) => {
        if $crate::missing(concat!(module_path!(), ":", line!()), &[$($crate::Need::$need),+]) {
            return;
        }
    };
}

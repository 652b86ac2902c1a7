//! TCP connections of other programs, sampled through the kernel's figures without sending a byte.
//!
//! * In: a process, a program started to be watched, or one connection ([`WatchSubject`]).
//!   [`watch_others`] samples its connections from `/proc` and `sock_diag` until the caller ends
//!   it.
//! * Or text of `ss` from any host ([`read_listing`]), and of counters ([`CounterReader`]).
//! * Out: [`WatchedConnections`], from which [`watched_transfers`] makes the evidence of each
//!   transfer, for `diagnose` to judge.
//!
//! Watching needs Linux, and permission to read the process's descriptors
//! ([`WatchError::Forbidden`] where there is none).

#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod connections;
mod counters;
mod evidence;
mod listing;
mod readings;

pub use connections::WatchedConnections;
pub use counters::{CounterReader, CounterSource, HostCounters};
pub use evidence::{carries_data, last_data, moved_too_briefly, watched_transfers};
pub use listing::{ConnectionListing, read_listing};

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod error;
        mod machines;
        mod open;
        mod process;
        mod read_file;
        mod watch;

        pub use error::WatchError;
        pub use open::open_connections;
        pub use process::process_tree;
        pub use read_file::{ReadFile, largest_read_file};
        pub use watch::{WatchProgress, WatchSubject, watch_others};
    }
}

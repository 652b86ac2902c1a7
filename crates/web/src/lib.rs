//! The archive, and what runs now, in a browser; and metrics of it for other programs.
//!
//! Pages are made here around the articles of the crate `report`, whole and without
//! script; a script adds what moves. Whoever asks must name this host ([`HostList`]) and know the
//! token ([`AccessToken`]); what changes something must come from a page of this server. Tests are
//! run by this program as a child, one at a time, towards hosts that the archive or the operator
//! names.

#![expect(
    clippy::format_push_string,
    reason = "a page is not on any hot path, and this reads best"
)]

mod access;
mod answer;
mod api;
mod archive;
mod connections;
mod fleet;
mod live;
mod metrics;
mod page;
mod route;
mod runs;
mod server;

pub use access::{AccessToken, HostList};
pub use fleet::{ControllerOptions, serve_fleet};
pub use metrics::archive_metrics;
pub use runs::TestProgram;
pub use server::{WebOptions, serve_pages};

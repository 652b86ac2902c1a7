//! Measurements ([`Measurement`](fullpipe_record::Measurement)) of the path to a target, over the
//! protocols of iperf3 and iperf2, and the server at the other end.
//!
//! The control connections run on a single-threaded runtime that this crate starts; the data runs
//! on threads of `load`.

mod client;
mod destination;
mod error;
#[cfg(test)]
mod fixture;
mod iperf2;
mod kept_intervals;
mod machine;
mod peer_report;
mod placement;
mod progress;
mod results;
mod server;
mod so_far;
mod streams;
mod summary;
mod trace;

pub use client::{TestEvent, measure_transfer, watch_closely, watch_transfer};
pub use destination::Destination;
pub use error::{ProbeError, ServeError};
pub use fullpipe_load::{LocalEndpoint, StorageConfig};
pub use iperf2::measure_iperf2;
pub use server::{
    AdmissionQuota, Printer, ServeOptions, ServerEvent, ServerLimits, TestText, serve_clients,
};
pub use so_far::{StreamSnapshot, TestSnapshot};
pub use trace::trace_route;

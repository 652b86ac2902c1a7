//! Measurements ([`Measurement`](fullpipe_record::Measurement)) of the path to a target, over the
//! protocols of iperf3 and iperf2, and the server at the other end.
//!
//! The control connections run on a single-threaded runtime that this crate starts; the data runs
//! on threads of `engine`.

mod call_back;
mod client;
mod destination;
mod echo;
mod engine;
mod error;
#[cfg(test)]
mod fixture;
mod http2;
mod machine;
mod progress;
mod results;
mod route;
mod server;
mod web;

pub use call_back::{CallBack, RequestedCalls};
pub use client::{
    TestEvent, measure_iperf2, measure_ndt7, measure_responsiveness, measure_transfer,
    watch_closely, watch_transfer, watch_until,
};
pub use destination::Destination;
pub use echo::{EchoedMinute, echo_minutes};
pub use engine::{LocalEndpoint, PrepareError, StorageConfig};
pub use error::{ProbeError, ServeError};
pub use progress::{StreamSnapshot, TestSnapshot};
pub use route::{changed_syn_quotes, trace_route};
pub use server::{
    AdmissionQuota, Printer, ResultPage, ServeOptions, ServerEvent, ServerLimits, TestText,
    WebJudge, WebOptions, WebQuotas, serve_clients, serve_opened,
};

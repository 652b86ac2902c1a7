//! The client of an iperf3 server: runs the protocol's state machine over real connections.

mod connect;
mod failure;
mod iperf2;
mod kept_intervals;
mod ndt7;
mod peer_report;
mod placement;
mod request;
mod responsiveness;
mod session;
mod so_far;
mod streams;
mod web_peer;

pub use iperf2::measure_iperf2;
pub use ndt7::measure_ndt7;
pub use responsiveness::measure_responsiveness;

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use fullpipe_control::single_threaded_runtime;
use fullpipe_lab::PathWitness;
use fullpipe_record::{ConnectedTest, Interval, Measurement, Request};

use fullpipe_units::ByteCount;

use crate::destination::Destination;
use crate::error::ProbeError;
use crate::progress::TestSnapshot;
use session::run_test;
use so_far::ReportSchedule;

/// An event of a test, reported as it happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TestEvent<'e> {
    /// The data connections are open, and data begins to flow.
    Connected(&'e ConnectedTest),
    /// An interval has passed; if data goes both ways, that of the upload comes before that of the
    /// download.
    Interval(&'e Interval),
    /// A tenth of a second has passed; reported by [`watch_closely`] and
    /// [`watch_until`] only.
    Snapshot(&'e TestSnapshot),
    /// The measurement as if the test ended now, once a second; reported by [`watch_closely`] and
    /// [`watch_until`] only.
    /// Its samples are thinned, and its round-trip time without load is the least so far.
    SoFar(&'e Measurement),
}

/// Measures against an iperf3 server, fullpipe's or any other. An interrupt ends the test cleanly
/// at both ends; the measurement then holds what was counted so far.
///
/// # Errors
/// Fails if the server cannot be reached, breaks the protocol or ends the test before data flows,
/// or if this host lacks what was asked for.
pub fn measure_transfer(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    watch_transfer(destination, request, interrupt, &mut |event| {
        if let TestEvent::Interval(interval) = event {
            progress(interval);
        }
    })
}

/// Measures as [`measure_transfer`] does, and reports all events.
///
/// # Errors
/// Fails as [`measure_transfer`] does.
pub fn watch_transfer(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    start_test(destination, request, interrupt, report, None)
}

/// Measures as [`measure_transfer`] does, and reports all events and how the test goes between
/// them. The reports come from the thread of the control connection, so what receives them should
/// hand them on.
///
/// # Errors
/// Fails as [`measure_transfer`] does.
pub fn watch_closely(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    let schedule = ReportSchedule::new(None);
    start_test(destination, request, interrupt, report, Some(schedule))
}

/// Measures as [`watch_closely`] does, and ends the test as if its time were over once `enough` is
/// set. [`TestEvent::SoFar`] is reported five times a second.
///
/// # Errors
/// Fails as [`measure_transfer`] does.
pub fn watch_until(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    enough: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    let schedule = ReportSchedule::new(Some(enough));
    start_test(destination, request, interrupt, report, Some(schedule))
}

fn start_test(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
    schedule: Option<ReportSchedule<'_>>,
) -> Result<Measurement, ProbeError> {
    let runtime = single_threaded_runtime();
    let runtime = runtime.map_err(ProbeError::from_io("start the client"))?;
    let witness = PathWitness::begin_witness();
    let result = runtime.block_on(run_test(destination, request, interrupt, report, schedule));
    // A name server that does not answer blocks a thread of the runtime, which is not waited for.
    runtime.shutdown_background();
    let over_path = witness.map(PathWitness::finish_witness).unwrap_or_default();
    let mut measurement = result?;
    measurement.validity = over_path.with_reasons(measurement.validity.broken);
    Ok(measurement)
}

/// Returns the maximum segment size of a connection, if the kernel reports it.
pub(crate) fn segment_size(connection: impl AsFd) -> Option<ByteCount> {
    fullpipe_sys::tcp_info(connection).ok()?.snd_mss
}

use std::sync::atomic::AtomicBool;

use fullpipe_record::RouteReport;
use tracing::{debug, info};

use crate::destination::Destination;
use crate::error::ProbeError;

/// Returns the routers on the way to the first address of `destination` and the path MTU, within
/// five seconds. An interrupt ends the trace; the report then holds what was found so far.
///
/// # Errors
/// Fails if the name has no address, or this host cannot send to it.
pub fn trace_route(
    destination: &Destination,
    interrupt: &AtomicBool,
) -> Result<RouteReport, ProbeError> {
    let addresses = destination.resolve_host()?;
    let target = addresses.first().ok_or(ProbeError::Interrupted)?.ip();
    info!(%target, "tracing the route");
    let route = fullpipe_route::trace_route(target, &destination.local, interrupt)?;
    debug!(?route, "traced the route");
    Ok(route)
}

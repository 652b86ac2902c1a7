use std::sync::atomic::AtomicBool;

use fullpipe_record::RouteReport;
use tracing::{debug, info};

use crate::destination::Destination;
use crate::error::ProbeError;

/// Finds the routers on the way to the first address of `destination`, and the path MTU, within five seconds. An interrupt
/// ends it with what there is.
///
/// # Errors
/// If the name has no address, or this host sends nothing there.
pub fn trace(destination: &Destination, interrupt: &AtomicBool) -> Result<RouteReport, ProbeError> {
    let addresses = destination.resolve()?;
    let target = addresses.first().ok_or(ProbeError::Interrupted)?.ip();
    info!(%target, "tracing the route");
    let route = fullpipe_route::trace(target, &destination.local, interrupt)?;
    debug!(?route, "traced the route");
    Ok(route)
}

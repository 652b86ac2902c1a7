//! The shares that a connection takes of the limits of a relay.

use fullpipe_control::ClientPlace;
use tokio::sync::OwnedSemaphorePermit;

/// Shares of the limits that a client uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct Quotas {
    _permit: Option<OwnedSemaphorePermit>,
    _place: Option<ClientPlace>,
}

impl Quotas {
    /// Holds a share of all connections, and one of those of the client's address; a far relay, which near ones call,
    /// counts by no address.
    pub(crate) const fn new(permit: Option<OwnedSemaphorePermit>, place: Option<ClientPlace>) -> Self {
        Self { _permit: permit, _place: place }
    }
}

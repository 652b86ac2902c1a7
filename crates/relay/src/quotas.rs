//! The shares that a connection takes of the limits of a relay.

use fullpipe_control::{ClientPlace, PendingPlace};
use tokio::sync::OwnedSemaphorePermit;

/// Callers of a far relay at once that have not yet proved who they are, or wait for room.
pub(crate) const MAX_PENDING: usize = 1024;

/// Reason for which a client that has a place loses it.
pub(crate) const DISPLACED: &str = "it had sent nothing when another client needed its place";

/// Shares of the limits that a client uses, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClientQuotas {
    /// One of all connections.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
    /// One of those of a client's address. A far relay, which near ones call, counts by no address.
    pub(crate) _place: Option<ClientPlace>,
    /// Its place among clients that have sent nothing.
    pub(crate) silent: Option<PendingPlace>,
}

impl ClientQuotas {
    /// Notes that the client has sent something: it keeps its place from now on.
    pub(crate) fn note_first_byte(&mut self) {
        self.silent = None;
    }

    /// Returns true if the client has sent nothing, and another one has its place.
    pub(crate) fn is_displaced(&mut self) -> bool {
        self.silent.as_mut().is_some_and(PendingPlace::is_lost)
    }

    /// Returns the result of `work`; `None` as soon as the client is displaced.
    pub(crate) async fn unless_displaced<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        match &mut self.silent {
            Some(silent) => silent.unless_lost(work).await,
            None => Some(work.await),
        }
    }
}

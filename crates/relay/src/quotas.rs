//! The shares that a connection takes of the limits of a relay.

use std::cell::{Cell, RefCell};

use fullpipe_control::{ClientPlace, PendingPlace};
use tokio::sync::OwnedSemaphorePermit;

/// Callers of a far relay at once that have not yet proved who they are, or wait for room.
pub(crate) const MAX_PENDING: usize = 1024;

/// Reason for which a client that has a place loses it.
pub(crate) const DISPLACED: &str = "it had sent nothing when another client needed its place";

/// Shares of the limits that a client uses, until this is dropped.
#[derive(Default)]
pub(crate) struct ClientQuotas {
    /// One of all connections.
    pub _permit: Option<OwnedSemaphorePermit>,
    /// One of those of a client's address. A far relay, which near ones call, counts by no address.
    pub _place: Option<ClientPlace>,
    /// Its place among clients that have sent nothing.
    pub silent: Option<PendingPlace>,
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

/// Room at a far relay for connections that near ones keep in reserve. It belongs to all of them:
/// whichever has a client first takes it, so that those in reserve keep none from its target.
#[derive(Default)]
pub(crate) struct ReservedRoom {
    connections: Cell<usize>,
    /// At most one for each of the connections.
    permits: RefCell<Vec<OwnedSemaphorePermit>>,
}

/// A connection in reserve, until it is dropped.
pub(crate) struct ReservedConnection<'r> {
    room: &'r ReservedRoom,
}

impl ReservedRoom {
    /// Adds a connection, for which there may be room.
    pub(crate) fn add_connection(
        &self,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ReservedConnection<'_> {
        self.connections.update(|connections| connections + 1);
        self.permits.borrow_mut().extend(permit);
        ReservedConnection { room: self }
    }
}

impl ReservedConnection<'_> {
    /// Returns the room of any connection in reserve; `None` if none has room.
    pub(crate) fn take_room(self) -> Option<OwnedSemaphorePermit> {
        self.room.permits.borrow_mut().pop()
    }
}

impl Drop for ReservedConnection<'_> {
    fn drop(&mut self) {
        self.room.connections.update(|connections| connections - 1);
        let left = self.room.connections.get();
        self.room.permits.borrow_mut().truncate(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// A near relay with as many clients as a far one has room for found none for the last ones:
    /// its connections in reserve had it.
    #[test]
    fn a_connection_in_reserve_leaves_its_room_to_one_with_a_client_and_gives_it_back() {
        let permits = Arc::new(Semaphore::new(2));
        let take = || Arc::clone(&permits).try_acquire_owned().ok();
        let room = ReservedRoom::default();
        let [first, second, third] = [(); 3].map(|()| room.add_connection(take()));
        assert_eq!(permits.available_permits(), 0);
        let of_third = third.take_room().expect("that of another");
        drop(first);
        assert_eq!(permits.available_permits(), 0, "the second still has room");
        drop(second);
        assert_eq!(permits.available_permits(), 1);
        assert!(room.add_connection(None).take_room().is_none());
        drop(of_third);
        assert_eq!(permits.available_permits(), 2);
    }
}

//! The connections of the clients of each address, and how many there may be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use fullpipe_control::client_prefix;
use tokio::sync::OwnedSemaphorePermit;

/// Connections by the address of their caller (IPv6: by /64 network).
#[derive(Debug, Clone)]
pub(crate) struct Callers {
    max_each: u32,
    counts: Arc<Mutex<HashMap<u128, u32>>>,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Caller {
    all: Callers,
    prefix: u128,
}

/// Shares of the limits that a client uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct Quotas {
    _permit: Option<OwnedSemaphorePermit>,
    _caller: Option<Caller>,
}

impl Quotas {
    /// Holds a share of all connections, and one of those of the caller's address; a far relay, which near ones call,
    /// counts by no address.
    pub(crate) const fn new(permit: Option<OwnedSemaphorePermit>, caller: Option<Caller>) -> Self {
        Self { _permit: permit, _caller: caller }
    }
}

impl Callers {
    /// Returns the count of at most `max_each` connections of each address.
    pub(crate) fn of_each(max_each: u32) -> Self {
        Self { max_each, counts: Arc::default() }
    }

    /// Counts a connection; `None` if there are too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<Caller> {
        let prefix = client_prefix(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.get(&prefix).copied().unwrap_or(0);
        if own >= self.max_each {
            return None;
        }
        counts.insert(prefix, own + 1);
        Some(Caller { all: self.clone(), prefix })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut counts = self.all.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.prefix) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others_and_gives_its_own_back() {
        let (callers, one) = (Callers::of_each(3), IpAddr::from([192, 0, 2, 1]));
        let mut admitted: Vec<_> = (0..3).map(|_| callers.admit(one).unwrap()).collect();
        assert!(callers.admit(one).is_none() && callers.admit(IpAddr::from([192, 0, 2, 2])).is_some());
        admitted.pop();
        assert!(callers.admit(one).is_some());
    }
}

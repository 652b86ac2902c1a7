//! Callers that have not yet proved who they are, or wait for room, and how many of them there may be.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use fullpipe_control::client_prefix;

/// Most callers that are pending, and most of one address (IPv6: one /64 network).
pub(crate) const MAX_PENDING: u32 = 1024;
const EACH: u32 = 256;

/// The callers that are pending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Rc<RefCell<HashMap<u128, u32>>>);

/// A pending caller, until it is dropped.
#[derive(Debug)]
pub(crate) struct PendingCaller {
    all: Pending,
    prefix: u128,
}

impl Pending {
    /// Counts a caller; `None` if there are too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<PendingCaller> {
        let prefix = client_prefix(address);
        let mut callers = self.0.borrow_mut();
        if callers.values().sum::<u32>() >= MAX_PENDING || callers.get(&prefix).is_some_and(|own| *own >= EACH) {
            return None;
        }
        *callers.entry(prefix).or_default() += 1;
        Some(PendingCaller { all: self.clone(), prefix })
    }
}

impl Drop for PendingCaller {
    fn drop(&mut self) {
        let mut callers = self.all.0.borrow_mut();
        if let Some(own) = callers.get_mut(&self.prefix) {
            *own -= 1;
            if *own == 0 {
                callers.remove(&self.prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others_and_gives_its_own_back() {
        let pending = Pending::default();
        let one = IpAddr::from([192, 0, 2, 1]);
        let mut callers: Vec<_> = (0..EACH).map(|_| pending.admit(one).unwrap()).collect();
        assert!(pending.admit(one).is_none() && pending.admit(IpAddr::from([192, 0, 2, 2])).is_some());
        callers.pop();
        assert!(pending.admit(one).is_some());
    }
}

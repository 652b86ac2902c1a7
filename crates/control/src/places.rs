//! Bounds of what clients may have at once, in all and from each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::network::client_prefix;
use fullpipe_sys::lock;

/// Places that any address may take of the reserve: the next client may come before the last one
/// has gone.
const FEW: u32 = 2;

/// Places that clients take.
#[derive(Debug)]
pub struct ClientPlaces {
    taken: Mutex<HashMap<u128, u32>>,
    max: u32,
    max_each: u32,
    /// Clients wait where all are taken.
    waits: bool,
}

/// The reason for which there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// All are taken.
    ForAll,
    /// The places of this client's address are taken; of IPv6, those of its /64 network.
    ForAddress,
}

/// Returns the part of the quota `total` that is available to an address which would use `own` of
/// it. An eighth is a reserve, of which no address takes more than a sixteenth, unless it is open
/// to all (`is_open`).
pub const fn available_quota(total: u32, own: u32, is_open: bool) -> u32 {
    let reserve = total / 8;
    if is_open || own <= 1 || own <= reserve / 16 {
        total
    } else {
        total - reserve
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub struct ClientPlace {
    places: Arc<ClientPlaces>,
    prefix: u128,
}

impl ClientPlaces {
    /// Returns `max` places, of which clients of one address may take `max_each`. An eighth is left
    /// to addresses that have few, unless one may take all.
    pub fn new(max: u32, max_each: u32) -> Arc<Self> {
        Self::from_limits(max, max_each, false)
    }

    /// Returns places of a server at which clients wait where all are taken, and so can never be
    /// too many.
    pub fn with_waiting(max: u32, max_each: u32) -> Arc<Self> {
        Self::from_limits(max, max_each, true)
    }

    fn from_limits(max: u32, max_each: u32, waits: bool) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            max,
            max_each,
            waits,
        })
    }

    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn take_place(self: &Arc<Self>, address: IpAddr) -> Result<ClientPlace, NoPlace> {
        self.take_besides(address, 0)
    }

    /// Does the same where clients with so many places give way to others, and so leave all a
    /// reserve.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn take_besides(
        self: &Arc<Self>,
        address: IpAddr,
        yielding: usize,
    ) -> Result<ClientPlace, NoPlace> {
        let mut taken = self.lock_counts();
        let all = taken.values().sum::<u32>();
        if all >= self.max && !self.waits {
            return Err(NoPlace::ForAll);
        }
        let prefix = client_prefix(address.to_canonical());
        let of_one = taken.get(&prefix).copied().unwrap_or_default();
        let is_exempt = of_one < FEW || self.max_each >= self.max;
        let available = available_quota(self.max, of_one + 1, is_exempt);
        let kept = all.saturating_sub(u32::try_from(yielding).unwrap_or(u32::MAX));
        if of_one >= self.max_each || available < self.max && kept >= available {
            return Err(NoPlace::ForAddress);
        }
        taken.insert(prefix, of_one + 1);
        Ok(ClientPlace {
            places: Arc::clone(self),
            prefix,
        })
    }

    /// Returns true if no client has a place.
    pub fn are_free(&self) -> bool {
        self.lock_counts().is_empty()
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<u128, u32>> {
        lock(&self.taken)
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock_counts();
        if let Some(of_one) = taken.get_mut(&self.prefix) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.remove(&self.prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_for_each_address() {
        let places = ClientPlaces::new(3, 2);
        let take = |last: u8| places.take_place([192, 0, 2, last].into());
        let two = [1, 1].map(|last| take(last).unwrap());
        assert_eq!(take(1).unwrap_err(), NoPlace::ForAddress);
        let third = take(2).unwrap();
        assert_eq!(take(3).unwrap_err(), NoPlace::ForAll);
        drop((two, third));
        assert!(places.are_free());
        let v6 = |text: &str| places.take_place(text.parse().unwrap());
        let _two = [v6("2001:db8::1").unwrap(), v6("2001:db8::2").unwrap()];
        assert!(v6("2001:db8::3").is_err() && v6("2001:db8:0:1::3").is_ok());
    }

    #[test]
    fn one_address_leaves_room_for_others_and_gives_its_own_back() {
        let (places, one) = (ClientPlaces::new(u32::MAX, 3), IpAddr::from([192, 0, 2, 1]));
        let mut taken: Vec<_> = (0..3).map(|_| places.take_place(one).unwrap()).collect();
        assert!(
            places.take_place(one).is_err()
                && places.take_place(IpAddr::from([192, 0, 2, 2])).is_ok()
        );
        taken.pop();
        assert!(places.take_place(one).is_ok());
    }

    /// Five addresses took all places of a relay, of which one might have a quarter.
    #[test]
    fn a_few_addresses_leave_places_to_others() {
        for max in [160, 400, 4096] {
            for places in [
                ClientPlaces::new(max, max / 4),
                ClientPlaces::with_waiting(max, max / 4),
            ] {
                let address = |network, last| IpAddr::from([192, 0, network, last]);
                let take = |at| std::iter::from_fn(move || Some(at));
                let taken: Vec<_> = (1..=9)
                    .flat_map(|last| {
                        take(address(2, last)).map_while(|at| places.take_place(at).ok())
                    })
                    .collect();
                let reserve = max / 8;
                assert!(
                    (max - reserve..max - reserve / 4).contains(&(taken.len() as u32)),
                    "{max}: {}",
                    taken.len()
                );
                // Those whose clients are silent are no reason to refuse anybody.
                assert!(
                    places.take_place(address(2, 9)).is_err()
                        && places.take_besides(address(2, 9), max as usize / 4).is_ok()
                );
                let newcomers: Vec<_> = (0..reserve / 4)
                    .map(|last| places.take_place(address(3, last as u8)))
                    .collect();
                assert!(newcomers.iter().all(Result::is_ok), "{max}");
            }
        }
    }

    #[test]
    fn at_a_server_at_which_clients_wait_only_an_address_can_have_too_many() {
        let places = ClientPlaces::with_waiting(10, 10);
        let taken: Vec<_> = (0..10)
            .map(|_| places.take_place(IpAddr::from([192, 0, 2, 1])).unwrap())
            .collect();
        assert_eq!(
            places.take_place(IpAddr::from([192, 0, 2, 1])).unwrap_err(),
            NoPlace::ForAddress
        );
        assert!(places.take_place(IpAddr::from([192, 0, 2, 2])).is_ok() && taken.len() == 10);
    }
}

//! Bounds of what clients may have at once, in all and from each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::network::client_prefix;

/// Places that clients take.
#[derive(Debug)]
pub struct ClientPlaces {
    taken: Mutex<HashMap<u128, u32>>,
    max: u32,
    max_each: u32,
}

/// The reason for which there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// All are taken.
    ForAll,
    /// The places of this client's address are taken; of IPv6, those of its /64 network.
    ForAddress,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub struct ClientPlace {
    places: Arc<ClientPlaces>,
    prefix: u128,
}

impl ClientPlaces {
    /// Returns `max` places, of which clients of one address may take `max_each`.
    pub fn new(max: u32, max_each: u32) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), max, max_each })
    }

    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<ClientPlace, NoPlace> {
        let mut taken = self.lock();
        if taken.values().sum::<u32>() >= self.max {
            return Err(NoPlace::ForAll);
        }
        let prefix = client_prefix(address.to_canonical());
        let of_one = taken.get(&prefix).copied().unwrap_or_default();
        if of_one >= self.max_each {
            return Err(NoPlace::ForAddress);
        }
        taken.insert(prefix, of_one + 1);
        Ok(ClientPlace { places: Arc::clone(self), prefix })
    }

    /// Returns true if no client has a place.
    pub fn are_free(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
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
        let take = |last: u8| places.take([192, 0, 2, last].into());
        let two = [1, 1].map(|last| take(last).unwrap());
        assert_eq!(take(1).unwrap_err(), NoPlace::ForAddress);
        let third = take(2).unwrap();
        assert_eq!(take(3).unwrap_err(), NoPlace::ForAll);
        drop((two, third));
        assert!(places.are_free());
        let v6 = |text: &str| places.take(text.parse().unwrap());
        let _two = [v6("2001:db8::1").unwrap(), v6("2001:db8::2").unwrap()];
        assert!(v6("2001:db8::3").is_err() && v6("2001:db8:0:1::3").is_ok());
    }

    #[test]
    fn one_address_leaves_room_for_others_and_gives_its_own_back() {
        let (places, one) = (ClientPlaces::new(u32::MAX, 3), IpAddr::from([192, 0, 2, 1]));
        let mut taken: Vec<_> = (0..3).map(|_| places.take(one).unwrap()).collect();
        assert!(places.take(one).is_err() && places.take(IpAddr::from([192, 0, 2, 2])).is_ok());
        taken.pop();
        assert!(places.take(one).is_ok());
    }
}

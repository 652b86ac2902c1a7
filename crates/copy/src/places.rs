//! Bounds of what clients may have at once, in all and from each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use fullpipe_control::client_prefix;

use crate::locks::lock;

/// Places that clients take.
#[derive(Debug)]
pub(crate) struct Places {
    taken: Mutex<HashMap<u128, u32>>,
    most: u32,
    most_of_one: u32,
}

/// The reason for which there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    ForAll,
    /// For the address; of IPv6, for its /64 network.
    ForAddress,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    prefix: u128,
}

impl Places {
    pub(crate) fn new(most: u32, most_of_one: u32) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), most, most_of_one })
    }

    /// Takes a place for a client at this address.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let mut taken = lock(&self.taken);
        if taken.values().sum::<u32>() >= self.most {
            return Err(Full::ForAll);
        }
        let prefix = client_prefix(address.to_canonical());
        let of_one = taken.entry(prefix).or_default();
        if *of_one >= self.most_of_one {
            return Err(Full::ForAddress);
        }
        *of_one += 1;
        Ok(Place { places: Arc::clone(self), prefix })
    }

    /// Returns true if nobody has one.
    pub(crate) fn are_free(&self) -> bool {
        lock(&self.taken).is_empty()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        if let Some(of_one) = taken.get_mut(&self.prefix) {
            *of_one -= 1;
        }
        taken.retain(|_, of_one| *of_one > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_for_each_address() {
        let places = Places::new(3, 2);
        let take = |last: u8| places.take([192, 0, 2, last].into());
        let two = [1, 1].map(|last| take(last).unwrap());
        assert_eq!(take(1).unwrap_err(), Full::ForAddress);
        let third = take(2).unwrap();
        assert_eq!(take(3).unwrap_err(), Full::ForAll);
        drop((two, third));
        assert!(places.are_free());
        let v6 = |text: &str| places.take(text.parse().unwrap());
        let _two = [v6("2001:db8::1").unwrap(), v6("2001:db8::2").unwrap()];
        assert!(v6("2001:db8::3").is_err() && v6("2001:db8:0:1::3").is_ok());
    }
}

//! The places of connections, by their keys.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::Key;

/// The place of the latest connection of each key, by keyed hashes: whoever sends the packets must not choose them.
///
/// Keys stay with the connections. What is here is so small that the caches of a processor hold it for a hundred
/// thousand connections, and connections are read only once they are needed.
#[derive(Debug, Default)]
pub(crate) struct Places {
    hasher: RandomState,
    table: HashTable<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    mark: Mark,
    index: u32,
}

/// A half of the hash of a key. Few keys share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u32);

impl Mark {
    /// Any mark, for a place that waits for one.
    pub(crate) const ZERO: Self = Self(0);

    /// Returns the mark spread over the bits that a table goes by: the lowest and the uppermost.
    fn spread(self) -> u64 {
        /// 2^64 by the golden ratio (Knuth, volume 3, 6.4).
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        u64::from(self.0).wrapping_mul(SPREAD)
    }
}

impl Places {
    /// Returns the mark of a key.
    #[inline]
    pub(crate) fn mark(&self, key: &Key) -> Mark {
        Mark((self.hasher.hash_one(key) >> 32) as u32)
    }

    /// Returns the place of a connection that is most likely that of the key with this mark, if there is one.
    #[inline]
    pub(crate) fn likely(&self, mark: Mark) -> Option<usize> {
        self.table.find(mark.spread(), |place| place.mark == mark).map(|place| place.index as usize)
    }

    /// Returns the place of the connection of `key`, which `is_its` is true for.
    pub(crate) fn find(&self, key: &Key, is_its: impl Fn(usize) -> bool) -> Option<usize> {
        let mark = self.mark(key);
        let is_same = |place: &Place| place.mark == mark && is_its(place.index as usize);
        self.table.find(mark.spread(), is_same).map(|place| place.index as usize)
    }

    /// Sets the place of the connection of `key`. `is_its` is true for the one that it had before.
    pub(crate) fn set(&mut self, key: &Key, index: usize, is_its: impl Fn(usize) -> bool) {
        let place = Place { mark: self.mark(key), index: index as u32 };
        let is_same = |before: &Place| before.mark == place.mark && is_its(before.index as usize);
        match self.table.entry(place.mark.spread(), is_same, |place| place.mark.spread()) {
            Entry::Occupied(mut before) => *before.get_mut() = place,
            Entry::Vacant(empty) => drop(empty.insert(place)),
        }
    }

    /// Returns the places of all connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> {
        self.table.iter().map(|place| place.index as usize)
    }

    /// Moves each connection to the place that `moved` has for it, and forgets those without one.
    pub(crate) fn move_all(&mut self, moved: impl Fn(usize) -> Option<usize>) {
        self.table.retain(|place| moved(place.index as usize).map(|index| place.index = index as u32).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_the_same_mark_have_places_of_their_own() {
        let mut places = Places::default();
        let mark = Mark(7);
        for index in 0..3 {
            places.table.insert_unique(mark.spread(), Place { mark, index }, |place| place.mark.spread());
        }
        let found = |wanted: u32| {
            let is_same = |place: &Place| place.mark == mark && place.index == wanted;
            places.table.find(mark.spread(), is_same).map(|place| place.index)
        };
        assert_eq!([0, 1, 2, 3].map(found), [Some(0), Some(1), Some(2), None]);
    }
}

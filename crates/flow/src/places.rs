//! The places of connections, by their keys.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::FlowKey;

/// The place of the latest connection of each key, by keyed hashes: whoever sends the packets must
/// not choose them.
///
/// Keys stay with the connections. What is here is so small that the caches of a processor hold it
/// for a hundred thousand connections, and connections are read only once they are needed.
#[derive(Debug, Default)]
pub(crate) struct FlowIndex {
    hasher: RandomState,
    table: HashTable<FlowIndexEntry>,
}

#[derive(Debug, Clone, Copy)]
struct FlowIndexEntry {
    mark: HashMark,
    index: u32,
}

/// A half of the hash of a key. Few keys share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashMark(u32);

impl HashMark {
    /// Any mark, for a place that waits for one.
    pub(crate) const ZERO: Self = Self(0);

    /// Returns the mark spread over the bits that a table goes by: the lowest and the uppermost.
    fn hash_bits(self) -> u64 {
        /// 2^64 by the golden ratio (Knuth, volume 3, 6.4).
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        u64::from(self.0).wrapping_mul(SPREAD)
    }
}

impl FlowIndex {
    /// Returns the mark of a key.
    #[inline]
    pub(crate) fn key_mark(&self, key: &FlowKey) -> HashMark {
        HashMark((self.hasher.hash_one(key) >> 32) as u32)
    }

    /// Returns the place of a connection that is most likely that of the key with this mark, if
    /// there is one.
    #[inline]
    pub(crate) fn likely_index(&self, mark: HashMark) -> Option<usize> {
        self.table
            .find(mark.hash_bits(), |place| place.mark == mark)
            .map(|place| place.index as usize)
    }

    /// Returns the place of the connection of `key`, which `is_its` is true for.
    pub(crate) fn find_index(
        &self,
        key: &FlowKey,
        is_its: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mark = self.key_mark(key);
        self.table
            .find(mark.hash_bits(), |place| {
                place.mark == mark && is_its(place.index as usize)
            })
            .map(|place| place.index as usize)
    }

    /// Sets the place of the connection of `key`. `is_its` is true for the one that it had before.
    pub(crate) fn set_index(
        &mut self,
        key: &FlowKey,
        index: usize,
        is_its: impl Fn(usize) -> bool,
    ) {
        let place = FlowIndexEntry {
            mark: self.key_mark(key),
            index: index as u32,
        };
        let is_same =
            |before: &FlowIndexEntry| before.mark == place.mark && is_its(before.index as usize);
        match self.table.entry(place.mark.hash_bits(), is_same, |place| {
            place.mark.hash_bits()
        }) {
            Entry::Occupied(mut before) => *before.get_mut() = place,
            Entry::Vacant(empty) => drop(empty.insert(place)),
        }
    }

    /// Returns the places of all connections.
    pub(crate) fn flow_indices(&self) -> impl Iterator<Item = usize> {
        self.table.iter().map(|place| place.index as usize)
    }

    /// Moves each connection to the place that `moved` has for it, and forgets those without one.
    pub(crate) fn move_all(&mut self, moved: impl Fn(usize) -> Option<usize>) {
        self.table.retain(|place| {
            moved(place.index as usize)
                .map(|index| place.index = index as u32)
                .is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_the_same_mark_have_places_of_their_own() {
        let mut places = FlowIndex::default();
        let mark = HashMark(7);
        for index in 0..3 {
            places
                .table
                .insert_unique(mark.hash_bits(), FlowIndexEntry { mark, index }, |place| {
                    place.mark.hash_bits()
                });
        }
        let found = |wanted: u32| {
            let is_same = |place: &FlowIndexEntry| place.mark == mark && place.index == wanted;
            places
                .table
                .find(mark.hash_bits(), is_same)
                .map(|place| place.index)
        };
        assert_eq!([0, 1, 2, 3].map(found), [Some(0), Some(1), Some(2), None]);
    }
}

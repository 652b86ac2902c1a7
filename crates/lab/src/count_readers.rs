//! Several readers of the counts of a path, each of which gets all of them since it began.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::carried::DirectionCounts;
use crate::error::LabError;
use fullpipe_sys::lock;

/// Counts of each direction of each stretch.
pub(crate) type PathCounts = Vec<[DirectionCounts; 2]>;

/// The counts that each reader has not read, by its number.
#[derive(Default)]
pub(crate) struct UnreadCounts(Mutex<BTreeMap<u64, Option<PathCounts>>>);

impl UnreadCounts {
    /// Adds a reader, from whose start on the counts of `take_newest` belong to it, too. Returns
    /// the number of the reader.
    ///
    /// # Errors
    /// Fails as `take_newest` does.
    pub(crate) fn add_reader(
        &self,
        take_newest: impl FnOnce() -> Result<PathCounts, LabError>,
    ) -> Result<u64, LabError> {
        self.with_newest(take_newest, |readers| {
            let number = readers.last_key_value().map_or(0, |(last, _)| last + 1);
            readers.insert(number, None);
            number
        })
    }

    /// Returns the counts since the reader `number` last read, or since its start.
    ///
    /// # Errors
    /// Fails as `take_newest` does, and if there is no such reader.
    pub(crate) fn read(
        &self,
        number: u64,
        take_newest: impl FnOnce() -> Result<PathCounts, LabError>,
    ) -> Result<PathCounts, LabError> {
        let counts = self.with_newest(take_newest, |readers| {
            readers.insert(number, None).flatten()
        })?;
        counts.ok_or_else(|| LabError::Gone {
            action: "count what the path carried".to_owned(),
        })
    }

    /// Removes the reader `number`.
    pub(crate) fn remove_reader(&self, number: u64) {
        lock(&self.0).remove(&number);
    }

    /// Adds the newest counts to those of every reader, before `change`.
    fn with_newest<T>(
        &self,
        take_newest: impl FnOnce() -> Result<PathCounts, LabError>,
        change: impl FnOnce(&mut BTreeMap<u64, Option<PathCounts>>) -> T,
    ) -> Result<T, LabError> {
        let mut readers = lock(&self.0);
        let newest = take_newest()?;
        for unread in readers.values_mut() {
            match unread {
                Some(unread) => {
                    let both = unread
                        .as_flattened_mut()
                        .iter_mut()
                        .zip(newest.as_flattened());
                    both.for_each(|(before, later)| before.add_counts(later));
                }
                None => *unread = Some(newest.clone()),
            }
        }
        Ok(change(&mut readers))
    }
}

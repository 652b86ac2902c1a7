//! Several readers of the counts of a path, each of which gets all of them since it began.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::carried::Carried;
use crate::error::LabError;
use crate::lab::Lab;

/// Counts of each direction of each stretch.
pub(crate) type PathCounts = Vec<[Carried; 2]>;

/// The counts that each reader has not read, by its number.
#[derive(Debug, Default)]
pub(crate) struct UnreadCounts(Mutex<BTreeMap<u64, Option<PathCounts>>>);

/// A reader of the counts of a lab's path.
pub(crate) struct CountReader<'l> {
    lab: &'l Lab,
    number: u64,
}

impl<'l> CountReader<'l> {
    /// Begins to count.
    ///
    /// # Errors
    /// If the lab is gone.
    pub(crate) fn start(lab: &'l Lab) -> Result<Self, LabError> {
        let number = lab.unread_counts().with(lab, |readers| {
            let number = readers.last_key_value().map_or(0, |(last, _)| last + 1);
            readers.insert(number, None);
            number
        })?;
        Ok(Self { lab, number })
    }

    /// Returns the counts since the last call, or since the start.
    ///
    /// # Errors
    /// If the lab is gone.
    pub(crate) fn read(&self) -> Result<PathCounts, LabError> {
        let counts = self.lab.unread_counts().with(self.lab, |readers| readers.insert(self.number, None).flatten())?;
        counts.ok_or_else(|| LabError::Gone { action: "count what the path carried".to_owned() })
    }
}

impl Drop for CountReader<'_> {
    fn drop(&mut self) {
        self.lab.unread_counts().0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl UnreadCounts {
    /// Adds the newest counts to those of every reader, before `change`.
    fn with<T>(
        &self,
        lab: &Lab,
        change: impl FnOnce(&mut BTreeMap<u64, Option<PathCounts>>) -> T,
    ) -> Result<T, LabError> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = lab.take_carried()?;
        for unread in readers.values_mut() {
            match unread {
                Some(unread) => {
                    let both = unread.as_flattened_mut().iter_mut().zip(newest.as_flattened());
                    both.for_each(|(before, later)| before.add(later));
                }
                None => *unread = Some(newest.clone()),
            }
        }
        Ok(change(&mut readers))
    }
}

//! The files that a sender has listed: what it needs to read them until they are there.
//!
//! The list runs ahead of the data, but not without end: both ends remember each file that is on
//! its way.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fullpipe_units::ByteCount;

use crate::receiver::WAITING_FILE;
use crate::walk::SourceFile;
use fullpipe_sys::lock;

/// Bytes of memory that files which are on their way take at the receiver, from which on no more
/// are listed. That is some 80 000 files.
const MAX_AHEAD: u64 = 32 << 20;

/// Time between two checks whether the transfer has ended meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The files of a list, by their numbers.
#[derive(Default)]
pub(crate) struct OfferedFiles {
    files: Mutex<FileTable>,
    settled: Condvar,
}

#[derive(Default)]
struct FileTable {
    /// Each with its size; without the rest once it is there or has failed.
    listed: Vec<(ByteCount, Option<Box<SourceFile>>)>,
    /// Bytes of memory that those which are on their way take at the receiver.
    ahead: u64,
}

impl OfferedFiles {
    /// Adds a file once the list is not too far ahead; waits for that unless `is_over`.
    pub(crate) fn add_file(&self, file: SourceFile, is_over: impl Fn() -> bool) {
        let mut files = lock(&self.files);
        while files.ahead >= MAX_AHEAD && !is_over() {
            let waited = self.settled.wait_timeout(files, POLL_INTERVAL);
            files = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        files.ahead += memory_bytes(&file);
        files.listed.push((file.size, Some(Box::new(file))));
    }

    /// Returns a file that is on its way.
    pub(crate) fn pending_file(&self, number: u32) -> Option<SourceFile> {
        lock(&self.files)
            .listed
            .get(number as usize)?
            .1
            .as_deref()
            .cloned()
    }

    /// Returns the size of a file.
    pub(crate) fn file_size(&self, number: u32) -> Option<ByteCount> {
        lock(&self.files)
            .listed
            .get(number as usize)
            .map(|(size, _)| *size)
    }

    /// Forgets a file that is there or has failed.
    pub(crate) fn remove_file(&self, number: u32) {
        let mut files = lock(&self.files);
        let file = files
            .listed
            .get_mut(number as usize)
            .and_then(|(_, file)| file.take());
        files.ahead -= file.map_or(0, |file| memory_bytes(&file));
        self.settled.notify_all();
    }
}

fn memory_bytes(file: &SourceFile) -> u64 {
    WAITING_FILE + file.path.as_bytes().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{EntryPath, FileIdentity};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    fn file(size: u64) -> SourceFile {
        let path = EntryPath::new([b'a'; 200]).unwrap();
        SourceFile {
            source: 0,
            path,
            size: ByteCount::new(size),
            identity: FileIdentity([0; 32]),
        }
    }

    /// The list of a million files took 395 MB at the receiver before the first of them was there.
    #[test]
    fn a_list_is_so_far_ahead_of_the_data_and_no_farther() {
        const COUNT: u64 = 200_000;
        let (offered, added) = (OfferedFiles::default(), AtomicU64::new(0));
        thread::scope(|threads| {
            threads.spawn(|| {
                for size in 0..COUNT {
                    offered.add_file(file(size), || false);
                    added.store(size + 1, Ordering::Relaxed);
                }
            });
            for number in 0..COUNT {
                while offered.pending_file(number as u32).is_none() {
                    thread::yield_now();
                }
                let ahead = added.load(Ordering::Relaxed) - number;
                assert!(
                    ahead * memory_bytes(&file(0)) <= MAX_AHEAD + memory_bytes(&file(0)),
                    "{ahead}"
                );
                offered.remove_file(number as u32);
            }
        });
        assert_eq!(
            (offered.file_size(7), offered.pending_file(7).is_none()),
            (Some(ByteCount::new(7)), true)
        );
        assert_eq!(lock(&offered.files).ahead, 0);
    }

    #[test]
    fn a_transfer_that_has_ended_waits_for_no_file() {
        let offered = OfferedFiles::default();
        (0..100_000).for_each(|size| offered.add_file(file(size), || true));
        offered.remove_file(7);
        offered.remove_file(7);
        assert_eq!(lock(&offered.files).ahead, 99_999 * memory_bytes(&file(0)));
    }
}

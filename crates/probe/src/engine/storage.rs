//! A file that data comes from or goes to, and the time that it takes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use fullpipe_record::StorageUse;
use fullpipe_sys::start_thread;
use fullpipe_units::{ByteCount, Span};

/// Longest time that storage may take in the end to write what it was given to the disk: the other
/// end waits for the results meanwhile, for 10 s (iperf3 and fullpipe alike).
const TIMEOUT: Duration = Duration::from_secs(5);

/// A file that all streams of a transfer share: each takes the next chunk.
#[derive(Debug)]
pub(crate) struct FileStorage {
    file: Arc<File>,
    purpose: StoragePurpose,
    /// Offset of the next chunk.
    offset: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds in reads or writes, of all streams together.
    busy: AtomicU64,
    /// The first read or write that failed.
    failure: OnceLock<StorageFailure>,
}

/// The reason for which a file could not be read or written.
#[derive(Debug, Clone)]
pub(crate) struct StorageFailure {
    /// The reason as a sentence.
    pub why: String,
    /// The operating system's number for it, if it has one.
    pub os_error: Option<i32>,
}

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoragePurpose {
    /// To be sent once: it has so many bytes.
    Once(u64),
    /// To be sent over and over.
    Repeat,
    /// To hold what arrives.
    Write,
}

impl FileStorage {
    /// Returns storage that is sent once: the `length` bytes of `file`.
    pub(crate) fn for_reading(file: File, length: ByteCount) -> Self {
        Self::new(file, StoragePurpose::Once(length.get()))
    }

    /// Returns storage that is sent over and over, for as long as the load lasts.
    pub(crate) fn for_repeating(file: File) -> Self {
        Self::new(file, StoragePurpose::Repeat)
    }

    /// Returns storage that writes what arrives to `file`, in the order in which chunks arrive: of
    /// one stream, as they were sent.
    pub(crate) fn for_writing(file: File) -> Self {
        Self::new(file, StoragePurpose::Write)
    }

    fn new(file: File, purpose: StoragePurpose) -> Self {
        Self {
            file: Arc::new(file),
            purpose,
            offset: AtomicU64::default(),
            bytes: AtomicU64::default(),
            busy: AtomicU64::default(),
            failure: OnceLock::new(),
        }
    }

    /// Returns why a read or a write failed, if one did.
    pub(crate) fn failure(&self) -> Option<&StorageFailure> {
        self.failure.get()
    }

    pub(crate) fn is_read(&self) -> bool {
        self.purpose != StoragePurpose::Write
    }

    /// Fills `chunk` with the next bytes of the file; how many they are, none at its end.
    pub(crate) fn read_chunk(&self, chunk: &mut [u8]) -> io::Result<usize> {
        let offset = self.offset.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        let length = self.read_at(chunk, offset)?;
        match self.purpose {
            StoragePurpose::Once(whole)
                if (length as u64) < whole.saturating_sub(offset).min(chunk.len() as u64) =>
            {
                let end = offset + length as u64;
                let why = format!(
                    "the file ended after {end} of its {whole} bytes: it was cut while it was sent"
                );
                Err(self.record_failure(io::ErrorKind::UnexpectedEof, why, None))
            }
            StoragePurpose::Repeat if length == 0 && offset > 0 => {
                self.offset.store(chunk.len() as u64, Ordering::Relaxed);
                self.read_at(chunk, 0)
            }
            _ => Ok(length),
        }
    }

    /// Appends `chunk`.
    pub(crate) fn append_chunk(&self, chunk: &[u8]) -> io::Result<()> {
        let offset = self.offset.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        self.add_busy_time(|| self.file.write_all_at(chunk, offset))
            .map_err(|error| self.failed_to("write to the file", &error))?;
        self.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the use of the storage, once written data is on the disk, or could not be within
    /// [`TIMEOUT`].
    pub(crate) fn finish_storage(&self) -> (StorageUse, Option<String>) {
        let (sync, note) = if self.is_read() {
            (Span::ZERO, None)
        } else {
            self.lay_down()
        };
        let busy = Span::from_nanos(self.busy.load(Ordering::Relaxed));
        let bytes = ByteCount::new(self.bytes.load(Ordering::Relaxed));
        (
            StorageUse {
                bytes,
                busy,
                sync,
                writes: !self.is_read(),
            },
            note,
        )
    }

    /// Reads until `chunk` is full or the file ends.
    fn read_at(&self, chunk: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < chunk.len() {
            let read = self.add_busy_time(|| {
                self.file
                    .read_at(&mut chunk[filled..], offset + filled as u64)
            });
            match read {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed_to("read the file", &error)),
            }
        }
        self.bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }

    fn failed_to(&self, what: &str, error: &io::Error) -> io::Error {
        self.record_failure(
            error.kind(),
            format!("cannot {what}: {error}"),
            error.raw_os_error(),
        )
    }

    /// Returns an error, and notes it as the failure of this storage.
    fn record_failure(&self, kind: io::ErrorKind, why: String, os_error: Option<i32>) -> io::Error {
        let _ = self.failure.set(StorageFailure {
            why: why.clone(),
            os_error,
        });
        io::Error::new(kind, why)
    }

    fn add_busy_time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.busy
            .fetch_add(Span::from(begun.elapsed()).as_nanos(), Ordering::Relaxed);
        result
    }

    /// Waits until the file is on the disk; how long that took. In a thread of its own, which
    /// outlives the wait for it: nothing else ends a write to a disk that hangs.
    fn lay_down(&self) -> (Span, Option<String>) {
        let (file, begun) = (Arc::clone(&self.file), Instant::now());
        let (stated, end) = mpsc::channel();
        let worker = start_thread("storage", move || {
            // No thread waits any more if it took too long.
            let _ = stated.send(file.sync_data());
        });
        let outcome = match worker {
            Ok(_) => end.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
                let why = format!("it took longer than {}", Span::from(TIMEOUT));
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }),
            Err(error) => Err(error),
        };
        // A device that keeps nothing, as /dev/null, says that there is nothing to lay down.
        let note = outcome
            .err()
            .filter(|error| error.kind() != io::ErrorKind::InvalidInput)
            .map(|error| format!("what arrived may not all be on the disk: {error}"));
        (begun.elapsed().into(), note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn file(content: &[u8]) -> File {
        let file = File::from(memfd_create("storage", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(content, 0).unwrap();
        file
    }

    fn chunks(storage: &FileStorage, length: usize, count: usize) -> Vec<Vec<u8>> {
        let chunk = |_| {
            let mut chunk = vec![0; length];
            let read = storage.read_chunk(&mut chunk).unwrap();
            chunk[..read].to_vec()
        };
        (0..count).map(chunk).collect()
    }

    #[test]
    fn a_file_is_read_once_chunk_by_chunk() {
        let storage = FileStorage::for_reading(file(b"abcdefg"), ByteCount::new(7));
        assert_eq!(chunks(&storage, 3, 4), [&b"abc"[..], b"def", b"g", b""]);
        let (used, note) = storage.finish_storage();
        assert_eq!(
            (used.bytes.get(), used.writes, used.sync, note),
            (7, false, Span::ZERO, None)
        );
        assert!(used.busy > Span::ZERO);
    }

    #[test]
    fn a_file_that_repeats_begins_anew() {
        let storage = FileStorage::for_repeating(file(b"abcd"));
        assert_eq!(chunks(&storage, 3, 4), [&b"abc"[..], b"d", b"abc", b"d"]);
        // One that is empty has nothing to begin anew with.
        assert_eq!(
            chunks(&FileStorage::for_repeating(file(b"")), 3, 2),
            [b"", b""]
        );
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_is_an_error() {
        let storage = FileStorage::for_reading(file(b"abcd"), ByteCount::new(7));
        assert_eq!(chunks(&storage, 2, 2), [b"ab", b"cd"]);
        let error = storage.read_chunk(&mut [0; 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file ended after 4 of its 7 bytes: it was cut while it was sent"
        );
    }

    #[test]
    fn what_is_appended_is_there() {
        let kept = file(b"");
        let storage = FileStorage::for_writing(kept.try_clone().unwrap());
        storage.append_chunk(b"abc").unwrap();
        storage.append_chunk(b"de").unwrap();
        let (used, note) = storage.finish_storage();
        assert_eq!((used.bytes.get(), used.writes, note), (5, true, None));
        let mut content = [0; 5];
        kept.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"abcde");
    }

    #[test]
    fn a_full_disk_says_so() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = FileStorage::for_writing(full)
            .append_chunk(b"abc")
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write to the file: No space left on device (os error 28)"
        );
    }

    #[test]
    fn a_device_that_keeps_nothing_has_nothing_to_lay_down() {
        let storage =
            FileStorage::for_writing(File::options().write(true).open("/dev/null").unwrap());
        storage.append_chunk(b"abc").unwrap();
        assert_eq!(storage.finish_storage().1, None);
    }
}

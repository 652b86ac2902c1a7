//! A file that is not complete: its data under a working name, and for more than one chunk a journal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_transfer::{
    BLOCK, Boot, CHUNK, Digest, EntryPath, Identity, Journal, ModificationTime, Verified, ZEROS, chunk_hash,
};
use fullpipe_units::ByteCount;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, flock};

use crate::tree::{Tree, Within, set_attributes};

/// Bytes of data between two marks that everything before is on disk.
const DURABLE_INTERVAL: u64 = 256 << 20;

/// Time for which a lock is tried, and between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// A file that is not complete, open.
#[derive(Debug)]
pub(crate) struct Part {
    data: Arc<File>,
    journal: Option<(Journal, File)>,
    working: Within,
    target: Within,
    /// Nothing was written before this run, so that its holes are holes.
    is_fresh: bool,
    unmarked: u64,
}

/// The names that a file has until it is complete.
struct Names {
    target: Within,
    data: Within,
    journal: Within,
}

impl Names {
    fn of(tree: &Tree, path: &EntryPath) -> io::Result<Self> {
        let target = tree.within(path)?;
        let data = target.sibling(path.working_name(false));
        let journal = target.sibling(path.working_name(true));
        Ok(Self { target, data, journal })
    }
}

/// Returns the chunks that an earlier run has verified of a file of this identity. What is left of another file, or of
/// another state of it, is removed.
///
/// # Errors
/// Fails if its folder cannot be reached, and with `ResourceBusy` if another transfer writes the file.
pub(crate) fn recover(
    tree: &Tree,
    path: &EntryPath,
    size: ByteCount,
    identity: Identity,
    boot: Boot,
) -> io::Result<Verified> {
    let names = Names::of(tree, path)?;
    let format = Journal::new(identity, size, boot);
    let mut verified = Verified::new(size);
    let data = match own_file(&names.data, OFlags::RDWR) {
        // Small files have no journal, and there are many of them.
        Err(error) if error.kind() == io::ErrorKind::NotFound && size.get() <= CHUNK as u64 => return Ok(verified),
        Err(_) => None,
        Ok(data) => {
            lock(&data)?;
            Some(data)
        }
    };
    if let (Some(data), Ok(mut journal)) = (data, own_file(&names.journal, OFlags::RDWR)) {
        let mut bytes = Vec::new();
        // Chunks are recorded once, but for those that were sent twice.
        let most = 4096 + size.get() / CHUNK as u64 * 200;
        (&mut journal).take(most).read_to_end(&mut bytes)?;
        if let Some(recovered) = format.recover(&bytes) {
            for (index, hash) in recovered.verified {
                verified.insert(index, hash);
            }
            let is_doubtful = !recovered.doubtful.is_empty();
            for (index, hash) in recovered.doubtful {
                if verified.length(index).is_some_and(|length| is_there(&data, size, index, length, &hash)) {
                    verified.insert(index, hash);
                }
            }
            journal.set_len(recovered.length.get())?;
            if is_doubtful {
                rewrite(&data, &mut journal, &format, &verified)?;
            }
            return Ok(verified);
        }
    }
    names.data.remove_file()?;
    names.journal.remove_file()?;
    Ok(verified)
}

/// Writes a journal anew, of this start of the host.
fn rewrite(data: &File, journal: &mut File, format: &Journal, verified: &Verified) -> io::Result<()> {
    data.sync_data()?;
    let mut bytes = format.header();
    for (index, hash) in verified.hashes() {
        bytes.extend(format.verified(index, &hash));
    }
    bytes.extend(format.durable());
    journal.set_len(0)?;
    journal.write_all_at(&bytes, 0)?;
    journal.sync_data()
}

fn is_there(data: &File, size: ByteCount, index: u32, length: usize, hash: &Digest) -> bool {
    let mut content = vec![0; length];
    let read = data.read_exact_at(&mut content, u64::from(index) * CHUNK as u64);
    read.is_ok() && chunk_hash(size, index, &content) == *hash
}

/// Opens a file that a transfer of this user has made: a name that others could have prepared is not trusted.
fn own_file(within: &Within, flags: OFlags) -> io::Result<File> {
    let file = within.open(flags)?;
    let found = file.metadata()?;
    let is_own = found.is_file() && found.nlink() == 1 && found.uid() == rustix::process::geteuid().as_raw();
    is_own.then_some(file).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

/// Locks the data for this transfer. A program that is being started shares the locks of its parent until it runs, so
/// that of a transfer that has ended may last: it is tried for a while.
fn lock(data: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while flock(data, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another transfer is writing it"));
        }
        thread::sleep(LOCK_INTERVAL);
    }
    Ok(())
}

impl Part {
    /// Opens the working file of an entry, to go on behind `verified`.
    ///
    /// # Errors
    /// Fails if it cannot be made, and with `ResourceBusy` if another transfer writes it.
    pub(crate) fn open(
        tree: &Tree,
        path: &EntryPath,
        size: ByteCount,
        identity: Identity,
        boot: Boot,
        verified: &Verified,
    ) -> io::Result<Self> {
        let names = Names::of(tree, path)?;
        let is_fresh = verified.bytes() == ByteCount::ZERO;
        let data = if is_fresh { fresh(&names.data)? } else { own_file(&names.data, OFlags::RDWR)? };
        lock(&data)?;
        let mut journal = None;
        if size.get() > CHUNK as u64 {
            let format = Journal::new(identity, size, boot);
            let mut file = if is_fresh { fresh(&names.journal)? } else { own_file(&names.journal, OFlags::RDWR)? };
            if is_fresh {
                file.write_all(&format.header())?;
            } else {
                io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            }
            journal = Some((format, file));
        }
        data.set_len(size.get())?;
        Ok(Self { data: Arc::new(data), journal, working: names.data, target: names.target, is_fresh, unmarked: 0 })
    }

    /// Returns another handle of the data, to write to without holding the part.
    pub(crate) fn writer(&self) -> PartWriter {
        PartWriter { data: Arc::clone(&self.data), is_fresh: self.is_fresh }
    }

    /// Records that a chunk is written and verified.
    pub(crate) fn record(&mut self, index: u32, hash: &Digest, length: usize) -> io::Result<()> {
        let Some((format, file)) = &mut self.journal else { return Ok(()) };
        file.write_all(&format.verified(index, hash))?;
        self.unmarked += length as u64;
        if self.unmarked >= DURABLE_INTERVAL {
            self.data.sync_data()?;
            file.write_all(&format.durable())?;
            self.unmarked = 0;
        }
        Ok(())
    }

    /// Reads the chunks in `verified` back from the disk, behind the page cache, and returns those that are not what
    /// was written.
    ///
    /// # Errors
    /// Fails if the data cannot be made durable, without which the page cache would keep it.
    pub(crate) fn wrong_on_disk(&self, size: ByteCount, verified: &Verified) -> io::Result<Vec<u32>> {
        self.data.sync_all()?;
        fadvise(&self.data, 0, None, Advice::DontNeed)?;
        let is_wrong = |(index, hash): &(u32, Digest)| {
            let length = verified.length(*index).unwrap_or(0);
            !is_there(&self.data, size, *index, length, hash)
        };
        Ok(verified.hashes().filter(is_wrong).map(|(index, _)| index).collect())
    }

    /// The file, under its working name.
    pub(crate) fn file(&self) -> &File {
        &self.data
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn finish(self, mode: u16, modified: ModificationTime) -> io::Result<()> {
        set_attributes(&self.data, mode, modified)?;
        self.data.sync_all()?;
        self.working.rename(&self.target)?;
        if self.journal.is_some() {
            let name = journal_name(&self.working.name);
            self.target.sibling(name).remove_file()?;
        }
        Ok(())
    }

    /// Removes the data, which nobody can use.
    pub(crate) fn discard(self) {
        // What is left over is removed by the next run.
        let _ = self.working.remove_file();
    }
}

/// Returns the name of the journal that belongs to a working name.
fn journal_name(working: &[u8]) -> Vec<u8> {
    let stem = working.strip_suffix(b"part").unwrap_or(working);
    [stem, b"journal"].concat()
}

/// Makes a file that was not there; what an earlier run left is removed.
fn fresh(within: &Within) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    within.open(flags).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            if let Ok(old) = own_file(within, OFlags::RDWR) {
                lock(&old)?;
            }
            within.remove_file()?;
            within.open(flags)
        }
        _ => Err(error),
    })
}

/// Writes into a part.
#[derive(Debug)]
pub(crate) struct PartWriter {
    data: Arc<File>,
    is_fresh: bool,
}

impl PartWriter {
    /// Writes the block `index` of a chunk.
    pub(crate) fn write_block(&self, chunk: u32, index: u8, content: &[u8]) -> io::Result<()> {
        let offset = u64::from(chunk) * CHUNK as u64 + u64::from(index) * BLOCK as u64;
        self.data.write_all_at(content, offset)
    }

    /// Makes a hole of a chunk of `length` bytes. In a part in which nothing was written there is one.
    pub(crate) fn make_hole(&self, chunk: u32, length: usize, was_written: bool) -> io::Result<()> {
        if self.is_fresh && !was_written {
            return Ok(());
        }
        let offset = u64::from(chunk) * CHUNK as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.data, flags, offset, length as u64) {
            Ok(()) => Ok(()),
            Err(_) => self.data.write_all_at(&ZEROS[..length], offset),
        }
    }
}

/// Returns the name of this start of the host; of none if the kernel does not say, so that nothing is trusted.
pub(crate) fn boot() -> Boot {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or_else(|_| random().unwrap_or_default(), u128::to_le_bytes)
}

/// Returns random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    if count == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const BOOT: Boot = [1; 16];
    const IDENTITY: Identity = Identity([2; 32]);

    fn content(index: u32, size: ByteCount) -> Vec<u8> {
        let length = Verified::new(size).length(index).unwrap();
        (0..length).map(|at| (at as u32 * 7 + index) as u8).collect()
    }

    fn write(part: &mut Part, verified: &mut Verified, index: u32, size: ByteCount) {
        let content = content(index, size);
        for (block, content) in (0..).zip(content.chunks(BLOCK)) {
            part.writer().write_block(index, block, content).unwrap();
        }
        let hash = chunk_hash(size, index, &content);
        part.record(index, &hash, content.len()).unwrap();
        verified.insert(index, hash);
    }

    #[test]
    fn a_part_that_was_left_is_continued_and_another_state_of_the_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, path) = (Tree::open(folder.path()).unwrap(), EntryPath::new("file").unwrap());
        let size = ByteCount::new(3 * CHUNK as u64 + 10);
        let mut verified = recover(&tree, &path, size, IDENTITY, BOOT).unwrap();
        let mut part = Part::open(&tree, &path, size, IDENTITY, BOOT, &verified).unwrap();
        for index in [3, 1] {
            write(&mut part, &mut verified, index, size);
        }
        let busy = recover(&tree, &path, size, IDENTITY, BOOT).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy, "two transfers write one file");
        let small = recover(&tree, &path, ByteCount::new(1), IDENTITY, BOOT).unwrap_err();
        assert_eq!(small.kind(), io::ErrorKind::ResourceBusy);
        drop(part);
        assert_eq!(recover(&tree, &path, size, IDENTITY, BOOT).unwrap(), verified);
        // After a new start of the host, a chunk that did not reach the disk is wanted again.
        let working = folder.path().join(std::ffi::OsStr::from_bytes(&path.working_name(false)));
        let file = File::options().write(true).open(&working).unwrap();
        file.write_all_at(&[0xff; 5], CHUNK as u64 + 9).unwrap();
        let after = recover(&tree, &path, size, IDENTITY, [9; 16]).unwrap();
        assert!(after.contains(3) && !after.contains(1));
        let mut verified = recover(&tree, &path, size, IDENTITY, [9; 16]).unwrap();
        assert_eq!(verified, after);
        let mut part = Part::open(&tree, &path, size, IDENTITY, [9; 16], &verified).unwrap();
        for index in [0, 1, 2] {
            write(&mut part, &mut verified, index, size);
        }
        part.finish(0o640, ModificationTime { seconds: 1000, nanoseconds: 5 }).unwrap();
        let whole: Vec<u8> = (0..4).flat_map(|index| content(index, size)).collect();
        assert!(std::fs::read(folder.path().join("file")).unwrap() == whole);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // A part of an older state is removed.
        let part = Part::open(&tree, &path, size, IDENTITY, BOOT, &Verified::new(size)).unwrap();
        drop(part);
        assert_eq!(recover(&tree, &path, size, Identity([3; 32]), BOOT).unwrap().bytes(), ByteCount::ZERO);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_working_name_that_somebody_prepared_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, path) = (Tree::open(folder.path()).unwrap(), EntryPath::new("file").unwrap());
        let working = folder.path().join(std::ffi::OsStr::from_bytes(&path.working_name(false)));
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "victim").unwrap();
        for prepare in [std::os::unix::fs::symlink::<_, _>, std::fs::hard_link] {
            prepare(victim.as_path(), working.as_path()).unwrap();
            let size = ByteCount::new(3);
            let part = Part::open(&tree, &path, size, IDENTITY, BOOT, &Verified::new(size)).unwrap();
            part.writer().write_block(0, 0, b"new").unwrap();
            part.finish(0o600, ModificationTime::default()).unwrap();
            assert_eq!(std::fs::read(&victim).unwrap(), b"victim");
        }
    }
}

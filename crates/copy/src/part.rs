//! A file that is not complete: its data under a working name, and for more than one chunk a
//! journal.

mod journal;
mod ownership;
mod writing;

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use fullpipe_units::ByteCount;
use rustix::fs::{Advice, OFlags, fadvise};

use self::journal::{is_there, open_journal, read_journal, take_back};
use self::ownership::{busy_error, lock_opened, own_file};
use self::writing::sync_unspoiled;
pub(crate) use self::writing::{DueSync, PartWriter};
use crate::protocol::{
    CHUNK, Digest, EntryPath, FileIdentity, JournalFormat, ModificationTime, VerifiedChunks,
};
use crate::tree::{FolderTree, TreeEntryName, set_attributes};
use fullpipe_sys::lock;

/// Bytes of data between two marks that everything before is on disk.
const DURABLE_INTERVAL: u64 = 256 << 20;

/// Times that the disk may have other content than was written before a file is given up.
const MAX_REPAIRS: u32 = 10;

/// A file that is not complete, open.
pub(crate) struct PartialFile {
    data: Arc<File>,
    writing: Arc<Mutex<()>>,
    journal: Option<(JournalFormat, File)>,
    names: PartNames,
    size: ByteCount,
    /// No other transfer can write to it. Some file systems have no locks.
    pub is_locked: bool,
    /// Nothing was written before this run, so that its holes are holes.
    is_fresh: bool,
    unmarked: u64,
    /// A [`DueSync`] is not over.
    is_syncing: bool,
    /// Something that was written did not reach the disk. Held while data is made durable.
    is_spoiled: Arc<Mutex<bool>>,
    repairs: u32,
}

/// The names that a file has until it is complete.
struct PartNames {
    target: TreeEntryName,
    data: TreeEntryName,
    journal: TreeEntryName,
}

impl PartNames {
    fn from_entry(tree: &FolderTree, path: &EntryPath) -> io::Result<Self> {
        let target = tree.locate_entry(path)?;
        let (data, journal) = (
            working_entry(&target, path, false),
            working_entry(&target, path, true),
        );
        Ok(Self {
            target,
            data,
            journal,
        })
    }
}

/// Returns the place of a file of the transfer next to the entry `target`: of its data, or of its
/// journal.
pub(crate) fn working_entry(
    target: &TreeEntryName,
    path: &EntryPath,
    journal: bool,
) -> TreeEntryName {
    target.sibling_entry(path.working_name(journal, rustix::process::geteuid().as_raw()))
}

/// Returns the chunks that an earlier run has verified of a file of this identity. What is left of
/// another file, or of another state of it, is removed.
///
/// # Errors
/// Fails if its folder cannot be reached, and with `ResourceBusy` if another transfer writes the
/// file.
pub(crate) fn recover_chunks(
    tree: &FolderTree,
    path: &EntryPath,
    size: ByteCount,
    identity: FileIdentity,
) -> io::Result<VerifiedChunks> {
    let names = PartNames::from_entry(tree, path)?;
    let left = match own_file(&names.data) {
        // Small files have no journal, and there are many of them.
        Err(error) if error.kind() == io::ErrorKind::NotFound && size.get() <= CHUNK as u64 => {
            return Ok(VerifiedChunks::new(size));
        }
        Err(_) => None,
        Ok(data) => Some(lock_opened(&names.data, data)?),
    };
    if let Some((data, _)) = &left
        && let Some((_, verified)) = open_journal(
            &names.journal,
            data,
            &JournalFormat::new(identity, size),
            size,
        )?
    {
        return Ok(verified);
    }
    names.data.remove_file()?;
    names.journal.remove_file()?;
    Ok(VerifiedChunks::new(size))
}

/// Returns true if an earlier run has left data of a file.
///
/// # Errors
/// Fails if its folder cannot be reached.
pub(crate) fn has_left_data(tree: &FolderTree, path: &EntryPath) -> io::Result<bool> {
    let names = PartNames::from_entry(tree, path)?;
    Ok(names.data.stat_entry()?.is_some())
}

/// Removes what earlier transfers have left of a file that is there or not wanted. What another
/// transfer is writing stays.
///
/// # Errors
/// Fails if its folder cannot be reached, or the system refuses.
pub(crate) fn remove_left(tree: &FolderTree, path: &EntryPath) -> io::Result<()> {
    let names = PartNames::from_entry(tree, path)?;
    match remove_unlocked(&names.data) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        cleared => cleared.and_then(|()| names.journal.remove_file()),
    }
}

/// Removes what has a working name. What others have prepared has no lock.
///
/// # Errors
/// Fails with `ResourceBusy` if another transfer writes it.
pub(crate) fn remove_unlocked(within: &TreeEntryName) -> io::Result<()> {
    let _locked = open_left_data(within)?;
    within.remove_file()
}

/// Opens and locks the data that an earlier transfer of this user has left, if there is any, as
/// [`lock_opened`] does.
fn open_left_data(within: &TreeEntryName) -> io::Result<Option<(File, bool)>> {
    own_file(within)
        .ok()
        .map(|data| lock_opened(within, data))
        .transpose()
}

impl PartialFile {
    /// Opens the working file of an entry, to go on behind `verified`. Chunks that are no longer
    /// there, because another transfer has had the file meanwhile, are taken out of that and
    /// returned, in their order.
    ///
    /// # Errors
    /// Fails if it cannot be made, and with `ResourceBusy` if another transfer writes it.
    pub(crate) fn open_part(
        tree: &FolderTree,
        path: &EntryPath,
        size: ByteCount,
        identity: FileIdentity,
        verified: &mut VerifiedChunks,
    ) -> io::Result<(Self, Vec<u32>)> {
        let names = PartNames::from_entry(tree, path)?;
        let format = JournalFormat::new(identity, size);
        let mut there = VerifiedChunks::new(size);
        let mut opened = None;
        if verified.verified_bytes() > ByteCount::ZERO
            && let Some((data, is_locked)) = open_left_data(&names.data)?
            && let Some((journal, recorded)) = open_journal(&names.journal, &data, &format, size)?
        {
            there = recorded;
            opened = Some((data, is_locked, Some(journal)));
        }
        let is_fresh = opened.is_none();
        let (data, is_locked, journal) = match opened {
            Some(opened) => opened,
            None => create_files(&names, &format, size)?,
        };
        let lost = remove_chunks(verified, |index, hash| there.hash_at(index) != Some(hash));
        data.set_len(size.get())?;
        let (data, journal) = (Arc::new(data), journal.map(|journal| (format, journal)));
        let part = Self {
            data,
            writing: Arc::default(),
            journal,
            names,
            size,
            is_locked,
            is_fresh,
            unmarked: 0,
            is_syncing: false,
            is_spoiled: Arc::default(),
            repairs: 0,
        };
        Ok((part, lost))
    }

    /// Returns another handle of the data, to write to without holding the part.
    pub(crate) fn new_writer(&self) -> PartWriter {
        PartWriter {
            data: Arc::clone(&self.data),
            writing: Arc::clone(&self.writing),
            is_fresh: self.is_fresh,
        }
    }

    /// Records that a chunk is written and verified. Returns what is to be done then without
    /// holding the part, if anything is.
    pub(crate) fn record_chunk(
        &mut self,
        index: u32,
        hash: &Digest,
        length: usize,
    ) -> io::Result<Option<DueSync>> {
        let Some((format, file)) = &mut self.journal else {
            return Ok(None);
        };
        let record = format.verified_record(index, hash);
        file.write_all(&record)?;
        self.unmarked += length as u64;
        if self.unmarked < DURABLE_INTERVAL || self.is_syncing {
            return Ok(None);
        }
        (self.unmarked, self.is_syncing) = (0, true);
        // It stands twice: the mark takes the place of the second, and what others record meanwhile
        // is behind that.
        let place = file.stream_position()?;
        file.write_all(&record)?;
        Ok(Some(DueSync {
            data: Arc::clone(&self.data),
            is_spoiled: Arc::clone(&self.is_spoiled),
            place,
        }))
    }

    /// Marks what was recorded before a sync as durable, if that has succeeded.
    ///
    /// # Errors
    /// Fails if it has not.
    pub(crate) fn end_sync(&mut self, due: &DueSync, synced: io::Result<()>) -> io::Result<()> {
        self.is_syncing = false;
        if synced.is_err() {
            self.cut_journal();
            return synced;
        }
        let Some((format, file)) = &self.journal else {
            return Ok(());
        };
        file.write_all_at(&format.durable_record(), due.place)
    }

    /// Waits for a sync under way, which holds the lock of the file.
    pub(crate) fn wait_for_sync(self) {
        drop(lock(&self.is_spoiled));
    }

    /// Makes the data durable. If that fails, nothing behind the last durable mark counts any more,
    /// now or in a later run.
    fn sync_data(&mut self, how: fn(&File) -> io::Result<()>) -> io::Result<()> {
        let synced = sync_unspoiled(&self.data, &self.is_spoiled, how);
        synced.inspect_err(|_| self.cut_journal())
    }

    fn cut_journal(&mut self) {
        let Some((format, file)) = &mut self.journal else {
            return;
        };
        let recovered = read_journal(file, format, self.size).ok().flatten();
        if file
            .set_len(recovered.map_or(0, |recovered| recovered.durable.get()))
            .is_err()
        {
            let _ = self.names.journal.remove_file();
        }
    }

    /// Reads the chunks in `verified` back from the disk, behind the page cache. Takes those that
    /// are not what was written out of that, and returns them.
    ///
    /// # Errors
    /// Fails if the data cannot be made durable, without which the page cache would keep it, and if
    /// the disk has had other content too often.
    pub(crate) fn wrong_on_disk(&mut self, verified: &mut VerifiedChunks) -> io::Result<Vec<u32>> {
        self.sync_data(File::sync_all)?;
        self.is_syncing = false;
        fadvise(&self.data, 0, None, Advice::DontNeed)?;
        let wrong = remove_chunks(verified, |index, hash| {
            !is_there(&self.data, self.size, index, &hash)
        });
        if wrong.is_empty() {
            return Ok(wrong);
        }
        if let Some((format, journal)) = &mut self.journal
            && let Err(error) = take_back(journal, format, verified, self.size)
        {
            // What is wrong must not count in the next run.
            self.names.journal.remove_file()?;
            return Err(error);
        }
        self.is_fresh = false;
        self.repairs += 1;
        if self.repairs > MAX_REPAIRS {
            return Err(io::Error::other("its disk does not keep what is written"));
        }
        Ok(wrong)
    }

    /// The file, under its working name.
    pub(crate) fn file(&self) -> &File {
        &self.data
    }

    /// Makes a large file durable while its owner may write to it: it takes long, and a run that is
    /// ended meanwhile can be continued.
    pub(crate) fn make_durable(&mut self) -> io::Result<()> {
        if self.journal.is_some() {
            self.sync_data(File::sync_data)
        } else {
            Ok(())
        }
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// Fails if the system refuses, and if something else has its working name. What has arrived of
    /// a large file stays for the next run.
    pub(crate) fn finish_file(mut self, mode: u16, modified: ModificationTime) -> io::Result<()> {
        if let Err(error) = self.rename_to_target(mode, modified) {
            if self.journal.is_none() {
                self.discard_data();
            }
            return Err(error);
        }
        if self.journal.is_some() {
            self.names.journal.remove_file()
        } else {
            Ok(())
        }
    }

    fn rename_to_target(&mut self, mode: u16, modified: ModificationTime) -> io::Result<()> {
        set_attributes(&self.data, mode, modified)?;
        self.sync_data(File::sync_all)?;
        if !self.names.data.is_same_file(&self.data)? {
            return Err(io::Error::other(
                "something else has taken its working name",
            ));
        }
        self.names.data.rename_to(&self.names.target)
    }

    /// Removes the data, which no transfer can use.
    pub(crate) fn discard_data(self) {
        // What is left over is removed by the next run.
        if self.names.data.is_same_file(&self.data).unwrap_or(false) {
            let _ = self.names.data.remove_file();
        }
    }
}

/// Takes chunks out that are `wrong`, and returns them in their order.
fn remove_chunks(verified: &mut VerifiedChunks, wrong: impl Fn(u32, Digest) -> bool) -> Vec<u32> {
    let removed: Vec<u32> = verified
        .chunk_hashes()
        .filter(|(index, hash)| wrong(*index, *hash))
        .map(|(index, _)| index)
        .collect();
    for index in &removed {
        verified.remove_chunk(*index);
    }
    removed
}

/// Makes the files of a part that were not there; what an earlier run left is removed.
fn create_files(
    names: &PartNames,
    format: &JournalFormat,
    size: ByteCount,
) -> io::Result<(File, bool, Option<File>)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let made = names
        .data
        .open_file(flags)
        .or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                remove_unlocked(&names.data)?;
                names.data.open_file(flags)
            }
            _ => Err(error),
        });
    let made = made.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            busy_error()
        } else {
            error
        }
    })?;
    let (data, is_locked) = lock_opened(&names.data, made)?;
    if size.get() <= CHUNK as u64 {
        return Ok((data, is_locked, None));
    }
    names.journal.remove_file()?;
    let mut journal = names.journal.open_file(flags)?;
    journal.write_all(&format.header_bytes())?;
    Ok((data, is_locked, Some(journal)))
}

#[cfg(test)]
mod tests;

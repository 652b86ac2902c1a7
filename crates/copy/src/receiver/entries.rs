//! Entries of the list: each is made, or what is missing of it is wanted.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_units::ByteCount;
use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::complete::ArrivedFile;
use super::{CopyDestination, FileReceiver, IncomingFile, IncomingState};
use crate::attributes::{NotKept, apply_attributes, attributes_differ};
use crate::options::CopyError;
use crate::part::{PartialFile, recover_chunks, remove_left, remove_unlocked, working_entry};
use crate::protocol::{
    AGAIN, CHUNK, CopyMessage, EntryKind, EntryPath, ExtendedAttributes, FileChunks, FileOutcome,
    TreeEntry, VerifiedChunks,
};
use crate::tree::{
    FolderTree, TreeEntryName, check_replaceable, file_type, modification_time, set_attributes,
};
use fullpipe_sys::lock;

/// Time on top of its own timeout that a transfer waits for another one that holds its files: that
/// one may have the same timeout, and then ends in the meantime.
const MORE_WAITING: Duration = Duration::from_secs(5);

/// Time between two attempts meanwhile.
const WAITING_INTERVAL: Duration = Duration::from_millis(10);

/// The work that is left for a file.
enum RemainingWork {
    /// Chunks of the file that are missing.
    Missing(Vec<FileChunks>),
    /// An earlier run has left it whole, but without its name.
    Whole(ArrivedFile),
}

impl FileReceiver {
    /// Makes a folder that its owner may change, or says that it would be made. Returns false if
    /// that fails.
    pub(super) fn make_folder(
        &self,
        place: &CopyDestination,
        path: &EntryPath,
        attributes: Option<&ExtendedAttributes>,
    ) -> bool {
        if self.options.dry_run {
            self.try_folder(place, path, attributes);
        } else if let Some(tree) = place.tree.as_ref() {
            let made = tree
                .locate_entry(path)
                .and_then(|within| within.make_folder());
            // It gets its own permissions at the end.
            if let Err(error) = made.and_then(|()| tree.let_owner_in(path)) {
                self.report_problem(path, &error);
                return false;
            }
        }
        true
    }

    /// Returns attributes of an entry to hold until it is there; `None` if they were not asked for.
    pub(super) fn hold_attributes(
        &self,
        path: &EntryPath,
        attributes: ExtendedAttributes,
    ) -> Option<Arc<ExtendedAttributes>> {
        if !self.options.attributes {
            return None;
        }
        let held = self.held.hold_attributes(attributes);
        if held.is_none() {
            let why = "those of files that have not come yet are too many".to_owned();
            self.common.not_kept(
                path,
                NotKept {
                    kind: "attributes".to_owned(),
                    why,
                },
            );
        }
        held
    }

    /// Gives what is open its attributes, if there are any to set.
    pub(crate) fn set_extended(
        &self,
        path: &EntryPath,
        open: impl AsFd,
        attributes: Option<&ExtendedAttributes>,
    ) {
        if let Some(attributes) = attributes {
            apply_attributes(open, attributes, &mut |what| {
                self.common.not_kept(path, what);
            });
        }
    }

    /// In a dry run, says that something that is there would get other attributes.
    pub(super) fn say_attributes(
        &self,
        tree: &FolderTree,
        path: &EntryPath,
        attributes: Option<&ExtendedAttributes>,
    ) {
        let Some(attributes) = attributes else { return };
        let open = tree.open_entry(path, OFlags::RDONLY | OFlags::NONBLOCK);
        if open.is_ok_and(|open| attributes_differ(open, attributes)) {
            self.common
                .send_note(format!("{path} would get other extended attributes"));
        }
    }

    /// Gives a file that is there already its attributes, or says that it would get them.
    fn update_attributes(&self, tree: &FolderTree, file: &IncomingFile) -> io::Result<()> {
        let Some(attributes) = file.attributes.as_deref() else {
            return Ok(());
        };
        if self.options.dry_run {
            self.say_attributes(tree, &file.path, Some(attributes));
            return Ok(());
        }
        let open = match tree.open_entry(&file.path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(open) => open,
            Err(error) => {
                let what = NotKept {
                    kind: "attributes".to_owned(),
                    why: error.to_string(),
                };
                self.common.not_kept(&file.path, what);
                return Ok(());
            }
        };
        if attributes_differ(&open, attributes) {
            // The system lets even its owner set them only if he may write to it.
            rustix::fs::fchmod(&open, Mode::RUSR | Mode::WUSR)?;
            self.set_extended(&file.path, &open, Some(attributes));
            set_attributes(&open, file.mode, file.modified)?;
        }
        Ok(())
    }

    pub(super) fn symbolic_link(&self, place: &CopyDestination, path: &EntryPath, target: &[u8]) {
        if self.options.dry_run {
            return self.try_link(place.tree.as_ref(), path, |within, stat| {
                is_link_to(within, stat, target)
            });
        }
        let Some(tree) = place.tree.as_ref() else {
            return;
        };
        let made = tree.locate_entry(path).and_then(|within| {
            if let Some(stat) = within.stat_entry()?
                && is_link_to(&within, &stat, target)?
            {
                return Ok(());
            }
            let working = working_entry(&within, path, false);
            self.when_free(path, || remove_unlocked(&working))?;
            working.make_link(target)?;
            working.rename_or_remove(&within)
        });
        if let Err(error) = made {
            self.report_problem(path, &error);
        }
    }

    /// Decides what is wanted of a file.
    pub(super) fn decide_file(self: &Arc<Self>, place: &CopyDestination, file: Arc<IncomingFile>) {
        match self.remaining_work(place, &file) {
            Ok(Some(RemainingWork::Whole(whole))) => {
                lock(&self.incoming).insert(file.number, file);
                self.complete_apart(whole);
            }
            Ok(Some(RemainingWork::Missing(missing))) => {
                let (number, size) = (file.number, file.size);
                let bytes = missing
                    .iter()
                    .map(|chunks| chunks.byte_count(size).get())
                    .sum();
                if let Err(why) = self.common.bounds.count_bytes(bytes) {
                    return self.report_outcome(&file, FileOutcome::Failed(why));
                }
                lock(&self.incoming).insert(number, file);
                self.want_rows(number, size, missing);
            }
            Ok(None) => {}
            Err(error) => self.report_outcome(&file, FileOutcome::Failed(error.to_string())),
        }
    }

    fn want_rows(&self, file: u32, size: ByteCount, rows: impl IntoIterator<Item = FileChunks>) {
        for chunks in rows {
            if self.common.events.is_some() {
                self.common
                    .tally
                    .wanted
                    .increase_by(chunks.byte_count(size).get());
            }
            self.common
                .out
                .send_message(&CopyMessage::Want { file, chunks });
        }
    }

    /// Wants chunks again that an earlier run had verified, and that are no longer there.
    ///
    /// # Errors
    /// Fails if the bounds of the copy do not let them cross.
    pub(super) fn want_lost(&self, file: &IncomingFile, lost: &[u32]) -> io::Result<()> {
        let rows = lost.chunk_by(|one, next| one + 1 == *next);
        let rows: Vec<FileChunks> = rows
            .map(|row| FileChunks {
                first: row[0],
                count: row.len() as u32,
            })
            .collect();
        let bytes = rows
            .iter()
            .map(|chunks| chunks.byte_count(file.size).get())
            .sum();
        self.common
            .bounds
            .count_bytes(bytes)
            .map_err(io::Error::other)?;
        self.want_rows(file.number, file.size, rows);
        Ok(())
    }

    /// Returns the work that is left for a file; `None` if the file is settled.
    fn remaining_work(
        &self,
        place: &CopyDestination,
        file: &Arc<IncomingFile>,
    ) -> io::Result<Option<RemainingWork>> {
        let Some(tree) = place.tree.as_ref().filter(|_| !self.is_vacant(&file.path)) else {
            self.report_outcome(file, FileOutcome::Wanted);
            return Ok(None);
        };
        if is_present(tree, file, self.options.dry_run)? {
            self.update_attributes(tree, file)?;
            // A journal outlives a transfer that was killed just after its file had its name.
            if !self.options.dry_run && file.size.get() > CHUNK as u64 {
                let _ = remove_left(tree, &file.path);
            }
            self.report_outcome(file, FileOutcome::Present);
            return Ok(None);
        }
        if self.options.dry_run {
            self.report_outcome(file, FileOutcome::Wanted);
            return Ok(None);
        }
        let mut state = lock(&file.state);
        state.verified = self.when_free(&file.path, || {
            recover_chunks(tree, &file.path, file.size, file.identity)
        })?;
        if let Some(digest) = state.verified.file_digest() {
            let (part, lost) = self.open_part(tree, file, &mut state.verified)?;
            if lost.is_empty() {
                state.is_closed = true;
                return Ok(Some(RemainingWork::Whole(ArrivedFile {
                    file: Arc::clone(file),
                    part: Box::new(part),
                    digest,
                })));
            }
        }
        Ok(Some(RemainingWork::Missing(
            state.verified.missing_ranges(),
        )))
    }

    /// Opens the part of a file, as [`PartialFile::open_part`] does.
    pub(super) fn open_part(
        &self,
        tree: &FolderTree,
        file: &IncomingFile,
        verified: &mut VerifiedChunks,
    ) -> io::Result<(PartialFile, Vec<u32>)> {
        let path = &file.path;
        let (part, lost) = self.when_free(path, || {
            PartialFile::open_part(tree, path, file.size, file.identity, verified)
        })?;
        if !part.is_locked && !self.lacks_locks.raise_flag() {
            self.common.send_note(format!(
                "the file system of {path} has no locks: let no other copy write the same files"
            ));
        }
        Ok((part, lost))
    }

    /// Tries again while another transfer holds the file, which may be an earlier one whose network
    /// has gone: it ends by itself once it has received nothing for a while. If the other end of
    /// this one goes meanwhile, the transfer does not wait: this thread may be the one that would
    /// read of that.
    pub(crate) fn when_free<T>(
        &self,
        path: &EntryPath,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match attempt() {
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && self.may_wait(path) =>
                {
                    thread::sleep(WAITING_INTERVAL);
                }
                done => return done,
            }
        }
    }

    fn may_wait(&self, path: &EntryPath) -> bool {
        let limit = self.options.timeout + MORE_WAITING;
        let until = self.waits_until.get_or_init(|| {
            let seconds = limit.as_secs();
            self.common.send_note(format!(
                "another transfer holds {path}; waiting up to {seconds} s for its end"
            ));
            Instant::now() + limit
        });
        Instant::now() < *until && !self.common.has_failed() && !self.common.out.is_broken()
    }

    /// Starts a file anew in the state that it has now: it changed while it was read.
    pub(super) fn restart_file(
        self: &Arc<Self>,
        number: u32,
        entry: TreeEntry,
    ) -> Result<(), CopyError> {
        const CANNOT_REPEAT: &str = "it repeats what it cannot repeat";
        let place = self
            .place
            .get()
            .filter(|_| number < self.files.load(Ordering::Relaxed));
        let (
            Some(place),
            EntryKind::File {
                mode,
                modified,
                size,
                identity,
            },
        ) = (place, entry.kind)
        else {
            return Err(CopyError::from_rule(CANNOT_REPEAT));
        };
        if FileChunks::from_size(size).is_none() {
            return Err(CopyError::from_rule(CANNOT_REPEAT));
        }
        let Some(old) = lock(&self.incoming).get(&number).cloned() else {
            return Ok(());
        };
        if !self.close_file(&old) {
            return Ok(());
        }
        let file = IncomingFile {
            number: number | AGAIN,
            path: old.path.clone(),
            mode,
            modified,
            size,
            identity,
            attributes: self.hold_attributes(&old.path, entry.attributes),
            state: IncomingState::new(size),
        };
        // It takes the memory of the old one, which gets no outcome.
        self.decide_file(place, Arc::new(file));
        self.remove_incoming(number);
        Ok(())
    }
}

fn is_link_to(within: &TreeEntryName, stat: &Stat, target: &[u8]) -> io::Result<bool> {
    Ok(file_type(stat) == FileType::Symlink && within.read_link()? == target)
}

/// Returns true if a file of this size and time is there, as rsync decides it; then it gets its
/// permissions.
fn is_present(tree: &FolderTree, file: &IncomingFile, dry_run: bool) -> io::Result<bool> {
    let within = tree.locate_entry(&file.path)?;
    let Some(stat) = within.stat_entry()? else {
        return Ok(false);
    };
    check_replaceable(&stat)?;
    let same = file_type(&stat) == FileType::RegularFile
        && stat.st_size.cast_unsigned() == file.size.get()
        && modification_time(&stat) == file.modified;
    if same && !dry_run && (stat.st_mode & 0o777) as u16 != file.mode {
        set_attributes(within.open_file(OFlags::PATH)?, file.mode, file.modified)?;
    }
    Ok(same)
}

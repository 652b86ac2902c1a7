//! Deletion of entries that the sender lacks, and of those that are in the way of its own.

use std::io;

use rustix::fs::FileType;

use super::FileReceiver;
use crate::part::remove_left;
use crate::protocol::{EntryKind, EntryPath, ExcludePatterns, PathError, TreeEntry};
use crate::tree::{FolderTree, file_type, folder_names, path_in_folder};
use fullpipe_sys::lock;

impl FileReceiver {
    /// Deletes what the sender does not have, in the folders that it has sent.
    pub(crate) fn delete_unsent(&self, tree: &FolderTree) {
        let count = lock(&self.list).folders.len();
        let sent = (0..count).filter_map(|index| {
            let folders = &lock(&self.list).folders;
            folders.full_path(&folders.get(index)?.path)
        });
        let mirrored = self
            .place
            .get()
            .is_some_and(|place| place.takes_content)
            .then_some(None);
        let folders = mirrored.into_iter().chain(sent.map(Some));
        for folder in folders {
            let folder = folder.as_ref();
            for name in self.names_to_compare(tree, folder) {
                let Ok(path) = path_in_folder(folder, &name) else {
                    self.delete_left(tree, folder, &name);
                    continue;
                };
                if !lock(&self.list).has_path(&path) {
                    self.delete_one(tree, &path);
                }
            }
        }
    }

    /// Returns the names in a folder, of which those are deleted that the sender lacks. None if it
    /// cannot be listed.
    fn names_to_compare(&self, tree: &FolderTree, folder: Option<&EntryPath>) -> Vec<Vec<u8>> {
        if folder.is_some_and(|folder| self.is_vacant(folder)) {
            return Vec::new();
        }
        let found = tree.open_folder(folder).and_then(folder_names);
        found.unwrap_or_else(|error| {
            // That one could not be made was said.
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) {
                let path = folder.map_or_else(|| ".".to_owned(), ToString::to_string);
                self.report_problem(
                    &path,
                    &format!("nothing is deleted in it, because it cannot be listed: {error}"),
                );
            }
            Vec::new()
        })
    }

    /// Deletes what an earlier transfer has left of a file, unless the sender has that or it is
    /// excluded.
    fn delete_left(&self, tree: &FolderTree, folder: Option<&EntryPath>, working: &[u8]) {
        let Some(name) = EntryPath::name_of_working(working).filter(|_| !self.options.dry_run)
        else {
            return;
        };
        let Ok(path) = path_in_folder(folder, name) else {
            return;
        };
        let was_sent = lock(&self.list).has_path(&path);
        if !was_sent
            && !self.options.excludes.excludes_path(&path, false)
            && let Err(error) = remove_left(tree, &path)
        {
            self.report_problem(
                &path,
                &format!("what an earlier copy has left of it cannot be deleted: {error}"),
            );
        }
    }

    /// Deletes a file or link where the sender has a folder, and a folder where it has something
    /// else.
    pub(super) fn make_room(&self, tree: &FolderTree, entry: &TreeEntry) {
        // Who makes the entry finds out why it cannot be reached.
        let Ok(Some(stat)) = tree.stat_path(&entry.path) else {
            return;
        };
        let is_in_its_way = match (&entry.kind, file_type(&stat)) {
            (EntryKind::LeftOut, _) => false,
            (EntryKind::Folder { .. }, found) => {
                matches!(found, FileType::RegularFile | FileType::Symlink)
            }
            (_, found) => found == FileType::Directory,
        };
        if is_in_its_way {
            self.delete_one(tree, &entry.path);
        }
    }

    /// Deletes an entry, but not what is excluded in it.
    fn delete_one(&self, tree: &FolderTree, path: &EntryPath) {
        match to_delete(tree, &self.options.excludes, path) {
            Ok(parts) => parts
                .into_iter()
                .for_each(|part| match self.remove_entry(tree, &part) {
                    Ok(()) => self.report_deleted(part),
                    Err(error) => self.report_kept(&part, &error),
                }),
            Err(error) => self.report_kept(path, &error),
        }
    }

    fn report_kept(&self, path: &EntryPath, error: &io::Error) {
        self.report_problem(path, &format!("it cannot be deleted: {error}"));
    }

    /// Removes an entry with all that is in it. A dry run notes that.
    fn remove_entry(&self, tree: &FolderTree, path: &EntryPath) -> io::Result<()> {
        if self.options.dry_run {
            self.note_vacant(path);
            return Ok(());
        }
        tree.locate_entry(path)?.remove_all()
    }
}

/// Returns the entry at `path` if nothing in it is excluded; otherwise the largest parts of it of
/// which that is true.
fn to_delete(
    tree: &FolderTree,
    excludes: &ExcludePatterns,
    path: &EntryPath,
) -> io::Result<Vec<EntryPath>> {
    let is_folder = tree
        .stat_path(path)?
        .is_some_and(|stat| file_type(&stat) == FileType::Directory);
    if excludes.excludes_path(path, is_folder) {
        return Ok(Vec::new());
    }
    if !is_folder || excludes.is_empty() {
        return Ok(vec![path.clone()]);
    }
    let (mut parts, mut is_whole) = (Vec::new(), true);
    for name in folder_names(tree.open_folder(Some(path))?)? {
        let inner = match path.join_name(&name) {
            Ok(inner) => inner,
            // It goes with its folder.
            Err(PathError::Reserved) => continue,
            Err(error) => return Err(io::Error::other(error)),
        };
        let inner_parts = to_delete(tree, excludes, &inner)?;
        is_whole &= inner_parts == [inner];
        parts.extend(inner_parts);
    }
    Ok(if is_whole { vec![path.clone()] } else { parts })
}

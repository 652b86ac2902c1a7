//! A dry run: what would be made is named, and nothing is changed.

use std::io;

use rustix::fs::Stat;

use super::{CopyDestination, FileReceiver, path_hash};
use crate::options::CopyEvent;
use crate::protocol::{CopyMessage, EntryPath, ExtendedAttributes};
use crate::tree::{FolderTree, TreeEntryName, check_folder, check_replaceable};
use fullpipe_sys::lock;

impl FileReceiver {
    /// Notes that nothing would be at `path`: it would be deleted before, or is a folder that would
    /// be new.
    pub(crate) fn note_vacant(&self, path: &EntryPath) {
        lock(&self.list).vacant.insert(path_hash(path.as_bytes()));
    }

    /// Returns true if nothing would be at `path`, or in its folder.
    pub(super) fn is_vacant(&self, path: &EntryPath) -> bool {
        let vacant = &lock(&self.list).vacant;
        !vacant.is_empty()
            && std::iter::once(path.as_bytes())
                .chain(path.parent_path())
                .any(|path| vacant.contains(&path_hash(path)))
    }

    /// Names a folder that would be made.
    pub(super) fn try_folder(
        &self,
        place: &CopyDestination,
        path: &EntryPath,
        attributes: Option<&ExtendedAttributes>,
    ) {
        let found = self.is_there(place.tree.as_ref(), path, |_, stat| {
            check_folder(Some(stat)).map(|()| true)
        });
        match found {
            Ok(true) => place
                .tree
                .iter()
                .for_each(|tree| self.say_attributes(tree, path, attributes)),
            Ok(false) => {
                self.note_vacant(path);
                self.would_copy(path);
            }
            Err(error) => self.report_problem(path, &error),
        }
    }

    /// Names a link that would be made, unless what has its name `is_same`.
    pub(crate) fn try_link(
        &self,
        tree: Option<&FolderTree>,
        path: &EntryPath,
        is_same: impl FnOnce(&TreeEntryName, &Stat) -> io::Result<bool>,
    ) {
        match self.is_there(tree, path, |within, stat| {
            check_replaceable(stat).and_then(|()| is_same(within, stat))
        }) {
            Ok(true) => {}
            Ok(false) => self.would_copy(path),
            Err(error) => self.report_problem(path, &error),
        }
    }

    fn is_there(
        &self,
        tree: Option<&FolderTree>,
        path: &EntryPath,
        is_there: impl FnOnce(&TreeEntryName, &Stat) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let Some(tree) = tree.filter(|_| !self.is_vacant(path)) else {
            return Ok(false);
        };
        let within = tree.locate_entry(path)?;
        within
            .stat_entry()?
            .map_or(Ok(false), |stat| is_there(&within, &stat))
    }

    fn would_copy(&self, path: &EntryPath) {
        if self.common.events.is_some() {
            self.common.send_event(CopyEvent::WouldCopy(path.clone()));
        } else {
            self.common
                .out
                .send_message(&CopyMessage::WouldCopy { path: path.clone() });
        }
    }
}

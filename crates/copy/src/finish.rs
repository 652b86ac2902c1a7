//! The end of a copy at the receiver: second names, what is deleted, and the attributes of folders,
//! which change while something is made in them.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::fs::{FileType, OFlags, Stat, fsync};

use crate::part::{remove_unlocked, working_entry};
use crate::protocol::{CopyMessage, EntryPath};
use crate::receiver::{FileReceiver, ListedFolder};
use crate::summary::Figures;
use crate::tree::{FolderTree, file_type, modification_time, permission_bits, set_attributes};
use fullpipe_sys::lock;

/// Time between two checks whether the transfer has failed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until every file has come or failed, and does what is left. Returns without that if the
/// transfer fails.
pub(crate) fn finish_copy(receiver: &Arc<FileReceiver>) {
    let Some(complete) = wait_until_settled(receiver) else {
        return;
    };
    let tree = receiver.place.get().and_then(|place| place.tree.as_ref());
    create_links(receiver, tree);
    if let Some(tree) = tree {
        if receiver.options.delete && complete {
            receiver.delete_unsent(tree);
        } else if receiver.options.delete {
            let why = "nothing is deleted, because not every folder could be read";
            receiver.common.send_note(why.to_owned());
        }
        if !receiver.options.dry_run {
            settle_folders(receiver, tree);
        }
    }
    lock(&receiver.list).is_over = true;
    receiver.common.out.send_message(&CopyMessage::Figures(
        Figures::of_receiver(receiver.work_seconds()).to_json(),
    ));
    receiver.common.out.send_message(&CopyMessage::Finished);
}

/// Waits until everything on the list has come. Returns true if the list was complete; `None` if
/// the transfer fails before.
fn wait_until_settled(receiver: &FileReceiver) -> Option<bool> {
    let mut list = lock(&receiver.list);
    loop {
        if receiver.common.has_failed() {
            return None;
        }
        if let Some(complete) = list.end.filter(|_| receiver.is_settled()) {
            return Some(complete);
        }
        let waited = receiver.changed.wait_timeout(list, POLL_INTERVAL);
        list = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn create_links(receiver: &FileReceiver, tree: Option<&FolderTree>) {
    let links = std::mem::take(&mut lock(&receiver.list).links);
    let paths = links.iter().filter_map(|(path, first)| {
        let folders = &lock(&receiver.list).folders;
        folders.full_path(path).zip(folders.full_path(first))
    });
    for (path, first) in paths {
        let was_sent = lock(&receiver.list).has_path(&first);
        let linked = match tree {
            _ if !was_sent => Err(io::Error::other(
                "it is a second name of a file that was not sent",
            )),
            Some(tree) if !receiver.options.dry_run => link_one(receiver, tree, &path, &first),
            _ => {
                receiver.try_link(tree, &path, |_, stat| has_inode(tree, &first, stat));
                Ok(())
            }
        };
        if let Err(error) = linked {
            receiver.report_problem(&path, &error);
        }
    }
}

/// Returns true if `first` is the file of this state.
fn has_inode(tree: Option<&FolderTree>, first: &EntryPath, stat: &Stat) -> io::Result<bool> {
    let found = tree.map_or(Ok(None), |tree| tree.stat_path(first))?;
    Ok(found.is_some_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino)))
}

fn link_one(
    receiver: &FileReceiver,
    tree: &FolderTree,
    path: &EntryPath,
    first: &EntryPath,
) -> io::Result<()> {
    let (new, old) = (tree.locate_entry(path)?, tree.locate_entry(first)?);
    let found = old
        .stat_entry()?
        .filter(|stat| file_type(stat) == FileType::RegularFile);
    let found = found
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "its first name is not there"))?;
    if new
        .stat_entry()?
        .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (found.st_dev, found.st_ino))
    {
        return Ok(());
    }
    let working = working_entry(&new, path, false);
    receiver.when_free(path, || remove_unlocked(&working))?;
    working.link_to(&old)?;
    working.rename_or_remove(&new)
}

/// Gives folders their attributes, the inner ones first, and makes the names in them durable.
fn settle_folders(receiver: &FileReceiver, tree: &FolderTree) {
    let folders = std::mem::take(&mut lock(&receiver.list).folders);
    for listed in (0..folders.len())
        .rev()
        .filter_map(|index| folders.get(index))
    {
        let Some(path) = folders.full_path(&listed.path) else {
            continue;
        };
        if let Err(error) = settle_folder(receiver, tree, &path, listed) {
            receiver.report_problem(&path, &error);
        }
    }
    let synchronised = tree.open_folder(None).and_then(|root| Ok(fsync(root)?));
    if let Err(error) = synchronised {
        receiver.common.send_note(format!(
            "a loss of power may take the newest names in the folder of the copy, which cannot be opened to make them \
             durable: {error}"
        ));
    }
}

/// Gives a folder its attributes, and makes the names in it durable if it may be read, as those of
/// its owner can be.
fn settle_folder(
    receiver: &FileReceiver,
    tree: &FolderTree,
    path: &EntryPath,
    listed: &ListedFolder,
) -> io::Result<()> {
    let folder = match tree.open_folder(Some(path)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tree.open_entry(path, OFlags::PATH | OFlags::DIRECTORY)?
        }
        opened => {
            let folder = opened?;
            receiver.set_extended(path, &folder, listed.attributes.as_deref());
            fsync(&folder)?;
            folder
        }
    };
    let stat = rustix::fs::fstat(&folder)?;
    let has_mode = permission_bits(&stat).bits() == u32::from(listed.mode);
    if has_mode && modification_time(&stat) == listed.modified {
        return Ok(());
    }
    set_attributes(&folder, listed.mode, listed.modified)
}

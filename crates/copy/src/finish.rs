//! The end of a copy at the receiver: second names, what is deleted, and the attributes of folders, which change while
//! something is made in them.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fullpipe_transfer::{Entry, EntryKind, EntryPath, Excludes, Message, PathError};
use rustix::fs::{FileType, OFlags, Stat, fsync};

use crate::locks::lock;
use crate::part::{clear, remove_left, working};
use crate::receiver::{ListedFolder, Receiver, path_hash};
use crate::summary::Figures;
use crate::tree::{Tree, Within, kind, modified, names, set_attributes};

/// Time between two checks whether the transfer has failed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until every file has come or failed, and does what is left. Returns without that if the transfer fails.
pub(crate) fn finish(receiver: &Arc<Receiver>) {
    let Some(complete) = wait(receiver) else { return };
    let tree = receiver.place.get().and_then(|place| place.tree.as_ref());
    link(receiver, tree);
    if let Some(tree) = tree {
        if receiver.options.delete {
            if complete {
                delete(receiver, tree);
            } else {
                receiver.common.note("nothing is deleted, because not every folder could be read".to_owned());
            }
        }
        if !receiver.options.dry_run {
            settle_folders(receiver, tree);
        }
    }
    lock(&receiver.list).is_over = true;
    receiver.common.out.send(&Message::Figures(Figures::of_receiver(receiver.working()).to_json()));
    receiver.common.out.send(&Message::Finished);
}

/// Returns whether the list was complete, once everything on it has come; `None` if the transfer fails before.
fn wait(receiver: &Receiver) -> Option<bool> {
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

fn link(receiver: &Receiver, tree: Option<&Tree>) {
    let links = std::mem::take(&mut lock(&receiver.list).links);
    for (path, first) in links {
        let was_sent = lock(&receiver.list).seen.contains(&path_hash(first.as_bytes()));
        let linked = match tree {
            _ if !was_sent => Err(io::Error::other("it is a second name of a file that was not sent")),
            Some(tree) if !receiver.options.dry_run => link_one(tree, &path, &first),
            _ => {
                let is_same = |_: &Within, stat: &Stat| has_inode(tree, &first, stat);
                receiver.try_link(tree, &path, is_same);
                Ok(())
            }
        };
        if let Err(error) = linked {
            receiver.problem(&path, &error.to_string());
        }
    }
}

/// Returns true if `first` is the file of this state.
fn has_inode(tree: Option<&Tree>, first: &EntryPath, stat: &Stat) -> io::Result<bool> {
    let found = tree.map_or(Ok(None), |tree| tree.within(first)?.stat())?;
    Ok(found.is_some_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino)))
}

fn link_one(tree: &Tree, path: &EntryPath, first: &EntryPath) -> io::Result<()> {
    let (new, old) = (tree.within(path)?, tree.within(first)?);
    let found = old.stat()?.filter(|stat| kind(stat) == FileType::RegularFile);
    let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "its first name is not there"))?;
    if new.stat()?.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (found.st_dev, found.st_ino)) {
        return Ok(());
    }
    let working = working(&new, path, false);
    clear(&working)?;
    working.link_to(&old)?;
    working.rename_or_remove(&new)
}

/// Deletes what the sender does not have, in the folders that it has sent.
fn delete(receiver: &Receiver, tree: &Tree) {
    let sent: Vec<EntryPath> = lock(&receiver.list).folders.iter().map(|folder| folder.path.clone()).collect();
    let mirrored = receiver.place.get().is_some_and(|place| place.takes_content).then_some(None);
    let folders = mirrored.into_iter().chain(sent.into_iter().map(Some));
    for folder in folders {
        let Ok(found) = tree.open_folder(folder.as_ref()).and_then(names) else { continue };
        for name in found {
            let path = folder.as_ref().map_or_else(|| EntryPath::new(name.as_slice()), |folder| folder.join(&name));
            let Ok(path) = path else {
                delete_left(receiver, tree, folder.as_ref(), &name);
                continue;
            };
            if !lock(&receiver.list).seen.contains(&path_hash(path.as_bytes())) {
                delete_one(receiver, tree, &path);
            }
        }
    }
}

/// Deletes what an earlier transfer has left of a file, unless the sender has that or it is excluded.
fn delete_left(receiver: &Receiver, tree: &Tree, folder: Option<&EntryPath>, working: &[u8]) {
    let Some(name) = EntryPath::name_of_working(working).filter(|_| !receiver.options.dry_run) else { return };
    let path = folder.map_or_else(|| EntryPath::new(name), |folder| folder.join(name));
    let Ok(path) = path else { return };
    let was_sent = lock(&receiver.list).seen.contains(&path_hash(path.as_bytes()));
    if !was_sent
        && !receiver.options.excludes.exclude(&path, false)
        && let Err(error) = remove_left(tree, &path)
    {
        receiver.problem(&path, &format!("what an earlier copy has left of it cannot be deleted: {error}"));
    }
}

/// Deletes a file or link where the sender has a folder, and a folder where it has something else.
pub(crate) fn make_room(receiver: &Receiver, tree: &Tree, entry: &Entry) {
    // Who makes the entry finds out why it cannot be reached.
    let Ok(Some(stat)) = tree.within(&entry.path).and_then(|within| within.stat()) else { return };
    let is_in_its_way = match (&entry.kind, kind(&stat)) {
        (EntryKind::LeftOut, _) => false,
        (EntryKind::Folder { .. }, found) => matches!(found, FileType::RegularFile | FileType::Symlink),
        (_, found) => found == FileType::Directory,
    };
    if is_in_its_way {
        delete_one(receiver, tree, &entry.path);
    }
}

/// Deletes an entry, but not what is excluded in it.
fn delete_one(receiver: &Receiver, tree: &Tree, path: &EntryPath) {
    let failed = |path: &EntryPath, error| receiver.problem(path, &format!("it cannot be deleted: {error}"));
    match to_delete(tree, &receiver.options.excludes, path) {
        Ok(parts) => parts.into_iter().for_each(|part| match remove(receiver, tree, &part) {
            Ok(()) => receiver.deleted(part),
            Err(error) => failed(&part, error),
        }),
        Err(error) => failed(path, error),
    }
}

/// Removes an entry with all that is in it. A dry run notes that.
fn remove(receiver: &Receiver, tree: &Tree, path: &EntryPath) -> io::Result<()> {
    if receiver.options.dry_run {
        receiver.note_vacant(path);
        return Ok(());
    }
    tree.within(path)?.remove_all()
}

/// Returns the entry at `path` if nothing in it is excluded; otherwise the largest parts of it of which that is true.
fn to_delete(tree: &Tree, excludes: &Excludes, path: &EntryPath) -> io::Result<Vec<EntryPath>> {
    let is_folder = tree.within(path)?.stat()?.is_some_and(|stat| kind(&stat) == FileType::Directory);
    if excludes.exclude(path, is_folder) {
        return Ok(Vec::new());
    }
    if !is_folder || excludes.is_empty() {
        return Ok(vec![path.clone()]);
    }
    let (mut parts, mut is_whole) = (Vec::new(), true);
    for name in names(tree.open_folder(Some(path))?)? {
        let inner = match path.join(&name) {
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

/// Gives folders their attributes, the inner ones first, and makes the names in them durable.
fn settle_folders(receiver: &Receiver, tree: &Tree) {
    let folders = std::mem::take(&mut lock(&receiver.list).folders);
    for ListedFolder { path, mode, modified: time, attributes } in folders.iter().rev() {
        let settled = tree.open_entry(path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|folder| {
            receiver.set_extended(path, &folder, attributes.as_deref());
            fsync(&folder)?;
            let stat = rustix::fs::fstat(&folder)?;
            if (stat.st_mode & 0o777) as u16 == *mode && modified(&stat) == *time {
                return Ok(());
            }
            set_attributes(&folder, *mode, *time)
        });
        if let Err(error) = settled {
            receiver.problem(path, &error.to_string());
        }
    }
    let synchronised = tree.open_folder(None).and_then(|root| Ok(fsync(root)?));
    if let Err(error) = synchronised {
        receiver.common.note(format!("the folder of the copy cannot be made durable: {error}"));
    }
}

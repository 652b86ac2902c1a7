//! The list of what is sent: the tree as it is walked, folders before what is in them.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use fullpipe_units::ByteCount;
use rustix::fs::{FileType, OFlags, Stat};

use crate::attributes::{self, NotKept};
use crate::options::CopyError;
use crate::protocol::{
    EntryKind, EntryPath, ExcludePatterns, ExtendedAttributes, FileIdentity, PathError, TreeEntry,
};
use crate::receiver::{MAX_ENTRIES, MAX_LIST, PathHash, SECOND_NAME, path_hash};
use crate::root::{FolderRoot, folder_of};
use crate::tree::{FolderTree, file_type, folder_names, modification_time, path_in_folder};

/// A file or folder that the user named.
pub(crate) struct CopySource {
    pub tree: FolderTree,
    /// The name of the source at the receiver; without one, the content of the folder is sent.
    pub top: Option<EntryPath>,
}

/// A file of the list.
#[derive(Clone)]
pub(crate) struct SourceFile {
    pub source: usize,
    pub path: EntryPath,
    pub size: ByteCount,
    pub identity: FileIdentity,
}

/// The one who takes the list.
pub(crate) trait ListReceiver {
    /// Takes an entry; of a file also its place at the sender.
    fn add_entry(&mut self, entry: TreeEntry, file: Option<SourceFile>);
    /// Takes something that cannot be sent.
    fn add_problem(&mut self, path: &[u8], why: &str);
    /// Takes attributes that are not sent.
    fn not_kept(&mut self, path: &EntryPath, what: NotKept);
    /// Takes something that is not sent because of its name.
    fn not_sent(&mut self, path: &[u8], why: &str);
    /// Takes a device, a pipe or a socket, which are never sent.
    fn left_out(&mut self, path: &EntryPath);
    /// Takes that the list is longer than both ends can remember.
    fn too_long(&mut self);
    /// Returns true if the rest is not wanted.
    fn is_over(&self) -> bool;
}

impl CopySource {
    /// Opens what stands at `path`. As for rsync, a folder that ends with `/` or `.` stands for
    /// what is in it.
    ///
    /// # Errors
    /// Fails if it is not there.
    pub(crate) fn open_source(root: &FolderRoot, path: &Path) -> Result<Self, CopyError> {
        let bytes = path.as_os_str().as_bytes();
        let failed = CopyError::from_path(bytes);
        let Some(name) = receiver_name(bytes) else {
            return Ok(Self {
                tree: root.open_tree(path).map_err(failed)?,
                top: None,
            });
        };
        let tree = root.open_tree(folder_of(path)).map_err(&failed)?;
        let top = EntryPath::new(name).map_err(|error| failed(io::Error::other(error)))?;
        let found = tree.stat_path(&top).map_err(&failed)?;
        found.ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "it is not there")))?;
        Ok(Self {
            tree,
            top: Some(top),
        })
    }

    /// Returns true if the source is one file or link.
    pub(crate) fn is_single(&self) -> bool {
        let stat = self
            .top
            .as_ref()
            .and_then(|top| self.tree.stat_path(top).ok()?);
        stat.is_some_and(|stat| file_type(&stat) != FileType::Directory)
    }
}

/// Returns the memory for the first name of a file with several.
fn name_memory(path: &EntryPath) -> u64 {
    SECOND_NAME + path.as_bytes().len() as u64
}

/// Returns the name at the receiver of what stands at `path`; `None` if what is in it is sent.
pub(crate) fn receiver_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// Walks all sources, with attributes if `keeps_attributes`. Returns whether all of them could be
/// read.
pub(crate) fn walk_sources(
    sources: &[CopySource],
    excludes: &ExcludePatterns,
    keeps_attributes: bool,
    list: &mut dyn ListReceiver,
) -> bool {
    let mut walk = SourceWalk {
        excludes,
        keeps_attributes,
        list,
        names_of: HashMap::new(),
        names_memory: 0,
        folders: Vec::new(),
        reading: None,
        count: 0,
        taken: (sources.len() > 1).then(HashMap::new),
        doubles: (None, 0),
        is_complete: true,
    };
    for (index, source) in sources.iter().enumerate() {
        match &source.top {
            Some(top) => walk.visit_path(index, source, top.clone()),
            None => walk.folders.push(None),
        }
        while let Some(folder) = walk.folders.pop() {
            // Its parts are those of paths that were walked.
            walk.reading = folder
                .and_then(|folder| folder.folder_path().ok())
                .map(Arc::new);
            walk.read_folder(index, source, walk.reading.clone().as_deref());
        }
    }
    walk.name_doubles();
    walk.is_complete
}

/// Returns a file of the list in the state that it has now; `None` if it is no longer there, or no
/// longer a file.
///
/// # Errors
/// Fails if its folder cannot be reached.
pub(crate) fn file_now(
    sources: &[CopySource],
    file: &SourceFile,
) -> io::Result<Option<(EntryKind, SourceFile)>> {
    let stat = match sources[file.source].tree.stat_path(&file.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => found?,
    };
    let regular = stat.filter(|stat| file_type(stat) == FileType::RegularFile);
    Ok(regular.map(|stat| file_of(&stat, file.source, &file.path)))
}

/// Returns a regular file as an entry, and as its sender finds it again.
fn file_of(stat: &Stat, source: usize, path: &EntryPath) -> (EntryKind, SourceFile) {
    let (size, identity) = (
        ByteCount::new(stat.st_size.cast_unsigned()),
        file_identity(stat),
    );
    let kind = EntryKind::File {
        mode: (stat.st_mode & 0o777) as u16,
        modified: modification_time(stat),
        size,
        identity,
    };
    (
        kind,
        SourceFile {
            source,
            path: path.clone(),
            size,
            identity,
        },
    )
}

/// Returns the attributes that an entry has now. `not_kept` takes those that are left out.
///
/// # Errors
/// Fails if it cannot be opened.
pub(crate) fn attributes_of(
    source: &CopySource,
    path: &EntryPath,
    not_kept: &mut dyn FnMut(NotKept),
) -> io::Result<ExtendedAttributes> {
    let open = source
        .tree
        .open_entry(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    Ok(attributes::read_attributes(open, not_kept))
}

struct SourceWalk<'w> {
    excludes: &'w ExcludePatterns,
    keeps_attributes: bool,
    list: &'w mut dyn ListReceiver,
    /// The first name of each file that has several, by source, device and inode, with the number
    /// of those to come.
    names_of: HashMap<(usize, u64, u64), (EntryPath, usize)>,
    /// Bytes of memory of these names.
    names_memory: u64,
    /// Folders that are to be read; `None` for the source itself.
    folders: Vec<Option<PendingFolder>>,
    /// The folder that is being read, which those in it share.
    reading: Option<Arc<EntryPath>>,
    /// Entries that were listed up to now.
    count: usize,
    /// The paths of entries, and whether these are folders; absent if no other source can have one
    /// of the same.
    taken: Option<HashMap<PathHash, bool>>,
    /// Entries whose path one of an earlier source has, the first of them with its name.
    doubles: (Option<EntryPath>, u64),
    is_complete: bool,
}

/// A folder that is to be read, by its name in another one.
struct PendingFolder {
    outer: Option<Arc<EntryPath>>,
    name: Box<[u8]>,
}

impl PendingFolder {
    fn folder_path(&self) -> Result<EntryPath, PathError> {
        path_in_folder(self.outer.as_deref(), &self.name)
    }
}

impl SourceWalk<'_> {
    /// Reads a folder later.
    fn push_folder(&mut self, path: &EntryPath) {
        let outer = self
            .reading
            .clone()
            .filter(|outer| path.parent_path() == Some(outer.as_bytes()));
        let name = if outer.is_some() {
            path.last_name()
        } else {
            path.as_bytes()
        };
        self.folders.push(Some(PendingFolder {
            outer,
            name: name.into(),
        }));
    }

    fn read_folder(&mut self, index: usize, source: &CopySource, folder: Option<&EntryPath>) {
        let shown = folder.map_or(&b"."[..], EntryPath::as_bytes);
        let names = match source.tree.open_folder(folder).and_then(folder_names) {
            Ok(names) => names,
            Err(error) => return self.report_problem(shown, &error),
        };
        for name in names {
            if self.list.is_over() {
                self.is_complete = false;
                return;
            }
            match path_in_folder(folder, &name) {
                Ok(path) => self.visit_path(index, source, path),
                Err(error) => {
                    let whole = folder.map_or(name.clone(), |folder| {
                        [folder.as_bytes(), b"/", &name].concat()
                    });
                    match error {
                        // A file of another transfer, which is not complete.
                        PathError::Reserved => self.list.not_sent(&whole, &error.to_string()),
                        _ => self.report_problem(&whole, &error),
                    }
                }
            }
        }
    }

    fn visit_path(&mut self, index: usize, source: &CopySource, path: EntryPath) {
        let entry = self.entry_kind(index, source, &path);
        self.count += usize::from(matches!(entry, Ok(Some(_))));
        if self.count > MAX_ENTRIES || self.names_memory > MAX_LIST.get() {
            self.is_complete = false;
            return self.list.too_long();
        }
        match entry {
            Ok(Some(kind)) => {
                let (attributes, file) = match kind {
                    EntryKind::Folder { .. } => {
                        self.push_folder(&path);
                        (self.entry_attributes(source, &path), None)
                    }
                    EntryKind::File { size, identity, .. } => {
                        let file = SourceFile {
                            source: index,
                            path: path.clone(),
                            size,
                            identity,
                        };
                        (self.entry_attributes(source, &path), Some(file))
                    }
                    _ => (ExtendedAttributes::default(), None),
                };
                let entry = TreeEntry {
                    path,
                    kind,
                    attributes,
                };
                self.list.add_entry(entry, file);
            }
            Ok(None) => {}
            Err(error) => self.report_problem(path.as_bytes(), &error),
        }
    }

    /// Returns the attributes to send with an entry. What cannot be opened has none; that is named
    /// when it is read.
    fn entry_attributes(&mut self, source: &CopySource, path: &EntryPath) -> ExtendedAttributes {
        if !self.keeps_attributes {
            return ExtendedAttributes::default();
        }
        attributes_of(source, path, &mut |what| self.list.not_kept(path, what)).unwrap_or_default()
    }

    fn entry_kind(
        &mut self,
        index: usize,
        source: &CopySource,
        path: &EntryPath,
    ) -> io::Result<Option<EntryKind>> {
        let within = source.tree.locate_entry(path)?;
        let Some(stat) = within.stat_entry()? else {
            return Ok(None);
        };
        let found = file_type(&stat);
        let is_folder = found == FileType::Directory;
        if self.excludes.excludes_path(path, is_folder) || !self.claim_path(path, is_folder) {
            return Ok(None);
        }
        let mode = (stat.st_mode & 0o777) as u16;
        Ok(match found {
            FileType::Directory => Some(EntryKind::Folder {
                mode,
                modified: modification_time(&stat),
            }),
            FileType::Symlink => Some(EntryKind::SymbolicLink {
                target: within.read_link()?,
            }),
            FileType::RegularFile => {
                if stat.st_nlink > 1 {
                    // The type of this number is another one on other processors.
                    let others = (1..stat.st_nlink).count();
                    let first = self.first_name((index, stat.st_dev, stat.st_ino), path, others);
                    if let Some(first) = first {
                        return Ok(Some(EntryKind::HardLink { first }));
                    }
                }
                Some(file_of(&stat, index, path).0)
            }
            _ => {
                self.list.left_out(path);
                Some(EntryKind::LeftOut)
            }
        })
    }

    /// Returns the first name of a file that has `others`; `None` if this one is it.
    fn first_name(
        &mut self,
        file: (usize, u64, u64),
        path: &EntryPath,
        others: usize,
    ) -> Option<EntryPath> {
        let Slot::Occupied(mut slot) = self.names_of.entry(file) else {
            self.names_memory += name_memory(path);
            self.names_of.insert(file, (path.clone(), others));
            return None;
        };
        slot.get_mut().1 -= 1;
        if slot.get().1 > 0 {
            return Some(slot.get().0.clone());
        }
        let (first, _) = slot.remove();
        self.names_memory -= name_memory(&first);
        Some(first)
    }

    /// Takes a path for an entry; returns false if one of an earlier source has it. Folders become
    /// one.
    fn claim_path(&mut self, path: &EntryPath, is_folder: bool) -> bool {
        let Some(taken) = &mut self.taken else {
            return true;
        };
        match taken.entry(path_hash(path.as_bytes())) {
            Slot::Vacant(slot) => {
                slot.insert(is_folder);
                return true;
            }
            Slot::Occupied(slot) if is_folder && *slot.get() => self.push_folder(path),
            Slot::Occupied(_) => {
                self.doubles.0.get_or_insert_with(|| path.clone());
                self.doubles.1 += 1;
            }
        }
        false
    }

    /// Names the first entry whose path one of an earlier source has, and counts the others.
    fn name_doubles(&mut self) {
        let (Some(first), count) = &self.doubles else {
            return;
        };
        let others = if *count > 1 {
            format!("; so have {} others", count - 1)
        } else {
            String::new()
        };
        self.list.not_sent(
            first.as_bytes(),
            &format!("an earlier source has an entry of this name{others}"),
        );
    }

    fn report_problem(&mut self, path: &[u8], why: &dyn Display) {
        self.is_complete = false;
        self.list.add_problem(path, &why.to_string());
    }
}

/// Returns the digest that identifies a file and its state: inode, size, and times of change. The
/// number of its device is not part of it: many file systems get another one with each mount, after
/// which a copy must still be able to continue.
pub(crate) fn file_identity(stat: &Stat) -> FileIdentity {
    FileIdentity::from_numbers(&[
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec,
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec,
    ])
}

#[cfg(test)]
mod tests;

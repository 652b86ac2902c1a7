//! The list as the receiver remembers it: what is on it, and what is left to do for folders and
//! second names.
//!
//! The memory of the list is bounded, because the sender decides how long it is. Paths of deep
//! trees repeat those of their folders, so that what stays to the end of the copy is a name and the
//! place of its folder in the list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fullpipe_units::ByteCount;

use crate::options::CopyError;
use crate::protocol::{EntryPath, ExtendedAttributes, ModificationTime, chunk_hash};

/// Entries of a list at most.
pub(crate) const MAX_ENTRIES: usize = 8 << 20;

/// Bytes of memory that a list takes at most.
pub(crate) const MAX_LIST: ByteCount = ByteCount::from_mib(512);

/// Bytes of memory of the hash of a path, in a table that may be half empty.
const HASHED: u64 = 48;

/// Bytes of memory of a file that waits, of a folder and of a second name, each without its path.
pub(crate) const WAITING_FILE: u64 = 384;
const FOLDER: u64 = 64;
pub(crate) const SECOND_NAME: u64 = 96;

/// Name of an entry as the hash of its path.
pub(crate) type PathHash = [u8; 16];

/// Returns the name of the entry at `path`.
pub(crate) fn path_hash(path: &[u8]) -> PathHash {
    let digest = chunk_hash(ByteCount::new(path.len() as u64), 0, path);
    let mut hash = PathHash::default();
    hash.copy_from_slice(&digest[..16]);
    hash
}

/// Returns the error of a list that is too long.
pub(crate) fn list_too_long() -> CopyError {
    let why = format!(
        "the list of one copy has at most {MAX_ENTRIES} entries, and takes at most {MAX_LIST} of memory; copy the \
         folders one after the other"
    );
    CopyError::Refused { code: 1, why }
}

/// The list as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct ReceivedList {
    /// Entries of the list by the hash of their path, each with its place among the folders;
    /// [`NO_FOLDER`] for others.
    seen: HashMap<PathHash, u32>,
    /// Paths at which nothing would be, had a dry run changed what it names.
    pub(super) vacant: HashSet<PathHash>,
    pub folders: ListedFolders,
    /// Second names of files, each with the first.
    pub links: Vec<(ShortPath, ShortPath)>,
    /// True if the list is complete, once it has ended.
    pub end: Option<bool>,
    pub is_over: bool,
    memory: u64,
}

/// The place of an entry that is no folder.
const NO_FOLDER: u32 = u32::MAX;

/// The folders of a list, outer ones before inner ones.
#[derive(Debug, Default)]
pub(crate) struct ListedFolders(Vec<ListedFolder>);

/// A folder of the list, which gets its attributes at the end.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    pub path: ShortPath,
    pub mode: u16,
    pub modified: ModificationTime,
    /// Attributes to set on the folder, if any.
    pub attributes: Option<Arc<ExtendedAttributes>>,
}

/// A path below the folder at a place of the list; the whole of it if that folder is not listed.
#[derive(Debug)]
pub(crate) struct ShortPath {
    folder: u32,
    name: Box<[u8]>,
}

impl ReceivedList {
    /// Notes an entry. Returns false if the list has one of this path.
    ///
    /// # Errors
    /// Fails if the list is too long.
    pub(crate) fn add_path(&mut self, path: &EntryPath) -> Result<bool, CopyError> {
        if self.seen.len() >= MAX_ENTRIES {
            return Err(list_too_long());
        }
        self.take_memory(HASHED)?;
        Ok(self
            .seen
            .insert(path_hash(path.as_bytes()), NO_FOLDER)
            .is_none())
    }

    /// Returns true if the list has an entry of this path.
    pub(crate) fn has_path(&self, path: &EntryPath) -> bool {
        self.seen.contains_key(&path_hash(path.as_bytes()))
    }

    /// Counts memory that something of the list takes.
    ///
    /// # Errors
    /// Fails if the list takes too much.
    pub(crate) fn take_memory(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.memory += bytes;
        if self.memory <= MAX_LIST.get() {
            Ok(())
        } else {
            Err(list_too_long())
        }
    }

    /// Counts memory that is free again.
    pub(crate) fn free_memory(&mut self, bytes: u64) {
        self.memory = self.memory.saturating_sub(bytes);
    }

    /// Keeps a folder to the end of the copy.
    pub(crate) fn keep_folder(
        &mut self,
        path: &EntryPath,
        mode: u16,
        modified: ModificationTime,
        attributes: Option<Arc<ExtendedAttributes>>,
    ) -> Result<(), CopyError> {
        let folder = ListedFolder {
            path: self.to_short_path(path),
            mode,
            modified,
            attributes,
        };
        self.take_memory(FOLDER + folder.path.name.len() as u64)?;
        self.seen
            .insert(path_hash(path.as_bytes()), self.folders.0.len() as u32);
        self.folders.0.push(folder);
        Ok(())
    }

    /// Keeps a second name of the file at `first` to the end of the copy.
    pub(crate) fn keep_link(
        &mut self,
        path: &EntryPath,
        first: &EntryPath,
    ) -> Result<(), CopyError> {
        let link = (self.to_short_path(path), self.to_short_path(first));
        self.take_memory(SECOND_NAME + (link.0.name.len() + link.1.name.len()) as u64)?;
        self.links.push(link);
        Ok(())
    }

    fn to_short_path(&self, path: &EntryPath) -> ShortPath {
        let listed = path
            .parent_path()
            .and_then(|folder| self.seen.get(&path_hash(folder)));
        match listed {
            Some(&folder) if folder != NO_FOLDER => ShortPath {
                folder,
                name: path.last_name().into(),
            },
            _ => ShortPath {
                folder: NO_FOLDER,
                name: path.as_bytes().into(),
            },
        }
    }
}

impl ListedFolders {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&ListedFolder> {
        self.0.get(index)
    }

    /// Returns the whole path.
    pub(crate) fn full_path(&self, path: &ShortPath) -> Option<EntryPath> {
        let mut names = vec![&path.name[..]];
        let mut folder = path.folder;
        while let Some(outer) = self.get(folder as usize) {
            names.push(&outer.path.name);
            folder = outer.path.folder;
        }
        names.reverse();
        EntryPath::new(names.join(&b'/')).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::new(text).unwrap()
    }

    #[test]
    fn paths_are_whole_again_whether_or_not_their_folders_are_listed() {
        let mut list = ReceivedList::default();
        for folder in ["a", "a/b", "x/y", "a/b/c"] {
            assert!(list.add_path(&path(folder)).unwrap());
            list.keep_folder(&path(folder), 0o755, ModificationTime::default(), None)
                .unwrap();
        }
        list.add_path(&path("file")).unwrap();
        list.keep_link(&path("a/b/c/second"), &path("file/in"))
            .unwrap();
        let whole = |short| list.folders.full_path(short).unwrap().to_string();
        let folders: Vec<String> = list
            .folders
            .0
            .iter()
            .map(|folder| whole(&folder.path))
            .collect();
        assert_eq!(folders, ["a", "a/b", "x/y", "a/b/c"]);
        let (second, first) = &list.links[0];
        assert_eq!(
            (whole(second), whole(first)),
            ("a/b/c/second".to_owned(), "file/in".to_owned())
        );
        assert!(
            !list.add_path(&path("a/b")).unwrap()
                && list.has_path(&path("file"))
                && !list.has_path(&path("b"))
        );
    }

    /// 200 000 folders deep in a tree took 806 MB, and what a hostile sender lists had no bound but
    /// their number.
    #[test]
    fn deep_trees_take_little_memory_and_no_list_takes_more_than_its_bound() {
        let mut list = ReceivedList::default();
        let mut deep = path("0");
        let folder = |list: &mut ReceivedList, path: &EntryPath| {
            list.add_path(path)
                .and_then(|_| list.keep_folder(path, 0o700, ModificationTime::default(), None))
        };
        while deep.as_bytes().len() < 3800 {
            folder(&mut list, &deep).unwrap();
            deep = deep.join_name(&[b'n'; 100]).unwrap();
        }
        for index in 0..2000 {
            folder(
                &mut list,
                &deep
                    .parent_path()
                    .map(|outer| path(&format!("{}/{index}", outer.escape_ascii())))
                    .unwrap(),
            )
            .unwrap();
        }
        assert!(list.memory < 2000 * 200, "{}", list.memory);
        // Of folders that are not listed each has its whole path.
        list.memory = MAX_LIST.get() - 1_000_000;
        let name = "x".repeat(250);
        let long = |index: u32| path(&format!("{index}/{}", [name.as_str(); 16].join("/")));
        let error = (0..)
            .find_map(|index| list.keep_link(&long(index), &long(index)).err())
            .unwrap();
        assert!(
            list.memory < MAX_LIST.get() + 10_000 && (100..130).contains(&list.links.len()),
            "{list:?}"
        );
        assert!(
            error.exit_code() == 1 && error.to_string().contains("at most 512 MiB of memory"),
            "{error}"
        );
    }
}

//! The list of what is sent: the tree as it is walked, folders before what is in them.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use fullpipe_transfer::{
    EntryKind, EntryPath, ExcludePatterns, ExtendedAttributes, FileIdentity, PathError, TreeEntry,
};
use fullpipe_units::ByteCount;
use rustix::fs::{FileType, OFlags, Stat};

use crate::attributes::{self, NotKept};
use crate::options::CopyError;
use crate::receiver::{MAX_ENTRIES, MAX_LIST, PathHash, SECOND_NAME, path_hash};
use crate::root::FolderRoot;
use crate::tree::{FolderTree, file_type, folder_names, modification_time, path_in_folder};

/// A file or folder that the user named.
#[derive(Debug)]
pub(crate) struct CopySource {
    pub(crate) tree: FolderTree,
    /// The name of the source at the receiver; without one, the content of the folder is sent.
    pub(crate) top: Option<EntryPath>,
}

/// A file of the list.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) source: usize,
    pub(crate) path: EntryPath,
    pub(crate) size: ByteCount,
    pub(crate) identity: FileIdentity,
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
        let folder = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let tree = root.open_tree(folder).map_err(&failed)?;
        let top = EntryPath::new(name).map_err(|error| failed(io::Error::other(error)))?;
        let found = tree
            .locate_entry(&top)
            .and_then(|within| within.stat_entry())
            .map_err(&failed)?;
        found.ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "it is not there")))?;
        Ok(Self {
            tree,
            top: Some(top),
        })
    }

    /// Returns true if the source is one file or link.
    pub(crate) fn is_single(&self) -> bool {
        let stat = self.top.as_ref().and_then(|top| {
            self.tree
                .locate_entry(top)
                .and_then(|within| within.stat_entry())
                .ok()?
        });
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
    let stat = match sources[file.source]
        .tree
        .locate_entry(&file.path)
        .and_then(|within| within.stat_entry())
    {
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
        self.outer.as_ref().map_or_else(
            || EntryPath::new(&*self.name),
            |outer| outer.join_name(&self.name),
        )
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
            Err(error) => return self.report_problem(shown, &error.to_string()),
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
                        _ => self.report_problem(&whole, &error.to_string()),
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
                let attributes = match kind {
                    EntryKind::Folder { .. } | EntryKind::File { .. } => {
                        self.entry_attributes(source, &path)
                    }
                    _ => ExtendedAttributes::default(),
                };
                let file = match kind {
                    EntryKind::File { size, identity, .. } => Some(SourceFile {
                        source: index,
                        path: path.clone(),
                        size,
                        identity,
                    }),
                    _ => None,
                };
                if matches!(kind, EntryKind::Folder { .. }) {
                    self.push_folder(&path);
                }
                let entry = TreeEntry {
                    path,
                    kind,
                    attributes,
                };
                self.list.add_entry(entry, file);
            }
            Ok(None) => {}
            Err(error) => self.report_problem(path.as_bytes(), &error.to_string()),
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

    fn report_problem(&mut self, path: &[u8], why: &str) {
        self.is_complete = false;
        self.list.add_problem(path, why);
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
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[derive(Default)]
    struct Taken(Vec<String>, Vec<String>);

    impl ListReceiver for Taken {
        fn add_entry(&mut self, entry: TreeEntry, file: Option<SourceFile>) {
            let kind = match entry.kind {
                EntryKind::Folder { .. } => "folder".to_owned(),
                EntryKind::File { size, .. } => format!("{}", size.get()),
                EntryKind::SymbolicLink { target } => format!("-> {}", target.escape_ascii()),
                EntryKind::HardLink { first } => format!("= {first}"),
                EntryKind::LeftOut => "left out".to_owned(),
            };
            assert_eq!(file.is_some(), kind.parse::<u64>().is_ok());
            self.0.push(format!("{} {kind}", entry.path));
        }

        fn add_problem(&mut self, path: &[u8], why: &str) {
            self.1.push(format!("{} {why}", path.escape_ascii()));
        }

        fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
            self.1.push(format!("{path} {}", what.kind));
        }

        fn not_sent(&mut self, path: &[u8], why: &str) {
            self.add_problem(path, why);
        }

        fn left_out(&mut self, path: &EntryPath) {
            self.1.push(path.to_string());
        }

        fn too_long(&mut self) {
            panic!("it is short");
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    /// A file of btrfs or NFS was copied from its beginning after a new start of the sender's host.
    #[test]
    fn a_file_is_the_same_after_another_mount_and_another_one_after_a_change() {
        let before = rustix::fs::stat("/proc/self/exe").unwrap();
        let with = |change: fn(&mut Stat)| {
            let mut stat = before;
            change(&mut stat);
            file_identity(&stat) == file_identity(&before)
        };
        assert!(with(|stat| stat.st_dev += 1));
        assert!(!with(|stat| stat.st_ino += 1) && !with(|stat| stat.st_size += 1));
        assert!(!with(|stat| stat.st_mtime_nsec ^= 1) && !with(|stat| stat.st_ctime_nsec ^= 1));
        assert!(!with(|stat| stat.st_mtime += 1) && !with(|stat| stat.st_ctime += 1));
    }

    #[test]
    fn a_tree_is_listed_folders_first_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("b/empty")).unwrap();
        fs::create_dir(tree.join("skip")).unwrap();
        fs::write(tree.join("skip/x"), "x").unwrap();
        fs::write(tree.join("a"), "12345").unwrap();
        fs::write(tree.join(".y.12345678.fullpipe-part"), "part").unwrap();
        fs::hard_link(tree.join("a"), tree.join("b/c")).unwrap();
        symlink("/etc", tree.join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let excludes = ExcludePatterns::new([&b"skip/"[..]]);
        let list = |path: &Path| {
            let mut taken = Taken::default();
            assert!(walk_sources(
                &[CopySource::open_source(&FolderRoot::User, path).unwrap()],
                &excludes,
                false,
                &mut taken
            ));
            taken
        };
        let named = list(&tree);
        let expected = [
            "tree folder",
            "tree/a 5",
            "tree/b folder",
            "tree/link -> /etc",
            "tree/pipe left out",
            "tree/b/c = tree/a",
            "tree/b/empty folder",
        ];
        assert_eq!(named.0, expected);
        let part = "tree/.y.12345678.fullpipe-part a name is reserved for files of a transfer";
        assert_eq!(named.1, [part, "tree/pipe"]);
        let content = list(&folder.path().join("tree/"));
        assert_eq!(content.0[..2], ["a 5", "b folder"]);
        assert!(CopySource::open_source(&FolderRoot::User, &tree.join("nothing")).is_err());
        let is_single = |path: &Path| {
            CopySource::open_source(&FolderRoot::User, path)
                .unwrap()
                .is_single()
        };
        assert!(is_single(&tree.join("a")) && !is_single(&tree));
    }

    fn listed(sources: &[&Path]) -> Taken {
        let sources: Vec<CopySource> = sources
            .iter()
            .map(|path| CopySource::open_source(&FolderRoot::User, path).unwrap())
            .collect();
        let mut taken = Taken::default();
        assert!(walk_sources(
            &sources,
            &ExcludePatterns::default(),
            false,
            &mut taken
        ));
        taken
    }

    /// The receiver once took the second entry of a name for a lie.
    #[test]
    fn of_a_name_in_several_sources_the_first_is_sent_and_folders_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (path, content) in [
            ("a/x", "1"),
            ("a/in/y", "12"),
            ("a/kind", "1"),
            ("b/x", "123"),
            ("b/in/z", "1234"),
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), content).unwrap();
        }
        fs::create_dir(at("b/kind")).unwrap();
        fs::write(at("b/kind/lost"), "").unwrap();
        fs::hard_link(at("b/x"), at("b/x2")).unwrap();
        fs::hard_link(at("b/x"), at("b/x3")).unwrap();
        let both = listed(&[&at("a/"), &at("b/")]);
        let expected = [
            "in folder",
            "kind 1",
            "x 1",
            "in/y 2",
            "x2 3",
            "x3 = x2",
            "in/z 4",
        ];
        assert_eq!(
            both.0, expected,
            "a second name is that of a file that was sent"
        );
        assert_eq!(
            both.1,
            ["kind an earlier source has an entry of this name; so have 1 others"]
        );
        let files = listed(&[&at("a/x"), &at("b/x")]);
        assert_eq!((files.0, files.1.len()), (vec!["x 1".to_owned()], 1));
    }

    #[test]
    fn a_name_that_resembles_a_working_one_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in [
            "wait../x",
            "file..",
            "y.fullpipe-part/z",
            ".y.12345678.fullpipe-journal",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "").unwrap();
        }
        let all = listed(&[&at("")]);
        assert_eq!(
            all.0,
            [
                "file.. 0",
                "wait.. folder",
                "y.fullpipe-part folder",
                "y.fullpipe-part/z 0",
                "wait../x 0"
            ]
        );
        assert_eq!(
            all.1,
            [".y.12345678.fullpipe-journal a name is reserved for files of a transfer"]
        );
        let named = listed(&[&at("wait.."), &at("file..")]);
        assert_eq!(named.0, ["wait.. folder", "wait../x 0", "file.. 0"]);
        let content = listed(&[&at("wait../.."), &at("wait../.")]);
        assert_eq!(content.0.len(), 6);
    }
}

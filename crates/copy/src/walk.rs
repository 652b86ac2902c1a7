//! The list of what is sent: the tree as it is walked, folders before what is in them.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fullpipe_transfer::{Attributes, Entry, EntryKind, EntryPath, Excludes, Identity};
use fullpipe_units::ByteCount;
use rustix::fs::{FileType, OFlags, Stat};

use crate::attributes::{self, NotKept};
use crate::options::CopyError;
use crate::root::Root;
use crate::tree::{Tree, kind, modified, names};

/// A file or folder that the user named.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) tree: Tree,
    /// Its name at the receiver; without one, what is in it is sent.
    pub(crate) top: Option<EntryPath>,
}

/// A file of the list.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) source: usize,
    pub(crate) path: EntryPath,
    pub(crate) size: ByteCount,
    pub(crate) identity: Identity,
}

/// The one who takes the list.
pub(crate) trait List {
    /// Takes an entry; of a file also its place at the sender.
    fn entry(&mut self, entry: Entry, file: Option<SourceFile>);
    /// Takes something that cannot be sent.
    fn problem(&mut self, path: &[u8], why: &str);
    /// Takes attributes that are not sent.
    fn not_kept(&mut self, path: &EntryPath, what: NotKept);
    /// Takes a device, a pipe or a socket, which are never sent.
    fn left_out(&mut self, path: &EntryPath);
    /// Returns true if nobody wants the rest.
    fn is_over(&self) -> bool;
}

impl Source {
    /// Opens what stands at `path`. As for rsync, a folder that ends with `/` or `.` stands for what is in it.
    ///
    /// # Errors
    /// Fails if it is not there.
    pub(crate) fn open(root: &Root, path: &Path) -> Result<Self, CopyError> {
        let bytes = path.as_os_str().as_bytes();
        let failed = CopyError::path(bytes);
        let has_name = !(bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes.ends_with(b"..") || bytes == b".");
        let Some(name) = path.file_name().filter(|_| has_name) else {
            return Ok(Self { tree: root.open(path).map_err(failed)?, top: None });
        };
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let tree = root.open(folder).map_err(&failed)?;
        let top = EntryPath::new(name.as_bytes()).map_err(|error| failed(io::Error::other(error)))?;
        let found = tree.within(&top).and_then(|within| within.stat()).map_err(&failed)?;
        found.ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "it is not there")))?;
        Ok(Self { tree, top: Some(top) })
    }

    /// Returns true if it is one file or link.
    pub(crate) fn is_single(&self) -> bool {
        let stat = self.top.as_ref().and_then(|top| self.tree.within(top).and_then(|within| within.stat()).ok()?);
        stat.is_some_and(|stat| kind(&stat) != FileType::Directory)
    }
}

/// Walks all sources, with attributes if `keeps_attributes`. Returns whether all of them could be read.
pub(crate) fn walk(sources: &[Source], excludes: &Excludes, keeps_attributes: bool, list: &mut dyn List) -> bool {
    let (names_of, folders) = (HashMap::new(), Vec::new());
    let mut walk = Walk { excludes, keeps_attributes, list, names_of, folders, is_complete: true };
    for (index, source) in sources.iter().enumerate() {
        match &source.top {
            Some(top) => walk.visit(index, source, top.clone()),
            None => walk.folders.push(None),
        }
        while let Some(folder) = walk.folders.pop() {
            walk.read(index, source, folder.as_ref());
        }
    }
    walk.is_complete
}

/// Returns a file of the list in the state that it has now; `None` if it is no longer there, or no longer a file.
///
/// # Errors
/// Fails if its folder cannot be reached.
pub(crate) fn file_now(sources: &[Source], file: &SourceFile) -> io::Result<Option<(EntryKind, SourceFile)>> {
    let stat = match sources[file.source].tree.within(&file.path).and_then(|within| within.stat()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => found?,
    };
    let regular = stat.filter(|stat| kind(stat) == FileType::RegularFile);
    Ok(regular.map(|stat| file_of(&stat, file.source, &file.path)))
}

/// Returns a regular file as an entry, and as its sender finds it again.
fn file_of(stat: &Stat, source: usize, path: &EntryPath) -> (EntryKind, SourceFile) {
    let (size, identity) = (ByteCount::new(stat.st_size.cast_unsigned()), identity(stat));
    let kind = EntryKind::File { mode: (stat.st_mode & 0o777) as u16, modified: modified(stat), size, identity };
    (kind, SourceFile { source, path: path.clone(), size, identity })
}

/// Returns the attributes that an entry has now. `not_kept` takes those that are left out.
///
/// # Errors
/// Fails if it cannot be opened.
pub(crate) fn attributes_of(
    source: &Source,
    path: &EntryPath,
    not_kept: &mut dyn FnMut(NotKept),
) -> io::Result<Attributes> {
    let open = source.tree.open_entry(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    Ok(attributes::read(open, not_kept))
}

struct Walk<'w> {
    excludes: &'w Excludes,
    keeps_attributes: bool,
    list: &'w mut dyn List,
    /// The first name of each file that has several, by source, device and inode.
    names_of: HashMap<(usize, u64, u64), EntryPath>,
    folders: Vec<Option<EntryPath>>,
    is_complete: bool,
}

impl Walk<'_> {
    fn read(&mut self, index: usize, source: &Source, folder: Option<&EntryPath>) {
        let shown = folder.map_or(&b"."[..], EntryPath::as_bytes);
        let names = match source.tree.open_folder(folder).and_then(names) {
            Ok(names) => names,
            Err(error) => return self.problem(shown, &error.to_string()),
        };
        for name in names {
            if self.list.is_over() {
                return;
            }
            let path = folder.map_or_else(|| EntryPath::new(name.as_slice()), |folder| folder.join(&name));
            match path {
                Ok(path) => self.visit(index, source, path),
                // A file of another transfer, which is not complete.
                Err(fullpipe_transfer::PathError::Reserved) => {}
                Err(error) => self.problem(&name, &error.to_string()),
            }
        }
    }

    fn visit(&mut self, index: usize, source: &Source, path: EntryPath) {
        match self.entry(index, source, &path) {
            Ok(Some(kind @ EntryKind::Folder { .. })) => {
                let attributes = self.attributes(source, &path);
                self.list.entry(Entry { path: path.clone(), kind, attributes }, None);
                self.folders.push(Some(path));
            }
            Ok(Some(kind)) => {
                let is_file = matches!(kind, EntryKind::File { .. });
                let attributes = if is_file { self.attributes(source, &path) } else { Attributes::default() };
                let file = match &kind {
                    EntryKind::File { size, identity, .. } => {
                        Some(SourceFile { source: index, path: path.clone(), size: *size, identity: *identity })
                    }
                    _ => None,
                };
                self.list.entry(Entry { path, kind, attributes }, file);
            }
            Ok(None) => {}
            Err(error) => self.problem(path.as_bytes(), &error.to_string()),
        }
    }

    /// Returns the attributes to send with an entry. What cannot be opened has none; that is named when it is read.
    fn attributes(&mut self, source: &Source, path: &EntryPath) -> Attributes {
        if !self.keeps_attributes {
            return Attributes::default();
        }
        let mut not_kept = |what| self.list.not_kept(path, what);
        attributes_of(source, path, &mut not_kept).unwrap_or_default()
    }

    fn entry(&mut self, index: usize, source: &Source, path: &EntryPath) -> io::Result<Option<EntryKind>> {
        let within = source.tree.within(path)?;
        let Some(stat) = within.stat()? else { return Ok(None) };
        let found = kind(&stat);
        if self.excludes.exclude(path, found == FileType::Directory) {
            return Ok(None);
        }
        let mode = (stat.st_mode & 0o777) as u16;
        Ok(match found {
            FileType::Directory => Some(EntryKind::Folder { mode, modified: modified(&stat) }),
            FileType::Symlink => Some(EntryKind::SymbolicLink { target: within.read_link()? }),
            FileType::RegularFile => {
                if stat.st_nlink > 1 {
                    let key = (index, stat.st_dev, stat.st_ino);
                    if let Some(first) = self.names_of.get(&key) {
                        return Ok(Some(EntryKind::HardLink { first: first.clone() }));
                    }
                    self.names_of.insert(key, path.clone());
                }
                Some(file_of(&stat, index, path).0)
            }
            _ => {
                self.list.left_out(path);
                Some(EntryKind::LeftOut)
            }
        })
    }

    fn problem(&mut self, path: &[u8], why: &str) {
        self.is_complete = false;
        self.list.problem(path, why);
    }
}

/// Returns what identifies a file and its state.
pub(crate) fn identity(stat: &Stat) -> Identity {
    Identity::of(&[
        stat.st_dev,
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

    impl List for Taken {
        fn entry(&mut self, entry: Entry, file: Option<SourceFile>) {
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

        fn problem(&mut self, path: &[u8], why: &str) {
            self.1.push(format!("{} {why}", path.escape_ascii()));
        }

        fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
            self.1.push(format!("{path} {}", what.kind));
        }

        fn left_out(&mut self, path: &EntryPath) {
            self.1.push(path.to_string());
        }

        fn is_over(&self) -> bool {
            false
        }
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
        let excludes = Excludes::new([&b"skip/"[..]]);
        let list = |path: &Path| {
            let mut taken = Taken::default();
            assert!(walk(&[Source::open(&Root::User, path).unwrap()], &excludes, false, &mut taken));
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
        assert_eq!((&named.0[..], &named.1[..]), (&expected.map(str::to_owned)[..], &["tree/pipe".to_owned()][..]));
        let content = list(&folder.path().join("tree/"));
        assert_eq!(content.0[..2], ["a 5", "b folder"]);
        assert!(Source::open(&Root::User, &tree.join("nothing")).is_err());
        let is_single = |path: &Path| Source::open(&Root::User, path).unwrap().is_single();
        assert!(is_single(&tree.join("a")) && !is_single(&tree));
    }
}

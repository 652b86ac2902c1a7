//! A folder with everything below it, reached by descriptors alone: no symbolic link is followed on
//! the way, and nothing outside is opened, whatever others do to the tree meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, openat, openat2, statat,
};
use rustix::io::Errno;

use crate::protocol::{EntryPath, ModificationTime, PathError};
use fullpipe_sys::lock;

/// Flags of a folder whose names are read.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Flags of a folder in which entries are reached by their names: as for every path, whoever may
/// search it may do so.
const SEARCHED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder whose entries are reached by their paths.
pub(crate) struct FolderTree {
    root: Arc<OwnedFd>,
    /// The folder that was used last: entries of one folder follow each other.
    last: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

/// The folder of an entry, in which it has a name.
#[derive(Clone)]
pub(crate) struct TreeEntryName {
    pub folder: Arc<OwnedFd>,
    pub name: Vec<u8>,
}

impl FolderTree {
    /// Opens the folder that the user named, links followed.
    pub(crate) fn open_root(path: &Path) -> io::Result<Self> {
        let root = openat(CWD, path, SEARCHED, Mode::empty())?;
        Ok(Self::from_root(Arc::new(root)))
    }

    fn from_root(root: Arc<OwnedFd>) -> Self {
        let last = Mutex::default();
        Self { root, last }
    }

    /// Returns the folder at `path` with everything below it; this tree if there is none.
    pub(crate) fn subtree_at(&self, path: Option<&EntryPath>) -> io::Result<Self> {
        let root = match path {
            Some(path) => Arc::new(self.open_entry(path, SEARCHED)?),
            None => Arc::clone(&self.root),
        };
        Ok(Self::from_root(root))
    }

    /// Opens what is at `path`.
    pub(crate) fn open_entry(&self, path: &EntryPath, flags: OFlags) -> io::Result<OwnedFd> {
        open_beneath(&self.root, path.as_bytes(), flags)
    }

    /// Opens the folder at `path` to read its names; the tree itself if there is none.
    pub(crate) fn open_folder(&self, path: Option<&EntryPath>) -> io::Result<OwnedFd> {
        match path {
            Some(path) => self.open_entry(path, FOLDER),
            None => Ok(openat(&self.root, ".", FOLDER, Mode::empty())?),
        }
    }

    /// Lets the owner of the folder at `path` list, search and change it. One of another owner
    /// stays as it is, and may permit that all the same.
    pub(crate) fn let_owner_in(&self, path: &EntryPath) -> io::Result<()> {
        let folder = self.open_entry(path, SEARCHED)?;
        let mode = permission_bits(&rustix::fs::fstat(&folder)?);
        if !mode.contains(Mode::RWXU) {
            let _ = set_mode(folder, mode | Mode::RWXU);
        }
        Ok(())
    }

    /// Returns the folder of `path` and the name there.
    pub(crate) fn locate_entry(&self, path: &EntryPath) -> io::Result<TreeEntryName> {
        let folder = match path.parent_path() {
            Some(folder) => self.searched_folder(folder)?,
            None => Arc::clone(&self.root),
        };
        let name = path.last_name().to_vec();
        Ok(TreeEntryName { folder, name })
    }

    /// Returns the state of what is at `path`; `None` if it does not exist.
    pub(crate) fn stat_path(&self, path: &EntryPath) -> io::Result<Option<Stat>> {
        self.locate_entry(path)?.stat_entry()
    }

    fn searched_folder(&self, folder: &[u8]) -> io::Result<Arc<OwnedFd>> {
        let mut last = lock(&self.last);
        if let Some((known, opened)) = last.as_ref()
            && known == folder
        {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(open_beneath(&self.root, folder, SEARCHED)?);
        *last = Some((folder.to_vec(), Arc::clone(&opened)));
        Ok(opened)
    }
}

impl TreeEntryName {
    fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }

    /// Returns the entry next to this one with another name.
    pub(crate) fn sibling_entry(&self, name: Vec<u8>) -> Self {
        Self {
            folder: Arc::clone(&self.folder),
            name,
        }
    }

    /// Returns the state of the entry, that of the link if it is one; `None` if it does not exist.
    pub(crate) fn stat_entry(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, self.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if this is the name of what is open.
    pub(crate) fn is_same_file(&self, open: &File) -> io::Result<bool> {
        let open = rustix::fs::fstat(open)?;
        Ok(self
            .stat_entry()?
            .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (open.st_dev, open.st_ino)))
    }

    /// Opens it with these flags; what is created is its owner's alone.
    pub(crate) fn open_file(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(openat(&self.folder, self.name(), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a folder, if it is not there.
    pub(crate) fn make_folder(&self) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.folder, self.name(), Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => check_folder(self.stat_entry()?.as_ref()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(
            OsStr::from_bytes(target),
            &self.folder,
            self.name(),
        )?)
    }

    /// Returns the text of a symbolic link.
    pub(crate) fn read_link(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.folder, self.name(), Vec::new())?.into_bytes())
    }

    /// Gives the file at `first` this name, too.
    pub(crate) fn link_to(&self, first: &Self) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &first.folder,
            first.name(),
            &self.folder,
            self.name(),
            AtFlags::empty(),
        )?)
    }

    /// Gives it the name of `to`, even if a file or a link has that.
    pub(crate) fn rename_to(&self, to: &Self) -> io::Result<()> {
        to.stat_entry()?
            .map_or(Ok(()), |stat| check_no_device(&stat))?;
        Ok(rustix::fs::renameat(
            &self.folder,
            self.name(),
            &to.folder,
            to.name(),
        )?)
    }

    /// Gives it the name of `to`, and removes it if it cannot have that.
    pub(crate) fn rename_or_remove(&self, to: &Self) -> io::Result<()> {
        let renamed = self.rename_to(to);
        if renamed.is_err() {
            let _ = self.remove_file();
        }
        renamed
    }

    /// Removes a file or link, if it is there.
    pub(crate) fn remove_file(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.folder, self.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open_unfollowed(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(
            &self.folder,
            self.name(),
            flags | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    }

    /// Removes a file, link or folder with all that is in it, whatever the permissions of the
    /// owner's folders.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        if let Some(stat) = self
            .stat_entry()?
            .filter(|stat| file_type(stat) == FileType::Directory)
        {
            if !permission_bits(&stat).contains(Mode::RWXU) {
                // For a folder of another owner, what follows fails.
                let _ = set_mode(self.open_unfollowed(SEARCHED)?, Mode::RWXU);
            }
            let folder = Arc::new(self.open_unfollowed(FOLDER)?);
            for name in folder_names(&folder)? {
                Self {
                    folder: Arc::clone(&folder),
                    name,
                }
                .remove_all()?;
            }
            return Ok(rustix::fs::unlinkat(
                &self.folder,
                self.name(),
                AtFlags::REMOVEDIR,
            )?);
        }
        self.remove_file()
    }
}

/// Returns the path of a name in a folder, or at the top.
///
/// # Errors
/// Fails if the name stands for a path that no entry may have.
pub(crate) fn path_in_folder(
    folder: Option<&EntryPath>,
    name: &[u8],
) -> Result<EntryPath, PathError> {
    folder.map_or_else(|| EntryPath::new(name), |folder| folder.join_name(name))
}

/// Returns the kind of what has this state.
pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Fails if what has the name of a folder is none.
pub(crate) fn check_folder(stat: Option<&Stat>) -> io::Result<()> {
    match stat.map(file_type) {
        Some(FileType::Directory) => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something that is no folder has its name",
        )),
    }
}

/// Fails if what has this state is neither a file nor a link nor a folder: a copy to `/dev/null`
/// would take the device away from all others.
fn check_no_device(stat: &Stat) -> io::Result<()> {
    match file_type(stat) {
        FileType::RegularFile | FileType::Symlink | FileType::Directory => Ok(()),
        _ => Err(io::Error::other(
            "a device, a pipe or a socket has its name",
        )),
    }
}

/// Fails if no file or link can take the name of what has this state.
pub(crate) fn check_replaceable(stat: &Stat) -> io::Result<()> {
    if file_type(stat) == FileType::Directory {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "a folder has its name",
        ));
    }
    check_no_device(stat)
}

/// Returns the names in a folder, in their order.
pub(crate) fn folder_names(folder: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Sets permission bits and the time of the last change of what is open, be it only as a path.
pub(crate) fn set_attributes(
    open: impl AsFd,
    mode: u16,
    modified: ModificationTime,
) -> io::Result<()> {
    set_mode(&open, Mode::from_raw_mode(mode.into()))?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    };
    let set = match rustix::fs::futimens(&open, &times) {
        Err(Errno::BADF) => {
            rustix::fs::utimensat(CWD, link_to_open(&open), &times, AtFlags::empty())
        }
        set => set,
    };
    Ok(set?)
}

/// Sets permission bits of what is open, be it only as a path.
pub(crate) fn set_mode(open: impl AsFd, mode: Mode) -> io::Result<()> {
    match rustix::fs::fchmod(&open, mode) {
        Err(Errno::BADF) => Ok(rustix::fs::chmod(link_to_open(&open), mode)?),
        set => Ok(set?),
    }
}

/// Returns the path by which the kernel leads to what is open: with `O_PATH`, the calls on
/// descriptors refuse it (open(2)).
fn link_to_open(open: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())
}

/// Returns the permission bits that a copy keeps of what has this state.
pub(crate) fn permission_bits(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO)
}

/// Returns the time of the last change.
pub(crate) fn modification_time(stat: &Stat) -> ModificationTime {
    ModificationTime {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    }
}

/// Opens `path` below `root`, through no link and to nothing outside.
fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let (name, flags) = (OsStr::from_bytes(path), flags | OFlags::CLOEXEC);
    let opened = match openat2(root, name, flags, Mode::empty(), resolve) {
        // Linux has the call since 5.6, and container runtimes that are older refuse it.
        Err(Errno::NOSYS | Errno::PERM) => open_name_by_name(root, path, flags),
        opened => opened,
    };
    opened.map_err(|error| match error {
        Errno::LOOP | Errno::XDEV => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a symbolic link is on the way, and is not followed",
        ),
        error => error.into(),
    })
}

/// Does so by one call for each name of `path`, none of which leads up.
fn open_name_by_name(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::XDEV);
        }
        let flags = if names.peek().is_some() {
            SEARCHED
        } else {
            flags
        };
        let within = folder.as_ref().unwrap_or(root);
        let (name, flags) = (OsStr::from_bytes(name), flags | OFlags::NOFOLLOW);
        folder = Some(openat(within, name, flags, Mode::empty())?);
    }
    folder.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests;

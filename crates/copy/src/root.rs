//! The paths that a request may name.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use crate::protocol::EntryPath;
use crate::tree::{FolderTree, file_type};

/// Permissions with which the owner of a folder lists, searches and changes it (`S_IRWXU`).
const OWNER_MAY_CHANGE: u32 = 0o700;

/// The folders of an end.
#[derive(Clone)]
pub(crate) enum FolderRoot {
    /// All that the user of this process may reach.
    User,
    /// This one, and what is below it.
    Share(Arc<FolderTree>),
}

impl FolderRoot {
    /// Returns a path of a request: below the folder in which ssh starts if it is relative or
    /// begins with `~/`, or below the one that is shared.
    pub(crate) fn request_path(&self, path: &[u8]) -> PathBuf {
        let path = match self {
            Self::User => from_home(path),
            Self::Share(_) => path,
        };
        let path = if path.is_empty() { b"./" } else { path };
        Path::new(OsStr::from_bytes(path)).to_owned()
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// Fails if it is not there, or not below the folder that is shared.
    pub(crate) fn open_tree(&self, path: &Path) -> io::Result<FolderTree> {
        match self {
            Self::User => FolderTree::open_root(path),
            Self::Share(tree) => tree.subtree_at(path_in_share(path)?.as_ref()),
        }
    }

    /// Returns true if there is a folder, which can be reached.
    pub(crate) fn is_folder(&self, path: &Path) -> bool {
        match self {
            Self::User => path.is_dir(),
            Self::Share(_) => self.open_tree(path).is_ok(),
        }
    }

    /// Fails if a single file cannot get this name in a folder of a request: where links are not
    /// followed, one that may lead to a folder is not replaced.
    pub(crate) fn check_name(&self, tree: &FolderTree, name: &EntryPath) -> io::Result<()> {
        if matches!(self, Self::Share(_))
            && let Some(stat) = tree.stat_path(name)?
            && file_type(&stat) == FileType::Symlink
        {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is a symbolic link, which is not followed",
            ));
        }
        Ok(())
    }

    /// Makes a folder, which its owner may change, in one that is there. The umask, or the default
    /// access list of that one, may withhold this from its owner.
    ///
    /// # Errors
    /// Fails if it cannot be made there.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::User => {
                std::fs::create_dir(path)?;
                let mode = std::fs::metadata(path)?.mode();
                let is_open = mode & OWNER_MAY_CHANGE == OWNER_MAY_CHANGE;
                let opened = Permissions::from_mode(mode | OWNER_MAY_CHANGE);
                if is_open {
                    Ok(())
                } else {
                    std::fs::set_permissions(path, opened)
                }
            }
            Self::Share(tree) => match path_in_share(path)? {
                Some(path) => tree
                    .locate_entry(&path)?
                    .make_folder()
                    .and_then(|()| tree.let_owner_in(&path)),
                None => Ok(()),
            },
        }
    }
}

/// Returns a path as of the folder in which ssh starts, for which `~` stands.
pub(crate) fn from_home(path: &[u8]) -> &[u8] {
    if path == b"~" {
        b"."
    } else {
        path.strip_prefix(b"~/").unwrap_or(path)
    }
}

/// Returns the folder that has the last name of a path.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns a path of a request below the folder that is shared; `None` if it is that folder.
fn path_in_share(path: &Path) -> io::Result<Option<EntryPath>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.as_bytes()),
            Component::CurDir => {}
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it is not below the folder that is shared",
                ));
            }
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    EntryPath::new(names.join(&b'/'))
        .map(Some)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tilde_stands_for_the_folder_where_ssh_starts() {
        assert_eq!(FolderRoot::User.request_path(b"~/a"), Path::new("a"));
        assert_eq!(FolderRoot::User.request_path(b"~"), Path::new("."));
        assert_eq!(FolderRoot::User.request_path(b"~/").as_os_str(), "./");
        assert_eq!(FolderRoot::User.request_path(b"/a/~"), Path::new("/a/~"));
    }

    #[test]
    fn nothing_outside_a_shared_folder_is_reached() {
        let outside = tempfile::tempdir().unwrap();
        let shared = tempfile::tempdir().unwrap();
        fs::create_dir(shared.path().join("a")).unwrap();
        symlink(outside.path(), shared.path().join("link")).unwrap();
        let root = FolderRoot::Share(Arc::new(FolderTree::open_root(shared.path()).unwrap()));
        assert!(
            root.is_folder(Path::new("."))
                && root.is_folder(Path::new("a/"))
                && root.is_folder(Path::new("./a"))
        );
        root.make_folder(Path::new("a/b")).unwrap();
        assert!(shared.path().join("a/b").is_dir());
        let to = outside.path();
        for path in [
            Path::new("link"),
            Path::new("link/x"),
            Path::new(".."),
            Path::new("a/../.."),
            to,
            Path::new("/"),
        ] {
            assert!(
                root.open_tree(path).is_err() && root.make_folder(path).is_err(),
                "{}",
                path.display()
            );
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    /// A file once took the place of a link to a folder, into which the user wanted it.
    #[test]
    fn in_a_shared_folder_no_single_file_takes_the_name_of_a_link() {
        let shared = tempfile::tempdir().unwrap();
        symlink("folder", shared.path().join("link")).unwrap();
        fs::write(shared.path().join("file"), "file").unwrap();
        let tree = Arc::new(FolderTree::open_root(shared.path()).unwrap());
        let may_take = |root: &FolderRoot, name: &str| {
            root.check_name(&tree, &EntryPath::new(name).unwrap())
                .is_ok()
        };
        let root = FolderRoot::Share(Arc::clone(&tree));
        assert!(may_take(&root, "new") && may_take(&root, "file") && !may_take(&root, "link"));
        assert!(may_take(&FolderRoot::User, "link"));
    }
}

//! Files that data comes from or goes to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullpipe_record::Direction;
use fullpipe_units::ByteCount;
use rustix::fs::OFlags;

use super::storage::FileStorage;

/// Files of a server's tests; without them data is made up, and thrown away on arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageConfig {
    /// The file that downloads read, over and over.
    pub file: Option<PathBuf>,
    /// The folder in which uploads are written, each to a file without a name, which ends with the
    /// test.
    pub folder: Option<PathBuf>,
}

impl StorageConfig {
    /// Checks that file and folder can be used.
    ///
    /// # Errors
    /// The file system's error, with the name.
    pub(crate) fn check_access(&self) -> io::Result<()> {
        for (direction, path) in [
            (Direction::Upload, &self.file),
            (Direction::Download, &self.folder),
        ] {
            match (self.open_storage(direction), path) {
                (Err(error), Some(path)) => {
                    let named = format!("{}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), named));
                }
                (opened, _) => drop(opened?),
            }
        }
        Ok(())
    }

    /// Opens what a test in `direction` uses, as this end sees it; nothing for a test both ways.
    ///
    /// # Errors
    /// The file system's error.
    pub(crate) fn open_storage(&self, direction: Direction) -> io::Result<Option<FileStorage>> {
        match (direction, &self.file, &self.folder) {
            (Direction::Upload, Some(file), _) => {
                to_send(file).map(|(file, _)| Some(FileStorage::for_repeating(file)))
            }
            (Direction::Download, _, Some(folder)) => {
                unnamed_file(folder).map(|file| Some(FileStorage::for_writing(file)))
            }
            _ => Ok(None),
        }
    }
}

/// Opens the file that a client sends or writes to; returns it, and how much there is to send.
///
/// # Errors
/// The file system's error: `AlreadyExists` for a file that would be overwritten, `InvalidInput`
/// for one that is empty or no regular file and so cannot be sent.
pub(crate) fn open_file(
    path: &Path,
    direction: Direction,
) -> io::Result<(FileStorage, Option<ByteCount>)> {
    if direction == Direction::Upload {
        let (file, length) = to_send(path)?;
        return Ok((FileStorage::for_reading(file, length), Some(length)));
    }
    Ok((FileStorage::for_writing(to_keep(path)?), None))
}

/// A file with something in it.
fn to_send(path: &Path) -> io::Result<(File, ByteCount)> {
    // A pipe without a writer would be waited for.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    if found.len() == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is empty"));
    }
    Ok((file, ByteCount::new(found.len())))
}

/// A new file, or a device that is there: no file is overwritten.
fn to_keep(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_char_device() || found.file_type().is_block_device() => {
            OpenOptions::new().write(true).open(path)
        }
        _ => OpenOptions::new().write(true).create_new(true).open(path),
    }
}

fn unnamed_file(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::TMPFILE.bits().cast_signed())
        .open(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("fullpipe-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn nobodys_file_is_overwritten() {
        let path = folder("kept").join("kept");
        open_file(&path, Direction::Download).unwrap();
        assert_eq!(
            open_file(&path, Direction::Download).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        open_file(Path::new("/dev/null"), Direction::Download).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_a_file_with_something_in_it_is_sent() {
        let path = folder("sent").join("sent");
        std::fs::write(&path, b"").unwrap();
        for (path, why) in [
            (path.as_path(), "it is empty"),
            (Path::new("/dev"), "it is no regular file"),
        ] {
            assert_eq!(
                open_file(path, Direction::Upload).unwrap_err().to_string(),
                why
            );
        }
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(
            open_file(&path, Direction::Upload).unwrap().1,
            Some(ByteCount::new(3))
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_server_uses_what_it_was_given() {
        let storage_config = StorageConfig {
            file: Some("/proc/version".into()),
            folder: Some(folder("storage_config")),
        };
        assert!(
            storage_config
                .open_storage(Direction::Both)
                .unwrap()
                .is_none()
        );
        assert!(
            storage_config
                .open_storage(Direction::Download)
                .unwrap()
                .is_some()
        );
        assert!(
            StorageConfig::default()
                .open_storage(Direction::Upload)
                .unwrap()
                .is_none()
        );
        assert!(
            storage_config.open_storage(Direction::Upload).is_err(),
            "it says that it is empty"
        );
        // Nothing has a name there, so the folder can go.
        std::fs::remove_dir(folder("storage_config")).unwrap();
    }
}

//! A file with the number of this process, for as long as it runs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::prelude::*;

/// The file, which is locked, and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Writes the number of this process, as `text`, into a new file at `path`, or one that no
    /// other server holds.
    ///
    /// # Errors
    /// If another server holds the file, if it is a symbolic link, which may lead anywhere, or if
    /// it cannot be written.
    pub(crate) fn write(path: &Path, text: &str) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
        let mut file = File::from(opened.map_err(|errno| match errno {
            Errno::LOOP => io::Error::other("it is a symbolic link"),
            other => other.into(),
        })?);
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another server that runs holds it",
            ),
            other => other.into(),
        })?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Returns true if the file at the path is still this one.
    fn is_in_place(&self) -> bool {
        let (Ok(there), Ok(ours)) = (fs::symlink_metadata(&self.path), self.file.metadata()) else {
            return false;
        };
        (there.dev(), there.ino()) == (ours.dev(), ours.ino())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_in_place() {
            // Fails if another process removed it meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("fullpipe-{}-{name}.pid", std::process::id()))
    }

    #[test]
    fn a_second_server_neither_overwrites_nor_removes_the_file_of_the_first() {
        let path = path("second");
        let first = PidFile::write(&path, "7\n").unwrap();
        assert_eq!(
            PidFile::write(&path, "7\n").unwrap_err().kind(),
            io::ErrorKind::ResourceBusy
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_a_dead_server_left_is_taken_over_and_that_of_another_is_left() {
        let path = path("stale");
        fs::write(&path, "123456789\n").unwrap();
        let ours = PidFile::write(&path, "7\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's\n").unwrap();
        drop(ours);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's\n");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let (link, victim) = (path("link"), path("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let error = PidFile::write(&link, "7\n").unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        let _ = (fs::remove_file(&link), fs::remove_file(&victim));
    }
}

//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file that gets its name when it is whole. What is no regular file, such as a pipe, is written
/// directly.
pub(crate) struct WholeFile {
    pub(crate) file: File,
    /// The temporary name of the file, ending in `.partial`, and the name that it gets when it is
    /// whole.
    names: Option<[PathBuf; 2]>,
}

impl WholeFile {
    /// # Errors
    /// Fails if the file cannot be written where it is to be.
    pub(crate) fn create(name: &Path) -> io::Result<Self> {
        if fs::metadata(name).is_ok_and(|found| !found.is_file()) {
            return Ok(Self {
                file: File::options().write(true).open(name)?,
                names: None,
            });
        }
        // A link stays one.
        let name = name.canonicalize().unwrap_or_else(|_| name.to_owned());
        let mut partial = name.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        Ok(Self {
            file: File::create(&partial)?,
            names: Some([partial, name]),
        })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Fails if its folder does not permit it.
    pub(crate) fn rename_into_place(mut self) -> io::Result<()> {
        if let Some([partial, name]) = &self.names {
            fs::rename(partial, name)?;
            self.names = None;
        }
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some([partial, _]) = &self.names {
            // That it is gone already is as good.
            let _ = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_its_old_content_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let (name, link) = (folder.path().join("page"), folder.path().join("latest"));
        std::os::unix::fs::symlink("page", &link).unwrap();
        fs::write(&name, "old").unwrap();
        let names = || fs::read_dir(&folder).unwrap().count();
        let mut given_up = WholeFile::create(&link).unwrap();
        given_up.file.write_all(b"half").unwrap();
        drop(given_up);
        assert_eq!(
            (fs::read_to_string(&name).unwrap().as_str(), names()),
            ("old", 2)
        );
        let mut whole = WholeFile::create(&link).unwrap();
        whole.file.write_all(b"new").unwrap();
        whole.rename_into_place().unwrap();
        assert_eq!(
            (fs::read_to_string(&name).unwrap().as_str(), names()),
            ("new", 2)
        );
        assert!(link.is_symlink());
    }
}

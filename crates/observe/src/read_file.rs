//! The file that a program reads, and how far it has come.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullpipe_units::ByteCount;

use crate::process::{descriptor_numbers, process_tree, read_proc_file};

/// A regular file that a program has begun to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFile {
    /// Name.
    pub path: PathBuf,
    /// Bytes before the position at which the program reads next.
    pub position: ByteCount,
    /// Its size.
    pub size: ByteCount,
}

/// Returns the largest file that a process or a descendant of it reads, `None` if there is none
/// that was begun and is open for reading alone.
///
/// Where a program reads next is the position of its descriptor (`/proc/PID/fdinfo`, proc(5)); one
/// that maps a file into memory, or names each position itself (`pread`), leaves it at zero.
pub fn largest_read_file(root: u32) -> Option<ReadFile> {
    let processes = process_tree(root).into_iter();
    let files = processes.flat_map(|pid| {
        let numbers = descriptor_numbers(pid).into_iter();
        numbers.filter_map(move |number| read_file(pid, number))
    });
    files.max_by_key(|file| file.size)
}

fn read_file(pid: u32, number: i32) -> Option<ReadFile> {
    let link = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
    let found = fs::metadata(&link).ok().filter(fs::Metadata::is_file)?;
    let position = read_position(&read_proc_file(pid, &format!("fdinfo/{number}")).ok()?)?;
    (position > 0).then(|| ReadFile {
        path: fs::read_link(&link).unwrap_or_else(|_| Path::new("?").to_owned()),
        position: ByteCount::new(position.min(found.size())),
        size: ByteCount::new(found.size()),
    })
}

/// Returns the position of a descriptor that is for reading alone.
fn read_position(info: &str) -> Option<u64> {
    /// `O_ACCMODE` (`fcntl.h`), of which zero is `O_RDONLY`.
    const ACCESS_MODE: u32 = 3;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim())
    };
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let position = field("pos:")?.parse().ok()?;
    (flags & ACCESS_MODE == 0).then_some(position)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_that_is_read_is_found_with_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let size = 3_000_000_000;
        File::create(&path).unwrap().set_len(size).unwrap();
        let mut open = File::open(&path).unwrap();
        let found = || largest_read_file(std::process::id()).filter(|file| file.path == path);
        assert_eq!(found(), None, "nothing was read yet");
        open.read_exact(&mut [0; 4096]).unwrap();
        let expected = ReadFile {
            path: path.clone(),
            position: ByteCount::new(4096),
            size: ByteCount::new(size),
        };
        assert_eq!(found(), Some(expected));
    }

    #[test]
    fn positions_are_those_of_readers() {
        let info = "pos:\t4096\nflags:\t0100000\nmnt_id:\t29\nino:\t7\n";
        assert_eq!(read_position(info), Some(4096));
        for other in [
            "pos:\t4096\nflags:\t0100001\n",
            "pos:\t4096\nflags:\t0100002\n",
            "pos:\t4096\n",
            "flags:\t0\n",
            "pos:\t-1\nflags:\t0\n",
            "",
        ] {
            assert_eq!(read_position(other), None, "{other:?}");
        }
    }
}

use std::fmt;

use fullpipe_units::printable_bytes;
use thiserror::Error;

/// Bytes of a path at most, as of `PATH_MAX` without its last.
const MAX_PATH: usize = 4095;

/// Bytes of a name at most, as of `NAME_MAX`.
const MAX_NAME: usize = 255;

/// Ends of the names of files that a transfer makes while it runs.
const RESERVED: [&[u8]; 2] = [b".fullpipe-part", b".fullpipe-journal"];

/// Bytes of an entry's name that stand in the names of those files, and digits of the hash behind
/// it.
const KEPT: usize = 200;
const HASH: usize = 8;

/// The path of an entry below the folder of a transfer: names joined by `/`, as bytes of any
/// encoding.
///
/// The path leads to nothing above that folder. Symbolic links on the way are the affair of the one
/// who opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPath(Vec<u8>);

/// The error of bytes that are no path of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path is empty, begins or ends with `/`, or has an empty name.
    #[error("a path has an empty name")]
    EmptyName,
    /// The path has `.` or `..`.
    #[error("a path leads outside its folder")]
    Outside,
    /// A name or the whole has too many bytes.
    #[error("a path is too long")]
    TooLong,
    /// The path has a zero byte.
    #[error("a path has a zero byte")]
    ZeroByte,
    /// The name is one of a transfer's own files.
    #[error("a name is reserved for files of a transfer")]
    Reserved,
}

impl EntryPath {
    /// Returns the path of these bytes.
    ///
    /// # Errors
    /// Fails if it could lead outside its folder, or the system would refuse it.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        if bytes.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        bytes.split(|byte| *byte == b'/').try_for_each(check_name)?;
        Ok(Self(bytes))
    }

    /// Returns the path of `name` in this folder.
    ///
    /// # Errors
    /// Fails as [`EntryPath::new`] does.
    pub fn join_name(&self, name: &[u8]) -> Result<Self, PathError> {
        Self::new([&self.0, &b"/"[..], name].concat())
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path of its folder, without the last name; `None` at the top.
    pub fn parent_path(&self) -> Option<&[u8]> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        Some(&self.0[..slash])
    }

    /// Returns the last name.
    pub fn last_name(&self) -> &[u8] {
        self.0
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
    }

    /// Returns the first name.
    pub fn first_name(&self) -> &[u8] {
        self.0
            .split(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
    }

    /// Returns a name for a file of the transfer in the same folder, next to the entry: of its data
    /// while it is not complete, or of its journal. Each `user` of the system has names of its own,
    /// and so may write to no file of another one.
    pub fn working_name(&self, journal: bool, user: u32) -> Vec<u8> {
        let name = self.last_name();
        let hash = blake3::hash(&[name, &user.to_le_bytes()].concat()).to_hex();
        let end = RESERVED[usize::from(journal)];
        [
            b".",
            &name[..name.len().min(KEPT)],
            b".",
            &hash.as_bytes()[..HASH],
            end,
        ]
        .concat()
    }

    /// Returns the name of the entry that has this working name; `None` if it is no such name, or
    /// that of the entry is too long to stand in it.
    pub fn name_of_working(working: &[u8]) -> Option<&[u8]> {
        begin_of_working(working).filter(|name| name.len() < KEPT)
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable_bytes(&self.0))
    }
}

fn check_name(name: &[u8]) -> Result<(), PathError> {
    match name {
        [] => Err(PathError::EmptyName),
        b"." | b".." => Err(PathError::Outside),
        _ if name.len() > MAX_NAME => Err(PathError::TooLong),
        _ if name.contains(&0) => Err(PathError::ZeroByte),
        _ if begin_of_working(name).is_some() => Err(PathError::Reserved),
        _ => Ok(()),
    }
}

/// Returns the part of an entry's name that a name of the form of [`EntryPath::working_name`]
/// begins with; `None` if a name has another form.
fn begin_of_working(working: &[u8]) -> Option<&[u8]> {
    let stem = RESERVED
        .iter()
        .find_map(|end| working.strip_suffix(*end))?
        .strip_prefix(b".")?;
    let (name, [dot, hash @ ..]): (_, &[u8; 1 + HASH]) = stem.split_last_chunk()?;
    let is_hash = hash
        .iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (!name.is_empty() && *dot == b'.' && is_hash).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_that_could_lead_outside_is_refused() {
        for (bytes, error) in [
            (&b""[..], PathError::EmptyName),
            (b"/etc/passwd", PathError::EmptyName),
            (b"a//b", PathError::EmptyName),
            (b"a/", PathError::EmptyName),
            (b"..", PathError::Outside),
            (b"a/../../b", PathError::Outside),
            (b"./a", PathError::Outside),
            (b"a\0b", PathError::ZeroByte),
            (b".x.0123abcd.fullpipe-part", PathError::Reserved),
            (b"a/.x.0123abcd.fullpipe-journal/b", PathError::Reserved),
            (&[b'a'; 256], PathError::TooLong),
            (&b"a/".repeat(2100)[..], PathError::TooLong),
        ] {
            assert_eq!(
                EntryPath::new(bytes),
                Err(error),
                "{}",
                printable_bytes(bytes)
            );
        }
        for bytes in [&b"a"[..], b"...", b"a/..b/c", b"\xff\xfe", b"a\nb", b"-rf"] {
            assert_eq!(EntryPath::new(bytes).unwrap().as_bytes(), bytes);
        }
        // Names of a user that only end like those of a transfer.
        for name in [
            "x.fullpipe-part",
            ".fullpipe-part",
            ".x.fullpipe-journal",
            ".0123abcd.fullpipe-part",
        ] {
            assert!(EntryPath::new(name).is_ok(), "{name}");
        }
        for name in [
            "x.0123abcd.fullpipe-part",
            ".x.0123ABCD.fullpipe-part",
            ".x.0123abc.fullpipe-part",
        ] {
            assert!(EntryPath::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_parts_of_a_path() {
        let path = EntryPath::new(*b"a/b/c").unwrap();
        assert_eq!(
            (path.parent_path(), path.last_name(), path.first_name()),
            (Some(&b"a/b"[..]), &b"c"[..], &b"a"[..])
        );
        assert_eq!(EntryPath::new(*b"a").unwrap().parent_path(), None);
        assert_eq!(path.join_name(b"d").unwrap().as_bytes(), b"a/b/c/d");
        assert_eq!(path.join_name(b"..").unwrap_err(), PathError::Outside);
    }

    #[test]
    fn a_name_of_another_shape_is_no_working_name() {
        for name in [
            &b""[..],
            b"x",
            b".fullpipe-part",
            b"..fullpipe-part",
            b".12345678.fullpipe-part",
            b"a.fullpipe-part",
        ] {
            assert_eq!(
                EntryPath::name_of_working(name),
                None,
                "{}",
                printable_bytes(name)
            );
        }
    }

    proptest! {
        #[test]
        fn a_working_name_is_a_name_and_no_entry(name in proptest::collection::vec(1_u8.., 1..255)) {
            prop_assume!(!name.contains(&b'/'));
            if let Ok(path) = EntryPath::new(name) {
                for journal in [false, true] {
                    let working = path.working_name(journal, 1000);
                    prop_assert!(working.len() <= MAX_NAME && working != path.working_name(journal, 0));
                    let whole = Some(path.last_name()).filter(|name| name.len() < KEPT);
                    prop_assert_eq!(EntryPath::name_of_working(&working), whole);
                    prop_assert_eq!(EntryPath::new(working), Err(PathError::Reserved));
                }
            }
        }
    }
}

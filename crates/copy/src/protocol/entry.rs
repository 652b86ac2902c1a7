use fullpipe_units::ByteCount;

use super::bytes::{ByteReader, Field, Wrong, kinds, structure};
use super::{Digest, EntryPath, ExtendedAttributes};

/// A file, folder or link of the tree that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path of the entry at the receiver, below the folder of the transfer.
    pub path: EntryPath,
    /// Kind of the entry: file, folder or link.
    pub kind: EntryKind,
    /// Extended attributes of a file or folder.
    pub attributes: ExtendedAttributes,
}

/// The kind of an entry, with what is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder; what is in it follows.
    Folder {
        /// Permission bits.
        mode: u16,
        /// Time of the last change.
        modified: ModificationTime,
    },
    /// A regular file.
    File {
        /// Permission bits.
        mode: u16,
        /// Time of the last change.
        modified: ModificationTime,
        /// Size of the file.
        size: ByteCount,
        /// The file and its state.
        identity: FileIdentity,
    },
    /// A symbolic link.
    SymbolicLink {
        /// The text of the link.
        target: Vec<u8>,
    },
    /// Another name of a file that was sent before.
    HardLink {
        /// The path of the first name.
        first: EntryPath,
    },
    /// A device, a pipe or a socket: it is not sent, and what has its name at the receiver stays.
    LeftOut,
}

/// The time at which a file was changed, as of Unix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModificationTime {
    /// Seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds on top of that, fewer than a second.
    pub nanoseconds: u32,
}

/// A hash over what identifies a file and its state at the sender: inode, size, times of the last
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity(pub Digest);

/// Bits of a mode that are kept: not those that let a program run as somebody else.
const PERMISSIONS: u16 = 0o777;

impl FileIdentity {
    /// Returns the identity of these numbers.
    pub fn from_numbers(numbers: &[u64]) -> Self {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        Self(blake3::hash(&bytes).into())
    }
}

impl Field<'_> for TreeEntry {
    fn put(&self, into: &mut Vec<u8>) {
        self.path.put(into);
        self.kind.put(into);
        self.attributes.put(into);
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        let (path, mut kind) = (Field::read(reader)?, Field::read(reader)?);
        if let EntryKind::Folder { mode, modified } | EntryKind::File { mode, modified, .. } =
            &mut kind
        {
            *mode &= PERMISSIONS;
            // The system takes a second or more for something else.
            modified.nanoseconds = modified.nanoseconds.min(999_999_999);
        }
        Ok(Self {
            path,
            kind,
            attributes: Field::read(reader)?,
        })
    }
}

impl<'b> Field<'b> for EntryKind {
    kinds! { Wrong::EntryKind;
        0 Folder { mode mode, modified modified }
        1 File { mode mode, modified modified, size size, identity identity }
        2 SymbolicLink { target target }
        3 HardLink { first first }
        4 LeftOut {}
    }
}

structure!(ModificationTime {
    seconds,
    nanoseconds
});
structure!(FileIdentity { 0 });

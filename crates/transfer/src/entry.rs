use fullpipe_units::ByteCount;
use thiserror::Error;

use crate::attributes::Wrong;
use crate::bytes::{Reader, Short, put_counted};
use crate::{Attributes, Digest, EntryPath};

/// A file, folder or link of the tree that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path of the entry at the receiver, below the folder of the transfer.
    pub path: EntryPath,
    /// Kind of the entry: file, folder or link.
    pub kind: EntryKind,
    /// Extended attributes of a file or folder.
    pub attributes: Attributes,
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
        identity: Identity,
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

/// A hash over what identifies a file and its state at the sender: inode, size, times of the last changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub Digest);

/// The error of a number that stands for no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} is no kind of an entry")]
pub struct UnknownKind(pub u8);

/// Bits of a mode that are kept: not those that let a program run as somebody else.
const PERMISSIONS: u16 = 0o777;

impl Identity {
    /// Returns the identity of these numbers.
    pub fn of(numbers: &[u64]) -> Self {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self(blake3::hash(&bytes).into())
    }
}

impl Entry {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        put_counted(into, self.path.as_bytes());
        match &self.kind {
            EntryKind::Folder { mode, modified } => {
                into.push(0);
                put_attributes(into, *mode, *modified);
            }
            EntryKind::File { mode, modified, size, identity } => {
                into.push(1);
                put_attributes(into, *mode, *modified);
                into.extend(size.get().to_le_bytes());
                into.extend(identity.0);
            }
            EntryKind::SymbolicLink { target } => {
                into.push(2);
                put_counted(into, target);
            }
            EntryKind::HardLink { first } => {
                into.push(3);
                put_counted(into, first.as_bytes());
            }
            EntryKind::LeftOut => into.push(4),
        }
        self.attributes.put(into);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, EntryError> {
        let path = EntryPath::new(reader.counted()?)?;
        let kind = match reader.u8()? {
            0 => {
                let (mode, modified) = attributes(reader)?;
                EntryKind::Folder { mode, modified }
            }
            1 => {
                let (mode, modified) = attributes(reader)?;
                let size = ByteCount::new(reader.u64()?);
                EntryKind::File { mode, modified, size, identity: Identity(reader.array()?) }
            }
            2 => EntryKind::SymbolicLink { target: reader.counted()?.to_vec() },
            3 => EntryKind::HardLink { first: EntryPath::new(reader.counted()?)? },
            4 => EntryKind::LeftOut,
            other => return Err(UnknownKind(other).into()),
        };
        Ok(Self { path, kind, attributes: Attributes::read(reader)? })
    }
}

/// The error of bytes that are no entry.
#[derive(Debug, Error)]
pub(crate) enum EntryError {
    #[error("it ends too early")]
    Short,
    #[error(transparent)]
    Path(#[from] crate::PathError),
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    #[error(transparent)]
    Attributes(#[from] Wrong),
}

impl From<Short> for EntryError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

fn put_attributes(into: &mut Vec<u8>, mode: u16, modified: ModificationTime) {
    into.extend(mode.to_le_bytes());
    into.extend(modified.seconds.to_le_bytes());
    into.extend(modified.nanoseconds.to_le_bytes());
}

fn attributes(reader: &mut Reader<'_>) -> Result<(u16, ModificationTime), Short> {
    let mode = reader.u16()? & PERMISSIONS;
    let seconds = reader.u64()?.cast_signed();
    // The system takes a second or more for something else.
    let nanoseconds = reader.u32()?.min(999_999_999);
    Ok((mode, ModificationTime { seconds, nanoseconds }))
}

//! Numbers, texts and what consists of them as bytes, little-endian.

use fullpipe_units::{ByteCount, printable_bytes};
use thiserror::Error;

use super::{AttributeError, Digest, EntryPath, PathError};

/// Bytes of a sentence at most.
pub(crate) const MAX_SENTENCE: usize = 2048;

/// The error of bytes that are not what they should be.
#[derive(Debug, Error)]
pub(crate) enum Wrong {
    #[error("it ends too early")]
    Short,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    #[error("{0} is no kind of an entry")]
    EntryKind(u8),
    #[error("{0} stands for nothing")]
    Number(u8),
    #[error("nothing has this kind")]
    Kind,
    #[error("a block of a chunk has more than 64 KiB")]
    Length,
    #[error("its head is damaged")]
    Damaged,
}

/// Bytes that are read from their beginning.
pub(crate) struct ByteReader<'b>(pub &'b [u8]);

impl<'b> ByteReader<'b> {
    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'b [u8], Wrong> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Wrong::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Wrong::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Reads bytes that follow their number, two bytes.
    pub(crate) fn read_counted(&mut self) -> Result<&'b [u8], Wrong> {
        let count = u16::read(self)?;
        self.take_bytes(count.into())
    }
}

/// Appends `bytes` behind their number; what does not fit is left out.
pub(crate) fn put_counted(into: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(u16::MAX.into())];
    into.extend((bytes.len() as u16).to_le_bytes());
    into.extend(bytes);
}

/// A value as it crosses.
pub(crate) trait Field<'b>: Sized {
    fn put(&self, into: &mut Vec<u8>);

    /// Fails if the bytes are too few, or stand for no such value.
    fn read(reader: &mut ByteReader<'b>) -> Result<Self, Wrong>;
}

/// Implements [`Field`] for a structure: its fields, in the order in which they cross.
macro_rules! structure {
    ($type:ident { $($field:tt),* }) => {
        impl Field<'_> for $type {
            fn put(&self, into: &mut Vec<u8>) {
                $(self.$field.put(into);)*
            }

            fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
                Ok(Self { $($field: Field::read(reader)?),* })
            }
        }
    };
}

/// Implements [`Field`] for kinds: the byte of each, which comes first, and its fields in their
/// order. Blocks of files are written and read as they are.
macro_rules! kinds {
    (
        $unknown:expr $(, blocks $blocks:ident)?;
        $($kind:literal $variant:ident { $($field:tt $name:ident),* })*
    ) => {
        fn put(&self, into: &mut Vec<u8>) {
            match self {
                $(Self::$variant { $($field: $name),* } => {
                    into.push($kind);
                    $($name.put(into);)*
                })*
                $(Self::$blocks { header, content } => {
                    into.extend(&header.frame_bytes(content.len())[4..]);
                    into.extend(*content);
                })?
            }
        }

        fn read(reader: &mut ByteReader<'b>) -> Result<Self, Wrong> {
            match u8::read(reader)? {
                $($kind => Ok(Self::$variant { $($field: Field::read(reader)?),* }),)*
                $($crate::protocol::message::DATA => {
                    DataHeader::read_block(reader).map(|(header, content)| Self::$blocks { header, content })
                })?
                other => Err($unknown(other)),
            }
        }
    };
}

pub(crate) use {kinds, structure};

macro_rules! numbers {
    ($($type:ident)*) => {
        $(impl Field<'_> for $type {
            fn put(&self, into: &mut Vec<u8>) {
                into.extend(self.to_le_bytes());
            }

            fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
                Ok(Self::from_le_bytes(reader.read_array()?))
            }
        })*
    };
}

numbers!(u8 u16 u32 u64 i64);

impl Field<'_> for bool {
    fn put(&self, into: &mut Vec<u8>) {
        into.push((*self).into());
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        match u8::read(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Wrong::Number(other)),
        }
    }
}

impl Field<'_> for (u16, u16) {
    fn put(&self, into: &mut Vec<u8>) {
        self.0.put(into);
        self.1.put(into);
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        Ok((Field::read(reader)?, Field::read(reader)?))
    }
}

impl Field<'_> for Digest {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend(self);
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        reader.read_array()
    }
}

impl Field<'_> for Vec<u8> {
    fn put(&self, into: &mut Vec<u8>) {
        put_counted(into, self);
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        Ok(reader.read_counted()?.to_vec())
    }
}

impl Field<'_> for Vec<Vec<u8>> {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend((self.len().min(u16::MAX.into()) as u16).to_le_bytes());
        self.iter()
            .take(u16::MAX.into())
            .for_each(|item| item.put(into));
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        let count = u16::read(reader)?;
        (0..count).map(|_| Field::read(reader)).collect()
    }
}

/// A sentence that a user will see, with its control characters escaped.
impl Field<'_> for String {
    fn put(&self, into: &mut Vec<u8>) {
        put_counted(
            into,
            &self.as_bytes()[..self.floor_char_boundary(MAX_SENTENCE)],
        );
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        let bytes = reader.read_counted()?;
        Ok(printable_bytes(&bytes[..bytes.len().min(MAX_SENTENCE)]))
    }
}

impl Field<'_> for EntryPath {
    fn put(&self, into: &mut Vec<u8>) {
        put_counted(into, self.as_bytes());
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        Ok(Self::new(reader.read_counted()?)?)
    }
}

impl Field<'_> for ByteCount {
    fn put(&self, into: &mut Vec<u8>) {
        self.get().put(into);
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        Field::read(reader).map(Self::new)
    }
}

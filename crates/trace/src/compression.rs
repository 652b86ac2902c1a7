//! Kinds of compression.

use std::fmt;

/// A compression that captures are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Gzip (RFC 1952), with any number of members.
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Frames of LZ4.
    Lz4,
    /// Xz.
    Xz,
}

impl Compression {
    /// First bytes of a file that are enough to recognize any.
    pub(crate) const MAX_MAGIC: usize = 6;

    /// Returns the compression of a file with these first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let magics: [(&[u8], Self); 4] = [
            (&[0x1F, 0x8B, 0x08], Self::Gzip),
            (&[0x28, 0xB5, 0x2F, 0xFD], Self::Zstd),
            (&[0x04, 0x22, 0x4D, 0x18], Self::Lz4),
            (&[0xFD, b'7', b'z', b'X', b'Z', 0x00], Self::Xz),
        ];
        magics.into_iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, compression)| compression)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Xz => "xz",
        })
    }
}

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
    /// Bytes of the head of a frame without content. They are enough to recognize any compression.
    pub(crate) const SKIPPABLE_HEAD: usize = 8;

    /// Returns the length of the frame without content that begins with these bytes: Zstandard and
    /// LZ4 may have some before their first one, as files of `pzstd` do (RFC 8878, 3.1.2).
    pub(crate) fn skippable_length(bytes: &[u8]) -> Option<usize> {
        let [magic, length] = *bytes
            .first_chunk::<{ Self::SKIPPABLE_HEAD }>()?
            .as_chunks()
            .0
        else {
            return None;
        };
        let is_skippable = matches!(magic, [0x50..=0x5F, 0x2A, 0x4D, 0x18]);
        is_skippable.then(|| Self::SKIPPABLE_HEAD + u32::from_le_bytes(length) as usize)
    }

    /// Returns the compression of a file with these first bytes.
    pub(crate) fn from_magic(bytes: &[u8]) -> Option<Self> {
        let magics: [(&[u8], Self); 4] = [
            (&[0x1F, 0x8B, 0x08], Self::Gzip),
            (&[0x28, 0xB5, 0x2F, 0xFD], Self::Zstd),
            (&[0x04, 0x22, 0x4D, 0x18], Self::Lz4),
            (&[0xFD, b'7', b'z', b'X', b'Z', 0x00], Self::Xz),
        ];
        magics
            .into_iter()
            .find(|(magic, _)| bytes.starts_with(magic))
            .map(|(_, compression)| compression)
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

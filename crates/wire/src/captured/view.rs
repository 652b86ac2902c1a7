//! Bytes of a captured packet, of which the snap length may have cut off the end.

use super::ParseStop;

/// The rest of a packet, from one of its headers on.
#[derive(Clone, Copy)]
pub(super) struct PacketView<'p> {
    /// The captured part of it.
    pub bytes: &'p [u8],
    /// Length of the rest in bytes when it passed; never less than was captured.
    pub length: usize,
    /// Bytes of the packet before it.
    pub offset: usize,
}

impl<'p> PacketView<'p> {
    /// Views a whole packet, of which so many bytes passed. Some files state fewer than they hold.
    #[inline]
    pub(super) fn new(bytes: &'p [u8], original: usize) -> Self {
        Self {
            bytes,
            length: original.max(bytes.len()),
            offset: 0,
        }
    }

    /// Returns the first bytes. Fails if they were not captured, or never were there.
    #[inline]
    pub(super) fn first_bytes<const N: usize>(&self) -> Result<&'p [u8; N], ParseStop> {
        self.bytes
            .first_chunk()
            .ok_or_else(|| self.missing_bytes(N))
    }

    /// Returns the view behind the first `length` bytes. Fails if not all of these were captured.
    #[inline]
    pub(super) fn skip_bytes(self, length: usize) -> Result<Self, ParseStop> {
        let bytes = self
            .bytes
            .get(length..)
            .ok_or_else(|| self.missing_bytes(length))?;
        Ok(Self {
            bytes,
            length: self.length - length,
            offset: self.offset + length,
        })
    }

    /// Returns this view with the length that a header states: what was captured beyond that is
    /// padding of the link.
    #[inline]
    pub(super) fn with_length(self, length: usize) -> Self {
        Self {
            bytes: &self.bytes[..self.bytes.len().min(length)],
            length,
            offset: self.offset,
        }
    }

    /// Returns the upper half of its first byte, which is the version of an IP header.
    #[inline]
    pub(super) fn ip_version(&self) -> Result<u8, ParseStop> {
        Ok(self.first_bytes::<1>()?[0] >> 4)
    }

    fn missing_bytes(&self, length: usize) -> ParseStop {
        if length <= self.length {
            ParseStop::Cut
        } else {
            ParseStop::Malformed
        }
    }
}

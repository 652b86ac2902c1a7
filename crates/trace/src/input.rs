//! The bytes of a file, block by block.

use std::io::{self, Read};
use std::ops::Range;

use crate::decompress::DecompressedInput;
use crate::error::CaptureFault;

/// Bytes that are read at a time.
const BLOCK: usize = 1 << 18;

/// The origin of the bytes.
pub(crate) enum ByteSource {
    Plain(Box<dyn Read + Send>),
    Decompressed(DecompressedInput),
}

/// A buffer in which records are parsed without being copied.
pub(crate) struct InputBuffer {
    source: ByteSource,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were read and not taken yet.
    unread: Range<usize>,
    /// Bytes of the file before them.
    offset: u64,
    /// True once the file proved to end within a record or within its compression.
    pub is_cut: bool,
}

impl InputBuffer {
    pub(crate) fn new(source: ByteSource) -> Self {
        Self {
            source,
            buffer: vec![0; BLOCK],
            unread: 0..0,
            offset: 0,
            is_cut: false,
        }
    }

    /// Reads until `length` bytes are there. Returns false if the file ends before, and notes that
    /// it is cut if it ends within them.
    #[inline]
    pub(crate) fn fill_buffer(&mut self, length: usize) -> Result<bool, CaptureFault> {
        if self.unread.len() >= length {
            Ok(true)
        } else {
            self.read_until(length)
        }
    }

    fn read_until(&mut self, length: usize) -> Result<bool, CaptureFault> {
        while self.unread.len() < length {
            self.make_room(length);
            let count = self.source.read(&mut self.buffer[self.unread.end..])?;
            if count == 0 {
                self.is_cut |= !self.unread.is_empty() || self.source.is_cut();
                return Ok(false);
            }
            self.unread.end += count;
        }
        Ok(true)
    }

    /// Returns the bytes that are there.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Takes `length` bytes that are there. Returns the place of these bytes in the buffer, which
    /// is theirs until the next filling.
    #[inline]
    pub(crate) fn take_bytes(&mut self, length: usize) -> Range<usize> {
        let taken = self.unread.start..self.unread.start + length;
        self.unread.start = taken.end;
        self.offset += length as u64;
        taken
    }

    /// Returns bytes that were taken.
    #[inline]
    pub(crate) fn taken_bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Takes so many bytes, of which not all need to be there, and forgets them. Returns false if
    /// the file ends before.
    pub(crate) fn skip_bytes(&mut self, mut length: usize) -> Result<bool, CaptureFault> {
        while length > 0 {
            if !self.fill_buffer(1)? {
                self.is_cut = true;
                return Ok(false);
            }
            let part = length.min(self.unread.len());
            self.take_bytes(part);
            length -= part;
        }
        Ok(true)
    }

    /// Bytes of the file before the next that is taken.
    pub(crate) fn file_offset(&self) -> u64 {
        self.offset
    }

    /// Returns the bytes that were read and not taken, and the source of the rest.
    pub(crate) fn into_parts(self) -> (Vec<u8>, ByteSource) {
        (self.buffered_bytes().to_vec(), self.source)
    }

    /// Moves what is there to the buffer's beginning if `length` bytes do not fit behind it. A
    /// buffer that is too small grows with what arrives, since the length may be wrong.
    fn make_room(&mut self, length: usize) {
        if self.unread.start + length > self.buffer.len() || self.unread.is_empty() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.buffer.len() {
            self.buffer.resize(length.min(2 * self.buffer.len()), 0);
        }
    }
}

impl ByteSource {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureFault> {
        match self {
            Self::Plain(reader) => loop {
                match reader.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => return read.map_err(CaptureFault::Read),
                }
            },
            Self::Decompressed(reader) => reader.read(buffer),
        }
    }

    fn is_cut(&self) -> bool {
        matches!(self, Self::Decompressed(reader) if reader.is_cut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow pipe may.
    struct Drops(u8);

    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(next) = self.0.checked_add(1) else {
                return Ok(0);
            };
            (buffer[0], self.0) = (self.0, next);
            Ok(1)
        }
    }

    #[test]
    fn records_are_whole_wherever_blocks_end() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 100).map(|at| (at / 7) as u8).collect();
        for record in [1000, BLOCK - 1, BLOCK, BLOCK + 1] {
            let mut input =
                InputBuffer::new(ByteSource::Plain(Box::new(io::Cursor::new(bytes.clone()))));
            for expected in bytes.chunks_exact(record) {
                assert!(input.fill_buffer(record).unwrap());
                let range = input.take_bytes(record);
                assert!(input.taken_bytes(range) == expected);
            }
            assert_eq!(input.file_offset(), (bytes.len() / record * record) as u64);
            assert!(!input.fill_buffer(record).unwrap() && input.is_cut);
        }
    }

    #[test]
    fn a_slow_pipe_is_read_as_far_as_is_needed() {
        let mut input = InputBuffer::new(ByteSource::Plain(Box::new(Drops(0))));
        assert!(input.fill_buffer(3).unwrap());
        assert_eq!(input.buffered_bytes(), [0, 1, 2]);
        assert!(input.skip_bytes(200).unwrap());
        assert!(input.fill_buffer(55).unwrap());
        assert_eq!(input.buffered_bytes()[..2], [200, 201]);
        assert!(input.skip_bytes(55).unwrap());
        assert!(
            !input.fill_buffer(1).unwrap() && !input.is_cut,
            "the end is no cut"
        );
        assert!(!input.skip_bytes(1).unwrap() && input.is_cut);
    }
}

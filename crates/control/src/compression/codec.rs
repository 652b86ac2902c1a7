use std::fmt;
use std::io;

use zstd::bulk;

/// State of zstd for one block after the other.
pub struct BlockCompressor {
    state: bulk::Compressor<'static>,
    level: Option<i32>,
}

/// State of zstd that decompresses one block after the other.
pub struct BlockDecompressor(bulk::Decompressor<'static>);

impl BlockCompressor {
    /// Makes the state, some 300 KiB.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: bulk::Compressor::new(0)?,
            level: None,
        })
    }

    /// Compresses a block into a buffer. Returns the length; `None` if it does not fit: a caller
    /// that wants it shorter than the block gives a buffer that is.
    pub fn compress_block(&mut self, level: i32, block: &[u8], into: &mut [u8]) -> Option<usize> {
        if self.level != Some(level) {
            self.state.set_compression_level(level).ok()?;
            self.level = Some(level);
        }
        self.state.compress_to_buffer(block, into).ok()
    }
}

impl BlockDecompressor {
    /// Makes the state.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self(bulk::Decompressor::new()?))
    }

    /// Decompresses a block into a buffer. Returns the length; `None` if it is none, or does not
    /// fit. zstd takes no memory of its own for a window.
    pub fn decompress_block(&mut self, packed: &[u8], into: &mut [u8]) -> Option<usize> {
        self.0.decompress_to_buffer(packed, into).ok()
    }
}

impl fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor(…)")
    }
}

impl fmt::Debug for BlockDecompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressor(…)")
    }
}

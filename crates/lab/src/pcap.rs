//! Files of `pcap-savefile(5)`. Nothing here knows of labs, so that other crates can take it over.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use fullpipe_units::ByteCount;

/// A file with stamps in nanoseconds and IP packets without a link layer.
#[derive(Debug)]
pub(crate) struct PcapFile {
    file: BufWriter<File>,
    /// Bytes that may still be written.
    left: u64,
}

impl PcapFile {
    const MAGIC: u32 = 0xa1b2_3c4d;
    const VERSION: u32 = 2 | 4 << 16;
    const LINKTYPE_RAW: u32 = 101;

    /// Begins a file of at most `max` bytes, with at most `snaplen` bytes of each packet.
    pub(crate) fn create(path: &Path, snaplen: usize, max: ByteCount) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&words([Self::MAGIC, Self::VERSION, 0, 0, snaplen as u32, Self::LINKTYPE_RAW]))?;
        Ok(Self { file, left: max.get().saturating_sub(24) })
    }

    /// Writes the first bytes of a packet of `length` bytes, stamped `at` since 1970. Returns `false` if the file has
    /// no room for it, or had none for one before it: a smaller packet written later would make a gap that nothing
    /// shows.
    pub(crate) fn write(&mut self, at: Duration, kept: &[u8], length: u32) -> io::Result<bool> {
        let Some(left) = self.left.checked_sub(16 + kept.len() as u64) else {
            self.left = 0;
            return Ok(false);
        };
        self.left = left;
        self.file.write_all(&words([at.as_secs() as u32, at.subsec_nanos(), kept.len() as u32, length]))?;
        self.file.write_all(kept)?;
        Ok(true)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

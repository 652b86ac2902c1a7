//! Files of `pcap-savefile(5)` of a bounded size.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fullpipe_units::{ByteCount, Time};
use fullpipe_wire::{LinkType, pcap_header, pcap_record};

/// A file with stamps in nanoseconds and IP packets without a link layer.
pub(crate) struct PcapFile {
    file: BufWriter<File>,
    /// Bytes that may still be written.
    left: u64,
}

impl PcapFile {
    /// Begins a file of at most `max` bytes, with at most `snaplen` bytes of each packet.
    pub(crate) fn create(path: &Path, snaplen: usize, max: ByteCount) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        let header = pcap_header(LinkType::RAW, snaplen as u32);
        file.write_all(&header)?;
        Ok(Self {
            file,
            left: max.get().saturating_sub(header.len() as u64),
        })
    }

    /// Writes the first bytes of a packet of `length` bytes, stamped `at`, counted from 1970.
    /// Returns `false` if the file has no room for it, or had none for one before it: a smaller
    /// packet written later would make a gap that nothing shows.
    pub(crate) fn write(&mut self, at: Time, kept: &[u8], length: u32) -> io::Result<bool> {
        let Some(left) = self.left.checked_sub(16 + kept.len() as u64) else {
            self.left = 0;
            return Ok(false);
        };
        self.left = left;
        self.file
            .write_all(&pcap_record(at, kept.len() as u32, length))?;
        self.file.write_all(kept)?;
        Ok(true)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

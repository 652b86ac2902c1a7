//! Files of `pcap-savefile(5)`, written.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fullpipe_units::Time;
use fullpipe_wire::{LinkType, pcap_header, pcap_record};

/// A new file with times in nanoseconds. It is removed unless it is finished.
pub(crate) struct PcapWriter {
    file: BufWriter<File>,
    /// The file, while it is not finished; none for a device.
    unfinished: Option<PathBuf>,
    written: u64,
}

impl PcapWriter {
    /// Creates a file of packets of one link type, of which at most `snap_length` bytes are kept.
    /// An existing file is never overwritten; a device is written to.
    pub(crate) fn create(path: &Path, link: LinkType, snap_length: u32) -> io::Result<Self> {
        let is_device = fs::metadata(path).is_ok_and(|found| is_device(found.file_type()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(!is_device)
            .open(path)?;
        let unfinished = (!is_device).then(|| path.to_owned());
        let mut writer = Self {
            file: BufWriter::with_capacity(1 << 18, file),
            unfinished,
            written: 0,
        };
        writer.write_bytes(&pcap_header(link, snap_length))?;
        Ok(writer)
    }

    /// Adds the first `bytes` of a packet that had the length `original`.
    pub(crate) fn write_packet(&mut self, at: Time, bytes: &[u8], original: u32) -> io::Result<()> {
        self.write_bytes(&pcap_record(at, bytes.len() as u32, original))?;
        self.write_bytes(bytes)
    }

    /// Returns the bytes that were written.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.unfinished = None;
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

impl Drop for PcapWriter {
    fn drop(&mut self) {
        if let Some(path) = &self.unfinished {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(unix)]
fn is_device(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_char_device(&kind)
}

#[cfg(not(unix))]
fn is_device(_: FileType) -> bool {
    false
}

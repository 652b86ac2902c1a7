//! A capture written anew without what identifies hosts.

use std::io;
use std::path::{Path, PathBuf};

use fullpipe_record::RedactedFile;
use fullpipe_wire::{LinkType, redact};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::pcap_writer::PcapWriter;
use crate::pseudonyms::RandomPseudonyms;
use crate::{CaptureError, CapturedPacket};

/// Bytes of the longest headers that are written: layers of tunnels around a segment with all its options.
const SNAP_LENGTH: u32 = 65_535;

/// A file that the headers of TCP segments are written to, with other addresses. It is removed unless it is finished.
pub struct Redaction {
    path: PathBuf,
    file: PcapWriter,
    pseudonyms: RandomPseudonyms,
    frame: Vec<u8>,
    segments: u64,
    left_out: u64,
}

impl Redaction {
    /// Creates the file, and draws the key of its addresses, which is forgotten with the result.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or cannot be made, or the system has no random numbers.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let fail = |source| CaptureError::Write { file: path.display().to_string(), source };
        let file = PcapWriter::create(path, LinkType::ETHERNET, SNAP_LENGTH).map_err(fail)?;
        let pseudonyms = RandomPseudonyms::new(random_key().map_err(fail)?);
        Ok(Self { path: path.to_owned(), file, pseudonyms, frame: Vec::new(), segments: 0, left_out: 0 })
    }

    /// Writes a packet if it is a TCP segment.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&mut self, packet: &CapturedPacket) -> Result<(), CaptureError> {
        let (pseudonyms, frame) = (&mut self.pseudonyms, &mut self.frame);
        let Some(original) = redact(packet.link, packet.bytes, packet.original as usize, pseudonyms, frame) else {
            self.left_out += 1;
            return Ok(());
        };
        self.segments += 1;
        self.file.packet(packet.at, frame, original as u32).map_err(|source| self.failed(source))
    }

    /// Completes the file. Returns what it holds.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn finish(self) -> Result<RedactedFile, CaptureError> {
        let name = self.path.display().to_string();
        let finished = self.file.finish();
        finished.map_err(|source| CaptureError::Write { file: name.clone(), source })?;
        Ok(RedactedFile { name, segments: self.segments, left_out: self.left_out })
    }

    fn failed(&self, source: io::Error) -> CaptureError {
        CaptureError::Write { file: self.path.display().to_string(), source }
    }
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    let length = getrandom(&mut key, GetRandomFlags::empty())?;
    if length == key.len() { Ok(key) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

//! A capture written anew without what identifies hosts.

use std::io;
use std::path::{Path, PathBuf};

use fullpipe_record::RedactedFile;
use fullpipe_units::Time;
use fullpipe_wire::{LinkType, redact_segment};

use crate::clock::CaptureClock;
use crate::pcap_writer::PcapWriter;
use crate::pseudonyms::RandomPseudonyms;
use crate::sorter::MANY;
use crate::{CaptureError, CapturedPacket};

/// Bytes of the longest headers that are written: layers of tunnels around a segment with all its
/// options.
const SNAP_LENGTH: u32 = 65_535;

/// A file that the headers of TCP segments are written to, with other addresses. It is removed
/// unless it is finished.
pub struct RedactedWriter {
    path: PathBuf,
    file: PcapWriter,
    pseudonyms: RandomPseudonyms,
    frame: Vec<u8>,
    clock: CaptureClock,
    /// Packets that wait for earlier ones: the new file does not show which device was late.
    held: Vec<RedactedPacket>,
    segments: u64,
    left_out: u64,
}

/// A packet that is to be written.
struct RedactedPacket {
    /// Time of the packet by a clock that was never set.
    sorted: Time,
    at: Time,
    frame: Box<[u8]>,
    original: u32,
}

impl RedactedWriter {
    /// Creates the file, and draws the key of its addresses, which is forgotten with the result.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or cannot be made, or the system has no random numbers.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        Self::create_file(path).map_err(|source| CaptureError::of_written_file(path, source))
    }

    fn create_file(path: &Path) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self {
            path: path.to_owned(),
            file: PcapWriter::create(path, LinkType::ETHERNET, SNAP_LENGTH)?,
            pseudonyms: RandomPseudonyms::new(key),
            frame: Vec::new(),
            clock: CaptureClock::default(),
            held: Vec::new(),
            segments: 0,
            left_out: 0,
        })
    }

    /// Writes a packet if it is a TCP segment, behind earlier ones that stand up to 32 768 segments
    /// behind it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&mut self, packet: &CapturedPacket) -> Result<(), CaptureError> {
        let sorted = self.clock.packet_time(packet.at, packet.interface);
        let (pseudonyms, frame) = (&mut self.pseudonyms, &mut self.frame);
        let Some(original) = redact_segment(
            packet.link,
            packet.bytes,
            packet.original as usize,
            pseudonyms,
            frame,
        ) else {
            self.left_out += 1;
            return Ok(());
        };
        self.segments += 1;
        let (frame, original) = (self.frame.as_slice().into(), original as u32);
        self.held.push(RedactedPacket {
            sorted,
            at: packet.at,
            frame,
            original,
        });
        if self.held.len() < 2 * MANY {
            Ok(())
        } else {
            self.write_first(MANY)
        }
    }

    /// Completes the file. Returns what it holds.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> Result<RedactedFile, CaptureError> {
        self.write_first(self.held.len())?;
        self.file
            .finish()
            .map_err(|source| CaptureError::of_written_file(&self.path, source))?;
        Ok(RedactedFile {
            name: self.path.display().to_string(),
            segments: self.segments,
            left_out: self.left_out,
        })
    }

    fn write_first(&mut self, count: usize) -> Result<(), CaptureError> {
        self.held.sort_by_key(|held| held.sorted);
        let mut write =
            |held: RedactedPacket| self.file.write_packet(held.at, &held.frame, held.original);
        let written = self.held.drain(..count).try_for_each(&mut write);
        written.map_err(|source| CaptureError::of_written_file(&self.path, source))
    }
}

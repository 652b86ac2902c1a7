//! A capture of any format.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fullpipe_units::Time;
use fullpipe_wire::LinkType;

use crate::appearance::file_appearance;
use crate::decompress::DecompressedInput;
use crate::error::CaptureFault;
use crate::input::{ByteSource, InputBuffer};
use crate::pcap::PcapReader;
use crate::pcapng::PcapNg;
use crate::{CaptureError, Compression, FileNotes};

/// First bytes of a file by which a wrong one is described.
const PREVIEW: usize = 64;

/// An open capture: pcap or pcapng, plain or compressed.
pub struct PacketFile {
    name: String,
    /// Path of the file, if it can be read from its begin again.
    path: Option<PathBuf>,
    input: InputBuffer,
    framing: FileFraming,
    notes: FileNotes,
    /// Packets that the host lost, of a capture under way, once it is over.
    drops: Option<Arc<AtomicU64>>,
    is_ended: bool,
}

/// A packet as the capture holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'p> {
    /// Time of the packet since 1970 in UTC. A packet without one has that of the packet before.
    pub at: Time,
    /// Type of the header that it begins with.
    pub link: LinkType,
    /// Number of the interface that captured it, in the order in which its section of the file
    /// describes them.
    pub interface: u16,
    /// First bytes of the packet, as many as were captured.
    pub bytes: &'p [u8],
    /// Length of the packet in bytes when it passed; never less than was captured.
    pub original: u32,
}

enum FileFraming {
    Pcap(PcapReader),
    PcapNg(PcapNg),
}

impl PacketFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, and as [`PacketFile::new`] does.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| CaptureError::Open {
            file: name.clone(),
            source,
        })?;
        let is_whole = file.metadata().is_ok_and(|found| found.is_file());
        let opened = Self::new(file, &name)?;
        Ok(Self {
            path: is_whole.then(|| path.to_owned()),
            ..opened
        })
    }

    /// Returns it with the packets that the capturing host lost, which are known once it is over.
    pub(crate) fn with_drops(self, drops: Arc<AtomicU64>) -> Self {
        Self {
            drops: Some(drops),
            ..self
        }
    }

    /// Returns true for a file on a disk.
    pub(crate) fn can_reopen(&self) -> bool {
        self.path.is_some()
    }

    /// Goes back to the first packet, if that is possible.
    pub(crate) fn rewind_file(&mut self) -> bool {
        let opened = self.path.as_deref().and_then(|path| Self::open(path).ok());
        let is_open = opened.is_some();
        if let Some(opened) = opened {
            *self = opened;
        }
        is_open
    }

    /// Reads the header of a capture from standard input or a pipe. Errors use its `name`.
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or decompressed, is no capture, or has an unknown version.
    pub fn new(input: impl Read + Send + 'static, name: &str) -> Result<Self, CaptureError> {
        let input = InputBuffer::new(ByteSource::Plain(Box::new(input)));
        Self::detect_format(input, name.to_owned()).map_err(|fault| fault.into_error(name))
    }

    /// Returns the next packet; `None` at the end, which may be within a packet: see
    /// [`FileNotes::cut_end`].
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or decompressed, expands as no capture does, or holds a
    /// record that no program writes. The next call then returns `None`.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, CaptureError> {
        if self.is_ended {
            return Ok(None);
        }
        let record = match &mut self.framing {
            FileFraming::Pcap(pcap) => pcap.next_record(&mut self.input, &mut self.notes),
            FileFraming::PcapNg(pcapng) => pcapng.next_record(&mut self.input, &mut self.notes),
        };
        let Some(record) = record.map_err(|fault| self.ended_by(fault))? else {
            self.end();
            self.notes.cut_end = self.input.is_cut;
            return Ok(None);
        };
        self.notes.packets += 1;
        Ok(Some(CapturedPacket {
            at: Time::from_nanos(record.at),
            link: record.link,
            interface: record.interface,
            bytes: self.input.taken_bytes(record.range),
            original: record.original,
        }))
    }

    /// Returns facts of the file, as far as it was read.
    pub fn file_notes(&self) -> &FileNotes {
        &self.notes
    }

    fn detect_format(mut input: InputBuffer, name: String) -> Result<Self, CaptureFault> {
        let mut notes = FileNotes::default();
        while input.fill_buffer(Compression::SKIPPABLE_HEAD)? {
            let Some(length) = Compression::skippable_length(input.buffered_bytes()) else {
                break;
            };
            input.skip_bytes(length)?;
        }
        notes.compression = Compression::from_magic(input.buffered_bytes());
        if let Some(compression) = notes.compression {
            input = decompressed_input(compression, input)?;
        }
        // A shorter file is none, and described below.
        input.fill_buffer(4)?;
        let framing = match PcapReader::open(&mut input, &mut notes)? {
            Some(pcap) => Some(FileFraming::Pcap(pcap)),
            None => PcapNg::open(&mut input, &mut notes)?.map(FileFraming::PcapNg),
        };
        if let Some(framing) = framing {
            return Ok(Self {
                name,
                path: None,
                input,
                framing,
                notes,
                drops: None,
                is_ended: false,
            });
        }
        input.fill_buffer(PREVIEW)?;
        let preview = &input.buffered_bytes()[..input.buffered_bytes().len().min(PREVIEW)];
        Err(CaptureFault::NoCapture(file_appearance(preview)))
    }

    fn end(&mut self) {
        self.is_ended = true;
        self.notes.drops = self
            .drops
            .as_ref()
            .map(|drops| drops.load(Relaxed))
            .or(self.notes.drops);
    }

    fn ended_by(&mut self, fault: CaptureFault) -> CaptureError {
        self.end();
        fault.into_error(&self.name)
    }
}

impl fmt::Debug for PacketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketFile")
            .field("name", &self.name)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// Returns the input behind a compression.
fn decompressed_input(
    compression: Compression,
    input: InputBuffer,
) -> Result<InputBuffer, CaptureFault> {
    let (begun, source) = input.into_parts();
    let ByteSource::Plain(rest) = source else {
        return Ok(InputBuffer::new(source));
    };
    let decompressed = DecompressedInput::start(compression, Cursor::new(begun).chain(rest))?;
    Ok(InputBuffer::new(ByteSource::Decompressed(decompressed)))
}

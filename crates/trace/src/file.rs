//! A capture of any format.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use fullpipe_units::Time;
use fullpipe_wire::{LinkType, PacketDirection, direction};

use crate::appearance::appearance;
use crate::decompress::Decompressed;
use crate::error::Fault;
use crate::input::{Input, Source};
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;
use crate::{CaptureError, Compression, FileNotes};

/// First bytes of a file by which a wrong one is described.
const PREVIEW: usize = 64;

/// An open capture: pcap or pcapng, plain or compressed.
pub struct PacketFile {
    name: String,
    input: Input,
    framing: Framing,
    notes: FileNotes,
    is_ended: bool,
}

/// A packet as the capture holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'p> {
    /// Its time since 1970 in UTC. A packet without one has that of the packet before.
    pub at: Time,
    /// Type of the header that it begins with.
    pub link: LinkType,
    /// Index of its interface in [`FileNotes::interfaces`].
    pub interface: u32,
    /// Its first bytes, as many as were captured.
    pub bytes: &'p [u8],
    /// Its length in bytes when it passed; never less than was captured.
    pub original: u32,
    /// Its direction, where the capture or the link's header states it.
    pub direction: Option<PacketDirection>,
}

enum Framing {
    Pcap(Pcap),
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
        match File::open(path) {
            Ok(file) => Self::new(file, &name),
            Err(source) => Err(CaptureError::Open { file: name, source }),
        }
    }

    /// Reads the header of a capture from standard input or a pipe. Errors use its `name`.
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or decompressed, is no capture, or has an unknown version.
    pub fn new(input: impl Read + Send + 'static, name: &str) -> Result<Self, CaptureError> {
        let input = Input::new(Source::Plain(Box::new(input)));
        Self::detect(input, name.to_owned()).map_err(|fault| fault.of(name))
    }

    /// Returns the next packet; `None` at the end, which may be within a packet: see [`FileNotes::cut_end`].
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or decompressed, expands as no capture does, or holds a record that no program
    /// writes. The next call then returns `None`.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, CaptureError> {
        if self.is_ended {
            return Ok(None);
        }
        let record = match &mut self.framing {
            Framing::Pcap(pcap) => pcap.next_record(&mut self.input, &mut self.notes),
            Framing::PcapNg(pcapng) => pcapng.next_record(&mut self.input, &mut self.notes),
        };
        let Some(record) = record.map_err(|fault| self.ended_by(fault))? else {
            self.is_ended = true;
            self.notes.cut_end = self.input.is_cut();
            return Ok(None);
        };
        self.notes.packets += 1;
        let bytes = self.input.taken(record.range);
        Ok(Some(CapturedPacket {
            at: Time::from_nanos(record.at),
            link: record.link,
            interface: record.interface.into(),
            bytes,
            original: record.original,
            direction: record.direction.or_else(|| direction(record.link, bytes)),
        }))
    }

    /// Returns facts of the file, as far as it was read.
    pub fn notes(&self) -> &FileNotes {
        &self.notes
    }

    fn detect(mut input: Input, name: String) -> Result<Self, Fault> {
        let mut notes = FileNotes::default();
        input.fill(Compression::MAX_MAGIC)?;
        notes.compression = Compression::of(input.unread());
        if let Some(compression) = notes.compression {
            input = decompressed(compression, input)?;
        }
        // A shorter file is none, and described below.
        input.fill(4)?;
        let framing = match Pcap::open(&mut input, &mut notes)? {
            Some(pcap) => Some(Framing::Pcap(pcap)),
            None => PcapNg::open(&mut input, &mut notes)?.map(Framing::PcapNg),
        };
        if let Some(framing) = framing {
            return Ok(Self { name, input, framing, notes, is_ended: false });
        }
        input.fill(PREVIEW)?;
        let preview = &input.unread()[..input.unread().len().min(PREVIEW)];
        Err(Fault::NoCapture(appearance(preview)))
    }

    fn ended_by(&mut self, fault: Fault) -> CaptureError {
        self.is_ended = true;
        fault.of(&self.name)
    }
}

impl fmt::Debug for PacketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketFile").field("name", &self.name).field("notes", &self.notes).finish_non_exhaustive()
    }
}

/// Returns the input behind a compression.
fn decompressed(compression: Compression, input: Input) -> Result<Input, Fault> {
    let (begun, source) = input.into_parts();
    let Source::Plain(rest) = source else { return Ok(Input::new(source)) };
    let decompressed = Decompressed::start(compression, Cursor::new(begun).chain(rest))?;
    Ok(Input::new(Source::Decompressed(decompressed)))
}

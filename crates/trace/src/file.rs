//! A capture of any format.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fullpipe_units::Time;
use fullpipe_wire::LinkType;

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
    /// Path of the file, if it can be read from its begin again.
    path: Option<PathBuf>,
    input: Input,
    framing: Framing,
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
    /// Number of the interface that captured it, in the order in which its section of the file describes them.
    pub interface: u16,
    /// First bytes of the packet, as many as were captured.
    pub bytes: &'p [u8],
    /// Length of the packet in bytes when it passed; never less than was captured.
    pub original: u32,
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
        let file = File::open(path).map_err(|source| CaptureError::Open { file: name.clone(), source })?;
        let is_whole = file.metadata().is_ok_and(|found| found.is_file());
        let opened = Self::new(file, &name)?;
        Ok(Self { path: is_whole.then(|| path.to_owned()), ..opened })
    }

    /// Returns it with the packets that the capturing host lost, which are known once it is over.
    pub(crate) fn with_drops(self, drops: Arc<AtomicU64>) -> Self {
        Self { drops: Some(drops), ..self }
    }

    /// Returns true for a file on a disk.
    pub(crate) fn can_reopen(&self) -> bool {
        self.path.is_some()
    }

    /// Goes back to the first packet, if that is possible.
    pub(crate) fn reopen(&mut self) -> bool {
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
        let input = Input::new(Source::Plain(Box::new(input)));
        Self::detect(input, name.to_owned()).map_err(|fault| fault.of(name))
    }

    /// Returns the next packet; `None` at the end, which may be within a packet: see [`FileNotes::cut_end`].
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read or decompressed, expands as no capture does, or holds a record that no program
    /// writes. The next call then returns `None`.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, CaptureError> {
        if self.is_ended {
            return Ok(None);
        }
        let record = match &mut self.framing {
            Framing::Pcap(pcap) => pcap.next_record(&mut self.input, &mut self.notes),
            Framing::PcapNg(pcapng) => pcapng.next_record(&mut self.input, &mut self.notes),
        };
        let Some(record) = record.map_err(|fault| self.ended_by(fault))? else {
            self.end();
            self.notes.cut_end = self.input.is_cut();
            return Ok(None);
        };
        self.notes.packets += 1;
        Ok(Some(CapturedPacket {
            at: Time::from_nanos(record.at),
            link: record.link,
            interface: record.interface,
            bytes: self.input.taken(record.range),
            original: record.original,
        }))
    }

    /// Returns facts of the file, as far as it was read.
    pub fn notes(&self) -> &FileNotes {
        &self.notes
    }

    fn detect(mut input: Input, name: String) -> Result<Self, Fault> {
        let mut notes = FileNotes::default();
        while input.fill(Compression::SKIPPABLE_HEAD)? {
            let Some(length) = Compression::skippable(input.unread()) else { break };
            input.skip(length)?;
        }
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
            return Ok(Self { name, path: None, input, framing, notes, drops: None, is_ended: false });
        }
        input.fill(PREVIEW)?;
        let preview = &input.unread()[..input.unread().len().min(PREVIEW)];
        Err(Fault::NoCapture(appearance(preview)))
    }

    fn end(&mut self) {
        self.is_ended = true;
        self.notes.drops = self.drops.as_ref().map(|drops| drops.load(Relaxed)).or(self.notes.drops);
    }

    fn ended_by(&mut self, fault: Fault) -> CaptureError {
        self.end();
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

//! Decompression on a thread of its own.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::GzDecoder;

use crate::Compression;
use crate::error::CaptureFault;

/// Bytes of a chunk that is passed to the reader, and chunks that may wait for it.
const CHUNK: usize = 1 << 18;
const WAITING: usize = 4;

/// A capture is taken for a bomb if a stretch of so many bytes expands by more than the ratio.
const STRETCH: u64 = 64 << 20;
const MAX_RATIO: u64 = 1000;

/// KiB of memory that a file may ask of the decompressor: xz has up to 64 MiB at its highest level.
const MAX_MEMORY_KIB: u32 = 256 << 10;

/// The content of a compressed file.
pub(crate) struct DecompressedInput {
    compression: Compression,
    chunks: Receiver<DecompressedChunk>,
    /// The chunk that is being read, and how much of it was.
    chunk: Vec<u8>,
    at: usize,
    end: Option<DecompressionEnd>,
}

enum DecompressedChunk {
    Bytes(Vec<u8>),
    Last(DecompressionEnd),
}

enum DecompressionEnd {
    Whole,
    Cut,
    Failed(io::Error),
    Bomb,
}

impl DecompressedInput {
    /// Begins to decompress `input` on a thread, which ends with the file, or once the result is
    /// dropped and the input gives bytes. Fails if there can be no thread.
    pub(crate) fn start(
        compression: Compression,
        input: impl Read + Send + 'static,
    ) -> Result<Self, CaptureFault> {
        let (sender, chunks) = sync_channel(WAITING);
        let thread = thread::Builder::new()
            .name("decompress".to_owned())
            .spawn(move || {
                let end = send_chunks(compression, input, &sender);
                // The reader may be gone.
                let _ = sender.send(DecompressedChunk::Last(end));
            });
        thread.map_err(|error| CaptureFault::Decompression(compression, error))?;
        Ok(Self {
            compression,
            chunks,
            chunk: Vec::new(),
            at: 0,
            end: None,
        })
    }

    /// Reads as [`Read::read`] does.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureFault> {
        while self.at == self.chunk.len() && self.end.is_none() {
            match self.chunks.recv() {
                Ok(DecompressedChunk::Bytes(bytes)) => (self.chunk, self.at) = (bytes, 0),
                Ok(DecompressedChunk::Last(end)) => self.end = Some(end),
                Err(_) => {
                    self.end = Some(DecompressionEnd::Failed(io::Error::other(
                        "the decompressor gave up",
                    )));
                }
            }
        }
        let rest = &self.chunk[self.at..];
        if rest.is_empty() {
            return self.end_input();
        }
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }

    /// Returns true once all was read of a file whose compression is cut.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.end, Some(DecompressionEnd::Cut))
    }

    fn end_input(&mut self) -> Result<usize, CaptureFault> {
        match self.end.take() {
            Some(DecompressionEnd::Failed(error)) => {
                Err(CaptureFault::Decompression(self.compression, error))
            }
            Some(DecompressionEnd::Bomb) => Err(CaptureFault::Bomb(self.compression)),
            end => {
                self.end = end;
                Ok(0)
            }
        }
    }
}

/// Sends all that `input` expands to. Returns why it ended.
fn send_chunks(
    compression: Compression,
    input: impl Read + 'static,
    to: &SyncSender<DecompressedChunk>,
) -> DecompressionEnd {
    let taken = Arc::new(AtomicU64::new(0));
    let input = CountedInput {
        input: BufReader::with_capacity(CHUNK, input),
        taken: Arc::clone(&taken),
    };
    let mut decoder = match open_decoder(compression, input) {
        Ok(decoder) => decoder,
        Err(error) => return DecompressionEnd::Failed(error),
    };
    let (mut stretch, mut taken_before) = (0, 0);
    loop {
        let mut bytes = Vec::with_capacity(CHUNK);
        let read = (&mut decoder).take(CHUNK as u64).read_to_end(&mut bytes);
        let (length, is_full) = (bytes.len() as u64, bytes.len() == CHUNK);
        if to.send(DecompressedChunk::Bytes(bytes)).is_err() {
            return DecompressionEnd::Whole;
        }
        match read {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return DecompressionEnd::Cut,
            Err(error) => return DecompressionEnd::Failed(error),
            Ok(_) if !is_full => return DecompressionEnd::Whole,
            Ok(_) => {}
        }
        stretch += length;
        if stretch >= STRETCH {
            let taken = taken.load(Relaxed);
            if (taken - taken_before).saturating_mul(MAX_RATIO) < stretch {
                return DecompressionEnd::Bomb;
            }
            (stretch, taken_before) = (0, taken);
        }
    }
}

fn open_decoder(
    compression: Compression,
    input: impl BufRead + 'static,
) -> io::Result<Box<dyn Read>> {
    Ok(match compression {
        Compression::Gzip => Box::new(GzipMembers(Some(GzDecoder::new(input)))),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
        Compression::Lz4 => Box::new(Lz4Frames(lz4_flex::frame::FrameDecoder::new(input))),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
            input,
            true,
            MAX_MEMORY_KIB,
        )),
    })
}

/// Members of gzip one behind another, and zeros behind them, which fill the last block of a tape
/// or a device.
struct GzipMembers<R: BufRead>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.0 = match self.0.take().map(GzDecoder::into_inner) {
                Some(mut input) => has_more(&mut input)?.then(|| GzDecoder::new(input)),
                None => None,
            };
        }
        Ok(0)
    }
}

/// Passes over zeros. Returns true if anything follows them.
fn has_more(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let (is_end, is_over) = (bytes.is_empty(), zeros < bytes.len());
        input.consume(zeros);
        if is_end || is_over {
            return Ok(is_over);
        }
    }
}

/// Frames of LZ4 one behind another, as concatenated files have them.
struct Lz4Frames<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.0.read(buffer)?;
            if count > 0 || buffer.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(count);
            }
        }
    }
}

/// Counts the bytes that a decoder takes.
struct CountedInput<R> {
    input: R,
    taken: Arc<AtomicU64>,
}

impl<R: BufRead> Read for CountedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.taken.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for CountedInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken.fetch_add(count as u64, Relaxed);
        self.input.consume(count);
    }
}

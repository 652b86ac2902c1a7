//! Blocks as they arrive: each is checked, written and, when its chunk is whole, noted.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::protocol::{
    AGAIN, ChunkBlocks, CopyMessage, DATA_HEADER, DataHead, DataHeader, ZEROS, block_hash,
    block_length, chunk_hash, chunk_length,
};

use super::complete::ArrivedFile;
use super::{FileReceiver, IncomingFile, IncomingState};
use crate::options::CopyError;
use crate::packing::decompress_block;
use crate::part::{DueSync, PartWriter};
use crate::tree::FolderTree;
use fullpipe_sys::lock;

/// Chunks that may be there in part at once: a connection sends one after the other, and others
/// send blocks of it.
pub(super) const MAX_BEGUN: usize = 1 << 14;

/// Bytes that are read ahead: the heads of some small files. What is left of a block goes to its
/// place at once.
const GATHERED: usize = 16 << 10;

/// Chunks that may arrive wrong: memory and processors that flip more bits than that are broken.
const MAX_CORRUPT: u64 = 1000;

/// A block that has arrived, or a chunk that is a hole, and is right.
struct ArrivedBlock<'b> {
    header: DataHeader,
    content: &'b [u8],
    /// Bytes of its chunk.
    length: usize,
}

impl ArrivedBlock<'_> {
    const fn is_hole(&self) -> bool {
        self.content.is_empty()
    }
}

impl FileReceiver {
    /// Receives what comes on a stream, until it ends. One that may break before it has begun is
    /// watched by the sender.
    pub(super) fn receive_stream(&self, stream: impl Read, may_not_begin: bool) {
        let mut from = BufReader::with_capacity(GATHERED, stream);
        let (mut content, mut number) = (Vec::new(), None);
        let ended = loop {
            let handled = match next_head(&mut from, &mut content) {
                Ok(DataHead::Stream(index)) if number.is_none() => {
                    number = Some(index);
                    Ok(())
                }
                Ok(DataHead::Block(header, _)) if number.is_some() => self
                    .take_block(&header, &mut content)
                    .map(|whole| whole.into_iter().for_each(|file| self.complete_file(file))),
                Ok(DataHead::End) if number.is_some() => break Ok(()),
                Ok(_) => Err(CopyError::from_rule(
                    "a connection for data carries something else",
                )),
                Err(error) => break Err(error),
            };
            if let Err(error) = handled {
                return self.abort_transfer(error);
            }
        };
        // With a transfer that is over, or has failed, all of its connections end.
        if let Err(cause) = ended
            && !lock(&self.list).is_over
            && !self.common.has_failed()
        {
            match number {
                Some(index) => self.common.out.send_message(&CopyMessage::Lost { index }),
                None if may_not_begin => {}
                // The sender could not know which of them it is.
                None => self.abort_transfer(CopyError::Io {
                    what: "a connection for data broke at its beginning",
                    cause,
                }),
            }
        }
    }

    /// Takes a block of a chunk. Returns the file if it has arrived whole.
    ///
    /// # Errors
    /// Fails if the sender breaks the rules. If the block is wrong, its chunk is wanted again; if
    /// it cannot be written, the file has failed.
    pub(super) fn take_block(
        &self,
        header: &DataHeader,
        content: &mut Vec<u8>,
    ) -> Result<Option<ArrivedFile>, CopyError> {
        self.common.bounds.wait_for_bytes(content.len());
        let began = Instant::now();
        if header.packed {
            self.unpack_block(content)?;
        }
        let Some(file) = lock(&self.incoming).get(&header.file).cloned() else {
            let was_listed = header.file & !AGAIN < self.files.load(Ordering::Relaxed);
            return if was_listed {
                Ok(None)
            } else {
                Err(CopyError::from_rule(
                    "it sent data of a file that it has not listed",
                ))
            };
        };
        let Some(length) = verified_length(&file, header, content)? else {
            self.count_corrupt()?;
            self.common.send_note(format!(
                "a chunk of {} arrived with wrong content; it is fetched again",
                file.path
            ));
            self.request_chunk(header.file, header.chunk);
            return Ok(None);
        };
        let arrived = ArrivedBlock {
            header: *header,
            content,
            length,
        };
        let (new, whole) = self.store_block(&file, &arrived).unwrap_or_else(|error| {
            self.fail_file(header.file, format!("it cannot be written: {error}"));
            (0, None)
        });
        self.common.tally.verified.increase_by(new as u64);
        if self.begun.load(Ordering::Relaxed) > MAX_BEGUN {
            return Err(CopyError::from_rule("it has begun too many chunks"));
        }
        self.add_working(began);
        Ok(whole)
    }

    /// Counts the time since `began` as spent on verifying and writing.
    pub(super) fn add_working(&self, began: Instant) {
        self.working.increase_by(began.elapsed().as_nanos() as u64);
    }

    /// Decompresses what arrived of a block. What cannot be decompressed has another hash.
    fn unpack_block(&self, content: &mut Vec<u8>) -> Result<(), CopyError> {
        let arrived = content.len();
        decompress_block(&self.decompressors, content)
            .map_err(CopyError::from_io("cannot decompress"))?;
        self.common
            .tally
            .saved
            .increase_by(content.len().saturating_sub(arrived) as u64);
        Ok(())
    }

    fn count_corrupt(&self) -> Result<(), CopyError> {
        if self.corrupt.increase_by(1) >= MAX_CORRUPT {
            return Err(CopyError::from_rule("too many chunks have wrong content"));
        }
        Ok(())
    }

    /// Writes a block or makes a hole. Returns the bytes of the chunk if that is complete now, and
    /// zero otherwise; and the file if that is whole.
    fn store_block(
        &self,
        file: &Arc<IncomingFile>,
        arrived: &ArrivedBlock<'_>,
    ) -> io::Result<(usize, Option<ArrivedFile>)> {
        let Some(tree) = self.place.get().and_then(|place| place.tree.as_ref()) else {
            return Ok((0, None));
        };
        let Some((writer, was_begun)) = self.begin_block(tree, file, arrived)? else {
            return Ok((0, None));
        };
        let DataHeader { chunk, block, .. } = arrived.header;
        if arrived.is_hole() {
            writer.make_hole(chunk, arrived.length, was_begun)?;
        } else {
            writer.write_block(chunk, block, arrived.content)?;
        }
        drop(writer);
        self.end_block(file, arrived)
    }

    /// Takes a block for this thread. Returns the way to write it, and whether something of its
    /// chunk was there; `None` if the block is there, or another thread writes it.
    fn begin_block(
        &self,
        tree: &FolderTree,
        file: &IncomingFile,
        arrived: &ArrivedBlock<'_>,
    ) -> io::Result<Option<(PartWriter, bool)>> {
        let DataHeader {
            chunk, block, hash, ..
        } = arrived.header;
        let mut state = lock(&file.state);
        if state.is_closed || state.verified.contains_chunk(chunk) {
            return Ok(None);
        }
        let was_begun = state.begun.contains_key(&chunk);
        if arrived.is_hole() {
            self.forget_blocks(&mut state, chunk);
        } else {
            let blocks = state.begun.entry(chunk).or_insert_with(|| {
                self.begun.fetch_add(1, Ordering::Relaxed);
                ChunkBlocks::new(file.size, chunk)
            });
            if !blocks.claim_block(block, hash) {
                return Ok(None);
            }
        }
        let part = if let Some(part) = state.part.take() {
            part
        } else {
            let (part, lost) = self.open_part(tree, file, &mut state.verified)?;
            self.want_lost(file, &lost)?;
            Box::new(part)
        };
        Ok(Some((state.part.insert(part).new_writer(), was_begun)))
    }

    /// Notes that a block is written, or a hole is made.
    fn end_block(
        &self,
        file: &Arc<IncomingFile>,
        arrived: &ArrivedBlock<'_>,
    ) -> io::Result<(usize, Option<ArrivedFile>)> {
        let DataHeader {
            file: number,
            chunk,
            block,
            reports,
            hash,
            ..
        } = arrived.header;
        let mut state = lock(&file.state);
        if state.is_closed {
            return Ok((0, None));
        }
        let hash = if arrived.is_hole() {
            hash
        } else {
            let Some(blocks) = state.begun.get_mut(&chunk) else {
                return Ok((0, None));
            };
            blocks.record_written(block);
            let Some(hash) = blocks.complete_hash() else {
                let missing = blocks.missing_blocks();
                drop(state);
                if reports {
                    self.report_got(number, chunk, missing);
                }
                return Ok((0, None));
            };
            hash
        };
        self.forget_blocks(&mut state, chunk);
        if !state.verified.insert_chunk(chunk, hash) {
            return Ok((0, None));
        }
        let due = state
            .part
            .as_mut()
            .map(|part| part.record_chunk(chunk, &hash, arrived.length))
            .transpose()?
            .flatten();
        let whole = take_whole(file, &mut state);
        drop(state);
        self.report_got(number, chunk, 0);
        // To complete a file makes it durable, too.
        if let Some(due) = due.filter(|_| whole.is_none()) {
            sync_file(file, &due)?;
        }
        Ok((arrived.length, whole))
    }

    fn report_got(&self, file: u32, chunk: u32, missing: u16) {
        self.common.out.send_message(&CopyMessage::Got {
            file,
            chunk,
            missing,
        });
    }

    fn forget_blocks(&self, state: &mut IncomingState, chunk: u32) {
        if state.begun.remove(&chunk).is_some() {
            self.begun.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Closes a file if it has arrived whole, and returns it.
fn take_whole(file: &Arc<IncomingFile>, state: &mut IncomingState) -> Option<ArrivedFile> {
    let digest = state.verified.file_digest()?;
    state.is_closed = true;
    Some(ArrivedFile {
        file: Arc::clone(file),
        part: state.part.take()?,
        digest,
    })
}

/// Makes the data of a file durable, while other connections write to it.
///
/// # Errors
/// Fails if that does, unless the file is complete: whoever ends it then fails, too.
fn sync_file(file: &IncomingFile, due: &DueSync) -> io::Result<()> {
    let synced = due.carry_out();
    lock(&file.state)
        .part
        .as_mut()
        .map_or(Ok(()), |part| part.end_sync(due, synced))
}

/// Reads the next head of a connection for data, and what follows it into `content`.
///
/// # Errors
/// Fails if the connection breaks, and with `InvalidData` if a head was damaged on the way: nothing
/// behind it has a known place.
fn next_head(from: &mut impl Read, content: &mut Vec<u8>) -> io::Result<DataHead> {
    let mut bytes = [0; DATA_HEADER];
    from.read_exact(&mut bytes)?;
    let head = DataHead::from_reader(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    if let DataHead::Block(_, length) = head {
        content.resize(length, 0);
        from.read_exact(content)?;
    }
    Ok(head)
}

/// Returns the bytes of the chunk of a block; `None` if what has come is not its content.
///
/// # Errors
/// Fails if the sender breaks the rules. What was compressed may have another size because bits
/// flipped on the way.
fn verified_length(
    file: &IncomingFile,
    header: &DataHeader,
    content: &[u8],
) -> Result<Option<usize>, CopyError> {
    const WRONG_SIZE: &str = "it sent a block of another size than it has listed";
    let (chunk, block, packed) = (header.chunk, header.block, header.packed);
    let length = chunk_length(file.size, chunk).ok_or_else(|| CopyError::from_rule(WRONG_SIZE))?;
    let found = match content.len() {
        0 if block == 0 && !packed => chunk_hash(file.size, chunk, &ZEROS[..length]),
        1.. if block_length(length, block) == Some(content.len()) => {
            block_hash(file.size, chunk, block, content)
        }
        _ if packed => return Ok(None),
        _ => return Err(CopyError::from_rule(WRONG_SIZE)),
    };
    Ok((found == header.hash).then_some(length))
}

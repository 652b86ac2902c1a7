//! Blocks of files, each with the head of its frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{OFlags, SeekFrom, Stat, fstat};

use super::FileSender;
use crate::packing::BlockCompression;
use crate::protocol::{
    BLOCK, DATA_HEADER, DataHeader, ZEROS, block_count, block_hash, block_length, block_offset,
    chunk_hash, chunk_length,
};
use crate::queue::{BlockJob, ChunkJob};
use crate::walk::{SourceFile, file_identity};

/// The reason for which a file cannot be read.
pub(super) enum ReadFailure {
    /// The file is not in the state in which it was listed.
    Changed,
    /// The system says so.
    Failed(String),
}

/// The content of a chunk.
pub(super) enum ChunkContent {
    Hole,
    /// So many blocks.
    Blocks(u8),
}

/// Reads blocks of chunks, each into the same memory, behind the head of its frame.
pub(super) struct BlockReader<'s> {
    sender: &'s FileSender,
    /// The file of the last block.
    open: Option<(u32, SourceFile, File, bool)>,
    frame: Vec<u8>,
    packing: Option<BlockCompression<'s>>,
}

impl<'s> BlockReader<'s> {
    pub(super) fn new(sender: &'s FileSender, packing: Option<BlockCompression<'s>>) -> Self {
        Self {
            sender,
            open: None,
            frame: vec![0; DATA_HEADER + BLOCK],
            packing,
        }
    }

    /// Opens the file of a chunk, and returns what there is to send of it, or the reason for which
    /// there is nothing.
    pub(super) fn content_of(&mut self, job: ChunkJob) -> Result<ChunkContent, ReadFailure> {
        let (file, open, is_sparse) = self.open_cached(job.file)?;
        let length = chunk_length(file.size, job.chunk).unwrap_or(0);
        let is_hole = is_sparse && is_hole(open, block_offset(job.chunk, 0), length);
        if !is_hole {
            return Ok(ChunkContent::Blocks(block_count(length)));
        }
        check_unchanged(open, file)?;
        Ok(ChunkContent::Hole)
    }

    /// Returns the frame of a chunk that is a hole.
    pub(super) fn hole_frame(&mut self, job: ChunkJob) -> Result<&[u8], ReadFailure> {
        let (file, ..) = self.open_cached(job.file)?;
        let length = chunk_length(file.size, job.chunk).unwrap_or(0);
        let hash = chunk_hash(file.size, job.chunk, &ZEROS[..length]);
        let header = DataHeader {
            file: job.file,
            chunk: job.chunk,
            block: 0,
            reports: false,
            packed: false,
            hash,
        };
        self.frame[..DATA_HEADER].copy_from_slice(&header.frame_bytes(0));
        Ok(&self.frame[..DATA_HEADER])
    }

    /// Returns the frame of a block, or the reason for which there is none.
    pub(super) fn block_frame(
        &mut self,
        job: ChunkJob,
        BlockJob { index, reports }: BlockJob,
    ) -> Result<&[u8], ReadFailure> {
        self.open_cached(job.file)?;
        let Some((_, file, open, _)) = &self.open else {
            return Err(ReadFailure::Changed);
        };
        let chunk = chunk_length(file.size, job.chunk).unwrap_or(0);
        let length = block_length(chunk, index).ok_or(ReadFailure::Changed)?;
        let offset = block_offset(job.chunk, index);
        let content = &mut self.frame[DATA_HEADER..DATA_HEADER + length];
        open.read_exact_at(content, offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => ReadFailure::Changed,
                _ => ReadFailure::Failed(format!("it cannot be read: {error}")),
            })?;
        check_unchanged(open, file)?;
        let hash = block_hash(file.size, job.chunk, index, content);
        let packed = self
            .packing
            .as_mut()
            .and_then(|packing| packing.compress_block(content));
        let crossing = packed.unwrap_or(length);
        self.sender
            .common
            .tally
            .saved
            .increase_by((length - crossing) as u64);
        let packed = packed.is_some();
        let header = DataHeader {
            file: job.file,
            chunk: job.chunk,
            block: index,
            reports,
            packed,
            hash,
        };
        self.frame[..DATA_HEADER].copy_from_slice(&header.frame_bytes(crossing));
        Ok(&self.frame[..DATA_HEADER + crossing])
    }

    /// Opens a file, unless it is open, and returns it with whether it may have holes.
    fn open_cached(&mut self, number: u32) -> Result<(&SourceFile, &File, bool), ReadFailure> {
        if self.open.as_ref().is_none_or(|(file, ..)| *file != number) {
            self.open = None;
            self.open = Some(self.open_file(number)?);
        }
        let Some((_, file, open, is_sparse)) = &self.open else {
            return Err(ReadFailure::Changed);
        };
        Ok((file, open, *is_sparse))
    }

    fn open_file(&self, number: u32) -> Result<(u32, SourceFile, File, bool), ReadFailure> {
        let file = self
            .sender
            .offered_file(number)
            .map_err(|error| ReadFailure::Failed(error.to_string()))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let open = self.sender.sources[file.source]
            .tree
            .open_entry(&file.path, flags);
        let open = File::from(open.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadFailure::Changed,
            _ => ReadFailure::Failed(format!("it cannot be opened: {error}")),
        })?);
        let stat = check_unchanged(&open, &file)?;
        let is_sparse = (stat.st_blocks.cast_unsigned()).saturating_mul(512) < file.size.get();
        Ok((number, file, open, is_sparse))
    }
}

/// Returns the state of the file if it is the one in which it was listed.
fn check_unchanged(open: &File, file: &SourceFile) -> Result<Stat, ReadFailure> {
    let stat = fstat(open).map_err(|error| ReadFailure::Failed(error.to_string()))?;
    if file_identity(&stat) == file.identity {
        Ok(stat)
    } else {
        Err(ReadFailure::Changed)
    }
}

fn is_hole(open: &File, offset: u64, length: usize) -> bool {
    match rustix::fs::seek(open, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset + length as u64,
        Err(error) => error == rustix::io::Errno::NXIO,
    }
}

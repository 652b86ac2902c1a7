//! What connections write into a part, and what makes it durable.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, fallocate};

use crate::protocol::{ZEROS, block_offset};
use fullpipe_sys::lock;

/// Writes into a part.
pub(crate) struct PartWriter {
    pub(super) data: Arc<File>,
    /// Held while a block is written. The kernel lets one write to a file at a time, and those that
    /// wait for it spin (`rwsem_optimistic_spin`): the processor is needed elsewhere.
    pub(super) writing: Arc<Mutex<()>>,
    pub(super) is_fresh: bool,
}

impl PartWriter {
    /// Writes the block `index` of a chunk.
    pub(crate) fn write_block(&self, chunk: u32, index: u8, content: &[u8]) -> io::Result<()> {
        let _writing = lock(&self.writing);
        self.data.write_all_at(content, block_offset(chunk, index))
    }

    /// Makes a hole of a chunk of `length` bytes. In a part in which nothing was written there is
    /// one.
    pub(crate) fn make_hole(&self, chunk: u32, length: usize, was_written: bool) -> io::Result<()> {
        if self.is_fresh && !was_written {
            return Ok(());
        }
        let offset = block_offset(chunk, 0);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.data, flags, offset, length as u64) {
            Ok(()) => Ok(()),
            Err(_) => self.data.write_all_at(&ZEROS[..length], offset),
        }
    }
}

/// Data that is to be made durable. That takes long, and other connections write to the part
/// meanwhile.
pub(crate) struct DueSync {
    pub(super) data: Arc<File>,
    pub(super) is_spoiled: Arc<Mutex<bool>>,
    /// Place of the mark in the journal.
    pub(super) place: u64,
}

impl DueSync {
    /// Makes the data durable. [`PartialFile::end_sync`] wants to know the result.
    pub(crate) fn carry_out(&self) -> io::Result<()> {
        sync_unspoiled(&self.data, &self.is_spoiled, File::sync_data)
    }
}

/// Makes data durable, for one thread at a time. Once that has failed it always does: the kernel
/// says so once, and then takes for written what it could not write.
pub(super) fn sync_unspoiled(
    data: &File,
    is_spoiled: &Mutex<bool>,
    how: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut is_spoiled = lock(is_spoiled);
    if *is_spoiled {
        return Err(io::Error::other(
            "what was written did not all reach the disk",
        ));
    }
    how(data).inspect_err(|_| *is_spoiled = true)
}

//! Files that are complete, or given up.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::protocol::{CHUNK, Digest, FileOutcome, VerifiedChunks};

use super::{FileReceiver, IncomingFile};
use crate::part::PartialFile;
use fullpipe_sys::{lock, start_thread};

/// Files at most that wait to be completed apart: each has a descriptor.
const MAX_WAITING: usize = 16;

/// A file that has arrived whole.
pub(super) struct ArrivedFile {
    pub file: Arc<IncomingFile>,
    pub part: Box<PartialFile>,
    pub digest: Digest,
}

impl FileReceiver {
    /// Takes no more of a file. What has arrived of a large one stays for the next run. Returns
    /// false if that was so already.
    pub(super) fn close_file(&self, file: &IncomingFile) -> bool {
        let mut state = lock(&file.state);
        self.begun
            .fetch_sub(std::mem::take(&mut state.begun).len(), Ordering::Relaxed);
        if std::mem::replace(&mut state.is_closed, true) {
            return false;
        }
        let part = state.part.take();
        drop(state);
        match part {
            Some(part) if file.size.get() <= CHUNK as u64 => part.discard_data(),
            Some(part) => part.wait_for_sync(),
            None => {}
        }
        true
    }

    /// Completes a large file on a thread of its own: who waits for its disk reads no messages, and
    /// the other end would take this one for gone. If many wait for that already, this one does,
    /// too.
    pub(super) fn complete_apart(self: &Arc<Self>, whole: ArrivedFile) {
        let mut waiting = lock(&self.whole);
        let count = waiting.as_ref().map_or(0, VecDeque::len);
        if whole.file.size.get() <= CHUNK as u64 || count >= MAX_WAITING {
            drop(waiting);
            return self.complete_file(whole);
        }
        let has_thread = waiting.is_some();
        waiting.get_or_insert_default().push_back(whole);
        drop(waiting);
        if has_thread {
            return;
        }
        let receiver = Arc::clone(self);
        if start_thread("copy-complete", move || receiver.complete_waiting()).is_err() {
            self.complete_waiting();
        }
    }

    /// Completes files until none waits.
    pub(super) fn complete_waiting(&self) {
        while let Some(whole) = self.next_whole() {
            self.complete_file(whole);
        }
    }

    fn next_whole(&self) -> Option<ArrivedFile> {
        let mut waiting = lock(&self.whole);
        let next = waiting.as_mut()?.pop_front();
        if next.is_none() {
            *waiting = None;
        }
        next
    }

    /// Gives a file its name, or wants again what its disk has not kept.
    pub(super) fn complete_file(&self, whole: ArrivedFile) {
        let began = Instant::now();
        let ArrivedFile { file, part, digest } = whole;
        let finished = match self.is_right_on_disk(&file, *part) {
            Ok(Some(part)) => self.finish_part(&file, part),
            Ok(None) => return self.add_working(began),
            Err(error) => Err(error),
        };
        self.add_working(began);
        let outcome = finished.map_or_else(
            |error| FileOutcome::Failed(error.to_string()),
            |()| FileOutcome::Copied(digest),
        );
        self.settle_file(&file, outcome);
    }

    /// Returns the part of a complete file if its disk holds what was sent, or that was not asked
    /// for. Otherwise wants what is wrong again, and keeps the part.
    fn is_right_on_disk(
        &self,
        file: &IncomingFile,
        mut part: PartialFile,
    ) -> io::Result<Option<PartialFile>> {
        if !self.options.verify_disk {
            return Ok(Some(part));
        }
        // No other thread reads the hashes of a file that is closed, and others need not wait for
        // the disk.
        let empty = VerifiedChunks::new(file.size);
        let mut verified = std::mem::replace(&mut lock(&file.state).verified, empty);
        let wrong = self.wrong_on_disk(file, &mut part, &mut verified)?;
        let mut state = lock(&file.state);
        state.verified = verified;
        if wrong.is_empty() {
            return Ok(Some(part));
        }
        (state.part, state.is_closed) = (Some(Box::new(part)), false);
        drop(state);
        for chunk in wrong {
            self.request_chunk(file.number, chunk);
        }
        Ok(None)
    }

    /// Takes the chunks that are wrong on the disk out of `verified`, and returns them.
    fn wrong_on_disk(
        &self,
        file: &IncomingFile,
        part: &mut PartialFile,
        verified: &mut VerifiedChunks,
    ) -> io::Result<Vec<u32>> {
        let wrong = part.wrong_on_disk(verified)?;
        if !wrong.is_empty() {
            let text = format!(
                "chunks of {} that are wrong on the disk, and are fetched again: {}",
                file.path,
                wrong.len()
            );
            self.common.send_note(text);
        }
        Ok(wrong)
    }

    /// Makes a complete file durable under its name, with all that is kept of it.
    fn finish_part(&self, file: &IncomingFile, mut part: PartialFile) -> io::Result<()> {
        part.make_durable()?;
        self.set_extended(&file.path, part.file(), file.attributes.as_deref());
        part.finish_file(file.mode, file.modified)
    }
}

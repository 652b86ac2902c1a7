//! The end that reads files: it lists them, and sends the chunks that the receiver wants.

mod blocks;
mod list;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_control::BlockCompressor;
use fullpipe_units::ByteCount;

use self::blocks::{BlockReader, ChunkContent, ReadFailure};
use self::list::SentList;
use crate::common::TransferContext;
use crate::data_stream::DataConnections;
use crate::offered::OfferedFiles;
use crate::options::{CopyError, CopyEvent};
use crate::packing::{BlockCompression, CodecPool, MeteredWriter, WriteThroughput};
use crate::protocol::{
    AGAIN, BLOCK, CopyMessage, DataHead, ExcludePatterns, ExtendedAttributes, FileChunks,
    FileOutcome, TreeEntry, chunk_length,
};
use crate::queue::{BlockJob, ChunkJob, CopyQueue, NextWork, SSH};
use crate::walk::{CopySource, SourceFile, attributes_of, file_now, walk_sources};
use fullpipe_sys::{lock, start_thread};

/// Bytes that small files are gathered to before TLS encrypts them. A whole block does not wait for
/// others.
const GATHERED: usize = BLOCK;

/// Time for which a broken connection is not named: with the other end all of them break, in any
/// order, and what that says of its reason may come last.
const UNNAMED: Duration = Duration::from_secs(2);

/// Reads files and sends them.
pub(crate) struct FileSender {
    pub common: TransferContext,
    pub queue: CopyQueue,
    sources: Vec<CopySource>,
    excludes: ExcludePatterns,
    keeps_attributes: bool,
    files: OfferedFiles,
    /// Files that are sent again, in their new state, by their new number.
    again: Mutex<HashMap<u32, SourceFile>>,
    /// Connections that have broken and are not named yet: when, and the text.
    broken: Mutex<Vec<(Instant, String)>>,
    compressors: CodecPool<BlockCompressor>,
}

impl FileSender {
    pub(crate) fn new(
        common: TransferContext,
        sources: Vec<CopySource>,
        excludes: ExcludePatterns,
        keeps_attributes: bool,
    ) -> Self {
        Self {
            common,
            queue: CopyQueue::default(),
            sources,
            excludes,
            keeps_attributes,
            files: OfferedFiles::default(),
            again: Mutex::default(),
            broken: Mutex::default(),
            compressors: CodecPool::default(),
        }
    }

    /// Starts to list the files.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start_listing(self: &Arc<Self>) -> io::Result<()> {
        self.start_work("copy-list", Self::send_list)
    }

    /// Starts to send over each connection, and inside ssh when none is left.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start_sending(self: &Arc<Self>, connections: DataConnections) -> io::Result<()> {
        let count = connections.streams.len();
        let quic = connections
            .quic
            .map_or_else(Vec::new, |(connection, streams)| {
                connection.stream_writers(streams)
            });
        self.queue.set_streams(count, connections.active.into());
        self.queue.stand_by(quic.len());
        if count == 0 {
            self.queue.change_over();
        }
        for (index, stream) in connections.streams.into_iter().enumerate() {
            self.start_work("copy-send", move |sender| {
                sender.carry_stream(index as u16, stream);
            })?;
        }
        for (index, stream) in quic.into_iter().enumerate() {
            self.start_work("copy-send", move |sender| {
                sender.carry_stream((count + index) as u16, stream);
            })?;
        }
        self.start_work("copy-ssh", |sender| {
            // The end of ssh is noticed where its messages are read.
            let throughput = WriteThroughput::default();
            let mut to = sender.metered_writer(sender.common.out.clone(), &throughput);
            let _ = sender.send_chunks(SSH, &mut to, &throughput);
        })
    }

    fn start_work(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let sender = Arc::clone(self);
        start_thread(name, move || work(&sender)).map(drop)
    }

    fn send_list(&self) {
        let single = matches!(self.sources.as_slice(), [only] if only.is_single());
        let content = self.sources.iter().any(|source| source.top.is_none());
        self.common
            .out
            .send_message(&CopyMessage::Begin { single, content });
        let complete = walk_sources(
            &self.sources,
            &self.excludes,
            self.keeps_attributes,
            &mut SentList::from_sender(self),
        );
        self.common
            .out
            .send_message(&CopyMessage::EndOfList { complete });
    }

    /// Carries out what the receiver says. Returns true when everything is done.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up.
    pub(crate) fn handle_message(&self, message: CopyMessage<'_>) -> Result<bool, CopyError> {
        match message {
            CopyMessage::Want { file, chunks } => self.queue_chunks(file, chunks)?,
            CopyMessage::Got {
                file,
                chunk,
                missing,
            } if missing != 0 => {
                self.queue.got_blocks(ChunkJob { file, chunk }, missing);
            }
            CopyMessage::Got { file, chunk, .. } => {
                let length = chunk_length(self.file_size(file)?, chunk);
                if self.queue.record_arrival(ChunkJob { file, chunk }) {
                    self.common
                        .tally
                        .verified
                        .increase_by(length.unwrap_or(0) as u64);
                }
            }
            CopyMessage::Outcome { file, outcome } => self.note_outcome(file, &outcome)?,
            CopyMessage::Lost { index } => self.lose_connection(index, "the other end says so"),
            CopyMessage::Deleted { path } => {
                self.common.tally.deleted.increase_by(1);
                self.common.send_event(CopyEvent::Deleted(path));
            }
            CopyMessage::WouldCopy { path } => self.common.send_event(CopyEvent::WouldCopy(path)),
            CopyMessage::Note { text } => self.common.send_note(text),
            CopyMessage::Unreadable { why, .. } => self.common.tally.record_failure(why),
            CopyMessage::Refused { code, why } => return Err(CopyError::Refused { code, why }),
            CopyMessage::Finished => {
                self.name_broken(Instant::now());
                self.queue.end_work();
                return Ok(true);
            }
            _ => {
                return Err(CopyError::from_rule(
                    "a receiver sent what only a sender may",
                ));
            }
        }
        Ok(false)
    }

    fn note_outcome(&self, file: u32, outcome: &FileOutcome) -> Result<(), CopyError> {
        let found = self.offered_file(file)?;
        if matches!(outcome, FileOutcome::Failed(_)) {
            self.queue.forget_file(file);
        }
        self.common
            .count_outcome(&found.path, found.size.get(), outcome);
        self.files.remove_file(file & !AGAIN);
        Ok(())
    }

    fn queue_chunks(&self, file: u32, chunks: FileChunks) -> Result<(), CopyError> {
        let size = self.file_size(file)?;
        let exists = chunks.count > 0
            && FileChunks::from_size(size).is_some_and(|all| all.contains_all(chunks));
        if exists && !self.may_send(file, chunks.byte_count(size)) {
            return Ok(());
        }
        if !exists || !self.queue.add_chunks(file, chunks) {
            return Err(CopyError::from_rule(
                "the receiver wants chunks that do not exist, or too many",
            ));
        }
        self.common
            .tally
            .wanted
            .increase_by(chunks.byte_count(size).get());
        Ok(())
    }

    /// Returns false if the bounds do not let chunks of a file cross.
    fn may_send(&self, file: u32, bytes: ByteCount) -> bool {
        let taken = self.common.bounds.count_bytes(bytes.get());
        if let Err(why) = &taken {
            self.common.out.send_message(&CopyMessage::Unreadable {
                file,
                why: why.clone(),
            });
        }
        taken.is_ok()
    }

    fn offered_file(&self, file: u32) -> Result<SourceFile, CopyError> {
        let found = match file & AGAIN {
            0 => self.files.pending_file(file),
            _ => lock(&self.again).get(&file).cloned(),
        };
        found.ok_or_else(not_listed)
    }

    /// Returns the size of a file, be it there already.
    fn file_size(&self, file: u32) -> Result<ByteCount, CopyError> {
        let size = match file & AGAIN {
            0 => self.files.file_size(file),
            _ => lock(&self.again).get(&file).map(|file| file.size),
        };
        size.ok_or_else(not_listed)
    }

    fn metered_writer<'t, W: Write>(
        &'t self,
        to: W,
        throughput: &'t WriteThroughput,
    ) -> MeteredWriter<'t, W> {
        MeteredWriter {
            to,
            bounds: &self.common.bounds,
            throughput,
        }
    }

    fn carry_stream(&self, index: u16, stream: impl Write) {
        let throughput = WriteThroughput::default();
        let mut stream =
            BufWriter::with_capacity(GATHERED, self.metered_writer(stream, &throughput));
        let sent = stream
            .write_all(&DataHead::Stream(index).to_bytes())
            .and_then(|()| self.send_chunks(index, &mut stream, &throughput))
            .and_then(|()| stream.write_all(&DataHead::End.to_bytes()))
            .and_then(|()| stream.flush());
        match sent {
            Ok(()) => drop(self.queue.lose_connection(index)),
            Err(error) => self.lose_connection(index, &error.to_string()),
        }
    }

    /// Gives what a broken connection has carried to the others. It is named once, if the transfer
    /// goes on.
    pub(crate) fn lose_connection(&self, index: u16, why: &str) {
        if self.queue.lose_connection(index) {
            let text = format!("connection {index} broke ({why}); its data takes another way");
            lock(&self.broken).push((Instant::now(), text));
        }
    }

    /// Names the connections that have broken for long enough.
    pub(crate) fn name_long_broken(&self) {
        if let Some(until) = Instant::now().checked_sub(UNNAMED) {
            self.name_broken(until);
        }
    }

    /// Names the connections that had broken by then.
    fn name_broken(&self, by: Instant) {
        let named: Vec<_> = lock(&self.broken)
            .extract_if(.., |(at, _)| *at <= by)
            .collect();
        for (_, text) in named {
            self.common.send_note(text);
        }
    }

    fn send_chunks(
        &self,
        index: u16,
        to: &mut dyn Write,
        throughput: &WriteThroughput,
    ) -> io::Result<()> {
        let packing = (!self.common.bounds.no_compress)
            .then(|| BlockCompression::new(&self.compressors, throughput));
        let mut reader = BlockReader::new(self, packing);
        loop {
            let next = match self.queue.next_work(index, false) {
                NextWork::Nothing => {
                    to.flush()?;
                    self.queue.next_work(index, true)
                }
                next => next,
            };
            match next {
                NextWork::Send(job) => self.send_chunk(index, job, &mut reader, to)?,
                NextWork::Help(job, block) => self.send_block(job, block, &mut reader, to)?,
                NextWork::Nothing | NextWork::End => return Ok(()),
            }
        }
    }

    /// Sends the blocks of a chunk that no other connection has taken.
    fn send_chunk(
        &self,
        index: u16,
        job: ChunkJob,
        reader: &mut BlockReader<'_>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let sent = match reader.content_of(job) {
            Ok(ChunkContent::Hole) => reader.hole_frame(job),
            Ok(ChunkContent::Blocks(count)) => {
                while let Some(block) = self.queue.next_block(index, job, count) {
                    self.send_block(job, block, reader, to)?;
                }
                return Ok(());
            }
            Err(why) => Err(why),
        };
        self.send_frame(job, sent, to)
    }

    fn send_block(
        &self,
        job: ChunkJob,
        block: BlockJob,
        reader: &mut BlockReader<'_>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let frame = reader.block_frame(job, block);
        self.send_frame(job, frame, to)
    }

    fn send_frame(
        &self,
        job: ChunkJob,
        frame: Result<&[u8], ReadFailure>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        match frame {
            Ok(frame) => to.write_all(frame)?,
            Err(why) => self.skip_file(job.file, why),
        }
        Ok(())
    }

    /// Leaves out a file that cannot be read. One that changed is sent again in its new state,
    /// once.
    fn skip_file(&self, file: u32, why: ReadFailure) {
        self.queue.forget_file(file);
        let why = match why {
            ReadFailure::Changed if file & AGAIN == 0 => match self.offer_again(file) {
                Ok(()) => return,
                Err(why) => why,
            },
            ReadFailure::Changed => {
                "it changed twice while it was copied; start the same command again".to_owned()
            }
            ReadFailure::Failed(why) => why,
        };
        self.common
            .out
            .send_message(&CopyMessage::Unreadable { file, why });
    }

    /// Offers a file again in the state that it has now, unless another connection has done so.
    fn offer_again(&self, file: u32) -> Result<(), String> {
        let old = self.offered_file(file).map_err(|error| error.to_string())?;
        let found =
            file_now(&self.sources, &old).map_err(|error| format!("it cannot be read: {error}"))?;
        let Some((kind, new)) = found else {
            return Err("it vanished while it was copied".to_owned());
        };
        match lock(&self.again).entry(file | AGAIN) {
            Slot::Occupied(_) => return Ok(()),
            Slot::Vacant(slot) => slot.insert(new),
        };
        self.common.send_note(format!(
            "{} changed while it was copied; it is copied once more",
            old.path
        ));
        self.common.out.send_message(&CopyMessage::Again {
            file,
            entry: TreeEntry {
                attributes: self.attributes_now(&old),
                path: old.path,
                kind,
            },
        });
        Ok(())
    }

    fn attributes_now(&self, file: &SourceFile) -> ExtendedAttributes {
        if !self.keeps_attributes {
            return ExtendedAttributes::default();
        }
        let not_kept = &mut |what| self.common.not_kept(&file.path, what);
        attributes_of(&self.sources[file.source], &file.path, not_kept).unwrap_or_default()
    }
}

fn not_listed() -> CopyError {
    CopyError::from_rule("the receiver speaks of a file that is not on its way")
}

#[cfg(test)]
mod tests;

//! The end that reads files: it lists them, and sends the chunks that the receiver wants.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_compression::BlockCompressor;
use fullpipe_transfer::{
    AGAIN, BLOCK, CHUNK, CopyMessage, DATA_HEADER, DataHead, DataHeader, EntryPath,
    ExcludePatterns, ExtendedAttributes, FileChunks, FileOutcome, TreeEntry, VerifiedChunks, ZEROS,
    block_count, block_hash, block_length, chunk_hash,
};
use fullpipe_units::{ByteCount, printable_bytes};
use rustix::fs::{OFlags, SeekFrom, Stat, fstat};

use crate::attributes::NotKept;
use crate::common::{CopyCounts, NEVER_COPIED, TransferContext};
use crate::data_stream::DataConnections;
use crate::locks::lock;
use crate::offered::OfferedFiles;
use crate::options::{CopyError, CopyEvent};
use crate::packing::{BlockCompression, CodecPool, MeteredWriter, WriteThroughput};
use crate::queue::{BlockJob, ChunkJob, CopyQueue, NextWork, SSH};
use crate::receiver::list_too_long;
use crate::threads::start_thread;
use crate::walk::{
    CopySource, ListReceiver, SourceFile, attributes_of, file_identity, file_now, walk_sources,
};

/// Bytes that small files are gathered to before TLS encrypts them. A whole block does not wait for
/// others.
const GATHERED: usize = BLOCK;

/// Entries of the list that are sent before connections carry data: more would be in the way of the
/// message that says which they are.
const FIRST_LISTED: u32 = 1000;

/// Time for which a broken connection is not named: with the other end all of them break, in any
/// order, and what that says of its reason may come last.
const UNNAMED: Duration = Duration::from_secs(2);

/// Reads files and sends them.
#[derive(Debug)]
pub(crate) struct FileSender {
    pub(crate) common: TransferContext,
    pub(crate) queue: CopyQueue,
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
                let length = VerifiedChunks::new(self.file_size(file)?).chunk_length(chunk);
                if self.queue.record_arrival(ChunkJob { file, chunk }) {
                    CopyCounts::add_to(&self.common.tally.verified, length.unwrap_or(0) as u64);
                }
            }
            CopyMessage::Outcome { file, outcome } => self.note_outcome(file, &outcome)?,
            CopyMessage::Lost { index } => self.lose_connection(index, "the other end says so"),
            CopyMessage::Deleted { path } => {
                CopyCounts::add_to(&self.common.tally.deleted, 1);
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
        CopyCounts::add_to(&self.common.tally.wanted, chunks.byte_count(size).get());
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
        let mut reader = BlockReader {
            sender: self,
            open: None,
            frame: vec![0; DATA_HEADER + BLOCK],
            packing,
        };
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
        let attributes = self.attributes_now(&old);
        self.common.out.send_message(&CopyMessage::Again {
            file,
            entry: TreeEntry {
                path: old.path,
                kind,
                attributes,
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

/// The reason for which a file cannot be read.
enum ReadFailure {
    /// The file is not in the state in which it was listed.
    Changed,
    /// The system says so.
    Failed(String),
}

/// The content of a chunk.
enum ChunkContent {
    Hole,
    /// So many blocks.
    Blocks(u8),
}

/// Reads blocks of chunks, each into the same memory, behind the head of its frame.
struct BlockReader<'s> {
    sender: &'s FileSender,
    /// The file of the last block.
    open: Option<(u32, SourceFile, File, bool)>,
    frame: Vec<u8>,
    packing: Option<BlockCompression<'s>>,
}

impl BlockReader<'_> {
    /// Opens the file of a chunk, and returns what there is to send of it, or the reason for which
    /// there is nothing.
    fn content_of(&mut self, job: ChunkJob) -> Result<ChunkContent, ReadFailure> {
        let (file, open, is_sparse) = self.open_cached(job.file)?;
        let length = VerifiedChunks::new(file.size)
            .chunk_length(job.chunk)
            .unwrap_or(0);
        let is_hole = is_sparse && is_hole(open, u64::from(job.chunk) * CHUNK as u64, length);
        if !is_hole {
            return Ok(ChunkContent::Blocks(block_count(length)));
        }
        check_unchanged(open, file)?;
        Ok(ChunkContent::Hole)
    }

    /// Returns the frame of a chunk that is a hole.
    fn hole_frame(&mut self, job: ChunkJob) -> Result<&[u8], ReadFailure> {
        let (file, ..) = self.open_cached(job.file)?;
        let length = VerifiedChunks::new(file.size)
            .chunk_length(job.chunk)
            .unwrap_or(0);
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
    fn block_frame(
        &mut self,
        job: ChunkJob,
        BlockJob { index, reports }: BlockJob,
    ) -> Result<&[u8], ReadFailure> {
        self.open_cached(job.file)?;
        let Some((_, file, open, _)) = &self.open else {
            return Err(ReadFailure::Changed);
        };
        let chunk = VerifiedChunks::new(file.size)
            .chunk_length(job.chunk)
            .unwrap_or(0);
        let length = block_length(chunk, index).ok_or(ReadFailure::Changed)?;
        let offset = u64::from(job.chunk) * CHUNK as u64 + u64::from(index) * BLOCK as u64;
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
        CopyCounts::add_to(&self.sender.common.tally.saved, (length - crossing) as u64);
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

/// The list on its way to the receiver.
struct SentList<'s> {
    sender: &'s FileSender,
    /// Entries up to now.
    count: u32,
}

impl<'s> SentList<'s> {
    const fn from_sender(sender: &'s FileSender) -> Self {
        Self { sender, count: 0 }
    }
}

impl ListReceiver for SentList<'_> {
    fn add_entry(&mut self, entry: TreeEntry, file: Option<SourceFile>) {
        if self.count == FIRST_LISTED {
            self.sender.queue.wait_for_streams();
        }
        self.count = self.count.saturating_add(1);
        if let Some(file) = file {
            self.sender.files.add_file(file, || self.is_over());
        }
        self.sender
            .common
            .out
            .send_message(&CopyMessage::Entry(entry));
    }

    fn add_problem(&mut self, path: &[u8], why: &str) {
        let text = format!("{}: {why}", printable_bytes(path));
        match self.sender.common.events {
            Some(_) => self.sender.common.tally.record_failure(text),
            None => self
                .sender
                .common
                .out
                .send_message(&CopyMessage::Unreadable {
                    file: u32::MAX,
                    why: text,
                }),
        }
    }

    fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
        self.sender.common.not_kept(path, what);
    }

    fn not_sent(&mut self, path: &[u8], why: &str) {
        self.sender
            .common
            .send_note(format!("{} is left out: {why}", printable_bytes(path)));
    }

    fn left_out(&mut self, path: &EntryPath) {
        self.sender.common.tally.leave_out(path);
        self.sender
            .common
            .send_note(format!("{path} is left out: {NEVER_COPIED}"));
    }

    fn too_long(&mut self) {
        self.sender.common.abort_transfer(list_too_long());
    }

    fn is_over(&self) -> bool {
        self.sender.common.has_failed()
    }
}

#[cfg(test)]
mod tests;

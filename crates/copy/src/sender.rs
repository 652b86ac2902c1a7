//! The end that reads files: it lists them, and sends the chunks that the receiver wants.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_compression::Compressor;
use fullpipe_transfer::{
    AGAIN, Attributes, BLOCK, CHUNK, Chunks, DATA_HEADER, DataHeader, Entry, EntryPath, Excludes, Head, Message,
    Outcome, Verified, ZEROS, block_count, block_hash, block_length, chunk_hash,
};
use fullpipe_units::{ByteCount, printable_bytes};
use rustix::fs::{OFlags, SeekFrom, Stat, fstat};

use crate::attributes::NotKept;
use crate::common::{Common, NEVER_COPIED, Tally};
use crate::data_stream::Connections;
use crate::locks::lock;
use crate::offered::OfferedFiles;
use crate::options::{CopyError, CopyEvent};
use crate::packing::{Metered, Packing, Pool, Throughput};
use crate::queue::{Block, Job, Next, Queue, SSH};
use crate::receiver::list_too_long;
use crate::walk::{List, Source, SourceFile, attributes_of, file_now, identity, walk};

/// Bytes that small files are gathered to before TLS encrypts them. A whole block does not wait for others.
const GATHERED: usize = BLOCK;

/// Entries of the list that are sent before connections carry data: more would be in the way of the message that says
/// which they are.
const FIRST_LISTED: u32 = 1000;

/// Time for which a broken connection is not named: with the other end all of them break, in any order, and what that
/// says of its reason may come last.
const UNNAMED: Duration = Duration::from_secs(2);

/// The work of a thread.
type Work = Box<dyn FnOnce(&Arc<Sender>) + Send>;

/// Reads files and sends them.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) common: Common,
    pub(crate) queue: Queue,
    sources: Vec<Source>,
    excludes: Excludes,
    keeps_attributes: bool,
    files: OfferedFiles,
    /// Files that are sent again, in their new state, by their new number.
    again: Mutex<HashMap<u32, SourceFile>>,
    /// Connections that have broken and are not named yet: when, and the text.
    broken: Mutex<Vec<(Instant, String)>>,
    compressors: Pool<Compressor>,
}

impl Sender {
    pub(crate) fn new(common: Common, sources: Vec<Source>, excludes: Excludes, keeps_attributes: bool) -> Self {
        Self {
            common,
            queue: Queue::default(),
            sources,
            excludes,
            keeps_attributes,
            files: OfferedFiles::default(),
            again: Mutex::default(),
            broken: Mutex::default(),
            compressors: Pool::default(),
        }
    }

    /// Starts to list the files.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        self.start_thread("copy-list", Box::new(|sender| sender.list()))
    }

    /// Starts to send over each connection, and inside ssh when none is left.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start(self: &Arc<Self>, connections: Connections) -> io::Result<()> {
        let start = |name, work| self.start_thread(name, work);
        let count = connections.streams.len();
        let quic = connections.quic.map_or_else(Vec::new, |(connection, streams)| connection.writers(streams));
        self.queue.set_streams(count, connections.active.into());
        self.queue.stand_by(quic.len());
        if count == 0 {
            self.queue.change_over();
        }
        for (index, stream) in connections.streams.into_iter().enumerate() {
            start("copy-send", Box::new(move |sender| sender.carry(index as u16, stream)))?;
        }
        for (index, stream) in quic.into_iter().enumerate() {
            start("copy-send", Box::new(move |sender| sender.carry((count + index) as u16, stream)))?;
        }
        start(
            "copy-ssh",
            Box::new(|sender| {
                // The end of ssh is noticed where its messages are read.
                let throughput = Throughput::default();
                let mut to = sender.metered(sender.common.out.clone(), &throughput);
                let _ = sender.send_chunks(SSH, &mut to, &throughput);
            }),
        )
    }

    fn start_thread(self: &Arc<Self>, name: &str, work: Work) -> io::Result<()> {
        let sender = Arc::clone(self);
        thread::Builder::new().name(name.to_owned()).spawn(move || work(&sender)).map(drop)
    }

    fn list(&self) {
        let single = matches!(self.sources.as_slice(), [only] if only.is_single());
        let content = self.sources.iter().any(|source| source.top.is_none());
        self.common.out.send(&Message::Begin { single, content });
        let complete = walk(&self.sources, &self.excludes, self.keeps_attributes, &mut Listing::of(self));
        self.common.out.send(&Message::EndOfList { complete });
    }

    /// Carries out what the receiver says. Returns true when everything is done.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up.
    pub(crate) fn handle(&self, message: Message<'_>) -> Result<bool, CopyError> {
        match message {
            Message::Want { file, chunks } => self.want(file, chunks)?,
            Message::Got { file, chunk, missing } if missing != 0 => {
                self.queue.got_blocks(Job { file, chunk }, missing);
            }
            Message::Got { file, chunk, .. } => {
                let length = Verified::new(self.size(file)?).length(chunk);
                if self.queue.got(Job { file, chunk }) {
                    Tally::add(&self.common.tally.verified, length.unwrap_or(0) as u64);
                }
            }
            Message::Outcome { file, outcome } => {
                let found = self.file(file)?;
                if matches!(outcome, Outcome::Failed(_)) {
                    self.queue.forget(file);
                }
                self.common.count(&found.path, found.size.get(), &outcome);
                self.files.settle(file & !AGAIN);
            }
            Message::Lost { index } => self.lose(index, "the other end says so"),
            Message::Deleted { path } => {
                Tally::add(&self.common.tally.deleted, 1);
                self.common.event(CopyEvent::Deleted(path));
            }
            Message::WouldCopy { path } => self.common.event(CopyEvent::WouldCopy(path)),
            Message::Note { text } => self.common.note(text),
            Message::Unreadable { why, .. } => self.common.tally.fail(why),
            Message::Refused { code, why } => return Err(CopyError::Refused { code, why }),
            Message::Finished => {
                self.name_broken(Instant::now());
                self.queue.end();
                return Ok(true);
            }
            _ => return Err(CopyError::Protocol("a receiver sent what only a sender may".to_owned())),
        }
        Ok(false)
    }

    fn want(&self, file: u32, chunks: Chunks) -> Result<(), CopyError> {
        let size = self.size(file)?;
        let exists = chunks.count > 0 && Chunks::of(size).is_some_and(|all| all.cover(chunks));
        if exists && !self.may_send(file, chunks.bytes(size)) {
            return Ok(());
        }
        if !exists || !self.queue.want(file, chunks) {
            return Err(CopyError::Protocol("the receiver wants chunks that do not exist, or too many".to_owned()));
        }
        Tally::add(&self.common.tally.wanted, chunks.bytes(size).get());
        Ok(())
    }

    /// Returns false if the bounds do not let chunks of a file cross.
    fn may_send(&self, file: u32, bytes: ByteCount) -> bool {
        let taken = self.common.bounds.take(bytes.get());
        if let Err(why) = &taken {
            self.common.out.send(&Message::Unreadable { file, why: why.clone() });
        }
        taken.is_ok()
    }

    fn file(&self, file: u32) -> Result<SourceFile, CopyError> {
        let found = match file & AGAIN {
            0 => self.files.get(file),
            _ => lock(&self.again).get(&file).cloned(),
        };
        found.ok_or_else(not_listed)
    }

    /// Returns the size of a file, be it there already.
    fn size(&self, file: u32) -> Result<ByteCount, CopyError> {
        let size = match file & AGAIN {
            0 => self.files.size(file),
            _ => lock(&self.again).get(&file).map(|file| file.size),
        };
        size.ok_or_else(not_listed)
    }

    fn metered<'t, W: Write>(&'t self, to: W, throughput: &'t Throughput) -> Metered<'t, W> {
        Metered { to, bounds: &self.common.bounds, throughput }
    }

    fn carry(&self, index: u16, stream: impl Write) {
        let throughput = Throughput::default();
        let mut stream = BufWriter::with_capacity(GATHERED, self.metered(stream, &throughput));
        let sent = stream
            .write_all(&Head::Stream(index).bytes())
            .and_then(|()| self.send_chunks(index, &mut stream, &throughput))
            .and_then(|()| stream.write_all(&Head::End.bytes()))
            .and_then(|()| stream.flush());
        match sent {
            Ok(()) => drop(self.queue.lose(index)),
            Err(error) => self.lose(index, &error.to_string()),
        }
    }

    /// Gives what a broken connection has carried to the others. It is named once, if the transfer goes on.
    pub(crate) fn lose(&self, index: u16, why: &str) {
        if self.queue.lose(index) {
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
        let named: Vec<_> = lock(&self.broken).extract_if(.., |(at, _)| *at <= by).collect();
        for (_, text) in named {
            self.common.note(text);
        }
    }

    fn send_chunks(&self, index: u16, to: &mut dyn Write, throughput: &Throughput) -> io::Result<()> {
        let packing = (!self.common.bounds.no_compress).then(|| Packing::new(&self.compressors, throughput));
        let mut reader = BlockReader { sender: self, open: None, frame: vec![0; DATA_HEADER + BLOCK], packing };
        loop {
            let next = match self.queue.next(index, false) {
                Next::Nothing => {
                    to.flush()?;
                    self.queue.next(index, true)
                }
                next => next,
            };
            match next {
                Next::Send(job) => self.send_chunk(index, job, &mut reader, to)?,
                Next::Help(job, block) => self.send_block(job, block, &mut reader, to)?,
                Next::Nothing | Next::End => return Ok(()),
            }
        }
    }

    /// Sends the blocks of a chunk that no other connection has taken.
    fn send_chunk(&self, index: u16, job: Job, reader: &mut BlockReader<'_>, to: &mut dyn Write) -> io::Result<()> {
        let sent = match reader.content_of(job) {
            Ok(Content::Hole) => reader.hole(job),
            Ok(Content::Blocks(count)) => {
                while let Some(block) = self.queue.block(index, job, count) {
                    self.send_block(job, block, reader, to)?;
                }
                return Ok(());
            }
            Err(why) => Err(why),
        };
        self.send_frame(job, sent, to)
    }

    fn send_block(&self, job: Job, block: Block, reader: &mut BlockReader<'_>, to: &mut dyn Write) -> io::Result<()> {
        let frame = reader.block(job, block);
        self.send_frame(job, frame, to)
    }

    fn send_frame(&self, job: Job, frame: Result<&[u8], Unread>, to: &mut dyn Write) -> io::Result<()> {
        match frame {
            Ok(frame) => to.write_all(frame)?,
            Err(why) => self.skip(job.file, why),
        }
        Ok(())
    }

    /// Leaves out a file that cannot be read. One that changed is sent again in its new state, once.
    fn skip(&self, file: u32, why: Unread) {
        self.queue.forget(file);
        let why = match why {
            Unread::Changed if file & AGAIN == 0 => match self.repeat(file) {
                Ok(()) => return,
                Err(why) => why,
            },
            Unread::Changed => "it changed twice while it was copied; start the same command again".to_owned(),
            Unread::Failed(why) => why,
        };
        self.common.out.send(&Message::Unreadable { file, why });
    }

    /// Offers a file again in the state that it has now, unless another connection has done so.
    fn repeat(&self, file: u32) -> Result<(), String> {
        let old = self.file(file).map_err(|error| error.to_string())?;
        let found = file_now(&self.sources, &old).map_err(|error| format!("it cannot be read: {error}"))?;
        let Some((kind, new)) = found else { return Err("it vanished while it was copied".to_owned()) };
        match lock(&self.again).entry(file | AGAIN) {
            Slot::Occupied(_) => return Ok(()),
            Slot::Vacant(slot) => slot.insert(new),
        };
        self.common.note(format!("{} changed while it was copied; it is copied once more", old.path));
        let attributes = self.attributes_now(&old);
        self.common.out.send(&Message::Again { file, entry: Entry { path: old.path, kind, attributes } });
        Ok(())
    }

    fn attributes_now(&self, file: &SourceFile) -> Attributes {
        if !self.keeps_attributes {
            return Attributes::default();
        }
        let not_kept = &mut |what| self.common.not_kept(&file.path, what);
        attributes_of(&self.sources[file.source], &file.path, not_kept).unwrap_or_default()
    }
}

fn not_listed() -> CopyError {
    CopyError::Protocol("the receiver speaks of a file that is not on its way".to_owned())
}

/// The reason for which a file cannot be read.
enum Unread {
    /// The file is not in the state in which it was listed.
    Changed,
    /// The system says so.
    Failed(String),
}

/// The content of a chunk.
enum Content {
    Hole,
    /// So many blocks.
    Blocks(u8),
}

/// Reads blocks of chunks, each into the same memory, behind the head of its frame.
struct BlockReader<'s> {
    sender: &'s Sender,
    /// The file of the last block.
    open: Option<(u32, SourceFile, File, bool)>,
    frame: Vec<u8>,
    packing: Option<Packing<'s>>,
}

impl BlockReader<'_> {
    /// Opens the file of a chunk, and returns what there is to send of it, or the reason for which there is nothing.
    fn content_of(&mut self, job: Job) -> Result<Content, Unread> {
        let (file, open, is_sparse) = self.open(job.file)?;
        let length = Verified::new(file.size).length(job.chunk).unwrap_or(0);
        let is_hole = is_sparse && is_hole(open, u64::from(job.chunk) * CHUNK as u64, length);
        if !is_hole {
            return Ok(Content::Blocks(block_count(length)));
        }
        check(open, file)?;
        Ok(Content::Hole)
    }

    /// Returns the frame of a chunk that is a hole.
    fn hole(&mut self, job: Job) -> Result<&[u8], Unread> {
        let (file, ..) = self.open(job.file)?;
        let length = Verified::new(file.size).length(job.chunk).unwrap_or(0);
        let hash = chunk_hash(file.size, job.chunk, &ZEROS[..length]);
        let header = DataHeader { file: job.file, chunk: job.chunk, block: 0, reports: false, packed: false, hash };
        self.frame[..DATA_HEADER].copy_from_slice(&header.frame(0));
        Ok(&self.frame[..DATA_HEADER])
    }

    /// Returns the frame of a block, or the reason for which there is none.
    fn block(&mut self, job: Job, Block { index, reports }: Block) -> Result<&[u8], Unread> {
        self.open(job.file)?;
        let Some((_, file, open, _)) = &self.open else { return Err(Unread::Changed) };
        let chunk = Verified::new(file.size).length(job.chunk).unwrap_or(0);
        let length = block_length(chunk, index).ok_or(Unread::Changed)?;
        let offset = u64::from(job.chunk) * CHUNK as u64 + u64::from(index) * BLOCK as u64;
        let content = &mut self.frame[DATA_HEADER..DATA_HEADER + length];
        open.read_exact_at(content, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Unread::Changed,
            _ => Unread::Failed(format!("it cannot be read: {error}")),
        })?;
        check(open, file)?;
        let hash = block_hash(file.size, job.chunk, index, content);
        let packed = self.packing.as_mut().and_then(|packing| packing.pack(content));
        let crossing = packed.unwrap_or(length);
        Tally::add(&self.sender.common.tally.saved, (length - crossing) as u64);
        let packed = packed.is_some();
        let header = DataHeader { file: job.file, chunk: job.chunk, block: index, reports, packed, hash };
        self.frame[..DATA_HEADER].copy_from_slice(&header.frame(crossing));
        Ok(&self.frame[..DATA_HEADER + crossing])
    }

    /// Opens a file, unless it is open, and returns it with whether it may have holes.
    fn open(&mut self, number: u32) -> Result<(&SourceFile, &File, bool), Unread> {
        if self.open.as_ref().is_none_or(|(file, ..)| *file != number) {
            self.open = None;
            self.open = Some(self.open_file(number)?);
        }
        let Some((_, file, open, is_sparse)) = &self.open else { return Err(Unread::Changed) };
        Ok((file, open, *is_sparse))
    }

    fn open_file(&self, number: u32) -> Result<(u32, SourceFile, File, bool), Unread> {
        let failed = |error: String| Unread::Failed(error);
        let file = self.sender.file(number).map_err(|error| failed(error.to_string()))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let open = self.sender.sources[file.source].tree.open_entry(&file.path, flags);
        let open = File::from(open.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unread::Changed,
            _ => failed(format!("it cannot be opened: {error}")),
        })?);
        let stat = check(&open, &file)?;
        let is_sparse = (stat.st_blocks.cast_unsigned()).saturating_mul(512) < file.size.get();
        Ok((number, file, open, is_sparse))
    }
}

/// Returns the state of the file if it is the one in which it was listed.
fn check(open: &File, file: &SourceFile) -> Result<Stat, Unread> {
    let stat = fstat(open).map_err(|error| Unread::Failed(error.to_string()))?;
    if identity(&stat) == file.identity { Ok(stat) } else { Err(Unread::Changed) }
}

fn is_hole(open: &File, offset: u64, length: usize) -> bool {
    match rustix::fs::seek(open, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset + length as u64,
        Err(error) => error == rustix::io::Errno::NXIO,
    }
}

/// The list on its way to the receiver.
struct Listing<'s> {
    sender: &'s Sender,
    /// Entries up to now.
    count: u32,
}

impl<'s> Listing<'s> {
    const fn of(sender: &'s Sender) -> Self {
        Self { sender, count: 0 }
    }
}

impl List for Listing<'_> {
    fn entry(&mut self, entry: Entry, file: Option<SourceFile>) {
        if self.count == FIRST_LISTED {
            self.sender.queue.wait_for_streams();
        }
        self.count = self.count.saturating_add(1);
        if let Some(file) = file {
            self.sender.files.add(file, || self.is_over());
        }
        self.sender.common.out.send(&Message::Entry(entry));
    }

    fn problem(&mut self, path: &[u8], why: &str) {
        let text = format!("{}: {why}", printable_bytes(path));
        match self.sender.common.events {
            Some(_) => self.sender.common.tally.fail(text),
            None => self.sender.common.out.send(&Message::Unreadable { file: u32::MAX, why: text }),
        }
    }

    fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
        self.sender.common.not_kept(path, what);
    }

    fn not_sent(&mut self, path: &[u8], why: &str) {
        self.sender.common.note(format!("{} is left out: {why}", printable_bytes(path)));
    }

    fn left_out(&mut self, path: &EntryPath) {
        self.sender.common.tally.leave_out(path);
        self.sender.common.note(format!("{path} is left out: {NEVER_COPIED}"));
    }

    fn too_long(&mut self) {
        self.sender.common.abort(list_too_long());
    }

    fn is_over(&self) -> bool {
        self.sender.common.has_failed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Outgoing;
    use crate::pulse::Pulse;
    use std::sync::mpsc::channel;

    #[test]
    fn a_connection_that_breaks_is_named_once_if_the_transfer_goes_on() {
        let out = Outgoing::start(io::sink(), &Pulse::new(Duration::from_secs(9))).unwrap().0;
        let (events, noted) = channel();
        let common = Common::new(out, Arc::default(), Some(events));
        let sender = Sender::new(common, Vec::new(), Excludes::default(), false);
        let named = || noted.try_iter().filter(|event| matches!(event, CopyEvent::Note(_))).count();
        sender.queue.set_streams(3, 3);
        sender.lose(0, "reset");
        sender.handle(Message::Lost { index: 0 }).unwrap();
        sender.name_long_broken();
        assert_eq!(named(), 0, "the transfer may be about to end");
        sender.name_broken(Instant::now());
        assert_eq!(named(), 1);
        sender.lose(1, "reset");
        sender.handle(Message::Finished).unwrap();
        assert_eq!(named(), 1);
        sender.lose(2, "reset");
        sender.name_broken(Instant::now());
        assert_eq!(named(), 0);
    }
}

//! The end that writes files: it decides what it wants, verifies what comes, and gives a file its name when it is
//! complete.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_transfer::{
    AGAIN, Attributes, Blocks, Boot, CHUNK, Chunks, DATA_HEADER, DataHeader, Digest, Entry, EntryKind, EntryPath,
    Excludes, Head, Identity, Message, ModificationTime, Outcome, Verified, ZEROS, block_hash, block_length,
    chunk_hash,
};
use fullpipe_units::ByteCount;
use rustix::fs::{FileType, Mode, OFlags};

use crate::attributes::{Held, NotKept, differ, settle};
use crate::common::{Common, Tally};
use crate::data_stream::Connections;
use crate::locks::lock;
use crate::options::{CopyError, CopyEvent};
use crate::part::{Part, PartWriter, boot, recover};
use crate::root::Root;
use crate::tree::{Tree, check_no_device, kind, modified, set_attributes};

/// Entries of a list at most: their names and hashes must fit into memory.
const MAX_ENTRIES: usize = 8 << 20;

/// Chunks that may be there in part at once: a connection sends one after the other, and others send blocks of it.
const MAX_BEGUN: usize = 1 << 14;

/// Chunks that may arrive wrong: memory and processors that flip more bits than that are broken.
const MAX_CORRUPT: u32 = 1000;

/// Time on top of its own timeout that a transfer waits for another one that holds its files: that one may have the
/// same timeout, and then ends in the meantime.
const MORE_WAITING: Duration = Duration::from_secs(5);

/// Name of an entry as the hash of its path: a list of a million takes 16 MiB.
type PathHash = [u8; 16];

/// Writes files.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) common: Common,
    pub(crate) options: ReceiveOptions,
    pub(crate) place: OnceLock<Destination>,
    incoming: Mutex<HashMap<u32, Arc<Incoming>>>,
    held: Held,
    files: AtomicU32,
    corrupt: AtomicU32,
    /// Chunks that are there in part.
    begun: AtomicUsize,
    boot: Boot,
    /// The time until which this transfer waits for others that hold its files.
    waits_until: OnceLock<Instant>,
    pub(crate) list: Mutex<Listed>,
    /// Changes of `list` and `incoming` for the thread that waits for the end.
    pub(crate) changed: Condvar,
    /// Nanoseconds that connections spent on verifying and writing.
    working: AtomicU64,
}

/// The rules of a receiver.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ReceiveOptions {
    pub(crate) root: Root,
    pub(crate) path: PathBuf,
    pub(crate) dry_run: bool,
    pub(crate) delete: bool,
    pub(crate) excludes: Excludes,
    /// Every file is read back from its disk.
    pub(crate) verify_disk: bool,
    /// Extended attributes and access lists are kept.
    pub(crate) attributes: bool,
    /// Time after which an end that receives nothing gives up.
    pub(crate) timeout: Duration,
    /// The names that were asked for at the top; any if absent.
    pub(crate) tops: Option<Vec<Vec<u8>>>,
}

/// The folder that is written to.
#[derive(Debug)]
pub(crate) struct Destination {
    /// `None` in a dry run, if it does not exist.
    pub(crate) tree: Option<Tree>,
    /// The name of a single file that gets another one.
    name: Option<EntryPath>,
    /// It takes what is in a folder of the sender, and so mirrors that folder.
    pub(crate) takes_content: bool,
}

/// The list as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) seen: HashSet<PathHash>,
    pub(crate) folders: Vec<ListedFolder>,
    pub(crate) links: Vec<(EntryPath, EntryPath)>,
    /// True if the list is complete, once it has ended.
    pub(crate) end: Option<bool>,
    pub(crate) is_over: bool,
}

/// A folder of the list, which gets its attributes at the end.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    pub(crate) path: EntryPath,
    pub(crate) mode: u16,
    pub(crate) modified: ModificationTime,
    /// Those to set, if any shall be.
    pub(crate) attributes: Option<Arc<Attributes>>,
}

/// A file of which chunks are wanted.
#[derive(Debug)]
struct Incoming {
    number: u32,
    path: EntryPath,
    mode: u16,
    modified: ModificationTime,
    size: ByteCount,
    identity: Identity,
    attributes: Option<Arc<Attributes>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    part: Option<Part>,
    verified: Verified,
    /// The chunks that are there in part.
    begun: HashMap<u32, Blocks>,
    is_closed: bool,
}

impl State {
    fn new(size: ByteCount) -> Mutex<Self> {
        Mutex::new(Self { part: None, verified: Verified::new(size), begun: HashMap::new(), is_closed: false })
    }
}

/// A block that has arrived, or a chunk that is a hole, and is right.
struct Arrived<'b> {
    header: DataHeader,
    content: &'b [u8],
    /// Bytes of its chunk.
    length: usize,
}

impl Arrived<'_> {
    const fn is_hole(&self) -> bool {
        self.content.is_empty()
    }
}

pub(crate) fn path_hash(path: &[u8]) -> PathHash {
    let digest = chunk_hash(ByteCount::new(path.len() as u64), 0, path);
    let mut hash = PathHash::default();
    hash.copy_from_slice(&digest[..16]);
    hash
}

impl Receiver {
    pub(crate) fn new(common: Common, options: ReceiveOptions) -> Self {
        Self {
            common,
            options,
            place: OnceLock::new(),
            incoming: Mutex::default(),
            held: Held::default(),
            files: AtomicU32::new(0),
            corrupt: AtomicU32::new(0),
            begun: AtomicUsize::new(0),
            boot: boot(),
            waits_until: OnceLock::new(),
            list: Mutex::default(),
            changed: Condvar::new(),
            working: AtomicU64::new(0),
        }
    }

    /// Starts to receive on each connection.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start(self: &Arc<Self>, connections: Connections) -> io::Result<()> {
        for stream in connections.streams {
            self.start_stream(stream, false)?;
        }
        if let Some((connection, streams)) = connections.quic {
            if let Some(why) = connection.lacks_buffer() {
                self.common.note(why);
            }
            for stream in connection.readers(streams) {
                self.start_stream(stream, true)?;
            }
        }
        Ok(())
    }

    fn start_stream(self: &Arc<Self>, stream: impl Read + Send + 'static, may_not_begin: bool) -> io::Result<()> {
        let receiver = Arc::clone(self);
        let work = move || receiver.receive(stream, may_not_begin);
        thread::Builder::new().name("copy-receive".to_owned()).spawn(work).map(drop)
    }

    /// Returns the time that all connections together spent on verifying and writing, in seconds.
    pub(crate) fn working(&self) -> f64 {
        self.working.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Carries out what the sender says.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up, or the destination cannot be used at all.
    pub(crate) fn handle(&self, message: Message<'_>) -> Result<(), CopyError> {
        match message {
            Message::Begin { single, content } => self.begin(single, content)?,
            Message::Entry(entry) => self.admit(entry)?,
            Message::EndOfList { complete } => {
                lock(&self.list).end = Some(complete);
                self.changed.notify_all();
            }
            Message::Unreadable { file: u32::MAX, why } => match self.common.events {
                Some(_) => self.common.tally.fail(why),
                None => self.common.out.send(&Message::Unreadable { file: u32::MAX, why }),
            },
            Message::Unreadable { file, why } => self.fail(file, why),
            Message::Again { file, entry } => self.again(file, entry)?,
            Message::Note { text } => self.common.note(text),
            Message::Data { header, content } => self.take(&header, content)?,
            Message::Refused { code, why } => return Err(CopyError::Refused { code, why }),
            _ => return Err(CopyError::Protocol("a sender sent what only a receiver may".to_owned())),
        }
        Ok(())
    }

    /// Opens the destination: a folder, or the folder of a single file that gets another name.
    fn begin(&self, single: bool, content: bool) -> Result<(), CopyError> {
        let path = &self.options.path;
        let bytes = path.as_os_str().as_bytes();
        let failed = CopyError::path(bytes);
        let root = &self.options.root;
        let is_folder = root.is_folder(path) || bytes.ends_with(b"/");
        let place = if let Some(name) = path.file_name().filter(|_| single && !is_folder) {
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = EntryPath::new(name.as_bytes()).map_err(|error| failed(io::Error::other(error)))?;
            Destination { tree: Some(root.open(folder).map_err(&failed)?), name: Some(name), takes_content: false }
        } else {
            if !self.options.dry_run && !root.is_folder(path) {
                root.make_folder(path).map_err(&failed)?;
            }
            let tree = match root.open(path) {
                Err(error) if self.options.dry_run && error.kind() == io::ErrorKind::NotFound => None,
                opened => Some(opened.map_err(&failed)?),
            };
            Destination { tree, name: None, takes_content: content }
        };
        self.place.set(place).map_err(|_| CopyError::Protocol("the list begins twice".to_owned()))
    }

    /// Takes an entry of the list.
    fn admit(&self, mut entry: Entry) -> Result<(), CopyError> {
        let wrong = |why: String| CopyError::Protocol(why);
        let place = self.place.get().ok_or_else(|| wrong("an entry comes before the list".to_owned()))?;
        if let Some(tops) = &self.options.tops
            && !tops.iter().any(|top| top == entry.path.top())
        {
            return Err(wrong(format!("it sent {}, which nobody asked for", entry.path)));
        }
        if let Some(name) = &place.name {
            entry.path = name.clone();
        }
        {
            let mut list = lock(&self.list);
            if list.end.is_some() || list.seen.len() >= MAX_ENTRIES {
                return Err(wrong("its list has too many entries".to_owned()));
            }
            if !list.seen.insert(path_hash(entry.path.as_bytes())) {
                return Err(wrong(format!("it sent {} twice", entry.path)));
            }
        }
        let attributes = self.hold(&entry.path, entry.attributes);
        match entry.kind {
            EntryKind::Folder { mode, modified } => {
                self.folder(place, ListedFolder { path: entry.path, mode, modified, attributes });
            }
            EntryKind::SymbolicLink { target } => self.symbolic_link(place, &entry.path, &target),
            EntryKind::HardLink { first } => lock(&self.list).links.push((entry.path, first)),
            // Its path was noted: what has it is not deleted.
            EntryKind::LeftOut => {}
            EntryKind::File { mode, modified, size, identity } => {
                let number = self.files.fetch_add(1, Ordering::Relaxed);
                if Chunks::of(size).is_none() {
                    return Err(wrong(format!("{} has an impossible size", entry.path)));
                }
                let state = State::new(size);
                let file = Incoming { number, path: entry.path, mode, modified, size, identity, attributes, state };
                self.file(place, Arc::new(file));
            }
        }
        Ok(())
    }

    fn folder(&self, place: &Destination, folder: ListedFolder) {
        let path = &folder.path;
        if let Some(tree) = place.tree.as_ref() {
            if self.options.dry_run {
                self.say_attributes(tree, path, folder.attributes.as_deref());
            } else {
                let made = tree.within(path).and_then(|within| within.make_folder());
                if let Err(error) = made.and_then(|()| writable(tree, path)) {
                    return self.problem(path, &error.to_string());
                }
            }
        }
        lock(&self.list).folders.push(folder);
    }

    /// Returns attributes of an entry to hold until it is there; `None` if nobody asked for them.
    fn hold(&self, path: &EntryPath, attributes: Attributes) -> Option<Arc<Attributes>> {
        if !self.options.attributes {
            return None;
        }
        let held = self.held.hold(attributes);
        if held.is_none() {
            let why = "those of files that have not come yet are too many".to_owned();
            self.common.not_kept(path, NotKept { kind: "attributes".to_owned(), why });
        }
        held
    }

    /// Gives what is open its attributes, if there are any to set.
    pub(crate) fn set_extended(&self, path: &EntryPath, open: impl AsFd, attributes: Option<&Attributes>) {
        if let Some(attributes) = attributes {
            settle(open, attributes, &mut |what| self.common.not_kept(path, what));
        }
    }

    /// In a dry run, says that something that is there would get other attributes.
    fn say_attributes(&self, tree: &Tree, path: &EntryPath, attributes: Option<&Attributes>) {
        let Some(attributes) = attributes else { return };
        let open = tree.open_entry(path, OFlags::RDONLY | OFlags::NONBLOCK);
        if open.is_ok_and(|open| differ(open, attributes)) {
            self.common.note(format!("{path} would get other extended attributes"));
        }
    }

    /// Gives a file that is there already its attributes, or says that it would get them.
    fn update_attributes(&self, tree: &Tree, file: &Incoming) -> io::Result<()> {
        let Some(attributes) = file.attributes.as_deref() else { return Ok(()) };
        if self.options.dry_run {
            self.say_attributes(tree, &file.path, Some(attributes));
            return Ok(());
        }
        let open = match tree.open_entry(&file.path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(open) => open,
            Err(error) => {
                let what = NotKept { kind: "attributes".to_owned(), why: error.to_string() };
                self.common.not_kept(&file.path, what);
                return Ok(());
            }
        };
        if differ(&open, attributes) {
            // The system lets even its owner set them only if he may write to it.
            rustix::fs::fchmod(&open, Mode::RUSR | Mode::WUSR)?;
            self.set_extended(&file.path, &open, Some(attributes));
            set_attributes(&open, file.mode, file.modified)?;
        }
        Ok(())
    }

    /// Makes a complete file durable under its name, with all that is kept of it.
    fn finish_part(&self, file: &Incoming, part: Part) -> io::Result<()> {
        self.set_extended(&file.path, part.file(), file.attributes.as_deref());
        part.finish(file.mode, file.modified)
    }

    fn symbolic_link(&self, place: &Destination, path: &EntryPath, target: &[u8]) {
        let Some(tree) = place.tree.as_ref().filter(|_| !self.options.dry_run) else { return };
        let made = tree.within(path).and_then(|within| {
            if within.stat()?.is_some_and(|stat| kind(&stat) == FileType::Symlink) && within.read_link()? == target {
                return Ok(());
            }
            let working = within.sibling(path.working_name(false));
            working.remove_file()?;
            working.make_link(target)?;
            working.rename(&within)
        });
        if let Err(error) = made {
            self.problem(path, &error.to_string());
        }
    }

    /// Decides what is wanted of a file.
    fn file(&self, place: &Destination, file: Arc<Incoming>) {
        match self.missing(place, &file) {
            Ok(Some(missing)) => {
                let (number, size) = (file.number, file.size);
                let bytes = missing.iter().map(|chunks| chunks.bytes(size).get()).sum();
                if let Err(why) = self.common.bounds.take(bytes) {
                    return self.report(&file, Outcome::Failed(why));
                }
                lock(&self.incoming).insert(number, file);
                for chunks in missing {
                    if self.common.events.is_some() {
                        Tally::add(&self.common.tally.wanted, chunks.bytes(size).get());
                    }
                    self.common.out.send(&Message::Want { file: number, chunks });
                }
            }
            Ok(None) => {}
            Err(error) => self.report(&file, Outcome::Failed(error.to_string())),
        }
    }

    /// Returns the chunks that are missing of a file; `None` if that is settled.
    fn missing(&self, place: &Destination, file: &Arc<Incoming>) -> io::Result<Option<Vec<Chunks>>> {
        let Some(tree) = &place.tree else {
            self.report(file, Outcome::Wanted);
            return Ok(None);
        };
        if is_present(tree, file, self.options.dry_run)? {
            self.update_attributes(tree, file)?;
            self.report(file, Outcome::Present);
            return Ok(None);
        }
        if self.options.dry_run {
            self.report(file, Outcome::Wanted);
            return Ok(None);
        }
        let mut state = lock(&file.state);
        let recovered = || recover(tree, &file.path, file.size, file.identity, self.boot);
        state.verified = self.when_free(&file.path, recovered)?;
        if let Some(digest) = state.verified.digest() {
            let part = self.open_part(tree, file, &state.verified)?;
            if self.wrong_on_disk(file, &part, &mut state.verified)?.is_empty() {
                self.finish_part(file, part)?;
                self.report(file, Outcome::Copied(digest));
                return Ok(None);
            }
        }
        Ok(Some(state.verified.missing()))
    }

    fn open_part(&self, tree: &Tree, file: &Incoming, verified: &Verified) -> io::Result<Part> {
        let open = || Part::open(tree, &file.path, file.size, file.identity, self.boot, verified);
        self.when_free(&file.path, open)
    }

    /// Tries again while another transfer holds the file, which may be an earlier one whose network has gone: it ends
    /// by itself once it has received nothing for a while.
    fn when_free<T>(&self, path: &EntryPath, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && self.may_wait(path) => {}
                done => return done,
            }
        }
    }

    fn may_wait(&self, path: &EntryPath) -> bool {
        let limit = self.options.timeout + MORE_WAITING;
        let until = self.waits_until.get_or_init(|| {
            let seconds = limit.as_secs();
            self.common.note(format!("another transfer holds {path}; waiting up to {seconds} s for its end"));
            Instant::now() + limit
        });
        Instant::now() < *until && !self.common.has_failed()
    }

    /// Starts a file anew in the state that it has now: it changed while it was read.
    fn again(&self, number: u32, entry: Entry) -> Result<(), CopyError> {
        let wrong = || CopyError::Protocol("it repeats what it cannot repeat".to_owned());
        let EntryKind::File { mode, modified, size, identity } = entry.kind else { return Err(wrong()) };
        let place = self.place.get().filter(|_| number < self.files.load(Ordering::Relaxed)).ok_or_else(wrong)?;
        if Chunks::of(size).is_none() {
            return Err(wrong());
        }
        let Some(old) = lock(&self.incoming).get(&number).cloned() else { return Ok(()) };
        if !self.close(&old) {
            return Ok(());
        }
        let state = State::new(size);
        let (number_again, path) = (number | AGAIN, old.path.clone());
        let attributes = self.hold(&path, entry.attributes);
        let file = Incoming { number: number_again, path, mode, modified, size, identity, attributes, state };
        self.file(place, Arc::new(file));
        self.remove(number);
        Ok(())
    }

    /// Receives what comes on a stream, until it ends. One that may break before it has begun is watched by the sender.
    fn receive(&self, stream: impl Read, may_not_begin: bool) {
        let mut from = BufReader::with_capacity(64 << 10, stream);
        let (mut content, mut number) = (Vec::new(), None);
        let ended = loop {
            let handled = match next_head(&mut from, &mut content) {
                Ok(Head::Stream(index)) if number.is_none() => {
                    number = Some(index);
                    Ok(())
                }
                Ok(Head::Block(header, _)) if number.is_some() => self.take(&header, &content),
                Ok(Head::End) if number.is_some() => break Ok(()),
                Ok(_) => Err(CopyError::Protocol("a connection for data carries something else".to_owned())),
                Err(error) => break Err(error),
            };
            if let Err(error) = handled {
                return self.abort(error);
            }
        };
        if let Err(cause) = ended
            && !lock(&self.list).is_over
        {
            match number {
                Some(index) => self.common.out.send(&Message::Lost { index }),
                None if may_not_begin => {}
                // The sender could not know which of them it is.
                None => self.abort(CopyError::Io { what: "a connection for data broke at its beginning", cause }),
            }
        }
    }

    fn abort(&self, error: CopyError) {
        self.common.abort(error);
        self.changed.notify_all();
    }

    /// Takes a block of a chunk.
    ///
    /// # Errors
    /// Fails if the sender breaks the rules. If the block is wrong, its chunk is wanted again; if it cannot be written,
    /// the file has failed.
    fn take(&self, header: &DataHeader, content: &[u8]) -> Result<(), CopyError> {
        self.common.bounds.wait(content.len());
        let began = Instant::now();
        let wrong = |why: &str| CopyError::Protocol(why.to_owned());
        let Some(file) = lock(&self.incoming).get(&header.file).cloned() else {
            let was_listed = header.file & !AGAIN < self.files.load(Ordering::Relaxed);
            return if was_listed { Ok(()) } else { Err(wrong("it sent data of a file that it has not listed")) };
        };
        let (length, hash) = check(&file, header, content)?;
        if hash != header.hash {
            self.count_corrupt(1)?;
            self.common.note(format!("a chunk of {} arrived with wrong content; it is fetched again", file.path));
            self.want(header.file, header.chunk);
            return Ok(());
        }
        match self.store(&file, &Arrived { header: *header, content, length }) {
            Ok(new) => Tally::add(&self.common.tally.verified, new as u64),
            Err(error) => self.fail(header.file, format!("it cannot be written: {error}")),
        }
        if self.begun.load(Ordering::Relaxed) > MAX_BEGUN {
            return Err(wrong("it has begun too many chunks"));
        }
        self.working.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn want(&self, file: u32, chunk: u32) {
        self.common.out.send(&Message::Want { file, chunks: Chunks { first: chunk, count: 1 } });
    }

    fn count_corrupt(&self, count: u32) -> Result<(), CopyError> {
        let before = self.corrupt.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > MAX_CORRUPT {
            return Err(CopyError::Protocol("too many chunks have wrong content".to_owned()));
        }
        Ok(())
    }

    /// Writes a block or makes a hole and, if its file is complete then, finishes that. Returns the bytes of the chunk
    /// if that is complete now, and zero otherwise.
    fn store(&self, file: &Arc<Incoming>, arrived: &Arrived<'_>) -> io::Result<usize> {
        let Some(tree) = self.place.get().and_then(|place| place.tree.as_ref()) else { return Ok(0) };
        let Some((writer, was_begun)) = self.begin_block(tree, file, arrived)? else { return Ok(0) };
        let DataHeader { chunk, block, .. } = arrived.header;
        if arrived.is_hole() {
            writer.make_hole(chunk, arrived.length, was_begun)?;
        } else {
            writer.write_block(chunk, block, arrived.content)?;
        }
        drop(writer);
        self.end_block(file, arrived)
    }

    /// Takes a block for this thread. Returns the way to write it, and whether something of its chunk was there;
    /// `None` if the block is there, or another thread writes it.
    fn begin_block(
        &self,
        tree: &Tree,
        file: &Incoming,
        arrived: &Arrived<'_>,
    ) -> io::Result<Option<(PartWriter, bool)>> {
        let DataHeader { chunk, block, hash, .. } = arrived.header;
        let mut state = lock(&file.state);
        if state.is_closed || state.verified.contains(chunk) {
            return Ok(None);
        }
        let was_begun = state.begun.contains_key(&chunk);
        if arrived.is_hole() {
            self.forget_blocks(&mut state, chunk);
        } else {
            let blocks = state.begun.entry(chunk).or_insert_with(|| {
                self.begun.fetch_add(1, Ordering::Relaxed);
                Blocks::new(file.size, chunk)
            });
            if !blocks.take(block, hash) {
                return Ok(None);
            }
        }
        let part = match state.part.take() {
            Some(part) => part,
            None => self.open_part(tree, file, &state.verified)?,
        };
        Ok(Some((state.part.insert(part).writer(), was_begun)))
    }

    /// Notes that a block is written, or a hole is made.
    fn end_block(&self, file: &Incoming, arrived: &Arrived<'_>) -> io::Result<usize> {
        let Arrived { header: DataHeader { file: number, chunk, block, reports, hash }, length, .. } = *arrived;
        let whole = {
            let mut state = lock(&file.state);
            if state.is_closed {
                return Ok(0);
            }
            let hash = if arrived.is_hole() {
                hash
            } else {
                let Some(blocks) = state.begun.get_mut(&chunk) else { return Ok(0) };
                blocks.written(block);
                let Some(hash) = blocks.hash() else {
                    let missing = blocks.missing();
                    drop(state);
                    if reports {
                        self.common.out.send(&Message::Got { file: number, chunk, missing });
                    }
                    return Ok(0);
                };
                hash
            };
            self.forget_blocks(&mut state, chunk);
            if !state.verified.insert(chunk, hash) {
                return Ok(0);
            }
            if let Some(part) = &mut state.part {
                part.record(chunk, &hash, length)?;
            }
            let digest = state.verified.digest();
            state.is_closed = digest.is_some();
            digest.zip(digest.and_then(|_| state.part.take()))
        };
        self.common.out.send(&Message::Got { file: number, chunk, missing: 0 });
        if let Some((digest, part)) = whole {
            self.complete(file, part, digest);
        }
        Ok(length)
    }

    fn forget_blocks(&self, state: &mut State, chunk: u32) {
        if state.begun.remove(&chunk).is_some() {
            self.begun.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes no more of a file. What has arrived of a large one stays for the next run. Returns false if that was so
    /// already.
    fn close(&self, file: &Incoming) -> bool {
        let mut state = lock(&file.state);
        self.begun.fetch_sub(std::mem::take(&mut state.begun).len(), Ordering::Relaxed);
        if std::mem::replace(&mut state.is_closed, true) {
            return false;
        }
        if let Some(part) = state.part.take().filter(|_| file.size.get() <= CHUNK as u64) {
            part.discard();
        }
        true
    }

    fn complete(&self, file: &Incoming, part: Part, digest: Digest) {
        let finished = match self.is_right_on_disk(file, part) {
            Ok(Some(part)) => self.finish_part(file, part),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let outcome = finished.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Copied(digest));
        self.settle(file, outcome);
    }

    /// Returns the part of a complete file if its disk holds what was sent, or nobody asked for that. Otherwise wants
    /// what is wrong again, and keeps the part.
    fn is_right_on_disk(&self, file: &Incoming, part: Part) -> io::Result<Option<Part>> {
        if !self.options.verify_disk {
            return Ok(Some(part));
        }
        // Nobody else reads the hashes of a file that is closed, and others need not wait for the disk.
        let mut verified = std::mem::replace(&mut lock(&file.state).verified, Verified::new(file.size));
        let wrong = self.wrong_on_disk(file, &part, &mut verified)?;
        let mut state = lock(&file.state);
        state.verified = verified;
        if wrong.is_empty() {
            return Ok(Some(part));
        }
        (state.part, state.is_closed) = (Some(part), false);
        drop(state);
        for chunk in wrong {
            self.want(file.number, chunk);
        }
        Ok(None)
    }

    /// Takes the chunks that are wrong on the disk out of `verified`, and returns them; none if nobody asked for that.
    fn wrong_on_disk(&self, file: &Incoming, part: &Part, verified: &mut Verified) -> io::Result<Vec<u32>> {
        if !self.options.verify_disk {
            return Ok(Vec::new());
        }
        let wrong = part.wrong_on_disk(file.size, verified)?;
        if !wrong.is_empty() {
            self.count_corrupt(wrong.len() as u32).map_err(io::Error::other)?;
            let text =
                format!("chunks of {} that are wrong on the disk, and are fetched again: {}", file.path, wrong.len());
            self.common.note(text);
        }
        for chunk in &wrong {
            verified.remove(*chunk);
        }
        Ok(wrong)
    }

    /// Gives a file up.
    fn fail(&self, number: u32, why: String) {
        let Some(file) = lock(&self.incoming).get(&number).cloned() else { return };
        if self.close(&file) {
            self.settle(&file, Outcome::Failed(why));
        }
    }

    fn settle(&self, file: &Incoming, outcome: Outcome) {
        self.report(file, outcome);
        self.remove(file.number);
    }

    fn remove(&self, number: u32) {
        lock(&self.incoming).remove(&number);
        // The one who waits reads both under this lock.
        drop(lock(&self.list));
        self.changed.notify_all();
    }

    fn report(&self, file: &Incoming, outcome: Outcome) {
        if self.common.events.is_some() {
            self.common.count(&file.path, file.size.get(), &outcome);
        }
        self.common.out.send(&Message::Outcome { file: file.number, outcome });
    }

    /// Notes an entry that is no file and cannot be made.
    pub(crate) fn problem(&self, path: &EntryPath, why: &str) {
        let text = format!("{path}: {why}");
        match self.common.events {
            Some(_) => self.common.tally.fail(text),
            None => self.common.out.send(&Message::Unreadable { file: u32::MAX, why: text }),
        }
    }

    /// Reports that something was deleted, or would be.
    pub(crate) fn deleted(&self, path: EntryPath) {
        if self.common.events.is_some() {
            Tally::add(&self.common.tally.deleted, 1);
            self.common.event(CopyEvent::Deleted(path));
        } else {
            self.common.out.send(&Message::Deleted { path });
        }
    }

    /// Returns true if nothing more is to come.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.incoming).is_empty()
    }
}

/// Reads the next head of a connection for data, and what follows it into `content`.
///
/// # Errors
/// Fails if the connection breaks, and with `InvalidData` if a head was damaged on the way: nothing behind it has a
/// known place.
fn next_head(from: &mut impl Read, content: &mut Vec<u8>) -> io::Result<Head> {
    let mut bytes = [0; DATA_HEADER];
    from.read_exact(&mut bytes)?;
    let head = Head::read(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    if let Head::Block(_, length) = head {
        content.resize(length, 0);
        from.read_exact(content)?;
    }
    Ok(head)
}

/// Returns the bytes of the chunk of a block, and the hash of what has come.
fn check(file: &Incoming, header: &DataHeader, content: &[u8]) -> Result<(usize, Digest), CopyError> {
    let wrong = || CopyError::Protocol("it sent a block of another size than it has listed".to_owned());
    let DataHeader { chunk, block, .. } = *header;
    let length = Verified::new(file.size).length(chunk).ok_or_else(wrong)?;
    match content.len() {
        0 if block == 0 => Ok((length, chunk_hash(file.size, chunk, &ZEROS[..length]))),
        1.. if block_length(length, block) == Some(content.len()) => {
            Ok((length, block_hash(file.size, chunk, block, content)))
        }
        _ => Err(wrong()),
    }
}

/// Lets the owner of a folder write to it, until it gets its own permissions at the end.
fn writable(tree: &Tree, path: &EntryPath) -> io::Result<()> {
    let Some(stat) = tree.within(path)?.stat()? else { return Ok(()) };
    let mode = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
    if mode.contains(Mode::RWXU) {
        return Ok(());
    }
    let open = tree.open_entry(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    // Another's folder may permit it all the same.
    let _ = rustix::fs::fchmod(open, mode | Mode::RWXU);
    Ok(())
}

/// Returns true if a file of this size and time is there, as rsync decides it; then it gets its permissions.
fn is_present(tree: &Tree, file: &Incoming, dry_run: bool) -> io::Result<bool> {
    let within = match tree.within(&file.path) {
        Ok(within) => within,
        Err(error) if dry_run && error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let Some(stat) = within.stat()? else { return Ok(false) };
    if kind(&stat) == FileType::Directory {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder has its name"));
    }
    check_no_device(&stat)?;
    let same = kind(&stat) == FileType::RegularFile
        && stat.st_size.cast_unsigned() == file.size.get()
        && modified(&stat) == file.modified;
    if same && !dry_run && (stat.st_mode & 0o777) as u16 != file.mode {
        set_attributes(within.open(OFlags::RDONLY)?, file.mode, file.modified)?;
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Outgoing;
    use crate::finish::finish;
    use crate::pulse::Pulse;
    use fullpipe_transfer::BLOCK;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[derive(Clone, Default)]
    struct Sent(Arc<Mutex<Vec<u8>>>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        receiver: Arc<Receiver>,
        sent: Sent,
        folder: tempfile::TempDir,
        writer: thread::JoinHandle<()>,
    }

    impl Bench {
        fn new(tops: Option<&[&str]>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let sent = Sent::default();
            let (out, writer) = Outgoing::start(sent.clone(), &Pulse::new(Duration::from_secs(9))).unwrap();
            let options = ReceiveOptions {
                root: Root::User,
                path: folder.path().to_owned(),
                dry_run: false,
                delete: true,
                excludes: Excludes::default(),
                verify_disk: true,
                attributes: true,
                timeout: Duration::from_secs(2),
                tops: tops.map(|tops| tops.iter().map(|top| top.as_bytes().to_vec()).collect()),
            };
            let receiver = Arc::new(Receiver::new(Common::new(out, Arc::default(), None), options));
            receiver.handle(Message::Begin { single: false, content: true }).unwrap();
            Self { receiver, sent, folder, writer }
        }

        fn entry(&self, path: &str, kind: EntryKind) -> Result<(), CopyError> {
            self.entry_with(path, kind, Attributes::default())
        }

        fn entry_with(&self, path: &str, kind: EntryKind, attributes: Attributes) -> Result<(), CopyError> {
            self.receiver.handle(Message::Entry(Entry { path: EntryPath::new(path).unwrap(), kind, attributes }))
        }

        fn file(&self, path: &str, size: u64) -> Result<(), CopyError> {
            let modified = ModificationTime { seconds: 1_000_000, nanoseconds: 7 };
            let kind =
                EntryKind::File { mode: 0o640, modified, size: ByteCount::new(size), identity: Identity([1; 32]) };
            self.entry(path, kind)
        }

        /// Sends a chunk, its last block first.
        fn data(&self, file: u32, chunk: u32, size: u64, content: &[u8]) -> Result<(), CopyError> {
            let mut blocks: Vec<_> = (0..).zip(content.chunks(BLOCK)).collect();
            blocks.reverse();
            blocks.into_iter().try_for_each(|(block, content)| self.block([file, chunk], block, size, content))
        }

        fn block(&self, [file, chunk]: [u32; 2], block: u8, size: u64, content: &[u8]) -> Result<(), CopyError> {
            let hash = block_hash(ByteCount::new(size), chunk, block, content);
            self.receiver.handle(data(file, chunk, block, hash, content))
        }

        /// Ends the list, and returns everything that was sent.
        fn end(self) -> (Vec<Message<'static>>, tempfile::TempDir) {
            self.receiver.handle(Message::EndOfList { complete: true }).unwrap();
            finish(&self.receiver);
            self.receiver.common.out.close();
            self.writer.join().unwrap();
            let bytes = lock(&self.sent.0).clone().leak();
            let mut frames = Vec::new();
            let mut rest: &'static [u8] = bytes;
            while let Some((length, more)) = rest.split_first_chunk() {
                let (frame, more) = more.split_at(u32::from_le_bytes(*length) as usize);
                frames.push(Message::read(frame).unwrap());
                rest = more;
            }
            (frames, self.folder)
        }
    }

    fn data(file: u32, chunk: u32, block: u8, hash: Digest, content: &[u8]) -> Message<'_> {
        Message::Data { header: DataHeader { file, chunk, block, reports: true, hash }, content }
    }

    fn outcomes(sent: &[Message<'_>]) -> Vec<(u32, Outcome)> {
        let outcome = |message: &Message<'_>| match message {
            Message::Outcome { file, outcome } => Some((*file, outcome.clone())),
            _ => None,
        };
        sent.iter().filter_map(outcome).collect()
    }

    #[test]
    fn a_chunk_that_arrives_wrong_is_wanted_again() {
        let bench = Bench::new(None);
        bench.file("file", 5).unwrap();
        let hash = chunk_hash(ByteCount::new(5), 0, b"right");
        bench.receiver.handle(data(0, 0, 0, hash, b"wrong")).unwrap();
        assert!(!bench.folder.path().join("file").exists());
        bench.data(0, 0, 5, b"right").unwrap();
        let (sent, folder) = bench.end();
        let wanted = sent.iter().filter(|message| matches!(message, Message::Want { file: 0, .. })).count();
        assert_eq!((wanted, outcomes(&sent).len()), (2, 1));
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"right");
        let state = fs::metadata(folder.path().join("file")).unwrap();
        assert_eq!((state.permissions().mode() & 0o777, state.modified().unwrap().elapsed().is_ok()), (0o640, true));
    }

    /// A copy to `/dev/null` by root once made a file of it.
    #[test]
    fn devices_pipes_and_sockets_are_not_replaced() {
        let bench = Bench::new(None);
        let names = ["file", "link"].map(|name| bench.folder.path().join(name));
        let _sockets = names.each_ref().map(|name| UnixListener::bind(name).unwrap());
        bench.file("file", 5).unwrap();
        bench.entry("link", EntryKind::SymbolicLink { target: b"target".to_vec() }).unwrap();
        let (sent, _folder) = bench.end();
        let why = "a device, a pipe or a socket has its name";
        assert_eq!(outcomes(&sent), [(0, Outcome::Failed(why.to_owned()))]);
        assert!(sent.iter().any(|message| format!("{message:?}").contains(&format!("link: {why}"))), "{sent:?}");
        assert!(names.iter().all(|name| fs::symlink_metadata(name).unwrap().file_type().is_socket()));
    }

    /// As rsync does.
    #[test]
    fn a_pipe_that_the_sender_lacks_is_deleted_and_one_that_it_leaves_out_is_not() {
        let bench = Bench::new(None);
        let pipe = |name: &str| {
            let path = bench.folder.path().join(name);
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR).unwrap();
            path
        };
        let (lacking, left_out) = (pipe("lacking"), pipe("left-out"));
        let _socket = UnixListener::bind(bench.folder.path().join("socket")).unwrap();
        fs::write(bench.folder.path().join("other"), "no pipe here").unwrap();
        for name in ["left-out", "other"] {
            bench.entry(name, EntryKind::LeftOut).unwrap();
        }
        let (sent, folder) = bench.end();
        assert!(!lacking.exists() && left_out.exists() && folder.path().join("other").exists());
        let deleted = sent.iter().filter_map(|message| match message {
            Message::Deleted { path } => Some(path.to_string()),
            _ => None,
        });
        assert_eq!(deleted.collect::<Vec<_>>(), ["lacking", "socket"]);
    }

    #[test]
    fn attributes_that_cannot_be_set_are_said_once_and_nothing_fails() {
        let bench = Bench::new(None);
        for name in ["one", "two"] {
            let mut attributes = Attributes::default();
            attributes.insert(b"system.posix_acl_access", b"nonsense").unwrap();
            let kind = EntryKind::Folder { mode: 0o755, modified: ModificationTime::default() };
            bench.entry_with(name, kind, attributes).unwrap();
        }
        let (sent, folder) = bench.end();
        let notes = sent.iter().filter(|message| matches!(message, Message::Note { .. })).count();
        let failed = sent.iter().any(|message| matches!(message, Message::Unreadable { .. }));
        assert_eq!((notes, failed), (1, false), "{sent:?}");
        assert!(folder.path().join("one").is_dir() && folder.path().join("two").is_dir());
    }

    /// Changes a byte of the working file of `file`, as a disk might.
    fn spoil(bench: &Bench, offset: u64) {
        let name = EntryPath::new("file").unwrap().working_name(false);
        let working = bench.folder.path().join(std::ffi::OsStr::from_bytes(&name));
        fs::File::options().write(true).open(working).unwrap().write_all_at(b"?", offset).unwrap();
    }

    #[test]
    fn what_a_disk_has_changed_is_found_and_wanted_again_before_the_file_has_its_name() {
        let size = 3 * CHUNK as u64;
        let bench = Bench::new(None);
        bench.file("file", size).unwrap();
        let chunk = |index: u8| vec![index; CHUNK];
        for index in [0, 1] {
            bench.data(0, index, size, &chunk(index as u8)).unwrap();
        }
        spoil(&bench, 5);
        spoil(&bench, CHUNK as u64 + 77);
        bench.data(0, 2, size, &chunk(2)).unwrap();
        assert!(!bench.folder.path().join("file").exists());
        bench.data(0, 1, size, &chunk(1)).unwrap();
        spoil(&bench, CHUNK as u64 + 78);
        bench.data(0, 0, size, &chunk(0)).unwrap();
        assert!(!bench.folder.path().join("file").exists());
        bench.data(0, 1, size, &chunk(1)).unwrap();
        let (sent, folder) = bench.end();
        let wanted = sent.iter().filter_map(|message| match message {
            Message::Want { chunks, .. } => Some((chunks.first, chunks.count)),
            _ => None,
        });
        assert_eq!(wanted.collect::<Vec<_>>(), [(0, 3), (0, 1), (1, 1), (1, 1)]);
        assert!(matches!(outcomes(&sent)[..], [(0, Outcome::Copied(_))]), "{sent:?}");
        assert!(fs::read(folder.path().join("file")).unwrap() == [chunk(0), chunk(1), chunk(2)].concat());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    fn again(bench: &Bench, file: u32, size: u64) -> Result<(), CopyError> {
        let modified = ModificationTime { seconds: 2_000_000, nanoseconds: 0 };
        let kind = EntryKind::File { mode: 0o600, modified, size: ByteCount::new(size), identity: Identity([2; 32]) };
        let entry = Entry { path: EntryPath::new("ignored").unwrap(), kind, attributes: Attributes::default() };
        bench.receiver.handle(Message::Again { file, entry })
    }

    #[test]
    fn a_file_that_changed_comes_again_and_nothing_of_its_old_state_is_kept() {
        let size = 2 * CHUNK as u64;
        let bench = Bench::new(None);
        bench.file("file", size).unwrap();
        bench.file("small", 5).unwrap();
        bench.data(0, 0, size, &vec![1; CHUNK]).unwrap();
        again(&bench, 0, size + 3).unwrap();
        again(&bench, 1, 3).unwrap();
        again(&bench, 0, size).unwrap();
        // On its way when the file changed.
        bench.data(0, 1, size, &vec![1; CHUNK]).unwrap();
        bench.data(1, 0, 5, b"right").unwrap();
        let second = [vec![2; CHUNK], vec![3; CHUNK], b"end".to_vec()];
        for (chunk, content) in second.iter().enumerate() {
            bench.data(AGAIN, chunk as u32, size + 3, content).unwrap();
        }
        bench.data(AGAIN | 1, 0, 3, b"new").unwrap();
        let (sent, folder) = bench.end();
        assert!(matches!(outcomes(&sent)[..], [(AGAIN, Outcome::Copied(_)), (_, Outcome::Copied(_))]), "{sent:?}");
        assert!(fs::read(folder.path().join("file")).unwrap() == second.concat());
        assert_eq!(fs::read(folder.path().join("small")).unwrap(), b"new");
        assert_eq!(fs::metadata(folder.path().join("file")).unwrap().mtime(), 2_000_000);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_changes_is_repeated_once_and_only_if_it_was_listed() {
        let bench = Bench::new(None);
        bench.file("file", 5).unwrap();
        let protocol = |result| assert!(matches!(result, Err(CopyError::Protocol(_))), "{result:?}");
        protocol(again(&bench, 1, 5));
        protocol(again(&bench, AGAIN, 5));
        protocol(again(&bench, 0, u64::MAX));
        again(&bench, 0, 0).unwrap();
        let (sent, folder) = bench.end();
        assert!(matches!(outcomes(&sent)[..], [(AGAIN, Outcome::Copied(_))]), "{sent:?}");
        assert_eq!(fs::metadata(folder.path().join("file")).unwrap().len(), 0);
    }

    #[test]
    fn chunks_of_any_order_and_holes_make_one_file() {
        let size = 2 * CHUNK as u64 + 3;
        let bench = Bench::new(None);
        bench.file("file", size).unwrap();
        bench.data(0, 2, size, b"end").unwrap();
        let hash = chunk_hash(ByteCount::new(size), 1, &ZEROS);
        bench.receiver.handle(data(0, 1, 0, hash, b"")).unwrap();
        bench.data(0, 2, size, b"end").unwrap();
        let first = vec![7; CHUNK];
        bench.data(0, 0, size, &first).unwrap();
        bench.data(0, 0, size, &first).unwrap();
        let (sent, folder) = bench.end();
        let expected = [&first[..], &ZEROS, b"end"].concat();
        let mut whole = Verified::new(ByteCount::new(size));
        for (index, chunk) in expected.chunks(CHUNK).enumerate() {
            whole.insert(index as u32, chunk_hash(ByteCount::new(size), index as u32, chunk));
        }
        assert_eq!(outcomes(&sent), [(0, Outcome::Copied(whole.digest().unwrap()))]);
        assert!(fs::read(folder.path().join("file")).unwrap() == expected);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of the transfer");
    }

    #[test]
    fn blocks_of_a_chunk_come_in_any_order_and_twice_and_the_sender_learns_which() {
        let size = CHUNK as u64 + 3;
        let bench = Bench::new(None);
        bench.file("file", size).unwrap();
        let content: Vec<u8> = (0..CHUNK).map(|at| (at >> 9) as u8).collect();
        let block = |index: u8| &content[usize::from(index) * BLOCK..][..BLOCK];
        for index in [5, 15, 5, 0] {
            bench.block([0, 0], index, size, block(index)).unwrap();
        }
        let hash = block_hash(ByteCount::new(size), 0, 7, block(7));
        bench.receiver.handle(data(0, 0, 7, hash, block(8))).unwrap();
        assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 1);
        bench.data(0, 0, size, &content).unwrap();
        bench.block([0, 0], 3, size, block(3)).unwrap();
        bench.data(0, 1, size, b"end").unwrap();
        bench.block([0, 0], 3, size, block(3)).unwrap();
        assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 0);
        let (sent, folder) = bench.end();
        let got = sent.iter().filter_map(|message| match message {
            Message::Got { chunk, missing, .. } => Some((*chunk, *missing)),
            _ => None,
        });
        let got: Vec<_> = got.collect();
        assert_eq!(got[..3], [(0, 0xffdf), (0, 0x7fdf), (0, 0x7fde)]);
        assert_eq!((got.len(), &got[got.len() - 2..]), (3 + 13 + 1, &[(0, 0), (1, 0)][..]), "{got:?}");
        let wanted = sent.iter().filter(|message| matches!(message, Message::Want { .. })).count();
        assert_eq!(wanted, 2, "the file, and the chunk of which a block was wrong");
        assert!(fs::read(folder.path().join("file")).unwrap() == [&content[..], b"end"].concat());
    }

    #[test]
    fn a_hole_takes_the_place_of_blocks_and_a_sender_that_begins_too_many_chunks_is_refused() {
        let (size, sevens) = (CHUNK as u64, vec![7; BLOCK]);
        let bench = Bench::new(None);
        bench.file("file", size).unwrap();
        bench.file("other", 2 * size).unwrap();
        bench.block([0, 0], 3, size, &sevens).unwrap();
        bench.receiver.handle(data(0, 0, 0, chunk_hash(ByteCount::new(size), 0, &ZEROS), b"")).unwrap();
        assert!(fs::read(bench.folder.path().join("file")).unwrap() == ZEROS);
        assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 0);
        bench.block([1, 0], 3, 2 * size, &sevens).unwrap();
        bench.receiver.begun.store(MAX_BEGUN, Ordering::Relaxed);
        assert!(matches!(bench.block([1, 1], 0, 2 * size, &sevens), Err(CopyError::Protocol(_))));
    }

    #[test]
    fn a_sender_that_lies_is_refused() {
        let bench = Bench::new(Some(&["asked"]));
        bench.file("asked", 5).unwrap();
        let protocol = |result| assert!(matches!(result, Err(CopyError::Protocol(_))), "{result:?}");
        protocol(bench.file("other", 5));
        protocol(bench.file("asked", 5));
        protocol(bench.file("asked/x", u64::MAX));
        protocol(bench.data(0, 0, 6, b"longer"));
        protocol(bench.data(0, 1, 5, b"right"));
        protocol(bench.block([0, 0], 1, 5, b"right"));
        protocol(bench.block([0, 0], 255, 5, b"right"));
        protocol(bench.receiver.handle(data(0, 0, 1, [0; 32], b"")));
        protocol(bench.data(9, 0, 5, b"right"));
        protocol(bench.receiver.handle(Message::Begin { single: true, content: false }));
        protocol(bench.receiver.handle(Message::Finished));
        bench.receiver.handle(Message::EndOfList { complete: true }).unwrap();
        protocol(bench.file("asked/late", 5));
        assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_written_through_a_link_that_was_sent_or_put_there() {
        let outside = tempfile::tempdir().unwrap();
        let bench = Bench::new(None);
        let target = outside.path().as_os_str().as_bytes().to_vec();
        bench.entry("link", EntryKind::SymbolicLink { target }).unwrap();
        bench.file("link/file", 5).unwrap();
        bench.entry("folder", EntryKind::Folder { mode: 0o755, modified: ModificationTime::default() }).unwrap();
        bench.file("folder/file", 5).unwrap();
        fs::rename(bench.folder.path().join("folder"), bench.folder.path().join("moved")).unwrap();
        symlink(outside.path(), bench.folder.path().join("folder")).unwrap();
        bench.file("reset", 1).unwrap();
        bench.data(1, 0, 5, b"right").unwrap();
        bench.data(2, 0, 1, b"1").unwrap();
        let first = EntryPath::new("link/secret").unwrap();
        bench.entry("hard", EntryKind::HardLink { first }).unwrap();
        let (sent, folder) = bench.end();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(matches!(outcomes(&sent)[..], [(0, Outcome::Failed(_)), .., (2, Outcome::Copied(_))]), "{sent:?}");
        let problems = sent.iter().filter(|message| matches!(message, Message::Unreadable { .. })).count();
        assert!(problems >= 2, "the second name, and the attributes of the folder: {sent:?}");
        assert!(!folder.path().join("hard").exists());
    }

    #[test]
    fn folders_links_and_what_is_deleted() {
        let bench = Bench::new(None);
        let old = bench.folder.path().join("old/deep");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("file"), "old").unwrap();
        let modified = ModificationTime { seconds: 99, nanoseconds: 5 };
        bench.entry("a", EntryKind::Folder { mode: 0o555, modified }).unwrap();
        bench.file("a/empty", 0).unwrap();
        bench.entry("a/link", EntryKind::SymbolicLink { target: b"empty".to_vec() }).unwrap();
        bench.entry("b", EntryKind::HardLink { first: EntryPath::new("a/empty").unwrap() }).unwrap();
        let (sent, folder) = bench.end();
        let at = |path: &str| fs::symlink_metadata(folder.path().join(path)).unwrap();
        assert_eq!((at("a").mode() & 0o777, at("a").mtime(), at("a").mtime_nsec()), (0o555, 99, 5));
        assert_eq!((at("b").ino(), at("b").nlink()), (at("a/empty").ino(), 2));
        assert_eq!(fs::read_link(folder.path().join("a/link")).unwrap(), Path::new("empty"));
        assert!(!folder.path().join("old").exists());
        assert!(sent.iter().any(|message| matches!(message, Message::Deleted { path } if path.as_bytes() == b"old")));
        assert_eq!(sent.last(), Some(&Message::Finished));
    }
}

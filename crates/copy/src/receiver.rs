//! The end that writes files: it decides what it wants, verifies what comes, and gives a file its
//! name when it is complete.

mod arriving;
mod complete;
mod deletion;
mod dry_run;
mod entries;
mod listed;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fullpipe_control::BlockDecompressor;
use fullpipe_units::ByteCount;

use self::complete::ArrivedFile;
use self::listed::ReceivedList;
pub(crate) use self::listed::{
    ListedFolder, MAX_ENTRIES, MAX_LIST, PathHash, SECOND_NAME, WAITING_FILE, list_too_long,
    path_hash,
};
use crate::attributes::HeldAttributes;
use crate::common::TransferContext;
use crate::data_stream::DataConnections;
use crate::options::{CopyError, CopyEvent};
use crate::packing::CodecPool;
use crate::part::PartialFile;
use crate::protocol::{
    ChunkBlocks, CopyMessage, CopyRequest, EntryKind, EntryPath, ExcludePatterns,
    ExtendedAttributes, FileChunks, FileIdentity, FileOutcome, ModificationTime, TreeEntry,
    VerifiedChunks,
};
use crate::root::{FolderRoot, folder_of};
use crate::shared::{SharedFlag, SharedNumber};
use crate::tree::FolderTree;
use fullpipe_sys::{lock, start_thread};

/// Writes files.
pub(crate) struct FileReceiver {
    pub common: TransferContext,
    pub options: ReceiveOptions,
    pub place: OnceLock<CopyDestination>,
    incoming: Mutex<HashMap<u32, Arc<IncomingFile>>>,
    held: HeldAttributes,
    /// Files that wait for the thread that completes those of the messages; `None` if there is no
    /// such thread.
    whole: Mutex<Option<VecDeque<ArrivedFile>>>,
    files: AtomicU32,
    corrupt: SharedNumber,
    decompressors: CodecPool<BlockDecompressor>,
    /// Chunks that are there in part.
    begun: AtomicUsize,
    /// The time until which this transfer waits for others that hold its files.
    waits_until: OnceLock<Instant>,
    /// The destination's file system has no locks, which was said.
    lacks_locks: SharedFlag,
    pub list: Mutex<ReceivedList>,
    /// Changes of `list` and `incoming` for the thread that waits for the end.
    pub changed: Condvar,
    /// Nanoseconds that connections spent on verifying and writing.
    working: SharedNumber,
}

/// The rules of a receiver.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ReceiveOptions {
    pub root: FolderRoot,
    pub path: PathBuf,
    pub dry_run: bool,
    pub delete: bool,
    pub excludes: ExcludePatterns,
    /// Every file is read back from its disk.
    pub verify_disk: bool,
    /// Extended attributes and access lists are kept.
    pub attributes: bool,
    /// Time after which an end that receives nothing gives up.
    pub timeout: Duration,
    /// The names that were asked for at the top; any if absent.
    pub tops: Option<Vec<Vec<u8>>>,
}

impl ReceiveOptions {
    /// Returns what `request` says of the end that receives, at this place.
    pub(crate) fn from_request(
        request: &CopyRequest,
        (root, path): (FolderRoot, PathBuf),
        timeout: Duration,
    ) -> Self {
        Self {
            root,
            path,
            dry_run: request.dry_run,
            delete: request.delete,
            excludes: ExcludePatterns::new(request.excludes.iter().map(Vec::as_slice)),
            verify_disk: request.verify_disk,
            attributes: request.attributes,
            timeout,
            tops: None,
        }
    }
}

/// The folder that is written to.
pub(crate) struct CopyDestination {
    /// `None` in a dry run, if it does not exist.
    pub tree: Option<FolderTree>,
    /// The name of a single file that gets another one.
    name: Option<EntryPath>,
    /// True if the folder takes the content of a folder of the sender, and so mirrors that folder.
    takes_content: bool,
}

/// A file of which chunks are wanted.
struct IncomingFile {
    number: u32,
    path: EntryPath,
    mode: u16,
    modified: ModificationTime,
    size: ByteCount,
    identity: FileIdentity,
    attributes: Option<Arc<ExtendedAttributes>>,
    state: Mutex<IncomingState>,
}

struct IncomingState {
    /// Most files have none while the list is ahead of the data.
    part: Option<Box<PartialFile>>,
    verified: VerifiedChunks,
    /// The chunks that are there in part.
    begun: HashMap<u32, ChunkBlocks>,
    is_closed: bool,
}

impl IncomingFile {
    /// Returns the bytes of memory that it takes.
    fn memory_bytes(&self) -> u64 {
        listed::WAITING_FILE + self.path.as_bytes().len() as u64
    }
}

impl IncomingState {
    fn new(size: ByteCount) -> Mutex<Self> {
        Mutex::new(Self {
            part: None,
            verified: VerifiedChunks::new(size),
            begun: HashMap::new(),
            is_closed: false,
        })
    }
}

impl FileReceiver {
    pub(crate) fn new(common: TransferContext, options: ReceiveOptions) -> Self {
        Self {
            common,
            options,
            place: OnceLock::new(),
            incoming: Mutex::default(),
            held: HeldAttributes::default(),
            whole: Mutex::default(),
            files: AtomicU32::new(0),
            corrupt: SharedNumber::default(),
            decompressors: CodecPool::default(),
            begun: AtomicUsize::new(0),
            waits_until: OnceLock::new(),
            lacks_locks: SharedFlag::default(),
            list: Mutex::default(),
            changed: Condvar::new(),
            working: SharedNumber::default(),
        }
    }

    /// Starts to receive on each connection.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start_receiving(
        self: &Arc<Self>,
        connections: DataConnections,
    ) -> io::Result<()> {
        for mut stream in connections.streams {
            if self.common.bounds.scavenge {
                stream.acknowledge_at_once();
            }
            self.start_stream(stream, false)?;
        }
        if let Some((connection, streams)) = connections.quic {
            if let Some(why) = connection.lacks_buffer() {
                self.common.send_note(why);
            }
            for stream in connection.stream_readers(streams) {
                self.start_stream(stream, true)?;
            }
        }
        Ok(())
    }

    fn start_stream(
        self: &Arc<Self>,
        stream: impl Read + Send + 'static,
        may_not_begin: bool,
    ) -> io::Result<()> {
        let receiver = Arc::clone(self);
        start_thread("copy-receive", move || {
            receiver.receive_stream(stream, may_not_begin);
        })
        .map(drop)
    }

    /// Returns the time that all connections together spent on verifying and writing, in seconds.
    pub(crate) fn work_seconds(&self) -> f64 {
        self.working.current_value() as f64 / 1e9
    }

    /// Carries out what the sender says.
    ///
    /// # Errors
    /// Fails if it breaks the rules or gives up, or the destination cannot be used at all.
    pub(crate) fn handle_message(
        self: &Arc<Self>,
        message: CopyMessage<'_>,
    ) -> Result<(), CopyError> {
        match message {
            CopyMessage::Begin { single, content } => self.open_destination(single, content)?,
            CopyMessage::Entry(entry) => self.add_entry(entry)?,
            CopyMessage::EndOfList { complete } => {
                lock(&self.list).end = Some(complete);
                self.changed.notify_all();
            }
            CopyMessage::Unreadable {
                file: u32::MAX,
                why,
            } => self.common.report_unreadable(why),
            CopyMessage::Unreadable { file, why } => self.fail_file(file, why),
            CopyMessage::Again { file, entry } => self.restart_file(file, entry)?,
            CopyMessage::Note { text } => self.common.send_note(text),
            CopyMessage::Data { header, content } => {
                if let Some(whole) = self.take_block(&header, &mut content.to_vec())? {
                    self.complete_apart(whole);
                }
            }
            CopyMessage::Refused { code, why } => return Err(CopyError::Refused { code, why }),
            _ => {
                return Err(CopyError::from_rule(
                    "a sender sent what only a receiver may",
                ));
            }
        }
        Ok(())
    }

    /// Opens the destination: a folder, or the folder of a single file that gets another name.
    fn open_destination(&self, single: bool, content: bool) -> Result<(), CopyError> {
        let path = &self.options.path;
        let bytes = path.as_os_str().as_bytes();
        let is_folder = self.options.root.is_folder(path) || bytes.ends_with(b"/");
        let place = match path.file_name() {
            Some(name) if single && !is_folder => self.open_file_place(name),
            _ => self.open_folder_place(content),
        };
        self.place
            .set(place.map_err(CopyError::from_path(bytes))?)
            .map_err(|_| CopyError::from_rule("the list begins twice"))
    }

    /// Opens the folder of a single file that gets this name.
    fn open_file_place(&self, name: &OsStr) -> io::Result<CopyDestination> {
        let ReceiveOptions { root, path, .. } = &self.options;
        let name = EntryPath::new(name.as_bytes()).map_err(io::Error::other)?;
        let tree = root.open_tree(folder_of(path))?;
        root.check_name(&tree, &name)?;
        Ok(CopyDestination {
            tree: Some(tree),
            name: Some(name),
            takes_content: false,
        })
    }

    /// Opens the folder of the copy, and makes it before if it is not there.
    fn open_folder_place(&self, content: bool) -> io::Result<CopyDestination> {
        let ReceiveOptions {
            root,
            path,
            dry_run,
            ..
        } = &self.options;
        if !dry_run && !root.is_folder(path) {
            root.make_folder(path)?;
        }
        let tree = match root.open_tree(path) {
            Err(error) if *dry_run && error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        // A far end that was asked for names at the top has no folder whose content this one would
        // mirror.
        Ok(CopyDestination {
            tree,
            name: None,
            takes_content: content && self.options.tops.is_none(),
        })
    }

    /// Takes an entry of the list.
    fn add_entry(self: &Arc<Self>, mut entry: TreeEntry) -> Result<(), CopyError> {
        let place = self
            .place
            .get()
            .ok_or_else(|| CopyError::from_rule("an entry comes before the list"))?;
        self.list_path(place, &mut entry.path)?;
        if self.options.delete
            && let Some(tree) = &place.tree
        {
            self.make_room(tree, &entry);
        }
        let attributes = self.hold_attributes(&entry.path, entry.attributes);
        match entry.kind {
            EntryKind::Folder { mode, modified } => {
                if self.make_folder(place, &entry.path, attributes.as_deref()) {
                    lock(&self.list).keep_folder(&entry.path, mode, modified, attributes)?;
                }
            }
            EntryKind::SymbolicLink { target } => self.symbolic_link(place, &entry.path, &target),
            EntryKind::HardLink { first } => lock(&self.list).keep_link(&entry.path, &first)?,
            // Its path was noted: what has it is not deleted.
            EntryKind::LeftOut => self.common.tally.leave_out(&entry.path),
            EntryKind::File {
                mode,
                modified,
                size,
                identity,
            } => {
                let file = IncomingFile {
                    number: self.files.fetch_add(1, Ordering::Relaxed),
                    path: entry.path,
                    mode,
                    modified,
                    size,
                    identity,
                    attributes,
                    state: IncomingState::new(size),
                };
                self.add_file(place, file)?;
            }
        }
        Ok(())
    }

    fn add_file(
        self: &Arc<Self>,
        place: &CopyDestination,
        file: IncomingFile,
    ) -> Result<(), CopyError> {
        if FileChunks::from_size(file.size).is_none() {
            let why = format!("{} has an impossible size", file.path);
            return Err(CopyError::Protocol(why));
        }
        lock(&self.list).take_memory(file.memory_bytes())?;
        self.decide_file(place, Arc::new(file));
        Ok(())
    }

    /// Adds the path of an entry to the list, under the name that it gets here.
    ///
    /// # Errors
    /// Fails if nobody asked for it, or it comes twice or too late.
    fn list_path(&self, place: &CopyDestination, path: &mut EntryPath) -> Result<(), CopyError> {
        if let Some(tops) = &self.options.tops
            && !tops.iter().any(|top| top == path.first_name())
        {
            let why = format!("it sent {path}, which nobody asked for");
            return Err(CopyError::Protocol(why));
        }
        if let Some(name) = &place.name {
            path.clone_from(name);
        }
        let mut list = lock(&self.list);
        if list.end.is_some() {
            return Err(CopyError::from_rule("an entry comes after the list"));
        }
        if !list.add_path(path)? {
            return Err(CopyError::Protocol(format!("it sent {path} twice")));
        }
        Ok(())
    }

    fn abort_transfer(&self, error: CopyError) {
        self.common.abort_transfer(error);
        self.changed.notify_all();
    }

    fn request_chunk(&self, file: u32, chunk: u32) {
        self.common.out.send_message(&CopyMessage::Want {
            file,
            chunks: FileChunks {
                first: chunk,
                count: 1,
            },
        });
    }

    /// Gives a file up.
    fn fail_file(&self, number: u32, why: String) {
        let Some(file) = lock(&self.incoming).get(&number).cloned() else {
            return;
        };
        if self.close_file(&file) {
            self.settle_file(&file, FileOutcome::Failed(why));
        }
    }

    fn settle_file(&self, file: &IncomingFile, outcome: FileOutcome) {
        self.report_outcome(file, outcome);
        self.remove_incoming(file.number);
    }

    fn remove_incoming(&self, number: u32) {
        lock(&self.incoming).remove(&number);
        // The one who waits reads both under this lock.
        drop(lock(&self.list));
        self.changed.notify_all();
    }

    fn report_outcome(&self, file: &IncomingFile, outcome: FileOutcome) {
        lock(&self.list).free_memory(file.memory_bytes());
        if self.common.events.is_some() {
            self.common
                .count_outcome(&file.path, file.size.get(), &outcome);
        }
        self.common.out.send_message(&CopyMessage::Outcome {
            file: file.number,
            outcome,
        });
    }

    /// Notes an entry that is no file and cannot be made.
    pub(crate) fn report_problem(&self, path: &dyn Display, why: &dyn Display) {
        self.common.report_unreadable(format!("{path}: {why}"));
    }

    /// Reports that something was deleted, or would be.
    fn report_deleted(&self, path: EntryPath) {
        if self.common.events.is_some() {
            self.common.tally.deleted.increase_by(1);
            self.common.send_event(CopyEvent::Deleted(path));
        } else {
            self.common.out.send_message(&CopyMessage::Deleted { path });
        }
    }

    /// Returns true once everything is done, and the sender knows.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.list).is_over
    }

    /// Returns true if nothing more is to come.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.incoming).is_empty()
    }
}

#[cfg(test)]
mod tests;

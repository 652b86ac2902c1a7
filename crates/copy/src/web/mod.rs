//! A file of a web server, in ranges on as many connections as the path needs.
//!
//! What has come is kept chunk by chunk, as of a copy between two fullpipes, and continued only
//! if the server shows that the file is the same one still: by a strong entity tag, or by the time
//! of its last change. A file that changes meanwhile is begun anew, once; states are never mixed.

mod connection;
mod ftp;
mod opened;
mod ranged;
mod watch;
mod whole;

use std::ffi::OsStr;
use std::io::{self, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender as EventSender;
use std::time::{Duration, Instant};

use fullpipe_record::{CopyLimit, CopyTransport, HostSettings};
use fullpipe_units::{ByteCount, Span, count_noun};
use rustix::fs::{FileType, Mode, fstat, fsync};

use self::connection::{FetchFailure, WebClient, WebConnection};
use self::opened::{FileAccess, OpenedFile, file_identity};
use self::ranged::{RangedFile, RangedState};
use self::watch::{SocketWatch, copy_limit};
use crate::bounds::{CopyBounds, RatePace};
use crate::common::CopyCounts;
use crate::http::{ConnectionGrowth, DigestAlgorithm, FileDigest, Validator, WebUrl};
use crate::options::{CopyError, CopyEvent, CopyOptions, CopyPath, CopyResult, DataTransport};
use crate::part::{PartialFile, has_left_data, recover_chunks, remove_left};
use crate::protocol::{CHUNK, Digest, EntryPath, FileIdentity, ModificationTime, VerifiedChunks};
use crate::report::{DataRoute, copy_report};
use crate::root::{FolderRoot, folder_of};
use crate::session::own_settings;
use crate::shared::SharedFlag;
use crate::summary::Figures;
use crate::tree::{FolderTree, check_replaceable, file_type, modification_time, permission_bits};
use crate::tuning::initial_connections;

/// Connections at most.
const MAX_CONNECTIONS: usize = 64;

/// Connections at first, at least: a loss makes the window of only one smaller.
const MIN_CONNECTIONS: u16 = 4;

/// What follows where ranges cannot be joined.
const ON_ONE_CONNECTION: &str =
    ": one connection carries the file, and an interrupted copy begins anew";

/// Bytes that are received at once at most, where a rate is kept.
const PACED: usize = 16 << 10;

/// A copy of a file of a web server.
pub(crate) struct WebCopy {
    options: CopyOptions,
    url: WebUrl,
    client: WebClient,
    bounds: CopyBounds,
    tally: Arc<CopyCounts>,
    events: EventSender<CopyEvent>,
    stop: Arc<SharedFlag>,
    watch: SocketWatch,
    own: HostSettings,
}

/// The place of a file at this end.
struct PlacedFile {
    tree: FolderTree,
    name: EntryPath,
    /// Permissions that it gets.
    mode: Mode,
}

/// A file that has come, but for its name.
struct ArrivedFile {
    part: PartialFile,
    digest: Digest,
    size: ByteCount,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is a function of `map_err`"
)]
fn not_written(error: io::Error) -> FetchFailure {
    FetchFailure::Final(format!("it cannot be written: {error}"))
}

impl WebCopy {
    /// Returns the URL of a copy from a web server; `None` if it is one between two fullpipes.
    ///
    /// # Errors
    /// Fails if what is asked for fits no web server.
    pub(crate) fn url_of(options: &CopyOptions) -> Result<Option<WebUrl>, CopyError> {
        let refused = |why| Err(CopyError::Places(why));
        let is_web = |place: &&CopyPath| matches!(place, CopyPath::Web(_));
        if is_web(&&options.destination) {
            return refused("copies go from a web server, never to it");
        }
        match options.sources.as_slice() {
            [CopyPath::Web(_)] if !matches!(options.destination, CopyPath::Near(_)) => {
                refused("a file of a web server is copied to this host: name a path here")
            }
            [CopyPath::Web(_)] if options.delete || options.scavenge || options.attributes => {
                refused("a web server knows none of --delete, --scavenge and --attributes")
            }
            [CopyPath::Web(_)] if options.transport == DataTransport::Quic => {
                refused("files of web servers come by TCP: leave out --transport quic")
            }
            [CopyPath::Web(url)] => Ok(Some(url.clone())),
            sources if sources.iter().any(|source| is_web(&source)) => {
                refused("a copy from a web server has one URL")
            }
            _ if options.digest.is_some() => refused("--digest is for a file of a web server"),
            _ => Ok(None),
        }
    }

    /// Returns a copy of the file at `url`, which ends when `stop` is set.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub(crate) fn new(
        options: CopyOptions,
        url: WebUrl,
        tally: Arc<CopyCounts>,
        events: EventSender<CopyEvent>,
        stop: Arc<SharedFlag>,
    ) -> Result<Self, CopyError> {
        let client = WebClient::new(options.timeout.into())
            .map_err(|error| CopyError::from_io("cannot set up TLS")(io::Error::other(error)))?;
        let paces = options.limit.map(RatePace::new).map(Arc::new);
        Ok(Self {
            options,
            url,
            client,
            bounds: CopyBounds::new(paces.into_iter().collect(), None),
            tally,
            events,
            stop,
            watch: SocketWatch::new(),
            own: own_settings(),
        })
    }

    /// Copies the file.
    ///
    /// # Errors
    /// Fails if it does not come whole, or cannot be put in its place.
    pub(crate) fn run_copy(&self) -> CopyResult {
        let began = Instant::now();
        let place = self.open_place()?;
        let copied = match self.copy_once(place.as_ref()) {
            Err(FetchFailure::Changed) => {
                self.send_note(
                    "the file at the server has changed during the copy: what had come is thrown \
                     away, and it begins anew"
                        .to_owned(),
                );
                self.copy_once(place.as_ref())
            }
            copied => copied,
        };
        let file = copied.map_err(|failure| self.to_error(failure))?;
        Ok(self.to_report(&file, began))
    }

    fn to_error(&self, failure: FetchFailure) -> CopyError {
        if self.is_stopped() {
            return CopyError::Interrupted;
        }
        let why = match failure {
            FetchFailure::Broken(why) | FetchFailure::Final(why) => why,
            FetchFailure::Busy(status, _) => format!("the server answers {status}"),
            FetchFailure::Changed => {
                "the file at the server changes again and again: it is not copied".to_owned()
            }
        };
        CopyError::Web {
            url: self.url.as_str().to_owned(),
            why,
        }
    }

    fn copy_once(&self, place: Option<&PlacedFile>) -> Result<OpenedFile, FetchFailure> {
        let (file, connection) = OpenedFile::open(self)?;
        let access = file.file_access()?;
        if self.is_settled(&file, place)? {
            return Ok(file);
        }
        let Some(place) = place else { return Ok(file) };
        let can_continue = matches!(access, FileAccess::Ranges(..));
        let (file, arrived) = self.fetch_file(file, access, place, connection)?;
        let unchanged = self.check_unchanged(&file);
        // Where the server did not tell, the next run continues with what has come.
        let is_kept = can_continue
            && matches!(&unchanged, Err(failure) if !matches!(failure, FetchFailure::Changed));
        let checked = unchanged.and_then(|()| self.check_digests(&file, &arrived));
        if let Err(failure) = checked {
            drop(arrived);
            if !is_kept {
                remove_left(&place.tree, &place.name).map_err(not_written)?;
                self.tally.verified.set_value(0);
            }
            return Err(failure);
        }
        self.finish(&file, arrived, place)?;
        Ok(file)
    }

    fn fetch_file(
        &self,
        file: OpenedFile,
        access: FileAccess,
        place: &PlacedFile,
        connection: WebConnection,
    ) -> Result<(OpenedFile, ArrivedFile), FetchFailure> {
        match access {
            FileAccess::Ranges(size, validator) => {
                let arrived = self.get_ranges(&file, (size, &validator), place, connection)?;
                Ok((file, arrived))
            }
            FileAccess::Whole => {
                self.send_note(format!("the server sends no ranges{ON_ONE_CONNECTION}"));
                self.get_whole(file, place, connection)
            }
            FileAccess::WholeAgain => {
                drop(connection);
                let (file, connection) = file.open_whole(self)?;
                if file.head.file_length() != Some(0) {
                    self.send_note(format!(
                        "the server shows by no strong validator which state of the file it \
                         sends{ON_ONE_CONNECTION}"
                    ));
                }
                self.get_whole(file, place, connection)
            }
        }
    }

    /// Returns true if nothing is to be done: the file is there, or this is a dry run.
    fn is_settled(
        &self,
        file: &OpenedFile,
        place: Option<&PlacedFile>,
    ) -> Result<bool, FetchFailure> {
        let found = place.map(|place| place.tree.stat_path(&place.name));
        let found = found.transpose().map_err(not_written)?.flatten();
        if let Some(stat) = &found {
            check_replaceable(stat).map_err(not_written)?;
        }
        let same = found.filter(|stat| {
            file_type(stat) == FileType::RegularFile
                && file.head.file_length() == Some(stat.st_size as u64)
                && file.modified() == Some(modification_time(stat))
        });
        if same.is_some() && self.options.digest.is_none() {
            self.tally.present.increase_by(1);
            return Ok(true);
        }
        if self.options.dry_run {
            let size = file.head.file_length().unwrap_or_default();
            self.tally.files.increase_by(1);
            self.tally.bytes.increase_by(size);
        }
        Ok(self.options.dry_run)
    }

    fn get_ranges(
        &self,
        file: &OpenedFile,
        (size, validator): (ByteCount, &Validator),
        place: &PlacedFile,
        connection: WebConnection,
    ) -> Result<ArrivedFile, FetchFailure> {
        let identity = file_identity(&self.url, size, validator);
        let (part, verified) = self.open_part(place, size, identity).map_err(not_written)?;
        let missing = size.saturating_sub(verified.verified_bytes());
        self.tally.wanted.set_value(missing.get());
        let mut first = Some(connection);
        let mut state = (part, verified);
        loop {
            let download = RangedFile::new(self, file, (size, validator), state.0, state.1);
            let (came, ended) = download.download(first.take());
            let RangedState {
                mut part,
                mut verified,
                ..
            } = came;
            if let Err(failure) = ended {
                if matches!(failure, FetchFailure::Changed) {
                    part.discard_data();
                    self.tally.verified.set_value(0);
                }
                return Err(failure);
            }
            if self.options.verify_disk {
                part.wrong_on_disk(&mut verified).map_err(not_written)?;
            }
            if let Some(digest) = verified.file_digest() {
                return Ok(ArrivedFile { part, digest, size });
            }
            state = (part, verified);
        }
    }

    /// Opens what an earlier run has left of this state of the file, or begins anew.
    fn open_part(
        &self,
        place: &PlacedFile,
        size: ByteCount,
        identity: FileIdentity,
    ) -> io::Result<(PartialFile, VerifiedChunks)> {
        let (tree, name) = (&place.tree, &place.name);
        let had_left = has_left_data(tree, name)?;
        let mut verified = recover_chunks(tree, name, size, identity)?;
        if had_left && verified.verified_bytes() == ByteCount::ZERO {
            self.send_note(
                "what an earlier run has left is of another state of the file, or nothing whole: \
                 it begins anew"
                    .to_owned(),
            );
        }
        let (part, _) = PartialFile::open_part(tree, name, size, identity, &mut verified)?;
        Ok((part, verified))
    }

    fn get_whole(
        &self,
        file: OpenedFile,
        place: &PlacedFile,
        connection: WebConnection,
    ) -> Result<(OpenedFile, ArrivedFile), FetchFailure> {
        if let Some(length) = file.head.file_length() {
            self.tally.wanted.set_value(length);
        }
        let mut arrived = self.receive_whole(place, connection)?;
        if self.options.verify_disk {
            let mut none = VerifiedChunks::new(ByteCount::ZERO);
            arrived.part.wrong_on_disk(&mut none).map_err(not_written)?;
        }
        Ok((file, arrived))
    }

    /// Fails if a file at an FTP server has changed since it was opened, where the server tells the
    /// time of its last change. A web server shows it with each range.
    fn check_unchanged(&self, file: &OpenedFile) -> Result<(), FetchFailure> {
        if !file.url.is_ftp() || file.head.last_modified.is_none() {
            return Ok(());
        }
        let mut connection = self.client.connect(&file.url, Some(file.address))?;
        let head = connection.request(&file.url, Some((0, 0)), None)?;
        let is_same = head.file_length() == file.head.file_length()
            && head.last_modified == file.head.last_modified;
        is_same.then_some(()).ok_or(FetchFailure::Changed)
    }

    /// Fails if the file does not have the digests that the server and the user state.
    fn check_digests(&self, file: &OpenedFile, arrived: &ArrivedFile) -> Result<(), FetchFailure> {
        let of_user = self
            .options
            .digest
            .iter()
            .map(|digest| (digest, "--digest"));
        let of_server = file
            .head
            .digests
            .iter()
            .map(|digest| (digest, "the server"));
        for (digest, who) in of_user.chain(of_server) {
            if !has_digest(arrived, digest).map_err(not_written)? {
                return Err(FetchFailure::Final(format!(
                    "what has come does not have the digest {digest}, which {who} states; nothing \
                     of it is kept"
                )));
            }
            self.send_note(format!("{digest} is right, as {who} states"));
        }
        Ok(())
    }

    fn finish(
        &self,
        file: &OpenedFile,
        arrived: ArrivedFile,
        place: &PlacedFile,
    ) -> Result<(), FetchFailure> {
        let ArrivedFile {
            mut part,
            digest,
            size,
        } = arrived;
        part.make_durable().map_err(not_written)?;
        let stat = fstat(part.file()).map_err(|error| not_written(error.into()))?;
        let modified: ModificationTime =
            file.modified().unwrap_or_else(|| modification_time(&stat));
        part.finish_file(place.mode.bits() as u16, modified)
            .map_err(not_written)?;
        let folder = place
            .tree
            .open_folder(None)
            .and_then(|folder| Ok(fsync(folder)?));
        if let Err(error) = folder {
            self.send_note(format!(
                "a loss of power may take the name of the file: {error}"
            ));
        }
        self.tally.count_copied(size.get(), digest);
        Ok(())
    }

    /// Returns the place of the file; `None` in a dry run to a folder that is not there.
    fn open_place(&self) -> Result<Option<PlacedFile>, CopyError> {
        let CopyPath::Near(path) = &self.options.destination else {
            return Ok(None);
        };
        let bytes = path.as_os_str().as_bytes();
        let is_folder = path.is_dir() || bytes.ends_with(b"/");
        let placed = match path.file_name() {
            Some(name) if !is_folder => self.place_in(folder_of(path), Some(name)),
            _ => self.place_in(path, None),
        };
        placed.map_err(CopyError::from_path(bytes))
    }

    fn place_in(&self, folder: &Path, name: Option<&OsStr>) -> io::Result<Option<PlacedFile>> {
        let name = match name {
            Some(name) => EntryPath::new(name.as_bytes()).map_err(io::Error::other)?,
            None => self.url.file_name().map_err(io::Error::other)?,
        };
        if !folder.is_dir() && self.options.dry_run {
            return Ok(None);
        }
        if !folder.is_dir() {
            FolderRoot::User.make_folder(folder)?;
        }
        let tree = FolderTree::open_root(folder)?;
        let stat = tree.stat_path(&name)?;
        let replaced = stat.filter(|stat| file_type(stat) == FileType::RegularFile);
        let mode = replaced.map_or_else(usual_mode, |stat| permission_bits(&stat));
        Ok(Some(PlacedFile { tree, name, mode }))
    }

    /// Takes a connection among those that are watched, and ended if the copy is; `None` if that
    /// has happened.
    fn watch_connection(&self, connection: WebConnection) -> Option<(u16, WebConnection)> {
        let socket = connection.socket.try_clone().ok()?;
        let stream = self.watch.add_socket(socket, connection.rtt);
        Some((stream, connection))
    }

    fn connection_growth(&self, rtt: Span) -> ConnectionGrowth {
        if let Some(asked) = self.options.streams {
            return ConnectionGrowth::new(asked.into(), asked.into());
        }
        // Those of the server are not known; most are a usual Linux.
        let first = initial_connections(rtt, &HostSettings::of_linux_6_18(), &self.own);
        ConnectionGrowth::new(first.max(MIN_CONNECTIONS).into(), MAX_CONNECTIONS)
    }

    /// Returns the time without progress after which the copy gives up: a connection that is
    /// silent for the user's timeout is replaced once.
    fn patience(&self) -> Duration {
        self.client.timeout * 2
    }

    fn receive_at_once(&self) -> usize {
        if self.options.limit.is_some() {
            PACED
        } else {
            CHUNK
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_raised()
    }

    fn send_note(&self, text: String) {
        let _ = self.events.send(CopyEvent::Note(text));
    }

    fn to_report(&self, file: &OpenedFile, began: Instant) -> fullpipe_record::CopyReport {
        let set_up = file.answered_at.duration_since(began);
        let carriers = self.watch.carrier_count();
        let way = DataRoute {
            transport: CopyTransport::Tcp,
            rtt: Some(self.watch.shortest_rtt().unwrap_or(file.rtt)),
            reason: format!("{} to {}", count_noun(carriers, "connection"), file.address),
            streams: carriers,
            set_up,
        };
        let duration = began.elapsed();
        let limit = self.limit_after(duration.saturating_sub(set_up));
        copy_report(
            &self.options,
            &self.tally,
            way,
            Figures::default(),
            limit,
            duration,
        )
    }

    /// Returns the limit of a copy whose data came for so long, and tells the user what this end
    /// has seen of it.
    fn limit_after(&self, duration: Duration) -> Option<CopyLimit> {
        let received = ByteCount::new(self.tally.verified.current_value());
        if received == ByteCount::ZERO {
            return None;
        }
        if self.bounds.waited_time() > duration / 2 {
            return Some(CopyLimit::RateLimit);
        }
        let verdict = self.watch.judge_transfer(&self.own)?;
        self.send_note(format!("seen from here: {}", verdict.sentence));
        copy_limit(&verdict)
    }
}

/// Returns the permissions of a new file of this process.
fn usual_mode() -> Mode {
    let withheld = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(withheld);
    (Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH) - withheld
}

fn has_digest(arrived: &ArrivedFile, digest: &FileDigest) -> io::Result<bool> {
    if digest.algorithm() == DigestAlgorithm::Blake3 {
        return Ok(digest.is_equal(&arrived.digest));
    }
    let mut file = arrived.part.file();
    file.rewind()?;
    digest.is_of(&mut file)
}

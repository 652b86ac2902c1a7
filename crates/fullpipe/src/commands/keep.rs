//! Results are kept in the archive, once there is one. A measurement never fails because of that.

use std::ffi::OsStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use fullpipe_store::{
    ArchiveLocation, DocumentFilter, KeptDocument, NewDocument, Store, StoreError,
};
use jiff::Timestamp;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::prelude::*;
use super::state::user_folder;

/// Variable of the environment that names an archive.
pub(super) const VARIABLE: &str = "FULLPIPE_STORE";

/// Time for an archive to answer after a request to end the program.
const GRACE: Duration = Duration::from_secs(1);

/// Interval of the checks for such a request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The archive of a command that measures.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Archive")]
pub(crate) struct KeepArguments {
    #[command(flatten)]
    place: PlaceArgument,
    /// Keep the result in no archive
    #[arg(long, conflicts_with = "store", hide_short_help = true)]
    pub(crate) no_store: bool,
}

/// The place of the archive.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Archive")]
pub(crate) struct PlaceArgument {
    /// Archive: a file, or `postgres://USER@HOST/DATABASE`
    ///
    /// The default is the variable `FULLPIPE_STORE`, or else fullpipe/archive.db in the folder for
    /// data of this user. Results are kept in the default file once it exists
    /// (`fullpipe store create`), in a named archive always.
    #[arg(long, value_name = "FILE|URL", global = true, hide_short_help = true, value_parser = PlaceParser)]
    store: Option<ArchiveLocation>,
}

/// Reads the place of an archive. Its error does not repeat the value, which may have a password.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceParser;

impl TypedValueParser for PlaceParser {
    type Value = ArchiveLocation;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<ArchiveLocation, clap::Error> {
        let text = value
            .to_str()
            .ok_or_else(|| StoreError::Location("a text that is not UTF-8".to_owned()));
        text.and_then(str::parse).map_err(|error| {
            let flag = argument.map_or_else(String::new, ToString::to_string);
            let sentence = format!("invalid value for '{flag}': {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, sentence).with_cmd(command)
        })
    }
}

impl PlaceArgument {
    /// Returns the archive that the user has named.
    fn named_location(&self) -> Result<Option<ArchiveLocation>> {
        if self.store.is_some() {
            return Ok(self.store.clone());
        }
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        name.map(|name| Ok(name.parse()?)).transpose()
    }

    /// Returns the archive that the user has named, or that of this user.
    ///
    /// # Errors
    /// Fails if the name is no place for an archive, or if this user has no folder for data.
    pub(crate) fn location(&self) -> Result<ArchiveLocation> {
        match self.named_location()? {
            Some(place) => Ok(place),
            None => data_folder()
                .map(|folder| ArchiveLocation::in_folder(&folder))
                .ok_or_else(|| {
                    usage_failure(format!(
                        "this user has no home for an archive; --store or {VARIABLE} names one"
                    ))
                }),
        }
    }
}

impl KeepArguments {
    /// Makes the archive if there is none, for a command that is of little use without one.
    ///
    /// # Errors
    /// Fails if the archive cannot be opened, or if the user asks for the end of the program
    /// meanwhile.
    pub(crate) fn require_archive(&self) -> Result {
        let place = self.place.location()?;
        run_interruptibly(move || Ok(Store::create(&place).map(drop)?))
    }

    /// Runs `work` on the archive, which must exist, and returns its result.
    ///
    /// # Errors
    /// Fails if there is none, if it cannot be opened, if `work` fails, or if the user asks for the
    /// end of the program meanwhile.
    pub(crate) fn read_archive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let place = self.place.location()?;
        run_interruptibly(move || work(&mut Store::open(&place)?))
    }

    /// Keeps what a command measured, as [`KeepArguments::keep_as_asked`] does. The first result of
    /// a kind that is kept without being asked for is announced: another command may have made the
    /// archive.
    pub(crate) fn keep_document(&self, document: &Document, terminal: &Terminal) {
        if let Some(place) = self.unannounced_location(document) {
            let message = format!(
                "kept in {place}, as all such results are from now on; --no-store keeps none"
            );
            terminal.print_notice(&message);
        }
        self.keep_as_asked(document, terminal);
    }

    /// Returns the archive that is about to get its first result of this kind, although the user
    /// has not named it.
    fn unannounced_location(&self, document: &Document) -> Option<ArchiveLocation> {
        let wanted = self
            .wanted_archive()
            .ok()?
            .filter(|wanted| !wanted.is_named)?;
        let kind = NewDocument::from_document(document, Timestamp::now())
            .into_iter()
            .next()?
            .head
            .kind;
        let filter = DocumentFilter {
            kind: Some(kind),
            limit: Some(1),
            ..DocumentFilter::default()
        };
        let is_first = wanted
            .open()
            .ok()??
            .list_documents(&filter)
            .ok()?
            .is_empty();
        is_first.then_some(wanted.place)
    }

    /// Keeps what a command measured. A user reads of an archive that does not take it, and the
    /// command goes on.
    pub(crate) fn keep_as_asked(&self, document: &Document, terminal: &Terminal) {
        match self.put_document(document) {
            Ok(kept) if kept.is_empty() => {}
            Ok(kept) => tracing::info!("{} kept in the archive", kept.len()),
            Err(failure) => {
                terminal.print_notice(&format!("the result is not kept: {}", failure.message));
            }
        }
    }

    /// Keeps what a command measured, in as many documents as it has scenarios; in none if there is
    /// no archive.
    ///
    /// # Errors
    /// Fails if the archive does not take it, or if the user asks for the end of the program
    /// meanwhile.
    pub(crate) fn put_document(&self, document: &Document) -> Result<Vec<KeptDocument>> {
        let Some(wanted) = self.wanted_archive()? else {
            return Ok(Vec::new());
        };
        let documents = NewDocument::from_document(document, Timestamp::now());
        run_interruptibly(move || {
            let Some(mut store) = wanted.open()? else {
                return Ok(Vec::new());
            };
            Ok(documents
                .iter()
                .map(|new| store.put_document(new))
                .collect::<Result<_, _>>()?)
        })
    }

    /// Returns the archive that results are to be kept in; `None` if they are to be kept in none.
    fn wanted_archive(&self) -> Result<Option<WantedArchive>> {
        if self.no_store {
            return Ok(None);
        }
        if let Some(place) = self.place.named_location()? {
            return Ok(Some(WantedArchive {
                place,
                is_named: true,
            }));
        }
        // A folder of another user, as after `su`, has no archive of this one.
        let default = data_folder()
            .map(|folder| ArchiveLocation::in_folder(&folder))
            .filter(|place| matches!(place, ArchiveLocation::File(file) if file.exists()));
        Ok(default.map(|place| WantedArchive {
            place,
            is_named: false,
        }))
    }
}

/// An archive that a result is to be kept in.
struct WantedArchive {
    place: ArchiveLocation,
    /// True if the user has named it; it is then made if there is none.
    is_named: bool,
}

impl WantedArchive {
    fn open(&self) -> Result<Option<Store>, StoreError> {
        if self.is_named {
            return Store::create(&self.place).map(Some);
        }
        match Store::open(&self.place) {
            Err(StoreError::Missing(_)) => Ok(None),
            opened => opened.map(Some),
        }
    }
}

/// Runs `work` on the archive, and returns its result. A database may be waited for much longer
/// than a user who asks for the end of the program waits: `work` is then left to itself, in a
/// thread that ends with the program.
///
/// # Errors
/// Fails as `work` does, or if the user asks for the end of the program and the archive does not
/// answer within [`GRACE`].
fn run_interruptibly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // Not the flag of the command: an interrupted result is kept, too.
    let asked = Arc::new(AtomicBool::new(false));
    let actions =
        [SIGINT, SIGTERM].map(|signal| signal_hook::flag::register(signal, Arc::clone(&asked)));
    let (sender, done) = channel();
    // Without a receiver no thread waits for it.
    let started = thread::Builder::new()
        .name("archive".to_owned())
        .spawn(move || drop(sender.send(work())));
    let result = wait_for_result(&done, &asked).unwrap_or_else(|| {
        let why = started.map_or_else(|error| error.to_string(), |_| "it ended early".to_owned());
        Err(run_failure(format!("cannot work on the archive: {why}")))
    });
    for action in actions.into_iter().flatten() {
        signal_hook::low_level::unregister(action);
    }
    result
}

/// Returns the result of the work, or a failure if it is `asked` to end and does not within
/// [`GRACE`]; `None` if there is no thread that works.
fn wait_for_result<T>(done: &Receiver<Result<T>>, asked: &AtomicBool) -> Option<Result<T>> {
    let mut until = None;
    loop {
        match done.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if asked.load(Ordering::Relaxed)
            && *until.get_or_insert_with(|| Instant::now() + GRACE) <= Instant::now()
        {
            return Some(Err(Failure::new(
                INTERRUPTED,
                "interrupted while the archive was waited for",
            )));
        }
    }
}

/// Returns the folder for data of this user (XDG Base Directory Specification).
fn data_folder() -> Option<PathBuf> {
    user_folder("XDG_DATA_HOME", ".local/share")
}

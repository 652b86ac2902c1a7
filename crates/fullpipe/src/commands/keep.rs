//! Results are kept in the archive, once there is one. A measurement never fails because of that.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use fullpipe_record::Document;
use fullpipe_store::{Kept, Location, NewDocument, Store, StoreError};
use jiff::Timestamp;

use crate::failure::{Failure, USAGE};
use crate::terminal::Terminal;

/// Variable of the environment that names an archive.
const VARIABLE: &str = "FULLPIPE_STORE";

/// The archive of a command that measures.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Archive")]
pub(crate) struct KeepArguments {
    #[command(flatten)]
    place: PlaceArgument,
    /// Keep the result in no archive
    #[arg(long, conflicts_with = "store", hide_short_help = true)]
    no_store: bool,
}

/// The place of the archive.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Archive")]
pub(crate) struct PlaceArgument {
    /// Archive: a file, or `postgres://USER@HOST/DATABASE`
    ///
    /// The default is the variable `FULLPIPE_STORE`, or else fullpipe/archive.db in the folder for data of this user.
    /// Results are kept in the default file once it exists (`fullpipe store create`), in a named archive always.
    #[arg(long, value_name = "FILE|URL", global = true, hide_short_help = true, value_parser = PlaceParser)]
    store: Option<Location>,
}

/// Reads the place of an archive. Its error does not repeat the value, which may have a password.
#[derive(Debug, Clone, Copy)]
struct PlaceParser;

impl TypedValueParser for PlaceParser {
    type Value = Location;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Location, clap::Error> {
        let text = value.to_str().ok_or_else(|| StoreError::Location("a text that is not UTF-8".to_owned()));
        let refused = |error| {
            let sentence = format!("invalid value for '--store <FILE|URL>': {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, sentence).with_cmd(command)
        };
        text.and_then(str::parse).map_err(refused)
    }
}

impl PlaceArgument {
    /// Returns the archive that the user has named.
    fn named(&self) -> Result<Option<Location>, Failure> {
        let variable = || std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        match &self.store {
            Some(place) => Ok(Some(place.clone())),
            None => variable().map(|name| Ok(name.parse::<Location>()?)).transpose(),
        }
    }

    /// Returns the archive that the user has named, or that of this user.
    ///
    /// # Errors
    /// Fails if the name is no place for an archive, or if this user has no folder for data.
    pub(crate) fn location(&self) -> Result<Location, Failure> {
        match self.named()? {
            Some(place) => Ok(place),
            None => data_folder().map(|folder| Location::in_folder(&folder)).ok_or_else(|| {
                Failure::new(USAGE, format!("this user has no home for an archive; --store or {VARIABLE} names one"))
            }),
        }
    }
}

impl KeepArguments {
    /// Makes the archive if there is none, for a command that is of little use without one.
    ///
    /// # Errors
    /// Fails if the archive cannot be opened.
    pub(crate) fn require(&self) -> Result<(), Failure> {
        Store::create(&self.place.location()?)?;
        Ok(())
    }

    /// Opens the archive, which must exist.
    ///
    /// # Errors
    /// Fails if there is none, or if it cannot be opened.
    pub(crate) fn existing(&self) -> Result<Store, Failure> {
        Ok(Store::open(&self.place.location()?)?)
    }

    /// Returns true if results are to be kept in no archive.
    pub(crate) fn is_off(&self) -> bool {
        self.no_store
    }

    /// Keeps what a command measured. A user reads of an archive that does not take it, and the command goes on.
    pub(crate) fn keep(&self, document: &Document, terminal: &Terminal) {
        match self.put(document) {
            Ok(kept) if kept.is_empty() => {}
            Ok(kept) => tracing::info!("{} kept in the archive", kept.len()),
            Err(failure) => terminal.notice(&format!("the result is not kept: {}", failure.message)),
        }
    }

    /// Keeps what a command measured, in as many documents as it has scenarios; in none if there is no archive.
    ///
    /// # Errors
    /// Fails if the archive does not take it.
    pub(crate) fn put(&self, document: &Document) -> Result<Vec<Kept>, Failure> {
        let Some(mut store) = self.open()? else { return Ok(Vec::new()) };
        let documents = NewDocument::of(document, Timestamp::now());
        Ok(documents.iter().map(|new| store.put(new)).collect::<Result<_, _>>()?)
    }

    /// Opens the archive; `None` if results are to be kept in none.
    fn open(&self) -> Result<Option<Store>, Failure> {
        if self.no_store {
            return Ok(None);
        }
        if let Some(named) = self.place.named()? {
            return Ok(Some(Store::create(&named)?));
        }
        // A folder of another user, as after `su`, has no archive of this one.
        let is_there = |place: &Location| matches!(place, Location::File(file) if file.exists());
        let default = data_folder().map(|folder| Location::in_folder(&folder)).filter(is_there);
        let Some(default) = default else { return Ok(None) };
        match Store::open(&default) {
            Err(StoreError::Missing(_)) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }
}

/// Returns the folder for data of this user (XDG Base Directory Specification).
fn data_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_DATA_HOME").filter(|folder| Path::new(folder).is_absolute());
    named.map(PathBuf::from).or_else(|| std::env::home_dir().map(|home| home.join(".local/share")))
}

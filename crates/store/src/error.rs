use crate::document::KINDS_OF_DOCUMENTS;
use crate::engine::{EngineError, EngineErrorKind};
use crate::text::clean_line;

/// Error of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no archive there.
    #[error("there is no archive at {0}; `fullpipe store create` makes one")]
    Missing(String),
    /// There is something else.
    #[error("{location} is no archive of fullpipe: {cause}; --store names another one")]
    NoArchive {
        /// The place.
        location: String,
        /// Description of that, in the words of the system or of the database.
        cause: String,
    },
    /// The archive has no documents of this kind, and this program makes none.
    #[error(
        "{kind} is no kind of documents; kinds are {known}, and for one format of foreign ones foreign/iperf3"
    )]
    UnknownKind {
        /// The kind that was asked for.
        kind: String,
        /// The kinds that there are.
        known: String,
    },
    /// The location is of a kind that is not known.
    #[error("{0} is no place for an archive: a file, or a URL postgres://USER@HOST/DATABASE")]
    Location(String),
    /// A newer program has changed the archive.
    #[error(
        "the archive {location} has version {found}, and this program knows versions up to {known}: it can read the \
         archive, and changes nothing in it; use a newer fullpipe"
    )]
    Newer {
        /// The archive.
        location: String,
        /// Version of the archive.
        found: u32,
        /// Newest version that this program knows.
        known: u32,
    },
    /// The database reports an error.
    #[error("cannot {operation} the archive {location}: {cause}")]
    Database {
        /// Operation that failed.
        operation: &'static str,
        /// The archive.
        location: String,
        /// Error in the words of the database.
        cause: String,
    },
    /// This user may not use the archive.
    #[error("cannot {operation} the archive {location}: {cause}; --store names another one")]
    Forbidden {
        /// Operation that failed.
        operation: &'static str,
        /// The archive.
        location: String,
        /// Error in the words of the system or of the database.
        cause: String,
    },
    /// A document is not as it was written.
    #[error("document {id} is damaged: {why}; other documents are not affected")]
    Damaged {
        /// Identifier of the document.
        id: String,
        /// Description of the damage.
        why: String,
    },
    /// The body of a document was removed.
    #[error("the body of document {0} was removed by `store thin`; its facts remain")]
    Removed(String),
    /// No document has this identifier.
    #[error("no document of the archive has the identifier {0}; `fullpipe store list` shows them")]
    Unknown(String),
    /// Several documents have identifiers that end so.
    #[error("several documents have identifiers that end in {0}; use more of its characters")]
    Ambiguous(String),
}

impl StoreError {
    pub(crate) fn unknown_kind(kind: &str) -> Self {
        Self::UnknownKind {
            kind: clean_line(kind),
            known: KINDS_OF_DOCUMENTS.join(", "),
        }
    }

    pub(crate) fn from_engine(
        operation: &'static str,
        location: &impl ToString,
        error: EngineError,
    ) -> Self {
        let (location, EngineError { cause, kind }) = (location.to_string(), error);
        match kind {
            EngineErrorKind::Forbidden => Self::Forbidden {
                operation,
                location,
                cause,
            },
            EngineErrorKind::NoArchive => Self::NoArchive { location, cause },
            EngineErrorKind::Disk | EngineErrorKind::Other => Self::Database {
                operation,
                location,
                cause,
            },
        }
    }
}

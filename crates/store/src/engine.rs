use std::error::Error;
use std::io::{self, ErrorKind};

/// Value of a column or of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum DatabaseValue {
    /// No value.
    Null,
    /// A BIGINT.
    Integer(i64),
    /// A DOUBLE PRECISION.
    Real(f64),
    /// A TEXT.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<i64> for DatabaseValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// Counts beyond 2⁶³ − 1, which no run reaches, are stored as that.
impl From<u64> for DatabaseValue {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for DatabaseValue {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for DatabaseValue {
    fn from(flag: bool) -> Self {
        Self::Integer(flag.into())
    }
}

impl From<&str> for DatabaseValue {
    fn from(text: &str) -> Self {
        // PostgreSQL has no text with this character; SQLite would cut the text at it for most
        // readers.
        Self::Text(text.replace('\0', ""))
    }
}

impl From<Vec<u8>> for DatabaseValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Blob(bytes)
    }
}

impl<T: Into<Self>> From<Option<T>> for DatabaseValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Values of one row, in the order of the columns that were asked for.
pub(crate) type Row = Vec<DatabaseValue>;

/// Result of work on a database.
pub type EngineResult<T = ()> = Result<T, EngineError>;

/// Error of a database, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError {
    pub(crate) cause: String,
    pub(crate) kind: EngineErrorKind,
}

/// Kind of an error of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineErrorKind {
    /// This user lacks a permission.
    Forbidden,
    /// The database is no archive.
    NoArchive,
    /// The disk refuses: it is full, or broken.
    Disk,
    Other,
}

impl EngineError {
    /// Joins an error and its sources in one line; libraries put the reason into the source.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            let text = inner.to_string();
            if !cause.contains(&text) {
                cause = format!("{cause}: {text}");
            }
            source = inner.source();
        }
        Self::from_cause(cause.replace('\n', "; "))
    }

    /// Returns true if the error may come of a disk to which nothing can be written.
    pub(crate) fn is_of_disk(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::Disk | EngineErrorKind::Forbidden
        )
    }

    /// Returns an error with this sentence.
    pub fn from_cause(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            kind: EngineErrorKind::Other,
        }
    }

    /// Returns the error as one of a permission that is lacking, if it is.
    pub(crate) fn forbidden_if(self, is_forbidden: bool) -> Self {
        let kind = if is_forbidden {
            EngineErrorKind::Forbidden
        } else {
            self.kind
        };
        Self { kind, ..self }
    }

    pub(crate) fn no_archive(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            kind: EngineErrorKind::NoArchive,
        }
    }
}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        const FORBIDDEN: [ErrorKind; 2] =
            [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        Self::from_error(&error).forbidden_if(FORBIDDEN.contains(&error.kind()))
    }
}

/// A database that takes the statements of [`crate::statements`]: parameters are `$1`, `$2`, …;
/// types are BIGINT, TEXT and DOUBLE PRECISION, and one for bytes, which has a name of its own in
/// each.
pub(crate) trait DatabaseEngine: Send {
    /// Type of a column of bytes.
    fn blob_type(&self) -> &'static str;

    /// Returns the constraint that refuses claims which overlap; nothing where the database has no
    /// such constraint, and one writer at a time.
    fn overlap_constraint(&self) -> &'static str;

    /// Runs a statement and returns its rows.
    fn query(&mut self, sql: &str, values: &[DatabaseValue]) -> EngineResult<Vec<Row>>;

    /// Runs several statements without parameters.
    fn execute_batch(&mut self, sql: &str) -> EngineResult;

    /// Begins a transaction that writes.
    fn begin_transaction(&mut self) -> EngineResult;

    /// Keeps other programs from changing the tables until the transaction ends.
    fn lock_tables(&mut self) -> EngineResult;

    /// Returns the version of the tables; 0 if there are none.
    fn schema_version(&mut self) -> EngineResult<u32>;

    /// Writes the version of the tables.
    fn set_version(&mut self, version: u32) -> EngineResult;

    /// Copies everything before the tables change from `version`, where the database can be copied.
    fn copy_before_change(&mut self, version: u32) -> EngineResult;

    /// Returns the errors that the database finds in itself.
    fn own_check(&mut self) -> EngineResult<Vec<String>>;

    /// Returns freed space to the disk, where the database does not do it by itself.
    fn release_space(&mut self) -> EngineResult;
}

/// Carries out `work` as a whole or not at all.
pub(crate) fn run_transaction<T>(
    engine: &mut dyn DatabaseEngine,
    work: impl FnOnce(&mut dyn DatabaseEngine) -> EngineResult<T>,
) -> EngineResult<T> {
    engine.begin_transaction()?;
    let done = work(engine).and_then(|value| engine.execute_batch("COMMIT").map(|()| value));
    if done.is_err() {
        // The first error counts; a database that is gone rolls back by itself.
        let _ = engine.execute_batch("ROLLBACK");
    }
    done
}

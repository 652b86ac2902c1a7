//! SQLite: one file, with a write-ahead log, synced at each commit.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use crate::engine::{
    DatabaseEngine, DatabaseValue, EngineError, EngineErrorKind, EngineResult, Row,
};

/// Longest wait for another writer.
const BUSY: Duration = Duration::from_secs(10);

/// Statements that are kept as SQLite has read them: all that a fleet asks.
const STATEMENTS: usize = 64;

/// `fpip`, by which `file` and this program know the file (`PRAGMA application_id`).
const APPLICATION: i64 = 0x6670_6970;

/// An archive in a file.
pub(crate) struct SqliteEngine {
    connection: Connection,
    file: PathBuf,
    /// The reason for which it can only be read.
    only_read: Option<EngineError>,
}

impl SqliteEngine {
    /// Opens the file; makes it first, readable by its owner only, if `create` and there is none.
    pub(crate) fn open(file: &Path, create: bool) -> EngineResult<Self> {
        let file = &in_folder(file);
        check_regular(file)?;
        if create {
            create_file(file)?;
        }
        let mut opened = Self {
            connection: connect_writable(file)?,
            file: file.to_owned(),
            only_read: None,
        };
        let Err(error) = opened.check_identity() else {
            return Ok(opened);
        };
        if create || !error.is_of_disk() {
            return Err(error);
        }
        // Its locks would be in the way.
        drop(opened);
        match Self::open_where_nothing_can_be_made(file) {
            Some(opened) => Ok(Self {
                only_read: Some(error),
                ..opened
            }),
            None => Err(with_hint(error, file)),
        }
    }

    /// Opens an archive to read it where the files that SQLite makes next to it cannot be made: on
    /// a disk that is full or read-only. What a killed program has left in the log is read with the
    /// index of it in memory, which takes the archive for this program alone; without such a log,
    /// nothing of the file changes (SQLite, "Write-Ahead Logging", sections 8 and 10).
    fn open_where_nothing_can_be_made(file: &Path) -> Option<Self> {
        let connection = if has_log(file) {
            let connection =
                Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
            connection
                .execute_batch("PRAGMA locking_mode = EXCLUSIVE")
                .ok()?;
            connection
        } else {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(immutable_uri(file), flags).ok()?
        };
        let mut opened = Self {
            connection,
            file: file.to_owned(),
            only_read: None,
        };
        opened.check_identity().is_ok().then_some(opened)
    }

    /// Checks that the file is an archive, or empty.
    fn check_identity(&mut self) -> EngineResult {
        let application = self.pragma_value("application_id")?;
        let tables = self.query("SELECT count(*) FROM sqlite_master", &[])?;
        let is_empty = tables == [[DatabaseValue::Integer(0)]];
        if application != APPLICATION && !is_empty {
            return Err(EngineError::no_archive(
                "it is the database of another program",
            ));
        }
        // A file on a read-only file system cannot change its mode, and needs not.
        let _ = self.execute_batch("PRAGMA journal_mode = WAL");
        self.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -16000")
    }

    /// Copies the archive into a file that its owner only can read; returns the version of the
    /// tables in the copy.
    fn copy_to(&mut self, file: &Path) -> EngineResult<i64> {
        // One of a program that was killed.
        let _ = std::fs::remove_file(file);
        create_file(file)?;
        self.query("VACUUM INTO $1", &[file.to_string_lossy().as_ref().into()])?;
        File::open(file)?.sync_all()?;
        let copy = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        Ok(copy.query_row("PRAGMA user_version", [], |row| row.get(0))?)
    }

    fn pragma_value(&mut self, name: &str) -> EngineResult<i64> {
        Ok(self
            .connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?)
    }
}

impl DatabaseEngine for SqliteEngine {
    fn blob_type(&self) -> &'static str {
        "BLOB"
    }

    fn overlap_constraint(&self) -> &'static str {
        ""
    }

    fn query(&mut self, sql: &str, values: &[DatabaseValue]) -> EngineResult<Vec<Row>> {
        // `$2` is a name to SQLite, and gets its number by the order of appearance; `?2` is a
        // number.
        let mut statement = self.connection.prepare_cached(&sql.replace('$', "?"))?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values =
                (0..columns).map(|column| row.get::<_, SqlValue>(column).map(DatabaseValue::from));
            found.push(values.collect::<Result<Row, _>>()?);
        }
        Ok(found)
    }

    fn execute_batch(&mut self, sql: &str) -> EngineResult {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn begin_transaction(&mut self) -> EngineResult {
        if let Some(EngineError { cause, kind }) = &self.only_read {
            let cause = format!("nothing can be written there ({cause})");
            return Err(EngineError { cause, kind: *kind });
        }
        self.execute_batch("BEGIN IMMEDIATE")
    }

    /// A transaction that writes has the file for itself.
    fn lock_tables(&mut self) -> EngineResult {
        Ok(())
    }

    fn schema_version(&mut self) -> EngineResult<u32> {
        Ok(u32::try_from(self.pragma_value("user_version")?).unwrap_or(u32::MAX))
    }

    fn set_version(&mut self, version: u32) -> EngineResult {
        self.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version}"
        ))
    }

    /// The copy is of one moment, and is kept only if the tables had this version then: another
    /// program may change them meanwhile, and has a copy of its own.
    fn copy_before_change(&mut self, version: u32) -> EngineResult {
        let copy = PathBuf::from(format!("{}.version-{version}", self.file.display()));
        let unfinished = PathBuf::from(format!("{}.{}", copy.display(), std::process::id()));
        let mut copied = self.copy_to(&unfinished);
        if copied == Ok(version.into()) {
            copied = std::fs::rename(&unfinished, &copy)
                .map(|()| version.into())
                .map_err(EngineError::from);
        }
        // There is none if it was renamed.
        let _ = std::fs::remove_file(&unfinished);
        copied.map(drop)
    }

    fn own_check(&mut self) -> EngineResult<Vec<String>> {
        let rows = self.query("PRAGMA integrity_check(10)", &[])?;
        Ok(rows
            .into_iter()
            .filter_map(|row: Row| match row.into_iter().next() {
                Some(DatabaseValue::Text(text)) if text != "ok" => Some(text),
                _ => None,
            })
            .collect())
    }

    fn release_space(&mut self) -> EngineResult {
        self.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    }
}

/// Opens a file for writing, and waits for those who lock it.
fn connect_writable(file: &Path) -> EngineResult<Connection> {
    let writable = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite does not say why.
    let connection = Connection::open_with_flags(file, writable)
        .map_err(|error| File::open(file).map_or_else(EngineError::from, |_| error.into()))?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Returns the name of a file with its folder: `:memory:` and `file:` at its begin are no files to
/// SQLite.
fn in_folder(file: &Path) -> PathBuf {
    Path::new(".").join(file)
}

/// Returns true if something of an archive is in its log, which a program that was killed has left.
fn has_log(file: &Path) -> bool {
    let log = PathBuf::from(format!("{}-wal", file.display()));
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

fn with_hint(error: EngineError, file: &Path) -> EngineError {
    if !has_log(file) {
        return error;
    }
    let hint = "a program that was killed has left a log, and to read it takes a disk that can be written: copy it \
                with its log (-wal) there";
    EngineError {
        cause: format!("{}; {hint}", error.cause),
        ..error
    }
}

/// Returns the URI by which SQLite reads a file that no program changes, without locks and without
/// files next to it.
fn immutable_uri(file: &Path) -> String {
    let path: Vec<u8> = file
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .flat_map(|byte: &u8| match byte {
            b'%' | b'?' | b'#' => format!("%{byte:02x}").into_bytes(),
            _ => vec![*byte],
        })
        .collect();
    format!("file:{}?immutable=1", String::from_utf8_lossy(&path))
}

/// Fails if something is there that is no regular file: to open a pipe takes until somebody opens
/// its other end.
fn check_regular(file: &Path) -> EngineResult {
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(EngineError::no_archive("it is no regular file")),
        _ => Ok(()),
    }
}

/// Makes the file and its folder, unless they are there.
fn create_file(file: &Path) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    // On other systems, files in the folder of a user are that user's.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}

impl From<rusqlite::Error> for EngineError {
    fn from(error: rusqlite::Error) -> Self {
        let (code, message) = match &error {
            rusqlite::Error::SqliteFailure(failure, message) => {
                (Some(failure.code), message.clone())
            }
            _ => (None, None),
        };
        let cause = message.unwrap_or_else(|| Self::from_error(&error).cause);
        // On a full disk, SQLite cannot make its auxiliary files, and says no more than this.
        let hint = match code {
            Some(ErrorCode::SystemIoFailure) => "; is the disk full?",
            _ => "",
        };
        let kind = match code {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => EngineErrorKind::Forbidden,
            Some(ErrorCode::NotADatabase) => EngineErrorKind::NoArchive,
            Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::DiskFull) => {
                EngineErrorKind::Disk
            }
            _ => EngineErrorKind::Other,
        };
        Self {
            cause: cause + hint,
            kind,
        }
    }
}

impl From<SqlValue> for DatabaseValue {
    fn from(value: SqlValue) -> Self {
        match value {
            SqlValue::Null => Self::Null,
            SqlValue::Integer(number) => Self::Integer(number),
            SqlValue::Real(number) => Self::Real(number),
            SqlValue::Text(text) => Self::Text(text),
            SqlValue::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl ToSql for DatabaseValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{KNOWN, migrate_tables};
    use crate::{ArchiveLocation, Store};

    #[test]
    fn an_archive_of_an_earlier_version_is_changed_after_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("archive.db");
        migrate_tables(&mut SqliteEngine::open(&file, true).unwrap(), 0, 1).unwrap();
        assert_eq!(
            Store::open(&ArchiveLocation::File(file))
                .unwrap()
                .archive_report()
                .unwrap()
                .version,
            KNOWN
        );
        let copy = SqliteEngine::open(&folder.path().join("archive.db.version-1"), false)
            .unwrap()
            .schema_version();
        assert_eq!(copy, Ok(1));
    }

    #[test]
    fn every_name_is_one_of_a_file() {
        for (name, file) in [
            (":memory:", "./:memory:"),
            ("file:x?mode=memory", "./file:x?mode=memory"),
            ("/a", "/a"),
        ] {
            assert_eq!(in_folder(Path::new(name)).as_os_str(), file);
        }
    }

    #[test]
    fn a_copy_before_a_change_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut engine = SqliteEngine::open(&folder.path().join("archive.db"), true).unwrap();
        engine.copy_before_change(0).unwrap();
        let copy = std::fs::metadata(folder.path().join("archive.db.version-0")).unwrap();
        assert_eq!(copy.permissions().mode() & 0o777, 0o600);
    }

    /// The second of two programs that open an old archive copied the changed one under the name of
    /// the old.
    #[test]
    fn an_archive_that_another_program_has_changed_replaces_no_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("archive.db");
        let (mut first, mut second) = (
            SqliteEngine::open(&file, true).unwrap(),
            SqliteEngine::open(&file, false).unwrap(),
        );
        migrate_tables(&mut first, 0, 1).unwrap();
        for engine in [&mut first, &mut second] {
            assert_eq!(migrate_tables(engine, 1, 2), Ok(2));
        }
        let mut names: Vec<_> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.retain(|name| name.to_string_lossy().contains("version"));
        assert_eq!(names, ["archive.db.version-1"]);
        let copy = SqliteEngine::open(&folder.path().join("archive.db.version-1"), false)
            .unwrap()
            .schema_version();
        assert_eq!(copy, Ok(1));
    }

    #[test]
    fn a_copy_before_a_change_is_an_archive() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("archive.db");
        Store::create(&ArchiveLocation::File(file.clone())).unwrap();
        let mut engine = SqliteEngine::open(&file, false).unwrap();
        for _ in 0..2 {
            engine.copy_before_change(KNOWN).unwrap();
        }
        let copy = ArchiveLocation::File(folder.path().join(format!("archive.db.version-{KNOWN}")));
        assert!(
            Store::open(&copy)
                .unwrap()
                .archive_report()
                .unwrap()
                .documents
                .is_empty()
        );
    }
}

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fullpipe_units::printable_line;

use crate::StoreError;

/// Place of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveLocation {
    /// File of SQLite.
    File(PathBuf),
    /// URL of a database of PostgreSQL, which may have a password in it.
    Postgresql(String),
}

impl ArchiveLocation {
    /// Returns the file `fullpipe/archive.db` in the folder for data of a user.
    pub fn in_folder(data: &Path) -> Self {
        Self::File(data.join("fullpipe/archive.db"))
    }
}

impl FromStr for ArchiveLocation {
    type Err = StoreError;

    /// Reads a file or a URL.
    ///
    /// # Errors
    /// Fails if it is empty, or a URL of another kind.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgresql(text.to_owned())),
            None if !text.is_empty() => Ok(Self::File(text.into())),
            None => Err(StoreError::Location("\"\"".to_owned())),
            Some(_) => Err(StoreError::Location(printable_line(&without_password(
                text,
            )))),
        }
    }
}

/// Shows no password.
impl fmt::Display for ArchiveLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Postgresql(url) => without_password(url).fmt(f),
        }
    }
}

/// Returns the URL without the password between user and host, and without its parameters, which
/// may have one too; only its begin where the place of the password is in doubt.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (ends, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let begin = rest.split([':', '@', '/', '?']).next().unwrap_or_default();
    match ends.rsplit_once('@') {
        // A password may have a `?`, and a parameter an `@`.
        _ if parameters.contains('@') => format!("{scheme}://{begin}…"),
        Some((_, place)) => format!("{scheme}://{begin}@{place}"),
        None if has_port_or_none(ends) => format!("{scheme}://{ends}"),
        None => format!("{scheme}://{begin}…"),
    }
}

/// Returns false if a colon is followed by what is no port, as by a password without a host behind
/// it.
fn has_port_or_none(ends: &str) -> bool {
    let host = ends.split('/').next().unwrap_or_default();
    host.ends_with(']')
        || host
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            (
                "postgres://me:se@cret@db.example/x",
                "postgres://me@db.example/x",
            ),
            (
                "postgres://db.example/x?password=secret",
                "postgres://db.example/x",
            ),
            ("postgresql:///x?host=/run/db&user=me", "postgresql:///x"),
            ("postgres://me:se?cret@db.example/x", "postgres://me…"),
            ("postgres://me:se@cr?et@db.example/x", "postgres://me…"),
            (
                "postgres://me:se/cret@db.example/x",
                "postgres://me@db.example/x",
            ),
            (
                "postgres://db.example/x?password=se@cret",
                "postgres://db.example…",
            ),
            (
                "postgres://db.example:5432?password=se@cret",
                "postgres://db.example…",
            ),
            ("postgres://me:secret/x", "postgres://me…"),
            (
                "postgres://[::1]:5432,db:5433/x",
                "postgres://[::1]:5432,db:5433/x",
            ),
            ("postgres://[2001:db8::1]/x", "postgres://[2001:db8::1]/x"),
        ] {
            assert_eq!(url.parse::<ArchiveLocation>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_password_in_a_url_of_another_kind_is_not_shown_either() {
        for (url, shown) in [
            ("postgress://me:secret@db/x", "postgress://me@db/x"),
            ("mysql://db/x?password=secret", "mysql://db/x"),
            ("x\u{1b}://me:secret@db/x", "x\\u{1b}://me@db/x"),
        ] {
            assert_eq!(
                url.parse::<ArchiveLocation>(),
                Err(StoreError::Location(shown.to_owned()))
            );
        }
    }

    #[test]
    fn a_file_or_a_url_of_postgresql_is_a_place() {
        assert_eq!("a/b.db".parse(), Ok(ArchiveLocation::File("a/b.db".into())));
        for text in ["", "mysql://x/y", "https://example.org/"] {
            assert!(
                matches!(
                    text.parse::<ArchiveLocation>(),
                    Err(StoreError::Location(_))
                ),
                "{text}"
            );
        }
    }
}

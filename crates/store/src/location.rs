use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::StoreError;

/// Place of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// File of SQLite.
    File(PathBuf),
    /// URL of a database of PostgreSQL, which may have a password in it.
    Postgresql(String),
}

impl Location {
    /// Returns the file `fullpipe/archive.db` in the folder for data of a user.
    pub fn in_folder(data: &Path) -> Self {
        Self::File(data.join("fullpipe/archive.db"))
    }
}

impl FromStr for Location {
    type Err = StoreError;

    /// Reads a file or a URL.
    ///
    /// # Errors
    /// Fails if it is empty, or a URL of another kind.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgresql(text.to_owned())),
            None if !text.is_empty() => Ok(Self::File(text.into())),
            _ => Err(StoreError::Location(if text.is_empty() { "\"\"".to_owned() } else { text.to_owned() })),
        }
    }
}

/// Shows no password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Postgresql(url) => without_password(url).fmt(f),
        }
    }
}

/// Returns the URL without the password between user and host, and without its parameters, which may have one too.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let rest = rest.split('?').next().unwrap_or_default();
    match rest.rsplit_once('@') {
        Some((user, place)) => format!("{scheme}://{}@{place}", user.split(':').next().unwrap_or_default()),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://me:se@cret@db.example/x", "postgres://me@db.example/x"),
            ("postgres://db.example/x?password=secret", "postgres://db.example/x"),
            ("postgresql:///x?host=/run/db&user=me", "postgresql:///x"),
        ] {
            assert_eq!(url.parse::<Location>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_file_or_a_url_of_postgresql_is_a_place() {
        assert_eq!("a/b.db".parse(), Ok(Location::File("a/b.db".into())));
        for text in ["", "mysql://x/y", "https://example.org/"] {
            assert!(matches!(text.parse::<Location>(), Err(StoreError::Location(_))), "{text}");
        }
    }
}

//! Records of cases as files of JSON, and the flags that select them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::DeserializeOwned;

/// The cases that a command runs, and the use of their records.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only cases whose name contains this; may be given again
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Write each measurement into a file here
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Judge what was recorded here, and run nothing
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    pub(crate) from: Option<PathBuf>,
    /// Print the names of the cases and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// The program [default: in the folder of this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) fullpipe: Option<PathBuf>,
}

impl Selection {
    /// Returns whether the case `name` is selected.
    pub(crate) fn includes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

/// Reads every file of `folder` whose name ends in `.json`, sorted by path.
///
/// # Errors
/// Fails if the folder or a file cannot be read, and with [`io::ErrorKind::InvalidData`] and the
/// path of the file if a file is not the JSON of a record.
pub(crate) fn read_all<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<T>> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path)?;
        serde_json::from_slice(&text).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {error}", path.display()),
            )
        })
    };
    files.iter().map(read).collect()
}

/// Returns `name` with a hyphen in place of every character that is neither an ASCII letter, an
/// ASCII digit nor a dot, so that a shell needs no quotes around the file name.
pub(crate) fn file_name(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_needs_no_quotes_in_a_shell() {
        assert_eq!(
            file_name("loss/random 20M×150ms cubic 0.25"),
            "loss-random-20M-150ms-cubic-0.25"
        );
    }
}

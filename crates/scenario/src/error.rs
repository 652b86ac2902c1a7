use std::fmt;

use fullpipe_units::printable_line;
use thiserror::Error;

/// A place in a scenario file; it reads as `file:line:column`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    /// The file's name, as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
}

/// A scenario file that cannot be run: where, and why, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {message}")]
pub struct ScenarioError {
    /// The place in the file.
    pub place: FileLocation,
    /// The key and what is wrong with it.
    pub message: String,
}

impl FileLocation {
    /// The place of byte `offset` of `text`.
    pub(crate) fn new(file: &str, text: &str, offset: usize) -> Self {
        Self {
            file: file.to_owned(),
            line: 1,
            column: 1,
        }
        .after_text(text.get(..offset).unwrap_or(text))
    }

    /// The place behind `text`, which begins at this one.
    pub(crate) fn after_text(&self, text: &str) -> Self {
        let newline = text.rfind('\n');
        let (before, last) =
            newline.map_or((self.column, text), |newline| (1, &text[newline + 1..]));
        Self {
            file: self.file.clone(),
            line: self.line + text.matches('\n').count(),
            column: before + last.chars().count(),
        }
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl ScenarioError {
    pub(crate) fn new(place: FileLocation, message: &str) -> Self {
        Self {
            place,
            message: printable_line(message),
        }
    }
}

/// A flag with `key=value` pairs that cannot be used: one sentence that names the key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FlagError {
    message: String,
}

impl FlagError {
    pub(crate) fn new(message: impl AsRef<str>) -> Self {
        Self {
            message: printable_line(message.as_ref()),
        }
    }
}

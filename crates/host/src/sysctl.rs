use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// A sysctl that could not be read, written or understood.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// The kernel refused, or the file is not there.
    #[error("cannot {verb} {name}: {cause}")]
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// Dotted name.
        name: String,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// Its text is not what it should be.
    #[error("{name} is \"{text}\", which is not {expected}")]
    Malformed {
        /// Dotted name.
        name: String,
        /// What was read.
        text: String,
        /// What it should have been.
        expected: &'static str,
    },
}

impl SysctlError {
    /// Whether the sysctl does not exist, as some do not in a child namespace or on an older kernel.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// Where sysctls are: `/proc/sys`, or a copy of it in a test.
#[derive(Debug, Clone)]
pub struct SysctlTree {
    root: PathBuf,
}

impl SysctlTree {
    /// The running kernel's, for the namespace of the thread that reads or writes.
    pub fn of_this_host() -> Self {
        Self::at("/proc/sys")
    }

    /// One below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The text of the sysctl with the dotted `name`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> Result<String, SysctlError> {
        match std::fs::read_to_string(self.path(name)) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(cause) => Err(SysctlError::Io { verb: "read", name: name.to_owned(), cause }),
        }
    }

    /// Writes `text` into the sysctl with the dotted `name`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), SysctlError> {
        std::fs::write(self.path(name), text).map_err(|cause| SysctlError::Io {
            verb: "write",
            name: name.to_owned(),
            cause,
        })
    }

    /// Its words, each parsed; `expected` says in an error what they should have been.
    pub(crate) fn parse<T: FromStr>(&self, name: &str, expected: &'static str) -> Result<Vec<T>, SysctlError> {
        let text = self.read(name)?;
        let words: Result<Vec<T>, _> = text.split_whitespace().map(str::parse).collect();
        words.map_err(|_| SysctlError::Malformed { name: name.to_owned(), text, expected })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name.replace('.', "/"))
    }
}

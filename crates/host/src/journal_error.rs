use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::apply::ApplyError;
use crate::sysctl::SysctlError;

/// Result of work on settings and their journals.
pub type JournalResult<T = ()> = Result<T, JournalError>;

/// Why settings were not changed, or not put back.
#[derive(Debug, Error)]
pub enum JournalError {
    /// A file of ours could not be read or written.
    #[error("cannot {doing} {path}: {cause}; --journal chooses another folder", path = path.display())]
    Io {
        /// `read`, `write`, `lock`…
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// A journal says something that was never written there.
    #[error(
        "{path}, line {line}, is no journal of this fullpipe: {why}; `fullpipe host undo --forget` sets it aside, and \
         what it changed stays",
        path = path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// From one.
        line: usize,
        /// The reason.
        why: String,
    },
    /// Somebody else holds the lock.
    #[error(
        "another fullpipe is changing settings ({path} is locked); try again when it is done",
        path = path.display()
    )]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// An apply waits to be confirmed.
    #[error(
        "settings that were applied for a time wait: `fullpipe host confirm` keeps them, `fullpipe host undo` takes \
         them back"
    )]
    Pending,
    /// Nothing waits to be confirmed.
    #[error(
        "no settings wait to be confirmed: either they were confirmed, or their time was over and they were taken back"
    )]
    NothingPending,
    /// The request cannot be carried out here.
    #[error("{0}")]
    Unfit(String),
    /// A setting could not be changed; those before it were put back.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The change failed, and so did putting back what was changed before it.
    #[error("{first}; and on the way back: {then}; `fullpipe host undo` tries again")]
    WayBack {
        /// Why not all could be changed.
        first: Box<JournalError>,
        /// Why not all was put back.
        then: String,
    },
    /// Something of the kernel could not be read.
    #[error("cannot find out {what}: {cause}")]
    Kernel {
        /// The file or setting.
        what: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The process that takes the changes back in time could not be started; nothing was changed.
    #[error("cannot start what would take the settings back in time: {0}; nothing was changed")]
    Watchdog(io::Error),
}

impl JournalError {
    /// Returns the conversion of a kernel's error into that of `doing` something to `path`.
    pub(crate) fn on_path(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Io {
            doing,
            path: path.to_owned(),
            cause,
        }
    }
}

impl From<SysctlError> for JournalError {
    fn from(error: SysctlError) -> Self {
        Self::Apply(error.into())
    }
}

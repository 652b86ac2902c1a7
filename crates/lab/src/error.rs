use std::io;

use thiserror::Error;

/// Why a lab could not be made, or could not do what was asked of it.
#[derive(Debug, Error)]
pub enum LabError {
    /// This machine lacks a permission or a feature; the text says which, and how to get it.
    #[error("{0}")]
    Lacking(String),
    /// The kernel's own path does not do this.
    #[error("a path of `--backend kernel` has no {what}: leave one of the two out")]
    Unsupported {
        /// The property that was asked for.
        what: &'static str,
    },
    /// The keeper could not do something.
    #[error("the lab cannot {action}: {reason}")]
    Refused {
        /// The request.
        action: String,
        /// The message of the keeper or the kernel.
        reason: String,
    },
    /// The keeper is gone.
    #[error("the lab ended before it could {action}")]
    Gone {
        /// The request.
        action: String,
    },
    /// The keeper is there, and does not answer.
    #[error(
        "the lab did not {action} in time: its process lab-keeper is stopped or hangs, and was killed"
    )]
    Silent {
        /// The request.
        action: String,
    },
    /// A system call of the parent failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// The operation.
        action: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
}

impl LabError {
    /// Returns the function that makes an error of the kernel's, for `action`.
    pub fn from_io(action: &str) -> impl FnOnce(io::Error) -> Self {
        let action = action.to_owned();
        move |cause| Self::Io { action, cause }
    }
}

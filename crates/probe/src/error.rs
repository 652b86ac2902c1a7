use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::engine::PrepareError;
use fullpipe_control::ListenError;
use fullpipe_units::Span;
use thiserror::Error;

/// The error with which there is no measurement.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The name has no address.
    #[error("cannot find the host {host}: {cause}")]
    UnknownHost {
        /// The name as it was given.
        host: String,
        /// The error of the resolver.
        cause: String,
    },
    /// No connection to the server.
    #[error("cannot connect to {host} at {address}: {cause}{hint}")]
    Connect {
        /// The name as it was given.
        host: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// The error of the system call.
        cause: io::Error,
        /// Advice for the user; may be empty.
        hint: &'static str,
    },
    /// The server does not answer at all.
    #[error(
        "cannot connect to {host} at {address}: no answer within {after}; is there a firewall?"
    )]
    Silent {
        /// The name as it was given.
        host: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// Time for which an answer was awaited.
        after: Span,
    },
    /// The test failed before its end.
    #[error("the test with {host} failed: {cause}")]
    Protocol {
        /// The name as it was given.
        host: String,
        /// The error.
        cause: fullpipe_iperf::TestError,
    },
    /// The server refuses this user, or any client without a user name.
    #[error("the test with {host} failed: {cause}; {hint}")]
    Unauthorized {
        /// The name as it was given.
        host: String,
        /// The error that the server reported.
        cause: fullpipe_iperf::TestError,
        /// Advice for the user; may be empty.
        hint: &'static str,
    },
    /// The control connection cannot be encrypted, a web server refuses the test or does not know
    /// it, or a server has become silent.
    #[error("{0}")]
    Failed(String),
    /// The request cannot be stated in the protocol of the server.
    #[error("cannot ask for this test: {0}")]
    Request(fullpipe_iperf::TestRefusal),
    /// This host lacks what was asked for.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A setting of this host cannot be read.
    #[error(transparent)]
    Settings(#[from] fullpipe_host::SysctlError),
    /// A system call of this host failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// The action that failed, as in "cannot …".
        action: &'static str,
        /// The error of the system call.
        #[source]
        cause: io::Error,
    },
    /// The file to be sent, or written to, cannot be opened.
    #[error("cannot open {path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        cause: io::Error,
    },
    /// The user stopped it before data flowed.
    #[error("interrupted before the test began")]
    Interrupted,
}

impl ProbeError {
    pub(crate) fn from_io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { action, cause }
    }
}

/// The error with which a server cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The limit of open files is too low.
    #[error(
        "{permitted} open files are permitted, {needed} are needed; raise the limit, as with `ulimit -n 1024`"
    )]
    Descriptors {
        /// The limit.
        permitted: u64,
        /// The least that a server needs.
        needed: u64,
    },
    /// The address is in use, or not one of this host.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address of the web server is in use, or not one of this host.
    #[error(transparent)]
    ListenForWeb(ListenError),
    /// The file or directory that the server sends, or writes to, cannot be used.
    #[error("cannot use {0}")]
    File(#[source] io::Error),
    /// A system call failed.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
}

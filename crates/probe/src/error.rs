use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fullpipe_load::PrepareError;
use fullpipe_units::Span;
use thiserror::Error;

/// Why there is no measurement.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The name has no address.
    #[error("cannot find the host {host}: {cause}")]
    UnknownHost {
        /// The name as it was given.
        host: String,
        /// What the resolver said.
        cause: String,
    },
    /// No connection to the server.
    #[error("cannot connect to {host} at {address}: {cause}{hint}")]
    Connect {
        /// The name as it was given.
        host: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// What the kernel said.
        cause: io::Error,
        /// What the user can do.
        hint: &'static str,
    },
    /// The server does not answer at all.
    #[error("cannot connect to {host} at {address}: no answer within {after}; is there a firewall?")]
    Silent {
        /// The name as it was given.
        host: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// How long it was waited for.
        after: Span,
    },
    /// The test did not come to its end.
    #[error("the test with {host} failed: {cause}")]
    Protocol {
        /// The name as it was given.
        host: String,
        /// What went wrong.
        cause: fullpipe_iperf::Error,
    },
    /// The server does not serve this user, or serves none without a name.
    #[error("the test with {host} failed: {cause}; {hint}")]
    Unauthorized {
        /// The name as it was given.
        host: String,
        /// What the server said.
        cause: fullpipe_iperf::Error,
        /// What the user can do.
        hint: &'static str,
    },
    /// The control connection cannot be encrypted.
    #[error(
        "cannot agree on TLS with {host}: {cause}; does `fullpipe serve --tls` run there, and is its certificate for this name?"
    )]
    Tls {
        /// The name as it was given.
        host: String,
        /// What went wrong.
        #[source]
        cause: io::Error,
    },
    /// What was asked for cannot be asked of a server.
    #[error("cannot ask for this test: {0}")]
    Request(fullpipe_iperf::Refusal),
    /// This host lacks what was asked for.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The route to the target.
    #[error(transparent)]
    Trace(#[from] fullpipe_route::TraceError),
    /// A setting of this host.
    #[error(transparent)]
    Settings(#[from] fullpipe_host::SysctlError),
    /// A system call of this host failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// The file to be sent, or written to.
    #[error("cannot open {path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        cause: io::Error,
    },
    /// Data should have come, and did not.
    #[error("no data came from {host} for {after}")]
    NoData {
        /// The name as it was given.
        host: String,
        /// For how long.
        after: Span,
    },
    /// The user stopped it before data flowed.
    #[error("interrupted before the test began")]
    Interrupted,
}

impl ProbeError {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { action, cause }
    }
}

/// Why a server cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The limit of open files is too low.
    #[error("{permitted} open files are permitted, {needed} are needed; raise the limit, as with `ulimit -n 1024`")]
    Descriptors {
        /// The limit.
        permitted: u64,
        /// The least that a server needs.
        needed: u64,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// What it was to send, or write to.
    #[error("cannot use {0}")]
    File(#[source] io::Error),
    /// A system call failed.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
}

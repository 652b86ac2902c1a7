use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use thiserror::Error;

/// Why nothing could be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process belongs to another user.
    #[error("cannot look at the sockets of process {pid}: {cause}; it is another user's: try with `sudo`")]
    Forbidden {
        /// The process.
        pid: u32,
        /// What the kernel said.
        cause: io::Error,
    },
    /// There is no such connection.
    #[error(
        "there is no TCP connection from {local} to {remote} on this host; `ss -tn` lists those that there are, this end's \
         address first"
    )]
    NoConnection {
        /// This end.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
    },
    /// The kernel does not tell of connections.
    #[error("cannot ask the kernel for its TCP connections (sock_diag): {0}")]
    Table(#[source] io::Error),
    /// A setting of this host.
    #[error(transparent)]
    Settings(#[from] fullpipe_host::SysctlError),
}

impl WatchError {
    pub(crate) fn of_process(pid: u32, cause: io::Error) -> Self {
        match cause.kind() {
            ErrorKind::NotFound => Self::NoProcess(pid),
            _ => Self::Forbidden { pid, cause },
        }
    }
}

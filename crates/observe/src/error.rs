use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use thiserror::Error;

use crate::process;

/// The error with which nothing can be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process belongs to another user.
    #[error(
        "cannot read the sockets of process {pid}: {cause}; it is another user's: try with `sudo`"
    )]
    Forbidden {
        /// Number of the process.
        pid: u32,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The process is in another network namespace, where its packets cannot be captured from here.
    #[error(
        "process {0} is in another network namespace: capture there, by `nsenter --net --target {0} fullpipe …`"
    )]
    OtherNetwork(u32),
    /// There is no such connection on this host.
    #[error(
        "there is no TCP connection from {local} to {remote} on this host; `ss -tn` lists the connections, this end's \
         address first"
    )]
    NoConnection {
        /// This end.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
    },
    /// The kernel does not list its TCP connections.
    #[error("cannot ask the kernel for its TCP connections (sock_diag): {0}")]
    Table(#[source] io::Error),
    /// A setting of this host cannot be read.
    #[error(transparent)]
    Settings(#[from] fullpipe_host::SysctlError),
}

impl WatchError {
    pub(crate) fn of_process(pid: u32, cause: io::Error) -> Self {
        // The files of one that has ended, but was not waited for, belong to root.
        if cause.kind() == ErrorKind::NotFound || !process::is_alive(pid) {
            return Self::NoProcess(pid);
        }
        Self::Forbidden { pid, cause }
    }
}

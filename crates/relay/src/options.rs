//! Settings of a relay, and its events.

use std::io;
use std::net::{IpAddr, SocketAddr};

use fullpipe_control::{AddressPrefix, ListenError, RefusedConnections, TlsError};
use fullpipe_iperf::SharedKey;
use fullpipe_record::{RelayJoined, RelayProgress, RelayedConnection};
use fullpipe_units::Span;
use thiserror::Error;

use crate::rules::{AllowedTargets, TargetAddress};

/// The settings of a relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// Address to listen on; `None` for every one of the host.
    pub address: Option<IpAddr>,
    /// Port to listen on; 0 lets the kernel choose.
    pub port: u16,
    /// Networks whose clients are served; all if empty.
    pub allow: Vec<AddressPrefix>,
    /// Most connections at once.
    pub max_connections: u32,
    /// Most of them of one address (IPv6: of one /64 network). A far relay, which near ones call,
    /// has no such limit.
    pub max_connections_per_address: u32,
    /// Time that connections have to end by themselves once the relay stops.
    pub drain: Span,
    /// Time between two reports of a connection while it lasts; `None` for none before its end.
    pub interval: Option<Span>,
    /// The part that it plays.
    pub role: RelayRole,
}

/// The part that a relay plays.
#[derive(Debug, Clone)]
pub enum RelayRole {
    /// The relay connects to the target itself.
    Alone {
        /// The target.
        to: TargetAddress,
    },
    /// The relay asks the far relay to connect to the target.
    Near {
        /// The target, as the far relay resolves it.
        to: TargetAddress,
        /// The far relay.
        via: TargetAddress,
        /// The key that both have.
        key: SharedKey,
        /// True if TLS is disabled.
        plain: bool,
        /// True if blocks are compressed where that wins, if the far relay can do that, too.
        compress: bool,
        /// Connections to the far relay that wait for clients.
        pool: u16,
    },
    /// The relay connects to targets for near relays.
    Far {
        /// Targets that it connects to.
        targets: Vec<AllowedTargets>,
        /// The key that both have.
        key: SharedKey,
        /// True if TLS is disabled.
        plain: bool,
    },
}

/// Something that happened at a relay.
#[derive(Debug, Clone)]
pub enum RelayEvent {
    /// The relay listens.
    Listening(SocketAddr),
    /// A connection begins, where an interval of reports was asked for.
    Joined(RelayJoined),
    /// A connection lasts, and was not idle since the last report.
    Progress(Box<RelayProgress>),
    /// A connection is over.
    Relayed(Box<RelayedConnection>),
    /// A client could not be joined to its target, and was reset.
    NotRelayed {
        /// The client.
        client: SocketAddr,
        /// The reason, as a clause.
        why: String,
    },
    /// Connections were closed at once, or not joined: the first of a reason, or those that
    /// followed.
    Rejected(RefusedConnections),
    /// Connections cannot be accepted; they wait, and it is tried again at once.
    NotAccepting {
        /// The reason.
        why: String,
    },
    /// The far relay cannot be used; it is tried again each second.
    NoPeer {
        /// The reason, with the address.
        why: String,
    },
    /// The relay stops: connections may still end by themselves.
    Stopping {
        /// Connections that are left.
        connections: u32,
        /// Time that they have.
        deadline: Span,
    },
}

/// The error of a relay that cannot run.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The relay cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The process may hold too few files.
    #[error(
        "{wanted} connections need {needed} open files, and this process may have {permitted}; raise it with \
         `ulimit -n {needed}`, or ask for fewer with --max-connections and --pool"
    )]
    Descriptors {
        /// Connections that were asked for.
        wanted: u32,
        /// Descriptors that they need.
        needed: u64,
        /// Descriptors that are permitted.
        permitted: u64,
    },
    /// TLS cannot be used.
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] TlsError),
    /// Another system call failed.
    #[error("{operation} failed: {cause}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl RelayError {
    /// Returns the function that makes an error of the kernel's, for `operation`.
    pub(crate) fn from_io(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Io { operation, cause }
    }
}

//! The control connection between a client and a server, and proof of who is at its other end.
//!
//! * In: a connected TCP stream. Out: a [`ControlConnection`] that sends and receives messages of
//!   any framing, in the clear or inside TLS 1.3 ([`TlsIdentity`] at the server, [`TlsTrust`] at
//!   the client).
//! * In: a user name, a password and an RSA key. Out: the token of iperf3's login
//!   ([`ClientLogin`]), which the server checks with a [`LoginAuthenticator`].
//! * In: a connected TCP stream and a key that both ends share. Out: an [`AuthenticatedPeer`] that
//!   has proved that it has the key.
//! * In: a secret that both ends know and no third party can guess. Out: TLS 1.3 with keys that
//!   follow from it ([`PinnedTls`]), for QUIC, and for TCP without a round trip for proofs.
//! * In: the [`ControlConnection`] of either of these. Out: its socket and its [`TlsRecords`] of
//!   TLS, which take no memory while nothing moves, and are opened and sealed in the buffers of the
//!   caller.
//! * In: the certificate of a web server. Out: TLS as browsers speak it, whose records can be taken
//!   over ([`WebIdentity`], [`WebClientTls`]).
//! * In: an address and a port. Out: a socket that listens there ([`listen_tcp`]).
//! * In: the addresses of a host. Out: a connection to the first that answers
//!   ([`connect_to_first`]).
//! * In: snapshots of connections ([`QueueSample`]). Out: the bytes that wait in the kernel for
//!   clients which do not take them ([`QueueWatch`]), and who must end for that ([`QueueBudget`]).
//! * In: addresses, and lists of [`AddressPrefix`]s. Out: which of them are meant, and whose quota
//!   each uses.
//! * In: clients that have not yet proved themselves. Out: their places, and who loses one
//!   ([`PendingClients`]).
//! * In: connections to one port. Out: those that another server of the process answers
//!   ([`ConnectionHandover`]).
//! * In: a block. Out: the same by zstd, and whether that saves time ([`BlockCompressor`],
//!   [`BlockDecompressor`], [`CompressionChoice`]), for copies and relays.
//! * In: the reasons of refusals. Out: few enough of them for a log ([`RefusalCounts`]).
//! * In: a host as ssh names it. Out: this program, running there for as long as the connection
//!   lasts ([`FarProgram`]).
//!
//! This crate knows nothing of what is measured, so that measuring, serving, relaying and copying
//! can share it.

mod calling;
mod compression;
mod connection;
mod far_end;
mod handover;
mod listening;
mod login;
#[cfg(test)]
mod loopback;
mod network;
mod peers;
mod pending;
mod pinned;
mod places;
mod queue_budget;
mod raw_key;
mod record_stream;
mod records;
#[cfg(test)]
mod records_with_rustls_tests;
mod refusals;
mod runtime;
mod unix_seconds;
mod web_tls;

pub use calling::connect_to_first;
pub use compression::{BlockCompressor, BlockDecompressor, CompressionChoice, CompressionTrial};
pub use connection::{ControlConnection, HANDSHAKE, TlsError, TlsIdentity, TlsTrust};
pub use far_end::{FarEndError, FarEndOptions, FarProgram, SshHost, SshTunnel, configured_host};
pub use fullpipe_record::event::Rejected as RefusedConnections;
pub use handover::{ConnectionHandover, HandedConnections, begins_pinned_tls};
pub use listening::{ListenError, listen_tcp, most_descriptors};
pub use login::{
    ClientLogin, LoginAttempt, LoginAuthenticator, RsaError, RsaPadding, RsaPrivateKey,
    RsaPublicKey,
};
pub use network::{
    AddressPrefix, NetworkError, canonical_address, client_networks, client_prefix, is_admitted,
};
pub use peers::{AuthenticatedPeer, PeerTls};
pub use pending::{PendingClients, PendingPlace};
pub use pinned::PinnedTls;
pub use places::{ClientPlace, ClientPlaces, NoPlace, available_quota};
pub use queue_budget::{
    QUEUE_INTERVAL, QueueBudget, QueueExcess, QueueLimits, QueueSample, QueueShare, QueueWatch,
    StalledBytes,
};
pub use record_stream::RecordStream;
pub use records::{MAX_RECORD, RecordError, TlsRecords};
pub use refusals::RefusalCounts;
pub use runtime::single_threaded_runtime;
pub use unix_seconds::unix_seconds;
pub use web_tls::{WebClientTls, WebIdentity, authority_fingerprint};

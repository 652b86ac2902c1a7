//! The data of a copy on one QUIC connection (RFC 9000), for hosts where TCP may not use BBR, or
//! whose windows a device spoils: windows and congestion control are this program's own.
//!
//! * The keys of both ends follow from the secret of the copy ([`fullpipe_control::PinnedTls`]), so
//!   no other host gets beyond the handshake.
//! * A thread drives the library on a runtime of its own ([`setup`]). The threads that read files
//!   and write them pass their bytes to it, or take them from it ([`pipe`]).
//! * Several streams of the copy cross side by side. Each is cut into portions of 1 MiB, and each
//!   portion is a QUIC stream: the library gives a stream up that has more than 1024 gaps, and a
//!   portion has fewer packets than that.

mod bbr;
mod congestion;
mod pipe;
mod portions;
mod setup;
mod udp;
mod watch;

pub(crate) use pipe::QuicConnection;
pub(crate) use setup::{HANDSHAKE_DEADLINE, QuicListener, dial_quic};
pub(crate) use watch::QuicWatch;

/// Streams of a copy on a connection at most.
pub(crate) const MAX_STREAMS: u16 = 64;

/// Streams of a copy on a connection, where no number was asked for: more let more threads hash and
/// write.
pub(crate) const USUAL_STREAMS: u16 = 4;

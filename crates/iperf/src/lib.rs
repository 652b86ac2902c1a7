//! The protocols of iperf3 and iperf2, without sockets and without a clock.
//!
//! A driver owns the connections. It feeds a [`ClientSession`] or a [`ServerSession`] with the
//! bytes of the control connection and with what happened, passes the time with every call, and
//! carries out the actions that come out:
//!
//! ```text
//! client                                server
//! cookie                            →
//!                                   ←   9   send the parameters
//! parameters (JSON)                 →
//!                                   ←   10  open the data connections (or 0xFE and an error number)
//! data connections, cookie on each  →
//! (UDP: a hello on each)            ⇄   (UDP: a reply on each)
//!                                   ←   1   initialise
//!                                   ←   2   data may flow
//! 4   the test is over              →
//!                                   ←   13  send your results
//! results (JSON)                    →
//!                                   ←   results (JSON)
//!                                   ←   14  both have both
//! 16  done                          →
//! ```
//!
//! In every state there is a deadline: call `tick` when it is reached, and a stalled peer becomes
//! a [`TestError`]. Nothing that a peer sends makes either machine panic or hold more than the
//! message limits in [`JsonMessage`].
//!
//! A test has one data connection for each stream and direction, in an order that [`direction_of`]
//! defines. What is on them is in [`udp`] for datagrams, and nothing but payload with TCP.
//! [`iperf2`] has no control connection: the module holds what its clients and servers say inside
//! the data. A server that listens for both distinguishes them with [`classify_first_bytes`] and
//! [`classify_first_datagram`].
//!
//! # Between two ends that are both fullpipe
//!
//! Two ends that are fullpipe know each other by the key `x_fullpipe`, which iperf3 ignores. In the
//! client's parameters it is an object:
//!
//! * `version`: 3. A server that reads a greater one takes it for this one with additions. Clients
//!   of version 1 proved keys in a way that could be replayed; a server with a key refuses them.
//!   Those of version 3 send their cookie with the hello of each UDP stream, so that no other host
//!   can open it.
//! * `settings`: the client's `HostSettings`, if there is room for them: iperf3 servers take no
//!   more than 8 KiB in all.
//! * `ticket`: the text of a [`SealedTicket`], of a client that has one.
//!
//! A server with a [`ServerKey`] answers the parameters with
//!
//! ```text
//!                                   ←   0x6B, 32 random bytes
//! 0x6B, 32 bytes of proof           →
//! ```
//!
//! and asks for the data connections only if the proof is that of [`SharedKey::prove_request`]. A
//! server of tickets takes the key from the ticket's text and its own secret; it reads a ticket
//! only once its key has been proved.
//!
//! To a client that said so the server sends 0x63 in place of 10: it answers the hellos of UDP
//! streams that arrive together, which an iperf3 server would confuse. And it reports on itself
//! while data flows, so that it is known of an end that dies, or of a test that is interrupted,
//! what it had seen. Between 2 and 13 it may send, any number of times (about once a second),
//!
//! ```text
//!                                   ←   0x66, a report (JSON)
//! ```
//!
//! a state byte that iperf3 does not have, the length in four bytes as before any message, and an
//! `EndReport` of at most 1 MiB. The first holds its settings and its data sockets; those that
//! follow what it has seen up to `until`: one sample of each of its TCP streams (TCP_INFO, and the
//! memory of the socket), its processor time, and what it counted of the datagrams that came in. A
//! server sends one only when the client has taken the one before; one that reports too much, too
//! often, or at another time breaks the protocol.
//!
//! The server's results carry under `x_fullpipe` its whole `EndReport`, which replaces all that it
//! reported before.

#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod caller;
mod client;
mod cookie;
mod error;
mod inbox;
pub mod iperf2;
mod jitter;
mod json;
mod key;
mod number;
mod parameters;
mod report;
mod results;
mod sequence;
mod server;
mod state;
mod streams;
mod ticket;
pub mod udp;
mod user;

pub use caller::{CallerKind, DatagramCaller, classify_first_bytes, classify_first_datagram};
pub use client::{ClientAction, ClientSession};
pub use cookie::TestCookie;
pub use error::{ServerError, SessionStep, TestError, TestRefusal};
pub use inbox::JsonMessage;
pub use jitter::JitterEstimate;
pub use key::{KeyError, Proof, ServerNonce, SharedKey};
pub use number::ErrorNumber;
pub use parameters::TestParameters;
pub use results::{DatagramCount, DatagramCounts, ServerOutput, StreamResult, TestResults};
pub use sequence::SequenceCounter;
pub use server::{KeyCheck, ServerAction, ServerKey, ServerSession};
pub use state::StateByte;
pub use streams::{data_connections, direction_of};
pub use ticket::{SealedTicket, TestTicket, TicketError, UsedSlots};
pub use user::{CredentialsError, UserCredentials, UserError, UserList, UsersError};

use fullpipe_units::Span;

/// The port on which iperf3 servers listen, TCP and UDP.
pub const DEFAULT_PORT: u16 = 5201;

/// The longest test: what a newer iperf3 permits as `-t`. A test that names no duration (limited by
/// bytes, or by nothing) is ended after it.
pub const MAX_TEST: Span = Span::from_secs(86_400);

/// The times that each side waits for the other outside the transfer itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For an answer on the control connection, for one data connection, for the driver's own
    /// results, or for more of a server's results.
    pub reply: Span,
    /// For a whole results message, from its being due to its last byte.
    pub results: Span,
}

impl Default for Timeouts {
    /// 10 s and 30 s, the two times after which iperf3 itself (since 3.15) gives up on a control
    /// connection.
    fn default() -> Self {
        Self {
            reply: Span::from_secs(10),
            results: Span::from_secs(30),
        }
    }
}

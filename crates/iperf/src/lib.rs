//! The protocols of iperf3 and iperf2, without sockets and without a clock.
//!
//! A driver owns the connections. It feeds a [`Client`] or a [`ServerSession`] with the bytes of the control
//! connection and with what happened, tells the time with every call, and carries out the actions that come out:
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
//! In every state there is a deadline: call `tick` when it is reached, and a stalled peer becomes an [`Error`].
//! Nothing that a peer sends makes either machine panic or hold more than the message limits in [`Message`].
//!
//! A test has one data connection for each stream and direction, in an order that [`direction_of`] tells. What is on them
//! is in [`udp`] for datagrams, and nothing but payload with TCP. [`iperf2`] has no control connection: the module holds
//! what its clients and servers say inside the data. A server that listens for both tells them apart with
//! [`classify_first_bytes`] and [`classify_first_datagram`].
//!
//! Two ends that are both fullpipe know each other by the key `x_fullpipe`, which iperf3 ignores: the client's
//! parameters say that it understands it, and the server's results then carry the server's `EndReport`.

mod caller;
mod client;
mod cookie;
mod error;
mod inbox;
pub mod iperf2;
mod json;
mod key;
mod number;
mod parameters;
mod results;
mod server;
mod state;
mod streams;
pub mod udp;
mod user;

pub use caller::{Caller, DatagramCaller, classify_first_bytes, classify_first_datagram};
pub use client::{Client, ClientAction};
pub use cookie::Cookie;
pub use error::{Error, Refusal, ServerError, Step};
pub use inbox::Message;
pub use key::{Key, KeyError, Proof, ProofError};
pub use number::ErrorNumber;
pub use parameters::Parameters;
pub use results::{DatagramCount, DatagramCounts, Results, ServerOutput, StreamResult};
pub use server::{ServerAction, ServerSession};
pub use state::State;
pub use streams::{data_connections, direction_of};
pub use user::{Credentials, CredentialsError, UserError, Users, UsersError};

use fullpipe_units::Span;

/// The port on which iperf3 servers listen, TCP and UDP.
pub const DEFAULT_PORT: u16 = 5201;

/// The longest test: what a newer iperf3 permits as `-t`. A test that names no duration (limited by bytes, or by
/// nothing) is ended after it.
pub const LONGEST_TEST: Span = Span::from_secs(86_400);

/// How long each side waits for the other outside the transfer itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For an answer on the control connection, for one data connection, for the driver's own results, or for more of a
    /// server's results.
    pub reply: Span,
    /// For a whole results message, from its being due to its last byte.
    pub results: Span,
}

impl Default for Timeouts {
    /// 10 s and 30 s, the two times after which iperf3 itself (since 3.15) gives up on a control connection.
    fn default() -> Self {
        Self { reply: Span::from_secs(10), results: Span::from_secs(30) }
    }
}

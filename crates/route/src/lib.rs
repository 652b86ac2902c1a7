//! The path to a target, measured from this end with small packets of its own.
//!
//! * [`EchoProber`]: takes an address and returns the round-trip times of echo requests before,
//!   during and after a load ([`EchoResult`]). [`echo_test`] and [`echo_reply`] are the server's
//!   part, for hosts whose kernel does not answer echo requests.
//! * [`trace_route`]: takes an address and returns the routers on the way and the path MTU.
//! * [`SynAckSniffer`], [`first_window`] and [`caller_handshake`]: take a connection and return the
//!   options of the peer's SYN or SYN-ACK. [`was_changed`] decides from them if a device on the way
//!   changed the SYN, and [`syn_quotes`] finds the two routers between which that device is;
//!   [`changed_syn_quotes`] does so for a connection of another program.
//!
//! Everything runs on sockets and threads without an async runtime, and ends by a deadline.

mod latency;
mod syn_ack;
mod trace;

pub use latency::{EchoProber, EchoResult, echo_reply, echo_test};
pub use syn_ack::{SynAckSniffer, caller_handshake, first_window};
pub use trace::{TraceError, changed_syn_quotes, syn_quotes, trace_route, was_changed};

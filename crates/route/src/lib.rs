//! The path to a target, measured from this end by its own small packets.
//!
//! * [`Prober`]: an address in; out, round-trip times of echo requests before, during and after a load ([`Taken`]).
//!   [`echo_test`] and [`echo_reply`] are the other end's part, where its kernel does not answer echo requests.
//! * [`trace`]: an address in; out, the routers on the way and the path MTU.
//! * [`SynAckSniffer`], [`first_window`] and [`caller_handshake`]: a connection in; out, what the peer offered in its SYN or SYN-ACK.
//!   [`was_changed`] judges from that whether a device on the way changed it, and [`syn_quotes`] finds out between which two
//!   routers that device is.
//!
//! All of it uses sockets and threads, nothing needs a runtime, and everything has a deadline.

mod latency;
mod syn_ack;
mod trace;

pub use latency::{Prober, Taken, echo_reply, echo_test};
pub use syn_ack::{SynAckSniffer, caller_handshake, first_window};
pub use trace::{TraceError, syn_quotes, trace, was_changed};

//! The path to a target, measured from this end with small packets.
//!
//! * [`trace_route`]: takes a destination and returns the routers on the way and the path MTU.
//! * [`SynAckSniffer`], [`first_window`] and [`caller_handshake`]: take a connection and return the
//!   options of the peer's SYN or SYN-ACK. [`was_changed`] decides from them if a device on the way
//!   changed the SYN, and [`syn_quotes`] finds the two routers between which that device is;
//!   [`changed_syn_quotes`] does so for a connection of another program.

mod route_state;
mod socket;
mod syn_ack;
mod syn_probe;
mod trace;

pub use syn_probe::changed_syn_quotes;
pub use trace::trace_route;

pub(crate) use syn_ack::{SynAckSniffer, caller_handshake, first_window};
pub(crate) use syn_probe::{syn_quotes, was_changed};

/// Maximum TTL of a probe.
const MAX_HOPS: u8 = 30;

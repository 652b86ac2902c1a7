//! What Linux makes of socket buffers, by version: how much of a receive buffer it advertises, which window scale it
//! picks, what a request stores, what a sender keeps in flight.
//!
//! Sources: `net/ipv4/tcp_input.c`, `tcp_output.c` and `net/core/sock.c` at the commits named, and measurements on
//! Linux 6.18 at MTU 1500. Point releases that carry a later rule as a back-port follow the older one here, unless the
//! back-port is known.

mod receive;
mod request;
mod send;
mod share;
mod sizing;

pub use receive::{ReceiveBuffer, largest_window, request_for_window};
pub use request::{rmem_max, stored_rcvbuf, stored_sndbuf, wmem_max};
pub use send::{payload_share, send_buffer, writer_fill};
pub use share::Share;
pub use sizing::{tcp_rmem_max_for, tcp_wmem_max_for};

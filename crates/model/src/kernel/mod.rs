//! Linux's rules for socket buffers, by version: the share of a receive buffer that it advertises,
//! which window scale it picks, what a request stores, what a sender keeps in flight.
//!
//! Sources: `net/ipv4/tcp_input.c`, `tcp_output.c` and `net/core/sock.c` at the commits named, and
//! measurements on Linux 6.18 at MTU 1500. Point releases follow a later rule where they are known
//! to carry it as a back-port. Kernels of distributions may carry more than their number says, and
//! follow the older rule here.

mod defaults;
mod receive;
mod request;
mod send;
mod share;
mod sizing;

pub use defaults::default_settings;
pub use receive::{
    ReceiveBuffer, first_window, largest_window, offered_at_first, request_for_window,
    segment_in_window, socket_request, window_behind_handshake,
};
pub use request::{rmem_max, stored_rcvbuf, stored_sndbuf, wmem_max};
pub use send::{asked_in_flight, asked_rate, filled_window, mean_fill, send_buffer};
pub use share::WindowShare;
pub use sizing::{tcp_rmem_max_for, tcp_wmem_max_for};

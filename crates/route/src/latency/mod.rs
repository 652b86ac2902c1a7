//! Round-trip times beside a load, on a flow of their own: echo requests from a thread and a socket of their own, stamped by
//! the kernel on their way out and in, so that no round trip contains what this host's programs wait for each other.
//!
//! They begin as soon as the target's address is known, and run beside the connection set-up, the load, and the exchange of
//! results. Echo requests of ICMP come first, because the other end's kernel answers them; where they are not permitted or
//! not answered, datagrams that a fullpipe server sends back.

mod datagram;
mod flow;
mod icmp;
mod log;
mod prober;

pub use datagram::{echo_reply, echo_test};
pub(crate) use flow::bind;
pub(crate) use icmp::Echoes;
pub use log::Taken;
pub use prober::Prober;
pub(crate) use prober::random;

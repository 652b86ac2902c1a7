//! Round-trip times before, during and after a load, from echo requests that a thread sends on a
//! socket of its own. The kernel stamps them as they leave and arrive, so that no round-trip time
//! contains the time that this host's programs wait for a processor.
//!
//! The echo requests begin as soon as the address of the target is known, and continue during the
//! connection set-up, the load and the exchange of results. ICMP echo requests come first, because
//! the kernel of the other end answers them; if they are not permitted or not answered, datagrams
//! follow, which a fullpipe server returns.

mod datagram;
mod flow;
mod icmp;
mod log;
mod minutes;
mod prober;

pub(crate) use datagram::{echo_reply, echo_test};
pub(crate) use flow::bind_socket;
pub(crate) use flow::open_echo_socket;
pub(crate) use icmp::EchoMessages;
pub(crate) use log::EchoResult;
pub use minutes::{EchoedMinute, echo_minutes};
pub(crate) use prober::EchoProber;
pub(crate) use prober::random_u64;

//! The system calls that the standard library lacks, as safe functions. Linux only; synchronous.
//!
//! The only room with `unsafe`: every block says why it is sound. What rustix or socket2 offer safely is taken from
//! there, so little is left here.

mod complaints;
mod connections;
mod control;
mod datagrams;
mod descriptors;
mod interface;
mod message;
mod namespace;
mod packet;
mod route;
mod socket;
mod stamps;
mod tcp_info;
mod tun;
mod usage;
mod zero_copy;

pub use complaints::{Complaint, complaint, keep_complaints};
pub use connections::{Connection, Connections};
pub use datagrams::{
    Arrival, MOST_MESSAGES, MOST_SEGMENTS, cut_datagrams, join_datagrams, receive_messages, send_messages,
    stamp_arrivals,
};
pub use descriptors::{receive_with_descriptors, send_with_descriptors, seqpacket_pair};
pub use interface::{
    Ipv4Link, configure_ipv4, ethernet_up, loopback_up, set_ethernet_address, single_segments, without_arp,
};
pub use namespace::{
    Fork, NetNamespace, Unsharing, end_with_this_thread, enter_before_exec, enter_process, fork_single_threaded,
    ignore_terminal_signals, unshare_before_exec,
};
pub use packet::{open_packet_socket, packet_drops};
pub use route::{create_veth, output_device};
pub use socket::{fixed_buffers, set_pacing_rate, socket_memory, tcp_info};
pub use stamps::{Stamped, arrival, departure, stamp_passages};
pub use tcp_info::decode as decode_tcp_info;
pub use tun::{Offload, open_tun};
pub use usage::{CpuTime, process_cpu_time};
pub use zero_copy::{Completions, Pages, allow_zero_copy, completions, send_zero_copy};

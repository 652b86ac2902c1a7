//! The system calls that the standard library lacks, as safe functions. Linux only; synchronous.
//!
//! The only room with `unsafe`: every block says why it is sound. What rustix or socket2 offer
//! safely is taken from there, so little is left here. And what every room takes: a lock, a thread,
//! and the wait for one descriptor.

mod capture;
mod child;
mod confine;
mod connections;
mod control;
mod datagrams;
mod descriptors;
mod device;
mod devices;
mod dump;
mod ethtool;
mod icmp_errors;
mod interface;
mod locks;
mod mapping;
mod message;
mod name_services;
mod namespace;
mod packet;
mod qdisc;
mod random;
mod readable;
mod route;
mod routes;
mod socket;
mod stamps;
mod tcp_info;
mod tcp_metrics;
mod threads;
mod tun;
mod usage;
mod zero_copy;

pub use capture::{
    ALL_DEVICES, CAPTURED_LENGTH, CaptureSocket, CapturedFrame, CapturedPeer, MAX_PEERS,
};
pub use child::ends_within;
pub use confine::confine_thread;
pub use connections::{ConnectionTable, TcpConnection};
pub use datagrams::{
    MAX_MESSAGES, MAX_SEGMENTS, ReceivedMessage, cut_datagrams, join_datagrams, receive_messages,
    send_messages, stamp_arrivals,
};
pub use descriptors::{receive_with_descriptors, send_with_descriptors, seqpacket_pair};
pub use device::{
    DeviceState, LinkErrors, QueueState, device_state, filtered_packets, queue_states,
};
pub use devices::{NetworkDevice, list_devices};
pub use ethtool::{
    DeviceFeature, DeviceLink, DeviceRings, device_counter_names, device_counters, device_features,
    device_link, device_rings, set_feature,
};
pub use icmp_errors::{IcmpError, enable_recverr, icmp_error};
pub use interface::{
    Ipv4Link, configure_ipv4, ethernet_up, lead_to_network_of_peer, lead_to_peer_alone,
    loopback_up, set_device_mtu, set_device_queue_length, set_ethernet_address, single_segments,
    without_arp,
};
pub use locks::lock;
pub use name_services::look_up_without_modules;
pub use namespace::{
    ForkSide, NetNamespace, UnsharePrivilege, end_with_this_thread, enter_before_exec,
    enter_process, fork_single_threaded, ignore_terminal_signals, network_cookie,
    unshare_before_exec,
};
pub use packet::{open_packet_socket, packet_drops};
pub use qdisc::{RootQdisc, delete_root_qdisc, restore_root_qdisc, root_qdisc, set_root_qdisc};
pub use random::random_bytes;
pub use readable::wait_readable;
pub use route::{create_veth, output_device};
pub use routes::{NUMERIC_METRICS, UnicastRoute, list_routes, set_route_metric};
pub use socket::{
    fixed_buffers, save_syn, saved_syn, set_pacing_rate, socket_memory, tcp_info, unfix_buffers,
};
pub use stamps::{TimestampedMessage, receive_arrival, receive_departure, stamp_passages};
pub use tcp_info::decode_tcp_info;
pub use tcp_metrics::tcp_metrics;
pub use threads::start_thread;
pub use tun::{TunOffload, open_tun};
pub use usage::{
    ChildUsage, CpuTime, children_cpu_time, process_cpu_time, thread_cpu_time, wait_with_usage,
};
pub use zero_copy::{
    MappedPages, ZeroCopyCompletions, allow_zero_copy, receive_completions, send_zero_copy,
};

//! The counters of a network device and its queueing disciplines, by netlink: `/sys` may be of
//! another network namespace.

use std::io;

use fullpipe_units::{BitRate, ByteCount, SegCount};

use crate::dump::{
    HEADER_LENGTH, attribute, attribute_u32, dump_list, parse_u32, read_word, u32_at,
};
use crate::route::{ask, get_link_request};

/// A device as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceState {
    /// Number of the device (ifindex).
    pub index: u32,
    /// MTU of the device.
    pub mtu: ByteCount,
    /// Bytes of the header of the link that its counts include with each packet: 14 of Ethernet,
    /// else none.
    pub link_header: ByteCount,
    /// Packets that it has sent; some drivers count a train of segments as one.
    pub sent_packets: u64,
    /// Bytes of the packets that it has sent, with the headers of the link.
    pub sent: ByteCount,
    /// Packets that it has received, likewise.
    pub received_packets: u64,
    /// Bytes of the packets that it has received, with the headers of the link.
    pub received: ByteCount,
    /// Packets that may wait for it (`txqueuelen`).
    pub queue_length: SegCount,
    /// Packets that it has dropped on their way out.
    pub dropped_out: u64,
    /// Packets that it has dropped on their way in, or had no room for.
    pub dropped_in: u64,
    /// Errors of its link.
    pub link_errors: LinkErrors,
}

/// Errors that a device counts on its link, as `struct rtnl_link_stats64` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkErrors {
    /// Collisions while it sent (`collisions`).
    pub collisions: u64,
    /// Collisions after the first 64 bytes of a frame, with which the frame is lost
    /// (`tx_window_errors`).
    pub late_collisions: u64,
    /// Frames that were lost because the carrier was (`tx_carrier_errors`).
    pub carrier: u64,
    /// Frames that came with a wrong checksum (`rx_crc_errors`).
    pub checksum: u64,
}

/// A queueing discipline for packets on their way out, as it is now. The counts wrap around.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueState {
    /// Number of the discipline; zero for those that the kernel made by itself.
    pub handle: u32,
    /// The class that it serves, the device's root among them.
    pub parent: u32,
    /// `tbf`, `fq`, `pfifo_fast`…
    pub kind: String,
    /// The rate that it holds packets to: `tbf`'s, `cake`'s, or `fq`'s for each flow.
    pub rate: Option<BitRate>,
    /// Packets that it has dropped.
    pub dropped: u32,
    /// Number of times that a packet has had to wait for its turn or its rate.
    pub overlimits: u32,
    /// Number of times that the device has taken no more.
    pub requeues: u32,
    /// Bytes that wait in it.
    pub backlog: ByteCount,
    /// Parameters as the kernel reports them (`TCA_OPTIONS`), which are what it takes to make
    /// another like it.
    pub options: Vec<u8>,
}

/// Device `name` in the network namespace of the calling thread.
///
/// # Errors
/// Fails with the kernel's error, for example where there is no such device.
pub fn device_state(name: &str) -> io::Result<DeviceState> {
    let mut answer = vec![0; ANSWER];
    let answer = ask(&get_link_request(name), &mut answer)?;
    answer
        .get(HEADER_LENGTH..)
        .and_then(read_device)
        .ok_or_else(malformed_answer)
}

/// The queueing disciplines of device `index` for packets on their way out, outermost first.
///
/// # Errors
/// Fails with the kernel's error.
pub fn queue_states(index: u32) -> io::Result<Vec<QueueState>> {
    let mut found = dump_queues(index)?;
    found.retain(|queue| queue.parent != TC_H_INGRESS);
    Ok(outermost_first(found))
}

/// Returns the number of packets that the filters of device `index` dropped on their way in
/// (disciplines `ingress` and `clsact`); it wraps around.
///
/// # Errors
/// Fails with the kernel's error.
pub fn filtered_packets(index: u32) -> io::Result<u32> {
    let queues = dump_queues(index)?;
    let incoming = queues.iter().find(|queue| queue.parent == TC_H_INGRESS);
    Ok(incoming.map_or(0, |queue| queue.dropped))
}

fn dump_queues(index: u32) -> io::Result<Vec<QueueState>> {
    let mut found = Vec::new();
    // For all: the kernel knows no dump of one device.
    dump_list(
        None,
        libc::RTM_GETQDISC,
        &[0; QUEUE_LENGTH],
        &mut |_, body| found.extend(read_queue(body, index)),
    )?;
    Ok(found)
}

/// Room for one answer: the kernel gives a dump as much at once as the reader has room for, 32 KiB
/// at most.
const ANSWER: usize = 32 << 10;

/// `struct ifinfomsg`, with the device's number at [`INDEX_AT`].
const LINK_LENGTH: usize = 16;

/// Offset of the kind of the link in it (`ARPHRD_ETHER` and others), and bytes of Ethernet's
/// header.
const KIND_AT: usize = 2;
const ETHERNET_HEADER: ByteCount = ByteCount::new(14);

/// `struct tcmsg`: family, the device's number, handle, parent.
const QUEUE_LENGTH: usize = 20;

/// Offset of the device's number in both.
const INDEX_AT: usize = 4;

/// Of `struct rtnl_link_stats64`: the counts are 64 bits each.
const RX_PACKETS: usize = 0;
const TX_PACKETS: usize = 1;
const RX_BYTES: usize = 2;
const TX_BYTES: usize = 3;
const RX_DROPPED: usize = 6;
const TX_DROPPED: usize = 7;
const COLLISIONS: usize = 9;
const RX_CRC: usize = 12;
const RX_MISSED: usize = 15;
const TX_CARRIER: usize = 17;
const TX_WINDOW: usize = 20;

/// `linux/rtnetlink.h` and `linux/gen_stats.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;

/// `linux/pkt_sched.h`.
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_FQ_FLOW_MAX_RATE: u16 = 7;
const TCA_CAKE_BASE_RATE64: u16 = 2;

/// The longest name of a queueing discipline (`IFNAMSIZ`).
const MAX_KIND: usize = 16;

fn read_device(body: &[u8]) -> Option<DeviceState> {
    let attributes = body.get(LINK_LENGTH..)?;
    let counts = attribute(attributes, libc::IFLA_STATS64).unwrap_or_default();
    let count = |number: usize| {
        let count = counts.get(number * 8..).and_then(parse_u64);
        count.unwrap_or_default()
    };
    let kind = body
        .get(KIND_AT..)?
        .first_chunk()
        .copied()
        .map(u16::from_ne_bytes);
    let queue_length = attribute_u32(attributes, libc::IFLA_TXQLEN).unwrap_or_default();
    let is_ethernet = kind == Some(libc::ARPHRD_ETHER);
    Some(DeviceState {
        index: u32_at(body, INDEX_AT)?,
        mtu: ByteCount::new(attribute_u32(attributes, libc::IFLA_MTU)?.into()),
        link_header: if is_ethernet {
            ETHERNET_HEADER
        } else {
            ByteCount::ZERO
        },
        received_packets: count(RX_PACKETS),
        received: ByteCount::new(count(RX_BYTES)),
        queue_length: SegCount::new(queue_length.into()),
        sent_packets: count(TX_PACKETS),
        sent: ByteCount::new(count(TX_BYTES)),
        dropped_out: count(TX_DROPPED),
        dropped_in: count(RX_DROPPED).saturating_add(count(RX_MISSED)),
        link_errors: LinkErrors {
            collisions: count(COLLISIONS),
            late_collisions: count(TX_WINDOW),
            carrier: count(TX_CARRIER),
            checksum: count(RX_CRC),
        },
    })
}

/// A queueing discipline of device `index`, if it is one.
fn read_queue(body: &[u8], index: u32) -> Option<QueueState> {
    let (handle, parent) = (u32_at(body, INDEX_AT + 4)?, u32_at(body, INDEX_AT + 8)?);
    if u32_at(body, INDEX_AT)? != index {
        return None;
    }
    let attributes = body.get(QUEUE_LENGTH..)?;
    let kind = attribute(attributes, TCA_KIND)?
        .split(|byte| *byte == 0)
        .next()?;
    let kind = String::from_utf8_lossy(&kind[..kind.len().min(MAX_KIND)]).into_owned();
    // `struct gnet_stats_queue`: packets, bytes, dropped, requeued, over the limit.
    let counts = attribute(
        attribute(attributes, TCA_STATS2).unwrap_or_default(),
        TCA_STATS_QUEUE,
    )
    .unwrap_or_default();
    let [backlog, dropped, requeues, overlimits] =
        [1, 2, 3, 4].map(|number| read_word(counts, number * 4));
    let options = attribute(attributes, TCA_OPTIONS).unwrap_or_default();
    Some(QueueState {
        handle,
        parent,
        rate: qdisc_rate(&kind, options),
        kind,
        options: options.to_vec(),
        dropped,
        overlimits,
        requeues,
        backlog: ByteCount::new(backlog.into()),
    })
}

/// The rate among the options of a queueing discipline of this kind, where one is set: the kernel
/// counts bytes.
fn qdisc_rate(kind: &str, options: &[u8]) -> Option<BitRate> {
    // Of `struct tc_tbf_qopt`, which begins with a `struct tc_ratespec`.
    const RATE_AT: usize = 8;
    let bytes = match kind {
        "tbf" => {
            let wide = attribute(options, TCA_TBF_RATE64).and_then(parse_u64);
            wide.or_else(|| {
                attribute(options, TCA_TBF_PARMS)?
                    .get(RATE_AT..)
                    .and_then(parse_narrow_rate)
            })
        }
        "fq" => attribute(options, TCA_FQ_FLOW_MAX_RATE).and_then(parse_narrow_rate),
        "cake" => attribute(options, TCA_CAKE_BASE_RATE64).and_then(parse_u64),
        _ => None,
    };
    bytes
        .filter(|bytes| *bytes > 0)
        .map(|bytes| BitRate::from_bps(bytes.saturating_mul(8)))
}

/// Sorts disciplines that serve the device itself before those that serve a class of another, and
/// so on inwards.
fn outermost_first(mut found: Vec<QueueState>) -> Vec<QueueState> {
    let parents: Vec<(u32, u32)> = found
        .iter()
        .map(|queue| (queue.handle, queue.parent))
        .collect();
    found.sort_by_cached_key(|queue| class_depth(queue.parent, &parents));
    found
}

/// Returns the number of disciplines around the one that serves class `parent`: a class has its
/// discipline's number in its upper half.
fn class_depth(mut parent: u32, parents: &[(u32, u32)]) -> usize {
    // The kernel takes no more either (`check_loop`).
    const DEEPEST: usize = 8;
    (0..DEEPEST)
        .take_while(|_| {
            let around = parents
                .iter()
                .find(|(handle, _)| *handle != 0 && handle >> 16 == parent >> 16);
            around.map(|(_, outer)| parent = *outer).is_some()
        })
        .count()
}

/// A rate of 32 bits; all ones say that none is set.
fn parse_narrow_rate(value: &[u8]) -> Option<u64> {
    parse_u32(value)
        .filter(|rate| *rate != u32::MAX)
        .map(u64::from)
}

fn parse_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_ne_bytes)
}

fn malformed_answer() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's answer about a device cannot be read",
    )
}

#[cfg(test)]
mod tests;

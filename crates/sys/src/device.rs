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
    let mut found = Vec::new();
    // For all: the kernel knows no dump of one device.
    dump_list(
        None,
        libc::RTM_GETQDISC,
        &[0; QUEUE_LENGTH],
        &mut |_, body| found.extend(read_queue(body, index)),
    )?;
    Ok(outermost_first(found))
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
const RX_MISSED: usize = 15;

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
    let [
        received_packets,
        sent_packets,
        received,
        sent,
        dropped,
        dropped_out,
        missed,
    ] = [
        RX_PACKETS, TX_PACKETS, RX_BYTES, TX_BYTES, RX_DROPPED, TX_DROPPED, RX_MISSED,
    ]
    .map(|number| {
        let count = counts.get(number * 8..).and_then(parse_u64);
        count.unwrap_or_default()
    });
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
        received_packets,
        received: ByteCount::new(received),
        queue_length: SegCount::new(queue_length.into()),
        sent_packets,
        sent: ByteCount::new(sent),
        dropped_out,
        dropped_in: dropped.saturating_add(missed),
    })
}

/// A queueing discipline of device `index`, if it is one, and for packets on their way out.
fn read_queue(body: &[u8], index: u32) -> Option<QueueState> {
    let (handle, parent) = (u32_at(body, INDEX_AT + 4)?, u32_at(body, INDEX_AT + 8)?);
    if u32_at(body, INDEX_AT)? != index || parent == TC_H_INGRESS {
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
mod tests {
    use super::*;
    use crate::dump::{self, DumpProgress};

    /// The answer of Linux 6.18 about a pair of devices, the second with
    /// `tbf rate 200mbit burst 64kb limit 200kb`.
    const NOQUEUE: &str = "9400000024000200000000001a3f0000000000000200000000000000ffffffff020000000c0001006e6f717565\
        75650005000c0000000000300007001400010000000000000000000000000000000000180003000000000000000000000000\
        00000000000000\
        00002c00030000000000000000000000000000000000000000000000000000000000000000000000000000000000";
    const TBF: &str = "bc00000024000200000000001a3f0000000000000300000000000780ffffffff0300000008000100746266002c000200\
        28000100000100000000000040787d010000000000000000000000000020030000a000000000000005000c0000000000300007001400\
        01000a0100000000000003000000000000001800030000000000000000000000000000000000000000002c0003000a01000000000000\
        0300000000000000000000000000000000000000000000000000000000000000000000";
    const DONE: &str = "1400000003000200000000001a3f000000000000";

    fn bytes(texts: &[&str]) -> Vec<u8> {
        let digits: Vec<char> = texts
            .concat()
            .chars()
            .filter(|digit| !digit.is_whitespace())
            .collect();
        let byte =
            |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn read(answer: &[u8], index: u32) -> (Vec<QueueState>, io::Result<bool>) {
        let mut found = Vec::new();
        let progress =
            dump::read_messages(answer, &mut |_, body| found.extend(read_queue(body, index)));
        (
            found,
            progress.map(|progress| progress == DumpProgress::Ended),
        )
    }

    #[test]
    fn a_dump_of_the_kernel_is_read_for_one_device() {
        let (found, ended) = read(&bytes(&[NOQUEUE, TBF]), 3);
        assert!(!ended.unwrap());
        let (rate, parent) = (Some(BitRate::from_mbps(200)), 0xffff_ffff);
        assert_eq!(
            found,
            [QueueState {
                handle: 0x8007_0000,
                parent,
                kind: "tbf".to_owned(),
                rate,
                options: bytes(&[TBF])[44 + 4..][..40].to_vec(),
                ..QueueState::default()
            }]
        );
        assert!(read(&bytes(&[DONE]), 3).1.unwrap());
        assert_eq!(read(&bytes(&[NOQUEUE, TBF]), 2).0[0].kind, "noqueue");
    }

    #[test]
    fn counts_are_taken_from_their_places() {
        let mut answer = bytes(&[TBF]);
        // `TCA_STATS2` is behind the options and `TCA_HW_OFFLOAD`, `TCA_STATS_QUEUE` behind the
        // basic counts.
        let at = 36 + 8 + 44 + 8 + 4 + 20 + 4;
        for (place, value) in [7_u32, 65_000, 11, 13, 17].into_iter().enumerate() {
            answer[at + place * 4..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        let found = read(&answer, 3).0.remove(0);
        assert_eq!((found.backlog, found.dropped), (ByteCount::new(65_000), 11));
        assert_eq!((found.requeues, found.overlimits), (13, 17));
    }

    #[test]
    fn an_error_of_the_kernel_is_one_here() {
        let mut refusal = bytes(&[DONE]);
        refusal[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        refusal[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(
            read(&refusal, 3).1.unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
    }

    #[test]
    fn wide_rates_count_and_rates_without_a_limit_do_not() {
        let with = |kind: u16, value: &[u8]| {
            [
                &(4 + value.len() as u16).to_ne_bytes()[..],
                &kind.to_ne_bytes(),
                value,
            ]
            .concat()
        };
        let wide = with(TCA_TBF_RATE64, &12_500_000_000_u64.to_ne_bytes());
        assert_eq!(qdisc_rate("tbf", &wide), Some(BitRate::from_mbps(100_000)));
        assert_eq!(
            qdisc_rate("fq", &with(TCA_FQ_FLOW_MAX_RATE, &u32::MAX.to_ne_bytes())),
            None
        );
        let slow = with(TCA_FQ_FLOW_MAX_RATE, &1_250_000_u32.to_ne_bytes());
        assert_eq!(
            (qdisc_rate("fq", &slow), qdisc_rate("pfifo", &slow)),
            (Some(BitRate::from_mbps(10)), None)
        );
    }

    #[test]
    fn what_serves_a_class_comes_after_what_has_the_class() {
        let queue = |handle, parent| QueueState {
            handle,
            parent,
            ..QueueState::default()
        };
        let inner = [
            queue(0, 0x8001_0002),
            queue(0x0002_0000, 0x0001_0010),
            queue(0x0001_0000, 0x8001_0001),
        ];
        let all = [&inner[..], &[queue(0x8001_0000, u32::MAX)]].concat();
        let sorted: Vec<u32> = outermost_first(all)
            .iter()
            .map(|queue| queue.parent)
            .collect();
        assert_eq!(sorted, [u32::MAX, 0x8001_0002, 0x8001_0001, 0x0001_0010]);
        // Each in a class of the other: no kernel says so, and it ends.
        assert_eq!(
            outermost_first(vec![
                queue(0x0001_0000, 0x0002_0001),
                queue(0x0002_0000, 0x0001_0001)
            ])
            .len(),
            2
        );
    }

    #[test]
    fn loopback_is_there_and_holds_nothing_to_a_rate() {
        let state = device_state("lo").unwrap();
        assert!(state.index > 0 && state.mtu > ByteCount::ZERO, "{state:?}");
        assert_eq!(state.link_header, ByteCount::ZERO, "{state:?}");
        assert!(
            state.received <= device_state("lo").unwrap().sent,
            "what it receives, it sent"
        );
        assert!(
            queue_states(state.index)
                .unwrap()
                .iter()
                .all(|queue| queue.rate.is_none())
        );
        assert_eq!(
            device_state("no-such-device").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read(mut answer in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..256)) {
            let _ = (read(&answer, 3).1, read_device(&answer));
            if answer.len() > HEADER_LENGTH {
                let length = answer.len() as u32;
                answer[..4].copy_from_slice(&length.to_ne_bytes());
                let _ = read(&answer, 3).1;
            }
            for kind in ["tbf", "fq", "cake"] {
                let _ = qdisc_rate(kind, &answer);
            }
        }
    }
}

//! The lenient view against etherparse.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice, VlanHeader,
    VlanId,
};
use fullpipe_wire::{CapturedContent, CapturedSegment, LinkType, flags, read_captured};
use proptest::prelude::*;

const ETHERNET: LinkType = LinkType::ETHERNET;

/// A packet of TCP on Ethernet, written by etherparse.
#[derive(Debug, Clone)]
struct Written {
    v6: bool,
    vlans: Vec<u16>,
    options: Vec<TcpOptionElement>,
    numbers: (u32, u32, u16),
    flags: u16,
    data: Vec<u8>,
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        let id = |id: u16| VlanId::try_new(id).expect("an identifier has twelve bits");
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let vlan = match *self.vlans.as_slice() {
            [] => None,
            [one] => Some(VlanHeader::Single(etherparse::SingleVlanHeader {
                vlan_id: id(one),
                ..Default::default()
            })),
            [outer, inner, ..] => Some(VlanHeader::Double(etherparse::DoubleVlanHeader {
                outer: etherparse::SingleVlanHeader {
                    vlan_id: id(outer),
                    ..Default::default()
                },
                inner: etherparse::SingleVlanHeader {
                    vlan_id: id(inner),
                    ..Default::default()
                },
            })),
        };
        let ip = match (vlan, self.v6) {
            (None, false) => ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 61),
            (None, true) => ethernet.ipv6([0xFD; 16], [0xFC; 16], 61),
            (Some(vlan), false) => ethernet.vlan(vlan).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 61),
            (Some(vlan), true) => ethernet.vlan(vlan).ipv6([0xFD; 16], [0xFC; 16], 61),
        };
        let mut tcp = etherparse::TcpHeader::new(40_000, 5_201, self.numbers.0, self.numbers.2);
        tcp.acknowledgment_number = self.numbers.1;
        tcp.set_options(&self.options).expect("the options fit");
        let has = |flag| self.flags & flag != 0;
        (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (
            has(flags::FIN),
            has(flags::SYN),
            has(flags::RST),
            has(flags::PSH),
        );
        (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (
            has(flags::ACK),
            has(flags::URG),
            has(flags::ECE),
            has(flags::CWR),
        );
        tcp.ns = has(flags::NS);
        let mut bytes = Vec::new();
        ip.tcp_header(tcp)
            .write(&mut bytes, &self.data)
            .expect("a vector takes every packet");
        bytes
    }
}

fn written() -> impl Strategy<Value = Written> {
    (
        any::<bool>(),
        prop::collection::vec(1_u16..4096, 0..3),
        options(),
        any::<(u32, u32, u16)>(),
        0_u16..512,
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(|(v6, vlans, options, numbers, flags, data)| Written {
            v6,
            vlans,
            options,
            numbers,
            flags,
            data,
        })
}

/// Options that fit into 40 bytes together.
fn options() -> impl Strategy<Value = Vec<TcpOptionElement>> {
    let small = prop_oneof![
        Just(TcpOptionElement::Noop),
        any::<u16>().prop_map(TcpOptionElement::MaximumSegmentSize),
        any::<u8>().prop_map(TcpOptionElement::WindowScale),
        Just(TcpOptionElement::SelectiveAcknowledgementPermitted),
    ];
    let large = prop_oneof![
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOptionElement::Timestamp(value, echo)),
        any::<((u32, u32), Option<(u32, u32)>)>().prop_map(|(first, second)| {
            TcpOptionElement::SelectiveAcknowledgement(first, [second, None, None])
        }),
    ];
    (prop::collection::vec(small, 0..5), prop::option::of(large)).prop_map(|(small, large)| {
        let mut options = small;
        options.extend(large);
        options
    })
}

/// Holds the fields of a segment against what etherparse reads in the same bytes.
fn compare(segment: &CapturedSegment, ip: &NetSlice, tcp: &TcpSlice) {
    let (source, destination, identification, hops, class): (IpAddr, IpAddr, _, _, _) = match ip {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let class = header.dcp().value() << 2 | header.ecn().value();
            let id = Some(header.identification());
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                id,
                header.ttl(),
                class,
            )
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let (from, to) = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            (from, to, None, header.hop_limit(), header.traffic_class())
        }
        NetSlice::Arp(_) => unreachable!("ARP carries no TCP"),
    };
    assert_eq!(segment.source, SocketAddr::new(source, tcp.source_port()));
    assert_eq!(
        segment.destination,
        SocketAddr::new(destination, tcp.destination_port())
    );
    assert_eq!(
        (
            segment.identification,
            segment.hops_left,
            segment.traffic_class
        ),
        (identification, hops, class)
    );
    assert_eq!(
        (segment.sequence, segment.acknowledgement),
        (tcp.sequence_number(), tcp.acknowledgment_number())
    );
    assert_eq!(
        (segment.window, segment.checksum),
        (tcp.window_size(), tcp.checksum())
    );
    assert_eq!(segment.payload as usize, tcp.payload().len());
    let bits = [
        tcp.fin(),
        tcp.syn(),
        tcp.rst(),
        tcp.psh(),
        tcp.ack(),
        tcp.urg(),
        tcp.ece(),
        tcp.cwr(),
        tcp.ns(),
    ];
    assert_eq!(
        segment.flags,
        bits.iter()
            .rev()
            .fold(0, |flags, bit| flags << 1 | u16::from(*bit))
    );
    compare_options(segment, tcp);
}

/// Both read the same options, as far as etherparse accepts them: it refuses some lengths that are
/// merely unusual.
fn compare_options(segment: &CapturedSegment, tcp: &TcpSlice) {
    let elements: Result<Vec<_>, _> = tcp.options_iterator().collect();
    let Ok(elements) = elements else { return };
    let last =
        |read: fn(&TcpOptionElement) -> Option<(u32, u32)>| elements.iter().rev().find_map(read);
    let options = &segment.options;
    let mss = last(|element| match element {
        TcpOptionElement::MaximumSegmentSize(mss) => Some((u32::from(*mss), 0)),
        _ => None,
    });
    assert_eq!(options.mss.map(|mss| (u32::from(mss), 0)), mss);
    let scale = last(|element| match element {
        TcpOptionElement::WindowScale(scale) => Some((u32::from(*scale), 0)),
        _ => None,
    });
    assert_eq!(
        options.window_scale.map(|scale| (u32::from(scale), 0)),
        scale
    );
    let times = last(|element| match element {
        TcpOptionElement::Timestamp(value, echo) => Some((*value, *echo)),
        _ => None,
    });
    assert_eq!(options.timestamps, times);
    assert_eq!(
        options.sack_permitted,
        elements.contains(&TcpOptionElement::SelectiveAcknowledgementPermitted)
    );
    let blocks = elements.iter().rev().find_map(|element| match element {
        TcpOptionElement::SelectiveAcknowledgement(first, others) => Some(
            [Some(*first)]
                .into_iter()
                .chain(*others)
                .flatten()
                .collect::<Vec<_>>(),
        ),
        _ => None,
    });
    assert_eq!(
        options.sack[..usize::from(options.sack_blocks)],
        blocks.unwrap_or_default()
    );
}

/// Returns the IP header and the TCP header that etherparse finds, unless it finds a fragment.
fn sliced(bytes: &[u8]) -> Option<(NetSlice<'_>, TcpSlice<'_>)> {
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    match packet.transport? {
        TransportSlice::Tcp(tcp) => Some((packet.net?, tcp)),
        _ => None,
    }
}

proptest! {
    #[test]
    fn a_packet_of_etherparse_is_read_as_it_was_written(written in written()) {
        let bytes = written.bytes();
        let CapturedContent::Tcp(segment) = read_captured(ETHERNET, &bytes, bytes.len()) else { panic!("{bytes:02x?}") };
        let (ip, tcp) = sliced(&bytes).expect("etherparse reads what it writes");
        compare(&segment, &ip, &tcp);
        prop_assert_eq!(segment.network != 0, !written.vlans.is_empty());
    }

    /// A few bytes of a good packet are changed: where etherparse still finds a segment, both find
    /// the same.
    #[test]
    fn a_damaged_packet_is_read_as_etherparse_does(
        written in written(),
        changes in prop::collection::vec((12_usize..110, any::<u8>()), 0..5),
    ) {
        let mut bytes = written.bytes();
        for (at, byte) in changes {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        let read = read_captured(ETHERNET, &bytes, bytes.len());
        if let Some((ip, tcp)) = sliced(&bytes) {
            // It takes a length of zero for an error, and trusts no length beyond the frame.
            let CapturedContent::Tcp(segment) = read else { panic!("{read:?} of {bytes:02x?}") };
            compare(&segment, &ip, &tcp);
        }
    }

    /// A packet that is cut is the same but for its options, or too short.
    #[test]
    fn a_cut_packet_is_the_same_or_too_short(written in written(), kept in 0_usize..130) {
        let bytes = written.bytes();
        let CapturedContent::Tcp(whole) = read_captured(ETHERNET, &bytes, bytes.len()) else { panic!("{bytes:02x?}") };
        let kept = kept.min(bytes.len());
        match read_captured(ETHERNET, &bytes[..kept], bytes.len()) {
            CapturedContent::Tcp(mut cut) => {
                if cut.options.cut {
                    cut.options = whole.options;
                }
                prop_assert_eq!(cut, whole);
            }
            other => prop_assert_eq!(other, CapturedContent::Cut),
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        link in prop_oneof![Just(0_u16), Just(1), Just(9), Just(101), Just(108), Just(113), Just(276), any::<u16>()],
        kind in prop_oneof![
            Just(0x0800_u16), Just(0x86DD), Just(0x8100), Just(0x8847), Just(0x8864), Just(0x6558), any::<u16>()
        ],
        original in 0_usize..400,
    ) {
        for (at, byte) in (12..).zip(kind.to_be_bytes()) {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        read_captured(LinkType(link), &bytes, original);
    }
}

use std::net::IpAddr;

use etherparse::{
    Icmpv4Type, Icmpv6Type, NetHeaders, PacketHeaders, TcpHeader, TcpOptionElement, TransportHeader,
};
use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::IpPacketTrain;
use proptest::prelude::*;

use crate::cutting::{Flags, Train, checksums_hold, on_the_wire, trains};

/// MSS 1460, SACK permitted, timestamps, padding, window scale 7.
const OPTIONS: [u8; 20] = [
    2, 4, 5, 0xB4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
];

fn syn(v6: bool, finished: bool) -> IpPacketTrain {
    let flags = Flags {
        syn: true,
        ..Flags::default()
    };
    let mut packet = Train {
        v6,
        flags,
        ..Train::plain(OPTIONS.to_vec())
    }
    .packet();
    if finished {
        packet.complete_checksum();
    }
    packet
}

/// The header after `edit`, whose checksums hold whether the device was still to finish them or
/// not, and which differs if the edit says so.
fn edited(edit: impl Fn(&mut IpPacketTrain) -> bool) -> TcpHeader {
    let [first, .., last] =
        [(false, false), (false, true), (true, false), (true, true)].map(|(v6, finished)| {
            let mut packet = syn(v6, finished);
            let before = tcp(&on_the_wire(packet.clone()));
            let changed = edit(&mut packet);
            let bytes = on_the_wire(packet);
            checksums_hold(&bytes);
            let after = tcp(&bytes);
            assert_eq!(changed, after != before);
            after
        });
    assert_eq!(first.options, last.options);
    first
}

fn tcp(bytes: &[u8]) -> TcpHeader {
    match PacketHeaders::from_ip_slice(bytes).unwrap().transport {
        Some(TransportHeader::Tcp(header)) => header,
        other => panic!("not TCP: {other:?}"),
    }
}

fn options(header: &TcpHeader) -> Vec<TcpOptionElement> {
    header
        .options_iterator()
        .map(Result::unwrap)
        .filter(|option| *option != TcpOptionElement::Noop)
        .collect()
}

#[test]
fn options_of_a_syn_are_stripped_and_rewritten() {
    use TcpOptionElement::{
        MaximumSegmentSize, SelectiveAcknowledgementPermitted, Timestamp, WindowScale,
    };
    let (mss, sack, time, scale) = (
        MaximumSegmentSize(1460),
        SelectiveAcknowledgementPermitted,
        Timestamp(1, 0),
        WindowScale(7),
    );
    let after = |edit: fn(&mut IpPacketTrain) -> bool| options(&edited(edit));
    assert_eq!(
        after(|_| false),
        [mss.clone(), sack.clone(), time.clone(), scale.clone()]
    );
    assert_eq!(
        after(IpPacketTrain::strip_window_scale),
        [mss.clone(), sack.clone(), time.clone()]
    );
    assert_eq!(
        after(IpPacketTrain::strip_sack),
        [mss.clone(), time.clone(), scale.clone()]
    );
    assert_eq!(
        after(IpPacketTrain::strip_timestamps),
        [mss.clone(), sack.clone(), scale.clone()]
    );
    let rewritten = after(|packet| packet.rewrite_window_scale(2));
    assert_eq!(
        rewritten,
        [mss.clone(), sack.clone(), time.clone(), WindowScale(2)]
    );
    let clamped = after(|packet| packet.clamp_mss(ByteCount::new(1200)));
    assert_eq!(
        clamped,
        [
            MaximumSegmentSize(1200),
            sack.clone(),
            time.clone(),
            scale.clone()
        ]
    );
    assert_eq!(
        after(|packet| packet.clamp_mss(ByteCount::new(9000))),
        [mss, sack, time, scale]
    );
}

#[test]
fn windows_are_clamped() {
    assert_eq!(
        edited(|packet| packet.clamp_window(ByteCount::new(4000))).window_size,
        4000
    );
    assert_eq!(
        edited(|packet| packet.clamp_window(ByteCount::new(6000))).window_size,
        5000
    );
}

/// Only a SYN has these options: elsewhere the same bytes are left alone.
#[test]
fn what_is_no_syn_keeps_its_options() {
    let mut packet = Train {
        flags: Flags::default(),
        ..Train::plain(OPTIONS.to_vec())
    }
    .packet();
    packet.strip_window_scale();
    packet.clamp_mss(ByteCount::new(100));
    assert_eq!(tcp(&on_the_wire(packet)).options.as_slice(), OPTIONS);
}

/// Echoes are answered, that their senders may find the way; errors are not.
#[test]
fn of_icmp_only_echoes_are_answered() {
    let stated = |version: u8, protocol: u8, kind: u8| {
        let mut bytes = vec![0; 10];
        // 48 bytes of IPv4, or 40 and 8 of IPv6, with one hop left.
        let flags = if version == 4 {
            [0x40, 0]
        } else {
            [protocol, 1]
        };
        bytes.extend([
            version << 4 | 5,
            0,
            0,
            48,
            0,
            8,
            flags[0],
            flags[1],
            1,
            protocol,
            0,
            0,
        ]);
        bytes.extend([9; 36]);
        bytes[10 + if version == 4 { 20 } else { 40 }] = kind;
        let mut packet = IpPacketTrain::parse(&bytes, 0).unwrap();
        let by: IpAddr = if version == 4 {
            [198, 18, 1, 1].into()
        } else {
            [0xFC; 16].into()
        };
        (
            packet.time_exceeded(by).is_some(),
            packet.too_big(ByteCount::new(68)).is_some(),
            packet.count_hop(),
        )
    };
    let (answered, silence) = ((true, true), (false, false));
    for (version, protocol, kind, expected) in [
        (4, 1, 8, answered),
        (4, 1, 0, answered),
        (4, 1, 11, silence),
        (4, 2, 8, silence),
        (6, 58, 128, answered),
        (6, 58, 129, answered),
        (6, 58, 3, silence),
    ] {
        let (expired, too_big, _) = stated(version, protocol, kind);
        assert_eq!(
            (expired, too_big),
            expected,
            "version {version}, protocol {protocol}, type {kind}"
        );
    }
    assert!(!stated(4, 1, 8).2, "the only hop is not counted down");
}

proptest! {
    /// Options that lie about their length are passed by.
    #[test]
    fn any_options_are_survived(words in 0_usize..=10, bytes: [u8; 40]) {
        let flags = Flags { syn: true, ..Flags::default() };
        let mut packet = Train { flags, ..Train::plain(bytes[..words * 4].to_vec()) }.packet();
        packet.strip_window_scale();
        packet.rewrite_window_scale(3);
        packet.strip_sack();
        packet.strip_timestamps();
        packet.clamp_mss(ByteCount::new(536));
        packet.clamp_window(ByteCount::new(1));
        checksums_hold(&on_the_wire(packet));
    }

    /// One bit is wrong, and the receiver sees it.
    #[test]
    fn a_corrupted_packet_is_noticed(mut train in trains(), random: u64) {
        train.payload.truncate(train.size);
        let right = on_the_wire(train.packet());
        let mut packet = train.packet();
        packet.corrupt_bit(random);
        let wrong = on_the_wire(packet);
        let differing: u32 = right.iter().zip(&wrong).map(|(right, wrong)| (right ^ wrong).count_ones()).sum();
        prop_assert_eq!((wrong.len(), differing), (right.len(), 1));
        let first = right.iter().zip(&wrong).position(|(right, wrong)| right != wrong).unwrap();
        prop_assert!(first >= if train.v6 { 40 } else { 20 }, "the IP header is left alone");
    }

    #[test]
    fn a_joined_train_has_a_checksum_of_its_own(train in trains()) {
        let mut packet = train.packet();
        packet.join_segments();
        prop_assert_eq!(packet.segment_count(), SegCount::new(1));
        let bytes = on_the_wire(packet);
        prop_assert!(bytes.ends_with(&train.payload));
        checksums_hold(&bytes);
    }

    /// The mark is set where the sender can read it, and nowhere else.
    #[test]
    fn congestion_is_marked(train in trains(), field in 0_u8..4) {
        let mut bytes = train.bytes();
        let at = 10 + train.link;
        if train.v6 {
            bytes[at + 1] |= field << 4;
        } else {
            bytes[at + 1] |= field;
            bytes[at + 10] = 0;
            bytes[at + 11] = 0;
        }
        let mut packet = IpPacketTrain::parse(&bytes, train.link).unwrap();
        prop_assert_eq!(packet.mark_ce(), field != 0);
        if field != 0 && train.payload.len() <= train.size {
            let wire = on_the_wire(packet);
            checksums_hold(&wire);
            let ecn = if train.v6 { wire[1] >> 4 & 3 } else { wire[1] & 3 };
            prop_assert_eq!(ecn, 3);
        }
    }

    /// A router's answer quotes the packet and states the MTU, and its checksum holds.
    #[test]
    fn a_packet_too_big_is_answered(train in trains()) {
        let reply = on_the_wire(train.packet().too_big(ByteCount::new(1400)).unwrap());
        let headers = PacketHeaders::from_ip_slice(&reply).unwrap();
        let first = &train.payload[..train.payload.len().min(train.size)];
        let whole = train.head() + first.len();
        match (headers.transport, headers.net) {
            (Some(TransportHeader::Icmpv4(icmp)), Some(NetHeaders::Ipv4(ip, _))) => {
                prop_assert_eq!(ip.destination, [198, 18, 0, 1]);
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(headers.payload.slice()));
                let needed = matches!(icmp.icmp_type, Icmpv4Type::DestinationUnreachable(
                    etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 }));
                prop_assert!(needed);
                prop_assert_eq!(headers.payload.slice().len(), whole.min(548));
            }
            (Some(TransportHeader::Icmpv6(icmp)), Some(NetHeaders::Ipv6(ip, _))) => {
                prop_assert_eq!(ip.destination, [0xFD; 16]);
                let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, headers.payload.slice()).unwrap();
                prop_assert_eq!(icmp.checksum, sum);
                prop_assert_eq!(icmp.icmp_type, Icmpv6Type::PacketTooBig { mtu: 1400 });
                prop_assert_eq!(headers.payload.slice().len(), whole.min(1232));
            }
            other => prop_assert!(false, "no ICMP: {other:?}"),
        }
        // The quoted headers are those of the first segment, by which the sender finds its socket.
        let quoted = &headers.payload.slice()[..if train.v6 { 48 } else { 28 }];
        let at = 10 + train.link + quoted.len() - 8;
        prop_assert_eq!(&quoted[quoted.len() - 8..quoted.len() - 4], &train.bytes()[at..][..4]);
    }

    /// A router counts down; where none is left it quotes the packet as it came, from its own
    /// address.
    #[test]
    fn hops_are_counted_and_their_end_is_reported(train in trains()) {
        let mut packet = train.packet();
        prop_assert!(packet.count_hop());
        if packet.segment_count() == SegCount::new(1) {
            let bytes = on_the_wire(packet);
            checksums_hold(&bytes);
            prop_assert_eq!(bytes[if train.v6 { 7 } else { 8 }], 63);
        }
        let by: [IpAddr; 2] = [[198, 18, 1, 1].into(), [0xFC; 16].into()];
        prop_assert!(train.packet().time_exceeded(by[usize::from(!train.v6)]).is_none());
        let reply = on_the_wire(train.packet().time_exceeded(by[usize::from(train.v6)]).unwrap());
        let headers = PacketHeaders::from_ip_slice(&reply).unwrap();
        let quoted = headers.payload.slice();
        match (headers.transport, headers.net) {
            (Some(TransportHeader::Icmpv4(icmp)), Some(NetHeaders::Ipv4(ip, _))) => {
                prop_assert_eq!((ip.source, ip.destination), ([198, 18, 1, 1], [198, 18, 0, 1]));
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(quoted));
                let code = etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit;
                prop_assert_eq!(icmp.icmp_type, Icmpv4Type::TimeExceeded(code));
            }
            (Some(TransportHeader::Icmpv6(icmp)), Some(NetHeaders::Ipv6(ip, _))) => {
                prop_assert_eq!((ip.source, ip.destination), ([0xFC; 16], [0xFD; 16]));
                let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, quoted).unwrap();
                prop_assert_eq!(icmp.checksum, sum);
                let code = etherparse::icmpv6::TimeExceededCode::HopLimitExceeded;
                prop_assert_eq!(icmp.icmp_type, Icmpv6Type::TimeExceeded(code));
            }
            other => prop_assert!(false, "no ICMP: {other:?}"),
        }
        prop_assert_eq!(quoted[if train.v6 { 7 } else { 8 }], 64);
    }

    /// Packets of one connection share a number, however they are cut; those of another have
    /// another.
    #[test]
    fn a_flow_is_reported_by_addresses_and_ports(train in trains()) {
        let flow = train.packet().flow_hash();
        let other = Train { udp: !train.udp, ..train.clone() };
        prop_assert_ne!(other.packet().flow_hash(), flow);
        let later = Train { sequence: !train.sequence, payload: vec![0; 100], ..train };
        prop_assert_eq!(later.packet().flow_hash(), flow);
    }
}

//! Redacted packets are read as the packets themselves, but for the addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::Ipv4HeaderSlice;
use fullpipe_wire::{
    CapturedContent, CapturedSegment, LinkType, Pseudonyms, read_captured, redact_segment,
};
use proptest::prelude::*;

use crate::encapsulation::{ethernet, plain, tcp, udp, v4, v6, wireless};

/// Inverts every bit of an address.
struct Inverted;

impl Pseudonyms for Inverted {
    fn replace_address(&mut self, address: &mut [u8]) {
        for byte in address {
            *byte = !*byte;
        }
    }

    fn digest_bytes(&mut self, bytes: &[u8]) -> u16 {
        bytes
            .iter()
            .fold(7, |sum, byte| sum.rotate_left(3) ^ u16::from(*byte))
    }
}

fn inverted(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address.ip() {
        IpAddr::V4(ip) => Ipv4Addr::from(!u32::from(ip)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from(!u128::from(ip)).into(),
    };
    SocketAddr::new(ip, address.port())
}

fn frame_of(link: LinkType, packet: &[u8], original: usize) -> Option<(Vec<u8>, usize)> {
    let mut frame = vec![0xEE; 9];
    redact_segment(link, packet, original, &mut Inverted, &mut frame).map(|length| (frame, length))
}

/// Checks that a packet of these helpers, in which `segment` was found, is redacted.
pub(crate) fn check(link: LinkType, packet: &[u8], original: usize, segment: &CapturedSegment) {
    let frame = check_figures(link, packet, original, segment);
    // No address of IP or Ethernet that the helpers write, and no data.
    let addresses: [&[u8]; 4] = [
        &[10, 0, 0, 1, 10, 0, 0, 2],
        &[0xFD, 0, 0, 0, 0],
        &[2; 6],
        &[0xEE, 0xEE],
    ];
    for part in addresses {
        assert!(
            !frame.windows(part.len()).any(|window| window == part),
            "{part:02x?} in {frame:02x?}"
        );
    }
}

/// Checks that the redacted packet is read as `segment`. Returns it.
fn check_figures(
    link: LinkType,
    packet: &[u8],
    original: usize,
    segment: &CapturedSegment,
) -> Vec<u8> {
    let (frame, length) = frame_of(link, packet, original).expect("there is a segment");
    let CapturedContent::Tcp(again) = read_captured(LinkType::ETHERNET, &frame, length) else {
        panic!("{frame:02x?} of {packet:02x?}")
    };
    let expected = CapturedSegment {
        source: inverted(segment.source),
        destination: inverted(segment.destination),
        checksum: again.checksum,
        ..*segment
    };
    assert_eq!(again, expected);
    frame
}

proptest! {
    /// Whatever the bytes are: what is read as a segment is one when it is redacted, and nothing
    /// else is written.
    #[test]
    fn damaged_packets_are_redacted_or_left_out(
        number in 0_usize..10,
        edits in prop::collection::vec((0_usize..160, any::<u8>()), 0..6),
        cut in 0_usize..60,
    ) {
        let inner = ethernet(0x0800, &plain());
        let hop_by_hop = [&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()[..]].concat();
        let extended = [0x34, 255, 0, 72, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
        let packets = [
            inner.clone(),
            ethernet(0x8100, &[&[0, 7, 0x86, 0xDD], &v6(0, &hop_by_hop)[..]].concat()),
            ethernet(0x8847, &[&[0, 2, 1, 64, 0, 0, 0, 0], &inner[..]].concat()),
            ethernet(0x0800, &v4(47, &[&[0xA0, 0, 0x65, 0x58, 0, 0, 0, 6, 0, 0, 0, 5], &inner[..]].concat())),
            ethernet(0x0800, &v4(17, &udp(2152, &[&extended, &plain()[..]].concat()))),
            ethernet(0x86DD, &v6(17, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 1, 1, 0], &inner[..]].concat()))),
        ];
        let identity = [&[0x41, 0x52, 0x11, 41, 0, 0, 0, 0], &[9; 36][..], &v6(6, &tcp())].concat();
        let station = wireless(0x88, 0x83, &[2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]);
        let extended = ethernet(0x893F, &[&[0, 1, 0, 2, 0, 0, 8, 0], &plain()[..]].concat());
        let access = [&[0, 0x18, 3, 0x10, 0, 0, 0, 0, 3, 1, 2, 3], &station[..]].concat();
        let rarer = [
            ethernet(60, &[&[0xAA, 0xAA, 3, 0, 0, 0, 8, 0], &plain()[..]].concat()),
            ethernet(0x88E7, &[&[0, 0, 0, 9], &extended[..]].concat()),
            ethernet(0x0800, &v4(17, &udp(5247, &access))),
            ethernet(0x0800, &v4(17, &udp(5072, &identity))),
        ];
        let mut packet = packets.iter().chain(&rarer).nth(number).unwrap().clone();
        let original = packet.len();
        for (at, byte) in edits {
            let length = packet.len();
            packet[at % length] = byte;
        }
        packet.truncate(original.saturating_sub(cut));
        if let CapturedContent::Tcp(segment) = read_captured(LinkType::ETHERNET, &packet, original) {
            check_figures(LinkType::ETHERNET, &packet, original, &segment);
        } else {
            prop_assert_eq!(frame_of(LinkType::ETHERNET, &packet, original), None);
        }
    }
}

#[test]
fn checksums_of_ip_are_right_and_those_of_tcp_show_no_address() {
    let (frame, _) = frame_of(LinkType::RAW, &plain(), plain().len()).unwrap();
    assert_eq!(frame.len(), 14 + 20 + 32, "the data is left out");
    let header = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
    assert_eq!(
        header.header_checksum(),
        header.to_header().calc_header_checksum()
    );
    let checksum = |packet: &[u8]| {
        let (frame, _) = frame_of(LinkType::RAW, packet, packet.len()).unwrap();
        [frame[50], frame[51]]
    };
    let mut other = plain();
    other[36] ^= 1;
    assert_eq!(checksum(&plain()), checksum(&plain()));
    assert_ne!(
        checksum(&plain()),
        checksum(&other),
        "both captures of a packet are alike, others are not"
    );
    assert_ne!(checksum(&plain()), [0xAB, 0xCD]);
}

#[test]
fn options_that_name_hosts_are_blank() {
    let mut route = v4(6, &tcp());
    route[0] = 0x47;
    route[3] += 8;
    // Record route with one address, and the end of the list.
    route.splice(20..20, [7, 7, 8, 192, 0, 2, 77, 0]);
    let (frame, _) = frame_of(LinkType::RAW, &route, route.len()).unwrap();
    assert_eq!(frame[34..42], [0; 8]);
    let header = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
    assert_eq!(
        header.header_checksum(),
        header.to_header().calc_header_checksum()
    );

    let segment_routing = [
        &[6, 2, 4, 0, 0, 0, 0, 0],
        &[0x20, 1, 0xD, 0xB8][..],
        &[7; 12],
        &tcp(),
    ]
    .concat();
    let packet = v6(43, &segment_routing);
    let (frame, _) = frame_of(LinkType::RAW, &packet, packet.len()).unwrap();
    assert_eq!(frame[54..78], [&[6, 2][..], &[0; 22]].concat());

    // A maximum segment size, a cookie of Fast Open and an address of Multipath TCP.
    let mut syn = tcp()[..20].to_vec();
    syn[12] = 0xB0;
    syn.extend([
        2, 4, 5, 180, 34, 8, 1, 2, 3, 4, 5, 6, 30, 8, 0x30, 1, 192, 0, 2, 77, 1, 0, 9, 9,
    ]);
    let packet = v4(6, &syn);
    let (frame, _) = frame_of(LinkType::RAW, &packet, packet.len()).unwrap();
    let expected = [
        &[2, 4, 5, 180, 34, 8, 0, 0, 0, 0, 0, 0, 30, 8][..],
        &[0; 6],
        &[1, 0, 0, 0],
    ]
    .concat();
    assert_eq!(frame[54..], expected);
}

#[test]
fn identifiers_numbers_and_extensions_of_gtp_are_blank() {
    // Endpoint 9, sequence number 0x0102, N-PDU 3; an extension of a PDU session and one of two
    // words.
    let header = [
        0x37, 255, 0, 88, 0, 0, 0, 9, 1, 2, 3, 0x85, 1, 0x11, 9, 0xC0, 2, 1, 2, 3, 4, 5, 6, 0,
    ];
    let packet = v4(17, &udp(2152, &[&header, &plain()[..]].concat()));
    let (frame, _) = frame_of(LinkType::RAW, &packet, packet.len()).unwrap();
    let blank = [
        0x37, 255, 0, 88, 0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0, 0, 0xC0, 2, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(frame[42..66], blank);
}

#[test]
fn packets_that_are_no_segments_are_left_out() {
    let quotation = v4(1, &[&[3, 4, 0, 0, 0, 0, 5, 120], &plain()[..]].concat());
    for packet in [
        quotation,
        v4(17, &[0; 8]),
        plain()[..39].to_vec(),
        Vec::new(),
    ] {
        assert_eq!(frame_of(LinkType::RAW, &packet, 60), None);
        assert_eq!(
            frame_of(LinkType::ETHERNET, &ethernet(0x0800, &packet), 74),
            None
        );
    }
}

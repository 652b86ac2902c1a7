//! A segment in every link, tag and tunnel, by headers written out by hand.

use fullpipe_wire::{CapturedContent, CapturedSegment, LinkType, flags, is_known, read_captured};

use crate::redaction;

/// An ACK with timestamps and ten bytes of data.
pub(crate) fn tcp() -> Vec<u8> {
    let mut segment = vec![
        0x9c, 0x40, 0x14, 0x51, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x18, 0x01, 0xf6, 0xab, 0xcd, 0, 0,
    ];
    segment.extend([1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8]);
    segment.extend([0xEE; 10]);
    segment
}

pub(crate) fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut packet = vec![
        0x45, 0x02, 0, 0, 0x12, 0x34, 0x40, 0, 63, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(crate) fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x60, 0x20, 0, 0, length[0], length[1], next, 64];
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(payload);
    packet
}

pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let (port, length) = (port.to_be_bytes(), (8 + payload.len() as u16).to_be_bytes());
    [
        &[0xC0, 0, port[0], port[1], length[0], length[1], 0, 0],
        payload,
    ]
    .concat()
}

pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12], &kind.to_be_bytes()[..], payload].concat()
}

pub(crate) fn plain() -> Vec<u8> {
    v4(6, &tcp())
}

fn read(link: u16, packet: &[u8]) -> CapturedContent {
    read_captured(LinkType(link), packet, packet.len())
}

fn segment(link: u16, packet: &[u8]) -> CapturedSegment {
    match read(link, packet) {
        CapturedContent::Tcp(segment) => {
            redaction::check(LinkType(link), packet, packet.len(), &segment);
            segment
        }
        other => panic!("{other:?} for link type {link}: {packet:02x?}"),
    }
}

fn in_ethernet(kind: u16, payload: &[u8]) -> CapturedSegment {
    segment(1, &ethernet(kind, payload))
}

#[test]
fn every_field_of_a_segment_is_read() {
    let read = in_ethernet(0x0800, &plain());
    assert_eq!(
        (read.source, read.destination),
        (address("10.0.0.1:40000"), address("10.0.0.2:5201"))
    );
    assert_eq!((read.network, read.overhead), (0, 0));
    assert_eq!(
        (read.sequence, read.acknowledgement, read.window),
        (0x0102_0304, 0x0506_0708, 0x01f6)
    );
    assert_eq!((read.flags, read.payload), (flags::PSH | flags::ACK, 10));
    assert!(read.has_flags(flags::ACK) && !read.has_flags(flags::ACK | flags::SYN));
    assert_eq!(read.options.timestamps, Some((9, 8)));
    assert_eq!(
        (read.identification, read.hops_left, read.traffic_class),
        (Some(0x1234), 63, 2)
    );
    assert_eq!(
        (read.checksum, read.checksum_is_unfinished),
        (0xabcd, false)
    );
    let read = in_ethernet(0x86DD, &v6(6, &tcp()));
    assert_eq!(
        (read.source, read.destination),
        (address("[fd00::1]:40000"), address("[fd00::2]:5201"))
    );
    assert_eq!(
        (read.identification, read.hops_left, read.traffic_class),
        (None, 64, 2)
    );
    assert_eq!(read.payload, 10);
}

fn address(text: &str) -> std::net::SocketAddr {
    text.parse().unwrap()
}

#[test]
fn every_option_is_read() {
    let options = |options: &[u8], syn: u16| {
        let mut segment = tcp()[..20].to_vec();
        segment[12] = ((20 + options.len()) as u8 / 4) << 4 | (syn >> 8) as u8;
        segment[13] = syn as u8;
        segment.extend(options);
        let CapturedContent::Tcp(read) = read(101, &v4(6, &segment)) else {
            panic!()
        };
        assert_eq!((read.flags, read.payload), (syn, 0));
        read.options
    };
    let syn = options(
        &[
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ],
        flags::SYN | flags::NS,
    );
    assert_eq!(
        (syn.mss, syn.window_scale, syn.sack_permitted),
        (Some(1460), Some(7), true)
    );
    assert_eq!(syn.timestamps, Some((1, 0)));
    assert!(!syn.blanked && !syn.multipath && !syn.cut);
    assert!(options(&[2, 4, 5, 180, 1, 1, 1, 1], flags::SYN).blanked);
    assert!(
        !options(&[1, 1, 1, 1], flags::ACK).blanked,
        "only a SYN agrees on options"
    );
    assert!(options(&[30, 4, 0, 0x81], flags::SYN).multipath);
    let mut blocks = vec![1, 1, 5, 34];
    blocks.extend((1_u32..=8).flat_map(u32::to_be_bytes));
    let read = options(&blocks, flags::ACK);
    assert_eq!(
        (read.sack_blocks, read.sack),
        (4, [(1, 2), (3, 4), (5, 6), (7, 8)])
    );
    let read = options(
        &[1, 1, 5, 12, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 0, 0],
        flags::ACK,
    );
    assert_eq!(read.sack_blocks, 0, "one with part of a block is none");
    let lying = options(&[2, 3, 7, 8, 9, 1, 1, 1, 8, 4, 1, 1], flags::SYN);
    assert_eq!(
        (lying.mss, lying.timestamps),
        (None, None),
        "of other lengths than they have"
    );
}

#[test]
fn the_same_segment_is_found_behind_every_link() {
    let expected = segment(101, &plain());
    let bare = |link, head: &[u8]| {
        assert_eq!(
            segment(link, &[head, &plain()].concat()),
            expected,
            "{link}"
        );
    };
    for link in [12, 14, 101, 228] {
        bare(link, &[]);
    }
    bare(0, &[2, 0, 0, 0]);
    bare(0, &[0, 0, 0, 2]);
    bare(108, &[0, 0, 0, 2]);
    bare(9, &[0xFF, 0x03, 0x00, 0x21]);
    bare(9, &[0x00, 0x21]);
    bare(9, &[0x21]);
    bare(
        10,
        &[
            0x50, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0xAA, 0xAA, 0x03, 0, 0, 0, 0x08, 0x00,
        ],
    );
    bare(113, &[0, 4, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x08, 0x00]);
    bare(
        276,
        &[
            0x08, 0x00, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 2, 2, 2, 2, 2, 0, 0,
        ],
    );
    let expected = segment(229, &v6(6, &tcp()));
    for family in [10, 24, 28, 30] {
        assert_eq!(
            segment(0, &[&[family, 0, 0, 0], &v6(6, &tcp())[..]].concat()),
            expected,
            "{family}"
        );
    }
    assert_eq!(
        read(0, &[&[7, 0, 0, 0], &plain()[..]].concat()),
        CapturedContent::Other
    );
    assert_eq!(
        read(9, &[&[0xC0, 0x21], &plain()[..]].concat()),
        CapturedContent::Other,
        "LCP"
    );
    assert_eq!(read(147, &plain()), CapturedContent::Other);
    assert!(
        [0, 1, 9, 10, 12, 14, 101, 108, 113, 228, 229, 276]
            .map(LinkType)
            .into_iter()
            .all(is_known)
    );
    assert!(![2, 119, 147, 195].map(LinkType).into_iter().any(is_known));
}

/// The header of a data frame of 802.11, from a station to an access point, and that of LLC/SNAP.
pub(crate) fn wireless(kind: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    [
        &[kind, flags, 0, 0],
        &[2; 18][..],
        &[0, 0],
        rest,
        &SNAP,
        &plain(),
    ]
    .concat()
}

const SNAP: [u8; 8] = [0xAA, 0xAA, 0x03, 0, 0, 0, 0x08, 0x00];

#[test]
fn rarer_links_are_read() {
    let expected = segment(101, &plain());
    let bare = |link, head: &[u8]| {
        assert!(is_known(LinkType(link)), "{link}");
        assert_eq!(
            segment(link, &[head, &plain()].concat()),
            expected,
            "{link}"
        );
    };
    bare(50, &[0xFF, 0x03, 0x00, 0x21]);
    bare(104, &[0x0F, 0x00, 0x08, 0x00]);
    bare(
        117,
        &[
            61, 2, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
            4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
            4, 4, 4, 0, 0, 0,
        ],
    );
    bare(
        239,
        &[
            2, 0, 0, 7, 8, 0, 1, 0, 8, 0, 1, 0, 5, 0, 10, 0, 0, 0, 0, 0, 58, 0, 9, 0,
        ],
    );
    bare(239, &[2, 0, 0, 7, 0, 8, 0, 1, 8, 0, 1, 0, 0, 58, 0, 9]);
    bare(240, &[&[9, 9, 9, 9], &[2; 12][..], &[8, 0]].concat());
    bare(242, &[&[7; 40], &[8, 0, 0, 0][..]].concat());
    let session = segment(
        51,
        &[&[0x11, 0, 0, 5, 0, 72, 0x00, 0x21], &plain()[..]].concat(),
    );
    assert_eq!(
        CapturedSegment {
            network: 0,
            ..session
        },
        expected
    );
    for frame in [
        wireless(0x08, 0x01, &[]),
        wireless(0x08, 0x03, &[2; 6]),
        wireless(0x88, 0x01, &[0, 0]),
        wireless(0x88, 0x83, &[2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(segment(105, &frame), expected);
        assert_eq!(
            segment(127, &[&[0, 0, 9, 0, 0, 0, 0, 0, 7], &frame[..]].concat()),
            expected
        );
    }
    assert_eq!(
        read(105, &wireless(0x08, 0x41, &[])),
        CapturedContent::Encrypted
    );
    assert_eq!(
        read(105, &wireless(0x80, 0x00, &[])),
        CapturedContent::Other,
        "a beacon"
    );
    assert_eq!(
        read(105, &wireless(0xC8, 0x01, &[])),
        CapturedContent::Other,
        "it has no data"
    );
    assert_eq!(
        read(239, &[2, 0, 0, 7, 0, 0, 1, 0]),
        CapturedContent::Malformed
    );
}

#[test]
fn tags_of_bridges_and_frames_with_a_length_are_followed() {
    let length = (SNAP.len() + plain().len()) as u16;
    let logical = [&SNAP, &plain()[..]].concat();
    let plainly = in_ethernet(0x0800, &plain());
    assert_eq!(in_ethernet(length, &logical), plainly);
    assert_eq!(
        in_ethernet(
            length,
            &[&[0xAA, 0xAA, 0x03, 0, 0, 0xF8], &logical[6..]].concat()
        ),
        plainly
    );
    assert_eq!(
        in_ethernet(length, &[&[0x06, 0x06, 0x03], &plain()[..]].concat()),
        plainly
    );
    let tagged = in_ethernet(
        0x8100,
        &[&[0, 7], &length.to_be_bytes()[..], &logical].concat(),
    );
    assert_eq!(
        tagged.network,
        in_ethernet(0x8100, &[&[0, 7, 0x08, 0x00], &plain()[..]].concat()).network
    );
    assert_eq!(
        read(1, &ethernet(38, &[0x42; 46])),
        CapturedContent::Other,
        "a spanning tree"
    );
    // 802.1BR, VN-Tag, HSR.
    for (kind, tag) in [
        (0x893F, &[0x20, 1, 0, 2, 0, 0][..]),
        (0x8926, &[0, 1, 0x80, 2]),
        (0x892F, &[0, 60, 0, 9]),
    ] {
        assert_eq!(
            in_ethernet(kind, &[tag, &[8, 0], &plain()].concat()),
            plainly,
            "{kind:x}"
        );
    }
    let instance = |id: u8| [&[0, 0, 0, id], &ethernet(0x0800, &plain())[..]].concat();
    let [one, other] = [1, 2].map(|id| in_ethernet(0x88E7, &instance(id)).network);
    assert!(one != other && one != 0 && other != 0);
    assert_eq!(
        read(1, &ethernet(0x88E5, &[0; 60])),
        CapturedContent::Encrypted
    );
}

#[test]
fn tunnels_of_access_points_caches_and_brokers_are_followed() {
    let expected = plain();
    let found = |packet: &[u8], overhead: u16| {
        let found = segment(101, packet);
        assert_eq!(
            (found.payload, found.overhead, found.hops_left),
            (10, overhead, 63)
        );
    };
    let gre = |kind: u16, rest: &[u8]| v4(47, &[&[0, 0], &kind.to_be_bytes()[..], rest].concat());
    found(&gre(0x883E, &expected), 24);
    found(&gre(0x883E, &[&[0, 1, 2, 3], &expected[..]].concat()), 28);
    found(&gre(0x8210, &wireless(0x08, 0x03, &[2; 6])), 62);
    found(&gre(0x88BE, &ethernet(0x0800, &expected)), 38);
    let mirrored = [
        &[0x10, 0, 0x88, 0xBE, 0, 0, 0, 1, 0x10, 7, 0, 0, 0, 0, 0, 0],
        &ethernet(0x0800, &expected)[..],
    ];
    found(&v4(47, &mirrored.concat()), 50);
    let third = |options: u8, rest: &[u8]| {
        let head = [
            0x10, 0, 0x22, 0xEB, 0, 0, 0, 1, 0x20, 7, 0, 0, 0, 0, 0, 9, 0, 0, 0, options,
        ];
        v4(47, &[&head, rest, &ethernet(0x0800, &expected)].concat())
    };
    found(&third(0, &[]), 54);
    found(&third(1, &[9; 8]), 62);
    found(
        &v4(
            17,
            &udp(
                4754,
                &[&[0x80, 0, 8, 0, 9, 9, 9, 9], &expected[..]].concat(),
            ),
        ),
        36,
    );
    let access = |head: [u8; 8], frame: &[u8]| udp(5247, &[&head[..], frame].concat());
    found(
        &v4(
            17,
            &access([0, 0x10, 2, 0, 0, 0, 0, 0], &ethernet(0x0800, &expected)),
        ),
        50,
    );
    let to_station = access([0, 0x10, 3, 0, 0, 0, 0, 0], &wireless(0x08, 0x02, &[]));
    found(&v4(17, &to_station), 68);
    let back = [&[0x14, 0x7F, 0x30, 0x39], &to_station[4..]].concat();
    found(&v4(17, &back), 68);
    let fragment = |offset| {
        access(
            [0, 0x10, 2, 0x80, 0, 0, offset, 0],
            &ethernet(0x0800, &expected),
        )
    };
    assert_eq!(
        read(101, &v4(17, &fragment(0))),
        CapturedContent::FirstFragment
    );
    assert_eq!(
        read(101, &v4(17, &fragment(1))),
        CapturedContent::LaterFragment
    );
    assert_eq!(
        read(101, &v4(17, &udp(5247, &[1, 0, 0, 0, 23, 0, 0, 0]))),
        CapturedContent::Encrypted
    );
    let broker = [
        &[0x41, 0x52, 0x11, 41, 0, 0, 0, 0],
        &[9; 36][..],
        &v6(6, &tcp()),
    ]
    .concat();
    let six = segment(101, &v4(17, &udp(5072, &broker)));
    assert_eq!((six.overhead, six.identification), (72, None));
}

#[test]
fn headers_that_are_not_understood_are_named() {
    let unread = |captured: CapturedContent| match captured {
        CapturedContent::Unread(unread) => unread.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        unread(read(1, &ethernet(0x22F3, &[0; 60]))),
        "TRILL (Ethernet type 0x22f3)"
    );
    assert_eq!(
        unread(read(1, &ethernet(0x1234, &[0; 60]))),
        "Ethernet type 0x1234"
    );
    assert_eq!(
        unread(read(101, &v4(97, &[0; 60]))),
        "EtherIP (IP protocol 97)"
    );
    assert_eq!(
        unread(read(101, &v4(17, &udp(1701, &[0; 60])))),
        "L2TP (UDP port 1701)"
    );
    assert_eq!(
        unread(read(101, &v4(47, &[0x30, 0x01, 0x88, 0x0B, 0, 0, 0, 0]))),
        "PPP in GRE (Ethernet type 0x880b)"
    );
    assert_eq!(LinkType(195).to_string(), "IEEE802_15_4_WITHFCS (195)");
    assert_eq!(LinkType(60_000).to_string(), "60000");
}

#[test]
fn tags_are_followed_and_make_networks_of_their_own() {
    let tag =
        |id: u8, kind: u16, rest: &[u8]| [&[0x60, id], &kind.to_be_bytes()[..], rest].concat();
    let one = in_ethernet(0x8100, &tag(7, 0x0800, &plain()));
    let other = in_ethernet(0x8100, &tag(8, 0x0800, &plain()));
    let two = in_ethernet(0x88A8, &tag(7, 0x8100, &tag(8, 0x0800, &plain())));
    let swapped = in_ethernet(0x9100, &tag(8, 0x8100, &tag(7, 0x0800, &plain())));
    let four = tag(
        1,
        0x8100,
        &tag(2, 0x8100, &tag(3, 0x8100, &tag(4, 0x86DD, &v6(6, &tcp())))),
    );
    let networks =
        [one, other, two, swapped, in_ethernet(0x8100, &four)].map(|segment| segment.network);
    assert!(networks.iter().all(|network| *network != 0));
    assert_eq!(
        networks
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        networks.len()
    );
    assert_eq!(one.overhead, 0, "a tag is no tunnel");
    let priority = in_ethernet(0x8100, &tag(0, 0x0800, &plain()));
    assert_eq!(priority.network, 0, "a priority is no VLAN");

    let labels = [&[0, 1, 0x00, 64, 0, 2, 0x01, 64], &plain()[..]].concat();
    assert_eq!(in_ethernet(0x8847, &labels).payload, 10);
    let wire = [
        &[0, 2, 0x01, 64, 0, 0, 0, 0],
        &ethernet(0x86DD, &v6(6, &tcp()))[..],
    ]
    .concat();
    assert_eq!(in_ethernet(0x8848, &wire).hops_left, 64);
    let session = [&[0x11, 0, 0, 5, 0, 72, 0x00, 0x21], &plain()[..]].concat();
    assert_eq!(in_ethernet(0x8864, &session).payload, 10);
    let session = [&[0x11, 0, 0, 5, 0, 72, 0x00, 0x57], &v6(6, &tcp())[..]].concat();
    assert_eq!(in_ethernet(0x8864, &session).payload, 10);
    assert_eq!(
        read(1, &ethernet(0x0806, &[0; 46])),
        CapturedContent::Other,
        "ARP"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn tunnels_are_followed_to_the_innermost_segment() {
    let inner = plain();
    let found = |packet: &[u8], overhead: u16| {
        let found = segment(101, packet);
        assert_eq!(
            (found.payload, found.overhead, found.hops_left),
            (10, overhead, 63)
        );
        assert_ne!(found.network, 0);
        found.network
    };
    let gre = |head: &[u8], rest: &[u8]| v4(47, &[head, rest].concat());
    let vxlan = |vni: u8| {
        udp(
            4789,
            &[&[8, 0, 0, 0, 0, 0, vni, 0], &ethernet(0x0800, &inner)[..]].concat(),
        )
    };
    let networks = [
        found(&v4(4, &inner), 20),
        found(&v6(4, &inner), 40),
        found(&gre(&[0, 0, 8, 0], &inner), 24),
        found(
            &gre(&[0xB0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1], &inner),
            36,
        ),
        found(
            &gre(
                &[0x20, 0, 0x65, 0x58, 0, 0, 6, 0],
                &ethernet(0x0800, &inner),
            ),
            42,
        ),
        found(&v4(17, &vxlan(1)), 50),
        found(&v6(17, &vxlan(2)), 70),
    ];
    assert_eq!(networks[0], networks[1], "of one kind, and without a name");
    assert_eq!(
        networks[1..]
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        6
    );
    let six_in_four = segment(101, &v4(41, &v6(6, &tcp())));
    assert_eq!(
        (six_in_four.overhead, six_in_four.identification),
        (20, None)
    );
    found(
        &v4(
            17,
            &udp(
                6081,
                &[
                    &[0x01, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 1, 1, 0],
                    &ethernet(0x0800, &inner)[..],
                ]
                .concat(),
            ),
        ),
        54,
    );
    found(
        &v4(
            17,
            &udp(
                6081,
                &[&[0x00, 0, 0x08, 0x00, 0, 0, 9, 0], &inner[..]].concat(),
            ),
        ),
        36,
    );
    found(
        &v4(
            17,
            &udp(
                2152,
                &[&[0x30, 255, 0, 72, 0, 0, 0, 1], &inner[..]].concat(),
            ),
        ),
        36,
    );
    found(
        &v4(
            17,
            &udp(
                2152,
                &[&[0x32, 255, 0, 72, 0, 0, 0, 1, 0, 9, 0, 0], &inner[..]].concat(),
            ),
        ),
        40,
    );
    let extended = [
        0x34, 255, 0, 72, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0x85, 1, 0, 9, 0,
    ];
    found(&v4(17, &udp(2152, &[&extended, &inner[..]].concat())), 48);
    let nested = (0..7).fold(inner.clone(), |packet, _| v4(4, &packet));
    found(&nested, 140);
    assert_eq!(
        read(101, &v4(4, &nested)),
        CapturedContent::Other,
        "a ninth layer"
    );
}

#[test]
fn a_number_of_flows_is_no_network_of_nvgre() {
    let network = |key: [u8; 4]| {
        let tunnel = [
            &[0x20, 0, 0x65, 0x58],
            &key[..],
            &ethernet(0x0800, &plain()),
        ]
        .concat();
        segment(101, &v4(47, &tunnel)).network
    };
    assert_eq!(
        network([0, 0, 5, 17]),
        network([0, 0, 5, 99]),
        "the same virtual subnet"
    );
    assert_ne!(network([0, 0, 5, 17]), network([0, 0, 6, 17]));
}

#[test]
fn datagrams_to_the_ports_of_tunnels_that_are_none_are_datagrams() {
    for port in [53, 4789, 8472, 6081, 2152, 5247, 5072] {
        for payload in [&[][..], &[0xC7; 7], &[0xC7; 40]] {
            assert_eq!(
                read(101, &v4(17, &udp(port, payload))),
                CapturedContent::Udp,
                "{port}"
            );
        }
    }
    assert_eq!(read(101, &v4(1, &[8, 0, 0, 0])), CapturedContent::Other);
}

#[test]
fn extension_headers_are_followed_to_a_limit() {
    let hop_by_hop = |next: u8, rest: &[u8]| [&[next, 0, 1, 4, 0, 0, 0, 0], rest].concat();
    let longer = |next: u8, rest: &[u8]| {
        [&[next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], rest].concat()
    };
    let authenticated = |next: u8, rest: &[u8]| [&[next, 4], &[7; 22][..], rest].concat();
    let fragment =
        |next, offset: u8, more, rest: &[u8]| [&[next, 0, offset, more, 0, 0, 0, 1], rest].concat();
    let all = hop_by_hop(
        60,
        &longer(
            43,
            &longer(44, &fragment(51, 0, 0, &authenticated(6, &tcp()))),
        ),
    );
    assert_eq!(segment(101, &v6(0, &all)).payload, 10);
    assert_eq!(segment(101, &v4(51, &authenticated(6, &tcp()))).payload, 10);
    assert_eq!(
        read(101, &v6(44, &fragment(6, 0, 1, &tcp()))),
        CapturedContent::FirstFragment
    );
    assert_eq!(
        read(101, &v6(44, &fragment(6, 1, 0, &tcp()))),
        CapturedContent::LaterFragment
    );
    assert_eq!(read(101, &v6(50, &tcp())), CapturedContent::Encrypted);
    assert_eq!(read(101, &v4(50, &tcp())), CapturedContent::Encrypted);
    assert_eq!(
        read(101, &v6(59, &[])),
        CapturedContent::Other,
        "nothing follows"
    );
    let deep = |headers| (1..headers).fold(hop_by_hop(6, &tcp()), |rest, _| hop_by_hop(60, &rest));
    assert_eq!(segment(101, &v6(60, &deep(16))).payload, 10);
    assert_eq!(read(101, &v6(60, &deep(17))), CapturedContent::Malformed);

    let mut first = plain();
    first[6] = 0x20;
    assert_eq!(read(101, &first), CapturedContent::FirstFragment);
    first[7] = 1;
    assert_eq!(read(101, &first), CapturedContent::LaterFragment);
}

#[test]
fn lengths_are_those_of_ip_and_else_of_the_capture() {
    let padded = [ethernet(0x0800, &v4(6, &tcp()[..32])), vec![0; 6]].concat();
    assert_eq!(
        segment(1, &padded).payload,
        0,
        "padding of a short frame is no data"
    );

    let read_of = |packet: &[u8], original| match read_captured(LinkType::RAW, packet, original) {
        CapturedContent::Tcp(segment) => {
            redaction::check(LinkType::RAW, packet, original, &segment);
            segment
        }
        other => panic!("{other:?}"),
    };
    let mut train = plain();
    train[2..4].fill(0);
    assert_eq!(read_of(&train, 180_000).payload, 180_000 - 52);
    assert_eq!(read_of(&train, 0).payload, 10, "no less than was captured");
    let mut train = v6(6, &tcp());
    train[4..6].fill(0);
    assert_eq!(read_of(&train, 180_000).payload, 180_000 - 72);
    let jumbo = |length: u32| {
        let length = length.to_be_bytes();
        let mut packet = v6(
            0,
            &[
                &[6, 0, 0xC2, 4, length[0], length[1], length[2], length[3]],
                &tcp()[..],
            ]
            .concat(),
        );
        packet[4..6].fill(0);
        packet
    };
    assert_eq!(read_of(&jumbo(150_008), 0).payload, 150_000 - 32);
    assert_eq!(
        read_of(&jumbo(3), 0).payload,
        10,
        "shorter than the header that states it"
    );
    let stated = plain();
    assert_eq!(
        read_of(&stated[..52], 52).payload,
        10,
        "the packet's own length before the file's"
    );
}

#[test]
fn an_unfinished_checksum_is_found() {
    for mut packet in [plain(), v6(6, &tcp())] {
        let header = packet.len() - tcp().len();
        let addresses = if header == 20 { 12..20 } else { 8..40 };
        let words = packet[addresses]
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = words.sum::<u32>() + 6 + tcp().len() as u32;
        let folded = ((sum & 0xFFFF) + (sum >> 16)) as u16;
        assert!(!segment(101, &packet).checksum_is_unfinished);
        packet[header + 16..header + 18].copy_from_slice(&folded.to_be_bytes());
        assert!(segment(101, &packet).checksum_is_unfinished);
        assert!(
            segment(101, &[&packet[..], &[0; 8]].concat()).checksum_is_unfinished,
            "padded"
        );
        packet[header + 16..header + 18].copy_from_slice(&(!folded).to_be_bytes());
        assert!(
            !segment(101, &packet).checksum_is_unfinished,
            "complemented"
        );
    }
}

#[test]
fn wrong_lengths_are_malformed() {
    let with = |at: usize, byte: u8| {
        let mut packet = plain();
        packet[at] = byte;
        read(101, &packet)
    };
    assert_eq!(
        with(0, 0x44),
        CapturedContent::Malformed,
        "a header of 16 bytes"
    );
    assert_eq!(with(0, 0x55), CapturedContent::Malformed, "version 5");
    assert_eq!(
        with(3, 19),
        CapturedContent::Malformed,
        "shorter than its header"
    );
    assert_eq!(
        with(3, 39),
        CapturedContent::Malformed,
        "shorter than TCP's header"
    );
    assert_eq!(
        with(32, 0x40),
        CapturedContent::Malformed,
        "a TCP header of 16 bytes"
    );
    assert_eq!(
        with(32, 0xF0),
        CapturedContent::Malformed,
        "options beyond the packet's end"
    );
    assert_eq!(read(101, &[]), CapturedContent::Malformed);
    assert_eq!(
        read_captured(LinkType::ETHERNET, &[], 60),
        CapturedContent::Cut
    );
}

/// A snap length changes nothing but options, or leaves too little.
#[test]
fn whatever_a_snap_length_leaves_is_read_or_cut() {
    let wire = [
        &[0, 2, 0x01, 64, 0, 0, 0, 0],
        &ethernet(0x0800, &plain())[..],
    ]
    .concat();
    let extended = [0x34, 255, 0, 72, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
    let packets = [
        ethernet(0x0800, &plain()),
        ethernet(
            0x8100,
            &[
                &[0, 7, 0x86, 0xDD],
                &v6(0, &[&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()[..]].concat())[..],
            ]
            .concat(),
        ),
        ethernet(0x8847, &wire),
        ethernet(
            0x0800,
            &v4(47, &[&[0x20, 0, 8, 0, 0, 0, 0, 6], &plain()[..]].concat()),
        ),
        ethernet(
            0x0800,
            &v4(17, &udp(2152, &[&extended, &plain()[..]].concat())),
        ),
        ethernet(
            0x86DD,
            &v6(
                17,
                &udp(
                    4789,
                    &[&[8, 0, 0, 0, 0, 0, 1, 0], &ethernet(0x0800, &plain())[..]].concat(),
                ),
            ),
        ),
    ];
    for packet in packets {
        let whole = segment(1, &packet);
        let options = packet.len() - 22;
        for cut in 0..packet.len() {
            let read = read_captured(LinkType::ETHERNET, &packet[..cut], packet.len());
            if let CapturedContent::Tcp(segment) = &read {
                redaction::check(LinkType::ETHERNET, &packet[..cut], packet.len(), segment);
            }
            match read {
                CapturedContent::Tcp(segment) if cut >= options + 12 => assert_eq!(segment, whole),
                CapturedContent::Tcp(mut segment) => {
                    assert!(cut >= options && segment.options.cut);
                    segment.options = whole.options;
                    assert_eq!(segment, whole);
                }
                other => assert!(
                    other == CapturedContent::Cut && cut < options,
                    "{other:?} at {cut}"
                ),
            }
        }
    }
}

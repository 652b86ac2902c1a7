use fullpipe_wire::LinkType;

use crate::write::{ORDERS, Order, Packet, PcapNg, packets, pcap, read};

const MAGICS: [(u32, &str); 3] = [
    (0xA1B2_C3D4, "pcap, microseconds"),
    (0xA1B2_3C4D, "pcap, nanoseconds"),
    (0xA1B2_CD34, "pcap (modified), microseconds"),
];

#[test]
fn every_format_order_and_resolution_holds_the_same_packets() {
    let written = packets(300);
    for order in ORDERS {
        for (magic, format) in MAGICS {
            let read = read(pcap(order, magic, &written));
            assert!(read.packets == written, "{format} {order:?}");
            assert_eq!((read.notes.format, read.notes.cut_end), (format, false));
            assert!(read.links.iter().all(|link| *link == LinkType::ETHERNET));
        }
        for (resolution, per_second) in [
            (3, 1_000),
            (6, 1_000_000),
            (9, 1_000_000_000),
            (10, 10_000_000_000_u64),
        ] {
            let ticks = |at: u64| (u128::from(at) * u128::from(per_second) / 1_000_000_000) as u64;
            let file = PcapNg::new(order)
                .interface(0, &[(9, &[resolution])])
                .packets(&written, ticks);
            let read = read(file.bytes);
            assert!(read.packets == written, "pcapng {order:?} 10^-{resolution}");
            assert_eq!(
                (read.notes.format, read.notes.packets_without_time),
                ("pcapng", 0)
            );
        }
        let micros = PcapNg::new(order)
            .interface(0, &[])
            .packets(&written, |at| at / 1_000);
        assert!(
            read(micros.bytes).packets == written,
            "without a resolution, microseconds"
        );
    }
}

#[test]
fn times_of_base_two_and_with_an_offset_are_exact() {
    // A second and three quarters, in 2^-20 s; and in 2^-3 s.
    let one = |at| Packet {
        at,
        bytes: vec![1, 2, 3],
        original: 3,
    };
    for order in ORDERS {
        for (resolution, ticks) in [(0x94, 7 << 18), (0x83, 14), (0xA8, 7 << 38)] {
            let file = PcapNg::new(order)
                .interface(0, &[(9, &[resolution])])
                .packet(0, ticks, &one(0), &[]);
            assert_eq!(read(file.bytes).packets[0].at, 1_750_000_000);
        }
        for (offset, at) in [
            (-3_i64, 2_000_000_001),
            (3, 8_000_000_001),
            (-6, 0),
            (i64::MIN, 0),
            (i64::MAX, u64::MAX),
        ] {
            let offset = order.u64(offset.cast_unsigned());
            let file = PcapNg::new(order).interface(0, &[(9, &[9]), (14, &offset)]);
            assert_eq!(
                read(file.packet(0, 5_000_000_001, &one(0), &[]).bytes).packets[0].at,
                at
            );
        }
    }
}

#[test]
fn concatenated_sections_keep_their_order_and_their_interfaces() {
    let written = packets(40);
    let name: &[(u16, &[u8])] = &[(2, b"eth\x1b0")];
    let file = PcapNg::new(Order::Little)
        .interface(96, name)
        .packets(&written, |at| at / 1_000)
        .section(Order::Big)
        .interface(0, &[(9, &[9])])
        .interface(0, &[])
        .packets(&written, |at| at)
        .packet(1, 7, &written[5], &[])
        .section(Order::Little)
        .interface(0, &[])
        .packets(&written, |at| at / 1_000);
    let read = read(file.bytes);
    assert_eq!(read.packets.len(), 121);
    for from in [0, 40, 81] {
        assert!(read.packets[from..from + 40] == written);
    }
    assert_eq!(
        read.packets[80].at, 7_000,
        "in the unit of the second interface"
    );
}

#[test]
fn packets_of_every_kind_of_block_are_read() {
    let written = packets(9);
    for order in ORDERS {
        let file = PcapNg::new(order)
            .interface(7, &[])
            .block(4, &[&[1, 2, 3]])
            .packet(0, 5, &written[8], &[])
            .block(0x0BAD, &[&[0; 3000]])
            .obsolete(0, 0xFFFF, 9, &written[6])
            .simple(&Packet {
                at: 0,
                bytes: written[7].bytes.clone(),
                original: 900,
            })
            .simple(&written[5]);
        let read = read(file.bytes);
        assert_eq!(
            read.packets
                .iter()
                .map(|packet| packet.at)
                .collect::<Vec<_>>(),
            [5_000, 9_000, 9_000, 9_000]
        );
        assert_eq!(
            read.packets
                .iter()
                .map(|packet| packet.bytes.len())
                .collect::<Vec<_>>(),
            [8, 6, 7, 5]
        );
        assert_eq!(
            read.packets
                .iter()
                .map(|packet| packet.original)
                .collect::<Vec<_>>(),
            [8, 1006, 900, 5]
        );
        assert_eq!(
            (read.notes.packets_without_time, read.notes.drops),
            (2, None)
        );
    }
}

#[test]
fn long_blocks_of_others_are_passed_over_and_each_section_has_its_interfaces() {
    let one = |file: PcapNg| file.interface(0, &[]).packet(0, 1, &packets(6)[5], &[]);
    let file = one(PcapNg::new(Order::Little))
        .block(0x0BAD, &[&vec![7; 20 << 20]])
        .packet(0, 2, &packets(6)[5], &[]);
    assert_eq!(read(file.bytes).packets.len(), 2);
    let many = (0..4200).fold(one(PcapNg::new(Order::Big)), |file, _| {
        one(file.section(Order::Big))
    });
    assert_eq!(read(many.bytes).packets.len(), 4201);
}

#[test]
fn losses_are_those_that_the_file_states() {
    let packet = &packets(6)[5];
    for order in ORDERS {
        let (two, four, big) = (order.u64(2), order.u64(4), order.u64(50));
        let flags = |flags: u32| order.u32(flags);
        let file = PcapNg::new(order)
            .interface(0, &[])
            .interface(0, &[])
            .packet(0, 1, packet, &[(1, b"hm"), (2, &flags(0x11)), (4, &two)])
            .packet(0, 2, packet, &[(2, &flags(2)), (4, &four)])
            .packet(1, 3, packet, &[(2, &flags(4))])
            .obsolete(1, 3, 4, packet);
        let states = |file: &PcapNg| read(file.bytes.clone()).notes.drops;
        assert_eq!(states(&file), Some(9));
        let file = file.statistics(0, &[(4, &big), (5, &two), (7, &two)]);
        assert_eq!(
            states(&file),
            Some(9),
            "the same losses, of which one count has fewer"
        );
        let file = file
            .statistics(0, &[(5, &big), (7, &two)])
            .statistics(9, &[(5, &big)]);
        assert_eq!(
            states(&file),
            Some(55),
            "the latest count of interface 0, and three of interface 1"
        );
        let none = PcapNg::new(order)
            .interface(0, &[])
            .statistics(0, &[(5, &[0; 8])]);
        assert_eq!(states(&none), Some(0));
    }
}

#[test]
fn odd_values_are_mended_and_noted() {
    let odd = [
        Packet {
            at: 0,
            bytes: vec![7; 60],
            original: 20,
        },
        Packet {
            at: 1_999_000_000,
            bytes: vec![8; 60],
            original: 60,
        },
    ];
    let mut file = pcap(Order::Little, 0xA1B2_C3D4, &odd);
    // The second's fraction, and bits for a frame's checksum in the link type.
    file[24 + 76 + 4..][..4].copy_from_slice(&1_000_000_u32.to_le_bytes());
    file[23] = 0x24;
    let read = read(file);
    assert_eq!(
        read.packets[0].original, 60,
        "a packet is no shorter than what was captured of it"
    );
    assert_eq!(
        (read.packets[1].at, read.notes.clamped_fractions),
        (1_999_999_000, 1)
    );
    assert_eq!(read.links[0], LinkType::ETHERNET);
}

/// As some writers do: lengths without the padding.
#[test]
fn a_block_whose_length_is_no_multiple_of_four_is_padded() {
    let mut file = PcapNg::new(Order::Little).interface(0, &[]);
    let first = file.bytes.len();
    file = file.packet(0, 1, &packets(6)[5], &[]);
    let length = file.bytes.len();
    for at in [first + 4, length - 4] {
        file.bytes[at] -= 3;
    }
    let again = file.packet(0, 2, &packets(6)[5], &[]).bytes;
    assert_eq!(read(again).packets.len(), 2);
}

#[test]
fn packets_beyond_a_block_of_reading_are_whole() {
    let large: Vec<Packet> = (0..60_u32)
        .map(|number| Packet {
            at: 0,
            bytes: vec![number as u8; 262_144 - number as usize],
            original: 300_000,
        })
        .collect();
    for file in [
        pcap(Order::Big, 0xA1B2_3C4D, &large),
        PcapNg::new(Order::Big)
            .interface(0, &[])
            .packets(&large, |at| at)
            .bytes,
        PcapNg::new(Order::Little)
            .interface(0, &[])
            .block(77, &[&vec![0; 3 << 20]])
            .packets(&large, |at| at)
            .bytes,
    ] {
        assert!(read(file).packets == large);
    }
}

#[test]
fn old_versions_may_have_the_lengths_of_a_packet_the_other_way_round() {
    let written = packets(40);
    for order in ORDERS {
        let mut file = pcap(order, 0xA1B2_C3D4, &written);
        file[6..8].copy_from_slice(&order.u16(2));
        assert!(read(file.clone()).packets == written, "in today's order");
        let mut at = 24;
        for packet in &written {
            let lengths = [
                file[at + 12..at + 16].to_vec(),
                file[at + 8..at + 12].to_vec(),
            ]
            .concat();
            file[at + 8..at + 16].copy_from_slice(&lengths);
            at += 16 + packet.bytes.len();
        }
        assert!(read(file).packets == written, "swapped");
    }
}

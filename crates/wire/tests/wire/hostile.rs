use std::net::IpAddr;

use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::{IpPacketTrain, MalformedPacket};
use proptest::prelude::*;

/// Returns the hops of an IP header, if it is whole.
fn hops(packet: &IpPacketTrain) -> Option<u8> {
    let mut front = Vec::new();
    let payload = packet.emit(&[], &mut front);
    let bytes = [&front[10..], payload].concat();
    match bytes.first()? >> 4 {
        4 if bytes.len() >= 20 => Some(bytes[8]),
        6 if bytes.len() >= 40 => Some(bytes[7]),
        _ => None,
    }
}

proptest! {
    /// Any bytes are a packet, whose parts are packets, or are refused.
    #[test]
    fn any_bytes_are_a_packet_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        gso in prop_oneof![Just(0_u8), Just(1), Just(4), Just(5), any::<u8>()],
        version in prop_oneof![Just(0x45_u8), Just(0x46), Just(0x60), any::<u8>()],
        protocol in prop_oneof![Just(6_u8), Just(17), any::<u8>()],
        link in 0_usize..20,
    ) {
        for (at, byte) in [(1, gso), (10 + link, version), (10 + link + 9, protocol)] {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        if let Ok(mut packet) = IpPacketTrain::parse(&bytes, link) {
            packet.complete_checksum();
            while packet.segment_count() > SegCount::new(1) {
                let mut rest = packet.split_off(SegCount::new(1));
                packet.complete_checksum();
                rest.complete_checksum();
                packet = rest;
            }
            packet.flow_hash();
            packet.mark_ce();
            packet.strip_sack();
            packet.clamp_window(ByteCount::new(1));
            let before = hops(&packet);
            let counted = packet.count_hop();
            prop_assert_eq!(hops(&packet), before.map(|hops| if counted { hops - 1 } else { hops }));
            packet.too_big(ByteCount::new(1));
            packet.time_exceeded(IpAddr::from([198, 18, 1, 1]));
            packet.time_exceeded(IpAddr::from([0xFD; 16]));
            packet.corrupt_bit(7);
            let mut front = Vec::new();
            packet.emit(&[0; 14], &mut front);
        }
    }
}

#[test]
fn trains_of_nothing_and_of_unknown_kind_are_refused() {
    let icmp = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 8, 0, 0, 0, 0, 0, 0, 0,
    ];
    let given = |gso: u8, size: u8| {
        let mut bytes = vec![0, gso, 0, 0, size, 0, 0, 0, 0, 0];
        bytes.extend(icmp);
        IpPacketTrain::parse(&bytes, 0).map(|packet| packet.ip_bytes().get())
    };
    assert_eq!(given(0, 0), Ok(28));
    assert_eq!(given(1, 8), Err(MalformedPacket));
    assert_eq!(given(3, 8), Err(MalformedPacket));
    assert_eq!(given(5, 0), Err(MalformedPacket));
    // A checksum that would stand behind the end.
    assert_eq!(
        IpPacketTrain::parse(&[5, 0, 255, 254, 255, 255, 255, 255, 255, 255, 255], 0).map(drop),
        Err(MalformedPacket)
    );
    assert_eq!(
        IpPacketTrain::parse(&[0; 9], 0).map(drop),
        Err(MalformedPacket)
    );
    assert_eq!(
        IpPacketTrain::parse(&[0; 10], 0).map(drop),
        Err(MalformedPacket)
    );
}

use super::*;
use std::io::Cursor;

#[test]
fn headers_that_are_not_understood_are_counted_and_few_are_named() {
    let mut others = OtherPackets::default();
    assert_eq!(others.unread_note(), None);
    (0..3).for_each(|_| others.count_unread(UnreadHeader::EtherType(0x22F3)));
    let text = others.unread_note().unwrap();
    assert!(text.starts_with(
        "3 packets within headers that are not understood (3 of TRILL (Ethernet type 0x22f3)):"
    ));
    (0..=u16::MAX).for_each(|kind| others.count_unread(UnreadHeader::EtherType(kind)));
    let text = others.unread_note().unwrap();
    assert!(
        text.contains("65539 packets") && text.contains("and 60 others") && text.len() < 300,
        "{text}"
    );
    assert!(others.unread.len() <= MAX_KINDS);
}

#[test]
fn of_thousands_of_link_types_few_are_named() {
    let mut file = FileNotes::default();
    file.links.extend((0..=u16::MAX).map(LinkType));
    let notes = capture_notes(&file, &OtherPackets::default(), ClockSteps::default());
    assert!(
        notes.len() == 1 && notes[0].len() < 200 && notes[0].contains("and 65511 others"),
        "{notes:?}"
    );
}

/// Returns a pcap file with one packet of link type `link`.
fn pcap(link: u32) -> PacketFile {
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
    bytes.extend(link.to_le_bytes());
    bytes.extend([7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 60, 0, 0, 0, 0xaa, 0xbb]);
    PacketFile::new(Cursor::new(bytes), "made.pcap").unwrap()
}

#[test]
fn a_capture_without_tcp_says_what_it_holds() {
    let others = OtherPackets {
        datagrams: 2,
        other: 1,
        ..OtherPackets::default()
    };
    let text =
        "None of 3 packets is a segment of TCP: 2 datagrams of UDP, 1 packet of other protocols.";
    assert_eq!(others.no_segment_note(3), text);
    let alone = OtherPackets {
        datagrams: 2,
        ..OtherPackets::default()
    };
    assert!(alone.no_segment_note(2).ends_with(": 2 datagrams of UDP."));
}

#[test]
fn packets_of_a_link_that_is_not_read_are_stated() {
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(0),
        is_compared: false,
    };
    let read = |link| {
        read_flows(
            &mut pcap(link),
            "made.pcap",
            wanted,
            &AtomicBool::new(false),
        )
        .report
    };
    let radio = read(195);
    assert_eq!((radio.packets, radio.segments), (1, 0));
    let advice = "are not read: capture on a device that carries IP.";
    assert_eq!(
        radio.notes,
        [format!(
            "Packets of link type IEEE802_15_4_WITHFCS (195) {advice}"
        )]
    );
    assert_eq!(
        read(1).notes,
        ["1 packet cut before the end of the TCP header."]
    );
}

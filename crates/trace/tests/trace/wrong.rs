use std::path::Path;

use fullpipe_trace::{CaptureError, PacketFile};

use crate::write::{ORDERS, Order, PcapNg, packets, pcap, pcap_header, sentence, try_read};

fn refused(bytes: &[u8]) -> String {
    sentence(&try_read(bytes.to_vec()).unwrap_err())
}

#[test]
fn a_file_that_is_no_capture_gets_one_sentence() {
    assert_eq!(refused(b""), "a.pcap is no packet capture: it is empty");
    assert_eq!(
        refused(b"[10:00] hello\n"),
        "a.pcap is no packet capture: it is text"
    );
    assert_eq!(
        refused(b"\x7FELF\x02\x01\x01"),
        "a.pcap is no packet capture: it is a program (ELF)"
    );
    let zip = "a.pcap is no packet capture: it is a zip archive; unpack it first";
    assert_eq!(refused(b"PK\x03\x04\x14\0\0\0"), zip);
    assert!(refused(b"BZh91AY&SY").contains("bzip2"));
    assert_eq!(
        refused(&[0; 9]),
        "a.pcap is no packet capture: its first bytes are those of no known format"
    );
    let head = pcap_header(Order::Big, 0xA1B2_C3D4, 2, 1);
    assert_eq!(
        refused(&head[..23]),
        "a.pcap is no packet capture: it ends within its header"
    );
    let section = PcapNg::new(Order::Big).bytes;
    assert_eq!(
        refused(&section[..11]),
        "a.pcap is no packet capture: it ends within its header"
    );
    let mut section = section;
    section[8] = 0;
    assert!(refused(&section).contains("byte order"));
}

#[test]
fn a_file_that_cannot_be_opened_or_read_is_named() {
    let missing = PacketFile::open(Path::new("/no/such.pcap")).unwrap_err();
    assert!(matches!(missing, CaptureError::Open { .. }));
    assert!(sentence(&missing).starts_with("cannot open /no/such.pcap: No such file"));
    let folder = tempfile::tempdir().unwrap();
    let unreadable = PacketFile::open(folder.path()).unwrap_err();
    assert!(
        matches!(unreadable, CaptureError::Read { .. }),
        "{unreadable}"
    );
}

#[test]
fn a_file_is_read_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    std::fs::write(&path, pcap(Order::Big, 0xA1B2_C3D4, &packets(1))).unwrap();
    let mut file = PacketFile::open(&path).unwrap();
    assert!(file.next_packet().unwrap().is_some() && file.next_packet().unwrap().is_none());
}

#[test]
fn other_versions_are_refused() {
    for order in ORDERS {
        let old = pcap_header(order, 0xA1B2_C3D4, 1, 1);
        assert_eq!(
            refused(&old),
            "a.pcap has version 1.4 of pcap, which cannot be read"
        );
        let mut new = PcapNg::new(order).bytes;
        new[12..14].copy_from_slice(&order.u16(2));
        let error = try_read(new).unwrap().error.unwrap();
        assert_eq!(
            sentence(&error),
            "a.pcap has version 2.0 of pcapng, which cannot be read"
        );
    }
}

/// Reads a file that ends in an error after one packet.
fn damaged_after_one(file: Vec<u8>) -> String {
    let read = try_read(file).unwrap();
    assert_eq!(read.packets.len(), 1, "{:?}", read.error);
    assert!(matches!(read.error, Some(CaptureError::Damaged { .. })));
    sentence(&read.error.unwrap())
}

#[test]
fn absurd_records_are_refused_and_those_before_are_kept() {
    for order in ORDERS {
        let mut file = pcap(order, 0xA1B2_C3D4, &packets(6)[5..]);
        assert_eq!(file.len(), 45);
        file.extend(
            [
                order.u32(0),
                order.u32(0),
                order.u32(262_145),
                order.u32(262_145),
            ]
            .concat(),
        );
        assert_eq!(
            damaged_after_one(file),
            "a.pcap is damaged at byte 45: a packet of 262145 captured bytes"
        );
        let good = PcapNg::new(order)
            .interface(0, &[])
            .packet(0, 1, &packets(6)[5], &[]);
        let offset = good.bytes.len();
        let with = |kind: u32, length: u32, rest: &[u8]| {
            let mut file = good.bytes.clone();
            file.extend(order.u32(kind));
            file.extend(order.u32(length));
            file.extend(rest);
            damaged_after_one(file)
        };
        let begins = format!("a.pcap is damaged at byte {offset}: ");
        assert_eq!(with(99, 8, &[0; 4]), format!("{begins}a block of 8 bytes"));
        assert_eq!(
            with(6, (16 << 20) + 4, &[0; 4]),
            format!("{begins}a block of 16777220 bytes")
        );
        assert_eq!(
            with(5, 16, &[0; 8]),
            format!("{begins}a block whose two lengths differ")
        );
        assert_eq!(
            with(99, 16, &[0; 8]),
            format!("{begins}a block whose two lengths differ")
        );
        assert_eq!(
            with(99, u32::MAX, &[0; 40]),
            format!("{begins}a block of 4294967295 bytes")
        );
        let of =
            |kind: u32, body: &[u8]| damaged_after_one(good.clone().block(kind, &[body]).bytes);
        assert_eq!(
            of(6, &[0; 16]),
            format!("{begins}a block that is too short for its type")
        );
        assert_eq!(
            of(3, &[]),
            format!("{begins}a block that is too short for its type")
        );
        assert_eq!(
            of(1, &[0; 4]),
            format!("{begins}a block that is too short for its type")
        );
        assert_eq!(
            of(6, &[0xFF; 24]),
            format!("{begins}a packet of an unknown interface")
        );
        let longer = [&[0; 12][..], &order.u32(8), &order.u32(8), &[0; 4]].concat();
        assert_eq!(
            of(6, &longer),
            format!("{begins}a packet that is longer than its block")
        );
        let huge = [&[0; 12][..], &order.u32(262_145), &order.u32(8), &[0; 4]].concat();
        assert_eq!(
            of(6, &huge),
            format!("{begins}a packet of more than 256 KiB captured bytes")
        );
    }
}

#[test]
fn interfaces_without_end_are_refused() {
    let many = (0..4096).fold(PcapNg::new(Order::Big), |file, _| file.interface(0, &[]));
    let many = many.packet(4095, 1, &packets(6)[5], &[]);
    assert!(
        damaged_after_one(many.interface(0, &[]).bytes)
            .ends_with("more than 4096 interfaces of a section")
    );
    let before = PcapNg::new(Order::Big).simple(&packets(6)[5]);
    let error = try_read(before.bytes).unwrap().error.unwrap();
    assert!(sentence(&error).ends_with("a packet of an unknown interface"));
}

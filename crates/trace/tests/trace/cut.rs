use std::io::{self, Cursor, Write};
use std::sync::atomic::AtomicBool;

use fullpipe_trace::{
    CaptureContent, CaptureUse, Compression, ExplainedTransfers, PacketFile, read_flows,
};

use crate::compressed::compress;
use crate::write::{ORDERS, Order, Packet, PcapNg, packets, pcap, try_read};

/// More than this of a file is not cut.
const DEPTH: usize = 4096;

/// Files of all kinds, with the offset at which each packet ends.
fn files() -> Vec<(Vec<u8>, Vec<usize>)> {
    let written = packets(80);
    let mut files = Vec::new();
    for order in ORDERS {
        for magic in [0xA1B2_C3D4, 0xA1B2_3C4D, 0xA1B2_CD34] {
            let ends = (1..=written.len())
                .map(|count| pcap(order, magic, &written[..count]).len())
                .collect();
            files.push((pcap(order, magic, &written), ends));
        }
        let mut file = PcapNg::new(order)
            .interface(0, &[(9, &[9]), (2, b"lo")])
            .block(10, &[&[0; 500]]);
        let mut ends = Vec::new();
        for (number, packet) in written.iter().enumerate() {
            file = match number % 4 {
                0 => file.simple(packet),
                1 => file
                    .obsolete(0, 0, packet.at, packet)
                    .section(order)
                    .interface(0, &[]),
                _ => file.packet(0, packet.at, packet, &[(2, &[0; 4])]),
            };
            ends.push(file.bytes.len());
        }
        files.push((file.bytes, ends));
    }
    files
}

#[test]
fn every_file_cut_at_every_byte_keeps_the_packets_before() {
    for (file, ends) in files() {
        let whole = try_read(file.clone()).unwrap().packets;
        for cut in 0..DEPTH.min(file.len()) {
            let Ok(read) = try_read(file[..cut].to_vec()) else {
                assert!(cut < 28, "only a file's header makes it a capture");
                continue;
            };
            assert!(read.error.is_none(), "{:?} at {cut}", read.error);
            let kept = read.packets.len();
            // A section or an interface may follow the last packet before its block is counted as
            // its end here.
            let at_least = ends.iter().filter(|end| **end <= cut).count();
            assert!(kept >= at_least && kept <= at_least + 1, "{kept} at {cut}");
            assert!(read.packets == whole[..kept]);
        }
        assert!(!try_read(file.clone()).unwrap().notes.cut_end);
        assert!(
            try_read(file[..file.len() - 1].to_vec())
                .unwrap()
                .notes
                .cut_end
        );
    }
}

#[test]
fn a_file_that_ends_between_packets_is_not_cut() {
    let (file, ends) = files().remove(0);
    for end in &ends {
        assert!(!try_read(file[..*end].to_vec()).unwrap().notes.cut_end);
        assert!(try_read(file[..end - 1].to_vec()).unwrap().notes.cut_end);
    }
}

/// Returns a segment of a connection over IPv4 and Ethernet, without checksums.
fn segment(number: u64) -> Packet {
    let from_client = number % 3 != 2;
    let mut bytes = [
        &[0; 12][..],
        &[8, 0, 0x45, 0, 0, 140, 0, number as u8, 0, 0, 64, 6, 0, 0],
    ]
    .concat();
    let ends: [&[u8]; 2] = if from_client {
        [&[10, 0, 0, 1], &[10, 0, 0, 2]]
    } else {
        [&[10, 0, 0, 2], &[10, 0, 0, 1]]
    };
    bytes.extend(ends.concat());
    bytes.extend(if from_client {
        [156, 64, 20, 81]
    } else {
        [20, 81, 156, 64]
    });
    bytes.extend((number as u32 * 100).to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend([7; 100]);
    Packet {
        at: 1_700_000_000_000_000_000 + number * 1_000_000,
        original: bytes.len() as u32,
        bytes,
    }
}

fn connections(bytes: &[u8]) -> Option<CaptureContent> {
    let mut file = PacketFile::new(Cursor::new(bytes.to_vec()), "a.pcap").ok()?;
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(1),
        is_compared: false,
    };
    Some(read_flows(
        &mut file,
        "a.pcap",
        wanted,
        &AtomicBool::new(false),
    ))
}

#[test]
fn every_file_cut_at_every_byte_keeps_the_connections_before() {
    let written: Vec<Packet> = (0..30).map(segment).collect();
    let plain = pcap(Order::Little, 0xA1B2_C3D4, &written);
    let section = PcapNg::new(Order::Big)
        .interface(0, &[])
        .packets(&written, |at| at / 1_000)
        .bytes;
    let packed = compress(Compression::Gzip, &plain);
    for file in [plain, section, packed] {
        let mut before = 0;
        for cut in 0..DEPTH.min(file.len()) {
            let Some(read) = connections(&file[..cut]) else {
                assert_eq!(before, 0, "nothing is lost by one more byte");
                continue;
            };
            let report = read.report;
            assert!(
                read.error.is_none() && report.packets == report.segments,
                "{:?} at {cut}",
                read.error
            );
            let counted: u64 = report
                .flows
                .iter()
                .flat_map(|flow| &flow.ends)
                .map(|end| end.packets)
                .sum();
            assert!(
                counted == report.packets && counted >= before,
                "{counted} at {cut}"
            );
            assert_eq!(report.flows.len(), usize::from(counted > 0));
            before = counted;
        }
        assert!(before >= 20, "{before}");
        let cut = connections(&file[..file.len() - 1]).unwrap().report;
        assert!(
            cut.notes.iter().any(|note| note.contains("is cut off")),
            "{:?}",
            cut.notes
        );
    }
}

/// Any byte of a file may be wrong: reading ends, with whatever was before.
#[test]
fn every_file_with_a_wrong_byte_ends() {
    for (file, _) in files() {
        for at in 0..DEPTH.min(file.len()) {
            let mut file = file.clone();
            file[at] ^= [0xFF, 0x80, 0x01][at % 3];
            let _ = try_read(file);
        }
    }
}

/// A pipe gives what there is, and packets are returned before the next is there.
#[test]
fn packets_of_a_pipe_are_returned_as_they_come() {
    let (reader, mut writer) = io::pipe().unwrap();
    let written = [Packet {
        at: 5_000,
        bytes: vec![1; 80],
        original: 80,
    }];
    writer
        .write_all(&pcap(Order::Little, 0xA1B2_C3D4, &written))
        .unwrap();
    let mut file = PacketFile::new(reader, "standard input").unwrap();
    assert_eq!(file.next_packet().unwrap().unwrap().bytes, [1; 80]);
    drop(writer);
    assert_eq!(file.next_packet().unwrap(), None);
}

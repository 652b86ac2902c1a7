use std::io::{self, Write};

use crate::write::{ORDERS, Order, Packet, PcapNg, packets, pcap, try_read};

/// More than this of a file is not cut.
const DEPTH: usize = 4096;

/// Files of all kinds, with the offset at which each packet ends.
fn files() -> Vec<(Vec<u8>, Vec<usize>)> {
    let written = packets(80);
    let mut files = Vec::new();
    for order in ORDERS {
        for magic in [0xA1B2_C3D4, 0xA1B2_3C4D, 0xA1B2_CD34] {
            let ends = (1..=written.len()).map(|count| pcap(order, magic, &written[..count]).len()).collect();
            files.push((pcap(order, magic, &written), ends));
        }
        let mut file = PcapNg::new(order).interface(0, &[(9, &[9]), (2, b"lo")]).block(10, &[&[0; 500]]);
        let mut ends = Vec::new();
        for (number, packet) in written.iter().enumerate() {
            file = match number % 4 {
                0 => file.simple(packet),
                1 => file.obsolete(0, 0, packet.at, packet).section(order).interface(0, &[]),
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
            // A section or an interface may follow the last packet before its block is counted as its end here.
            let at_least = ends.iter().filter(|end| **end <= cut).count();
            assert!(kept >= at_least && kept <= at_least + 1, "{kept} at {cut}");
            assert!(read.packets == whole[..kept]);
        }
        assert!(!try_read(file.clone()).unwrap().notes.cut_end);
        assert!(try_read(file[..file.len() - 1].to_vec()).unwrap().notes.cut_end);
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
    let written = [Packet { at: 5_000, bytes: vec![1; 80], original: 80 }];
    writer.write_all(&pcap(Order::Little, 0xA1B2_C3D4, &written)).unwrap();
    let mut file = fullpipe_trace::PacketFile::new(reader, "standard input").unwrap();
    assert_eq!(file.next_packet().unwrap().unwrap().bytes, [1; 80]);
    drop(writer);
    assert_eq!(file.next_packet().unwrap(), None);
}

//! Captures whose packets are not in the order of their times, and whose clock was set.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_record::CaptureReport;
use fullpipe_trace::{Explained, PacketFile, Wanted, read_flows, read_flows_with};

use crate::redacted::{explained, opened, segment};
use crate::write::{Order, Packet, pcap};

const BEGIN: u64 = 1_700_000_000_000_000_000;

/// A transfer of 3000 segments with its handshake, a packet each 20 µs.
fn packets() -> Vec<Packet> {
    let mut all = vec![
        segment(true, [100, 0], 0x02, &[]),
        segment(false, [900, 101], 0x12, &[]),
        segment(true, [101, 901], 0x10, &[]),
    ];
    for number in 0..3000 {
        all.push(segment(true, [101 + number * 1000, 901], 0x18, &[0xEE; 1000]));
        if number % 2 == 1 {
            all.push(segment(false, [901, 101 + number.saturating_sub(9) * 1000], 0x10, &[]));
        }
    }
    let packet = |(bytes, number): (&Vec<u8>, u64)| {
        let frame = [&[2; 12], &[8, 0][..], bytes].concat();
        Packet { at: BEGIN + number * 20_000, original: frame.len() as u32, bytes: frame[..54].to_vec() }
    };
    all.iter().zip(0..).map(packet).collect()
}

fn file(packets: &[Packet]) -> Vec<u8> {
    pcap(Order::Little, 0xA1B2_3C4D, packets)
}

fn report(packets: &[Packet]) -> CaptureReport {
    explained(opened(file(packets))).report
}

fn report_of(path: &Path) -> CaptureReport {
    let wanted = Wanted { explained: Explained::Largest(1), is_compared: false };
    read_flows(&mut PacketFile::open(path).unwrap(), "a.pcap", wanted, &AtomicBool::new(false)).report
}

#[test]
fn packets_out_of_order_are_sorted_by_their_times() {
    let ordered = packets();
    let expected = report(&ordered);
    assert!(expected.flows[0].has_handshake && expected.flows[0].ends[0].late_packets == 0);
    let mut swapped = ordered.clone();
    swapped.swap(0, 1);
    let jumbled = |by: usize| {
        let mut packets = ordered.clone();
        packets.chunks_mut(by).enumerate().for_each(|(number, part)| part.rotate_left(number % part.len()));
        packets
    };
    let mut late = ordered.clone();
    late[3_990..4_000].reverse();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    for (disordered, is_near) in [(swapped, true), (jumbled(30), true), (late, true), (jumbled(900), false)] {
        assert_ne!(disordered, ordered);
        if is_near {
            assert_eq!(report(&disordered), expected, "from a pipe");
        }
        std::fs::write(&path, file(&disordered)).unwrap();
        assert_eq!(report_of(&path), expected, "from a file");
    }
}

#[test]
fn each_packet_of_a_disordered_file_is_passed_on_once() {
    let mut disordered = packets();
    disordered.swap(2_000, 2_001);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    std::fs::write(&path, file(&disordered)).unwrap();
    let mut passed = Vec::new();
    let wanted = Wanted { explained: Explained::Largest(1), is_compared: false };
    let mut opened = PacketFile::open(&path).unwrap();
    let read = read_flows_with(&mut opened, "a.pcap", wanted, &AtomicBool::new(false), &mut |packet| {
        passed.push(packet.at.as_nanos());
        Ok(())
    });
    assert_eq!(passed, disordered.iter().map(|packet| packet.at).collect::<Vec<_>>());
    assert_eq!(read.report, report_of(&path));
}

#[test]
fn a_clock_that_was_set_is_stated_and_figures_go_on() {
    let ordered = packets();
    let expected = report(&ordered);
    let in_1970: fn(&mut [Packet]) = |packets| packets[0].at = 7;
    let set_back: fn(&mut [Packet]) = |packets| packets[2_000..].iter_mut().for_each(|one| one.at -= 3_000_000_000);
    for change in [in_1970, set_back] {
        let mut packets = ordered.clone();
        change(&mut packets);
        let read = report(&packets);
        assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
        assert!(read.notes[0].starts_with("The clock of the capture was set once, by "), "{:?}", read.notes);
        // One pause of 20 µs is unknown.
        let lost = expected.duration.saturating_sub(read.duration).as_nanos();
        assert!(lost <= 20_000, "{:?} for {:?}", read.duration, expected.duration);
        let counts = |report: &CaptureReport| {
            report.flows[0]
                .ends
                .clone()
                .map(|end| (end.packets, end.unique_bytes, end.late_packets, end.rtt.map(|rtt| rtt.samples)))
        };
        assert_eq!(counts(&read), counts(&expected));
    }
}

//! Captures whose packets are not in the order of their times, and whose clock was set.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_record::CaptureReport;
use fullpipe_trace::{CaptureUse, ExplainedTransfers, PacketFile, read_flows, read_flows_with};

use crate::redacted::{explained, nameless, opened, redact, segment};
use crate::write::{Order, Packet, PcapNg, pcap};

const BEGIN: u64 = 1_700_000_000_000_000_000;

/// A transfer of 3000 segments with its handshake, a packet each 20 µs.
fn packets() -> Vec<Packet> {
    let mut all = vec![
        segment(true, [100, 0], 0x02, &[]),
        segment(false, [900, 101], 0x12, &[]),
        segment(true, [101, 901], 0x10, &[]),
    ];
    for number in 0..3000 {
        all.push(segment(
            true,
            [101 + number * 1000, 901],
            0x18,
            &[0xEE; 1000],
        ));
        if number % 2 == 1 {
            all.push(segment(
                false,
                [901, 101 + number.saturating_sub(9) * 1000],
                0x10,
                &[],
            ));
        }
    }
    let packet = |(bytes, number): (&Vec<u8>, u64)| {
        let frame = [&[2; 12], &[8, 0][..], bytes].concat();
        Packet {
            at: BEGIN + number * 20_000,
            original: frame.len() as u32,
            bytes: frame[..54].to_vec(),
        }
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
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(1),
        is_compared: false,
    };
    read_flows(
        &mut PacketFile::open(path).unwrap(),
        "a.pcap",
        wanted,
        &AtomicBool::new(false),
    )
    .report
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
        packets
            .chunks_mut(by)
            .enumerate()
            .for_each(|(number, part)| part.rotate_left(number % part.len()));
        packets
    };
    let mut late = ordered.clone();
    late[3_990..4_000].reverse();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    for (disordered, is_near) in [
        (swapped, true),
        (jumbled(30), true),
        (late, true),
        (jumbled(900), false),
    ] {
        assert_ne!(disordered, ordered);
        if is_near {
            assert_eq!(report(&disordered), expected, "from a pipe");
        }
        std::fs::write(&path, file(&disordered)).unwrap();
        assert_eq!(report_of(&path), expected, "from a file");
    }
}

#[test]
fn packets_of_a_slow_device_are_sorted_among_those_of_a_busy_one() {
    const BUFFERED: u64 = 250_000_000;
    // Data passes one device, acknowledgements the other, over 0.9 s.
    let mut packets = packets();
    for packet in &mut packets {
        packet.at = BEGIN + (packet.at - BEGIN) * 10;
    }
    let interface = |packet: &Packet| u32::from(packet.original < 100);
    let written = |packet: &Packet| match interface(packet) {
        0 => packet.at,
        _ => packet.at.next_multiple_of(BUFFERED),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let file = |packets: &[Packet]| {
        let nanoseconds: [(u16, &[u8]); 1] = [(9, &[9])];
        let file = PcapNg::new(Order::Little)
            .interface(262_144, &nanoseconds)
            .interface(262_144, &nanoseconds);
        let add =
            |file: PcapNg, packet: &Packet| file.packet(interface(packet), packet.at, packet, &[]);
        packets.iter().fold(file, add).bytes
    };
    std::fs::write(&path, file(&packets)).unwrap();
    let expected = report_of(&path);
    assert!(expected.flows[0].ends.iter().all(|end| end.packets > 1_000));
    packets.sort_by_key(written);
    std::fs::write(&path, file(&packets)).unwrap();
    assert_eq!(report_of(&path), expected);
    let redacted = folder.path().join("redacted.pcap");
    redact(file(&packets), &redacted).unwrap();
    assert_eq!(
        nameless(report_of(&redacted)).flows,
        nameless(expected).flows,
        "its packets have no device"
    );
}

#[test]
fn each_packet_of_a_disordered_file_is_passed_on_once() {
    let mut disordered = packets();
    disordered.swap(2_000, 2_001);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    std::fs::write(&path, file(&disordered)).unwrap();
    let mut passed = Vec::new();
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(1),
        is_compared: false,
    };
    let mut opened = PacketFile::open(&path).unwrap();
    let read = read_flows_with(
        &mut opened,
        "a.pcap",
        wanted,
        &AtomicBool::new(false),
        &mut |packet| {
            passed.push(packet.at.as_nanos());
            Ok(())
        },
    );
    assert_eq!(
        passed,
        disordered
            .iter()
            .map(|packet| packet.at)
            .collect::<Vec<_>>()
    );
    assert_eq!(read.report, report_of(&path));
}

#[test]
fn a_clock_that_was_set_is_stated_and_figures_go_on() {
    let ordered = packets();
    let expected = report(&ordered);
    let in_1970: fn(&mut [Packet]) = |packets| packets[0].at = 7;
    let set_back: fn(&mut [Packet]) = |packets| {
        packets[2_000..]
            .iter_mut()
            .for_each(|one| one.at -= 3_000_000_000);
    };
    for change in [in_1970, set_back] {
        let mut packets = ordered.clone();
        change(&mut packets);
        let read = report(&packets);
        assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
        assert!(
            read.notes[0].starts_with("The clock of the capture was set once, by "),
            "{:?}",
            read.notes
        );
        // One pause of 20 µs is unknown.
        let lost = expected.duration.saturating_sub(read.duration).as_nanos();
        assert!(
            lost <= 20_000,
            "{:?} for {:?}",
            read.duration,
            expected.duration
        );
        let counts = |report: &CaptureReport| {
            report.flows[0].ends.clone().map(|end| {
                (
                    end.packets,
                    end.unique_bytes,
                    end.late_packets,
                    end.rtt.map(|rtt| rtt.samples),
                )
            })
        };
        assert_eq!(counts(&read), counts(&expected));
    }
}

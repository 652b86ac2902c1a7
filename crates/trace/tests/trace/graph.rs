//! Time–sequence graphs of made captures.

use std::sync::atomic::AtomicBool;

use fullpipe_trace::{CaptureError, plot};

use crate::redacted::{explained, opened, segment};
use crate::write::{Order, Packet, pcap};

/// A connection whose second segment is lost and sent again, each packet a millisecond after the one before.
fn capture() -> Vec<u8> {
    capture_from(100)
}

/// The same with this sequence number of the sender's SYN.
fn capture_from(initial: u32) -> Vec<u8> {
    let at = |position: u32| initial.wrapping_add(position);
    let with_sack = || {
        let mut packet = segment(false, [901, at(1001)], 0x10, &[]);
        // Two paddings and a block of the third segment, in a header of 32 bytes.
        packet[32] = 0x80;
        packet.extend([1, 1, 5, 10]);
        packet.extend([at(2001), at(3001)].map(u32::to_be_bytes).concat());
        packet[3] += 12;
        packet
    };
    let data = |number: u32| segment(true, [at(1 + number * 1000), 901], 0x18, &[7; 1000]);
    let packets = [
        segment(true, [initial, 0], 0x02, &[]),
        segment(false, [900, at(1)], 0x12, &[]),
        segment(true, [at(1), 901], 0x10, &[]),
        data(0),
        data(1),
        data(2),
        segment(false, [901, at(1001)], 0x10, &[]),
        with_sack(),
        data(1),
        segment(false, [901, at(3001)], 0x10, &[]),
    ];
    let packet = |(bytes, number): (&Vec<u8>, u64)| {
        let frame = [&[2; 12], &[8, 0][..], bytes].concat();
        Packet { at: 1_700_000_000_000_000_000 + number * 1_000_000, original: frame.len() as u32, bytes: frame }
    };
    let packets: Vec<Packet> = packets.iter().zip(0..).map(packet).collect();
    pcap(Order::Little, 0xA1B2_3C4D, &packets)
}

#[test]
fn data_acknowledgements_windows_and_repairs_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let flow = explained(opened(capture())).report.flows.remove(0);
    let never = AtomicBool::new(false);
    let drawn = plot(&mut opened(capture()), &flow, &folder.path().join("graphs"), &never).unwrap();
    assert!(drawn.path.ends_with("graphs/connection-1.xpl") && drawn.left_out == 0);
    let text = std::fs::read_to_string(&drawn.path).unwrap();
    let expected = "timeval double
title
192.0.2.1:40000_==>_198.51.100.7:5201 (time sequence graph)
xlabel
time
ylabel
sequence number
white
darrow 1700000000.003000 101
uarrow 1700000000.003000 1101
line 1700000000.003000 101 1700000000.003000 1101
darrow 1700000000.004000 1101
uarrow 1700000000.004000 2101
line 1700000000.004000 1101 1700000000.004000 2101
darrow 1700000000.005000 2101
uarrow 1700000000.005000 3101
line 1700000000.005000 2101 1700000000.005000 3101
green
line 1700000000.001000 101 1700000000.006000 101
line 1700000000.006000 101 1700000000.006000 1101
line 1700000000.006000 1101 1700000000.007000 1101
dtick 1700000000.007000 1101
yellow
line 1700000000.006000 66636 1700000000.007000 66636
purple
line 1700000000.007000 2101 1700000000.007000 3101
red
darrow 1700000000.008000 1101
uarrow 1700000000.008000 2101
line 1700000000.008000 1101 1700000000.008000 2101
green
line 1700000000.007000 1101 1700000000.009000 1101
line 1700000000.009000 1101 1700000000.009000 3101
yellow
line 1700000000.007000 66636 1700000000.009000 66636
line 1700000000.009000 66636 1700000000.009000 68636
go
";
    assert_eq!(text, expected);
    let again = plot(&mut opened(capture()), &flow, &folder.path().join("graphs"), &never).unwrap_err();
    assert!(matches!(again, CaptureError::Write { .. }) && drawn.path.exists(), "nothing is overwritten");
}

/// Returns the graph of the first connection of a capture.
fn graph(capture: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let flow = explained(opened(capture.to_vec())).report.flows.remove(0);
    let drawn = plot(&mut opened(capture.to_vec()), &flow, folder.path(), &AtomicBool::new(false)).unwrap();
    std::fs::read_to_string(drawn.path).unwrap()
}

#[test]
fn sequence_numbers_that_begin_again_go_on_in_a_graph() {
    // The first segment ends at zero.
    let shifted = graph(&capture_from(u32::MAX - 1000));
    let ordinates = |text: &str| -> Vec<i64> {
        let numbers = text.lines().filter(|line| line.contains("line ")).flat_map(|line| line.split(' '));
        numbers.filter(|word| !word.contains('.')).filter_map(|word| word.parse().ok()).collect()
    };
    let by = i64::from(u32::MAX) - 1000 - 100;
    let expected: Vec<i64> = ordinates(&graph(&capture())).iter().map(|number| number + by).collect();
    assert_eq!(ordinates(&shifted), expected);
    assert!(expected.iter().any(|number| *number > 1 << 32));
}

#[test]
fn what_was_captured_within_a_tunnel_too_is_drawn_once() {
    let plain = capture();
    let expected = graph(&plain);
    // Each frame again in a packet of IPv4, 20 microseconds later.
    let mut both = plain[..24].to_vec();
    let mut at = 24;
    while at < plain.len() {
        let length = u32::from_le_bytes(plain[at + 8..at + 12].try_into().unwrap()) as usize;
        let (head, frame) = (&plain[at..at + 16], &plain[at + 16..at + 16 + length]);
        let nanos = u32::from_le_bytes(head[4..8].try_into().unwrap()) + 20_000;
        let outer = (length as u16 + 6).to_be_bytes();
        let outer = [&[0x45, 0, outer[0], outer[1], 0, 0, 0, 0, 64, 4, 0, 0][..], &[10, 0, 0, 1, 10, 0, 0, 2]].concat();
        both.extend(&plain[at..at + 16 + length]);
        both.extend([&head[..4], &nanos.to_le_bytes()].concat());
        both.extend([(length as u32 + 20).to_le_bytes(); 2].concat());
        both.extend([&frame[..14], &outer, &frame[14..]].concat());
        at += 16 + length;
    }
    assert_eq!(explained(opened(both.clone())).report.flows.len(), 2);
    assert_eq!(graph(&both), expected);
}

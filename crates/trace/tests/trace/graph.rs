//! Time–sequence graphs of made captures.

use std::sync::atomic::AtomicBool;

use fullpipe_trace::{CaptureError, plot};

use crate::redacted::{explained, opened, segment};
use crate::write::{Order, Packet, pcap};

/// A connection whose second segment is lost and sent again, each packet a millisecond after the one before.
fn capture() -> Vec<u8> {
    let with_sack = || {
        let mut packet = segment(false, [901, 1101], 0x10, &[]);
        // Two paddings and a block from 2101 to 3101, in a header of 32 bytes.
        packet[32] = 0x80;
        packet.extend([1, 1, 5, 10, 0, 0, 8, 53, 0, 0, 12, 29]);
        packet[3] += 12;
        packet
    };
    let data = |number: u32| segment(true, [101 + number * 1000, 901], 0x18, &[7; 1000]);
    let packets = [
        segment(true, [100, 0], 0x02, &[]),
        segment(false, [900, 101], 0x12, &[]),
        segment(true, [101, 901], 0x10, &[]),
        data(0),
        data(1),
        data(2),
        segment(false, [901, 1101], 0x10, &[]),
        with_sack(),
        data(1),
        segment(false, [901, 3101], 0x10, &[]),
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

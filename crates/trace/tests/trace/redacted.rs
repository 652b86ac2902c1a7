//! Captures that are written anew, against what is read of the first.

use std::fs;
use std::io::{Cursor, ErrorKind};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_record::{CaptureReport, RedactedFile};
use fullpipe_trace::{
    CaptureContent, CaptureError, CaptureUse, ExplainedTransfers, PacketFile, RedactedWriter,
    read_flows, read_flows_with,
};

use crate::write::{Order, Packet, PcapNg};

/// Bytes of headers of links, and the link type.
const LINKS: [(u16, &[u8]); 4] = [
    (
        1,
        &[0x52, 0x54, 0, 1, 2, 3, 0x52, 0x54, 0, 4, 5, 6, 0x08, 0x00],
    ),
    (
        113,
        &[0, 4, 0, 1, 0, 6, 0x52, 0x54, 0, 1, 2, 3, 0, 0, 0x08, 0x00],
    ),
    (
        276,
        &[
            0x08, 0x00, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 0x52, 0x54, 0, 1, 2, 3, 0, 0,
        ],
    ),
    (101, &[]),
];

/// A segment in a packet of IPv4.
pub(crate) fn segment(from_client: bool, numbers: [u32; 2], flags: u8, data: &[u8]) -> Vec<u8> {
    let (hosts, ports) = (
        [[192, 0, 2, 1], [198, 51, 100, 7]],
        [[0x9C, 0x40], [0x14, 0x51]],
    );
    let order = if from_client { [0, 1] } else { [1, 0] };
    let mut packet = vec![0x45, 0, 0, 0, numbers[0] as u8, 1, 0x40, 0, 64, 6, 0, 0];
    for end in order {
        packet.extend(hosts[end]);
    }
    for end in order {
        packet.extend(ports[end]);
    }
    for number in numbers {
        packet.extend(number.to_be_bytes());
    }
    packet.extend([0x50, flags, 0xFF, 0xFF, 0x12, 0x34, 0, 0]);
    packet.extend(data);
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    packet
}

/// A connection of which each packet is of another interface, and with them one that is not of TCP.
fn capture() -> Vec<u8> {
    let mut packets = vec![
        segment(true, [100, 0], 0x02, &[]),
        segment(false, [900, 101], 0x12, &[]),
        segment(true, [101, 901], 0x10, &[]),
    ];
    for number in 0..200 {
        packets.push(segment(
            true,
            [101 + number * 1000, 901],
            0x18,
            &[0xEE; 1000],
        ));
        packets.push(segment(false, [901, 1101 + number * 1000], 0x10, &[]));
    }
    packets.push(
        [
            &[
                0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
            ][..],
            &[0; 8],
        ]
        .concat(),
    );
    let interfaces = LINKS
        .iter()
        .fold(PcapNg::new(Order::Little), |file, (link, _)| {
            file.block(
                1,
                &[
                    &link.to_le_bytes(),
                    &[0; 6],
                    &[2, 0, 4, 0],
                    b"eth7",
                    &[0; 4],
                ],
            )
        });
    let file = packets
        .iter()
        .enumerate()
        .fold(interfaces, |file, (number, packet)| {
            let head = LINKS[number % LINKS.len()].1;
            let bytes = [head, packet].concat();
            let packet = Packet {
                at: 0,
                original: bytes.len() as u32,
                bytes,
            };
            file.packet(
                (number % LINKS.len()) as u32,
                1_700_000_000_000_000 + number as u64 * 3_000,
                &packet,
                &[],
            )
        });
    file.bytes
}

pub(crate) fn opened(bytes: Vec<u8>) -> PacketFile {
    PacketFile::new(Cursor::new(bytes), "a.pcap").unwrap()
}

const WANTED: CaptureUse<'static> = CaptureUse {
    explained: ExplainedTransfers::Largest(1),
    is_compared: false,
};

pub(crate) fn explained(mut file: PacketFile) -> CaptureContent {
    read_flows(&mut file, "a.pcap", WANTED, &AtomicBool::new(false))
}

pub(crate) fn redact(bytes: Vec<u8>, to: &Path) -> Result<RedactedFile, CaptureError> {
    let mut redaction = RedactedWriter::create(to)?;
    let (mut file, never) = (opened(bytes), AtomicBool::new(false));
    let reading = read_flows_with(&mut file, "a.pcap", WANTED, &never, &mut |packet| {
        redaction.write(packet)
    });
    match reading.error {
        Some(error) => Err(error),
        None => redaction.finish(),
    }
}

/// Returns a report without its addresses.
pub(crate) fn nameless(mut report: CaptureReport) -> CaptureReport {
    report
        .flows
        .iter_mut()
        .flat_map(|flow| &mut flow.ends)
        .for_each(|end| end.address.clear());
    report
}

#[test]
fn the_figures_stay_and_the_addresses_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let written = redact(capture(), &path).unwrap();
    assert_eq!((written.segments, written.left_out), (403, 1));
    let (before, after) = (
        explained(opened(capture())),
        explained(PacketFile::open(&path).unwrap()),
    );
    assert_eq!(before.report.flows[0].ends[0].unique_bytes.get(), 200_000);
    assert_eq!(after.transfers, before.transfers);
    let [sender, receiver] = after.report.flows[0]
        .ends
        .each_ref()
        .map(|end| end.address.clone());
    assert!(
        sender.ends_with(":40000") && receiver.ends_with(":5201"),
        "ports stay"
    );
    assert_eq!(nameless(after.report).flows, nameless(before.report).flows);
    let bytes = fs::read(&path).unwrap();
    let parts: [&[u8]; 5] = [
        &[192, 0, 2, 1],
        &[198, 51, 100, 7],
        &[0x52, 0x54, 0],
        b"eth7",
        &[0xEE; 4],
    ];
    for part in parts {
        assert!(
            !bytes.windows(part.len()).any(|window| window == part),
            "{part:02x?}"
        );
    }
    let again = folder.path().join("again.pcap");
    redact(capture(), &again).unwrap();
    assert_ne!(
        explained(PacketFile::open(&again).unwrap()).report.flows[0].ends[0].address,
        sender,
        "another key"
    );
}

#[test]
fn no_file_is_overwritten_and_none_is_left_half() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    fs::write(&path, "mine").unwrap();
    let refused = redact(capture(), &path).unwrap_err();
    assert!(
        matches!(&refused, CaptureError::Write { source, .. } if source.kind() == ErrorKind::AlreadyExists)
    );
    assert_eq!(fs::read(&path).unwrap(), b"mine");

    let full = redact(capture(), Path::new("/dev/full")).unwrap_err();
    assert!(
        matches!(&full, CaptureError::Write { source, .. } if source.kind() == ErrorKind::StorageFull)
    );
    let path = folder.path().join("unfinished.pcap");
    let redaction = RedactedWriter::create(&path).unwrap();
    assert!(path.exists());
    drop(redaction);
    assert!(!path.exists());
}

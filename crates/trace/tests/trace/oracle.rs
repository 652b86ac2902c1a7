//! Generated files against pcap-parser, in what it reads correctly.

use std::io::Cursor;

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};
use proptest::prelude::*;

use crate::write::{Order, Packet, PcapNg, pcap, read};

/// Reads a file with pcap-parser, times in microseconds or nanoseconds.
fn parsed(mut reader: impl PcapReaderIterator, nanos_per_unit: u64) -> Vec<Packet> {
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                match block {
                    PcapBlockOwned::Legacy(packet) => packets.push(Packet {
                        at: u64::from(packet.ts_sec) * 1_000_000_000
                            + u64::from(packet.ts_usec) * nanos_per_unit,
                        bytes: packet.data.to_vec(),
                        original: packet.origlen,
                    }),
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => packets.push(Packet {
                        at: (u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low))
                            * nanos_per_unit,
                        bytes: packet.data[..packet.caplen as usize].to_vec(),
                        original: packet.origlen,
                    }),
                    _ => {}
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn written() -> impl Strategy<Value = Vec<Packet>> {
    let packet = (
        any::<u32>(),
        0_u64..1_000_000,
        prop::collection::vec(any::<u8>(), 0..200),
        0_u32..2000,
    );
    let packet = packet.prop_map(|(seconds, micros, bytes, beyond)| Packet {
        at: u64::from(seconds) * 1_000_000_000 + micros * 1_000,
        original: bytes.len() as u32 + beyond,
        bytes,
    });
    prop::collection::vec(packet, 0..40)
}

proptest! {
    #[test]
    fn generated_files_are_read_as_pcap_parser_reads_them(written in written(), is_big in any::<bool>()) {
        let order = if is_big { Order::Big } else { Order::Little };
        for (magic, nanos) in [(0xA1B2_C3D4, 1_000), (0xA1B2_3C4D, 1)] {
            let file = pcap(order, magic, &written);
            let oracle = parsed(LegacyPcapReader::new(1 << 16, Cursor::new(file.clone())).unwrap(), nanos);
            prop_assert_eq!(&read(file).packets, &oracle);
            prop_assert_eq!(&oracle, &written);
        }
        let options: [(u16, &[u8]); 2] = [(1, b"a comment"), (2, &[0; 4])];
        let mut file = PcapNg::new(order).interface(0, &[]).block(4, &[&[0; 8]]);
        for packet in &written {
            file = file.packet(0, packet.at / 1_000, packet, &options[..packet.bytes.len() % 3]);
        }
        let oracle = parsed(PcapNGReader::new(1 << 16, Cursor::new(file.bytes.clone())).unwrap(), 1_000);
        prop_assert_eq!(&read(file.bytes).packets, &oracle);
        prop_assert_eq!(&oracle, &written);
    }
}

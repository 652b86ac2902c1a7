//! Files of captures of every format and compression: whatever the bytes are, they are refused, or
//! give packets that are no longer than they say. A file that is cut in half gives the same packets
//! up to there.
#![no_main]

use std::io::Cursor;

use fullpipe_trace::{Compression, PacketFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = read(data);
    let part = read(&data[..data.len() / 2]);
    if let (Some((None, packets)), Some((_, part))) = (whole, part) {
        assert!(packets.starts_with(&part));
    }
});

/// Returns the file's compression, and time and length of its packets.
fn read(data: &[u8]) -> Option<(Option<Compression>, Vec<(u64, usize)>)> {
    let mut file = PacketFile::new(Cursor::new(data.to_vec()), "input").ok()?;
    let mut packets = Vec::new();
    while let Ok(Some(packet)) = file.next_packet() {
        assert!(packet.bytes.len() <= packet.original as usize);
        packets.push((packet.at.as_nanos(), packet.bytes.len()));
    }
    assert_eq!(file.file_notes().packets, packets.len() as u64);
    Some((file.file_notes().compression, packets))
}

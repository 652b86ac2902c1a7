//! What a device gives: whatever the bytes are, they are refused, or are packets that can be cut, edited and written.
#![no_main]

use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::Packet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for link in [0, 14] {
        let Ok(packet) = Packet::parse(data, link) else { continue };
        let (segments, bytes) = (packet.segments(), packet.ip_bytes());
        let mut pieces = vec![packet];
        if segments > SegCount::new(1) {
            let rest = pieces[0].split_off(SegCount::new(1));
            pieces.push(rest);
        }
        assert_eq!(pieces.iter().map(Packet::segments).fold(SegCount::ZERO, |sum, piece| sum + piece), segments);
        assert_eq!(pieces.iter().map(Packet::ip_bytes).fold(ByteCount::ZERO, |sum, piece| sum + piece), bytes);
        for mut piece in pieces {
            let _ = (piece.flow(), piece.mark_ce(), piece.too_big(ByteCount::new(1280)));
            let _ = (piece.count_hop(), piece.time_exceeded([198, 18, 1, 1].into()), piece.time_exceeded([0xFD; 16].into()));
            piece.strip_window_scale();
            piece.rewrite_window_scale(14);
            piece.strip_sack();
            piece.strip_timestamps();
            piece.clamp_mss(ByteCount::new(536));
            piece.clamp_window(ByteCount::new(1000));
            let mut front = Vec::new();
            let payload = piece.emit(&[0; 14], &mut front).len();
            assert!(front.len() + payload <= data.len() + 14);
            if piece.segments() == SegCount::new(1) {
                piece.corrupt(data.len() as u64);
            }
        }
    }
});

//! Frames of a device: whatever the bytes are, they are refused, or are packets that can be cut,
//! edited and written.
#![no_main]

use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::IpPacketTrain;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for link in [0, 14] {
        let Ok(packet) = IpPacketTrain::parse(data, link) else {
            continue;
        };
        let (segments, bytes) = (packet.segment_count(), packet.ip_bytes());
        let mut parts = vec![packet];
        if segments > SegCount::new(1) {
            let rest = parts[0].split_off(SegCount::new(1));
            parts.push(rest);
        }
        assert_eq!(
            parts
                .iter()
                .map(IpPacketTrain::segment_count)
                .fold(SegCount::ZERO, |sum, part| sum + part),
            segments
        );
        assert_eq!(
            parts
                .iter()
                .map(IpPacketTrain::ip_bytes)
                .fold(ByteCount::ZERO, |sum, part| sum + part),
            bytes
        );
        for mut part in parts {
            let _ = (
                part.flow_hash(),
                part.mark_ce(),
                part.too_big(ByteCount::new(1280)),
            );
            let _ = part.count_hop();
            let _ = (
                part.time_exceeded([198, 18, 1, 1].into()),
                part.time_exceeded([0xFD; 16].into()),
            );
            part.strip_window_scale();
            part.rewrite_window_scale(14);
            part.strip_sack();
            part.strip_timestamps();
            part.clamp_mss(ByteCount::new(536));
            part.clamp_window(ByteCount::new(1000));
            let mut front = Vec::new();
            let payload = part.emit(&[0; 14], &mut front).len();
            assert!(front.len() + payload <= data.len() + 14);
            if part.segment_count() == SegCount::new(1) {
                part.corrupt_bit(data.len() as u64);
            }
        }
    }
});

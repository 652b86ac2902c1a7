//! Everything that a relay reads of its peer once it is known, and of its user: targets, status,
//! blocks, lists. Whatever is read is written again, and no block becomes larger than a block may
//! be, in whatever parts it arrives, also of frames of zstd that were damaged or cut.
#![no_main]

use fullpipe_relay::{
    AllowedTargets, BLOCK_BYTES, BlockCodec, BlockReader, TargetRequest, TargetStatus,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = TargetRequest::from_bytes(bytes) {
        assert_eq!(TargetRequest::from_bytes(&request.to_bytes()), Ok(request));
    }
    if let Some(status) = bytes
        .first()
        .and_then(|byte| TargetStatus::from_byte(*byte).ok())
    {
        assert_eq!(status.to_byte(), bytes[0]);
    }
    read_blocks(bytes);
    if let Some((&[kind, high, low, change], payload)) = bytes.split_first_chunk() {
        read_blocks(&damaged_block(
            kind,
            u16::from_be_bytes([high, low]).into(),
            change,
            payload,
        ));
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = text.parse::<AllowedTargets>();
    }
});

/// Returns a block with `payload` compressed, of which one byte is another, or the rest is cut off.
fn damaged_block(kind: u8, at: usize, change: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = zstd::bulk::compress(payload, 1).expect("there is memory");
    let at = at % frame.len();
    if kind % 2 == 0 {
        frame[at] ^= change;
    } else {
        frame.truncate(at);
    }
    let [_, length @ ..] = (frame.len() as u32).to_be_bytes();
    [&[1], &length[..], &frame].concat()
}

/// Reads all bytes as blocks, at once and in parts, and compares.
fn read_blocks(bytes: &[u8]) {
    let mut codec = BlockCodec::new().expect("there is memory");
    let mut read = |part: usize| {
        let mut reader = BlockReader::default();
        let mut payload = Vec::new();
        for bytes in bytes.chunks(part.max(1)) {
            reader.push_bytes(bytes);
            loop {
                match reader.next_payload(&mut codec) {
                    Ok(Some(block)) => {
                        assert!((1..=BLOCK_BYTES).contains(&block.len()));
                        payload.extend_from_slice(block);
                    }
                    Ok(None) => break,
                    Err(error) => return (payload, Some(error)),
                }
            }
        }
        (payload, None)
    };
    assert_eq!(read(bytes.len()), read(bytes.len() / 3));
}

//! Captured packets of every link type: whatever the bytes are, they are read; and what is found
//! does not depend on bytes that a shorter snap length would have left out. A segment is the same
//! when it is redacted, but for addresses.
#![no_main]

use fullpipe_wire::{
    CapturedContent, CapturedSegment, LinkType, Pseudonyms, is_known, read_captured, redact_segment,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[link, original, cut], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    // The numbers beyond a byte that are known.
    let link = LinkType(if link == 255 { 276 } else { link.into() });
    let length = bytes.len() + usize::from(original) * 16;
    let whole = read_captured(link, bytes, length);
    if !is_known(link) {
        assert_eq!(whole, CapturedContent::Other);
    }
    if let CapturedContent::Unread(unread) = whole {
        assert!(unread.to_string().is_ascii());
    }
    let mut frame = Vec::new();
    let redacted = redact_segment(link, bytes, length, &mut Unchanged, &mut frame);
    match (
        whole,
        redacted.map(|length| read_captured(LinkType::ETHERNET, &frame, length)),
    ) {
        (CapturedContent::Tcp(whole), Some(CapturedContent::Tcp(again))) => {
            assert_eq!(
                CapturedSegment {
                    checksum: whole.checksum,
                    ..again
                },
                whole
            );
        }
        (CapturedContent::Tcp(_), _) | (_, Some(_)) => {
            panic!("a segment is redacted, and nothing else is")
        }
        _ => {}
    }
    let kept = &bytes[..bytes.len() - usize::from(cut).min(bytes.len())];
    match (whole, read_captured(link, kept, length)) {
        (_, CapturedContent::Cut) => {}
        (CapturedContent::Tcp(whole), CapturedContent::Tcp(mut part)) => {
            part.options = whole.options;
            assert_eq!(part, whole);
        }
        (whole, part) => assert_eq!(part, whole),
    }
});

/// Leaves addresses as they are.
struct Unchanged;

impl Pseudonyms for Unchanged {
    fn replace_address(&mut self, _: &mut [u8]) {}

    fn digest_bytes(&mut self, _: &[u8]) -> u16 {
        0
    }
}

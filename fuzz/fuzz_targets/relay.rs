//! Everything that a relay reads of its peer once it is known, and of its user: targets, status, lists. Whatever is
//! read is written again.
#![no_main]

use fullpipe_relay::{AllowedTargets, Status, TargetRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = TargetRequest::from_bytes(bytes) {
        assert_eq!(TargetRequest::from_bytes(&request.to_bytes()), Ok(request));
    }
    if let Some(status) = bytes.first().and_then(|byte| Status::from_byte(*byte).ok()) {
        assert_eq!(status.to_byte(), bytes[0]);
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = text.parse::<AllowedTargets>();
    }
});

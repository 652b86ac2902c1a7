//! Measurements of ndt7 and descriptions of a test of responsiveness, both in JSON.
#![no_main]

use fullpipe_http::{Ndt7Message, ResponsivenessTargets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(targets) = ResponsivenessTargets::from_json(bytes, "h") {
        assert!(targets.small.starts_with('/') && !targets.small.contains(['\r', '\n', ' ']));
    }
    if let Ok(message) = serde_json::from_slice::<Ndt7Message>(bytes) {
        let _ = message.tcp_info.map(|info| info.to_tcp_info());
        let text = serde_json::to_vec(&message).expect("it is written");
        assert_eq!(serde_json::from_slice::<Ndt7Message>(&text).ok(), Some(message));
    }
});

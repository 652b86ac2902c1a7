//! Heads and queries of requests for a speed test, and what a server answers to a client that asks
//! for WebSocket.
#![no_main]

use fullpipe_http::{RequestHead, SpeedTest, read_upgrade};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((head, length))) = RequestHead::parse(bytes) {
        assert!(length <= bytes.len() && head.path.starts_with('/'));
        assert!(!head.host.contains(['\r', '\n', '"', ' ']));
        let _ = SpeedTest::from_head(&head);
    }
    let _ = read_upgrade(bytes, "dGhlIHNhbXBsZSBub25jZQ==");
});

//! Frames of WebSocket, and an end of ndt7 that reads them. In whatever parts frames come, the same
//! is read of them, and little is kept.
#![no_main]

use fullpipe_http::{FrameEvent, FrameReader, Ndt7Connection, Ndt7Endpoint, WebSocketRole};
use fullpipe_units::Span;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for role in [WebSocketRole::Client, WebSocketRole::Server] {
        let whole = read_frames(role, bytes, bytes.len());
        assert_eq!(read_frames(role, bytes, 1), whole);
    }
    run_endpoint(bytes);
});

/// Returns what is read of `bytes` in parts of this length, with the parts of binary messages
/// joined, and whether they break the rules.
fn read_frames(role: WebSocketRole, bytes: &[u8], part: usize) -> (Vec<FrameEvent>, bool) {
    let (mut reader, mut events) = (FrameReader::new(role), Vec::new());
    for mut part in bytes.chunks(part.max(1)) {
        while !part.is_empty() {
            let Ok((taken, event)) = reader.take_part(part) else {
                return (events, true);
            };
            assert!((1..=part.len()).contains(&taken));
            part = &part[taken..];
            match (event, events.last_mut()) {
                (FrameEvent::Nothing | FrameEvent::Binary(0), _) => {}
                (FrameEvent::Binary(more), Some(FrameEvent::Binary(count))) => *count += more,
                (event, _) => events.push(event),
            }
        }
    }
    (events, false)
}

/// Lets the server's end of a test read `bytes`, and answer them.
fn run_endpoint(bytes: &[u8]) {
    let mut endpoint = Ndt7Endpoint::of_server(false, Ndt7Connection::default());
    let mut output = Vec::new();
    for (part, second) in bytes.chunks(97).zip(0..) {
        if endpoint.take_input(part).is_err() {
            return;
        }
        output.clear();
        endpoint.push_output(Span::from_secs(second), || None, &[0; 64], &mut output);
        assert!(output.len() < 10_000);
    }
}

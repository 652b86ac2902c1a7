//! A thousand clients of the web server by HTTP/1.1 at once, and by the WebSocket of ndt7, of which
//! most are hostile or slow.

use std::time::Duration;

use fullpipe_testkit::websocket::{
    BINARY, CLOSE, CONTINUATION, FIRST_BINARY, PING, TEXT, frame, ndt7_head, request_head,
};

use crate::web_crowd::{CLIENT_TIMEOUT, HonestRequest, HostileState, STALL_TIMEOUT, WebCrowd};

/// Bytes of a download and of an upload that are asked for.
const BYTES: usize = 1_000_000;

/// Time after which the server ends an upload of ndt7, and time for both ends to close.
const UPLOAD_TIME: Duration = Duration::from_secs(13);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns true if a whole head is there, and so many bytes after it.
fn has_body(answer: &[u8], bytes: usize) -> bool {
    let head = answer.windows(4).position(|part| part == b"\r\n\r\n");
    answer.starts_with(b"HTTP/1.1 200 ")
        && head.is_some_and(|head| answer.len() >= head + 4 + bytes)
}

fn http1_states() -> Vec<HostileState> {
    let state = HostileState::new;
    let half = b"GET /nq/small HTTP/1.1\r\nHost: h\r\nX: ".to_vec();
    let upload = request_head("POST /__up", "Content-Length: 1000000\r\n");
    let chunked = request_head("POST /__up", "Transfer-Encoding: chunked\r\n");
    let half_chunk = [&chunked[..], b"5\r\nab"].concat();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    let large = request_head("GET /__down?bytes=9999999999", "");
    vec![
        state("nothing", Vec::new(), CLIENT_TIMEOUT).without_tls(),
        state("half a handshake", hello.clone(), CLIENT_TIMEOUT).without_tls(),
        state("handshake in bytes", hello, CLIENT_TIMEOUT)
            .without_tls()
            .with_more(b"\0"),
        state("no request", Vec::new(), CLIENT_TIMEOUT),
        state("half a head", half.clone(), CLIENT_TIMEOUT),
        state("head in bytes", half, CLIENT_TIMEOUT).with_more(b"x"),
        state(
            "kept alive",
            request_head("GET /nq/small", ""),
            CLIENT_TIMEOUT,
        ),
        state("no body", upload.clone(), STALL_TIMEOUT),
        state("body in bytes", upload, STALL_TIMEOUT).with_more(b"x"),
        state("half a chunk", half_chunk, STALL_TIMEOUT),
        state("length without an end", chunked, STALL_TIMEOUT).with_more(b"0"),
        state("nothing is read", large, STALL_TIMEOUT).without_reading(),
    ]
}

#[test]
fn a_thousand_clients_of_http_1_of_which_most_are_hostile_or_slow() {
    let upload = format!("Content-Length: {BYTES}\r\n");
    let upload = [request_head("POST /__up", &upload), vec![b'x'; BYTES]].concat();
    let honest = |name, bytes, is_answered| HonestRequest {
        name,
        bytes,
        is_answered,
    };
    WebCrowd {
        speaks_http2: false,
        hostile: http1_states(),
        honest: vec![
            honest("others", request_head("GET /nq/small", ""), |answer| {
                has_body(answer, 1)
            }),
            honest(
                "others that download",
                request_head("GET /__down?bytes=1000000", ""),
                |answer| has_body(answer, BYTES),
            ),
            honest("others that upload", upload, |answer| has_body(answer, 0)),
        ],
        measures: None,
    }
    .assert_withstood();
}

fn websocket_states() -> Vec<HostileState> {
    let after = |head: Vec<u8>, frames: &[u8]| [&head[..], frames].concat();
    let state = |name, frames: &[u8], deadline| {
        HostileState::new(name, after(ndt7_head("upload"), frames), deadline)
    };
    let half_head = ndt7_head("upload")[..150].to_vec();
    let half_frame = &frame(BINARY, &[0; 1000])[..500];
    let first = frame(FIRST_BINARY, b"x");
    let download = |name, frames: &[u8], deadline| {
        HostileState::new(name, after(ndt7_head("download"), frames), deadline).without_reading()
    };
    let closed = UPLOAD_TIME + CLOSE_TIMEOUT;
    vec![
        HostileState::new("half an upgrade", half_head, CLIENT_TIMEOUT),
        state("silent", b"", STALL_TIMEOUT),
        state("half a frame", half_frame, STALL_TIMEOUT),
        state("no mask", b"\x82\x05hello", Duration::ZERO),
        state("text without JSON", &frame(TEXT, b"x"), Duration::ZERO),
        state("parts without an end", &first, STALL_TIMEOUT)
            .with_more(&frame(CONTINUATION, b"").repeat(100)),
        state("pings without an end", b"", STALL_TIMEOUT)
            .with_more(&frame(PING, &[7; 125]).repeat(100)),
        state(
            "stalls",
            &frame(BINARY, &vec![0; 50_000]).repeat(4),
            STALL_TIMEOUT,
        ),
        state("closes and stays", &frame(CLOSE, b""), CLOSE_TIMEOUT),
        state("does not answer the close", b"", closed).with_more(&frame(BINARY, &[0; 4000])),
        download("nothing is read", b"", STALL_TIMEOUT),
        download(
            "closes and reads nothing",
            &frame(CLOSE, b""),
            STALL_TIMEOUT,
        ),
    ]
}

/// Returns true if the server has sent its close frame, after the answer that accepts a WebSocket.
fn has_closed(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 101 ") && answer.ends_with(b"\x88\x02\x03\xe8")
}

#[test]
fn a_thousand_clients_of_ndt7_of_which_most_are_hostile_or_slow() {
    let frames = [frame(BINARY, &vec![0; 50_000]).repeat(4), frame(CLOSE, b"")].concat();
    WebCrowd {
        speaks_http2: false,
        hostile: websocket_states(),
        honest: vec![
            HonestRequest {
                name: "others that upload",
                bytes: [ndt7_head("upload"), frames].concat(),
                is_answered: has_closed,
            },
            HonestRequest {
                name: "others that download",
                bytes: ndt7_head("download"),
                is_answered: |answer| answer.len() >= BYTES / 10,
            },
        ],
        measures: Some(&["measure", "--no-store", "-t", "2"]),
    }
    .assert_withstood();
}

//! A thousand clients of the web server by HTTP/2 at once, of which most are hostile or slow.

use std::time::Duration;

use fullpipe_testkit::http2::{
    CONTINUATION, DATA, HEADERS, PING, PREFACE, RESET, SETTINGS, WHOLE, WINDOW_UPDATE, frame, get,
    request, request_fields,
};

use crate::web_crowd::{CLIENT_TIMEOUT, HonestRequest, HostileState, STALL_TIMEOUT, WebCrowd};

/// Time for both ends to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

fn hostile_states() -> Vec<HostileState> {
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let flood = |one: &dyn Fn(u32) -> Vec<u8>| {
        let frames = (0..3000).flat_map(one);
        greeting.iter().copied().chain(frames).collect::<Vec<u8>>()
    };
    let endless = |at| match at {
        0 => frame(HEADERS, 0, 1, &request_fields(2, "/nq/small")),
        _ => frame(CONTINUATION, 0, 1, &[0x82; 1000]),
    };
    let reset = |at| {
        let stream = 2 * at + 1;
        [get(stream, "/nq/small"), frame(RESET, 0, stream, &[0; 4])].concat()
    };
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let upload = request(1, 3, "/nq/upload", 0);
    let half = &frame(DATA, 0, 1, &[0; 1000])[..500];
    let overflow = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    let state = HostileState::new;
    let no_host = |at: u32| frame(HEADERS, WHOLE, 2 * at + 1, &[0x82, 0x87, 0x84]);
    vec![
        state("nothing", Vec::new(), CLIENT_TIMEOUT),
        state("half a preface", PREFACE[..11].to_vec(), CLIENT_TIMEOUT),
        state("no host", flood(&no_host), CLIENT_TIMEOUT),
        state("preface alone", PREFACE.to_vec(), CLIENT_TIMEOUT),
        state(
            "settings",
            flood(&|_| frame(SETTINGS, 0, 0, &[])),
            CLIENT_TIMEOUT,
        ),
        state(
            "pings",
            flood(&|_| frame(PING, 0, 0, &[0; 8])),
            CLIENT_TIMEOUT,
        ),
        state("fields without an end", flood(&endless), CLIENT_TIMEOUT),
        state("resets", flood(&reset), CLIENT_TIMEOUT),
        state(
            "no window",
            [PREFACE, &no_window, &get(1, "/nq/large")].concat(),
            STALL_TIMEOUT,
        ),
        state(
            "half a frame",
            [&greeting[..], &upload, half].concat(),
            STALL_TIMEOUT + CLOSE_TIMEOUT,
        ),
        state(
            "too large a window",
            [&greeting[..], &overflow].concat(),
            CLIENT_TIMEOUT,
        ),
    ]
}

/// Returns true if a whole frame of data is among these frames.
fn has_data(mut bytes: &[u8]) -> bool {
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if rest.len() < length {
            return false;
        }
        if head[3] == DATA {
            return true;
        }
        bytes = &rest[length..];
    }
    false
}

#[test]
fn a_thousand_clients_of_http_2_of_which_most_are_hostile_or_slow() {
    let request = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get(1, "/nq/small")].concat();
    WebCrowd {
        speaks_http2: true,
        hostile: hostile_states(),
        honest: vec![HonestRequest {
            name: "others",
            bytes: request,
            is_answered: has_data,
        }],
        measures: None,
    }
    .assert_withstood();
}

use fullpipe_http::{Answer, RequestHead};
use fullpipe_testkit::http2::{DATA, END, HEADERS, PING, PREFACE, RESET, frame, get, request};

use super::*;

fn server() -> Http2Server {
    let replies = |head: &RequestHead| {
        Ok(match head.path.as_str() {
            "/small" => Http2Reply::Answer(Answer::new(200, "text/plain", "small")),
            "/upload" => Http2Reply::Upload,
            _ => Http2Reply::Download(1 << 30),
        })
    };
    Http2Server::new(Bytes::from(vec![7; MAX_QUEUED]), Box::new(replies))
}

/// Returns a server that has read the preface and a frame of settings, and answered them.
fn greeted(settings: &[u8]) -> Http2Server {
    let mut server = server();
    server.take_input(PREFACE).unwrap();
    server.take_input(&frame(SETTINGS, 0, 0, settings)).unwrap();
    output(&mut server, 0);
    server
}

/// Returns what is to be sent at so many milliseconds.
fn output(server: &mut Http2Server, millis: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    server.push_output(Span::from_millis(millis), 16 << 10, &mut bytes);
    bytes
}

/// Returns the type, the stream and the payload of each frame that is whole.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        found.push((head[3], stream, payload.to_vec()));
        bytes = rest;
    }
    found
}

#[test]
fn windows_are_large_and_a_small_answer_overtakes_a_load() {
    let mut server = server();
    server.take_input(PREFACE).unwrap();
    server.take_input(&frame(SETTINGS, 0, 0, &[])).unwrap();
    let greeting = frames(&output(&mut server, 0));
    let (kind, _, settings) = &greeting[0];
    assert_eq!(*kind, SETTINGS);
    let window = settings.chunks(6).find(|setting| setting[..2] == [0, 4]);
    assert_eq!(window.unwrap()[2..], WINDOW.to_be_bytes());
    let grants = |frame: &&(u8, u32, Vec<u8>)| frame.0 == WINDOW_UPDATE && frame.1 == 0;
    assert!(greeting.iter().find(grants).is_some(), "{greeting:?}");

    server.take_input(&get(1, "/large")).unwrap();
    assert!(server.waiting_load().is_some());
    server.permit_loads("name");
    assert!(output(&mut server, 1).len() > 8000);
    server.take_input(&get(3, "/small")).unwrap();
    let next: Vec<u8> = (0..4).flat_map(|_| output(&mut server, 2)).collect();
    let at = next.windows(5).position(|bytes| bytes == b"small");
    assert!(at.is_some_and(|at| at < 34_000), "{at:?}");
    server
        .take_input(&frame(RESET, 0, 1, &[0, 0, 0, 8]))
        .unwrap();
    while !output(&mut server, 3).is_empty() {}
    assert!(server.has_ended());
}

#[test]
fn an_upload_is_counted_and_answered_at_its_end() {
    let mut server = greeted(&[]);
    server.take_input(&request(1, 3, "/upload", 0)).unwrap();
    server.permit_loads("name");
    let mut count = 0;
    for last in [0, 0, END] {
        count += server
            .take_input(&frame(DATA, last, 1, &[0; 1000]))
            .unwrap();
    }
    assert_eq!(count, 3000);
    let answered = frames(&output(&mut server, 1));
    assert!(
        answered
            .iter()
            .any(|(kind, stream, _)| (*kind, *stream) == (HEADERS, 1))
    );
    output(&mut server, 2);
    assert!(server.has_ended());
}

#[test]
fn a_window_that_is_never_granted_is_counted_as_a_wait() {
    // SETTINGS_INITIAL_WINDOW_SIZE of 1000 bytes.
    let mut server = greeted(&[0, 4, 0, 0, 3, 0xe8]);
    server.take_input(&get(1, "/large")).unwrap();
    server.permit_loads("name");
    for millis in 0..10 {
        output(&mut server, millis * 100);
    }
    let wait = server.wait_until(Span::from_secs(1));
    assert_eq!(wait.window, ByteCount::new(1000));
    assert!(
        (800.0..=1000.0).contains(&wait.time.as_millis_f64()),
        "{wait:?}"
    );
    assert!(!server.has_ended());
}

#[test]
fn a_window_is_what_the_client_offers_not_what_it_grants_again() {
    let grant = |stream, bytes: u32| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    // 256 KiB for a stream, and for all of them; and the windows that a client begins with.
    for (settings, of_all, window) in [
        (&[0, 4, 0, 4, 0, 0][..], 196_609, 262_144),
        (&[0, 4, 0, 4, 0, 0], 100_000, 165_535),
        (&[], 196_609, 65_535),
    ] {
        let mut server = greeted(settings);
        server.take_input(&grant(0, of_all)).unwrap();
        server.take_input(&get(1, "/large")).unwrap();
        server.permit_loads("name");
        // Half of the window is granted again before all of it is used up.
        output(&mut server, 0);
        for stream in [0, 1] {
            server.take_input(&grant(stream, 30_000)).unwrap();
        }
        while !output(&mut server, 0).is_empty() {}
        let wait = server.wait_until(Span::from_secs(1));
        assert_eq!(wait.window, ByteCount::new(window));
        assert_eq!(server.held_back.handed, window + 30_000);
    }
    assert_eq!(offered_window(&vec![0; MAX_FIRST_INPUT + 1]), None);
    assert_eq!(offered_window(b"PRI"), None);
    let cut = &frame(DATA, 0, 1, &[0; 9])[..12];
    assert_eq!(offered_window(&[PREFACE, cut].concat()), Some(65_535));
}

#[test]
fn floods_end_a_connection_or_take_no_memory() {
    let resets = |at: u32| {
        [
            get(2 * at + 1, "/small"),
            frame(RESET, 0, 2 * at + 1, &[0; 4]),
        ]
        .concat()
    };
    let endless = |at: u32| request(2 * at + 1, 2, &"/x".repeat(60), 0);
    let continued = |_| frame(9, 0, 1, &[0x82; 16_000]);
    let mut ended = 0;
    let floods: [&dyn Fn(u32) -> Vec<u8>; 6] = [
        &resets,
        &endless,
        &|at| {
            if at == 0 {
                frame(HEADERS, 0, 1, &[0x82])
            } else {
                continued(at)
            }
        },
        &|_| frame(SETTINGS, 0, 0, &[]),
        &|_| frame(PING, 0, 0, &[0; 8]),
        &|_| frame(DATA, 0, 0, &[0; 8]),
    ];
    for flood in floods {
        let mut server = greeted(&[]);
        // The answers to all of it are never read.
        let broke = (0..5000).any(|at| server.take_input(&flood(at)).is_err());
        ended += u32::from(broke || server.is_closed());
        assert!(output(&mut server, 1).len() <= 2 * MAX_QUEUED);
        assert!(server.waiting.len() <= MAX_STREAMS as usize);
    }
    assert!(ended >= 3, "{ended}");
}

#[test]
fn bytes_of_another_protocol_are_refused() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n00000000"[..],
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        assert!(server().take_input(bytes).is_err());
    }
    let mut half = server();
    half.take_input(&PREFACE[..9]).unwrap();
    assert!(!half.is_closed());
}

#[test]
fn a_client_that_takes_no_answer_is_not_read_without_end() {
    let mut server = greeted(&[]);
    // As where the socket takes nothing: no output is asked for.
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1000);
    let mut sent = 0;
    while server.has_room() && sent < 64 << 20 {
        server.take_input(&pings).unwrap();
        sent += pings.len();
    }
    assert!(sent < 64 << 20, "{sent}");
    for _ in 0..sent / (16 << 10) + 2 {
        output(&mut server, 0);
    }
    assert!(server.has_room());
}

#[test]
fn a_body_that_nobody_wants_is_read_to_its_end_if_it_is_short() {
    // No stream is reset before its answer was read, and none sends for ever.
    for (length, is_reset) in [(100, false), (100 << 10, true)] {
        let mut server = greeted(&[]);
        server.take_input(&request(1, 3, "/small", 0)).unwrap();
        let mut sent = output(&mut server, 0);
        for begin in (0..length).step_by(10 << 10) {
            let part = vec![0; (length - begin).min(10 << 10)];
            let end = if begin + part.len() == length { END } else { 0 };
            server.take_input(&frame(DATA, end, 1, &part)).unwrap();
            sent.extend(output(&mut server, 0));
        }
        let kinds: Vec<u8> = frames(&sent).iter().map(|(kind, ..)| *kind).collect();
        assert!(kinds.starts_with(&[HEADERS, DATA]), "{kinds:?}");
        assert_eq!(kinds.contains(&RESET), is_reset, "{length}: {kinds:?}");
    }
}

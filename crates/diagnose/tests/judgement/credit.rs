//! Windows above TCP: data waits for the small messages of the other end, and as much is on the way
//! in each round trip.

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    Basis, Cause, Evidence, Http2Wait, Limit, ProgramWindow, Request, Sample, SocketMemory,
    StatedLoad, TcpInfo, Verdict,
};
use fullpipe_units::{ByteCount, SegCount, Span};

use crate::builder::{self, Moment, moment, samples};

const RTT_MS: f64 = 55.0;

/// A sending program that waits for credit, and what is known of it.
#[derive(Clone, Copy)]
struct Waiting<'w> {
    credit: f64,
    port: u16,
    program: Option<&'w str>,
    /// Share of the credit that is on the way at a moment between 0 and 1.
    used: fn(f64) -> f64,
    /// How long ago the last data left and the last message came, in milliseconds, for a moment
    /// between 0 and 1.
    silence: fn(f64) -> [f64; 2],
    /// Messages of the other end in each round trip.
    messages: f64,
}

/// 65 535 B over 55 ms: 9.5 Mbit/s on a path that carries more. The last data left 4 ms after the
/// last message came.
const HTTP2: Waiting = Waiting {
    credit: 65_535.0,
    port: 443,
    program: Some("server"),
    used: |_| 1.0,
    silence: |phase| [40.0 * phase, 40.0 * phase + 4.0],
    messages: 2.0,
};

/// Returns a number between 0 and 1 that has no relation to the snapshots.
fn phase(t: f64) -> f64 {
    (t * 7.3).fract()
}

fn evidence(waiting: Waiting) -> Evidence {
    let mbps = waiting.credit * 8.0 / RTT_MS / 1e3;
    let all = samples(8.0, 1, |t| Moment {
        in_flight: waiting.credit * (waiting.used)(phase(t)),
        cwnd: waiting.credit * 4.0,
        window: waiting.credit * 5.0,
        sndbuf: waiting.credit * 8.0,
        unsent: 0.0,
        app_limited: true,
        ..moment(mbps, RTT_MS)
    });
    let mut evidence = builder::evidence("cubic", 55, all);
    for sample in &mut evidence.sender_samples {
        add_messages(sample, waiting);
    }
    evidence.sender_sockets[0].remote = format!("198.18.0.2:{}", waiting.port);
    evidence.program = waiting.program.map(str::to_owned);
    evidence.is_watched = true;
    evidence.receiver = None;
    evidence
}

fn add_messages(sample: &mut Sample, waiting: Waiting) {
    let t = sample.at.as_secs_f64();
    let [sent, received] = (waiting.silence)(phase(t));
    let messages = (t * 1e3 / RTT_MS * waiting.messages) as u64;
    sample.tcp.since_data_sent = Some(Span::from_secs_f64(sent / 1e3));
    sample.tcp.since_data_received = Some(Span::from_secs_f64(received / 1e3));
    sample.tcp.data_segs_in = Some(SegCount::new(messages));
    sample.tcp.bytes_received = Some(ByteCount::new(messages * 13));
}

#[test]
fn a_window_that_the_request_states_is_the_limit_if_the_rate_is_what_it_allows() {
    let judged = |bytes: u64, pause: u64| {
        let silent = Waiting {
            messages: 0.0,
            port: 5201,
            ..HTTP2
        };
        let own = Evidence {
            is_watched: false,
            program: None,
            ..evidence(silent)
        };
        let stated = StatedLoad {
            app_window: Some(ProgramWindow {
                bytes: ByteCount::new(bytes),
                request: ByteCount::ZERO,
            }),
            pause: Some(Span::from_millis(pause)),
            ..StatedLoad::default()
        };
        let request = own.request.clone().with_stated(stated);
        diagnose(&Evidence { request, ..own })
    };
    let verdict = judged(65_535, 0);
    assert_eq!(verdict.cause, Cause::Other, "{verdict:?}");
    assert_eq!(
        verdict.ceilings[&Limit::ApplicationWindow].bps() / 100_000,
        95
    );
    for (bytes, pause) in [(200_000, 0), (30_000, 0), (300_000, 200)] {
        assert_eq!(judged(bytes, pause).kind, Limit::SenderApplication);
    }
}

#[test]
fn a_wait_that_the_sender_counted_is_a_small_window_or_a_reader_that_does_not_use_it() {
    let judged = |seconds: u64, window: u64| {
        let wait = Http2Wait {
            time: Span::from_secs(seconds),
            window: ByteCount::new(window),
        };
        let silent = Waiting {
            messages: 0.0,
            port: 4443,
            ..HTTP2
        };
        diagnose(&Evidence {
            is_watched: false,
            program: None,
            http2_wait: Some(wait),
            ..evidence(silent)
        })
    };
    let verdict = judged(7, 65_535);
    assert_eq!(verdict.cause, Cause::Http2, "{verdict:?}");
    let ceiling = verdict.ceilings[&Limit::ApplicationWindow];
    assert_eq!(ceiling.bps() / 100_000, 95);
    let slow = judged(7, 10_000_000);
    assert_eq!(slow.cause, Cause::SlowReader, "{slow:?}");
    // Nothing is said of one that mostly did not wait.
    assert_eq!(judged(1, 65_535).kind, Limit::SenderApplication);
}

fn found(waiting: Waiting) -> Verdict {
    diagnose(&evidence(waiting))
}

#[test]
fn port_program_and_the_constant_tell_which_window_it_is() {
    let other = Waiting {
        credit: 100_000.0,
        port: 7001,
        ..HTTP2
    };
    for (waiting, name) in [
        (HTTP2, "application-window/http2"),
        (
            Waiting {
                port: 7001,
                ..HTTP2
            },
            "application-window/http2",
        ),
        (Waiting { port: 22, ..HTTP2 }, "application-window/sftp"),
        (Waiting { port: 445, ..HTTP2 }, "application-window/smb"),
        (other, "application-window/other"),
        (
            Waiting {
                program: Some("curl"),
                ..other
            },
            "application-window/http2",
        ),
        (
            Waiting {
                program: Some("sftp"),
                ..other
            },
            "application-window/sftp",
        ),
        (
            Waiting {
                program: None,
                ..other
            },
            "application-window/other",
        ),
    ] {
        let verdict = found(waiting);
        assert_eq!(verdict.name(), name, "{verdict:#?}");
        assert_eq!(verdict.basis, Basis::Sender);
        assert!(verdict.candidates.is_empty() && verdict.confidence.get() > 0.85);
    }
}

#[test]
fn the_sentence_has_the_constant_and_what_it_allows_and_the_remedies_name_settings() {
    let evidence = evidence(HTTP2);
    let verdict = diagnose(&evidence);
    for part in ["65 535 B", "55 ms", "9.532 Mbit/s", "WINDOW_UPDATE"] {
        assert!(
            verdict.sentence.contains(part),
            "{part}: {}",
            verdict.sentence
        );
    }
    let ceiling = verdict.ceilings[&Limit::ApplicationWindow].as_mbps();
    assert!((9.5..9.6).contains(&ceiling), "{ceiling}");
    let remedies = find_remedies(&evidence, &verdict);
    let ids: Vec<&str> = remedies.iter().map(|remedy| remedy.id.as_str()).collect();
    assert_eq!(
        ids,
        ["larger-http2-window", "http-1.1", "requests-side-by-side"]
    );
    assert!(remedies[0].why.contains("initial_stream_window_size"));
    let gain = remedies[0].predicted.unwrap().bits_per_second.as_mbps();
    assert!(gain > 9.6, "{gain}");
}

#[test]
fn credit_that_is_granted_by_the_half_is_known_by_the_silence() {
    // What is on the way differs by a few segments, and is half of the window.
    let halves = Waiting {
        credit: 34_000.0,
        used: |phase| 0.85 + 0.3 * phase * phase,
        messages: 1.0,
        ..HTTP2
    };
    assert_eq!(found(halves).name(), "application-window/http2");
}

#[test]
fn data_that_leaves_at_times_of_its_own_waits_for_no_window() {
    let swings = |phase: f64| 0.4 + 0.6 * phase;
    let cases: [(&str, Waiting); 4] = [
        (
            "nothing but acknowledgements comes",
            Waiting {
                messages: 0.0,
                ..HTTP2
            },
        ),
        (
            "messages come, and data leaves without them",
            Waiting {
                silence: |phase| [4.0 * phase, 5.0 + 50.0 * phase],
                used: swings,
                ..HTTP2
            },
        ),
        (
            "messages come, and no data leaves",
            Waiting {
                silence: |phase| [60.0 + 40.0 * phase, 5.0 + 40.0 * phase],
                used: swings,
                ..HTTP2
            },
        ),
        (
            "trains of different length, and no silence that shows what they wait for",
            Waiting {
                silence: |_| [0.0, 1.0],
                used: swings,
                ..HTTP2
            },
        ),
    ];
    for (why, waiting) in cases {
        let verdict = found(waiting);
        assert_eq!(
            (verdict.kind, verdict.cause),
            (Limit::SenderApplication, Cause::Idle),
            "{why}: {verdict:#?}"
        );
    }
}

#[test]
fn windows_of_tcp_and_loads_of_our_own_are_no_windows_above_it() {
    let mut full = evidence(HTTP2);
    for sample in &mut full.sender_samples {
        sample.tcp.snd_wnd = sample.outstanding_bytes();
        sample.tcp.rwnd_limited = sample.tcp.busy;
    }
    assert_eq!(diagnose(&full).kind, Limit::ReceiveWindow);
    let mut own = evidence(HTTP2);
    own.program = None;
    own.is_watched = false;
    assert_ne!(diagnose(&own).kind, Limit::ApplicationWindow);
}

/// Returns the same transfer as its receiver sees it, whose own messages left as long ago as
/// `silence` says, with the last data.
fn received(port: u16, silence: fn(f64) -> [f64; 2]) -> Evidence {
    let sending = evidence(HTTP2);
    let mut samples = sending.sender_samples.clone();
    for sample in &mut samples {
        let t = sample.at.as_secs_f64();
        let [data, message] = silence(phase(t));
        let messages = SegCount::new((t * 1e3 / RTT_MS * 2.0) as u64);
        let arrived = ByteCount::from_f64(t * 65_535.0 / RTT_MS * 1e3);
        sample.bytes = arrived;
        sample.memory = Some(SocketMemory {
            rcvbuf: ByteCount::new(2_000_000),
            ..SocketMemory::default()
        });
        sample.tcp = TcpInfo {
            rcv_mss: Some(ByteCount::new(builder::MSS)),
            rcv_rtt: Some(Span::from_secs_f64(RTT_MS / 1e3)),
            min_rtt: Some(Span::from_secs_f64(RTT_MS / 1e3)),
            rcv_wnd: Some(ByteCount::new(1_000_000)),
            window_scaling: Some(true),
            rcv_wscale: Some(10),
            timestamps: Some(true),
            bytes_received: Some(arrived),
            data_segs_in: Some(SegCount::new(arrived.get() / builder::MSS)),
            out_of_order_in: Some(SegCount::ZERO),
            since_data_received: Some(Span::from_secs_f64(data / 1e3)),
            since_data_sent: Some(Span::from_secs_f64(message / 1e3)),
            bytes_sent: Some(ByteCount::new(messages.get() * 13)),
            data_segs_out: Some(messages),
            ..TcpInfo::default()
        };
    }
    let mut socket = sending.sender_sockets[0].clone();
    socket.remote = format!("198.18.0.2:{port}");
    let ended_at = Span::from_secs(8);
    Evidence {
        steady: fullpipe_record::steady_of_receiver(&samples, None, ended_at),
        request: Request {
            direction: fullpipe_record::Direction::Download,
            ..sending.request.clone()
        },
        sender: None,
        sender_sockets: Vec::new(),
        sender_samples: Vec::new(),
        receiver: Some(builder::host()),
        receiver_sockets: vec![socket],
        receiver_samples: samples,
        ..sending
    }
}

#[test]
fn the_receiver_names_the_window_among_what_looks_alike() {
    let together = |phase: f64| [45.0 * phase, 45.0 * phase + 6.0];
    for (port, name) in [
        (443, "application-window/http2"),
        (22, "application-window/sftp"),
        (7001, "application-window/other"),
    ] {
        let verdict = diagnose(&received(port, together));
        assert_eq!(verdict.name(), name, "{verdict:#?}");
        let candidates: Vec<&str> = verdict.candidates.iter().map(|one| one.name()).collect();
        assert_eq!(
            candidates,
            [name, "send-buffer/tcp-wmem-max", "sender-application/idle"]
        );
        assert!(verdict.sentence.contains("64 KiB"), "{}", verdict.sentence);
    }
    // Messages that have nothing to do with the data.
    let apart = |phase: f64| [45.0 * phase, 90.0 * (1.0 - phase)];
    assert_ne!(
        diagnose(&received(443, apart)).kind,
        Limit::ApplicationWindow
    );
}

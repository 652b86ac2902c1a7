//! Verdicts from captures: what packets show of the sender, next to what is in flight.

#![expect(
    clippy::large_types_passed_by_value,
    reason = "evidence of a test is made once and judged once"
)]

use fullpipe_diagnose::diagnose;
use fullpipe_record::{
    At, Basis, BufferTriple, BurstRate, CaptureEvidence, Evidence, HostSettings, Limit,
    QuietRounds, Sample, Steady, TcpInfo, Verdict, WindowEdit,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::builder::{Moment, evidence, host, moment, samples};

/// A sender whose data follows its acknowledgements, in bursts that are three times as fast as the
/// whole.
fn seen(point: At, mbps: f64) -> CaptureEvidence {
    let burst = |factor: f64, share| {
        Some(BurstRate {
            rate: BitRate::from_bps_f64(mbps * factor * 1e6),
            share: Ratio::new(share),
        })
    };
    CaptureEvidence {
        ports: None,
        point: Some(point),
        only: None,
        by_echo: point != At::Sender,
        clocked: Some(Ratio::new(0.95)),
        idle: Ratio::ZERO,
        train: ByteCount::from_kib(10),
        arrivals: burst(3.0, 0.3),
        departures: burst(3.0, 0.3),
        sustained: Some(BitRate::from_bps_f64(mbps * 1e6)),
        faster: Some(Ratio::ZERO),
        acknowledgements: burst(3.0, 0.3),
        beyond: None,
        partial: Ratio::ZERO,
        quiet: None,
        lost_before: 0,
        closed: true,
        unseen: ByteCount::ZERO,
        probes: 0,
        answers: 0,
        full_segment_acknowledged: false,
        silent_after: Span::ZERO,
        largest_mss: Some(ByteCount::new(1460)),
        sender_opened: true,
        sender_offers_scale: Some(true),
        receiver_offers_scale: Some(true),
        window_edit: None,
        clamped_mss: None,
    }
}

/// Leaves of a sample what a capture gives: no congestion window, no buffer and no clock of the
/// kernel.
fn captured(sample: &mut Sample) {
    let tcp = sample.tcp.clone();
    sample.memory = None;
    sample.tcp = TcpInfo {
        congestion_state: tcp.congestion_state,
        timestamps: tcp.timestamps,
        sack: tcp.sack,
        window_scaling: tcp.window_scaling,
        snd_wscale: tcp.snd_wscale,
        snd_mss: tcp.snd_mss,
        unacked: tcp.unacked,
        rtt: tcp.rtt,
        min_rtt: tcp.min_rtt,
        total_retrans: tcp.total_retrans,
        data_segs_out: tcp.data_segs_out,
        bytes_sent: tcp.bytes_sent,
        bytes_retrans: tcp.bytes_retrans,
        bytes_acked: tcp.bytes_acked,
        snd_wnd: tcp.snd_wnd,
        ..TcpInfo::default()
    };
}

/// The evidence of a transfer over 50 ms, of which a capture shows `seen`.
fn capturing(at: impl Fn(f64) -> Moment, seen: CaptureEvidence) -> Evidence {
    let mut samples = samples(10.0, 1, at);
    samples.iter_mut().for_each(captured);
    let hosts = evidence("cubic", 50, samples);
    Evidence {
        request: fullpipe_record::Request {
            congestion: None,
            ..hosts.request.clone()
        },
        sender: None,
        receiver: None,
        sender_sockets: Vec::new(),
        capture: Some(seen),
        ..hosts
    }
}

/// The verdict on it.
fn verdict(at: impl Fn(f64) -> Moment, seen: CaptureEvidence) -> Verdict {
    let verdict = diagnose(&capturing(at, seen));
    assert_eq!(verdict.basis, Basis::Capture);
    assert!(
        !verdict.sentence.contains("unknown amount"),
        "{}",
        verdict.sentence
    );
    verdict
}

/// The same amount in flight throughout, with room in the window.
fn flat(_: f64) -> Moment {
    moment(20.0, 50.0)
}

/// The candidates of a verdict; the only one where it is sure.
fn candidates(verdict: &Verdict) -> Vec<&'static str> {
    if verdict.candidates.is_empty() {
        vec![verdict.name()]
    } else {
        verdict
            .candidates
            .iter()
            .map(|candidate| candidate.name())
            .collect()
    }
}

#[test]
fn what_follows_acknowledgements_and_never_grows_is_a_send_buffer() {
    let found = verdict(flat, seen(At::Sender, 20.0));
    assert_eq!(candidates(&found), ["send-buffer/so-sndbuf"]);
    // A window that a device lowers looks alike there; and where it cannot be known what data
    // follows, a pace.
    let of_afar = |clocked| {
        candidates_of(CaptureEvidence {
            clocked,
            ..seen(At::Receiver, 20.0)
        })
    };
    let follows = [
        "send-buffer/tcp-wmem-max",
        "receive-window/window-clamped",
        "sender-application/idle",
    ];
    assert_eq!(of_afar(Some(Ratio::new(0.95))), follows);
    let which = ["send-buffer/tcp-wmem-max"];
    assert_eq!(
        (
            of_afar(Some(Ratio::ZERO)).as_slice(),
            of_afar(None).as_slice()
        ),
        (&which[..], &which[..])
    );
    // A program that waits at times does not fill each packet.
    let ends = CaptureEvidence {
        clocked: None,
        partial: Ratio::new(0.002),
        ..seen(At::Receiver, 20.0)
    };
    assert_eq!(candidates_of(ends), ["send-buffer/tcp-wmem-max"]);
    // A pace cuts no packet short, and a window one in each round trip; 125 000 B in flight are 86
    // segments.
    let cut = CaptureEvidence {
        clocked: None,
        partial: Ratio::new(1.0 / 86.0),
        ..seen(At::Receiver, 20.0)
    };
    assert_eq!(candidates_of(cut), follows);
}

#[test]
fn a_window_of_which_nothing_shows_the_scale_is_never_full() {
    let mut evidence = capturing(flat, seen(At::Sender, 20.0));
    for sample in &mut evidence.sender_samples {
        (
            sample.tcp.window_scaling,
            sample.tcp.snd_wscale,
            sample.tcp.snd_wnd,
        ) = (None, None, None);
    }
    let found = diagnose(&evidence);
    assert_eq!(found.kind, Limit::SendBuffer);
    assert!(
        found
            .sentence
            .contains("allows more, whatever the scale of its windows, and"),
        "{}",
        found.sentence
    );
}

/// The candidates of a transfer with always as much in flight.
fn candidates_of(capture: CaptureEvidence) -> Vec<&'static str> {
    candidates(&verdict(flat, capture))
}

#[test]
fn a_pace_that_is_exceeded_at_times_is_that_of_a_sender_with_a_full_buffer() {
    let at_rate = |factor: f64, share| {
        Some(BurstRate {
            rate: BitRate::from_bps_f64(20e6 * factor),
            share: Ratio::new(share),
        })
    };
    let quiet = Some(QuietRounds {
        share: Ratio::ONE,
        of_most: Some(Ratio::ONE),
        ..level()
    });
    let (arrivals, departures, train) =
        (at_rate(0.97, 0.4), at_rate(0.97, 0.4), ByteCount::new(2896));
    let paced = CaptureEvidence {
        arrivals,
        departures,
        train,
        quiet,
        ..seen(At::Receiver, 20.0)
    };
    assert_eq!(verdict(flat, paced).kind, Limit::Pacing);
    let probes = CaptureEvidence {
        faster: Some(Ratio::new(0.12)),
        ..paced
    };
    assert_eq!(verdict(flat, probes).kind, Limit::SendBuffer);
    let faster = CaptureEvidence {
        departures: at_rate(1.2, 0.5),
        ..paced
    };
    assert_eq!(verdict(flat, faster).kind, Limit::SendBuffer);
}

#[test]
fn a_pace_of_bbr_hides_what_a_full_buffer_follows_and_a_queue_of_the_host_makes_it_swing() {
    let quiet = |level: f64| {
        Some(QuietRounds {
            share: Ratio::ONE,
            level: Ratio::new(level),
            ..self::level()
        })
    };
    let paced = CaptureEvidence {
        clocked: Some(Ratio::ZERO),
        quiet: quiet(1.0),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(flat, paced).name(), "send-buffer/tcp-wmem-max");
    assert_eq!(
        verdict(
            flat,
            CaptureEvidence {
                quiet: quiet(0.7),
                ..paced
            }
        )
        .name(),
        "capacity/host-queue"
    );
}

#[test]
fn a_writer_that_sleeps_fills_the_third_of_its_buffer_that_is_free_in_long_trains() {
    let at_rate = Some(BurstRate {
        rate: BitRate::from_mbps(19),
        share: Ratio::new(0.36),
    });
    let quiet = Some(QuietRounds {
        share: Ratio::ONE,
        level: Ratio::new(0.8),
        ..level()
    });
    let train = ByteCount::from_kib(80);
    let (arrivals, departures, clocked) = (at_rate, at_rate, Some(Ratio::new(0.85)));
    let sleeps = CaptureEvidence {
        arrivals,
        departures,
        clocked,
        quiet,
        train,
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(flat, sleeps).kind, Limit::SendBuffer);
    assert_eq!(
        verdict(
            flat,
            CaptureEvidence {
                train: ByteCount::new(2896),
                ..sleeps
            }
        )
        .kind,
        Limit::Pacing
    );
}

#[test]
fn a_buffer_never_shrinks() {
    let fuller = |share: f64| {
        Some(QuietRounds {
            share: Ratio::new(0.9),
            of_most: Some(Ratio::new(share)),
            ..level()
        })
    };
    // A program that was held back at first catches up with its rate.
    let at_rate = Some(BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    });
    let train = ByteCount::from_kib(37);
    let writes = CaptureEvidence {
        arrivals: at_rate,
        departures: at_rate,
        train,
        ..seen(At::Sender, 20.0)
    };
    let of = |share| {
        verdict(
            flat,
            CaptureEvidence {
                quiet: fuller(share),
                ..writes
            },
        )
        .name()
    };
    assert_eq!(
        (of(0.3), of(0.95)),
        (
            "sender-application/rate-limited",
            "send-buffer/tcp-wmem-max"
        )
    );
    // A congestion window that a loss lowered grows back.
    let lost = |t: f64| Moment {
        lost_per_second: if t < 0.5 { 20.0 } else { 0.0 },
        ..moment(20.0, 50.0)
    };
    for point in [At::Sender, At::Receiver] {
        let of = |share| {
            verdict(
                lost,
                CaptureEvidence {
                    quiet: fuller(share),
                    ..seen(point, 20.0)
                },
            )
        };
        assert_eq!(of(0.78).name(), "congestion-window/recovering", "{point:?}");
        assert_eq!(of(0.95).kind, Limit::SendBuffer, "{point:?}");
    }
}

#[test]
fn as_much_as_the_window_holds_under_a_smaller_scale_may_be_a_device_or_a_buffer() {
    let full = |segments: f64| {
        move |_: f64| Moment {
            in_flight: segments * 1448.0,
            window: 189.0 * 1024.0,
            ..moment(2.0, 50.0)
        }
    };
    let capture = CaptureEvidence {
        quiet: Some(level()),
        ..seen(At::Receiver, 2.0)
    };
    // 189 units of 64 B are 8.35 segments.
    let found = verdict(full(8.0), capture);
    let which = [
        "receive-window/window-scale-rewritten",
        "send-buffer/tcp-wmem-max",
        "sender-application/idle",
    ];
    assert_eq!(candidates(&found), which);
    assert!(
        found.sentence.contains("smaller scale"),
        "{}",
        found.sentence
    );
    assert_eq!(verdict(full(11.0), capture).kind, Limit::SendBuffer);
    // The handshake's window has no scale: more was sent into it.
    let quiet = Some(QuietRounds {
        of_most: Some(Ratio::new(0.3)),
        ..level()
    });
    assert_eq!(
        verdict(full(11.0), CaptureEvidence { quiet, ..capture }).kind,
        Limit::ReceiveWindow
    );
    let own_times = CaptureEvidence {
        clocked: Some(Ratio::ZERO),
        ..capture
    };
    assert_eq!(verdict(full(8.0), own_times).kind, Limit::SendBuffer);
}

#[test]
fn a_window_of_less_than_a_segment_holds_back_whatever_the_sender_has() {
    let silent = |window| {
        move |_: f64| Moment {
            in_flight: 0.0,
            window,
            ..moment(0.1, 50.0)
        }
    };
    let growing = QuietRounds {
        growing: Ratio::ONE,
        share: Ratio::ONE,
        ..level()
    };
    let capture = |point| CaptureEvidence {
        quiet: Some(growing),
        closed: false,
        ..seen(point, 0.1)
    };
    let unscaled = CaptureEvidence {
        receiver_offers_scale: Some(false),
        ..capture(At::Sender)
    };
    let found = verdict(silent(110.0), unscaled);
    assert_eq!(
        candidates(&found),
        [
            "receive-window/no-window-scaling",
            "receive-window/window-scale-stripped"
        ]
    );
    assert_eq!(
        verdict(silent(80_000.0), unscaled).name(),
        "congestion-window/ramp-up"
    );

    // Its sender asks for it, though the receiver allows more.
    let stops = |probes, point, has_handshake: bool| {
        let mut evidence = capturing(
            silent(80_000.0),
            CaptureEvidence {
                probes,
                ..capture(point)
            },
        );
        for sample in &mut evidence.sender_samples {
            let bytes = ByteCount::new(65_160).min(sample.bytes * 100);
            (sample.bytes, sample.tcp.bytes_acked) = (bytes, Some(bytes));
            sample.tcp.bytes_sent = Some(bytes);
            sample.tcp.window_scaling = Some(true).filter(|_| has_handshake);
        }
        diagnose(&evidence)
    };
    let found = stops(4, At::Receiver, true);
    assert_eq!(
        (found.kind, stops(0, At::Receiver, true).kind),
        (Limit::ReceiveWindow, Limit::CongestionWindow)
    );
    assert!(
        found.sentence.contains("asks for the window"),
        "{}",
        found.sentence
    );
    // What the sender takes the window for is known where it was captured, if the handshake was.
    assert_eq!(stops(4, At::Sender, true).kind, Limit::CongestionWindow);
    for point in [At::Sender, At::Receiver] {
        let found = stops(4, point, false);
        let which = [
            "receive-window/window-scale-rewritten",
            "receive-window/window-scale-stripped",
            "sender-application/idle",
        ];
        assert_eq!(candidates(&found), which);
        assert!(
            found.sentence.contains("which the handshake would show"),
            "{}",
            found.sentence
        );
    }
}

#[test]
fn trains_at_the_rate_of_the_whole_are_a_pace_or_a_program_with_parts_of_segments() {
    let even = BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    };
    // The kernel makes trains of a pace no longer than it sends in a millisecond.
    let paced = CaptureEvidence {
        departures: Some(even),
        arrivals: Some(even),
        train: ByteCount::new(2500),
        ..seen(At::Sender, 20.0)
    };
    let found = verdict(
        flat,
        CaptureEvidence {
            clocked: Some(Ratio::ZERO),
            ..paced
        },
    );
    assert_eq!(candidates(&found), ["pacing/max-pacing-rate"]);
    let in_writes = CaptureEvidence {
        clocked: Some(Ratio::ZERO),
        train: ByteCount::from_kib(10),
        ..paced
    };
    assert_eq!(
        candidates(&verdict(flat, in_writes)),
        [
            "sender-application/rate-limited",
            "pacing/max-pacing-rate",
            "pacing/qdisc"
        ]
    );
    let found = verdict(
        flat,
        CaptureEvidence {
            partial: Ratio::new(0.5),
            ..paced
        },
    );
    assert_eq!(found.name(), "sender-application/rate-limited");
}

#[test]
fn an_even_sender_with_more_in_flight_at_times_may_catch_up_or_have_a_pace() {
    let even = BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    };
    let quiet = Some(QuietRounds {
        of_most: Some(Ratio::new(0.5)),
        ..level()
    });
    for point in [At::Sender, At::Receiver] {
        let capture = CaptureEvidence {
            departures: Some(even),
            arrivals: Some(even),
            clocked: Some(Ratio::ZERO),
            quiet,
            ..seen(point, 20.0)
        };
        let found = verdict(flat, capture);
        let which = [
            "sender-application/rate-limited",
            "pacing/max-pacing-rate",
            "pacing/qdisc",
        ];
        assert_eq!(candidates(&found), which, "{point:?}");
        assert!(
            found.sentence.contains("or where a round trip took longer"),
            "{}",
            found.sentence
        );
        let in_part = CaptureEvidence {
            partial: Ratio::new(0.5),
            ..capture
        };
        let program = ["sender-application/rate-limited"];
        assert_eq!(candidates(&verdict(flat, in_part)), program, "{point:?}");
        // No pace and no bucket of a device exceeds its rate for long.
        let was_faster = CaptureEvidence {
            sustained: Some(BitRate::from_mbps(40)),
            ..capture
        };
        assert_eq!(candidates(&verdict(flat, was_faster)), program, "{point:?}");
    }
}

#[test]
fn one_segment_more_in_flight_at_times_is_none_of_a_program_that_catches_up() {
    let even = BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    };
    let quiet = Some(QuietRounds {
        of_most: Some(Ratio::new(11.0 / 12.0)),
        ..level()
    });
    let named = |rtt_ms: f64| {
        let capture = CaptureEvidence {
            departures: Some(even),
            arrivals: Some(even),
            clocked: Some(Ratio::ZERO),
            train: ByteCount::new(2500),
            quiet,
            ..seen(At::Sender, 20.0)
        };
        verdict(|_| moment(20.0, rtt_ms), capture).name().to_owned()
    };
    assert_eq!(named(7.0), "pacing/max-pacing-rate", "12 segments");
    assert_eq!(
        named(50.0),
        "sender-application/rate-limited",
        "86 segments"
    );
}

#[test]
fn trains_of_three_segments_each_1024th_of_a_second_are_of_a_pace() {
    let spread = |share| BurstRate {
        rate: BitRate::from_mbps(90),
        share: Ratio::new(share),
    };
    // 1/1024 s brings 3.96 segments, a millisecond 4.05.
    let paced = CaptureEvidence {
        arrivals: Some(spread(0.667)),
        departures: Some(spread(0.667)),
        acknowledgements: None,
        ..seen(At::Receiver, 46.97)
    };
    let at = |_| moment(46.97, 50.0);
    assert_eq!(verdict(at, paced).name(), "pacing/max-pacing-rate");
    let of_four = CaptureEvidence {
        arrivals: Some(spread(0.75)),
        ..paced
    };
    assert_ne!(verdict(at, of_four).name(), "pacing/max-pacing-rate");
}

#[test]
fn what_follows_acknowledgements_is_a_buffer_though_it_held_more_before() {
    let fuller = QuietRounds {
        share: Ratio::ZERO,
        of_most: Some(Ratio::new(0.7)),
        ..level()
    };
    let at = |clocked| {
        let clocked = Some(Ratio::new(clocked));
        verdict(
            flat,
            CaptureEvidence {
                quiet: Some(fuller),
                clocked,
                ..seen(At::Sender, 20.0)
            },
        )
        .kind
    };
    assert_eq!(
        (at(0.85), at(0.3)),
        (Limit::SendBuffer, Limit::SenderApplication)
    );
}

#[test]
fn what_comes_unevenly_and_follows_no_acknowledgements_is_of_a_slow_sender() {
    let swings = |t: f64| Moment {
        in_flight: 30_000.0 + 90_000.0 * (t * 7.3).fract(),
        ..moment(20.0, 50.0)
    };
    let capture = CaptureEvidence {
        clocked: Some(Ratio::ZERO),
        ..seen(At::Receiver, 20.0)
    };
    let program = ["sender-application/idle"];
    assert_eq!(candidates(&verdict(swings, capture)), program);
    let follows = CaptureEvidence {
        clocked: Some(Ratio::new(0.5)),
        ..capture
    };
    assert_eq!(verdict(swings, follows).kind, Limit::SendBuffer);
}

#[test]
fn a_packet_cut_short_in_each_round_trip_ends_a_smaller_window() {
    let cut = |segments: f64, point| CaptureEvidence {
        partial: Ratio::new(1.0 / segments),
        quiet: Some(level()),
        ..seen(point, 20.0)
    };
    // 125 000 B in flight are 86 segments.
    let found = verdict(flat, cut(86.0, At::Receiver));
    let of_device = [
        "receive-window/window-clamped",
        "receive-window/window-scale-rewritten",
        "sender-application/idle",
    ];
    assert_eq!(candidates(&found), of_device);
    assert!(
        found.sentence.contains("smaller window"),
        "{}",
        found.sentence
    );
    assert_eq!(
        verdict(flat, cut(400.0, At::Receiver)).kind,
        Limit::SendBuffer
    );
    // There the windows that arrive are known.
    assert_eq!(verdict(flat, cut(86.0, At::Sender)).kind, Limit::SendBuffer);
    let own_times = CaptureEvidence {
        clocked: Some(Ratio::ZERO),
        ..cut(86.0, At::Receiver)
    };
    assert_eq!(verdict(flat, own_times).name(), "sender-application/idle");
}

#[test]
fn packets_that_end_with_the_writes_of_a_program_are_of_one_that_has_no_more() {
    let paced = Some(BurstRate {
        rate: BitRate::from_mbps(60),
        share: Ratio::new(0.6),
    });
    let own_times = CaptureEvidence {
        clocked: Some(Ratio::new(0.05)),
        departures: paced,
        train: ByteCount::new(2896),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(flat, own_times).name(), "send-buffer/tcp-wmem-max");
    let found = verdict(
        flat,
        CaptureEvidence {
            partial: Ratio::new(0.02),
            ..own_times
        },
    );
    assert_eq!(candidates(&found), ["sender-application/idle"]);
}

#[test]
fn little_in_flight_while_nothing_is_lost_is_a_slow_program() {
    let found = verdict(
        flat,
        CaptureEvidence {
            idle: Ratio::new(0.6),
            ..seen(At::Receiver, 20.0)
        },
    );
    assert_eq!(found.name(), "sender-application/idle");
    let own_times = CaptureEvidence {
        clocked: Some(Ratio::new(0.05)),
        idle: Ratio::new(0.3),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(flat, own_times).name(), "sender-application/idle");
    let never_pauses = CaptureEvidence {
        idle: Ratio::new(0.05),
        ..own_times
    };
    assert_eq!(
        candidates(&verdict(flat, never_pauses)),
        [
            "capacity/host-queue",
            "sender-application/idle",
            "pacing/qdisc"
        ]
    );
}

#[test]
fn a_receiver_that_answers_in_each_round_trip_may_grant_a_window_of_its_own() {
    for point in [At::Sender, At::Receiver] {
        // Ten seconds are two hundred round trips.
        let answers = |answers: u64| {
            verdict(
                flat,
                CaptureEvidence {
                    answers,
                    ..seen(point, 20.0)
                },
            )
        };
        let by_port = |ports| {
            let answers = 250;
            let seen = seen(point, 20.0);
            verdict(
                flat,
                CaptureEvidence {
                    answers,
                    ports,
                    ..seen
                },
            )
        };
        for (port, name) in [
            (443, "application-window/http2"),
            (22, "application-window/sftp"),
            (445, "application-window/smb"),
            (7001, "application-window/other"),
        ] {
            let found = by_port(Some([40_000, port]));
            assert_eq!(found.name(), name);
            assert_eq!(
                candidates(&found)[1..],
                ["send-buffer/so-sndbuf", "sender-application/idle"]
            );
        }
        let found = answers(250);
        assert_eq!(found.name(), "application-window/ssh-channel");
        assert!(candidates(&found).contains(&"send-buffer/so-sndbuf"));
        assert_eq!(answers(150).kind, Limit::SendBuffer);
    }
}

#[test]
fn small_segments_of_a_full_link_may_be_the_work_of_a_device() {
    let queued = |_: f64| moment(20.0, 90.0);
    let of = |largest: u64, point| {
        let largest_mss = Some(ByteCount::new(largest));
        let mut evidence = capturing(
            queued,
            CaptureEvidence {
                largest_mss,
                ..seen(point, 20.0 / 3.0)
            },
        );
        evidence
            .sender_samples
            .iter_mut()
            .for_each(|sample| sample.tcp.snd_mss = Some(ByteCount::new(240)));
        diagnose(&Evidence {
            bandwidth: Some(BitRate::from_mbps(27)),
            ..evidence
        })
    };
    for point in [At::Sender, At::Receiver] {
        assert_eq!(candidates(&of(1460, point)), ["mtu/mss-clamped"]);
        assert_eq!(
            of(252, point).name(),
            "capacity/link",
            "no host offers more"
        );
    }
    // There a device may have lowered what both offer.
    assert_eq!(candidates(&of(252, At::Path)), ["mtu/mss-clamped"]);
}

#[test]
fn small_segments_are_named_beside_a_pace_and_shown_beside_a_buffer() {
    let sized = |mss: u64, seen| {
        let mut evidence = capturing(flat, seen);
        for sample in &mut evidence.sender_samples {
            sample.tcp.snd_mss = Some(ByteCount::new(mss));
        }
        diagnose(&evidence)
    };
    let at_rate = Some(BurstRate {
        rate: BitRate::from_bps_f64(20e6 * 0.97),
        share: Ratio::new(0.4),
    });
    let paced = CaptureEvidence {
        departures: at_rate,
        arrivals: at_rate,
        train: ByteCount::new(240),
        quiet: Some(QuietRounds {
            share: Ratio::ONE,
            of_most: Some(Ratio::ONE),
            ..level()
        }),
        ..seen(At::Receiver, 20.0)
    };
    assert_eq!(sized(1448, paced).kind, Limit::Pacing);
    let small = sized(240, paced);
    assert_eq!(small.name(), "mtu/mss-clamped", "{small:#?}");
    assert!(candidates(&small).contains(&"pacing/max-pacing-rate"));
    let held = sized(240, seen(At::Sender, 20.0));
    assert_eq!(held.kind, Limit::SendBuffer, "{held:#?}");
    let row = held.evidence.get("data of small segments");
    assert!(row.is_some_and(|row| row.starts_with("240 B")), "{row:?}");
}

#[test]
fn a_window_that_regrows_at_a_queue_that_never_empties_shares_the_link() {
    let regrows = |t: f64| {
        let lost_per_second = if t < 1.0 { 40.0 } else { 0.0 };
        Moment {
            in_flight: 40_000.0 + 8_000.0 * t,
            lost_per_second,
            ..moment(5.0 + t, 64.0)
        }
    };
    let stands = QuietRounds {
        free: Ratio::new(0.1),
        level: Ratio::new(0.5),
        ..level()
    };
    let at = |quiet| {
        verdict(
            regrows,
            CaptureEvidence {
                quiet: Some(quiet),
                ..seen(At::Sender, 20.0)
            },
        )
    };
    assert_eq!(at(stands).name(), "capacity/shared");
    assert_eq!(
        at(QuietRounds {
            free: Ratio::ONE,
            ..stands
        })
        .name(),
        "congestion-window/recovering"
    );
}

#[test]
fn losses_that_a_capture_at_the_sender_never_saw_leave_are_of_its_own_queue() {
    let lossy = |t: f64| {
        let again = (t * 2.0).fract() < 0.1;
        Moment {
            lost_per_second: if again { 40.0 } else { 0.0 },
            recovering: again,
            ..moment(20.0 - t.fract() * 8.0, 50.0)
        }
    };
    let own = CaptureEvidence {
        lost_before: 40,
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(lossy, own).name(), "capacity/host-queue");
    let elsewhere = CaptureEvidence {
        lost_before: 40,
        ..seen(At::Receiver, 20.0)
    };
    assert_ne!(verdict(lossy, elsewhere).name(), "capacity/host-queue");
}

#[test]
fn a_full_window_is_named_with_what_may_have_made_it_so() {
    let full = |t: f64| {
        let grown = if t < 0.2 { 0.5 } else { 1.0 };
        let size = 125_000.0 * grown;
        Moment {
            in_flight: size,
            window: size,
            ..moment(20.0 * grown, 50.0)
        }
    };
    let found = verdict(full, seen(At::Receiver, 20.0));
    assert_eq!(candidates(&found), ["receive-window/tcp-rmem-max"]);
    let fixed = |_: f64| Moment {
        in_flight: 125_000.0,
        window: 125_000.0,
        ..moment(20.0, 50.0)
    };
    let found = verdict(fixed, seen(At::Sender, 20.0));
    assert_eq!(candidates(&found), ["receive-window/so-rcvbuf"]);
    // A buffer does not shrink, and what a program leaves unread takes room in it.
    let fallen = |t: f64| Moment {
        window: if t < 1.0 { 400_000.0 } else { 125_000.0 },
        ..fixed(t)
    };
    assert_eq!(
        candidates(&verdict(fallen, seen(At::Sender, 20.0))),
        ["receiver-application/slow-reader"]
    );
    // Without the handshake a buffer fills it by chance, under some scale.
    for (at, first) in [
        (&full as &dyn Fn(f64) -> Moment, "tcp-rmem-max"),
        (&fixed, "so-rcvbuf"),
    ] {
        let mut evidence = capturing(at, seen(At::Sender, 20.0));
        evidence
            .sender_samples
            .iter_mut()
            .for_each(|sample| sample.tcp.window_scaling = None);
        let first = format!("receive-window/{first}");
        assert_eq!(
            candidates(&diagnose(&evidence)),
            [&first, "send-buffer/tcp-wmem-max", "pacing/qdisc"]
        );
    }
    let unscaled = CaptureEvidence {
        receiver_offers_scale: Some(false),
        ..seen(At::Sender, 20.0)
    };
    let found = verdict(fixed, unscaled);
    assert_eq!(
        candidates(&found),
        [
            "receive-window/no-window-scaling",
            "receive-window/window-scale-stripped"
        ]
    );
    let compared = |edit| {
        verdict(
            fixed,
            CaptureEvidence {
                window_edit: Some(edit),
                ..unscaled
            },
        )
    };
    for (edit, name) in [
        (WindowEdit::Nothing, "receive-window/no-window-scaling"),
        (
            WindowEdit::ScaleStripped,
            "receive-window/window-scale-stripped",
        ),
        (
            WindowEdit::ScaleRewritten,
            "receive-window/window-scale-rewritten",
        ),
        (WindowEdit::Lowered, "receive-window/window-clamped"),
    ] {
        assert_eq!(
            (compared(edit).name(), compared(edit).candidates.len()),
            (name, 0)
        );
    }
}

#[test]
fn a_window_without_a_scale_is_that_of_the_host_whose_syn_was_captured_there() {
    let fixed = |_: f64| Moment {
        in_flight: 125_000.0,
        window: 125_000.0,
        ..moment(20.0, 50.0)
    };
    let found = |point, sender_opened, offers: [bool; 2]| {
        let [sender_offers_scale, receiver_offers_scale] = offers.map(Some);
        let capture = CaptureEvidence {
            sender_opened,
            sender_offers_scale,
            receiver_offers_scale,
            ..seen(point, 20.0)
        };
        candidates(&verdict(fixed, capture)).len()
    };
    // An answer to a SYN without the offer has none either.
    assert_eq!(
        (
            found(At::Sender, true, [false; 2]),
            found(At::Receiver, true, [false; 2])
        ),
        (1, 1)
    );
    assert_eq!(
        (
            found(At::Sender, false, [false; 2]),
            found(At::Receiver, false, [false; 2])
        ),
        (1, 1)
    );
    assert_eq!(
        (
            found(At::Sender, true, [true, false]),
            found(At::Receiver, true, [true, false])
        ),
        (2, 1)
    );
}

#[test]
fn the_settings_of_the_receiver_distinguish_a_fixed_buffer_and_a_device_on_the_way() {
    let fixed = |_: f64| Moment {
        in_flight: 125_000.0,
        window: 125_000.0,
        ..moment(20.0, 50.0)
    };
    let of = |capture: CaptureEvidence, max: ByteCount, window_scaling: bool| {
        let defaults = host();
        let tcp_rmem = BufferTriple {
            max,
            ..defaults.tcp_rmem
        };
        let receiver = HostSettings {
            tcp_rmem,
            window_scaling,
            ..defaults
        };
        let found = diagnose(&Evidence {
            receiver: Some(receiver),
            ..capturing(fixed, capture)
        });
        assert_eq!(found.candidates, [], "{}", found.name());
        found.name()
    };
    let scaled = seen(At::Sender, 20.0);
    assert_eq!(
        of(scaled, ByteCount::from_mib(6), true),
        "receive-window/so-rcvbuf"
    );
    assert_eq!(
        of(scaled, ByteCount::new(250_000), true),
        "receive-window/tcp-rmem-max"
    );
    let unscaled = CaptureEvidence {
        receiver_offers_scale: Some(false),
        ..scaled
    };
    assert_eq!(
        of(unscaled, ByteCount::from_mib(6), true),
        "receive-window/window-scale-stripped"
    );
    assert_eq!(
        of(unscaled, ByteCount::from_mib(6), false),
        "receive-window/no-window-scaling"
    );
}

#[test]
fn from_the_receiver_a_full_link_may_be_a_shaper_at_the_sender() {
    let queued = |_: f64| moment(20.0, 90.0);
    // The link gives its rate to all that passes it.
    let at = |point| seen(point, 20.0 / 3.0);
    // Of a connection hardly anything waits for a shaper of its own host.
    let waits = |_: f64| moment(20.0, 70.0);
    assert_eq!(
        candidates(&verdict(waits, at(At::Receiver))),
        [
            "capacity/link",
            "pacing/qdisc",
            "sender-application/rate-limited"
        ]
    );
    for point in [At::Receiver, At::Sender] {
        assert_eq!(
            candidates(&verdict(queued, at(point))),
            ["capacity/link"],
            "{point:?}"
        );
    }
}

#[test]
fn hardly_any_data_is_a_black_hole_or_a_silent_program() {
    let nothing = |_: f64| Moment {
        in_flight: 0.0,
        ..moment(0.001, 50.0)
    };
    let open = CaptureEvidence {
        closed: false,
        ..seen(At::Receiver, 0.001)
    };
    assert_eq!(
        candidates(&verdict(nothing, open)),
        ["sender-application/idle", "mtu/black-hole"]
    );
    // There nothing of the other end's data came.
    let found = verdict(
        nothing,
        CaptureEvidence {
            point: Some(At::Sender),
            ..open
        },
    );
    assert_eq!(
        candidates(&found),
        ["sender-application/idle", "mtu/black-hole"]
    );
    assert!(
        found.sentence.contains("of the other end"),
        "{}",
        found.sentence
    );
}

#[test]
fn data_that_passed_here_and_no_acknowledgement_is_no_black_hole_before_this_place() {
    let open = CaptureEvidence {
        closed: false,
        ..seen(At::Receiver, 20.0)
    };
    let mut evidence = capturing(|_| moment(0.001, 50.0), open);
    assert_eq!(
        candidates(&diagnose(&evidence)),
        ["sender-application/idle", "mtu/black-hole"]
    );
    for sample in &mut evidence.sender_samples {
        sample.tcp.bytes_sent = Some(ByteCount::from_mib(16));
    }
    let passed = diagnose(&evidence);
    assert_ne!(passed.name(), "mtu/black-hole");
    assert!(
        !candidates(&passed).contains(&"mtu/black-hole"),
        "{passed:?}"
    );
}

#[test]
fn one_direction_of_packets_shows_no_limit_but_the_stated_bandwidth() {
    for (end, names) in [
        (At::Sender, "20 Mbit/s"),
        (At::Receiver, "none of the data"),
    ] {
        let capture = CaptureEvidence {
            only: Some(end),
            closed: false,
            ..seen(At::Receiver, 20.0)
        };
        let mut evidence = capturing(flat, capture);
        for sample in &mut evidence.sender_samples {
            (
                sample.tcp.unacked,
                sample.tcp.bytes_acked,
                sample.tcp.snd_wnd,
            ) = (None, None, None);
        }
        if end == At::Receiver {
            evidence.sender_samples.clear();
        }
        let found = diagnose(&evidence);
        assert_eq!(
            (found.kind, found.candidates.len(), found.others.len()),
            (Limit::Unknown, 0, 0)
        );
        assert!(
            found.sentence.contains(names) && found.sentence.contains("other direction"),
            "{}",
            found.sentence
        );
        assert!(
            found.evidence["missing"].contains("other direction"),
            "{:?}",
            found.evidence
        );
        if end == At::Sender {
            let stated = Evidence {
                bandwidth: Some(BitRate::from_mbps(21)),
                ..evidence
            };
            assert_eq!(diagnose(&stated).name(), "capacity/link");
        }
    }
}

#[test]
fn a_sender_that_repeats_its_first_window_without_an_answer_finds_a_black_hole() {
    let sent = |bytes: u64, timeouts: u64| {
        let capture = CaptureEvidence {
            only: Some(At::Sender),
            closed: false,
            ..seen(At::Sender, 20.0)
        };
        let mut evidence = capturing(flat, capture);
        for sample in &mut evidence.sender_samples {
            sample.bytes = ByteCount::new(bytes).min(sample.bytes * 100);
            let tcp = &mut sample.tcp;
            (tcp.unacked, tcp.bytes_acked, tcp.snd_wnd, tcp.bytes_sent) = (None, None, None, None);
            tcp.timeouts_in_a_row = Some(SegCount::new(timeouts));
        }
        diagnose(&evidence)
    };
    let found = sent(14_480, 4);
    assert_eq!(found.name(), "mtu/black-hole");
    assert!(
        found.sentence.contains("14.14 KiB again and again"),
        "{}",
        found.sentence
    );
    // What is more than any first window has answers elsewhere.
    assert_eq!(
        (sent(14_480, 0).kind, sent(1_000_000, 4).kind),
        (Limit::Unknown, Limit::Unknown)
    );
}

#[test]
fn data_that_comes_evenly_over_a_path_with_room_is_not_held_back_by_it() {
    let even = BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    };
    let capture = CaptureEvidence {
        departures: Some(even),
        clocked: None,
        ..seen(At::Receiver, 20.0)
    };
    let mut evidence = capturing(flat, capture);
    evidence
        .sender_samples
        .iter_mut()
        .for_each(|sample| sample.tcp.rtt = None);
    assert_eq!(
        candidates(&diagnose(&evidence)),
        [
            "capacity/link",
            "pacing/qdisc",
            "sender-application/rate-limited"
        ]
    );
    let stated = Evidence {
        bandwidth: Some(BitRate::from_mbps(100)),
        ..evidence
    };
    let which = [
        "send-buffer/tcp-wmem-max",
        "sender-application/idle",
        "pacing/qdisc",
    ];
    assert_eq!(candidates(&diagnose(&stated)), which);
}

#[test]
fn packets_of_the_size_of_the_window_field_show_a_sender_that_does_not_scale_it() {
    let open = CaptureEvidence {
        closed: false,
        ..seen(At::Receiver, 0.001)
    };
    let of = |field: u64, segments: u64| {
        let mut evidence = capturing(
            |_| Moment {
                in_flight: 0.0,
                ..moment(0.001, 50.0)
            },
            open,
        );
        let last = evidence.sender_samples.len() as u64 - 1;
        for (index, sample) in evidence.sender_samples.iter_mut().enumerate() {
            let so_far = |all: u64| all * index as u64 / last;
            sample.tcp.snd_wscale = Some(10);
            sample.tcp.snd_wnd = Some(ByteCount::new(field << 10));
            // The first packet holds what the program wrote before the rest.
            sample.tcp.data_segs_out = Some(SegCount::new(1 + so_far(segments)));
            sample.bytes = ByteCount::new(12 + so_far(1_280));
            (sample.tcp.bytes_acked, sample.tcp.bytes_sent) =
                (Some(sample.bytes), Some(sample.bytes));
        }
        diagnose(&evidence).name()
    };
    assert_eq!(of(64, 20), "receive-window/window-scale-stripped");
    // Others are in flight at the same time: the window is of this size by chance.
    assert_eq!(full_by_chance().kind, Limit::SendBuffer);
    assert_eq!(of(64, 40), "sender-application/idle");
    assert_eq!(of(32, 20), "sender-application/idle");
}

/// The verdict on a transfer whose packets are of the size of the field, and many in flight.
fn full_by_chance() -> Verdict {
    let capture = seen(At::Receiver, 20.0);
    let mut evidence = capturing(flat, capture);
    for sample in &mut evidence.sender_samples {
        sample.tcp.snd_wscale = Some(10);
        sample.tcp.snd_wnd = Some(ByteCount::new(1440 << 10));
        sample.tcp.bytes_sent = Some(sample.bytes);
        sample.tcp.data_segs_out = Some(SegCount::new(sample.bytes.get() / 1440));
    }
    diagnose(&evidence)
}

/// Round trips in which always as much was in flight, since a loss at the begin, and in which the
/// queue was empty once.
fn level() -> QuietRounds {
    QuietRounds {
        share: Ratio::new(0.7),
        level: Ratio::new(0.95),
        of_most: Some(Ratio::new(0.95)),
        growing: Ratio::new(0.05),
        free: Ratio::ONE,
    }
}

/// A sender whose bursts wait for each other: what is in flight swings within each round trip.
fn bursts(t: f64) -> Moment {
    let lost = if t < 1.0 { 100.0 } else { 0.0 };
    Moment {
        in_flight: 60_000.0 + 60_000.0 * (t * 7.3).fract(),
        lost_per_second: lost,
        ..moment(20.0, 70.0)
    }
}

#[test]
fn a_buffer_that_is_refilled_in_bursts_is_neither_a_full_link_nor_loss() {
    for point in [At::Sender, At::Receiver] {
        let refilled = CaptureEvidence {
            quiet: Some(level()),
            clocked: Some(Ratio::new(0.5)),
            ..seen(point, 20.0)
        };
        assert_eq!(
            verdict(bursts, refilled).kind,
            Limit::SendBuffer,
            "{point:?}"
        );
        let swings = QuietRounds {
            level: Ratio::new(0.6),
            free: Ratio::new(0.1),
            ..level()
        };
        let standing = CaptureEvidence {
            quiet: Some(swings),
            ..refilled
        };
        assert_ne!(
            verdict(bursts, standing).kind,
            Limit::SendBuffer,
            "{point:?}"
        );
    }
}

#[test]
fn long_trains_that_follow_acknowledgements_are_no_idle_program() {
    let trains = CaptureEvidence {
        idle: Ratio::new(0.5),
        train: ByteCount::from_kib(100),
        ..seen(At::Sender, 20.0)
    };
    let of_buffer = CaptureEvidence {
        quiet: Some(QuietRounds {
            share: Ratio::ONE,
            ..level()
        }),
        ..trains
    };
    assert_eq!(verdict(flat, of_buffer).name(), "send-buffer/so-sndbuf");
    let at_own_times = CaptureEvidence {
        clocked: Some(Ratio::new(0.3)),
        ..of_buffer
    };
    assert_eq!(
        verdict(flat, at_own_times).name(),
        "sender-application/idle"
    );
}

#[test]
fn a_link_that_the_sender_leaves_idle_is_not_full() {
    let queued = |t: f64| Moment {
        in_flight: 200_000.0 * (0.7 + 0.3 * t.fract()),
        ..moment(20.0, 80.0)
    };
    let full = QuietRounds {
        share: Ratio::ONE,
        level: Ratio::new(0.6),
        free: Ratio::ZERO,
        ..level()
    };
    let capture = CaptureEvidence {
        quiet: Some(full),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(queued, capture).name(), "capacity/link");
    let few = CaptureEvidence {
        idle: Ratio::new(0.25),
        ..capture
    };
    assert_eq!(
        verdict(queued, few).name(),
        "capacity/link",
        "as after losses: acknowledgements still clock it"
    );
    let at_own_times = CaptureEvidence {
        clocked: Some(Ratio::new(0.5)),
        ..few
    };
    assert_eq!(
        verdict(queued, at_own_times).name(),
        "sender-application/idle"
    );
}

#[test]
fn losses_of_a_sender_that_pauses_may_be_those_of_its_bursts() {
    let lossy = |t: f64| Moment {
        in_flight: 125_000.0 * (0.4 + 0.6 * (t / 1.3).fract()),
        lost_per_second: 3.0,
        recovering: (t / 1.3).fract() < 0.1,
        ..moment(20.0, 50.0)
    };
    let idle = |share| {
        let pausing = CaptureEvidence {
            idle: Ratio::new(share),
            clocked: Some(Ratio::new(0.5)),
            ..seen(At::Sender, 20.0)
        };
        candidates(&verdict(lossy, pausing))
    };
    assert_eq!(idle(0.03), ["loss/random"]);
    let all = [
        "sender-application/idle",
        "loss/shallow-queue",
        "loss/random",
        "loss/policer",
    ];
    assert_eq!(idle(0.1), all);
}

#[test]
fn a_buffer_is_none_of_a_program_though_its_data_swings_and_the_rate_at_the_receiver_shows_bursts()
{
    let swings = |t: f64| Moment {
        in_flight: 200_000.0 * (0.5 + 0.5 * t.fract()),
        ..moment(20.0, 50.0)
    };
    assert_eq!(
        verdict(swings, seen(At::Sender, 20.0)).name(),
        "send-buffer/so-sndbuf"
    );
    let at_own_times = CaptureEvidence {
        clocked: Some(Ratio::new(0.5)),
        idle: Ratio::new(0.3),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(
        verdict(swings, at_own_times).name(),
        "sender-application/idle"
    );

    let lossy = |t: f64| {
        let again = (t * 2.0).fract() < 0.1;
        let lost_per_second = if again { 40.0 } else { 0.0 };
        Moment {
            lost_per_second,
            recovering: again,
            ..moment(20.0 - t.fract() * 8.0, 70.0)
        }
    };
    let alone = CaptureEvidence {
        acknowledgements: None,
        quiet: Some(level()),
        ..seen(At::Sender, 20.0)
    };
    assert_ne!(verdict(lossy, alone).kind, Limit::SendBuffer);
    let both = CaptureEvidence {
        beyond: alone.arrivals,
        ..alone
    };
    assert_eq!(verdict(lossy, both).kind, Limit::SendBuffer);
}

#[test]
fn a_transfer_that_grew_in_most_round_trips_ended_too_early() {
    let growing = QuietRounds {
        growing: Ratio::new(0.6),
        level: Ratio::new(0.4),
        share: Ratio::ONE,
        ..level()
    };
    let capture = CaptureEvidence {
        idle: Ratio::new(0.5),
        quiet: Some(growing),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(flat, capture).name(), "congestion-window/ramp-up");
}

#[test]
fn a_slow_start_that_overflows_the_queue_in_the_end_was_still_speeding_up() {
    let overflows = |t: f64| Moment {
        lost_per_second: if t > 9.0 { 400.0 } else { 0.0 },
        ..moment(20.0, 70.0)
    };
    let growing = QuietRounds {
        growing: Ratio::new(0.9),
        level: Ratio::ZERO,
        share: Ratio::ZERO,
        ..level()
    };
    let capture = CaptureEvidence {
        quiet: Some(growing),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(
        verdict(overflows, capture).name(),
        "congestion-window/ramp-up"
    );
    let few = Some(QuietRounds {
        growing: Ratio::new(0.1),
        ..growing
    });
    assert_ne!(
        verdict(
            overflows,
            CaptureEvidence {
                quiet: few,
                ..capture
            }
        )
        .name(),
        "congestion-window/ramp-up"
    );
    let waits = CaptureEvidence {
        idle: Ratio::new(0.9),
        ..capture
    };
    assert_eq!(
        candidates(&verdict(flat, waits)),
        [
            "sender-application/idle",
            "cpu/stolen",
            "capacity/host-queue"
        ]
    );
}

#[test]
fn a_rate_that_stands_still_long_after_a_loss_is_a_pace() {
    let even = Some(BurstRate {
        rate: BitRate::from_mbps(20),
        share: Ratio::new(0.9),
    });
    let lost = |t: f64| Moment {
        lost_per_second: if t < 3.0 { 20.0 } else { 0.0 },
        ..moment(20.0, 50.0)
    };
    let at = |share, point| {
        let quiet = Some(QuietRounds {
            share: Ratio::new(share),
            of_most: Some(Ratio::new(0.2)),
            ..level()
        });
        let spaced = CaptureEvidence {
            departures: even,
            arrivals: even,
            train: ByteCount::new(2500),
            quiet,
            ..seen(point, 20.0)
        };
        let found = verdict(
            lost,
            CaptureEvidence {
                clocked: Some(Ratio::ZERO),
                ..spaced
            },
        );
        candidates(&found)
    };
    assert_eq!(at(0.9, At::Sender), ["pacing/max-pacing-rate"]);
    assert!(
        !at(0.4, At::Sender).contains(&"pacing/max-pacing-rate"),
        "as BBR that keeps to a policer's rate"
    );
    // Elsewhere the spacing is lost, and a window that stands still looks alike.
    let quiet = Some(QuietRounds {
        share: Ratio::new(0.9),
        of_most: Some(Ratio::new(0.2)),
        ..level()
    });
    let afar = verdict(
        lost,
        CaptureEvidence {
            quiet,
            ..seen(At::Receiver, 20.0)
        },
    );
    let which = [
        "congestion-window/recovering",
        "loss/policer",
        "capacity/host-queue",
        "sender-application/idle",
    ];
    assert_eq!(candidates(&afar), which, "or less to send than before");
}

#[test]
fn packets_that_seldom_end_with_writes_show_a_program_where_they_follow_no_acknowledgements() {
    let swings = QuietRounds {
        level: Ratio::new(0.7),
        of_most: Some(Ratio::new(0.9)),
        ..level()
    };
    let capture = |point| CaptureEvidence {
        quiet: Some(swings),
        clocked: None,
        ..seen(point, 20.0)
    };
    let even = Some(BurstRate {
        rate: BitRate::from_mbps(21),
        share: Ratio::new(0.4),
    });
    for point in [At::Sender, At::Receiver] {
        let ends = CaptureEvidence {
            partial: Ratio::new(0.006),
            ..capture(point)
        };
        let program = ["sender-application/idle"];
        assert_eq!(candidates(&verdict(flat, ends)), program, "{point:?}");
        let even = CaptureEvidence {
            departures: even,
            arrivals: even,
            ..ends
        };
        let program = ["sender-application/rate-limited"];
        assert_eq!(candidates(&verdict(flat, even)), program, "{point:?}");
        let waits = CaptureEvidence {
            partial: Ratio::new(0.002),
            ..ends
        };
        assert_eq!(verdict(flat, waits).kind, Limit::SendBuffer, "{point:?}");
    }
}

#[test]
fn as_much_in_flight_that_follows_no_acknowledgements_waits_for_a_device_or_a_buffer() {
    let held = CaptureEvidence {
        quiet: Some(level()),
        clocked: Some(Ratio::ZERO),
        ..seen(At::Sender, 20.0)
    };
    let found = verdict(flat, held);
    assert_eq!(
        candidates(&found),
        [
            "send-buffer/tcp-wmem-max",
            "pacing/qdisc",
            "capacity/host-queue",
            "sender-application/idle"
        ]
    );
    assert!(
        !found.sentence.contains("as acknowledgements come"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_pace_holds_as_much_as_a_smaller_scale_allows_by_chance() {
    let full = |_: f64| Moment {
        in_flight: 8.0 * 1448.0,
        window: 189.0 * 1024.0,
        ..moment(2.0, 50.0)
    };
    let clocked = |share| CaptureEvidence {
        clocked: Some(Ratio::new(share)),
        quiet: Some(level()),
        ..seen(At::Receiver, 2.0)
    };
    assert_eq!(verdict(full, clocked(0.18)).kind, Limit::SendBuffer);
    assert_eq!(verdict(full, clocked(0.49)).kind, Limit::ReceiveWindow);
}

#[test]
fn round_trips_that_are_long_for_the_sender_alone_are_of_a_late_receiver() {
    let late = |t: f64| Moment {
        in_flight: 200_000.0 * (0.5 + 0.5 * t.fract()),
        ..moment(20.0, 90.0)
    };
    let swings = QuietRounds {
        level: Ratio::new(0.6),
        free: Ratio::ZERO,
        ..level()
    };
    let capture = CaptureEvidence {
        quiet: Some(swings),
        ..seen(At::Sender, 20.0)
    };
    let of = |loaded_rtt| {
        let evidence = Evidence {
            idle_rtt: Some(Span::from_millis(50)),
            loaded_rtt,
            ..capturing(late, capture)
        };
        diagnose(&evidence)
    };
    let found = of(Some(Span::from_millis(51)));
    let which = ["receiver-application/slow-reader"];
    assert_eq!(candidates(&found), which);
    assert!(
        found.sentence.contains("answers late"),
        "{}",
        found.sentence
    );
    for queue in [None, Some(Span::from_millis(88))] {
        assert_ne!(of(queue).kind, Limit::ReceiverApplication);
    }
    // From the sender's side alone a window that fell while much of it is in use shows it.
    let fell = |t: f64| Moment {
        window: if t < 2.0 { 600_000.0 } else { 220_000.0 },
        ..late(t)
    };
    let found = verdict(fell, capture);
    assert_eq!(candidates(&found), which);
    assert!(
        found.sentence.contains("reads too slowly"),
        "{}",
        found.sentence
    );
    let unused = |t: f64| Moment {
        window: if t < 2.0 { 6_000_000.0 } else { 2_200_000.0 },
        ..late(t)
    };
    assert_ne!(verdict(unused, capture).kind, Limit::ReceiverApplication);
}

#[test]
fn a_sender_that_keeps_the_rate_of_a_queue_that_overflowed_has_the_whole_link() {
    let course = |mbps: f64| {
        move |t: f64| {
            if t < 2.0 {
                Moment {
                    lost_per_second: 400.0,
                    ..moment(80.0, 110.0)
                }
            } else {
                moment(mbps, 51.0)
            }
        }
    };
    let quiet = Some(QuietRounds {
        level: Ratio::new(0.5),
        ..level()
    });
    let at = |mbps| {
        let rate = BitRate::from_bps_f64(mbps * 1e6);
        let steady = Some(Steady {
            ramp: Span::from_millis(2_500),
            ramp_rate: BitRate::from_mbps(79),
            rate,
            duration: Span::from_millis(7_500),
        });
        let evidence = capturing(
            course(mbps),
            CaptureEvidence {
                quiet,
                ..seen(At::Sender, mbps)
            },
        );
        diagnose(&Evidence { steady, ..evidence }).name()
    };
    assert_eq!(at(76.0), "capacity/link");
    assert_ne!(at(40.0), "capacity/link");
}

#[test]
fn data_that_was_sent_and_never_came_is_a_black_hole() {
    let silent = |_: f64| moment(0.001, 50.0);
    let capture = CaptureEvidence {
        unseen: ByteCount::new(14_480),
        ..seen(At::Receiver, 20.0)
    };
    let found = verdict(silent, capture);
    assert_eq!(
        (found.name(), found.candidates.len()),
        ("mtu/black-hole", 0)
    );
    let open = verdict(
        silent,
        CaptureEvidence {
            closed: false,
            ..seen(At::Receiver, 20.0)
        },
    );
    assert_eq!(
        candidates(&open),
        ["sender-application/idle", "mtu/black-hole"]
    );
}

#[test]
fn a_queue_that_is_hardly_ever_empty_is_not_short() {
    // Lost whenever as much is in flight.
    let lossy = |t: f64| {
        let again = t.fract() < 0.1;
        let lost_per_second = if again { 40.0 } else { 0.0 };
        let in_flight = 120_000.0 * (0.6 + 0.4 * t.fract());
        Moment {
            in_flight,
            lost_per_second,
            recovering: again,
            ..moment(20.0, 50.0 + 4.0 * t.fract())
        }
    };
    let short = QuietRounds {
        share: Ratio::new(0.1),
        free: Ratio::new(0.9),
        ..level()
    };
    let capture = CaptureEvidence {
        quiet: Some(short),
        ..seen(At::Sender, 20.0)
    };
    assert_eq!(verdict(lossy, capture).name(), "loss/shallow-queue");
    let stands = QuietRounds {
        free: Ratio::new(0.1),
        ..short
    };
    assert_eq!(
        verdict(
            lossy,
            CaptureEvidence {
                quiet: Some(stands),
                ..capture
            }
        )
        .name(),
        "capacity/link"
    );
}

#[test]
fn bursts_are_shown_with_what_was_sustained() {
    let text = |sustained| {
        format!(
            "{:?}",
            verdict(
                flat,
                CaptureEvidence {
                    sustained,
                    ..seen(At::Sender, 20.0)
                }
            )
        )
    };
    assert!(
        text(Some(BitRate::from_mbps(20))).contains("in bursts; over 200 ms at most 20 Mbit/s")
    );
    assert!(
        !text(Some(BitRate::from_mbps(60))).contains("in bursts")
            && !text(None).contains("in bursts")
    );
}

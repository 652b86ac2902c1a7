//! Transfers of which the receiving end alone was seen, as a download that was watched.

use std::net::IpAddr;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    At, Basis, Buffer, Cause, Evidence, Limit, Request, RttStats, Sample, SocketMemory, SynQuote,
    TcpInfo, find_steady, steady_of_receiver,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::builder::{self, stated};

/// The receiver's samples, 20 times a second for ten seconds; sizes in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) mbps: f64,
    pub(crate) idle_ms: u64,
    pub(crate) rtt_ms: u64,
    pub(crate) window: u64,
    pub(crate) rcvbuf: u64,
    pub(crate) unread: u64,
    /// Packets out of order, each second.
    pub(crate) out_of_order: u64,
    /// Nothing comes for this share of each second.
    pub(crate) silent: f64,
    pub(crate) scaling: bool,
}

/// 100 Mbit/s over 100 ms into an autotuned buffer that has grown to twice of what it takes.
pub(crate) const WELL: Seen = Seen {
    mbps: 100.0,
    idle_ms: 100,
    rtt_ms: 101,
    window: 2_500_000,
    rcvbuf: 4_200_000,
    unread: 0,
    out_of_order: 0,
    silent: 0.0,
    scaling: true,
};

pub(crate) fn evidence(seen: Seen) -> Evidence {
    let mut arrived = 0.0;
    let snapshot = |index: u64| {
        let second = (index as f64 / 20.0).fract();
        let silent = second < seen.silent;
        if !silent {
            arrived += seen.mbps * 1e6 / 8.0 / 20.0;
        }
        let bytes = ByteCount::from_f64(arrived);
        let tcp = TcpInfo {
            window_scaling: Some(seen.scaling),
            rcv_wscale: Some(if seen.scaling { 10 } else { 0 }),
            timestamps: Some(true),
            rcv_mss: Some(ByteCount::new(builder::MSS)),
            // The kernel counts a pause as a round trip.
            rcv_rtt: Some(Span::from_millis(
                seen.rtt_ms.max((seen.silent * 1e3) as u64),
            )),
            min_rtt: Some(Span::from_millis(seen.idle_ms)),
            rcv_wnd: Some(ByteCount::new(seen.window)),
            bytes_received: Some(bytes),
            data_segs_in: Some(SegCount::new(bytes.get() / builder::MSS)),
            out_of_order_in: Some(SegCount::new(seen.out_of_order * index / 20)),
            since_data_received: Some(Span::from_secs_f64(if silent { second } else { 0.001 })),
            ..TcpInfo::default()
        };
        let (rmem_alloc, rcvbuf) = (ByteCount::new(seen.unread), ByteCount::new(seen.rcvbuf));
        let memory = SocketMemory {
            rmem_alloc,
            rcvbuf,
            ..SocketMemory::default()
        };
        Sample {
            at: Span::from_millis(index * 50),
            stream: 0,
            bytes,
            tcp,
            memory: Some(memory),
        }
    };
    let samples: Vec<Sample> = (1..=200).map(snapshot).collect();
    let idle_rtt = Some(Span::from_millis(seen.idle_ms));
    Evidence {
        sender: None,
        sender_sockets: Vec::new(),
        steady: find_steady(&samples, idle_rtt, Span::from_secs(10)),
        receiver_samples: samples,
        idle_rtt,
        ..builder::evidence("cubic", seen.idle_ms, Vec::new())
    }
}

#[test]
fn a_receiver_that_asked_knows_that_its_offer_was_lost() {
    let mut evidence = evidence(Seen {
        scaling: false,
        mbps: 5.1,
        window: 65_535,
        rcvbuf: 131_072,
        ..WELL
    });
    let quoted = |hop: u8, window_scale| SynQuote {
        hop,
        by: IpAddr::from([192, 0, 2, hop]),
        window_scale,
        mss: None,
    };
    evidence.receiver_sockets = vec![builder::socket(0, "cubic")];
    evidence.receiver_sockets[0].syn_quotes = vec![quoted(1, Some(7)), quoted(2, None)];
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.cause, verdict.at),
        (Cause::WindowScaleStripped, At::Middlebox),
        "{verdict:#?}"
    );
    assert!(
        verdict
            .sentence
            .contains("a device between 192.0.2.1 and 192.0.2.2 removes"),
        "{}",
        verdict.sentence
    );
    assert_eq!(
        verdict.evidence["SYN as quoted by routers"],
        "scale 7, no MSS at 192.0.2.1; no scale, no MSS at 192.0.2.2"
    );
}

#[test]
fn each_limit_that_a_receiver_can_see_is_seen() {
    let full_window = |window, rcvbuf| Seen {
        mbps: window as f64 * 8.0 / 1e5 * 0.97,
        window,
        rcvbuf,
        ..WELL
    };
    let cases = [
        (
            "a buffer that the kernel left small",
            full_window(374_000, 600_000),
            (Limit::ReceiveWindow, Cause::AutotuningStalled, At::Receiver),
        ),
        (
            "a buffer that is tuned to the end",
            full_window(20_000_000, 32 << 20),
            (Limit::ReceiveWindow, Cause::TcpRmemMax, At::Receiver),
        ),
        (
            "no window scaling",
            Seen {
                scaling: false,
                ..full_window(65_535, 131_072)
            },
            (Limit::ReceiveWindow, Cause::NoWindowScaling, At::Receiver),
        ),
        (
            "a program that does not read",
            Seen {
                mbps: 20.0,
                unread: 4_000_000,
                window: 60_000,
                ..WELL
            },
            (Limit::ReceiverApplication, Cause::SlowReader, At::Receiver),
        ),
        (
            "packets lost on the way, at one rate",
            Seen {
                out_of_order: 30,
                ..WELL
            },
            (Limit::Loss, Cause::ShallowQueue, At::Path),
        ),
        (
            "packets lost by a queue that fills",
            Seen {
                out_of_order: 30,
                rtt_ms: 160,
                window: 6_000_000,
                ..WELL
            },
            (Limit::Capacity, Cause::Link, At::Path),
        ),
        (
            "a window that fills a queue",
            Seen {
                rtt_ms: 200,
                ..WELL
            },
            (Limit::Capacity, Cause::Link, At::Path),
        ),
        (
            "a sender that pauses for longer than a round trip",
            Seen {
                silent: 0.6,
                ..WELL
            },
            (Limit::SenderApplication, Cause::Idle, At::Sender),
        ),
        (
            "a sender whose data comes evenly",
            WELL,
            (Limit::Pacing, Cause::Qdisc, At::Sender),
        ),
    ];
    for (name, seen, expected) in cases {
        let verdict = diagnose(&evidence(seen));
        assert_eq!(
            (verdict.kind, verdict.cause, verdict.at),
            expected,
            "{name}: {verdict:#?}"
        );
        assert_eq!(verdict.basis, Basis::Receiver, "{name}");
        assert!(verdict.other_end_would_show.is_some(), "{name}");
        assert!(
            verdict.share <= Ratio::ONE && verdict.sentence.ends_with('.'),
            "{name}: {verdict:#?}"
        );
    }
}

#[test]
fn only_a_program_that_may_have_fixed_a_small_buffer_is_said_to_have_done_so() {
    let mut small = evidence(Seen {
        mbps: 29.0,
        window: 374_000,
        rcvbuf: 600_000,
        ..WELL
    });
    small.request.buffer = Buffer::Request(ByteCount::new(300_000));
    let fixed = (Limit::ReceiveWindow, Cause::SoRcvbuf);
    assert_eq!(named(&small), fixed, "our own load asked for it");
    small.request.buffer = Buffer::Automatic;
    assert_eq!(
        named(&small),
        (Limit::ReceiveWindow, Cause::AutotuningStalled)
    );
    small.program = Some("rsync".to_owned());
    assert_eq!(named(&small), fixed, "a program of others may have");
}

#[test]
fn a_small_window_that_is_several_times_the_pipe_keeps_a_queue_filled() {
    // 12 kB are in the pipe of 5 Mbit/s over 20 ms.
    let small = Seen {
        mbps: 4.7,
        idle_ms: 20,
        rtt_ms: 108,
        window: 65_535,
        rcvbuf: 131_072,
        scaling: false,
        ..WELL
    };
    assert_eq!(named(&evidence(small)), (Limit::Capacity, Cause::Link));
    let filled = Seen {
        mbps: 14.0,
        rtt_ms: 37,
        ..small
    };
    assert_eq!(
        named(&evidence(filled)).0,
        Limit::ReceiveWindow,
        "more than half of it is in the pipe"
    );
}

#[test]
fn losses_at_one_rate_are_of_a_short_queue_or_of_a_link_that_others_have_part_of() {
    let mut once_a_second = evidence(WELL);
    for (index, sample) in once_a_second.receiver_samples.iter_mut().enumerate() {
        sample.tcp.out_of_order_in = Some(SegCount::new(200 * (index as u64 / 20)));
    }
    assert_eq!(named(&once_a_second), (Limit::Loss, Cause::ShallowQueue));
    assert_eq!(
        named(&stated(once_a_second, 200)),
        (Limit::Capacity, Cause::Shared),
        "it never had the link"
    );
}

#[test]
fn the_rest_of_a_window_that_is_less_than_a_segment_stays_unused() {
    // Two segments in each round trip of 100 ms.
    let window_of = |window: u64| Seen {
        mbps: 0.2317,
        window,
        rcvbuf: 10_000,
        silent: 0.0,
        ..WELL
    };
    assert_eq!(named(&evidence(window_of(4600))).0, Limit::ReceiveWindow);
    assert_ne!(named(&evidence(window_of(9000))).0, Limit::ReceiveWindow);
}

#[test]
fn losses_to_a_queue_that_was_there_before_are_of_a_link_that_others_fill() {
    let lossy = evidence(Seen {
        out_of_order: 30,
        ..WELL
    });
    assert_eq!(named(&lossy).0, Limit::Loss);
    let ms = Span::from_millis;
    let before = RttStats {
        count: 25,
        min: ms(100),
        median: ms(118),
        p90: ms(122),
        p99: ms(124),
        max: ms(124),
    };
    let idle_spread = Some(before);
    assert_eq!(
        named(&Evidence {
            idle_spread,
            ..lossy.clone()
        }),
        (Limit::Capacity, Cause::Shared)
    );
    let idle_spread = Some(RttStats {
        median: ms(101),
        ..before
    });
    assert_eq!(
        named(&Evidence {
            idle_spread,
            ..lossy
        })
        .0,
        Limit::Loss,
        "it was empty half of the time"
    );
}

#[test]
fn a_load_of_which_no_packet_arrives_meets_a_black_hole() {
    let nothing = evidence(Seen { mbps: 0.0, ..WELL });
    assert_eq!(named(&nothing), (Limit::Mtu, Cause::BlackHole));
    let watched = Evidence {
        program: Some("curl".to_owned()),
        ..nothing
    };
    assert_ne!(
        named(&watched).0,
        Limit::Mtu,
        "a program may have nothing to send"
    );
}

#[test]
fn a_program_that_is_watched_may_be_idle() {
    let named = Evidence {
        program: Some("curl".to_owned()),
        ..evidence(WELL)
    };
    // Who it belongs to is not known without its user's rights.
    let nameless = Evidence {
        is_watched: true,
        ..evidence(WELL)
    };
    for watched in [named, nameless] {
        let verdict = diagnose(&watched);
        assert_eq!(
            (verdict.kind, verdict.cause),
            (Limit::SenderApplication, Cause::Idle),
            "{verdict:#?}"
        );
        assert_eq!(verdict.candidates.len(), 3);
    }
}

#[test]
fn data_that_waits_behind_a_hole_is_not_a_slow_reader() {
    let verdict = diagnose(&evidence(Seen {
        unread: 3_000_000,
        out_of_order: 400,
        ..WELL
    }));
    assert_eq!(verdict.kind, Limit::Loss, "{verdict:#?}");
}

#[test]
fn a_reported_bandwidth_is_recognized_by_the_receiver_too() {
    let verdict = diagnose(&stated(evidence(Seen { mbps: 94.0, ..WELL }), 100));
    assert_eq!((verdict.kind, verdict.at), (Limit::Capacity, At::Path));
    assert!(verdict.ceilings[&Limit::Capacity] > BitRate::from_mbps(93));
}

#[test]
fn pauses_shorter_than_a_round_trip_are_none() {
    // A small window over a long path comes in bursts, one in each round trip.
    let verdict = diagnose(&evidence(Seen {
        silent: 0.6,
        idle_ms: 1000,
        rtt_ms: 1000,
        window: 90_000_000,
        ..WELL
    }));
    assert_ne!(verdict.kind, Limit::SenderApplication, "{verdict:#?}");
}

/// 2 MiB over 100 ms: 167.8 Mbit/s.
#[test]
fn a_channel_of_ssh_is_known_from_either_end_and_a_slow_disk_is_none() {
    let of_ssh = |mbps: f64, program: &str| {
        let mut evidence = evidence(Seen {
            mbps,
            window: 12_000_000,
            rcvbuf: 20_000_000,
            ..WELL
        });
        evidence.program = Some(program.to_owned());
        evidence
    };
    let mut in_bursts = of_ssh(160.0, "ssh");
    for sample in in_bursts.receiver_samples.iter_mut().step_by(5) {
        sample.tcp.since_data_received = Some(Span::from_millis(40));
    }
    assert_eq!(
        named(&in_bursts),
        (Limit::ApplicationWindow, Cause::SshChannel)
    );
    in_bursts.program = Some("curl".to_owned());
    assert_ne!(named(&in_bursts).0, Limit::ApplicationWindow);
    for (mbps, program) in [(160.0, "ssh"), (119.0, "sshd-session"), (166.0, "sshd")] {
        let evidence = of_ssh(mbps, program);
        let verdict = diagnose(&evidence);
        assert_eq!(
            (verdict.kind, verdict.cause),
            (Limit::ApplicationWindow, Cause::SshChannel),
            "{mbps} {program}"
        );
        assert!(verdict.sentence.contains("2 MiB"), "{}", verdict.sentence);
        let remedies = find_remedies(&evidence, &verdict);
        let other = remedies
            .iter()
            .find(|remedy| remedy.id == "program-without-a-window")
            .unwrap();
        let gain = other.predicted.unwrap().bits_per_second;
        assert!(
            gain > BitRate::from_mbps(mbps as u64),
            "{mbps} {program}: another carries {gain}"
        );
    }
    for (mbps, program) in [(60.0, "ssh"), (400.0, "ssh"), (160.0, "curl")] {
        assert_ne!(
            diagnose(&of_ssh(mbps, program)).kind,
            Limit::ApplicationWindow,
            "{mbps} {program}"
        );
    }
    let mut sending = builder::trickle("cubic");
    sending.program = Some("ssh".to_owned());
    assert_eq!(
        diagnose(&sending).kind,
        Limit::SenderApplication,
        "40 Mbit/s is far below 2 MiB over 100 ms"
    );
    let mut faster = builder::trickle("cubic");
    faster.program = Some("ssh".to_owned());
    faster.request.streams = 1;
    let scale = 3.5;
    for sample in &mut faster.sender_samples {
        sample.tcp.bytes_acked = sample.tcp.bytes_acked.map(|bytes| bytes.scale_by(scale));
        sample.tcp.bytes_sent = sample
            .tcp
            .bytes_acked
            .map(|bytes| bytes + ByteCount::new(1_750_000));
    }
    faster.steady = find_steady(&faster.sender_samples, faster.idle_rtt, Span::from_secs(10));
    let verdict = diagnose(&faster);
    assert_eq!(verdict.kind, Limit::ApplicationWindow, "{verdict:#?}");
    assert!(verdict.ceilings.contains_key(&Limit::ApplicationWindow));
}

/// The same, of a sender that was asked for `request`.
fn asked(seen: Seen, request: Request) -> Evidence {
    let evidence = evidence(seen);
    Evidence {
        request: Request {
            direction: evidence.request.direction,
            ..request
        },
        ..evidence
    }
}

pub(crate) fn named(evidence: &Evidence) -> (Limit, Cause) {
    let verdict = diagnose(evidence);
    (verdict.kind, verdict.cause)
}

#[test]
fn a_sender_that_keeps_to_what_it_was_asked_for_is_named() {
    let rate = Some(BitRate::from_mbps(100));
    let offered = asked(
        WELL,
        Request {
            rate,
            ..Request::default()
        },
    );
    assert_eq!(
        named(&offered),
        (Limit::SenderApplication, Cause::RateLimited)
    );
    let paced = asked(
        WELL,
        Request {
            pacing: rate,
            ..Request::default()
        },
    );
    assert_eq!(named(&paced), (Limit::Pacing, Cause::MaxPacingRate));
    let more = asked(
        WELL,
        Request {
            rate: Some(BitRate::from_mbps(200)),
            ..Request::default()
        },
    );
    assert_ne!(named(&more).1, Cause::RateLimited);
}

/// Asked for 100 Mbit/s over a link of which headers leave 94.1 Mbit/s.
#[test]
fn a_sender_that_comes_near_to_what_it_was_asked_for_may_have_filled_the_link() {
    let rate = Some(BitRate::from_mbps(100));
    let requests = [
        Request {
            rate,
            ..Request::default()
        },
        Request {
            pacing: rate,
            ..Request::default()
        },
    ];
    let near = Seen { mbps: 94.1, ..WELL };
    let queued = Seen {
        rtt_ms: 160,
        window: 6_000_000,
        ..near
    };
    for (request, cause) in requests
        .into_iter()
        .zip([Cause::RateLimited, Cause::MaxPacingRate])
    {
        assert_eq!(
            named(&asked(queued, request.clone())),
            (Limit::Capacity, Cause::Link),
            "{cause:?}"
        );
        assert_eq!(
            named(&asked(near, request.clone())).1,
            cause,
            "no queue stands"
        );
        assert_eq!(
            named(&asked(
                Seen {
                    mbps: 99.0,
                    ..queued
                },
                request
            ))
            .1,
            cause,
            "all of it arrives"
        );
    }
}

#[test]
fn what_bbr_loses_without_a_queue_a_policer_took() {
    let lossy = Seen {
        out_of_order: 600,
        ..WELL
    };
    let bbr = Request {
        congestion: Some("bbr".to_owned()),
        ..Request::default()
    };
    assert_eq!(named(&asked(lossy, bbr)), (Limit::Loss, Cause::Policer));
    let verdict = diagnose(&evidence(Seen {
        out_of_order: 30,
        ..WELL
    }));
    assert_eq!(
        verdict.candidates.len(),
        3,
        "a loss-based control loses to each of them: {verdict:#?}"
    );
    assert_eq!(
        (verdict.candidates[0].kind, verdict.candidates[0].cause),
        (verdict.kind, verdict.cause)
    );
    assert!(verdict.would_distinguish.is_some());
}

#[test]
fn a_full_link_of_which_others_have_part_is_shared() {
    let full = Seen {
        rtt_ms: 160,
        window: 6_000_000,
        ..WELL
    };
    assert_eq!(
        named(&stated(evidence(full), 104)),
        (Limit::Capacity, Cause::Link)
    );
    assert_eq!(
        named(&stated(evidence(full), 200)),
        (Limit::Capacity, Cause::Shared)
    );
}

#[test]
fn a_short_queue_shows_only_together_with_an_even_rate() {
    // 6 % above the idle time.
    let even = Seen {
        rtt_ms: 106,
        ..WELL
    };
    assert_eq!(named(&evidence(even)), (Limit::Capacity, Cause::Link));
    let mut uneven = evidence(even);
    for (index, sample) in (0..).zip(&mut uneven.receiver_samples) {
        let more = ByteCount::from_kib(300 * (index % 3));
        sample.tcp.bytes_received = sample.tcp.bytes_received.map(|bytes| bytes + more);
    }
    assert_ne!(named(&uneven).0, Limit::Capacity);
}

#[test]
fn a_transfer_of_a_few_round_trips_was_still_speeding_up() {
    let mut short = evidence(WELL);
    short.steady = None;
    short
        .receiver_samples
        .retain(|sample| sample.at <= Span::from_secs(1));
    // 150 segments: four rounds of slow start, over in half a second.
    for sample in &mut short.receiver_samples {
        let bytes = (sample.at.as_secs_f64() * 3e5 * 1.448).min(150.0 * 1448.0);
        sample.tcp.bytes_received = Some(ByteCount::from_f64(bytes));
    }
    assert_eq!(named(&short), (Limit::CongestionWindow, Cause::RampUp));
    for sample in &mut short.receiver_samples {
        let bytes = sample.at.as_secs_f64() * 150.0 * 1448.0;
        sample.tcp.bytes_received = Some(ByteCount::from_f64(bytes));
    }
    assert_ne!(named(&short).1, Cause::RampUp, "as many in twice the time");
}

/// A sender that writes `chunk` bytes after each pause, as a receiver sees it whose samples are of
/// any phase.
struct Pausing {
    chunk: u64,
    pause: Span,
    idle: Span,
    mss: u64,
    window: u64,
}

const MICROS_20: Span = Span::from_micros(20);

fn pausing(seen: &Pausing) -> Evidence {
    let mut evidence = evidence(WELL);
    let pause = seen.pause.as_nanos();
    for (index, sample) in (1..).zip(&mut evidence.receiver_samples) {
        sample.at = Span::from_micros(48_700) * index;
        let bytes = ByteCount::new(seen.chunk * (sample.at.as_nanos() / pause));
        sample.bytes = bytes;
        sample.tcp.bytes_received = Some(bytes);
        sample.tcp.data_segs_in = Some(SegCount::new(bytes.get() / seen.mss));
        sample.tcp.since_data_received =
            Some(Span::from_millis(sample.at.as_nanos() % pause / 1_000_000));
        sample.tcp.rcv_rtt = Some(seen.pause.max(seen.idle));
        sample.tcp.min_rtt = Some(seen.idle);
        sample.tcp.rcv_mss = Some(ByteCount::new(seen.mss));
        sample.tcp.rcv_wnd = Some(ByteCount::new(seen.window));
    }
    let steady = find_steady(
        &evidence.receiver_samples,
        Some(seen.idle),
        Span::from_secs(9),
    );
    Evidence {
        idle_rtt: Some(seen.idle),
        steady,
        program: Some("curl".to_owned()),
        ..evidence
    }
}

#[test]
fn pauses_of_the_sender_are_no_queue_and_no_window() {
    for (mss, idle) in [
        (65_483, MICROS_20),
        (1448, MICROS_20),
        (1448, Span::from_millis(1)),
    ] {
        for pause in [5, 20, 50, 100, 300].map(Span::from_millis) {
            for chunk in [20_000, 100_000, 200_000, 1_000_000] {
                for window in [chunk + chunk / 3, chunk * 4] {
                    let verdict = diagnose(&pausing(&Pausing {
                        chunk,
                        pause,
                        idle,
                        mss,
                        window,
                    }));
                    let may_be_idle = verdict
                        .candidates
                        .iter()
                        .any(|one| one.cause == Cause::Idle);
                    let is_idle = verdict.cause == Cause::Idle;
                    let case = format!(
                        "{chunk} bytes each {pause}, {mss}, {idle}, {window}: {verdict:#?}"
                    );
                    assert!(
                        is_idle || (may_be_idle && verdict.kind == Limit::SendBuffer),
                        "{case}"
                    );
                    assert!(
                        verdict.sentence.contains("pauses")
                            || !is_idle
                            || verdict.candidates.is_empty(),
                        "{case}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_queue_that_never_runs_empty_is_seen_without_echo_requests() {
    let full = evidence(Seen {
        rtt_ms: 200,
        window: 6_000_000,
        ..WELL
    });
    let alone = diagnose(&stated(full.clone(), 105));
    assert_eq!(
        (alone.cause, alone.candidates.len()),
        (Cause::Link, 0),
        "{alone:#?}"
    );
    let queue_of_host = |rtt_ms| {
        let verdict = diagnose(&Evidence {
            program: Some("curl".to_owned()),
            ..evidence(Seen {
                idle_ms: 20,
                rtt_ms,
                window: 6_000_000,
                ..WELL
            })
        });
        assert_eq!(verdict.cause, Cause::Link, "{verdict:#?}");
        let mut others = verdict.candidates.iter();
        others.any(|one| one.cause == Cause::Qdisc)
    };
    assert!(
        queue_of_host(23),
        "a queue of the sending host may be what is full"
    );
    assert!(
        !queue_of_host(60),
        "the kernel lets a stream keep about a millisecond of data there"
    );
}

#[test]
fn pauses_and_losses_are_of_a_path_that_others_fill_or_of_the_sender() {
    let seen = Pausing {
        chunk: 200_000,
        pause: Span::from_millis(60),
        idle: MICROS_20,
        mss: 1448,
        window: 900_000,
    };
    let mut shared = pausing(&seen);
    for (index, sample) in (0..).zip(&mut shared.receiver_samples) {
        sample.tcp.out_of_order_in = Some(SegCount::new(20 * (index / 20)));
    }
    let verdict = diagnose(&shared);
    assert_eq!(verdict.kind, Limit::Capacity, "{verdict:#?}");
    assert!(
        verdict
            .candidates
            .iter()
            .any(|one| one.cause == Cause::Idle),
        "{verdict:#?}"
    );
    let echoes = Some(Span::from_millis(60));
    let waiting = diagnose(&Evidence {
        loaded_rtt: echoes,
        ..shared
    });
    assert!(
        waiting
            .candidates
            .iter()
            .all(|one| one.cause != Cause::Idle),
        "echo requests wait as well: {waiting:#?}"
    );
}

#[test]
fn a_fixed_window_that_pauses_would_fill_may_be_the_limit() {
    let seen = Pausing {
        chunk: 100_000,
        pause: Span::from_millis(50),
        idle: MICROS_20,
        mss: 65_483,
        window: 110_000,
    };
    let mut fixed = pausing(&seen);
    fixed.request.buffer = Buffer::Request(ByteCount::new(110_000));
    let verdict = diagnose(&fixed);
    let causes: Vec<Cause> = verdict.candidates.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::Idle, Cause::SoRcvbuf], "{verdict:#?}");
}

/// `rcv_rtt` of a load of our own has the sender's pauses in it too, and echo requests have not.
#[test]
fn echo_requests_show_how_long_a_round_trip_is() {
    let seen = Pausing {
        chunk: 900_000,
        pause: Span::from_millis(300),
        idle: MICROS_20,
        mss: 1448,
        window: 950_000,
    };
    let own = Evidence {
        loaded_rtt: Some(Span::from_micros(30)),
        program: None,
        ..pausing(&seen)
    };
    assert_eq!(named(&own), (Limit::SenderApplication, Cause::Idle));
}

/// The transfer of [`WELL`], whose rate and losses are as `course` has them at a time in seconds.
pub(crate) fn changing(course: impl Fn(f64) -> (f64, u64)) -> Evidence {
    let mut changed = evidence(WELL);
    let (mut arrived, mut late) = (0.0, 0);
    for sample in &mut changed.receiver_samples {
        let (mbps, out_of_order) = course(sample.at.as_secs_f64());
        arrived += mbps * 1e6 / 8.0 / 20.0;
        late += out_of_order;
        sample.bytes = ByteCount::from_f64(arrived);
        sample.tcp.bytes_received = Some(sample.bytes);
        // What the receiver itself sent, as the request for the load, says nothing.
        sample.tcp.bytes_acked = Some(ByteCount::new(37));
        sample.tcp.data_segs_in = Some(SegCount::new(arrived as u64 / builder::MSS));
        sample.tcp.out_of_order_in = Some(SegCount::new(late));
    }
    let end = changed
        .receiver_samples
        .last()
        .map_or(Span::ZERO, |last| last.at);
    changed.steady = steady_of_receiver(&changed.receiver_samples, changed.idle_rtt, end);
    changed
}

#[test]
fn what_grows_is_a_congestion_window_and_what_stands_still_a_buffer() {
    let kind = |growth: f64| named(&changing(|at| (60.0 + growth * at, 0)));
    assert_eq!(kind(1.2), (Limit::CongestionWindow, Cause::EarlyExit));
    assert_eq!(
        kind(0.2).0,
        Limit::SendBuffer,
        "less than a twentieth from the first third to the last"
    );
}

#[test]
fn even_data_has_a_pace_or_a_program_of_a_rate_behind_it_as_its_acknowledgements_show() {
    let at_first = |mbps: f64| changing(move |at| (if at < 0.5 { mbps } else { 60.0 }, 0));
    let even = at_first(65.0);
    let verdict = diagnose(&even);
    let all: Vec<&str> = verdict.candidates.iter().map(|one| one.name()).collect();
    let [pace, program] = ["pacing/qdisc", "sender-application/rate-limited"];
    assert_eq!(
        all,
        [pace, program, "send-buffer/tcp-wmem-max"],
        "{verdict:#?}"
    );
    let acknowledged = |of_segment: f64| {
        let mut acknowledged = even.clone();
        for sample in &mut acknowledged.receiver_samples {
            let segments = sample.tcp.data_segs_in.unwrap().get() as f64;
            sample.tcp.segs_out = Some(SegCount::new((segments * of_segment) as u64));
        }
        let verdict = diagnose(&acknowledged);
        (verdict.name().to_owned(), verdict.candidates.len())
    };
    assert_eq!(acknowledged(0.5), (pace.to_owned(), 0));
    assert_eq!(acknowledged(1.0), (program.to_owned(), 0));
    assert_eq!(acknowledged(0.43), (pace.to_owned(), 3));
    let sure = |mbps: f64| {
        let verdict = diagnose(&at_first(mbps));
        (verdict.name().to_owned(), verdict.candidates.len())
    };
    assert_eq!(sure(60.0), (pace.to_owned(), 0), "never faster");
    assert_eq!(sure(90.0), (program.to_owned(), 0), "it caught up");
}

/// Data of `chunk` bytes that comes in a burst at the begin of each `period`, seen 20 times a second.
pub(crate) fn in_bursts_each(period: Span, chunk: u64) -> Evidence {
    let mut bursts = pausing(&Pausing {
        chunk,
        pause: period,
        idle: Span::from_millis(70),
        mss: builder::MSS,
        window: 6_000_000,
    });
    for sample in &mut bursts.receiver_samples {
        sample.tcp.rcv_rtt = Some(Span::from_millis(70));
    }
    Evidence {
        program: None,
        ..bursts
    }
}

#[test]
fn bursts_of_a_buffer_come_with_round_trips_and_those_of_a_program_at_other_times() {
    let named = |period| named(&in_bursts_each(Span::from_millis(period), 400_000));
    assert_eq!(named(71), (Limit::SendBuffer, Cause::TcpWmemMax));
    assert_eq!(named(57), (Limit::SenderApplication, Cause::Idle));
}

#[test]
fn a_load_that_is_silent_for_longer_than_a_timer_waits_for_that() {
    let stalled = changing(|at| (if at % 3.0 < 0.8 { 20.0 } else { 0.0 }, 0));
    let mut silent = stalled.clone();
    for sample in &mut silent.receiver_samples {
        let away = (sample.at.as_secs_f64() % 3.0 - 0.8).max(0.0);
        sample.tcp.since_data_received = Some(Span::from_secs_f64(away));
    }
    assert_eq!(named(&silent), (Limit::Loss, Cause::Random));
    let watched = Evidence {
        is_watched: true,
        ..silent
    };
    assert_eq!(
        named(&watched).0,
        Limit::SenderApplication,
        "a program may have nothing to send"
    );
}

#[test]
fn bbr_that_has_what_it_ever_had_fills_a_link_though_it_loses_packets() {
    let mut lossy = changing(|at| (60.0, if at < 0.4 { 40 } else { 0 }));
    lossy.request.congestion = Some("bbr".to_owned());
    assert_eq!(named(&lossy), (Limit::Capacity, Cause::Link));
    let mut faster = changing(|at| (if at < 1.0 { 120.0 } else { 60.0 }, 40));
    faster.request.congestion = Some("bbr".to_owned());
    assert_eq!(named(&faster), (Limit::Loss, Cause::Policer));
}

#[test]
fn what_bbr_goes_on_to_lose_for_many_round_trips_a_policer_takes() {
    let lossy = |until: f64| {
        let mut lossy = changing(move |at| (60.0, if at < until { 250 } else { 0 }));
        lossy.request.congestion = Some("bbr".to_owned());
        let steady = lossy.steady.as_mut().unwrap();
        (steady.ramp, steady.duration) = (Span::from_millis(1_500), Span::from_millis(8_500));
        named(&lossy)
    };
    assert_eq!(lossy(2.2), (Limit::Loss, Cause::Policer));
    assert_eq!(lossy(0.6), (Limit::Capacity, Cause::Link));
}

#[test]
fn a_sender_that_loses_data_at_its_usual_rate_may_be_policed_or_held_back() {
    let lossy = changing(|at| {
        let is_lost = [0.5, 3.0, 7.0]
            .iter()
            .any(|begin| (*begin..*begin + 0.1).contains(&at));
        (60.0 + 5.0 * (at * 9.0).sin(), if is_lost { 60 } else { 0 })
    });
    let verdict = diagnose(&lossy);
    let all: Vec<&str> = verdict.candidates.iter().map(|one| one.name()).collect();
    let expected = [
        "loss/random",
        "loss/policer",
        "sender-application/idle",
        "send-buffer/tcp-wmem-max",
    ];
    assert_eq!(all, expected, "{verdict:#?}");
}

#[test]
fn a_bbr_sender_with_a_small_part_of_a_link_shares_it() {
    let crowded = Seen {
        mbps: 1.9,
        idle_ms: 13,
        rtt_ms: 26,
        out_of_order: 30,
        ..WELL
    };
    let bbr = Request {
        congestion: Some("bbr".to_owned()),
        ..Request::default()
    };
    let crowded = asked(crowded, bbr);
    assert_eq!(
        named(&crowded),
        (Limit::Loss, Cause::Policer),
        "a slow path"
    );
    let part = stated(crowded, 42);
    assert_eq!(named(&part), (Limit::Capacity, Cause::Shared));
}

#[test]
fn a_sender_that_stops_after_its_first_window_takes_the_next_for_less_than_a_segment() {
    let stops = |bytes: f64| {
        let mbps = bytes * 8.0 / 1e6 * 20.0;
        changing(move |at| (if at < 0.051 { mbps } else { 0.0 }, 0))
    };
    let verdict = diagnose(&stops(14_480.0));
    assert_eq!(
        verdict.name(),
        "receive-window/window-scale-stripped",
        "{verdict:#?}"
    );
    assert!(
        verdict.sentence.contains("less than a segment"),
        "{}",
        verdict.sentence
    );
    assert_ne!(
        named(&stops(140_000.0)).0,
        Limit::ReceiveWindow,
        "more than a handshake allows"
    );
}

#[test]
fn small_segments_on_a_full_link_are_named_from_the_receiver_too() {
    let mut full = evidence(Seen {
        rtt_ms: 200,
        window: 6_000_000,
        ..WELL
    });
    assert_eq!(named(&full).1, Cause::Link);
    for sample in &mut full.receiver_samples {
        sample.tcp.rcv_mss = Some(ByteCount::new(216));
        sample.tcp.path_mtu = Some(ByteCount::new(1500));
    }
    assert_eq!(named(&full), (Limit::Mtu, Cause::MssClamped));
}

//! Causes behind a limit that TCP shows: devices between the ends, processors, files, queues of the
//! host.

use std::net::IpAddr;

use fullpipe_diagnose::diagnose;
use fullpipe_record::{
    At, Cause, CpuSample, CpuTime, DeviceReport, Evidence, Handshake, Limit, Machine, QdiscReport,
    Sample, SocketMemory, StorageUse, SynQuote, TcpInfo,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::builder::{
    MIB, Moment, asked, capacity, evidence, moment, receive_window, samples, slow_reader, stated,
    trickle, without,
};

/// The receiver's side by its kernel: its shift, and the window that it sends.
fn receiver_says(mut evidence: Evidence, shift: u8, window: f64) -> Evidence {
    let tcp = TcpInfo {
        window_scaling: Some(true),
        rcv_wscale: Some(shift),
        rcv_wnd: Some(ByteCount::from_f64(window)),
        ..TcpInfo::default()
    };
    let at = Span::from_secs(5);
    evidence.receiver_samples = vec![Sample {
        at,
        stream: 0,
        bytes: ByteCount::ZERO,
        tcp,
        memory: None,
    }];
    evidence
}

fn unscaled(evidence: Evidence) -> Evidence {
    without(evidence, |sample| sample.tcp.window_scaling = Some(false))
}

/// Looks of so many seconds at a program that takes these shares of a processor and is kept from it
/// for `throttled`; the machine's processors do the rest of `core`.
fn processors(user: f64, system: f64, throttled: f64, core: [f64; 3]) -> Machine {
    let snapshot = |second: u64| {
        let of = |share: f64| Span::from_secs_f64(share * second as f64);
        let [user_of_core, stolen, idle] = core;
        let rest = 1.0 - user_of_core - stolen - idle;
        let core = CpuTime {
            user: of(user_of_core),
            system: of(rest),
            stolen: of(stolen),
            idle: of(idle),
            ..CpuTime::default()
        };
        let at = Span::from_secs(second);
        let throttled = Some(of(throttled));
        CpuSample {
            at,
            user: of(user),
            system: of(system),
            throttled,
            cores: vec![core],
            ..CpuSample::default()
        }
    };
    Machine {
        processors: (0..=30).map(snapshot).collect(),
        ..Machine::default()
    }
}

/// The same, with a program that waits for a processor for this share of the time.
fn waiting(mut machine: Machine, share: f64) -> Machine {
    for snapshot in &mut machine.processors {
        snapshot.waited = Some(Span::from_secs_f64(share * snapshot.at.as_secs_f64()));
    }
    machine
}

pub(crate) fn at_sender(evidence: Evidence, sender_machine: Machine) -> Evidence {
    Evidence {
        sender_machine,
        ..evidence
    }
}

fn at_receiver(evidence: Evidence, receiver_machine: Machine) -> Evidence {
    Evidence {
        receiver_machine,
        ..evidence
    }
}

fn file(busy: u64) -> Machine {
    let storage = StorageUse {
        busy: Span::from_secs(busy),
        ..StorageUse::default()
    };
    Machine {
        storage: Some(storage),
        ..Machine::default()
    }
}

pub(crate) fn device(qdisc: QdiscReport) -> Machine {
    let (name, mtu) = ("eth0".to_owned(), ByteCount::new(1500));
    let device = DeviceReport {
        name,
        mtu,
        qdiscs: vec![qdisc],
        ..DeviceReport::default()
    };
    Machine {
        device: Some(device),
        ..Machine::default()
    }
}

fn segments_of(evidence: Evidence, mss: u64) -> Evidence {
    without(evidence, move |sample| {
        sample.tcp.snd_mss = Some(ByteCount::new(mss));
    })
}

/// Ten segments that time out again and again.
pub(crate) fn black_hole() -> Evidence {
    let stalled = samples(8.0, 1, |_| Moment {
        mbps: 0.0,
        in_flight: 14_480.0,
        unsent: MIB,
        ..moment(0.0, 40.0)
    });
    let mut evidence = evidence("cubic", 40, stalled);
    evidence.loaded_rtt = Some(Span::from_millis(40));
    without(evidence, |sample| {
        sample.tcp.timeouts_in_a_row = Some(SegCount::new(5));
    })
}

pub(crate) fn paced(cc: &str, pace: u64, max: Option<u64>) -> Evidence {
    let full = samples(10.0, 1, |_| Moment {
        cwnd: 2e6,
        unsent: MIB,
        window: 6e6,
        ..moment(50.0, 100.0)
    });
    without(evidence(cc, 100, full), move |sample| {
        sample.tcp.pacing_rate = Some(BitRate::from_mbps(pace));
        sample.tcp.max_pacing_rate = max.map(BitRate::from_mbps);
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn what_lies_behind_a_limit_is_named_under_each_congestion_control() {
    let tbf = |mbps, overlimits, dropped| QdiscReport {
        kind: "tbf".to_owned(),
        rate: Some(BitRate::from_mbps(mbps)),
        overlimits,
        dropped,
        ..QdiscReport::default()
    };
    let quiet = [0.1, 0.0, 0.8];
    for cc in ["cubic", "reno", "bbr"] {
        let window = |size: f64| receive_window(cc, size, 1);
        let table = vec![
            (
                "scale stripped",
                unscaled(window(65_535.0)),
                "receive-window window-scale-stripped middlebox",
            ),
            (
                "scale as sent",
                receiver_says(window(3.0 * MIB), 10, 3.0 * MIB),
                "receive-window autotuning-stalled receiver",
            ),
            (
                "scale rewritten",
                receiver_says(window(80e3), 13, 20e6),
                "receive-window window-scale-rewritten middlebox",
            ),
            (
                "window lowered",
                receiver_says(window(1e6), 10, 20e6),
                "receive-window window-clamped middlebox",
            ),
            (
                "quota",
                at_receiver(slow_reader(cc), processors(0.02, 0.1, 0.8, quiet)),
                "cpu stolen receiver",
            ),
            (
                "hypervisor",
                at_sender(trickle(cc), processors(0.1, 0.3, 0.0, [0.3, 0.5, 0.1])),
                "cpu stolen sender",
            ),
            (
                "program",
                at_sender(trickle(cc), processors(0.8, 0.15, 0.0, [0.8, 0.0, 0.0])),
                "cpu user sender",
            ),
            (
                "kernel",
                at_receiver(slow_reader(cc), processors(0.1, 0.85, 0.0, [0.1, 0.0, 0.0])),
                "cpu system receiver",
            ),
            (
                "idle processor",
                at_sender(trickle(cc), processors(0.1, 0.3, 0.0, quiet)),
                "sender-application idle sender",
            ),
            (
                "moved between processors",
                at_sender(
                    trickle(cc),
                    waiting(processors(0.05, 0.6, 0.0, [0.2, 0.0, 0.25]), 0.4),
                ),
                "cpu system sender",
            ),
            (
                "disk that reads",
                at_sender(trickle(cc), file(9)),
                "sender-application storage sender",
            ),
            (
                "disk that writes",
                at_receiver(slow_reader(cc), file(9)),
                "receiver-application storage receiver",
            ),
            (
                "quick disk",
                at_receiver(slow_reader(cc), file(1)),
                "receiver-application slow-reader receiver",
            ),
            (
                "own shaper",
                at_sender(capacity(cc, 20.0, 1), device(tbf(98, 900, 0))),
                "pacing qdisc sender",
            ),
            (
                "shaper with room",
                at_sender(capacity(cc, 20.0, 1), device(tbf(500, 900, 0))),
                "capacity link path",
            ),
            (
                "removed shaper",
                at_sender(capacity(cc, 20.0, 1), device(tbf(50, 900, 0))),
                "capacity link path",
            ),
            (
                "own drops",
                at_sender(capacity(cc, 20.0, 1), device(tbf(98, 9, 900))),
                "capacity host-queue sender",
            ),
            (
                "small segments",
                segments_of(stated(capacity(cc, 20.0, 1), 100), 200),
                "mtu mss-clamped middlebox",
            ),
            (
                "full segments",
                segments_of(stated(capacity(cc, 20.0, 1), 100), 1448),
                "capacity link path",
            ),
            (
                "pace that was set",
                paced(cc, 52, Some(52)),
                "pacing max-pacing-rate sender",
            ),
        ];
        for (name, evidence, expected) in table {
            let verdict = diagnose(&evidence);
            let at = serde_json::to_value(verdict.at).unwrap();
            let cause = serde_json::to_value(verdict.cause).unwrap();
            let got = format!(
                "{} {} {}",
                verdict.kind.name(),
                cause.as_str().unwrap(),
                at.as_str().unwrap()
            );
            assert_eq!(got, expected, "{name} under {cc}: {verdict:#?}");
        }
    }
}

#[test]
fn the_rate_of_fq_is_for_each_stream_and_that_of_other_disciplines_for_all() {
    let cause = |kind: &str, mbps: u64| {
        let rate = Some(BitRate::from_mbps(mbps));
        let discipline = QdiscReport {
            kind: kind.to_owned(),
            rate,
            overlimits: 900,
            ..QdiscReport::default()
        };
        diagnose(&at_sender(capacity("cubic", 20.0, 4), device(discipline))).cause
    };
    assert_eq!(cause("fq", 25), Cause::Qdisc);
    assert_eq!(
        cause("fq", 98),
        Cause::Link,
        "each stream has a quarter of it"
    );
    assert_eq!(cause("tbf", 98), Cause::Qdisc);
    assert_eq!(cause("tbf", 25), Cause::Link);
}

#[test]
fn a_pace_below_the_window_is_the_congestion_controls_but_never_bbrs() {
    for cc in ["cubic", "reno"] {
        let verdict = diagnose(&paced(cc, 53, None));
        assert_eq!(
            (verdict.kind, verdict.cause),
            (Limit::Pacing, Cause::CongestionControl),
            "{verdict:#?}"
        );
    }
    assert_ne!(diagnose(&paced("bbr", 53, None)).kind, Limit::Pacing);
    let unpaced = diagnose(&paced("cubic", 200, None));
    assert_eq!(
        (unpaced.kind, unpaced.cause),
        (Limit::Pacing, Cause::Qdisc),
        "the host's own queue holds it"
    );
}

#[test]
fn nothing_lies_behind_a_rate_that_was_asked_for_and_is_reached() {
    let busy = processors(0.8, 0.15, 0.0, [0.8, 0.0, 0.0]);
    let cause = |mbps: u64, machine: &Machine| {
        let mut evidence = at_sender(trickle("cubic"), machine.clone());
        evidence.request.rate = Some(BitRate::from_mbps(mbps));
        diagnose(&evidence).cause
    };
    assert_eq!(
        [cause(40, &busy), cause(40, &file(9))],
        [Cause::RateLimited; 2]
    );
    assert_eq!(
        [cause(60, &busy), cause(60, &file(9))],
        [Cause::User, Cause::Storage],
        "the rate is not reached"
    );
}

#[test]
fn no_queue_of_the_host_lies_behind_a_link_that_carries_all_it_can() {
    let tbf = |mbps, dropped| {
        let rate = Some(BitRate::from_mbps(mbps));
        device(QdiscReport {
            kind: "tbf".to_owned(),
            rate,
            overlimits: 900,
            dropped,
            ..QdiscReport::default()
        })
    };
    let cause = |stated_mbps: u64, machine: Machine| {
        diagnose(&at_sender(
            stated(capacity("cubic", 20.0, 1), stated_mbps),
            machine,
        ))
        .cause
    };
    assert_eq!(
        [cause(100, tbf(98, 0)), cause(100, tbf(500, 900))],
        [Cause::Link; 2]
    );
    // Of 104 Mbit/s nine tenths and more are carried, but not all.
    assert_eq!(
        [cause(104, tbf(98, 0)), cause(104, tbf(500, 900))],
        [Cause::Qdisc, Cause::HostQueue]
    );
}

#[test]
fn a_pace_just_above_a_full_link_is_not_the_limit() {
    let paced = |mbps: u64| {
        let full = without(capacity("cubic", 20.0, 1), |sample| {
            let pace = Some(BitRate::from_mbps(mbps));
            (sample.tcp.pacing_rate, sample.tcp.max_pacing_rate) = (pace, pace);
        });
        diagnose(&full).cause
    };
    assert_eq!(paced(100), Cause::Link);
    assert_eq!(paced(95), Cause::MaxPacingRate, "all of it is reached");
}

#[test]
fn full_segments_that_vanish_are_a_black_hole_only_while_small_ones_pass() {
    let verdict = diagnose(&black_hole());
    assert_eq!(
        (verdict.kind, verdict.cause, verdict.at),
        (Limit::Mtu, Cause::BlackHole, At::Path),
        "{verdict:#?}"
    );
    // Without echo requests the handshake shows it, if nothing else ever passed.
    let watched = || Evidence {
        loaded_rtt: None,
        ..black_hole()
    };
    assert_eq!(diagnose(&watched()).kind, Limit::Mtu);
    for evidence in [watched(), black_hole()] {
        let lossy = without(evidence, |sample| {
            sample.tcp.bytes_acked = Some(ByteCount::from_mib(1));
        });
        assert_ne!(diagnose(&lossy).kind, Limit::Mtu, "full ones have passed");
    }
    let mut unanswered = black_hole();
    unanswered.receiver_samples = vec![unanswered.sender_samples[0].clone()];
    unanswered.receiver_samples[0].tcp.bytes_received = Some(ByteCount::new(1_448));
    assert_ne!(
        diagnose(&unanswered).kind,
        Limit::Mtu,
        "one has arrived, and its acknowledgement was lost"
    );
}

#[test]
fn a_limit_that_changes_half_way_is_reported_with_the_other() {
    // Six seconds at a window of 3 MiB, then four in which the program has little to send.
    let full = samples(12.0, 1, |t| {
        let held = Moment {
            window: 3.0 * MIB,
            cwnd: 5.0 * MIB,
            sndbuf: 12.0 * MIB,
            unsent: 3.0 * MIB,
            rwnd_limited: 1.0,
            in_flight: 3.0 * MIB,
            ..moment(251.0, 100.0)
        };
        let slow = Moment {
            window: 3.0 * MIB,
            cwnd: 5.0 * MIB,
            sndbuf: 12.0 * MIB,
            unsent: 0.0,
            app_limited: true,
            ..moment(40.0, 100.0)
        };
        if t < 7.0 { held } else { slow }
    });
    let verdict = diagnose(&evidence("cubic", 100, full));
    let all: Vec<Limit> = std::iter::once(verdict.kind)
        .chain(verdict.others.iter().map(|other| other.kind))
        .collect();
    assert!(
        all.contains(&Limit::ReceiveWindow) && all.contains(&Limit::SenderApplication),
        "{verdict:#?}"
    );
    assert!(
        verdict.others.iter().all(|other| other.share.get() > 0.3),
        "{verdict:#?}"
    );
}

#[test]
fn a_misread_window_is_reported_with_its_factor() {
    // The receiver shifts by 10; the sender knows of no shift.
    let verdict = diagnose(&receiver_says(
        unscaled(receive_window("cubic", 64e3, 1)),
        10,
        20e6,
    ));
    assert_eq!(
        (verdict.cause, verdict.at),
        (Cause::WindowScaleStripped, At::Middlebox),
        "{verdict:#?}"
    );
    assert!(
        verdict
            .sentence
            .contains("the sender takes it for 1/1024 of itself"),
        "{}",
        verdict.sentence
    );
    let alike = diagnose(&receiver_says(
        receive_window("cubic", 3.0 * MIB, 1),
        10,
        3.0 * MIB,
    ));
    assert!(
        !alike.sentence.contains("takes it for"),
        "{}",
        alike.sentence
    );
}

/// As the sender alone sees it, with what was answered in the handshake.
fn answered(mut evidence: Evidence, window: u64, options_overwritten: Option<bool>) -> Evidence {
    evidence.receiver = None;
    evidence.sender_sockets[0].handshake = Some(Handshake {
        window: Some(ByteCount::new(window)),
        options_overwritten,
    });
    evidence
}

#[test]
fn the_handshake_shows_a_sender_the_work_of_a_device_on_windows() {
    let unscaled = || unscaled(receive_window("cubic", 65_535.0, 1));
    let scaled = |shift| {
        without(receive_window("cubic", 2e6, 1), move |sample| {
            sample.tcp.window_scaling = Some(true);
            sample.tcp.snd_wscale = Some(shift);
            sample.tcp.snd_wnd = Some(ByteCount::new(1_600 << 10));
        })
    };
    // What was 64 KiB, shifted by 4.
    let shrunk = || self::unscaled(receive_window("cubic", 4095.0, 1));
    let small = || {
        without(receive_window("cubic", 20e3, 1), move |sample| {
            sample.tcp.window_scaling = Some(true);
            sample.tcp.snd_wscale = Some(7);
            sample.tcp.snd_wnd = Some(ByteCount::new(21_888));
        })
    };
    for (name, evidence, expected) in vec![
        (
            "a small buffer from the first",
            answered(small(), 17_376, None),
            (Cause::TcpRmemMax, At::Receiver),
        ),
        (
            "small since the scale",
            answered(small(), 64_240, None),
            (Cause::WindowScaleRewritten, At::Middlebox),
        ),
        (
            "option overwritten",
            answered(unscaled(), 65_160, Some(true)),
            (Cause::WindowScaleStripped, At::Middlebox),
        ),
        (
            "a scale that nobody agreed to",
            answered(shrunk(), 65_160, None),
            (Cause::WindowScaleStripped, At::Middlebox),
        ),
        (
            "small from the first",
            answered(shrunk(), 5792, None),
            (Cause::NoWindowScaling, At::Receiver),
        ),
        (
            "option never there",
            answered(unscaled(), 65_160, Some(false)),
            (Cause::NoWindowScaling, At::Receiver),
        ),
        (
            "handshake not captured",
            answered(unscaled(), 65_160, None),
            (Cause::NoWindowScaling, At::Receiver),
        ),
        (
            "the same field ever since",
            answered(scaled(10), 1_600, None),
            (Cause::WindowClamped, At::Middlebox),
        ),
        (
            "a window that grew",
            answered(scaled(10), 65_160, None),
            (Cause::TcpRmemMax, At::Receiver),
        ),
        (
            "a window without a scale",
            answered(scaled(0), 1_600 << 10, None),
            (Cause::TcpRmemMax, At::Receiver),
        ),
        (
            "a scale that cannot be",
            answered(scaled(255), 1_600, None),
            (Cause::TcpRmemMax, At::Receiver),
        ),
    ] {
        let verdict = diagnose(&evidence);
        assert_eq!(verdict.kind, Limit::ReceiveWindow, "{name}: {verdict:#?}");
        assert_eq!(
            (verdict.cause, verdict.at),
            expected,
            "{name}: {verdict:#?}"
        );
    }
}

#[test]
fn a_buffer_that_was_tuned_to_the_end_is_not_fixed_however_little_of_it_is_window() {
    // A driver that takes 4864 bytes of memory for a segment of 1448 leaves less than a third of
    // the buffer as window.
    let window = (32_u64 << 20) as f64 * 1448.0 / 4864.0 * 0.9;
    let cause = |rcvbuf: Option<u64>| {
        let mut seen = receiver_says(receive_window("cubic", window, 1), 10, window);
        seen.receiver_samples[0].memory = rcvbuf.map(|bytes| SocketMemory {
            rcvbuf: ByteCount::new(bytes),
            ..SocketMemory::default()
        });
        diagnose(&seen).cause
    };
    assert_eq!(cause(Some(32 << 20)), Cause::TcpRmemMax);
    assert_eq!(cause(Some(16 << 20)), Cause::AutotuningStalled);
    assert_eq!(
        cause(None),
        Cause::AutotuningStalled,
        "only the window is seen"
    );
}

/// Windows of 20 kB under a scale, as a sender sees them that has its `first` of the handshake,
/// after `acked` bytes.
fn small_under_a_scale(first: Option<u64>, acked: u64) -> Evidence {
    let mut evidence = without(receive_window("cubic", 20e3, 1), |sample| {
        sample.tcp.snd_wscale = Some(7);
        for bytes in [&mut sample.tcp.bytes_acked, &mut sample.tcp.bytes_sent]
            .into_iter()
            .flatten()
        {
            *bytes += ByteCount::new(acked);
        }
    });
    evidence.receiver = None;
    let window = first.map(ByteCount::new);
    evidence.sender_sockets[0].handshake = window.map(|_| Handshake {
        window,
        options_overwritten: None,
    });
    evidence
}

#[test]
fn small_windows_under_a_scale_may_be_of_a_buffer_that_was_fixed_after_the_handshake() {
    let causes = |evidence: &Evidence| {
        let verdict = diagnose(evidence);
        verdict
            .candidates
            .iter()
            .map(|one| one.cause)
            .collect::<Vec<_>>()
    };
    let several = [Cause::WindowScaleRewritten, Cause::SoRcvbuf];
    assert_eq!(
        causes(&small_under_a_scale(None, 0)),
        several,
        "the handshake is not known"
    );
    assert_eq!(
        causes(&small_under_a_scale(Some(64_240), 64_240)),
        several,
        "all that it allowed has come"
    );
    let taken_back = small_under_a_scale(Some(64_240), 0);
    assert_eq!(diagnose(&taken_back).cause, Cause::WindowScaleRewritten);
    assert!(
        causes(&taken_back).is_empty(),
        "no host takes back what it has allowed"
    );
    let by_request = diagnose(&asked(small_under_a_scale(None, 0), 10_000));
    assert_eq!(by_request.cause, Cause::SoRcvbuf, "{by_request:#?}");
    let mut larger_at_first = small_under_a_scale(None, 0);
    larger_at_first.sender_samples[0].tcp.snd_wnd = Some(ByteCount::new(50_000));
    assert_ne!(
        diagnose(&larger_at_first).cause,
        Cause::WindowScaleRewritten,
        "a window that its scale was needed for"
    );
}

#[test]
fn routers_show_a_sender_where_its_offer_is_lost() {
    let quoted = |hop: u8, window_scale| SynQuote {
        hop,
        by: IpAddr::from([192, 0, 2, hop]),
        window_scale,
        mss: Some(ByteCount::new(1460)),
    };
    let stated = |quoted: &[SynQuote]| {
        let mut evidence = answered(
            unscaled(receive_window("cubic", 65_535.0, 1)),
            65_160,
            Some(false),
        );
        evidence.sender_sockets[0].syn_quotes = quoted.to_vec();
        diagnose(&evidence)
    };
    let lost = stated(&[quoted(1, Some(10)), quoted(4, Some(10)), quoted(5, None)]);
    assert_eq!(
        (lost.cause, lost.at),
        (Cause::WindowScaleStripped, At::Middlebox),
        "{lost:#?}"
    );
    assert!(
        lost.sentence
            .contains("a device between 192.0.2.4 and 192.0.2.5 removes"),
        "{}",
        lost.sentence
    );
    assert!(
        lost.evidence["SYN as quoted by routers"].ends_with("no scale, MSS 1460 at 192.0.2.5"),
        "{lost:#?}"
    );
    let at_once = stated(&[quoted(1, None)]);
    assert!(
        at_once
            .sentence
            .contains("a device between the sender and 192.0.2.1 removes"),
        "{}",
        at_once.sentence
    );
    let kept = stated(&[quoted(1, Some(10)), quoted(2, Some(10))]);
    assert_eq!(
        (kept.cause, kept.at),
        (Cause::NoWindowScaling, At::Receiver),
        "{kept:#?}"
    );
    assert!(!kept.evidence.contains_key("SYN as quoted by routers"));
}

#[test]
fn what_a_limit_was_traced_from_is_no_other_limit() {
    let quota = at_receiver(
        slow_reader("cubic"),
        processors(0.02, 0.1, 0.8, [0.1, 0.0, 0.8]),
    );
    for evidence in [
        quota,
        at_receiver(slow_reader("cubic"), file(9)),
        unscaled(receive_window("cubic", 65_535.0, 1)),
    ] {
        let verdict = diagnose(&evidence);
        let again = |kind| verdict.others.iter().any(|other| other.kind == kind);
        assert!(
            !again(Limit::ReceiverApplication) && !again(Limit::ReceiveWindow),
            "{verdict:#?}"
        );
    }
}

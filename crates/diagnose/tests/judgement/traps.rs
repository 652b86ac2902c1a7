//! Fields of the kernel that mislead, each seen on Linux 6.18 (T1 to T5 of the reference).

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Cause, Evidence, Limit, Sample, TcpInfo};
use fullpipe_units::{ByteCount, Span};

use crate::builder::{
    self, MIB, Moment, Writes, asked, moment, receive_window, samples, send_buffer, without,
};

#[test]
fn t1_under_bbr_a_limit_that_is_always_there_shows_as_half() {
    let verdict = diagnose(&receive_window("bbr", 90e3, 1));
    assert_eq!(verdict.kind, Limit::ReceiveWindow);
    assert_eq!(
        verdict.evidence["rwnd_limited"],
        "54 % of the time data was under way, by the kernel's clock"
    );
    assert!(verdict.share.get() > 0.95, "{}", verdict.share);
}

#[test]
fn t1_the_clock_alone_does_not_make_it_the_window() {
    // The clock ran for half of the time, but no more than a fifth of the window was ever in use.
    for congestion in ["bbr", "cubic"] {
        let full = samples(10.0, 1, |_| Moment {
            rwnd_limited: 0.55,
            window: 5.0 * MIB,
            ..moment(80.0, 100.0)
        });
        assert_ne!(
            diagnose(&builder::evidence(congestion, 100, full)).kind,
            Limit::ReceiveWindow,
            "{congestion}"
        );
    }
}

#[test]
fn t2_a_small_send_buffer_resembles_an_idle_program() {
    // SO_SNDBUF of 16 kB: app_limited, with 1.5 % of sndbuf_limited.
    for congestion in ["cubic", "bbr"] {
        let evidence = asked(send_buffer(congestion, 32_768.0, Writes::Sleeping), 16_384);
        let last = evidence.sender_samples.last().unwrap();
        assert_eq!(last.tcp.app_limited, Some(true));
        assert!(last.tcp.sndbuf_limited.unwrap() < last.at.scale_by(0.02));
        let verdict = diagnose(&evidence);
        assert_eq!(
            (verdict.kind, verdict.cause),
            (Limit::SendBuffer, Cause::SoSndbuf),
            "{verdict:#?}"
        );
    }
}

#[test]
fn t2_a_half_empty_send_buffer_is_the_programs_doing() {
    let evidence = without(
        send_buffer("cubic", 4.0 * MIB, Writes::Sleeping),
        |sample| {
            sample.memory.as_mut().unwrap().sndbuf = ByteCount::from_mib(16);
        },
    );
    assert_eq!(diagnose(&evidence).kind, Limit::SenderApplication);
}

#[test]
fn t3_a_receiver_without_scaling_advertises_no_more_than_the_header_holds() {
    // The sending kernel does not report the window; the receiving one claims 1 795 520 bytes.
    let mut evidence = without(receive_window("cubic", 65_535.0, 1), |sample| {
        sample.tcp.snd_wnd = None;
        sample.tcp.window_scaling = Some(false);
    });
    evidence.receiver.as_mut().unwrap().window_scaling = false;
    evidence.receiver_samples = vec![Sample {
        at: Span::from_millis(50),
        stream: 0,
        bytes: ByteCount::ZERO,
        tcp: TcpInfo {
            window_scaling: Some(false),
            rcv_wscale: Some(7),
            rcv_wnd: Some(ByteCount::new(1_795_520)),
            ..TcpInfo::default()
        },
        memory: None,
    }];
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause),
        (Limit::ReceiveWindow, Cause::NoWindowScaling),
        "{verdict:#?}"
    );
    assert_eq!(
        verdict.ceilings[&Limit::ReceiveWindow].to_string(),
        "5.243 Mbit/s"
    );
    assert!(
        verdict.sentence.contains("64 KiB") && verdict.sentence.contains("scaling is off"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn t4_a_delivery_rate_under_another_limit_is_no_capacity() {
    for congestion in ["cubic", "bbr"] {
        for evidence in [
            receive_window(congestion, 3.0 * MIB, 1),
            send_buffer(congestion, 4.0 * MIB, Writes::Retrying),
            builder::trickle(congestion),
        ] {
            assert!(
                evidence
                    .sender_samples
                    .last()
                    .unwrap()
                    .tcp
                    .delivery_rate
                    .is_some()
            );
            let verdict = diagnose(&evidence);
            assert_ne!(verdict.kind, Limit::Capacity, "{verdict:#?}");
            assert!(
                !verdict.ceilings.contains_key(&Limit::Capacity),
                "{verdict:#?}"
            );
        }
    }
}

#[test]
fn t5_a_least_rtt_from_the_handshake_is_no_sign_of_a_queue() {
    // At 5 Mbit/s a full segment takes 2.4 ms on the line, a SYN next to nothing: 8 ms and 12 ms
    // without any queue.
    let mut evidence = builder::evidence(
        "reno",
        8,
        samples(10.0, 1, |t| Moment {
            unsent: 30e3,
            ..moment(4.0 + 0.4 * t, 12.0)
        }),
    );
    evidence
        .sender_samples
        .iter_mut()
        .for_each(|sample| sample.tcp.min_rtt = Some(Span::from_millis(8)));
    let verdict = diagnose(&evidence);
    assert_eq!(
        (verdict.kind, verdict.cause),
        (Limit::CongestionWindow, Cause::EarlyExit),
        "{verdict:#?}"
    );
}

/// The evidence of twelve streams of which one more is added each second, at `moment` of their
/// number.
fn added_one_by_one(moment: impl Fn(f64) -> Moment) -> Evidence {
    let mut added = samples(12.0, 12, |t| moment(t.floor() + 1.0));
    added.retain_mut(|sample| {
        let begun = Span::from_secs(sample.stream.into());
        sample.tcp.busy = sample.tcp.busy.map(|busy| busy.saturating_sub(begun));
        sample.at > begun
    });
    builder::evidence("cubic", 20, added)
}

#[test]
fn a_stream_that_was_added_was_not_idle_before() {
    let full = added_one_by_one(|streams| moment(94.15 / streams, 56.0));
    assert_eq!(diagnose(&full).kind, Limit::Capacity);
    let slow = added_one_by_one(|streams| Moment {
        busy: 0.5,
        in_flight: 0.0,
        unsent: 0.0,
        app_limited: true,
        ..moment(10.0 / streams, 20.0)
    });
    assert_eq!(diagnose(&slow).kind, Limit::SenderApplication);
}

#[test]
fn what_waits_for_a_window_was_written_in_time_whatever_was_acknowledged_last() {
    // The kernel says of the data acknowledged last that its program was late, a round trip ago.
    let judged = |in_flight: f64, unsent: f64| {
        let full = moment(94.15, 80.0);
        let samples = samples(10.0, 1, |_| Moment {
            in_flight: full.in_flight * in_flight,
            unsent,
            sndbuf: full.in_flight * 8.0,
            app_limited: true,
            ..full.clone()
        });
        diagnose(&builder::evidence("cubic", 40, samples)).kind
    };
    assert_eq!(judged(1.0, 50e3), Limit::Capacity);
    assert_eq!(judged(0.5, 0.0), Limit::SenderApplication);
}

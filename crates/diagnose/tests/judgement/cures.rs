//! Remedies for each limit, and their predicted gain.

use std::cmp::Reverse;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{
    At, Buffer, Change, DeviceReport, Evidence, Forecast, Machine, Remedy, Scope,
};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::builder::{
    self, MIB, Moment, Writes, asked, capacity, idle, moment, receive_window, samples, sawtooth,
    send_buffer, slow_reader, stated, without,
};

fn advice(evidence: &Evidence) -> Vec<Remedy> {
    find_remedies(evidence, &diagnose(evidence))
}

fn ids(remedies: &[Remedy]) -> Vec<&str> {
    remedies.iter().map(|remedy| remedy.id.as_str()).collect()
}

/// The remedy of this name.
fn named<'r>(remedies: &'r [Remedy], id: &str) -> &'r Remedy {
    remedies
        .iter()
        .find(|remedy| remedy.id == id)
        .unwrap_or_else(|| panic!("no {id}: {:?}", ids(remedies)))
}

fn predicted(remedy: &Remedy) -> Forecast {
    remedy
        .predicted
        .unwrap_or_else(|| panic!("no prediction: {remedy:#?}"))
}

#[test]
fn a_full_send_buffer_grows_to_what_the_path_needs() {
    let got = advice(&stated(
        send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
        1000,
    ));
    // A buffer of two BDPs fills a queue with the second, which BBR does not; three streams hold
    // little more than one.
    assert_eq!(
        ids(&got),
        [
            "raise-tcp-wmem-with-bbr",
            "parallel-streams",
            "raise-tcp-wmem",
            "relays"
        ]
    );
    let [bbr, streams, raised, relays] = &got[..] else {
        panic!("{got:#?}")
    };
    // Twice 12.5 MB; the receiver's 32 MiB are enough.
    assert_eq!(
        raised.changes,
        [Change::TcpWmemMax(ByteCount::from_mib(24))]
    );
    // Three times under BBR, whose own buffers the kernel lets grow to that; it was twice.
    let of_bbr = [
        Change::TcpWmemMax(ByteCount::from_mib(36)),
        Change::CongestionControl("bbr".to_owned()),
    ];
    assert_eq!(bbr.changes, of_bbr);
    assert!(
        bbr.why.contains("3 × 11.92 MiB") && raised.why.contains("2 × 11.92 MiB"),
        "{bbr:?} {raised:?}"
    );
    assert_eq!((raised.scope, raised.at), (Scope::Namespace, At::Sender));
    let forecast = predicted(raised);
    assert_eq!(forecast.bits_per_second.to_string(), "941.5 Mbit/s");
    assert!(
        forecast.low > BitRate::from_mbps(900) && forecast.high <= BitRate::from_mbps(1000),
        "{forecast:?}"
    );
    // Three of 327 Mbit/s fill it.
    assert_eq!(streams.changes, [Change::Streams(3)]);
    assert_eq!(
        predicted(streams).bits_per_second.to_string(),
        "941.5 Mbit/s"
    );
    let round_trips = |remedy: &Remedy| {
        remedy
            .rtt
            .and_then(|rtt| Some((rtt.low, rtt.high?)))
            .unwrap()
    };
    let idle = Span::from_millis(100);
    assert_eq!(round_trips(bbr), (idle, Span::from_millis(208)));
    let (low, high) = round_trips(raised);
    assert!(
        low == idle && high > Span::from_millis(160) && high < Span::from_millis(200),
        "{high}"
    );
    assert_eq!(
        predicted(relays).bits_per_second.to_string(),
        "941.5 Mbit/s"
    );
    assert!(
        relays.changes.is_empty() && relays.at == At::Path,
        "{relays:?}"
    );
}

#[test]
fn without_bbr_or_a_bandwidth_the_queue_is_not_avoided() {
    let mut evidence = stated(send_buffer("cubic", 4.0 * MIB, Writes::Retrying), 1000);
    let unstated = Evidence {
        bandwidth: None,
        ..evidence.clone()
    };
    assert!(
        advice(&unstated)
            .iter()
            .all(|remedy| remedy.rtt.is_none() && !remedy.id.ends_with("bbr"))
    );
    // A rate that is promised over a path of which nothing is known bounds nothing.
    let unbounded = |remedy: &Remedy| {
        remedy
            .predicted
            .is_none_or(|forecast| forecast.capacity_unknown)
    };
    assert!(advice(&unstated).iter().all(unbounded) && !advice(&evidence).iter().any(unbounded));
    evidence
        .sender
        .as_mut()
        .unwrap()
        .available_congestion_controls = vec!["cubic".to_owned()];
    assert_eq!(
        ids(&advice(&evidence)),
        ["parallel-streams", "raise-tcp-wmem", "relays"]
    );
}

#[test]
fn the_receive_buffer_that_would_be_next_is_raised_with_it() {
    let mut evidence = stated(send_buffer("cubic", 4.0 * MIB, Writes::Retrying), 1000);
    evidence.receiver.as_mut().unwrap().tcp_rmem.max = ByteCount::from_mib(10);
    let got = advice(&evidence);
    let raised = named(&got, "raise-tcp-wmem");
    assert_eq!(
        raised.changes,
        [
            Change::TcpWmemMax(ByteCount::from_mib(24)),
            Change::TcpRmemMax(ByteCount::from_mib(39))
        ]
    );
    assert_eq!(
        predicted(raised).bits_per_second.to_string(),
        "941.5 Mbit/s"
    );
}

#[test]
fn without_a_bandwidth_the_prediction_is_an_interval_from_the_present() {
    let evidence = send_buffer("cubic", 4.0 * MIB, Writes::Retrying);
    let got = advice(&evidence);
    assert_eq!(
        got[0].changes,
        [Change::TcpWmemMax(ByteCount::from_mib(16))]
    );
    let forecast = predicted(&got[0]);
    assert_eq!(
        forecast.low,
        evidence.steady.unwrap().rate.scale_by(0.95),
        "a little below the present rate"
    );
    assert!(forecast.high > BitRate::from_mbps(1000), "{forecast:?}");
    assert!(got[0].why.contains("not known"), "{}", got[0].why);
    assert_eq!(got[1].changes, [Change::Streams(4)]);
}

#[test]
fn a_path_of_unknown_bandwidth_is_promised_no_more_than_four_times_the_present_rate() {
    for evidence in [
        send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
        receive_window("cubic", 64e3, 1),
    ] {
        let present = diagnose(&evidence).ceilings[&diagnose(&evidence).kind];
        for remedy in advice(&evidence)
            .iter()
            .filter(|remedy| remedy.predicted.is_some())
        {
            let forecast = predicted(remedy);
            assert!(
                forecast.high <= present.scale_by(4.3),
                "{}: {forecast:?} of {present}",
                remedy.id
            );
            assert!(
                forecast.low <= forecast.bits_per_second
                    && forecast.bits_per_second <= forecast.high
            );
        }
    }
}

#[test]
fn within_a_host_no_rate_is_promised() {
    let mut evidence = send_buffer("cubic", 4.0 * MIB, Writes::Retrying);
    assert!(advice(&evidence)[0].predicted.is_some());
    let device = DeviceReport {
        name: "lo".to_owned(),
        ..DeviceReport::default()
    };
    evidence.sender_machine = Machine {
        device: Some(device),
        ..Machine::default()
    };
    let got = advice(&evidence);
    assert!(
        !got.is_empty() && got.iter().all(|remedy| remedy.predicted.is_none()),
        "{got:#?}"
    );
}

#[test]
fn unknown_hosts_still_get_sizes_and_no_certainty() {
    let mut evidence = stated(send_buffer("cubic", 4.0 * MIB, Writes::Retrying), 1000);
    (evidence.sender, evidence.receiver) = (None, None);
    let got = advice(&evidence);
    assert_eq!(
        got[0].changes,
        [Change::TcpWmemMax(ByteCount::from_mib(24))],
        "{got:#?}"
    );
    let forecast = predicted(&got[0]);
    assert_eq!(
        forecast.low,
        evidence.steady.unwrap().rate.scale_by(0.95),
        "a little below the present rate"
    );
    assert_eq!(forecast.bits_per_second.to_string(), "941.5 Mbit/s");

    // Nothing is known that would bound it: sizes, but no rate.
    evidence.bandwidth = None;
    evidence = asked(evidence, 1 << 21);
    let got = advice(&evidence);
    let expected = [
        "larger-socket-buffer",
        "parallel-streams",
        "let-the-kernel-tune",
        "relays",
    ];
    assert_eq!(ids(&got), expected, "{got:#?}");
    assert_eq!(named(&got, "let-the-kernel-tune").predicted, None);
}

#[test]
fn a_small_tcp_rmem_is_raised_and_the_send_buffer_with_it() {
    let mut evidence = stated(receive_window("cubic", 3.0 * MIB, 1), 1000);
    evidence.receiver.as_mut().unwrap().tcp_rmem.max = ByteCount::from_mib(5);
    let got = advice(&evidence);
    let raised = named(&got, "raise-tcp-rmem");
    assert_eq!(raised.at, At::Receiver);
    assert_eq!(
        raised.changes,
        [
            Change::TcpRmemMax(ByteCount::from_mib(39)),
            Change::TcpWmemMax(ByteCount::from_mib(24))
        ]
    );
    assert_eq!(
        predicted(raised).bits_per_second.to_string(),
        "941.5 Mbit/s"
    );
}

#[test]
fn a_fixed_buffer_is_best_left_to_the_kernel() {
    let got = advice(&stated(
        asked(receive_window("cubic", 65_536.0, 1), 52_000),
        1000,
    ));
    // Tuned by the kernel it ends at tcp_wmem; with that raised too, the pipe is full.
    assert_eq!(
        ids(&got),
        [
            "raise-tcp-wmem-with-bbr",
            "raise-tcp-wmem",
            "parallel-streams",
            "larger-socket-buffer",
            "let-the-kernel-tune",
            "relays"
        ],
        "{got:#?}"
    );
    assert_eq!(got[0].changes[0], Change::SocketBuffer(Buffer::Automatic));
    // 185 of them would fill it.
    assert_eq!(
        named(&got, "parallel-streams").changes,
        [Change::Streams(128)]
    );
    // The path would take 12 MiB; the hosts grant 4.
    let larger = named(&got, "larger-socket-buffer");
    assert_eq!(
        larger.changes,
        [Change::SocketBuffer(Buffer::Request(ByteCount::from_mib(
            4
        )))]
    );
    assert!(larger.why.contains("rmem_max"), "{}", larger.why);
    let tuned = named(&got, "let-the-kernel-tune");
    assert_eq!(predicted(tuned).bits_per_second.to_string(), "324.9 Mbit/s");
    assert_eq!(
        (&tuned.changes[..], tuned.scope),
        (
            &[Change::SocketBuffer(Buffer::Automatic)][..],
            Scope::Socket
        )
    );
}

#[test]
fn a_remedy_without_gain_is_left_out() {
    // A request of 2 MiB is stored as 4 MiB, which is also where the kernel's tuning ends.
    let got = advice(&asked(
        send_buffer("cubic", 4.0 * MIB, Writes::Retrying),
        2 << 20,
    ));
    assert_eq!(
        ids(&got),
        ["parallel-streams", "larger-socket-buffer", "relays"],
        "{got:#?}"
    );
}

#[test]
fn receive_buffers_that_are_not_tuned_are_tuned() {
    let mut evidence = stated(receive_window("cubic", 80e3, 1), 100);
    evidence.receiver.as_mut().unwrap().moderate_rcvbuf = false;
    let got = advice(&evidence);
    let tuned = named(&got, "let-the-kernel-tune");
    assert_eq!(tuned.changes, [Change::ModerateRcvbuf(true)]);
    assert_eq!(predicted(tuned).bits_per_second.to_string(), "94.15 Mbit/s");
}

#[test]
fn scaling_is_switched_on_at_the_end_that_has_it_off() {
    let mut evidence = without(
        stated(receive_window("cubic", 65_535.0, 1), 100),
        |sample| {
            sample.tcp.window_scaling = Some(false);
        },
    );
    evidence.receiver.as_mut().unwrap().window_scaling = false;
    let got = advice(&evidence);
    let scaled = named(&got, "enable-window-scaling");
    assert_eq!(scaled.at, At::Receiver);
    assert_eq!(
        predicted(scaled).bits_per_second.to_string(),
        "94.15 Mbit/s"
    );
    // Both offer it: a device between them takes it away, and no setting of theirs brings it back.
    evidence.receiver.as_mut().unwrap().window_scaling = true;
    assert!(
        ids(&advice(&evidence))
            .iter()
            .all(|id| !id.starts_with("enable-window-scaling"))
    );
}

#[test]
fn against_loss_there_is_bbr_and_there_are_more_streams() {
    let losses = [3.0, 4.2, 13.1, 15.0, 24.3, 30.9, 31.8, 43.0, 47.7, 58.1];
    let mut evidence = stated(sawtooth("cubic", 60.0, &losses, 1.7, 0.7, 24.0), 100);
    let got = advice(&evidence);
    assert_eq!(
        ids(&got),
        [
            "congestion-control-bbr",
            "parallel-streams",
            "mend-the-path"
        ],
        "{got:#?}"
    );
    let [bbr, streams] = [predicted(&got[0]), predicted(&got[1])];
    assert!(
        matches!(got[1].changes[..], [Change::Streams(3..=5)]),
        "{got:#?}"
    );
    assert!(
        streams.low < streams.bits_per_second,
        "chance has a part in loss: {streams:?}"
    );
    assert!(
        (90.0..=94.2).contains(&bbr.bits_per_second.as_mbps()),
        "{bbr:?}"
    );

    evidence
        .sender
        .as_mut()
        .unwrap()
        .available_congestion_controls = vec!["cubic".to_owned()];
    assert_eq!(
        ids(&advice(&evidence)),
        ["parallel-streams", "mend-the-path"]
    );
}

#[test]
fn a_full_pipe_has_no_cure() {
    let got = advice(&stated(capacity("cubic", 20.0, 1), 100));
    assert_eq!(ids(&got), ["none"]);
    assert_eq!(
        (got[0].predicted, got[0].changes.len(), got[0].at),
        (None, 0, At::Path)
    );
}

#[test]
fn programs_and_short_transfers_are_for_people() {
    let ramp = samples(0.9, 1, |t| Moment {
        ssthresh: None,
        ..moment(1.158 * 2.0_f64.powf(t / 0.1), 100.0)
    });
    for (evidence, id) in [
        (
            stated(builder::evidence("cubic", 100, ramp), 1000),
            "longer-transfer",
        ),
        (idle("cubic"), "faster-writer"),
        (slow_reader("cubic"), "faster-reader"),
    ] {
        let got = advice(&evidence);
        assert_eq!(ids(&got), [id]);
        assert!(got[0].changes.is_empty());
        assert!(got[0].why.ends_with('.'));
    }
}

#[test]
fn an_unknown_limit_gets_no_advice() {
    assert_eq!(advice(&builder::evidence("cubic", 100, vec![])), []);
}

#[test]
fn the_best_comes_first_and_the_narrower_of_two_alike() {
    for evidence in [
        stated(send_buffer("cubic", 4.0 * MIB, Writes::Retrying), 1000),
        stated(asked(receive_window("cubic", 65_536.0, 1), 52_000), 1000),
        send_buffer("bbr", 4.0 * MIB, Writes::Sleeping),
    ] {
        let mut got = advice(&evidence);
        // They need machines, whatever they carry.
        got.pop_if(|last| last.id == "relays");
        let rate = |remedy: &Remedy| remedy.predicted.map(|forecast| forecast.bits_per_second);
        let fast = got.iter().filter_map(rate).max().unwrap().scale_by(0.95);
        let (fastest, others) = got.split_at(
            got.iter()
                .take_while(|remedy| rate(remedy) >= Some(fast))
                .count(),
        );
        assert!(
            got.len() >= 2
                && !fastest.is_empty()
                && others.iter().all(|remedy| rate(remedy) < Some(fast))
        );
        assert!(
            others
                .iter()
                .map(|one| (Reverse(rate(one)), one.scope))
                .is_sorted(),
            "{got:#?}"
        );
        let short = |one: &&Remedy| {
            let factor = if one.id.ends_with("-bbr") { 2.0 } else { 1.25 };
            let most = |low: Span| low.scale_by(factor) + Span::from_millis(8);
            one.rtt
                .is_some_and(|rtt| rtt.high.is_some_and(|high| high <= most(rtt.low)))
        };
        assert!(
            fastest.iter().skip_while(short).all(|one| !short(&one)),
            "a queue before none: {got:#?}"
        );
    }
}

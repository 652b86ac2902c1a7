//! Remedies that a program can carry out, of limits that were once for people alone.

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{At, Cause, Change, Evidence, Limit, QdiscReport, Remedy, RunnerUp, Scope};
use fullpipe_units::{BitRate, ByteCount, SegCount};

use crate::builder::{
    MIB, Moment, Writes, at_a_rate, capacity, evidence, moment, samples, send_buffer, stated,
    trickle,
};
use crate::golden::Golden;
use crate::limits::{REGULAR, lossy};
use crate::traced::{at_sender, black_hole, device, paced};

fn advice(evidence: &Evidence) -> Vec<Remedy> {
    find_remedies(evidence, &diagnose(evidence))
}

/// Returns a remedy without its text: name, reach, changes, and the predicted rate in Mbit/s.
fn brief(remedy: &Remedy) -> (&str, Scope, &[Change], Option<f64>) {
    let mbps = remedy
        .predicted
        .map(|forecast| (forecast.bits_per_second.as_mbps() * 10.0).round() / 10.0);
    (remedy.id.as_str(), remedy.scope, &remedy.changes, mbps)
}

fn asked_for_pace(evidence: Evidence, mbps: u64) -> Evidence {
    let mut asked = evidence;
    asked.request.pacing = Some(BitRate::from_mbps(mbps));
    asked
}

fn sysctl(name: &str, value: &str) -> Change {
    Change::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn shaper(dropped: u64) -> QdiscReport {
    let rate = Some(BitRate::from_mbps(98));
    QdiscReport {
        kind: "tbf".to_owned(),
        rate,
        overlimits: 900,
        dropped,
        ..QdiscReport::default()
    }
}

/// A device with the kernel's own discipline and room for so many packets, of which it dropped.
fn short_of_room(evidence: Evidence, kind: &str, room: u64) -> Evidence {
    let mut machine = device(QdiscReport {
        kind: kind.to_owned(),
        dropped: 900,
        ..QdiscReport::default()
    });
    machine.device.as_mut().unwrap().queue_length = Some(SegCount::new(room));
    at_sender(evidence, machine)
}

#[test]
fn what_a_setting_lifts_is_a_change_with_what_it_should_give() {
    let full = || stated(capacity("cubic", 20.0, 1), 200);
    let default = Change::Qdisc {
        device: "eth0".to_owned(),
        kind: "default".to_owned(),
    };
    let room = |packets| Change::QueueLength {
        device: "eth0".to_owned(),
        packets: SegCount::new(packets),
    };
    let pace_ratio = sysctl("net.ipv4.tcp_pacing_ca_ratio", "120");
    let table = [
        (
            "rate",
            stated(at_a_rate(trickle("cubic")), 100),
            (
                "higher-rate",
                Scope::Application,
                vec![Change::Rate(None)],
                94.1,
            ),
        ),
        (
            "pace",
            stated(asked_for_pace(paced("cubic", 52, Some(52)), 52), 100),
            (
                "higher-pace",
                Scope::Application,
                vec![Change::MaxPacingRate(None)],
                94.1,
            ),
        ),
        (
            "pacing ratio",
            stated(paced("cubic", 53, None), 100),
            (
                "default-pacing-ratios",
                Scope::Namespace,
                vec![pace_ratio],
                94.1,
            ),
        ),
        (
            "own shaper",
            at_sender(full(), device(shaper(0))),
            (
                "default-queueing-discipline",
                Scope::Host,
                vec![default.clone()],
                188.3,
            ),
        ),
        (
            "own shaper that drops",
            at_sender(full(), device(shaper(900))),
            (
                "default-queueing-discipline",
                Scope::Host,
                vec![default],
                188.3,
            ),
        ),
        (
            "short queue",
            short_of_room(full(), "pfifo_fast", 50),
            ("longer-queue", Scope::Host, vec![room(1000)], 188.3),
        ),
        (
            "usual queue",
            short_of_room(full(), "mq", 1000),
            ("longer-queue", Scope::Host, vec![room(4000)], 188.3),
        ),
    ];
    for (name, evidence, (id, scope, changes, mbps)) in table {
        let got = advice(&evidence);
        let typed: Vec<&Remedy> = got.iter().filter(|remedy| remedy.id == id).collect();
        assert_eq!(
            typed.len(),
            1,
            "{name}: once, and not as prose too: {got:#?}"
        );
        assert_eq!(
            brief(typed[0]),
            (id, scope, &changes[..], Some(mbps)),
            "{name}: {got:#?}"
        );
        assert_eq!(typed[0].at, At::Sender, "{name}");
        assert!(typed[0].why.ends_with('.'), "{name}: {}", typed[0].why);
    }
}

#[test]
fn what_another_program_was_asked_for_stays_for_people() {
    let foreign = Evidence {
        program: Some("rsync".to_owned()),
        ..stated(paced("cubic", 52, Some(52)), 100)
    };
    let got = advice(&foreign);
    assert_eq!(
        brief(&got[0]),
        ("higher-pace", Scope::Application, &[][..], None)
    );
    let policed = Evidence {
        program: Some("rsync".to_owned()),
        ..policed()
    };
    assert!(
        advice(&policed)
            .iter()
            .any(|remedy| remedy.id == "pace-below-the-policer" && remedy.changes.is_empty())
    );
}

#[test]
fn what_could_not_be_put_back_or_has_others_within_it_is_for_people() {
    let full = || stated(capacity("cubic", 20.0, 1), 200);
    let of_kind = |kind: &str| QdiscReport {
        kind: kind.to_owned(),
        ..shaper(0)
    };
    let mut classful = device(shaper(0));
    classful
        .device
        .as_mut()
        .unwrap()
        .qdiscs
        .push(of_kind("pfifo"));
    for machine in [device(of_kind("cake")), classful] {
        let got = advice(&at_sender(full(), machine));
        assert_eq!(
            brief(&got[0]),
            ("higher-rate-of-the-discipline", Scope::Host, &[][..], None),
            "{got:#?}"
        );
    }
    let got = advice(&short_of_room(full(), "fq_codel", 1000));
    assert_eq!(
        brief(&got[0]),
        ("longer-queue", Scope::Host, &[][..], None),
        "{got:#?}"
    );
}

#[test]
fn both_pacing_ratios_are_set_where_both_were_seen_low() {
    // In slow start for the first two seconds, at a quarter of window ÷ round trip throughout.
    let course = samples(12.0, 1, |t| Moment {
        cwnd: 2e6,
        unsent: MIB,
        window: 6e6,
        ssthresh: (t > 2.0).then_some(1e6),
        ..moment(50.0, 100.0)
    });
    let slow = crate::builder::without(stated(evidence("reno", 100, course), 100), |sample| {
        sample.tcp.pacing_rate = Some(BitRate::from_mbps(53));
    });
    let got = advice(&slow);
    let [ss, ca] = ["ss", "ca"].map(|part| format!("net.ipv4.tcp_pacing_{part}_ratio"));
    let remedy = got
        .iter()
        .find(|remedy| remedy.id == "default-pacing-ratios")
        .unwrap();
    assert_eq!(
        remedy.changes,
        [sysctl(&ss, "200"), sysctl(&ca, "120")],
        "{got:#?}"
    );
    assert!(
        remedy
            .why
            .contains("33 % (net.ipv4.tcp_pacing_ss_ratio) and 33 %"),
        "{}",
        remedy.why
    );
}

#[test]
fn a_black_hole_is_probed_from_nothing_upwards() {
    for (evidence, figure) in [(stated(black_hole(), 20), 18.4), (black_hole(), 819.0)] {
        let got = advice(&evidence);
        let (id, scope, changes, mbps) = brief(&got[0]);
        assert_eq!(
            (id, scope, changes),
            (
                "probe-the-mtu",
                Scope::Namespace,
                &[sysctl("net.ipv4.tcp_mtu_probing", "1")][..]
            )
        );
        let forecast = got[0].predicted.unwrap();
        assert!(
            (mbps.unwrap() - figure).abs() < figure * 0.03,
            "{forecast:?}"
        );
        assert_eq!(forecast.low, BitRate::ZERO, "the present rate");
        assert!(forecast.bits_per_second <= forecast.high, "{forecast:?}");
        let others: Vec<&str> = got[1..].iter().map(|remedy| remedy.id.as_str()).collect();
        assert_eq!(others, ["lower-the-mtu", "let-too-big-pass"]);
    }
}

/// 100 Mbit/s, of which a policer lets 40 pass, which is 37.7 of payload.
fn policed() -> Evidence {
    let golden: Golden =
        serde_json::from_str(include_str!("../evidence/planted-loss-policer-cubic.json")).unwrap();
    Evidence::from_measurement(&golden.measurement, golden.bandwidth, golden.framing)
}

#[test]
fn below_a_policer_is_paced_at_what_is_known_to_pass() {
    let evidence = policed();
    let got = advice(&evidence);
    let pace = got
        .iter()
        .find(|remedy| remedy.id == "pace-below-the-policer")
        .unwrap();
    let [Change::MaxPacingRate(Some(rate))] = pace.changes[..] else {
        panic!("{got:#?}")
    };
    let forecast = pace.predicted.unwrap();
    assert!(
        rate < BitRate::from_mbps(37) && rate > evidence.steady.unwrap().rate,
        "{rate}"
    );
    assert_eq!(
        (forecast.bits_per_second, forecast.low),
        (rate, evidence.steady.unwrap().rate.scale_by(0.95))
    );
    for other in &got {
        let promised = other
            .predicted
            .map_or(BitRate::ZERO, |forecast| forecast.bits_per_second);
        assert!(
            promised <= BitRate::from_mbps(40),
            "no remedy gets past the policer: {other:#?}"
        );
    }
}

#[test]
fn below_a_short_queue_is_paced_at_a_share_of_what_the_path_carries() {
    let evidence = stated(lossy(&REGULAR), 100);
    let got = advice(&evidence);
    let pace = got
        .iter()
        .find(|remedy| remedy.id == "pace-below-the-bottleneck")
        .unwrap_or_else(|| panic!("{got:#?}"));
    let forecast = pace.predicted.unwrap();
    assert!(
        (88.0..90.0).contains(&forecast.bits_per_second.as_mbps()),
        "{forecast:?}"
    );
    assert_eq!(forecast.low, evidence.steady.unwrap().rate.scale_by(0.95));
    assert!(
        got.iter()
            .any(|remedy| remedy.id == "longer-queue-on-the-path"),
        "for those who rule there"
    );
}

/// A full send buffer of 4 MiB, and a receiver that advertises so much.
fn next_to_a_window(window: f64) -> Evidence {
    let mut evidence = stated(send_buffer("cubic", 4.0 * MIB, Writes::Retrying), 1000);
    for sample in &mut evidence.sender_samples {
        sample.tcp.snd_wnd = Some(ByteCount::from_f64(window));
    }
    // What a foreign receiver has set is not known.
    evidence.receiver = None;
    evidence
}

#[test]
fn the_limit_that_would_be_next_is_named_and_bounds_what_is_promised() {
    let close = next_to_a_window(4.3 * MIB);
    let verdict = diagnose(&close);
    assert_eq!(
        (verdict.kind, verdict.cause),
        (Limit::SendBuffer, Cause::TcpWmemMax),
        "{verdict:#?}"
    );
    let Some(RunnerUp {
        kind: Limit::ReceiveWindow,
        bits_per_second: Some(next),
        share: None,
    }) = verdict.runner_up
    else {
        panic!("{verdict:#?}")
    };
    assert!((360.0..361.0).contains(&next.as_mbps()), "{next}");
    let got = advice(&close);
    let raised = got
        .iter()
        .find(|remedy| remedy.id == "raise-tcp-wmem")
        .unwrap();
    let forecast = raised.predicted.unwrap();
    assert_eq!(
        (forecast.bits_per_second, forecast.high),
        (next, next),
        "{got:#?}"
    );
    let streams = got
        .iter()
        .find(|remedy| remedy.id == "parallel-streams")
        .unwrap();
    assert!(
        streams.predicted.unwrap().bits_per_second > next,
        "each has a window of its own"
    );

    let far = next_to_a_window(12.0 * MIB);
    assert_eq!(diagnose(&far).runner_up, None);
    assert!(advice(&far)[0].predicted.unwrap().bits_per_second > next);
}

//! Rates that fall for good, and connections that each have the same.

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_record::{Cause, Change, Evidence, Limit, Verdict};
use fullpipe_units::SegCount;

use crate::limits::{IRREGULAR, lossy};

use crate::builder::{self, MIB, Moment, Writes, moment, samples, sawtooth, stated};

fn names(verdict: &Verdict) -> Vec<&str> {
    verdict.candidates.iter().map(|one| one.name()).collect()
}

/// A transfer over 20 ms that carries 900 Mbit/s until `fall`, in seconds, and then the rate and
/// round-trip time of `then`.
fn falls(fall: f64, then: impl Fn(f64) -> Moment) -> Evidence {
    let course = |t: f64| {
        if t < fall {
            moment(900.0, 24.0)
        } else {
            then(t)
        }
    };
    builder::evidence("cubic", 20, samples(12.0, 1, course))
}

#[test]
fn a_rate_that_falls_for_good_with_a_queue_is_an_allowance_that_was_used_up() {
    let verdict = diagnose(&falls(5.0, |_| moment(100.0, 60.0)));
    assert_eq!(verdict.name(), "capacity/allowance", "{}", verdict.sentence);
    assert_eq!(names(&verdict), ["capacity/allowance", "capacity/shared"]);
    for part in ["900 Mbit/s", "100 Mbit/s", "from 5 s on"] {
        assert!(verdict.sentence.contains(part), "{}", verdict.sentence);
    }
    let evidence = falls(5.0, |_| moment(100.0, 60.0));
    let ids: Vec<String> = find_remedies(&evidence, &verdict)
        .into_iter()
        .map(|it| it.id)
        .collect();
    for id in [
        "larger-allowance",
        "pace-below-the-lower-rate",
        "read-the-counters-of-the-device",
    ] {
        assert!(ids.iter().any(|it| it == id), "{ids:?}");
    }
}

#[test]
fn an_allowance_of_a_few_seconds_is_seen_in_a_transfer_of_minutes() {
    let course = |t: f64| {
        if t < 5.0 {
            moment(90.0, 24.0)
        } else {
            moment(20.0, 60.0)
        }
    };
    let verdict = diagnose(&builder::evidence("cubic", 20, samples(200.0, 1, course)));
    assert_eq!(verdict.name(), "capacity/allowance", "{}", verdict.sentence);
}

#[test]
fn a_short_burst_a_window_that_grows_again_and_a_fall_without_a_queue_are_no_allowance() {
    let others = [
        (
            "the bucket of a policer",
            falls(1.0, |_| moment(100.0, 60.0)),
        ),
        (
            "a recovery",
            falls(5.0, |t| moment(300.0 + 80.0 * (t - 5.0), 60.0)),
        ),
        ("one loss", falls(5.0, |_| moment(400.0, 20.0))),
        ("a little less", falls(5.0, |_| moment(700.0, 60.0))),
        ("a second of less", falls(11.0, |_| moment(100.0, 60.0))),
    ];
    for (what, evidence) in others {
        assert_ne!(diagnose(&evidence).cause, Cause::Allowance, "{what}");
    }
}

/// Four connections with a queue each, of which each has the rate of `each`, in Mbit/s.
fn four(each: [f64; 4]) -> Evidence {
    let mut all = Vec::new();
    for (stream, mbps) in (0..).zip(each) {
        let mut one = samples(10.0, 1, |_| moment(mbps, 40.0));
        for sample in &mut one {
            sample.stream = stream;
        }
        all.extend(one);
    }
    builder::evidence("cubic", 20, all)
}

#[test]
fn connections_with_one_rate_far_below_the_bandwidth_have_a_bound_each() {
    let evidence = stated(four([50.0; 4]), 1000);
    let verdict = diagnose(&evidence);
    assert_eq!(
        verdict.name(),
        "capacity/per-flow-limit",
        "{}",
        verdict.sentence
    );
    assert_eq!(
        names(&verdict),
        ["capacity/per-flow-limit", "capacity/shared"]
    );
    assert!(
        verdict.sentence.contains("each of 4 carries 50 Mbit/s"),
        "{}",
        verdict.sentence
    );
    let remedies = find_remedies(&evidence, &verdict);
    let streams = remedies
        .iter()
        .find(|remedy| remedy.id == "parallel-streams")
        .unwrap();
    assert_eq!(streams.changes, [Change::Streams(20)]);
}

#[test]
fn connections_whose_losses_leave_them_one_rate_have_a_bound_each() {
    let one = lossy(&IRREGULAR).sender_samples;
    // The last one carries as much, or less in all of its time.
    let with_last = |share: f64| {
        let streams = (0..4).flat_map(|stream| {
            let share = if stream == 3 { share } else { 1.0 };
            one.iter().cloned().map(move |mut sample| {
                sample.stream = stream;
                let acked = sample.tcp.bytes_acked.unwrap_or_default();
                sample.tcp.bytes_acked = Some(acked.scale_by(share));
                sample
            })
        });
        diagnose(&stated(
            builder::evidence("cubic", 100, streams.collect()),
            1000,
        ))
    };
    assert_eq!(
        names(&with_last(1.0)),
        ["capacity/per-flow-limit", "loss/policer"]
    );
    assert_ne!(with_last(0.9).cause, Cause::PerFlowLimit);
}

#[test]
fn connections_that_differ_or_fill_the_bandwidth_have_no_bound_of_their_own() {
    for (each, mbps) in [([50.0, 40.0, 60.0, 50.0], 1000), ([50.0; 4], 215)] {
        let verdict = diagnose(&stated(four(each), mbps));
        assert_ne!(
            verdict.cause,
            Cause::PerFlowLimit,
            "{each:?}: {}",
            verdict.sentence
        );
    }
}

#[test]
fn one_connection_at_a_rate_that_providers_grant_may_have_a_bound() {
    let at = |mbps: f64| builder::evidence("cubic", 1, samples(10.0, 1, |_| moment(mbps, 2.0)));
    let evidence = at(4970.0);
    let verdict = diagnose(&evidence);
    assert_eq!(
        names(&verdict),
        ["capacity/link", "capacity/per-flow-limit"]
    );
    let has_streams = |evidence: &Evidence, verdict: &Verdict| {
        find_remedies(evidence, verdict)
            .iter()
            .any(|remedy| remedy.id == "parallel-streams")
    };
    assert!(has_streams(&evidence, &verdict));
    for other in [at(3500.0), stated(at(4970.0), 5200)] {
        let verdict = diagnose(&other);
        assert_eq!((names(&verdict), verdict.cause), (vec![], Cause::Link));
        assert!(!has_streams(&other, &verdict));
    }
}

/// A full send buffer under BBR, with packets sent again: many in one sample of eight, or as many
/// in all, evenly.
fn lossy_buffer(in_bursts: bool) -> Evidence {
    let mut evidence = builder::send_buffer("bbr", 4.0 * MIB, Writes::Retrying);
    let mut again = 0;
    for (index, sample) in evidence.sender_samples.iter_mut().enumerate() {
        again += match (in_bursts, index % 8) {
            (true, 0) => 800,
            (true, _) => 0,
            (false, _) => 100,
        };
        sample.tcp.total_retrans = Some(SegCount::new(again));
        sample.tcp.data_segs_out = sample
            .tcp
            .data_segs_out
            .map(|out| SegCount::new(out.get() + again));
    }
    evidence
}

#[test]
fn a_buffer_that_a_policer_keeps_full_under_bbr_is_no_limit() {
    let policed = diagnose(&lossy_buffer(true));
    assert_eq!(policed.name(), "loss/policer", "{}", policed.sentence);
    let by_chance = diagnose(&lossy_buffer(false));
    assert_eq!(by_chance.kind, Limit::SendBuffer, "{}", by_chance.sentence);
}

#[test]
fn what_took_packets_before_a_window_grew_back_is_left_open() {
    let verdict = diagnose(&sawtooth("reno", 10.0, &[1.2], 2.0, 0.3, 100.0));
    assert_eq!(verdict.cause, Cause::Recovering, "{}", verdict.sentence);
    assert!(
        names(&verdict).contains(&"loss/shallow-queue"),
        "{:?}",
        verdict.candidates
    );
}

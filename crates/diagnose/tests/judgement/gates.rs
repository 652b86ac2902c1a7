//! Gates that every verdict passes, whatever view it rests on: what disproves it, and what is too
//! little.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Evidence, Limit, Sample, TransferTimeUse, find_steady};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};

use crate::builder::{MIB, Moment, evidence, moment, samples};

fn kind(evidence: &Evidence) -> Limit {
    diagnose(evidence).kind
}

/// A window of 1 MiB over 100 ms that is full in each sample, and `mbps` that are carried.
fn full_window(mbps: f64) -> Evidence {
    let full = move |_| Moment {
        in_flight: MIB,
        window: MIB,
        cwnd: 2.0 * MIB,
        sndbuf: 4.0 * MIB,
        unsent: MIB,
        rwnd_limited: 0.9,
        ..moment(mbps, 100.0)
    };
    evidence("cubic", 1000, samples(10.0, 1, full))
}

#[test]
fn a_window_that_allows_less_than_was_carried_or_ten_times_as_much_is_not_the_limit() {
    // 83.9 Mbit/s.
    for (mbps, is_limit) in [
        (80.0, true),
        (120.0, true),
        (140.0, false),
        (9.0, true),
        (8.0, false),
    ] {
        assert_eq!(
            kind(&full_window(mbps)) == Limit::ReceiveWindow,
            is_limit,
            "{mbps}"
        );
    }
}

/// Leaves the first samples, until `segments` had been sent.
fn first_of(evidence: Evidence, segments: u64) -> Evidence {
    let is_first = |sample: &&Sample| sample.tcp.data_segs_out <= Some(SegCount::new(segments));
    let sender_samples: Vec<Sample> = evidence
        .sender_samples
        .iter()
        .filter(is_first)
        .cloned()
        .collect();
    let end = sender_samples.last().map_or(Span::ZERO, |last| last.at);
    Evidence {
        steady: find_steady(&sender_samples, evidence.idle_rtt, end),
        sender_samples,
        ..evidence
    }
}

#[test]
fn fewer_than_ten_packets_have_at_most_half_a_limit() {
    // Two segments in each round trip.
    let small = move |_| Moment {
        in_flight: 2_896.0,
        window: 2_896.0,
        unsent: MIB,
        sndbuf: 4.0 * MIB,
        rwnd_limited: 0.9,
        ..moment(0.23, 100.0)
    };
    let slow = || evidence("cubic", 1000, samples(10.0, 1, small));
    for segments in [4, 9, 150] {
        let verdict = diagnose(&first_of(slow(), segments));
        let is_sure = verdict.confidence > Ratio::new(0.5);
        assert_eq!(is_sure, segments > 9, "{segments}: {verdict:#?}");
    }
}

#[test]
fn the_confidence_falls_as_samples_packets_and_round_trips_become_fewer() {
    let all = full_window(80.0);
    let sure = |segments| diagnose(&first_of(all.clone(), segments)).confidence.get();
    let course: Vec<f64> = [60_000, 20_000, 5_000, 1_200]
        .into_iter()
        .map(sure)
        .collect();
    assert!(
        course.windows(2).all(|pair| pair[0] >= pair[1]) && course[0] > course[3],
        "{course:?}"
    );
}

#[test]
fn every_moment_is_booked_and_a_full_window_takes_most_of_them() {
    let verdict = diagnose(&full_window(80.0));
    let sum: f64 = verdict
        .where_time_went
        .iter()
        .map(|one| one.share.get())
        .sum();
    assert!((sum - 1.0).abs() < 0.02, "{:?}", verdict.where_time_went);
    assert_eq!(
        verdict.where_time_went[0].used_for,
        TransferTimeUse::WindowFull
    );
}

#[test]
fn time_that_timers_take_is_of_losses_and_a_tail_is_of_nothing() {
    // Each second one packet is lost and repaired by a timer 900 ms later.
    let mut stalls = evidence("cubic", 1000, samples(10.0, 1, |_| moment(1.0, 50.0)));
    for (index, sample) in (0_u64..).zip(&mut stalls.sender_samples) {
        let (second, part) = (index / 20, index % 20);
        sample.tcp.bytes_acked = Some(ByteCount::new(
            second * 20_000 + if part >= 18 { 20_000 } else { 0 },
        ));
        sample.bytes = sample.tcp.bytes_acked.unwrap_or_default();
        sample.tcp.bytes_sent = Some(sample.bytes + ByteCount::new(4_000 + second * 1448));
        sample.tcp.bytes_retrans = Some(ByteCount::new(second * 1448));
        sample.tcp.timeouts_in_a_row = Some(SegCount::new(u64::from((10..18).contains(&part))));
        sample.tcp.total_retrans = Some(SegCount::new(second + u64::from(part >= 10)));
    }
    let verdict = diagnose(&stalls);
    let most = verdict.where_time_went[0];
    assert_eq!(
        most.used_for,
        TransferTimeUse::RetransmissionTimeout,
        "{:?}",
        verdict.where_time_went
    );
    assert!(
        most.share.get() > 0.7 && matches!(verdict.kind, Limit::Loss | Limit::Capacity),
        "{verdict:#?}"
    );
}

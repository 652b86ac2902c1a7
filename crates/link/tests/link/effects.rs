//! Each effect against its definition, in virtual time.

use std::net::IpAddr;

use crate::burst::{Burst, Ecn, at, drain, fast_ethernet};
use fullpipe_link::{ArrivedTrain, DirectionCounters, LinkDirection};
use fullpipe_record::{
    Distribution, Edit, Effects, Jitter, LossPattern, NarrowLink, Opportunities, PathChange,
    PathDirection, PathStep, Policer, Queueing, Reordering, TooBig,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

const FRAME_NANOS: u64 = 123_040;

fn path(effects: Effects) -> PathDirection {
    PathDirection {
        effects,
        ..fast_ethernet()
    }
}

/// Offers `packets` full packets, one every `gap` nanoseconds, and takes out all that arrives.
fn run(
    path: &PathDirection,
    packets: u64,
    gap: u64,
) -> (Vec<ArrivedTrain<Burst>>, DirectionCounters) {
    let mut link = LinkDirection::new(path, 7);
    for number in 0..packets {
        link.offer_train(at(number * gap), Burst::packet(number, 1500));
    }
    let deliveries = drain(&mut link);
    (deliveries, link.counters_at(at(u64::MAX)))
}

fn numbers(deliveries: &[ArrivedTrain<Burst>]) -> Vec<u64> {
    deliveries
        .iter()
        .flat_map(|delivery| delivery.train.numbers())
        .collect()
}

/// Five standard deviations of a binomial count: exceeded once in 1.7 million.
fn assert_binomial(count: u64, packets: u64, share: f64) {
    let mean = packets as f64 * share;
    let sigma = (mean * (1.0 - share)).sqrt();
    assert!(
        (count as f64 - mean).abs() < 5.0 * sigma,
        "{count} of {packets}, not {mean}"
    );
}

#[test]
fn listed_packets_are_lost_and_no_others() {
    let losses = Some(LossPattern::Listed(vec![3, 4, 8]));
    let (deliveries, _) = run(
        &path(Effects {
            losses,
            ..Effects::default()
        }),
        10,
        FRAME_NANOS,
    );
    assert_eq!(
        numbers(&deliveries),
        [0, 1, 4, 5, 6, 8, 9],
        "packets are counted from one, this test's from zero"
    );
}

/// Acknowledgements, echoes and the control connection between them change nothing of what a
/// transfer loses.
#[test]
fn listed_data_packets_are_those_of_the_connection_with_most_of_them() {
    let losses = Some(LossPattern::ListedData(vec![3, 4, 12]));
    let mut link = LinkDirection::new(
        &path(Effects {
            losses,
            ..Effects::default()
        }),
        7,
    );
    let (control, data) = (1, 2);
    link.offer_train(at(0), Burst::packet(100, 1349).of_flow(data));
    link.offer_train(at(0), Burst::train(200, 2, 1500, 1500).of_flow(control));
    link.offer_train(at(0), Burst::train(0, 6, 1500, 1349).of_flow(data));
    link.offer_train(at(0), Burst::train(202, 5, 1500, 1500).of_flow(control));
    link.offer_train(at(0), Burst::train(6, 9, 1500, 1350).of_flow(data));
    link.offer_train(at(0), Burst::train(300, 40, 1349, 1349).of_flow(3));
    link.offer_train(at(0), Burst::train(207, 20, 1500, 1500).of_flow(control));
    let mut arrived = numbers(&drain(&mut link));
    arrived.sort_unstable();
    let lost: Vec<_> = (0..15)
        .chain(200..227)
        .filter(|number| !arrived.contains(number))
        .collect();
    // The sixth packet is too small to count.
    assert_eq!(
        lost,
        [2, 3, 12],
        "packets are counted from one, this test's from zero"
    );
}

#[test]
fn a_share_of_the_packets_comes_twice_without_taking_time_on_the_link() {
    const PACKETS: u64 = 100_000;
    let effects = Effects {
        duplicated: Ratio::new(0.02),
        ..Effects::default()
    };
    let (deliveries, counters) = run(&path(effects), PACKETS, FRAME_NANOS);
    assert_binomial(counters.duplicated.segments.get(), PACKETS, 0.02);
    assert_eq!(
        deliveries.len() as u64,
        PACKETS + counters.duplicated.segments.get()
    );
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.due == at((delivery.train.first + 1) * FRAME_NANOS))
    );
}

#[test]
fn a_share_of_the_packets_has_a_wrong_bit() {
    const PACKETS: u64 = 100_000;
    let effects = Effects {
        corrupted: Ratio::new(0.01),
        ..Effects::default()
    };
    let (deliveries, counters) = run(&path(effects), PACKETS, FRAME_NANOS);
    assert_binomial(counters.corrupted.get(), PACKETS, 0.01);
    let wrong = deliveries
        .iter()
        .filter(|delivery| delivery.train.corrupt)
        .count() as u64;
    assert_eq!(wrong, counters.corrupted.get());
    assert_eq!(counters.delivered.segments.get(), PACKETS);
}

/// Each packet that is held back by more than the gap to the next arrives out of order, as
/// `elsen-udp` saw it.
#[test]
fn held_back_packets_arrive_out_of_order() {
    const PACKETS: u64 = 94_000;
    let reordering = Some(Reordering {
        share: Ratio::new(0.0012),
        by: Span::from_millis(1),
    });
    let (deliveries, counters) = run(
        &path(Effects {
            reordering,
            ..Effects::default()
        }),
        PACKETS,
        FRAME_NANOS,
    );
    let late: Vec<_> = deliveries
        .iter()
        .filter(|d| d.due > at((d.train.first + 1) * FRAME_NANOS))
        .collect();
    assert_binomial(late.len() as u64, PACKETS, 0.0012);
    assert!(
        late.iter()
            .all(|d| d.due == at((d.train.first + 1) * FRAME_NANOS) + Span::from_millis(1))
    );
    assert_eq!(counters.reordered.get(), late.len() as u64);
}

#[test]
fn jitter_keeps_the_order_or_does_not() {
    for reorders in [false, true] {
        let jitter = Some(Jitter {
            distribution: Distribution::Uniform(Span::from_millis(2)),
            reorders,
        });
        let delay = Span::from_millis(10);
        let path = PathDirection {
            delay,
            ..path(Effects {
                jitter,
                ..Effects::default()
            })
        };
        let (deliveries, counters) = run(&path, 50_000, FRAME_NANOS);
        let extra = |d: &ArrivedTrain<Burst>| {
            d.due
                .duration_since(at((d.train.first + 1) * FRAME_NANOS) + delay)
        };
        assert!(
            deliveries
                .iter()
                .all(|d| d.due >= at((d.train.first + 1) * FRAME_NANOS) + delay)
        );
        assert!(
            deliveries
                .iter()
                .map(extra)
                .all(|extra| extra <= Span::from_millis(2))
        );
        assert_eq!(numbers(&deliveries).is_sorted(), !reorders);
        assert_eq!(counters.reordered == SegCount::ZERO, !reorders);
        if reorders {
            let mean = deliveries
                .iter()
                .map(|d| extra(d).as_millis_f64())
                .sum::<f64>()
                / 50_000.0;
            // σ = 2 ms ÷ √12 ÷ √50 000 = 0.0026 ms.
            assert!((mean - 1.0).abs() < 0.013, "{mean} ms on average");
        }
    }
}

/// A policer passes its rate and, once, its burst; it delays nothing.
#[test]
fn a_policer_passes_its_rate_and_its_burst() {
    const PACKETS: u64 = 100_000;
    let policer = Some(Policer {
        rate: BitRate::from_mbps(20),
        burst: ByteCount::new(10 * 1538),
    });
    let (deliveries, counters) = run(
        &path(Effects {
            policer,
            ..Effects::default()
        }),
        PACKETS,
        FRAME_NANOS,
    );
    assert!(
        deliveries
            .iter()
            .all(|d| d.due == at((d.train.first + 1) * FRAME_NANOS))
    );
    // 20 of 100 Mbit/s for all but the first packet, which comes at zero, and ten packets of burst.
    assert_eq!(counters.delivered.segments.get(), (PACKETS - 1) / 5 + 10);
    assert_eq!(
        counters.policed.segments.get(),
        PACKETS - (PACKETS - 1) / 5 - 10
    );
    assert_eq!(
        numbers(&deliveries)[..14],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 20]
    );
}

#[test]
fn of_a_train_a_policer_passes_what_it_would_pass_one_by_one() {
    let policer = Some(Policer {
        rate: BitRate::from_mbps(20),
        burst: ByteCount::new(3 * 1538 + 400),
    });
    let mut link = LinkDirection::new(
        &path(Effects {
            policer,
            ..Effects::default()
        }),
        1,
    );
    let outcome = link.offer_train(at(0), Burst::train(0, 6, 1500, 200));
    assert_eq!((outcome.accepted.get(), outcome.policed.get()), (4, 2));
    assert_eq!(numbers(&drain(&mut link)), [0, 1, 2, 5]);
}

#[test]
fn a_packet_too_big_is_answered_or_swallowed() {
    for too_big in [TooBig::Answered, TooBig::Swallowed] {
        let narrow = Some(NarrowLink {
            mtu: ByteCount::new(1400),
            too_big,
        });
        let mut link = LinkDirection::new(
            &path(Effects {
                narrow,
                ..Effects::default()
            }),
            1,
        );
        let outcome = link.offer_train(at(0), Burst::train(0, 4, 1500, 1400));
        assert_eq!((outcome.accepted.get(), outcome.too_big.get()), (1, 3));
        let stated = outcome.reply.map(|reply| (reply.first, reply.answers));
        assert_eq!(
            stated,
            (too_big == TooBig::Answered).then_some((0, Some(1400)))
        );
        assert_eq!(link.offer_train(at(0), Burst::packet(4, 1400)).reply, None);
        assert_eq!(numbers(&drain(&mut link)), [3, 4]);
    }
}

#[test]
fn edits_are_made_in_their_order() {
    let edits = vec![
        Edit::StripSack,
        Edit::ClampMss(ByteCount::new(1200)),
        Edit::RewriteWindowScale(2),
    ];
    let (deliveries, _) = run(
        &path(Effects {
            edits: edits.clone(),
            ..Effects::default()
        }),
        2,
        0,
    );
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.train.edits == edits)
    );
}

#[test]
fn a_packet_without_hops_ends_at_its_router_as_it_is_there() {
    let [near, far] = [IpAddr::from([198, 18, 1, 1]), IpAddr::from([198, 18, 1, 2])];
    let edits = vec![Edit::Router(near), Edit::StripSack, Edit::Router(far)];
    let path = path(Effects {
        edits: edits.clone(),
        ..Effects::default()
    });
    let mut link = LinkDirection::new(&path, 1);
    for (hops, expired_at, edits) in [(1, near, &edits[..1]), (2, far, &edits)] {
        let outcome = link.offer_train(
            at(0),
            Burst {
                hops,
                ..Burst::train(0, 3, 1500, 400)
            },
        );
        assert_eq!((outcome.accepted.get(), outcome.expired.get()), (0, 3));
        let reply = outcome.reply.unwrap();
        assert_eq!(
            (reply.expired_at, reply.edits.as_slice()),
            (Some(expired_at), edits)
        );
    }
    assert_eq!(
        link.offer_train(
            at(0),
            Burst {
                hops: 3,
                ..Burst::packet(6, 1500)
            }
        )
        .reply,
        None
    );
    let deliveries = drain(&mut link);
    assert_eq!(
        (numbers(&deliveries), deliveries[0].train.hops),
        (vec![6], 1)
    );
}

#[test]
fn a_queue_of_packets_counts_packets() {
    let effects = Effects {
        queue_packets: Some(SegCount::new(3)),
        ..Effects::default()
    };
    let mut link = LinkDirection::new(&path(effects), 1);
    let outcome = link.offer_train(at(0), Burst::train(0, 5, 1500, 40));
    assert_eq!((outcome.accepted.get(), outcome.overflowed.get()), (3, 2));
    assert_eq!(
        link.offer_train(at(FRAME_NANOS), Burst::packet(5, 40))
            .accepted
            .get(),
        1
    );
    assert_eq!(
        link.offer_train(at(FRAME_NANOS), Burst::packet(6, 40))
            .accepted
            .get(),
        0
    );
}

/// DCTCP's rule for a switch (RFC 8257, 3.1): a packet is marked if, when it comes, more than K
/// bytes wait.
#[test]
fn a_threshold_marks_what_finds_more_than_it_waiting() {
    let queueing = Queueing::Threshold(ByteCount::new(3 * 1538));
    let mut link = LinkDirection::new(
        &path(Effects {
            queueing,
            ..Effects::default()
        }),
        1,
    );
    link.offer_train(at(0), Burst::train(0, 6, 1500, 1500).of_flow(1));
    // One has been sent: three or more wait.
    link.offer_train(at(FRAME_NANOS), Burst::packet(6, 1500).of_flow(1));
    link.offer_train(at(4 * FRAME_NANOS), Burst::packet(7, 1500).of_flow(1));
    link.offer_train(at(4 * FRAME_NANOS), Burst::train(8, 2, 1500, 1500));
    let deliveries = drain(&mut link);
    let marked: Vec<_> = deliveries
        .iter()
        .filter(|d| d.train.ecn == Ecn::Marked)
        .cloned()
        .collect();
    assert_eq!(numbers(&marked), [4, 5, 6]);
    assert_eq!(numbers(&deliveries), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(
        link.counters_at(at(u64::MAX)).marked.get(),
        3,
        "those without ECN are not"
    );
}

/// Mahimahi's 12 Mbit/s: one packet of 1504 bytes a millisecond.
#[test]
fn a_trace_lets_packets_leave_at_its_moments() {
    let path = |millis| PathDirection {
        framing: fullpipe_record::Framing::Ip,
        ..path(Effects {
            opportunities: Some(Opportunities { millis }),
            ..Effects::default()
        })
    };
    let leave = |millis, sizes: &[u64], came| {
        let mut link = LinkDirection::new(&path(millis), 1);
        for size in sizes {
            link.offer_train(at(came), Burst::packet(0, *size));
        }
        drain(&mut link)
            .iter()
            .map(|delivery| delivery.due.as_nanos() / 1_000_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(leave(vec![1], &[1504; 4], 0), [1, 2, 3, 4]);
    assert_eq!(leave(vec![5, 5, 7], &[1504; 5], 0), [5, 5, 7, 12, 12]);
    // A moment serves the packets that are there, and the next what is left of the last one.
    assert_eq!(leave(vec![2], &[700, 700, 700], 0), [2, 2, 4]);
    // What comes at a moment has missed it.
    assert_eq!(leave(vec![3], &[100], 3_000_000), [6]);
    assert_eq!(leave(vec![3], &[100], 2_999_999), [3]);
}

#[test]
fn a_rate_changes_in_the_middle_of_a_packet() {
    let change = |rate| PathChange {
        rate: Some(BitRate::from_mbps(rate)),
        ..PathChange::default()
    };
    let steps = vec![
        PathStep {
            after: Span::from_nanos(FRAME_NANOS / 2),
            change: change(10),
        },
        PathStep {
            after: Span::from_millis(1),
            change: change(0),
        },
        PathStep {
            after: Span::from_millis(5),
            change: change(100),
        },
    ];
    let (deliveries, counters) = run(
        &path(Effects {
            steps,
            ..Effects::default()
        }),
        2,
        0,
    );
    // Half a frame at 100 Mbit/s, then at 10: five more frame times. Then the second; nothing
    // between 1 and 5 ms.
    let first = FRAME_NANOS / 2 + 5 * FRAME_NANOS;
    let sent_by_pause = (1_000_000 - first) / 10;
    let second = 5_000_000 + FRAME_NANOS - sent_by_pause;
    assert_eq!(
        deliveries
            .iter()
            .map(|d| d.due.as_nanos())
            .collect::<Vec<_>>(),
        [first, second]
    );
    assert_eq!(counters.busy, Span::from_nanos(second));
}

/// A shorter delay lets nothing pass: what was sent before keeps its place.
#[test]
fn delay_and_loss_change() {
    let mut link = LinkDirection::new(
        &PathDirection {
            delay: Span::from_millis(50),
            ..fast_ethernet()
        },
        1,
    );
    link.offer_train(at(0), Burst::packet(0, 1500));
    let soon = PathChange {
        delay: Some(Span::from_millis(1)),
        ..PathChange::default()
    };
    link.change_path(at(FRAME_NANOS), &soon);
    link.offer_train(at(FRAME_NANOS), Burst::packet(1, 1500));
    link.offer_train(at(100_000_000), Burst::packet(2, 1500));
    link.change_path(
        at(200_000_000),
        &PathChange {
            loss: Some(Ratio::ONE),
            ..PathChange::default()
        },
    );
    assert_eq!(
        link.offer_train(at(200_000_000), Burst::packet(3, 1500))
            .lost,
        SegCount::new(1)
    );
    let due: Vec<_> = drain(&mut link).iter().map(|d| d.due.as_nanos()).collect();
    assert_eq!(
        due,
        [
            50_000_000 + FRAME_NANOS,
            50_000_000 + FRAME_NANOS,
            101_000_000 + FRAME_NANOS
        ]
    );
}

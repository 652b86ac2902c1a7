//! Queue and link against closed formulas, in virtual time.

use crate::burst::{Burst, at, drain, fast_ethernet};
use fullpipe_link::{LinkDirection, QueueOutcome};
use fullpipe_record::{Framing, PathDirection};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

/// A full packet on 100 Mbit/s Ethernet: 1538 B.
const FRAME_NANOS: u64 = 123_040;

#[test]
fn framing_decides_what_a_packet_costs() {
    for (framing, nanos) in [(Framing::Ethernet, FRAME_NANOS), (Framing::Ip, 120_000)] {
        let mut link = LinkDirection::new(
            &PathDirection {
                framing,
                ..fast_ethernet()
            },
            1,
        );
        link.offer_train(at(0), Burst::packet(0, 1500));
        assert_eq!(link.next_deadline(), Some(at(nanos)));
    }
}

#[test]
fn a_packet_arrives_its_own_length_and_the_delay_after_it_came() {
    let delay = Span::from_millis(50);
    let mut link = LinkDirection::new(
        &PathDirection {
            delay,
            ..fast_ethernet()
        },
        1,
    );
    link.offer_train(at(7_000), Burst::packet(0, 1500));
    let due = at(7_000 + FRAME_NANOS) + delay;
    assert_eq!(link.pop_arrived(at(due.as_nanos() - 1)), None);
    assert_eq!(
        link.pop_arrived(at(due.as_nanos() + 999)).unwrap().due,
        due,
        "a late poll does not move the delivery"
    );
    assert_eq!(link.next_deadline(), None);
}

#[test]
fn without_a_rate_only_the_delay_remains() {
    let delay = Span::from_millis(5);
    let path = PathDirection {
        rate: None,
        queue: Some(ByteCount::new(1)),
        delay,
        ..fast_ethernet()
    };
    let mut link = LinkDirection::new(&path, 1);
    for number in 0..100 {
        assert_eq!(
            link.offer_train(at(10), Burst::packet(number, 1500))
                .accepted,
            SegCount::new(1)
        );
    }
    assert!(
        drain(&mut link)
            .iter()
            .all(|delivery| delivery.due == at(10) + delay)
    );
    let counters = link.counters_at(at(u64::MAX));
    assert_eq!((counters.sent.get(), counters.busy), (153_800, Span::ZERO));
}

/// Departure k of a saturated link is at k × 8 × bytes ÷ rate, rounded up once and not k times: at
/// 100 Gbit/s a frame takes 123.04 ns, and a nanosecond lost per packet would be 0.8 % of the rate.
#[test]
fn a_saturated_link_does_not_drift() {
    for bps in [1_000_000_007, 100_000_000_000, 3_333_333] {
        let mut link = LinkDirection::new(
            &PathDirection {
                rate: Some(BitRate::from_bps(bps)),
                ..fast_ethernet()
            },
            1,
        );
        for number in 0..100_000 {
            link.offer_train(at(0), Burst::packet(number, 1500));
        }
        for (k, delivery) in (1_u128..).zip(drain(&mut link)) {
            let due = (k * 1538 * 8_000_000_000).div_ceil(u128::from(bps));
            assert_eq!(
                u128::from(delivery.due.as_nanos()),
                due,
                "packet {k} at {bps} bit/s"
            );
        }
    }
}

/// A packet that comes when the link has just fallen idle starts when it comes, not a fraction of a
/// nanosecond before.
#[test]
fn a_packet_does_not_start_before_it_comes() {
    let rate = BitRate::from_bps(3_333_333);
    let mut link = LinkDirection::new(
        &PathDirection {
            rate: Some(rate),
            ..fast_ethernet()
        },
        1,
    );
    let frame = rate.time_for(ByteCount::new(1538));
    assert_eq!(
        frame,
        Span::from_nanos(3_691_201),
        "3 691 200.4 ns, rounded up"
    );
    link.offer_train(at(0), Burst::packet(0, 1500));
    link.offer_train(at(0) + frame, Burst::packet(1, 1500));
    assert_eq!(drain(&mut link)[1].due, at(0) + frame + frame);
}

#[test]
fn the_packets_of_a_train_are_charged_one_by_one() {
    let mut link = LinkDirection::new(&fast_ethernet(), 1);
    link.offer_train(at(0), Burst::train(0, 10, 1500, 100));
    assert_eq!(
        link.next_deadline(),
        Some(at(9 * FRAME_NANOS + 11_040)),
        "9 × 1538 B and 138 B"
    );
}

/// Offered at twice the rate, half is carried, but for what the queue still holds at the end.
#[test]
fn twice_the_rate_loses_half() {
    const PACKETS: u64 = 100_000;
    const QUEUE: u64 = 50;
    let path = PathDirection {
        queue: Some(ByteCount::new(QUEUE * 1538)),
        ..fast_ethernet()
    };
    let mut link = LinkDirection::new(&path, 1);
    let mut total = QueueOutcome::<Burst>::default();
    for number in 0..PACKETS {
        let outcome = link.offer_train(at(number * FRAME_NANOS / 2), Burst::packet(number, 1500));
        total.accepted += outcome.accepted;
        total.overflowed += outcome.overflowed;
    }
    // The last packet comes after PACKETS ÷ 2 − 1 whole frames have been sent, and finds room if it
    // is its turn.
    let accepted = total.accepted.get();
    assert!(
        accepted.abs_diff(PACKETS / 2 - 1 + QUEUE) <= 1,
        "{accepted} accepted"
    );
    assert_eq!(accepted + total.overflowed.get(), PACKETS);
    assert_eq!(drain(&mut link).len() as u64, accepted);
}

/// A full queue adds its length ÷ rate.
#[test]
fn the_queueing_delay_is_queue_over_rate() {
    const QUEUE: u64 = 200;
    let path = PathDirection {
        queue: Some(ByteCount::new(QUEUE * 1538)),
        delay: Span::from_millis(20),
        ..fast_ethernet()
    };
    let mut link = LinkDirection::new(&path, 1);
    let mut last = None;
    for number in 0..10_000 {
        let came = at(number * FRAME_NANOS * 9 / 10);
        if link.offer_train(came, Burst::packet(number, 1500)).accepted > SegCount::ZERO {
            last = Some(came);
        }
    }
    let wait = drain(&mut link)
        .last()
        .unwrap()
        .due
        .duration_since(last.unwrap());
    let full = path.rate.unwrap().time_for(path.queue.unwrap()) + path.delay;
    let frame = Span::from_nanos(FRAME_NANOS);
    assert!(
        wait <= full && wait + frame > full,
        "{wait} behind a queue of {full}"
    );
}

#[test]
fn a_queue_holds_what_is_not_sent_to_its_last_bit() {
    let mut link = LinkDirection::new(
        &PathDirection {
            queue: Some(ByteCount::new(3 * 1538)),
            ..fast_ethernet()
        },
        1,
    );
    let mut offer = |when, number| {
        link.offer_train(at(when), Burst::packet(number, 1500))
            .accepted
            .get()
    };
    assert_eq!([0, 1, 2, 3].map(|number| offer(0, number)), [1, 1, 1, 0]);
    assert_eq!(
        offer(FRAME_NANOS - 1, 4),
        0,
        "the first is still being sent"
    );
    assert_eq!(offer(FRAME_NANOS, 5), 1);
    assert_eq!(offer(FRAME_NANOS, 6), 0);
}

#[test]
fn an_idle_link_takes_a_packet_larger_than_its_queue() {
    let mut link = LinkDirection::new(
        &PathDirection {
            queue: Some(ByteCount::new(100)),
            ..fast_ethernet()
        },
        1,
    );
    let mut offer = |when, number| {
        link.offer_train(at(when), Burst::packet(number, 1500))
            .accepted
            .get()
    };
    assert_eq!(offer(0, 0), 1);
    assert_eq!(offer(0, 1), 0);
    assert_eq!(offer(FRAME_NANOS - 1, 2), 0);
    assert_eq!(offer(FRAME_NANOS, 3), 1);
}

#[test]
fn of_a_train_the_packets_that_fit_are_taken() {
    let mut link = LinkDirection::new(
        &PathDirection {
            queue: Some(ByteCount::new(4 * 1538 + 1000)),
            ..fast_ethernet()
        },
        1,
    );
    let train = |first| Burst::train(first, 6, 1500, 200);
    let outcome = link.offer_train(at(0), train(0));
    assert_eq!(
        (outcome.accepted.get(), outcome.overflowed.get()),
        (5, 1),
        "the last is small enough"
    );
    // Half of that train has been sent: its packets leave the queue one by one.
    let outcome = link.offer_train(at(2 * FRAME_NANOS), train(6));
    assert_eq!((outcome.accepted.get(), outcome.overflowed.get()), (3, 3));
    let numbers: Vec<_> = drain(&mut link)
        .iter()
        .flat_map(|delivery| delivery.train.numbers())
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 5, 6, 7, 11]);
    let counters = link.counters_at(at(u64::MAX));
    assert_eq!(counters.max_backlog, ByteCount::new(4 * 1538 + 2 * 238));
    assert_eq!(counters.overflowed.bytes, ByteCount::new(4 * 1538));
}

#[test]
fn of_a_train_only_the_lost_packets_are_missing() {
    let mut link = LinkDirection::new(
        &PathDirection {
            loss: Some(Ratio::new(0.02)),
            ..fast_ethernet()
        },
        5,
    );
    let outcome = link.offer_train(at(0), Burst::train(0, 1000, 1500, 700));
    let deliveries = drain(&mut link);
    let numbers: Vec<_> = deliveries
        .iter()
        .flat_map(|delivery| delivery.train.numbers())
        .collect();
    assert_eq!(numbers.len() as u64, outcome.accepted.get());
    assert_eq!(outcome.accepted + outcome.lost, SegCount::new(1000));
    assert!((5..=40).contains(&outcome.lost.get()), "{outcome:?}");
    assert!(deliveries.len() as u64 <= outcome.lost.get() + 1);
    // What was lost took no time on the link.
    let bytes = deliveries
        .iter()
        .map(|delivery| fullpipe_link::Train::wire_bytes(&delivery.train, Framing::Ethernet));
    assert_eq!(
        deliveries.last().unwrap().due,
        at(0) + BitRate::from_mbps(100).time_for(bytes.sum())
    );
}

#[test]
fn counters_give_the_rate_and_the_idle_time() {
    let mut link = LinkDirection::new(&fast_ethernet(), 1);
    for burst in 0..10 {
        for number in 0..100 {
            link.offer_train(
                at(burst * 20_000_000),
                Burst::packet(burst * 100 + number, 1500),
            );
        }
    }
    // In the middle of the last burst: nine of 12.304 ms, and 50 frames and a half of the tenth.
    let now = at(9 * 20_000_000 + 50 * FRAME_NANOS + FRAME_NANOS / 2);
    let counters = link.counters_at(now);
    assert_eq!(
        counters.busy,
        Span::from_nanos(950 * FRAME_NANOS + FRAME_NANOS / 2)
    );
    assert_eq!(counters.sent, ByteCount::new(950 * 1538));
    assert_eq!(counters.max_backlog, ByteCount::new(100 * 1538));
    let end = link.counters_at(at(1_000_000_000));
    assert_eq!(end.busy, Span::from_nanos(1000 * FRAME_NANOS));
    let rate = BitRate::from_bytes_in(end.sent, end.busy);
    assert_eq!(rate, BitRate::from_mbps(100));
    assert_eq!(
        (end.offered.segments.get(), end.delivered.segments.get()),
        (1000, 0),
        "nobody has popped yet"
    );
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "after one at")]
fn time_does_not_go_back() {
    let mut link = LinkDirection::new(&fast_ethernet(), 1);
    link.offer_train(at(10), Burst::packet(0, 1500));
    link.pop_arrived(at(9));
}

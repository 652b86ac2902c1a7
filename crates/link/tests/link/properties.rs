//! What holds for every path and every load.

use crate::burst::{Burst, at, drain};
use fullpipe_link::{Counters, Delivery, Direction, Train};
use fullpipe_record::{Encapsulation, Framing, IpVersion, PathDirection};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};
use proptest::prelude::*;

/// When a train comes, and the train.
type Arrival = (u64, Burst);

fn path() -> impl Strategy<Value = PathDirection> {
    let rate = proptest::option::weighted(0.9, 1_000_000_u64..20_000_000_000);
    let queue = proptest::option::weighted(0.8, 100_u64..200_000);
    let loss = proptest::option::of(prop_oneof![Just(0.0), 0.0..0.05, 0.0..=1.0]);
    let framing = prop_oneof![Just(Framing::Ethernet), Just(Framing::Ip)];
    (rate, queue, loss, 0_u64..200_000_000, framing).prop_map(|(rate, queue, loss, delay, framing)| PathDirection {
        rate: rate.map(BitRate::from_bps),
        delay: Span::from_nanos(delay),
        queue: queue.map(ByteCount::new),
        loss: loss.map(Ratio::new),
        mtu: ByteCount::new(9000),
        framing,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
    })
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![Just(0), 0_u64..1_000, 0_u64..1_000_000, 0_u64..20_000_000];
    let train = (1_u64..=45, 28_u64..=9000, 0.0..1.0).prop_map(|(packets, size, last)| {
        let last = 28 + ((size - 28) as f64 * last) as u64;
        Burst { first: 0, packets, size, last: if packets == 1 { size } else { last } }
    });
    proptest::collection::vec((gap, train), 0..120).prop_map(|mut arrivals| {
        let (mut time, mut number) = (0, 0);
        for (gap, train) in &mut arrivals {
            time += *gap;
            *gap = time;
            train.first = number;
            number += train.packets;
        }
        arrivals
    })
}

/// The same with trains of one packet, all of a train at the same time.
fn singly(arrivals: &[Arrival]) -> Vec<Arrival> {
    let packets = |(time, train): &Arrival| {
        let (time, train) = (*time, train.clone());
        train.numbers().map(move |number| (time, Burst::packet(number, train.size)))
    };
    arrivals.iter().flat_map(packets).collect()
}

/// Offers everything, then takes everything.
fn run(path: &PathDirection, seed: u64, arrivals: &[Arrival]) -> (Vec<Delivery<Burst>>, Counters) {
    let mut link = Direction::new(path, seed);
    for (time, train) in arrivals {
        link.offer(at(*time), train.clone());
    }
    let deliveries = drain(&mut link);
    (deliveries, link.counters(at(u64::MAX)))
}

fn numbers(deliveries: &[Delivery<Burst>]) -> Vec<u64> {
    deliveries.iter().flat_map(|delivery| delivery.train.numbers()).collect()
}

/// What a queue and a link do to single packets, told by its definition: each packet departs its length after it came
/// or after the one before it; those that have not departed are in the queue. In units of 1/rate nanoseconds, exactly.
fn by_definition(path: &PathDirection, rate: u64, arrivals: &[Arrival]) -> Vec<(Time, u64)> {
    let rate = u128::from(rate);
    let mut accepted: Vec<(u128, u64)> = Vec::new();
    let mut deliveries = Vec::new();
    for (time, packet) in arrivals {
        let now = u128::from(*time) * rate;
        let wire = packet.wire_bytes(path.framing).get();
        let backlog: u64 = accepted.iter().filter(|(departs, _)| *departs > now).map(|(_, wire)| wire).sum();
        if backlog > 0 && path.queue.is_some_and(|limit| backlog + wire > limit.get()) {
            continue;
        }
        let free = accepted.last().map_or(0, |(departs, _)| *departs);
        let departs = free.max(now) + u128::from(wire) * 8_000_000_000;
        accepted.push((departs, wire));
        let due = u64::try_from(departs.div_ceil(rate)).unwrap_or(u64::MAX);
        deliveries.push((at(due) + path.delay, packet.first));
    }
    deliveries
}

proptest! {
    #[test]
    fn nothing_appears_and_nothing_vanishes(path in path(), seed: u64, arrivals in arrivals()) {
        let mut link = Direction::new(&path, seed);
        let (mut accepted, mut lost, mut overflowed) = (SegCount::ZERO, SegCount::ZERO, SegCount::ZERO);
        for (time, train) in &arrivals {
            let outcome = link.offer(at(*time), train.clone());
            prop_assert_eq!(outcome.accepted + outcome.lost + outcome.overflowed, train.segments());
            accepted += outcome.accepted;
            lost += outcome.lost;
            overflowed += outcome.overflowed;
        }
        let deliveries = drain(&mut link);
        let counters = link.counters(at(u64::MAX));
        prop_assert_eq!(counters.delivered.segments, accepted);
        prop_assert_eq!(counters.lost.segments, lost);
        prop_assert_eq!(counters.overflowed.segments, overflowed);
        let offered: ByteCount = arrivals.iter().map(|(_, train)| train.wire_bytes(path.framing)).sum();
        prop_assert_eq!(counters.offered.bytes, offered);
        prop_assert_eq!(counters.lost.bytes + counters.overflowed.bytes + counters.delivered.bytes, offered);
        let out: ByteCount = deliveries.iter().map(|delivery| delivery.train.wire_bytes(path.framing)).sum();
        prop_assert_eq!(counters.delivered.bytes, out);
        prop_assert_eq!(counters.sent, out);
    }

    #[test]
    fn packets_stay_in_order_and_come_once(path in path(), seed: u64, arrivals in arrivals()) {
        let (deliveries, _) = run(&path, seed, &arrivals);
        prop_assert!(numbers(&deliveries).is_sorted_by(|a, b| a < b));
        prop_assert!(deliveries.is_sorted_by_key(|delivery| delivery.due));
    }

    #[test]
    fn extra_polls_change_nothing(
        path in path(),
        seed: u64,
        arrivals in arrivals(),
        polls in proptest::collection::vec(0.0..1.0, 120),
    ) {
        let mut polled = Direction::new(&path, seed);
        let mut deliveries = Vec::new();
        let mut last = 0;
        for ((time, train), poll) in arrivals.iter().zip(polls) {
            let between = at(last + ((time - last) as f64 * poll) as u64);
            deliveries.extend(std::iter::from_fn(|| polled.pop(between)));
            polled.offer(at(*time), train.clone());
            polled.counters(at(*time));
            polled.next_deadline();
            last = *time;
        }
        deliveries.extend(drain(&mut polled));
        let (unpolled, counters) = run(&path, seed, &arrivals);
        prop_assert_eq!(deliveries, unpolled);
        prop_assert_eq!(polled.counters(at(u64::MAX)), counters);
    }

    #[test]
    fn the_same_seed_gives_the_same_trace(path in path(), seed: u64, arrivals in arrivals()) {
        prop_assert_eq!(run(&path, seed, &arrivals), run(&path, seed, &arrivals));
    }

    #[test]
    fn a_train_is_treated_as_its_packets_would_be(path in path(), seed: u64, mut arrivals in arrivals()) {
        for (_, train) in &mut arrivals {
            train.last = train.size;
        }
        let (trains, of_trains) = run(&path, seed, &arrivals);
        let (packets, of_packets) = run(&path, seed, &singly(&arrivals));
        prop_assert_eq!(numbers(&trains), numbers(&packets));
        prop_assert_eq!(of_trains, of_packets);
        // A train arrives with its last packet.
        for delivery in &trains {
            let last = delivery.train.numbers().end - 1;
            let due = packets.iter().find(|packet| packet.train.first == last).map(|packet| packet.due);
            prop_assert_eq!(Some(delivery.due), due);
        }
    }

    #[test]
    fn queue_and_rate_do_what_they_are_defined_to_do(mut path in path(), arrivals in arrivals()) {
        let Some(rate) = path.rate else { return Ok(()) };
        path.loss = None;
        let packets = singly(&arrivals);
        let (deliveries, _) = run(&path, 0, &packets);
        let trace: Vec<_> = deliveries.iter().map(|delivery| (delivery.due, delivery.train.first)).collect();
        prop_assert_eq!(trace, by_definition(&path, rate.bps(), &packets));
    }

    #[test]
    fn no_more_waits_than_the_queue_holds(path in path(), seed: u64, arrivals in arrivals()) {
        let (_, counters) = run(&path, seed, &arrivals);
        if let Some(limit) = path.queue {
            let largest = arrivals.iter().map(|(_, train)| train.segment_bytes() + path.framing.overhead()).max();
            prop_assert!(counters.max_backlog <= limit.max(largest.unwrap_or_default()));
        }
    }
}

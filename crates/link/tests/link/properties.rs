//! Properties of every path under every load.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::burst::{Burst, Ecn, at, drain};
use fullpipe_link::{ArrivedTrain, DirectionCounters, LinkDirection, QueueOutcome, Train};
use fullpipe_record::{
    Codel, Distribution, Edit, Effects, Encapsulation, Fate, Framing, IpVersion, Jitter,
    LossPattern, NarrowLink, Opportunities, PathChange, PathDirection, PathStep, Policer, Queueing,
    Reordering, TooBig,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};
use proptest::prelude::*;

/// When a train comes, and the train.
type Arrival = (u64, Burst);

fn plain_path() -> impl Strategy<Value = PathDirection> {
    let rate = proptest::option::weighted(0.9, 1_000_000_u64..20_000_000_000);
    let queue = proptest::option::weighted(0.8, 100_u64..200_000);
    let loss = proptest::option::of(prop_oneof![Just(0.0), 0.0..0.05, 0.0..=1.0]);
    let framing = prop_oneof![Just(Framing::Ethernet), Just(Framing::Ip)];
    (rate, queue, loss, 0_u64..200_000_000, framing).prop_map(
        |(rate, queue, loss, delay, framing)| PathDirection {
            rate: rate.map(BitRate::from_bps),
            delay: Span::from_nanos(delay),
            queue: queue.map(ByteCount::new),
            loss: loss.map(Ratio::new),
            mtu: ByteCount::new(9000),
            framing,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: Effects::default(),
        },
    )
}

fn span(range: std::ops::Range<u64>) -> impl Strategy<Value = Span> {
    range.prop_map(Span::from_nanos)
}

fn ratio() -> impl Strategy<Value = Ratio> {
    prop_oneof![4 => Just(0.0), 2 => 0.0..0.1, 1 => 0.0..=1.0].prop_map(Ratio::new)
}

fn losses() -> impl Strategy<Value = LossPattern> {
    let chain =
        (ratio(), ratio(), ratio(), ratio()).prop_map(|(to_bad, to_good, in_good, in_bad)| {
            LossPattern::GilbertElliott {
                to_bad,
                to_good,
                in_good,
                in_bad,
            }
        });
    let numbers = || proptest::collection::vec(0_u64..3000, 0..50);
    prop_oneof![
        chain,
        numbers().prop_map(LossPattern::Listed),
        numbers().prop_map(LossPattern::ListedData)
    ]
}

fn queueing() -> impl Strategy<Value = Queueing> {
    let codel = || {
        (span(0..20_000_000), span(0..200_000_000), any::<bool>()).prop_map(
            |(target, interval, ecn)| Codel {
                target,
                interval,
                ecn,
            },
        )
    };
    prop_oneof![
        Just(Queueing::DropTail),
        (0_u64..100_000).prop_map(|bytes| Queueing::Threshold(ByteCount::new(bytes))),
        codel().prop_map(Queueing::Codel),
        codel().prop_map(Queueing::FqCodel),
    ]
}

fn jitter() -> impl Strategy<Value = Jitter> {
    let delay = || span(0..30_000_000);
    let distribution = prop_oneof![
        delay().prop_map(Distribution::Uniform),
        (delay(), delay()).prop_map(|(mean, deviation)| Distribution::Normal { mean, deviation }),
        delay().prop_map(Distribution::Exponential),
        (delay(), 0.0..5.0).prop_map(|(least, shape)| Distribution::Pareto {
            least,
            shape: Ratio::new(shape)
        }),
        proptest::collection::vec(delay(), 0..5).prop_map(Distribution::Listed),
    ];
    (distribution, any::<bool>()).prop_map(|(distribution, reorders)| Jitter {
        distribution,
        reorders,
    })
}

fn steps() -> impl Strategy<Value = Vec<PathStep>> {
    let rate = proptest::option::of(prop_oneof![1 => Just(0), 5 => 1_000_000_u64..1_000_000_000]);
    let change = (
        rate,
        proptest::option::of(span(0..100_000_000)),
        proptest::option::of(ratio()),
    );
    let step = (span(0..1_000_000_000), change).prop_map(|(after, (rate, delay, loss))| PathStep {
        after,
        change: PathChange {
            rate: rate.map(BitRate::from_bps),
            delay,
            loss,
        },
    });
    // The last step lets out what is left.
    proptest::collection::vec(step, 0..6).prop_map(|mut steps| {
        if !steps.is_empty() {
            let change = PathChange {
                rate: Some(BitRate::from_mbps(50)),
                ..PathChange::default()
            };
            steps.push(PathStep {
                after: Span::from_secs(2),
                change,
            });
        }
        steps
    })
}

fn effects() -> impl Strategy<Value = Effects> {
    use proptest::option::weighted;
    let narrow = (28_u64..9000, any::<bool>()).prop_map(|(mtu, answered)| NarrowLink {
        mtu: ByteCount::new(mtu),
        too_big: if answered {
            TooBig::Answered
        } else {
            TooBig::Swallowed
        },
    });
    let policer =
        (1_000_000_u64..2_000_000_000, 0_u64..100_000).prop_map(|(rate, burst)| Policer {
            rate: BitRate::from_bps(rate),
            burst: ByteCount::new(burst),
        });
    let opportunities =
        proptest::collection::vec(0_u32..40, 0..30).prop_map(|millis| Opportunities { millis });
    let reordering =
        (ratio(), span(0..50_000_000)).prop_map(|(share, by)| Reordering { share, by });
    let before = (
        weighted(0.3, losses()),
        weighted(0.2, narrow),
        weighted(0.3, policer),
    );
    let queue = (
        weighted(0.3, 1_u64..60),
        queueing(),
        weighted(0.15, opportunities),
    );
    let behind = (
        ratio(),
        ratio(),
        weighted(0.3, jitter()),
        weighted(0.3, reordering),
        steps(),
    );
    (before, queue, behind).prop_map(
        |((losses, narrow, policer), (packets, queueing, opportunities), behind)| Effects {
            losses,
            edits: vec![Edit::Router(IpAddr::from([198, 18, 1, 1]))],
            narrow,
            policer,
            queue_packets: packets.map(SegCount::new),
            queueing,
            opportunities,
            corrupted: behind.0,
            duplicated: behind.1,
            jitter: behind.2,
            reordering: behind.3,
            steps: behind.4,
        },
    )
}

/// With everything that paths do.
fn path() -> impl Strategy<Value = PathDirection> {
    let some = prop_oneof![1 => Just(Effects::default()), 5 => effects()];
    (plain_path(), some).prop_map(|(path, effects)| PathDirection { effects, ..path })
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![Just(0), 0_u64..1_000, 0_u64..1_000_000, 0_u64..20_000_000];
    let ecn = prop_oneof![Just(Ecn::Not), Just(Ecn::Capable)];
    let hops = prop_oneof![1 => Just(1_u8), 9 => Just(64)];
    let train = (1_u64..=45, 28_u64..=9000, 0.0..1.0, 0_u64..4, (ecn, hops));
    let train = train.prop_map(|(packets, size, last, flow, (ecn, hops))| {
        let last = 28 + ((size - 28) as f64 * last) as u64;
        Burst {
            flow,
            ecn,
            hops,
            ..Burst::train(0, packets, size, if packets == 1 { size } else { last })
        }
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

/// The packets of a train, each as a train of its own.
fn packets(train: &Burst) -> impl Iterator<Item = Burst> {
    let size = |number| {
        if number + 1 == train.numbers().end {
            train.last
        } else {
            train.size
        }
    };
    train.numbers().map(move |number| Burst {
        first: number,
        packets: 1,
        size: size(number),
        last: size(number),
        ..train.clone()
    })
}

/// The same with trains of one packet, all of a train at the same time.
fn singly(arrivals: &[Arrival]) -> Vec<Arrival> {
    arrivals
        .iter()
        .flat_map(|(time, train)| packets(train).map(|packet| (*time, packet)))
        .collect()
}

/// Offers everything, then takes everything.
fn run(
    path: &PathDirection,
    seed: u64,
    arrivals: &[Arrival],
) -> (Vec<ArrivedTrain<Burst>>, DirectionCounters) {
    let mut link = LinkDirection::new(path, seed);
    for (time, train) in arrivals {
        link.offer_train(at(*time), train.clone());
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

/// Queue and link for single packets, by definition: each packet departs its length after it came
/// or after the one before it; those that have not departed are in the queue. In units of 1/rate
/// nanoseconds, exactly.
fn by_definition(path: &PathDirection, rate: u64, arrivals: &[Arrival]) -> Vec<(Time, u64)> {
    let rate = u128::from(rate);
    let mut accepted: Vec<(u128, u64)> = Vec::new();
    let mut deliveries = Vec::new();
    for (time, packet) in arrivals {
        let now = u128::from(*time) * rate;
        let wire = packet.wire_bytes(path.framing).get();
        let backlog: u64 = accepted
            .iter()
            .filter(|(departs, _)| *departs > now)
            .map(|(_, wire)| wire)
            .sum();
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

/// The packets of each fate by the counters.
fn counted(counters: &DirectionCounters) -> [(Fate, SegCount); 10] {
    [
        (Fate::Lost, counters.lost.segments),
        (Fate::Expired, counters.expired.segments),
        (Fate::TooBig, counters.too_big.segments),
        (Fate::Policed, counters.policed.segments),
        (Fate::Overflowed, counters.overflowed.segments),
        (Fate::AqmDropped, counters.aqm_dropped.segments),
        (Fate::Marked, counters.marked),
        (Fate::Corrupted, counters.corrupted),
        (Fate::Duplicated, counters.duplicated.segments),
        (Fate::Reordered, counters.reordered),
    ]
}

/// All packets that a count of bytes must find again.
fn gone(counters: &DirectionCounters) -> (SegCount, ByteCount) {
    let all = [
        counters.lost,
        counters.expired,
        counters.too_big,
        counters.policed,
        counters.overflowed,
        counters.aqm_dropped,
        counters.delivered,
    ];
    (
        all.iter().map(|tally| tally.segments).sum(),
        all.iter().map(|tally| tally.bytes).sum(),
    )
}

/// Of which only what happens before the queue differs from a plain one.
fn path_with_a_plain_end() -> impl Strategy<Value = PathDirection> {
    path().prop_map(|mut path| {
        let before = path.effects;
        path.effects = Effects {
            losses: before.losses,
            edits: before.edits,
            narrow: before.narrow,
            policer: before.policer,
            queue_packets: before.queue_packets,
            ..Effects::default()
        };
        path
    })
}

/// The same, with a change at the end of time that changes nothing, for which the link has to be
/// ready.
fn ready_to_change(path: &PathDirection) -> PathDirection {
    let never = PathStep {
        after: Span::MAX,
        change: PathChange::default(),
    };
    PathDirection {
        effects: Effects {
            steps: vec![never],
            ..path.effects.clone()
        },
        ..path.clone()
    }
}

/// Everything that can be observed of `path` while each train is offered after a call in between,
/// and one change is made.
fn observed(
    path: &PathDirection,
    seed: u64,
    arrivals: &[Arrival],
    polls: &[f64],
    (changes_at, change): (usize, PathChange),
) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut link = LinkDirection::new(path, seed);
    link.keep_incidents(true);
    let (mut outcomes, mut deliveries, mut counters, mut last) = (vec![], vec![], vec![], 0);
    for (number, ((time, train), poll)) in arrivals.iter().zip(polls).enumerate() {
        let between = at(last + ((time - last) as f64 * poll) as u64);
        if number == changes_at {
            link.change_path(between, &change);
        }
        counters.push(link.counters_at(between));
        deliveries.extend(std::iter::from_fn(|| link.pop_arrived(between)));
        outcomes.push(link.offer_train(at(*time), train.clone()));
        counters.push(link.counters_at(at(*time)));
        last = *time;
    }
    deliveries.extend(drain(&mut link));
    counters.push(link.counters_at(at(u64::MAX)));
    let incidents = link.take_incidents();
    (
        outcomes,
        deliveries,
        counters,
        incidents,
        link.edit_counts().to_vec(),
    )
}

proptest! {
    /// Of a packet to which nothing happens but a drop-tail queue, a rate and a delay, the link
    /// knows all moments at once; the result is that of the stages, event by event, also when the
    /// path changes meanwhile.
    #[test]
    fn a_plain_path_does_what_its_stages_do(
        path in path_with_a_plain_end(),
        seed: u64,
        arrivals in arrivals(),
        polls in proptest::collection::vec(0.0..=1.0, 120),
        steps in steps(),
        changes_at in 0_usize..240,
    ) {
        let change = steps.first().map_or_else(PathChange::default, |step| step.change);
        let observed = |path| observed(path, seed, &arrivals, &polls, (changes_at, change));
        prop_assert_eq!(observed(&path), observed(&ready_to_change(&path)));
    }

    #[test]
    fn nothing_appears_and_nothing_vanishes(path in path(), seed: u64, arrivals in arrivals()) {
        let mut link = LinkDirection::new(&path, seed);
        for (time, train) in &arrivals {
            let QueueOutcome { accepted, lost, expired, too_big, policed, overflowed, reply } =
                link.offer_train(at(*time), train.clone());
            prop_assert_eq!(accepted + lost + expired + too_big + policed + overflowed, train.segment_count());
            let answers = path.effects.narrow.is_some_and(|narrow| narrow.too_big == TooBig::Answered);
            prop_assert_eq!(reply.is_some(), expired > SegCount::ZERO || answers && too_big > SegCount::ZERO);
        }
        let deliveries = drain(&mut link);
        let counters = link.counters_at(at(u64::MAX));
        let came: ByteCount = arrivals.iter().map(|(_, train)| train.wire_bytes(path.framing)).sum();
        prop_assert_eq!(counters.offered.bytes, came);
        let (segments, bytes) = gone(&counters);
        prop_assert_eq!(segments, counters.offered.segments + counters.duplicated.segments);
        prop_assert_eq!(bytes, came + counters.duplicated.bytes);
        let out: ByteCount = deliveries.iter().map(|delivery| delivery.train.wire_bytes(path.framing)).sum();
        prop_assert_eq!(counters.delivered.bytes, out);
        prop_assert_eq!(counters.sent + counters.duplicated.bytes, out);
        prop_assert_eq!(link.next_deadline(), None);
    }

    /// All that was offered arrives or is in the incidents, and no queue at a drop is longer
    /// than the longest.
    #[test]
    fn incidents_are_the_packets_of_the_counters(path in path(), seed: u64, arrivals in arrivals()) {
        let mut link = LinkDirection::new(&path, seed);
        link.keep_incidents(true);
        for (time, train) in &arrivals {
            link.offer_train(at(*time), train.clone());
        }
        let deliveries = drain(&mut link);
        let (incidents, counters) = (link.take_incidents(), link.counters_at(at(u64::MAX)));
        for (fate, packets) in counted(&counters) {
            let of_fate = incidents.iter().filter(|incident| incident.fate == fate);
            prop_assert_eq!(of_fate.map(|incident| incident.train.segment_count()).sum::<SegCount>(), packets);
        }
        let dropped = incidents.iter().filter(|incident| incident.fate.is_loss());
        let arrived = numbers(&deliveries);
        let mut all: Vec<u64> = dropped.flat_map(|incident| incident.train.numbers()).chain(arrived).collect();
        all.sort_unstable();
        all.dedup();
        let offered: u64 = arrivals.iter().map(|(_, train)| train.packets).sum();
        prop_assert_eq!(all, (0..offered).collect::<Vec<_>>());
        // FQ-CoDel takes in what it has no room for before it drops another in its place.
        if !matches!(path.effects.queueing, Queueing::FqCodel(_)) {
            let queues = incidents.iter().filter_map(|incident| incident.queue);
            prop_assert!(queues.max().is_none_or(|most| most <= counters.max_backlog));
        }
        prop_assert!(link.take_incidents().is_empty());
    }

    /// Counters of marks, wrong bits, copies and order agree with the packets.
    #[test]
    fn counters_agree_with_the_packets(path in path(), seed: u64, arrivals in arrivals()) {
        let (deliveries, counters) = run(&path, seed, &arrivals);
        let count = |holds: fn(&Burst) -> bool| -> u64 {
            deliveries.iter().filter(|delivery| holds(&delivery.train)).map(|delivery| delivery.train.packets).sum()
        };
        let copies = counters.duplicated.segments.get();
        let mut seen = HashMap::new();
        for number in numbers(&deliveries) {
            *seen.entry(number).or_insert(0_u64) += 1;
        }
        prop_assert!(seen.values().all(|times| *times <= 2));
        prop_assert_eq!(seen.values().filter(|times| **times == 2).count() as u64, copies);
        let corrupted = count(|train| train.corrupt);
        prop_assert!((counters.corrupted.get()..=counters.corrupted.get() + copies).contains(&corrupted));
        let marked = count(|train| train.ecn == Ecn::Marked);
        // A marked packet may be dropped from the head of a queue afterwards, and be copied.
        prop_assert!(marked <= counters.marked.get() + copies);
        if matches!(path.effects.queueing, Queueing::DropTail) {
            prop_assert_eq!(marked, 0);
        }
    }

    #[test]
    fn packets_stay_in_order_and_come_once_unless_asked(mut path in path(), seed: u64, arrivals in arrivals()) {
        path.effects.duplicated = Ratio::ZERO;
        path.effects.reordering = None;
        path.effects.jitter.iter_mut().for_each(|jitter| jitter.reorders = false);
        let (deliveries, counters) = run(&path, seed, &arrivals);
        prop_assert!(deliveries.is_sorted_by_key(|delivery| delivery.due));
        prop_assert_eq!(counters.reordered, SegCount::ZERO);
        // FQ-CoDel keeps the order of each connection.
        let fair = matches!(path.effects.queueing, Queueing::FqCodel(_));
        let mut last = HashMap::new();
        for delivery in &deliveries {
            let flow = if fair { delivery.train.flow } else { 0 };
            let before = last.insert(flow, delivery.train.numbers().end - 1);
            prop_assert!(before.is_none_or(|before| before < delivery.train.first));
        }
    }

    #[test]
    fn deliveries_are_given_out_when_due_and_in_that_order(path in path(), seed: u64, arrivals in arrivals()) {
        let (deliveries, _) = run(&path, seed, &arrivals);
        prop_assert!(deliveries.is_sorted_by_key(|delivery| delivery.due));
    }

    #[test]
    fn extra_polls_change_nothing(
        path in path(),
        seed: u64,
        arrivals in arrivals(),
        polls in proptest::collection::vec(0.0..1.0, 120),
    ) {
        let mut polled = LinkDirection::new(&path, seed);
        let mut deliveries = Vec::new();
        let mut last = 0;
        for ((time, train), poll) in arrivals.iter().zip(polls) {
            let between = at(last + ((time - last) as f64 * poll) as u64);
            deliveries.extend(std::iter::from_fn(|| polled.pop_arrived(between)));
            polled.counters_at(between);
            polled.offer_train(at(*time), train.clone());
            polled.counters_at(at(*time));
            polled.next_deadline();
            last = *time;
        }
        deliveries.extend(drain(&mut polled));
        let (unpolled, counters) = run(&path, seed, &arrivals);
        prop_assert_eq!(deliveries, unpolled);
        prop_assert_eq!(polled.counters_at(at(u64::MAX)), counters);
    }

    /// A driver that sleeps until each deadline misses none.
    #[test]
    fn nothing_arrives_before_the_deadline(path in path(), seed: u64, arrivals in arrivals()) {
        let mut link = LinkDirection::new(&path, seed);
        let mut arrivals = arrivals.iter().peekable();
        let mut now = at(0);
        loop {
            let next = arrivals.peek().map(|(time, _)| at(*time));
            let deadline = link.next_deadline();
            let Some(then) = [next, deadline].into_iter().flatten().min() else { break };
            prop_assert!(then >= now || deadline == Some(then));
            now = then.max(now);
            while let Some(delivery) = link.pop_arrived(now) {
                prop_assert_eq!(delivery.due, now);
            }
            if let Some((_, train)) = arrivals.next_if(|(time, _)| at(*time) == now) {
                link.offer_train(now, train.clone());
            }
        }
        prop_assert_eq!(link.pop_arrived(at(u64::MAX)), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_trace(path in path(), seed: u64, arrivals in arrivals()) {
        prop_assert_eq!(run(&path, seed, &arrivals), run(&path, seed, &arrivals));
    }

    #[test]
    fn a_train_is_treated_as_its_packets_would_be(path in path(), seed: u64, arrivals in arrivals()) {
        let (trains, mut of_trains) = run(&path, seed, &arrivals);
        let (alone, of_packets) = run(&path, seed, &singly(&arrivals));
        // A train arrives with its last packet: one that is held back may come before it, but
        // behind its first packets.
        of_trains.reordered = of_packets.reordered;
        prop_assert_eq!(of_trains, of_packets);
        let of_train = |train: &Burst| packets(train).collect::<Vec<_>>();
        let mut in_trains: Vec<_> = trains.iter().flat_map(|delivery| of_train(&delivery.train)).collect();
        let mut singly: Vec<_> = alone.iter().map(|delivery| delivery.train.clone()).collect();
        for packets in [&mut in_trains, &mut singly] {
            packets.sort_by_key(|packet| packet.first);
        }
        prop_assert_eq!(in_trains, singly);
        // A train arrives with its last packet; one that is leaving when the delay changes keeps
        // together.
        if path.effects.steps.iter().any(|step| step.change.delay.is_some()) {
            return Ok(());
        }
        let mut due: HashMap<u64, Vec<Time>> = HashMap::new();
        for delivery in &alone {
            due.entry(delivery.train.first).or_default().push(delivery.due);
        }
        for delivery in &trains {
            let last = delivery.train.numbers().end - 1;
            prop_assert!(due[&last].contains(&delivery.due));
        }
    }

    #[test]
    fn queue_and_rate_do_what_they_are_defined_to_do(mut path in plain_path(), arrivals in arrivals()) {
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
            let largest = arrivals.iter().map(|(_, train)| train.segment_bytes() + path.framing.packet_overhead()).max();
            prop_assert!(counters.max_backlog <= limit.max(largest.unwrap_or_default()));
        }
    }

    /// A change that a driver makes is the one that was planned for the same moment.
    #[test]
    fn a_change_is_a_step(mut path in path(), seed: u64, arrivals in arrivals(), steps in steps()) {
        path.effects.steps.clear();
        let mut sorted = steps.clone();
        sorted.sort_by_key(|step| step.after);
        let mut changed = LinkDirection::new(&path, seed);
        let mut to_come = sorted.iter().peekable();
        for (time, train) in &arrivals {
            while let Some(step) = to_come.next_if(|step| Time::ZERO + step.after <= at(*time)) {
                changed.change_path(Time::ZERO + step.after, &step.change);
            }
            changed.offer_train(at(*time), train.clone());
        }
        to_come.for_each(|step| changed.change_path(Time::ZERO + step.after, &step.change));
        let deliveries = drain(&mut changed);
        let counters = changed.counters_at(at(u64::MAX));
        path.effects.steps = steps;
        prop_assert_eq!((deliveries, counters), run(&path, seed, &arrivals));
    }
}

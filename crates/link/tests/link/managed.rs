//! Queues under management: CoDel against a transcript of its RFC, FQ-CoDel against its promises.

use crate::burst::{Burst, Ecn, at, drain, fast_ethernet};
use fullpipe_link::{ArrivedTrain, LinkDirection};
use fullpipe_record::{Codel, Effects, PathDirection, Queueing};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};
use proptest::prelude::*;

const FRAME_NANOS: u64 = 123_040;

fn path(queueing: Queueing) -> PathDirection {
    PathDirection {
        effects: Effects {
            queueing,
            ..Effects::default()
        },
        ..fast_ethernet()
    }
}

/// The pseudocode of RFC 8289, section 5, over packets of one size that arrive at given times on an
/// idle link; which of them depart, and when. Written against the text, without sight of the link.
struct Transcript {
    arrivals: Vec<u64>,
    /// The next in the queue.
    head: usize,
    now: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;

impl Transcript {
    /// Packets that wait at `now`.
    fn waiting(&self) -> usize {
        self.arrivals[self.head..]
            .iter()
            .filter(|came| **came <= self.now)
            .count()
    }

    fn dodequeue(&mut self) -> (Option<usize>, bool) {
        if self.waiting() == 0 {
            self.first_above_time = 0;
            return (None, false);
        }
        let packet = self.head;
        self.head += 1;
        let sojourn_time = self.now - self.arrivals[packet];
        if sojourn_time < TARGET || self.waiting() <= 1 {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = self.now + INTERVAL;
        } else if self.now >= self.first_above_time {
            return (Some(packet), true);
        }
        (Some(packet), false)
    }

    fn control_law(t: u64, count: u32) -> u64 {
        t + (INTERVAL as f64 / f64::from(count).sqrt()) as u64
    }

    fn deque(&mut self) -> Option<usize> {
        let (mut packet, mut ok_to_drop) = self.dodequeue();
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.now >= self.drop_next && self.dropping {
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue();
                if ok_to_drop {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            (packet, _) = self.dodequeue();
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && self.now - self.drop_next < 16 * INTERVAL {
                self.count = delta;
            }
            self.drop_next = Self::control_law(self.now, self.count);
            self.lastcount = self.count;
        }
        packet
    }

    /// Number and time of each departure.
    fn run(arrivals: Vec<u64>) -> Vec<(u64, u64)> {
        let mut transcript = Self {
            arrivals,
            head: 0,
            now: 0,
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
        };
        let mut departures = Vec::new();
        while transcript.head < transcript.arrivals.len() {
            transcript.now = transcript.now.max(transcript.arrivals[transcript.head]);
            if let Some(packet) = transcript.deque() {
                transcript.now += FRAME_NANOS;
                departures.push((packet as u64, transcript.now));
            }
        }
        departures
    }
}

fn departures(deliveries: &[ArrivedTrain<Burst>]) -> Vec<(u64, u64)> {
    deliveries
        .iter()
        .map(|delivery| (delivery.train.first, delivery.due.as_nanos()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Phases of load above and below the rate, so that dropping begins, ends and begins again.
    #[test]
    fn codel_does_what_its_rfc_says(
        phases in proptest::collection::vec((60_000_u64..200_000, 100_usize..4000), 1..6),
    ) {
        let gaps = phases.iter().flat_map(|(gap, count)| std::iter::repeat_n(*gap, *count));
        // An odd step, so that no packet comes at the moment at which another leaves.
        let arrivals: Vec<u64> = gaps.scan(0, |time, gap| { *time += gap | 1; Some(*time) }).collect();
        let mut link = LinkDirection::new(&path(Queueing::Codel(Codel::default())), 1);
        for (number, came) in (0..).zip(&arrivals) {
            link.offer_train(at(*came), Burst::packet(number, 1500));
        }
        prop_assert_eq!(departures(&drain(&mut link)), Transcript::run(arrivals));
    }
}

/// Under a load that never yields, CoDel drops after an interval and then ever faster: the k-th
/// drop comes the sum of interval ÷ √i later (RFC 8289, 5.3).
#[test]
fn codel_drops_by_its_control_law() {
    let mut link = LinkDirection::new(&path(Queueing::Codel(Codel::default())), 1);
    for number in 0..20_000 {
        link.offer_train(at(number * FRAME_NANOS / 2), Burst::packet(number, 1500));
    }
    // By the end of the load, 1.23 s, dropping has lasted 1.12 s: Σ 100 ms ÷ √i ≈ 200 ms × √k, so
    // about 36 drops.
    let by_the_end = link
        .counters_at(at(20_000 * FRAME_NANOS / 2))
        .aqm_dropped
        .segments
        .get();
    assert!((30..=40).contains(&by_the_end), "{by_the_end} drops");
}

/// If the sender speaks ECN, what would have been dropped is marked.
#[test]
fn codel_marks_where_it_may() {
    for (ecn, flow) in [(true, true), (true, false), (false, true)] {
        let mut link = LinkDirection::new(
            &path(Queueing::Codel(Codel {
                ecn,
                ..Codel::default()
            })),
            1,
        );
        for number in 0..5000 {
            let packet = Burst::packet(number, 1500);
            link.offer_train(
                at(number * FRAME_NANOS / 2),
                if flow { packet.of_flow(1) } else { packet },
            );
        }
        let deliveries = drain(&mut link);
        let marked = deliveries
            .iter()
            .filter(|delivery| delivery.train.ecn == Ecn::Marked)
            .count() as u64;
        let counters = link.counters_at(at(u64::MAX));
        assert_eq!(counters.marked.get(), marked);
        assert_eq!(
            (marked > 0, counters.aqm_dropped.segments > SegCount::ZERO),
            (ecn && flow, !(ecn && flow))
        );
    }
}

/// Only a train that is hit is cut: of 8 packets a train, those without a mark or a drop arrive
/// whole.
#[test]
fn managed_trains_stay_whole() {
    let mut link = LinkDirection::new(&path(Queueing::Codel(Codel::default())), 1);
    for train in 0..2500 {
        link.offer_train(
            at(train * 4 * FRAME_NANOS),
            Burst::train(train * 8, 8, 1500, 1500),
        );
    }
    let deliveries = drain(&mut link).len() as u64;
    let dropped = link.counters_at(at(u64::MAX)).aqm_dropped.segments.get();
    assert!(
        dropped > 20 && deliveries <= 2500 + dropped,
        "{deliveries} trains, {dropped} drops"
    );
}

/// Two connections that ask for more than the link carries get half each, whatever they ask for, to
/// a packet.
#[test]
fn fair_queues_share_the_link() {
    let mut link = LinkDirection::new(&path(Queueing::FqCodel(Codel::default())), 1);
    let (mut number, mut bytes) = (0, [0_u64; 2]);
    for tick in 0..8000 {
        // Nine times the rate in trains of full packets, and 0.9 times in small ones.
        let greedy = Burst::train(number, 9, 1500, 1500).of_flow(1);
        let modest = Burst::train(number + 9, 9, 112, 112).of_flow(2);
        number += 18;
        link.offer_train(at(tick * FRAME_NANOS), greedy);
        link.offer_train(at(tick * FRAME_NANOS), modest);
        while let Some(delivery) = link.pop_arrived(at(tick * FRAME_NANOS)) {
            let wire = fullpipe_link::Train::wire_bytes(
                &delivery.train,
                fullpipe_record::Framing::Ethernet,
            );
            bytes[delivery.train.flow as usize - 1] += wire.get();
        }
    }
    let [greedy, modest] = bytes;
    let sum = (8000 - 1) * 1538;
    assert!(
        greedy + modest <= sum && sum - greedy - modest < 2 * 1538,
        "{bytes:?}"
    );
    assert!(greedy.abs_diff(modest) < 4 * 1538 + 9 * 150, "{bytes:?}");
}

/// A connection that sends little passes those that send much (RFC 8290, 4.2: new queues go first).
#[test]
fn a_sparse_connection_waits_for_one_packet() {
    let mut link = LinkDirection::new(&path(Queueing::FqCodel(Codel::default())), 1);
    link.offer_train(at(0), Burst::train(0, 200, 1500, 1500).of_flow(1));
    link.offer_train(at(FRAME_NANOS / 2), Burst::packet(1000, 100).of_flow(2));
    let deliveries = drain(&mut link);
    let sparse = deliveries
        .iter()
        .find(|delivery| delivery.train.flow == 2)
        .unwrap();
    let own = BitRate::from_mbps(100).time_for(ByteCount::new(138));
    assert_eq!(sparse.due, at(FRAME_NANOS) + own);
    assert_eq!(deliveries.last().unwrap().due, at(200 * FRAME_NANOS) + own);
    assert_eq!(
        deliveries.len(),
        3,
        "its packet cuts the train in two, and nothing else does"
    );
}

/// A full queue makes room for a newcomer at the cost of the largest.
#[test]
fn the_fattest_queue_pays() {
    let full = PathDirection {
        queue: Some(ByteCount::new(20 * 1538)),
        ..path(Queueing::FqCodel(Codel::default()))
    };
    let mut link = LinkDirection::new(&full, 1);
    link.offer_train(at(0), Burst::train(0, 30, 1500, 1500).of_flow(1));
    let outcome = link.offer_train(at(1000), Burst::train(100, 3, 1500, 1500).of_flow(2));
    assert_eq!((outcome.accepted.get(), outcome.overflowed.get()), (3, 0));
    let deliveries = drain(&mut link);
    let of = |flow| {
        deliveries
            .iter()
            .filter(|d| d.train.flow == flow)
            .map(|d| d.train.packets)
            .sum::<u64>()
    };
    assert_eq!((of(1), of(2)), (17, 3));
    let counters = link.counters_at(at(u64::MAX));
    assert_eq!(counters.overflowed.segments, SegCount::new(13));
    assert_eq!(counters.max_backlog, ByteCount::new(20 * 1538));
    let first = deliveries.iter().find(|d| d.train.flow == 1).unwrap();
    assert_eq!(
        (first.train.first, first.due),
        (0, at(FRAME_NANOS)),
        "what is being sent is not dropped"
    );
    assert!(
        deliveries
            .iter()
            .all(|d| d.due.duration_since(at(0)) < Span::from_millis(3))
    );
}

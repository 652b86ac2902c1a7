//! The cut of the hosts' trains.

use crate::burst::{Burst, at, fast_ethernet};
use fullpipe_link::{LinkDirection, cut_train, packets_within, take_first};
use fullpipe_record::{Effects, Opportunities, PathChange, PathDirection, PathStep};
use fullpipe_units::{BitRate, SegCount, Span};

fn change(rate: u64) -> PathChange {
    PathChange {
        rate: Some(BitRate::from_mbps(rate)),
        ..PathChange::default()
    }
}

/// A path with this rate, which later changes to those, in Mbit/s.
fn path(rate: Option<u64>, later: &[u64]) -> PathDirection {
    let steps = later
        .iter()
        .map(|rate| PathStep {
            after: Span::from_secs(1),
            change: change(*rate),
        })
        .collect();
    let effects = Effects {
        steps,
        ..Effects::default()
    };
    PathDirection {
        rate: rate.map(BitRate::from_mbps),
        effects,
        ..fast_ethernet()
    }
}

/// Packets of the trains that a train of 200 becomes.
fn lengths(link: &LinkDirection<Burst>) -> Vec<u64> {
    link.cut_train(Burst::train(0, 200, 1500, 700))
        .map(|train| train.packets)
        .collect()
}

fn longest(path: &PathDirection) -> u64 {
    lengths(&LinkDirection::new(path, 0))[0]
}

#[test]
fn the_longest_train_lasts_a_tenth_of_a_millisecond() {
    assert_eq!(
        [100, 1000, 10_000].map(|rate| longest(&path(Some(rate), &[]))),
        [1, 8, 81]
    );
    assert_eq!(
        lengths(&LinkDirection::new(&path(Some(10_000), &[]), 0)),
        [81, 81, 38]
    );
    assert_eq!(longest(&path(None, &[])), 200);
}

#[test]
fn a_path_that_becomes_slower_carries_shorter_trains_from_the_first() {
    assert_eq!(longest(&path(Some(1000), &[50, 2000])), 1);
    assert_eq!(longest(&path(None, &[1000, 0])), 8);
    let trace = Some(Opportunities { millis: vec![1] });
    let effects = Effects {
        opportunities: trace,
        ..Effects::default()
    };
    assert_eq!(
        longest(&PathDirection {
            effects,
            ..path(None, &[])
        }),
        1
    );
}

#[test]
fn a_change_that_nobody_planned_counts_from_then_on() {
    let mut link = LinkDirection::new(&path(Some(1000), &[]), 0);
    link.change_path(at(5), &change(10_000));
    assert_eq!(lengths(&link)[0], 81);
    link.change_path(
        at(6),
        &PathChange {
            delay: Some(Span::ZERO),
            ..PathChange::default()
        },
    );
    assert_eq!(lengths(&link)[0], 81);
}

#[test]
fn all_packets_come_in_order_and_a_pair_is_two() {
    let of = |packets| {
        cut_train(Burst::train(7, packets, 1500, 700), SegCount::new(4)).collect::<Vec<_>>()
    };
    let train = Burst::train;
    assert_eq!(
        of(10),
        [
            train(7, 4, 1500, 1500),
            train(11, 4, 1500, 1500),
            train(15, 1, 1500, 1500),
            train(16, 1, 1500, 700)
        ]
    );
    assert_eq!(of(3), [train(7, 3, 1500, 700)]);
    assert_eq!(of(2), [train(7, 1, 1500, 1500), train(8, 1, 1500, 700)]);
    assert_eq!(of(1), [train(7, 1, 1500, 700)]);
}

#[test]
fn a_train_is_taken_apart_from_its_front() {
    let mut train = Burst::train(7, 5, 1500, 700);
    assert_eq!(
        take_first(&mut train, SegCount::new(2)),
        Some(Burst::train(7, 2, 1500, 1500))
    );
    assert_eq!(train, Burst::train(9, 3, 1500, 700));
    assert_eq!(take_first(&mut train, SegCount::new(3)), None);
    assert_eq!(train, Burst::train(9, 3, 1500, 700));
}

#[test]
fn packets_within_a_time_are_those_of_the_lowest_rate_planned() {
    let within = |path, millis| packets_within(&path, Span::from_millis(millis)).get();
    // 1538 bytes on the line of Ethernet.
    assert_eq!(within(path(Some(1000), &[]), 2), 162);
    assert_eq!(within(path(Some(1000), &[100, 2000]), 2), 16);
    assert_eq!(within(path(Some(1), &[]), 2), 1);
    assert_eq!(within(path(None, &[]), 0), u64::MAX);
}

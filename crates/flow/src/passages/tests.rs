use super::*;
use fullpipe_units::Span;
use proptest::prelude::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

const SYN: u64 = (1 << 32) + 777;

/// Data of `size` bytes a packet, a packet a millisecond, behind a SYN.
fn transfer(size: u64, packets: u64, begin: Time) -> PassageGrids {
    let mut passages = PassageGrids::default();
    for index in 0..packets {
        let start = SYN + 1 + index * size;
        passages.record_data(
            SequenceOrigin::at_syn(SYN),
            [start, start + size],
            begin + Span::from_millis(index),
        );
    }
    passages
}

fn lost(compared: ComparedPassages<'_>) -> u64 {
    compared
        .iter_cells()
        .map(|cell| cell.passed_bytes()[1])
        .sum()
}

#[test]
fn nothing_is_kept_of_a_connection_that_is_idle() {
    assert_eq!(transfer(100, 10, at(0)).from_syn.heap_bytes(), 0);
    let mut passages = PassageGrids::default();
    passages.record_acknowledgement(SequenceOrigin::at_syn(SYN), None, SYN + 1, at(0));
    assert_eq!(passages.heap_bytes(), 0);
}

#[test]
fn trains_and_segments_pass_the_same_positions() {
    let segments = transfer(1_000, 60_000, at(5));
    let trains = transfer(60_000, 1_000, at(0));
    let compared = ComparedPassages::new([&trains, &segments]).unwrap();
    let times: Vec<[Time; 2]> = compared.packet_times().collect();
    assert!((3_000..4_096).contains(&times.len()), "{}", times.len());
    // Each position is in the packet that holds it, and a train passes as a whole.
    for [train, segment] in times {
        assert_eq!(
            train.as_nanos() / 1_000_000,
            (segment.as_nanos() / 1_000_000 - 5) / 60
        );
    }
}

#[test]
fn a_shorter_capture_has_the_positions_of_a_longer_one() {
    let [short, long] = [
        transfer(1_000, 6_000, at(0)),
        transfer(1_000, 600_000, at(0)),
    ];
    assert!(short.from_syn.distance_bits() < long.from_syn.distance_bits());
    let compared = ComparedPassages::new([&short, &long]).unwrap();
    let times: Vec<[Time; 2]> = compared.packet_times().collect();
    assert_eq!(
        times.len() as u64,
        6_000_000 >> long.from_syn.distance_bits()
    );
    assert!(times.iter().all(|[one, other]| one == other));
    assert_eq!(lost(compared), 0);
}

#[test]
fn what_was_sent_again_and_an_acknowledgement_that_one_capture_lacks_are_left_out() {
    let far = transfer(1_000, 100, at(20));
    let mut near = transfer(1_000, 100, at(0));
    near.record_data(
        SequenceOrigin::at_syn(SYN),
        [SYN + 50_001, SYN + 51_001],
        at(200),
    );
    let [whole, part] = [&far, &near].map(|near| {
        ComparedPassages::new([near, &far])
            .unwrap()
            .packet_times()
            .count()
    });
    assert_eq!(whole - part, 1);
    assert_eq!(lost(ComparedPassages::new([&near, &far]).unwrap()), 1_000);

    let acknowledged = |positions: &[u64]| {
        let mut passages = PassageGrids::default();
        for pair in positions.windows(2) {
            passages.record_acknowledgement(
                SequenceOrigin::at_zero(),
                Some(pair[0]),
                pair[1],
                at(pair[1] / 1_000),
            );
        }
        passages
    };
    let all = acknowledged(&[5_000, 7_000, 9_000, 11_000]);
    let thinned = acknowledged(&[5_000, 7_000, 11_000]);
    let times: Vec<[Time; 2]> = ComparedPassages::new([&all, &thinned])
        .unwrap()
        .packet_times()
        .collect();
    // 5120 and 6144 are acknowledged by the same packet, 7168 and 8192 by another one, and 9216
    // and 10240 again.
    assert_eq!(times, [[at(7); 2], [at(7); 2], [at(11); 2], [at(11); 2]]);
}

#[test]
fn a_capture_without_the_syn_has_the_same_positions_whatever_round_of_numbers_it_begins_in() {
    let with = transfer(1_000, 100, at(0));
    for round in [0, 3 << 32] {
        let mut without = PassageGrids::default();
        for index in 50..100 {
            let start = SYN + 1 + index * 1_000 + round;
            without.record_data(
                SequenceOrigin::at_zero(),
                [start, start + 1_000],
                at(20 + index),
            );
        }
        for (both, late) in [([&with, &without], 20), ([&without, &with], -20)] {
            let compared = ComparedPassages::new(both).unwrap();
            let times: Vec<[Time; 2]> = compared.packet_times().collect();
            let later = |[one, other]: [Time; 2]| {
                other.as_nanos().cast_signed() - one.as_nanos().cast_signed()
            };
            assert!(
                times.len() > 45 && times.iter().all(|times| later(*times) == late * 1_000_000),
                "{times:?}"
            );
            assert_eq!(compared.end_times().count(), 1, "the highest is in both");
        }
    }
    assert!(ComparedPassages::new([&with, &PassageGrids::default()]).is_none());
}

#[test]
fn a_packet_of_four_gibibytes_below_all_others_takes_no_longer() {
    // Each would take a step per kibibyte: more than a minute in all.
    let mut passages = Passages::default();
    let begin = 1 << 40;
    passages.record_data(SequenceOrigin::at_zero(), [begin, begin + 1_000], at(0));
    for index in 0..20_000 {
        passages.record_data(
            SequenceOrigin::at_zero(),
            [begin - (1 << 32), begin + 1],
            at(index),
        );
        passages.record_acknowledgement(
            SequenceOrigin::at_zero(),
            Some(begin - (1 << 32)),
            begin + 1,
            at(index),
        );
    }
    assert_eq!(passages.kept.len(), 1);
}

proptest! {
    #[test]
    fn whatever_passes_is_kept_in_bounds(
        packets in prop::collection::vec((any::<u64>(), 0_u64..1 << 33, any::<bool>()), 1..200),
        is_syn in any::<bool>(),
    ) {
        let mut both = [PassageGrids::default(), PassageGrids::default()];
        for (index, (start, length, is_data)) in packets.into_iter().enumerate() {
            let start = start % (1 << (20 + index % 43));
            let (passages, end) = (&mut both[index % 2], start.saturating_add(length));
            let origin = if is_syn { SequenceOrigin::at_syn(start) } else { SequenceOrigin::at_zero() };
            if is_data {
                passages.record_data(origin, [start, end], at(index as u64));
            } else {
                passages.record_acknowledgement(origin, Some(start), end, at(index as u64));
            }
            let kept = [&passages.from_syn, &passages.from_zero].map(|passages| passages.kept.len() as u64);
            prop_assert!(kept.into_iter().all(|kept| kept <= MAX_POSITIONS));
        }
        if let Some(compared) = ComparedPassages::new([&both[0], &both[1]]) {
            prop_assert!(compared.packet_times().count() as u64 <= MAX_POSITIONS);
            prop_assert!(compared.iter_cells().count() as u64 <= MAX_POSITIONS);
        }
    }
}

use super::losses::MarkedLosses;
use super::*;
use proptest::prelude::*;

use crate::tcp::rate::DeliveryRate;

fn sent(at: u64) -> SentRecord {
    DeliveryRate::default().record_sent_segment(at, true)
}

fn delivered(of: impl FnOnce(&mut dyn FnMut(DeliveredSegments))) -> Vec<(u64, u64, u64, bool)> {
    let mut seen = Vec::new();
    of(&mut |part| seen.push((part.first, part.end, part.sent.at, part.again)));
    seen
}

fn rule(newest: (u64, u64), now: u64, after: u64) -> LossRule {
    LossRule { newest, now, after }
}

#[test]
fn a_hole_is_found_sent_again_and_filled() {
    let mut board = Scoreboard::default();
    board.push_segments(10, sent(1));
    board.push_segments(10, sent(2));
    assert_eq!(
        delivered(|report| board.acknowledge_before(4, report)),
        [(0, 4, 1, false)]
    );
    assert_eq!(
        delivered(|report| board.sack_range(6, 15, report)),
        [(6, 10, 1, false), (10, 15, 2, false)]
    );
    assert_eq!(
        delivered(|report| board.sack_range(6, 15, report)),
        [],
        "known already"
    );
    assert_eq!(
        board.detect_losses(rule((2, 15), 3, 0)),
        MarkedLosses {
            lost: 2,
            again: 0,
            wait: None
        }
    );
    assert_eq!(
        (
            board.packets_out(),
            board.in_flight(),
            board.highest_sacked()
        ),
        (16, 5, 15)
    );
    assert_eq!(board.retransmit_lost(1, || sent(3)), Some((4, 1)));
    assert_eq!(board.retransmit_lost(9, || sent(4)), Some((5, 1)));
    assert_eq!(board.retransmit_lost(9, || sent(5)), None);
    assert_eq!(board.in_flight(), 7);
    assert_eq!(
        delivered(|report| board.acknowledge_before(15, report)),
        [(4, 5, 3, true), (5, 6, 4, true)]
    );
    assert_eq!(
        (
            board.packets_out(),
            board.in_flight(),
            board.sacked,
            board.lost,
            board.retransmitted
        ),
        (5, 5, 0, 0, 0)
    );
}

#[test]
fn a_retransmission_that_was_sent_before_what_arrived_is_lost_again() {
    let mut board = Scoreboard::default();
    board.push_segments(3, sent(1));
    board.sack_range(2, 3, |_| {});
    board.detect_losses(rule((1, 3), 2, 0));
    assert_eq!(board.lost, 2);
    board.retransmit_lost(1, || sent(10));
    board.retransmit_lost(1, || sent(20));
    board.sack_range(1, 2, |_| {});
    assert_eq!(
        board.detect_losses(rule((20, 2), 30, 0)),
        MarkedLosses {
            lost: 1,
            again: 1,
            wait: None
        }
    );
    assert_eq!(board.retransmit_lost(5, || sent(31)), Some((0, 1)));
}

#[test]
fn of_segments_sent_together_those_before_one_that_arrived_are_lost() {
    let mut board = Scoreboard::default();
    board.push_segments(10, sent(5));
    board.sack_range(6, 8, |_| {});
    assert_eq!(board.detect_losses(rule((5, 8), 9, 0)).lost, 6);
    board.sack_range(9, 10, |_| {});
    assert_eq!(board.detect_losses(rule((5, 10), 9, 0)).lost, 1);
    assert_eq!(board.retransmit_lost(9, || sent(10)), Some((0, 6)));
    board.sack_range(3, 5, |_| {});
    assert_eq!(
        board.detect_losses(rule((10, 5), 20, 0)),
        MarkedLosses {
            lost: 3,
            again: 3,
            wait: None
        }
    );
    board.sack_range(5, 6, |_| {});
    assert_eq!(
        board.detect_losses(rule((10, 6), 20, 0)),
        MarkedLosses::default()
    );
}

#[test]
fn what_may_be_reordered_is_waited_for() {
    let mut board = Scoreboard::default();
    board.push_segments(1, sent(100));
    board.push_segments(1, sent(200));
    board.push_segments(1, sent(300));
    board.sack_range(2, 3, |_| {});
    assert_eq!(
        board.detect_losses(rule((300, 3), 1_350, 1_200)),
        MarkedLosses {
            lost: 1,
            again: 0,
            wait: Some(50)
        }
    );
    assert_eq!(
        board.detect_losses(rule((300, 3), 1_400, 1_200)),
        MarkedLosses {
            lost: 1,
            again: 0,
            wait: None
        }
    );
}

#[test]
fn a_timeout_loses_all_but_what_was_just_sent() {
    let mut board = Scoreboard::default();
    board.push_segments(2, sent(1_000));
    board.push_segments(2, sent(9_000));
    board.sack_range(1, 2, |_| {});
    assert_eq!(board.lose_all(rule((0, 0), 10_000, 5_000)), 1);
    assert_eq!((board.lost, board.in_flight()), (1, 2));
    assert_eq!(board.lose_all(rule((0, 0), 20_000, 5_000)), 2);
    assert_eq!((board.lost, board.in_flight()), (3, 0));
}

proptest! {
    #[test]
    fn counts_are_those_of_the_marks(steps in prop::collection::vec((0_u8..6, 0_u64..90, 1_u64..70), 1..60)) {
        let mut board = Scoreboard::default();
        for (step, (kind, offset, count)) in steps.into_iter().enumerate() {
            let now = step as u64 * 10;
            let first = (board.acknowledged + offset).min(board.next);
            let end = (first + count).min(board.next);
            match kind {
                0 | 1 => board.push_segments(count, sent(now)),
                2 => board.acknowledge_before(first, |_| {}),
                3 => {
                    let first = first.max(board.acknowledged + 1).min(end);
                    board.sack_range(first, end, |_| {});
                    let sacked = |chunk: &ScoreboardChunk| low_bits(chunk.bits_of_range(first, end) & chunk.segment_marks().sacked);
                    prop_assert_eq!(board.chunks.iter().map(sacked).sum::<u64>(), end - first);
                }
                4 => drop(board.detect_losses(rule((now.saturating_sub(20), end), now, 5))),
                _ => drop(board.retransmit_lost(count, || sent(now))),
            }
            let marked = |marks: fn(&SegmentMarks) -> u64| move |chunk: &ScoreboardChunk| low_bits(marks(chunk.segment_marks()));
            let count = |marks: fn(&SegmentMarks) -> u64| board.chunks.iter().map(marked(marks)).sum::<u64>();
            prop_assert_eq!(board.sacked, count(|marks| marks.sacked));
            prop_assert_eq!(board.lost, count(|marks| marks.lost));
            prop_assert_eq!(board.retransmitted, count(|marks| marks.retransmitted));
            prop_assert_eq!(board.packets_out(), board.chunks.iter().map(|chunk| chunk.count).sum::<u64>());
            prop_assert!(board.chunks.iter().all(|chunk| chunk.segment_marks().sacked & chunk.segment_marks().lost == 0));
        }
    }
}

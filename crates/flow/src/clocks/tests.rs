use super::*;
use proptest::prelude::*;

#[test]
fn the_line_is_the_edge_of_the_hull_at_the_mean() {
    let points = [
        (0.0, 5.0),
        (1.0, 3.0),
        (2.0, 4.0),
        (4.0, 4.0),
        (5.0, 9.0),
        (6.0, 6.0),
        (7.0, 5.5),
    ];
    // The hull is (0, 5), (1, 3), (4, 4), (7, 5.5), and the mean time 25 ÷ 7.
    let line = lower_line(&points).unwrap();
    assert!(
        (line.slope - 1.0 / 3.0).abs() < 1e-12 && (line.at_zero - 8.0 / 3.0).abs() < 1e-12,
        "{line:?}"
    );
    assert_eq!(lower_line(&points[..1]), None);
    assert_eq!(
        lower_line(&[(1.0, 0.0), (1.0, 2.0)]),
        None,
        "all at one time"
    );
}

/// A path between two captures: the second clock has a `skew` and is `ahead` seconds at the
/// begin.
#[derive(Debug, Clone)]
struct Path {
    skew: f64,
    ahead: f64,
    seconds: f64,
    /// Least delay of each direction, with the queue in each packet's way.
    floors: [f64; 2],
    queues: Vec<[f64; 2]>,
}

impl Path {
    /// Returns packets from the first capture to the second, and back.
    fn packets(&self) -> CommonPackets {
        let count = self.queues.len() as f64;
        let begin = 1_000.0;
        let time = |seconds: f64| Time::from_nanos((seconds * 1e9) as u64);
        let second = |at: f64| begin + self.ahead + (at - begin) * (1.0 + self.skew);
        let sent = |index: usize| begin + index as f64 * self.seconds / count;
        let there = |(index, queue): (usize, &[f64; 2])| {
            [
                time(sent(index)),
                time(second(sent(index) + self.floors[0] + queue[0])),
            ]
        };
        let back = |(index, queue): (usize, &[f64; 2])| {
            [
                time(sent(index) + self.floors[1] + queue[1]),
                time(second(sent(index))),
            ]
        };
        let queues = || self.queues.iter().enumerate();
        CommonPackets::new([queues().map(there).collect(), queues().map(back).collect()])
    }
}

fn rate(clocks: &ClockFigures) -> Option<f64> {
    let skew = clocks.skew?;
    Some(if skew.faster == 1 {
        skew.by.get()
    } else {
        -skew.by.get()
    })
}

proptest! {
    #[test]
    fn a_planted_skew_is_found_behind_queues(
        ppm in -450.0_f64..450.0,
        ahead in -900.0_f64..900.0,
        floors in [1e-4_f64..0.3, 1e-4_f64..0.3],
        queues in prop::collection::vec([0.0_f64..0.05, 0.0_f64..1e-3], 400..800),
    ) {
        let path = Path { skew: ppm * 1e-6, ahead, seconds: 60.0, floors, queues };
        let packets = path.packets();
        prop_assert_eq!(packets.nearer_to_first(), Some(0));
        let clocks = packets.compare_clocks(0);
        let error = (rate(&clocks).unwrap() - path.skew).abs();
        // A line that is wrong by so much leaves a triangle of 30 s by 0.24 ms below it on one side,
        // with none of the 400 packets (6 667 by second and second): a chance of exp(-24).
        prop_assert!(error < 8e-6, "{error} {clocks:?}");
        let offset = clocks.offset.unwrap();
        prop_assert!((offset.rtt.as_secs_f64() - floors[0] - floors[1]).abs() < 2e-3, "{offset:?}");
        let seen = if offset.ahead == 1 { offset.by.as_secs_f64() } else { -offset.by.as_secs_f64() };
        let asymmetry = (floors[0] - floors[1]) / 2.0;
        prop_assert!((seen - ahead - asymmetry).abs() < 2e-3, "{seen} {ahead} {asymmetry}");
        let delay = clocks.delays[0].unwrap();
        prop_assert!((delay.most.as_secs_f64() - 0.05).abs() < 5e-3, "{delay:?}");
    }
}

fn without_queue(seconds: f64, count: usize) -> Path {
    Path {
        skew: 0.0,
        ahead: 0.0,
        seconds,
        floors: [0.02; 2],
        queues: vec![[0.0; 2]; count],
    }
}

#[test]
fn the_capture_that_is_farther_from_the_first_end_may_come_first() {
    let there = without_queue(6.0, 100).packets();
    let [forward, back] = there.directions;
    let turned = CommonPackets {
        directions: [back, forward],
        base: 0,
    };
    assert_eq!(turned.nearer_to_first(), Some(1));
    assert!((turned.compare_clocks(1).offset.unwrap().rtt.as_millis_f64() - 40.0).abs() < 1e-3);
    // Against what the times show there is no result.
    assert!(turned.compare_clocks(0).offset.is_none());
}

#[test]
fn two_captures_that_nothing_lies_between_show_their_skew() {
    let queues = (0..2_000_u32)
        .map(|index| [f64::from(index * 7_919 % 997) * 1e-8; 2])
        .collect();
    let path = Path {
        skew: 200e-6,
        floors: [1e-7; 2],
        queues,
        ..without_queue(60.0, 2_000)
    };
    let clocks = path.packets().compare_clocks(0);
    assert!((rate(&clocks).unwrap() - 200e-6).abs() < 1e-6, "{clocks:?}");
    assert!(
        clocks.offset.unwrap().rtt < Span::from_micros(5),
        "{clocks:?}"
    );
}

#[test]
fn a_queue_that_grows_is_no_skew() {
    let growing = |rate: f64| {
        let queues = (0..500)
            .map(|index| [f64::from(index) * 0.012 * rate; 2])
            .collect();
        Path {
            queues,
            ..without_queue(6.0, 500)
        }
        .packets()
        .compare_clocks(0)
    };
    assert_eq!(growing(2_916e-6).skew, None);
    assert!(growing(0.0).skew.is_some());
}

#[test]
fn too_few_packets_and_too_short_a_time_show_no_skew() {
    assert_eq!(
        without_queue(60.0, 31).packets().compare_clocks(0).skew,
        None
    );
    let noisy = |seconds: f64| {
        let queues = (0..500_u32)
            .map(|index| [f64::from(index * 7_919 % 997) * 1e-6; 2])
            .collect();
        Path {
            queues,
            ..without_queue(seconds, 500)
        }
        .packets()
        .compare_clocks(0)
    };
    // A tenth of the packets is spread over 100 µs.
    assert_eq!(noisy(1.0).skew, None);
    let error = noisy(20.0).skew.unwrap().error.get();
    assert!((4e-6..6e-6).contains(&error), "{error}");
    assert!(
        noisy(1.0).delays[0].is_some() && noisy(4.0).delays[0].is_none(),
        "unless the time is short"
    );
}

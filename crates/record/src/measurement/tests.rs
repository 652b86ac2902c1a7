use super::*;

#[test]
fn quantiles_of_one_and_of_many() {
    assert_eq!(RttStats::from_samples(vec![]), None);
    let one = RttStats::from_samples(vec![Span::from_millis(7)]).unwrap();
    assert_eq!(
        (one.min, one.p99),
        (Span::from_millis(7), Span::from_millis(7))
    );
    let hundred = RttStats::from_samples((1..=101).rev().map(Span::from_millis).collect()).unwrap();
    assert_eq!(
        (hundred.median, hundred.p90, hundred.p99),
        (
            Span::from_millis(51),
            Span::from_millis(91),
            Span::from_millis(100)
        )
    );
}

/// Each count `factor` times a number of its own.
fn datagrams(factor: u64) -> Datagrams {
    Datagrams {
        received: 1_000 * factor,
        lost: 20 * factor,
        duplicated: 3 * factor,
        reordered: 5 * factor,
        reordering_extent: 7 * factor,
        late: 11 * factor,
        dropped_here: Some(13 * factor),
        jitter: Span::from_micros(17 * factor),
        lost_like_iperf3: 19 * factor,
        out_of_order_like_iperf3: 23 * factor,
    }
}

#[test]
fn counts_since_a_mark_are_differences_and_the_rest_is_of_now() {
    let (earlier, now) = (datagrams(2), datagrams(5));
    let expected = Datagrams {
        reordering_extent: now.reordering_extent,
        jitter: now.jitter,
        ..datagrams(3)
    };
    assert_eq!(now.counts_since(&earlier), expected);
    assert_eq!(now.counts_since(&Datagrams::default()), now);
}

#[test]
fn a_loss_that_was_made_good_is_no_negative_loss() {
    let earlier = Datagrams {
        lost: 3,
        lost_like_iperf3: 3,
        ..Datagrams::default()
    };
    let now = Datagrams {
        received: 9,
        lost: 1,
        lost_like_iperf3: 1,
        ..Datagrams::default()
    };
    assert_eq!(
        now.counts_since(&earlier),
        Datagrams {
            received: 9,
            ..Datagrams::default()
        }
    );
}

#[test]
fn streams_add_up() {
    let expected = Datagrams {
        reordering_extent: datagrams(4).reordering_extent,
        jitter: datagrams(3).jitter,
        ..datagrams(6)
    };
    assert_eq!(
        [datagrams(2), datagrams(4)].into_iter().sum::<Datagrams>(),
        expected
    );
    assert_eq!([].into_iter().sum::<Datagrams>(), Datagrams::default());
    let unknown = Datagrams {
        dropped_here: None,
        lost: u64::MAX,
        ..datagrams(1)
    };
    let sum: Datagrams = [datagrams(1), unknown].into_iter().sum();
    assert_eq!((sum.dropped_here, sum.lost), (None, u64::MAX));
}

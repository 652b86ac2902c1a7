//! Deliveries over loss × queue, in virtual time: any change of behaviour shows in the table.

use std::fmt::Write as _;

use crate::burst::{Burst, at, drain, fast_ethernet};
use fullpipe_link::LinkDirection;
use fullpipe_record::PathDirection;
use fullpipe_units::{ByteCount, Ratio, Span, Time};

/// 1000 bursts of 100 full packets, one every 12 ms: 102.5 % of 100 Mbit/s Ethernet.
const BURSTS: u64 = 1000;

/// Returns the fate of the packets, the largest backlog, and when the last packet came.
fn row(loss: &str, queue: u64) -> String {
    let path = PathDirection {
        delay: Span::from_millis(50),
        queue: Some(ByteCount::new(queue)),
        loss: loss.parse().ok(),
        ..fast_ethernet()
    };
    let mut link = LinkDirection::new(&path, 1);
    for burst in 0..BURSTS {
        for number in 0..100 {
            link.offer_train(
                at(burst * 12_000_000),
                Burst::packet(burst * 100 + number, 1500),
            );
        }
    }
    let last = drain(&mut link)
        .last()
        .map_or(Time::ZERO, |delivery| delivery.due);
    let counters = link.counters_at(at(u64::MAX));
    format!(
        "{loss:>6} {queue:>8} {:>10} {:>7} {:>11} {:>14} {:>12}",
        counters.delivered.segments,
        counters.lost.segments,
        counters.overflowed.segments,
        counters.max_backlog.get(),
        last.as_nanos()
    )
}

#[test]
fn deliveries_over_loss_and_queue() {
    let mut table = String::from(
        "  loss  queue B  delivered    lost  overflowed  max backlog B      last ns\n",
    );
    for loss in ["0", "1e-5", "1e-4", "0.1%", "1%", "10%"] {
        assert!(loss.parse::<Ratio>().is_ok());
        for queue in [1538, 62_500, 125_000, 250_000, 1_250_000] {
            let _ = writeln!(table, "{}", row(loss, queue));
        }
    }
    insta::assert_snapshot!(table);
}

//! Cost of a packet on the machine that runs it: printed, not judged.
//!
//!     cargo test --release -p fullpipe-link --test link speed -- --ignored --nocapture

use std::net::IpAddr;
use std::time::Instant;

use crate::burst::{at, fast_ethernet};
use fullpipe_link::{Direction, Edited, Train};
use fullpipe_record::{Codel, Edit, Effects, PathDirection, Queueing};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Full packets, as small in memory as a driver's.
#[derive(Clone)]
struct Full(u64);

impl Train for Full {
    fn segments(&self) -> SegCount {
        SegCount::new(self.0)
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(1500)
    }

    fn ip_bytes(&self) -> ByteCount {
        ByteCount::new(1500 * self.0)
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let rest = Self(self.0 - at.get());
        self.0 = at.get();
        rest
    }

    fn flow(&self) -> u64 {
        0
    }

    fn mark_ce(&mut self) -> bool {
        false
    }

    fn corrupt(&mut self, _: u64) {}

    fn apply(&mut self, _: &Edit) -> Edited {
        Edited::Unchanged
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        None
    }
}

/// A long fast path: 1 Gbit/s and 50 ms, with a queue of 20 ms, offered 1.05 times what it carries.
fn long_fast() -> PathDirection {
    PathDirection {
        rate: Some(BitRate::from_mbps(1000)),
        delay: Span::from_millis(50),
        queue: Some(ByteCount::new(2_500_000)),
        ..fast_ethernet()
    }
}

/// Nanoseconds a packet: the best of a hundred runs, each so short that it is rarely interrupted.
#[expect(clippy::disallowed_methods, reason = "a stopwatch needs a clock")]
#[expect(clippy::print_stdout, reason = "the figure is what this is for")]
fn measure(what: &str, path: &PathDirection, train: u64) {
    let gap = 12_304 * train * 100 / 105;
    let count = 500_000_000 / gap;
    let best = (0..100).map(|seed| {
        let mut link = Direction::new(path, seed);
        let mut out = 0;
        let begun = Instant::now();
        for number in 0..count {
            let now = at(number * gap);
            link.offer(now, Full(train));
            while let Some(delivery) = link.pop(now) {
                out += delivery.train.0;
            }
            std::hint::black_box(link.next_deadline());
        }
        assert!(out > 0);
        begun.elapsed()
    });
    let best = best.min().unwrap_or_default();
    println!("{what:>24}, trains of {train:>2}: {:6.1} ns a packet", best.as_nanos() as f64 / (count * train) as f64);
}

#[test]
#[ignore = "a stopwatch, for a quiet machine"]
fn speed() {
    for train in [1, 8] {
        measure("drop-tail", &long_fast(), train);
        measure("drop-tail, 0.1 % lost", &PathDirection { loss: "0.1%".parse().ok(), ..long_fast() }, train);
        let managed = |queueing| {
            let effects = Effects { queueing, ..Effects::default() };
            PathDirection { effects, ..long_fast() }
        };
        measure("CoDel", &managed(Queueing::Codel(Codel::default())), train);
        measure("FQ-CoDel", &managed(Queueing::FqCodel(Codel::default())), train);
    }
}

use super::*;
use crate::rate::fluid_test::{Cubic, Link, MSS, PATHS, STEP};

/// A scavenger on a link, and the rate that it has decided last.
struct Sender {
    scavenger: ScavengerControl,
    rate: f64,
}

impl Sender {
    fn on(link: &Link) -> Self {
        let scavenger =
            ScavengerControl::new(Span::from_secs_f64(link.rtt()), ByteCount::from_f64(MSS));
        Self {
            rate: 10.0 * MSS / link.rtt(),
            scavenger,
        }
    }

    /// Sends for so many seconds. Returns the sender's share of the link.
    fn run(&mut self, link: &mut Link, seconds: f64) -> f64 {
        link.run(seconds, |link, sample, _| {
            if let Some(sample) = sample {
                self.rate = self.scavenger.add_sample(link.time(), &sample).as_f64() / 8.0;
            }
            self.rate
        })
    }
}

#[test]
fn alone_it_fills_the_link_with_a_short_queue() {
    for path in PATHS {
        let mut link = Link::new(path);
        let mut sender = Sender::on(&link);
        sender.run(&mut link, 8.0);
        let share = sender.run(&mut link, 60.0);
        let (gave_way, delay) = (sender.scavenger.gave_way(), link.queue / link.capacity);
        assert!(
            share > 0.96 && delay < 0.025 && gave_way.get() < 0.02,
            "{path:?}: {share} {delay} {gave_way}"
        );
    }
}

#[test]
fn next_to_a_connection_that_was_there_before_it_takes_little_and_all_when_that_ends() {
    for path in PATHS {
        let mut link = Link::new(path);
        link.other = Some(Cubic::new());
        link.run(25.0, |_, _, _| 0.0);
        let mut sender = Sender::on(&link);
        let during = sender.run(&mut link, 40.0);
        link.other = None;
        sender.run(&mut link, 5.0);
        let behind = sender.run(&mut link, 20.0);
        assert!(
            during < 0.05 && behind > 0.93,
            "{path:?}: {during}, then {behind}"
        );
    }
}

/// The scavenger may just have begun again next to the others, with their queue as a part of
/// the path.
#[test]
fn whenever_the_others_end_it_has_the_link_soon() {
    for path in PATHS {
        for moment in 0..40 {
            let mut link = Link::new(path);
            let round = link.base.max(MIN_ROUND.as_secs_f64());
            link.other = Some(Cubic::new());
            link.run(25.0, |_, _, _| 0.0);
            let mut sender = Sender::on(&link);
            sender.run(&mut link, 10.0 + 0.25 * f64::from(moment));
            link.other = None;
            sender.run(&mut link, 40.0 * round);
            let share = sender.run(&mut link, 10.0 * round);
            assert!(share > 0.65, "{path:?}, ended after {moment}: {share}");
        }
    }
}

#[test]
fn it_leaves_the_link_to_a_connection_that_comes_later() {
    for path in PATHS {
        let mut link = Link::new(path);
        let mut sender = Sender::on(&link);
        sender.run(&mut link, 20.0);
        link.other = Some(Cubic::new());
        // A window that overflows a short queue in slow start grows to that of the path only
        // slowly.
        sender.run(&mut link, 80.0);
        let during = sender.run(&mut link, 40.0);
        let gave_way = sender.scavenger.gave_way();
        assert!(
            during < 0.08 && gave_way.get() > 0.15,
            "{path:?}: {during}, gave way {gave_way}"
        );
    }
}

#[test]
fn a_round_that_a_busy_host_delays_does_not_end_the_start() {
    for path in PATHS {
        let mut link = Link::new(path);
        let mut sender = Sender::on(&link);
        link.host_delay = 0.02;
        let (base, round) = (link.base, link.base.max(MIN_ROUND.as_secs_f64()));
        sender.run(&mut link, base + round + 10.0 * STEP);
        link.host_delay = 0.0;
        sender.run(&mut link, 35.0 * round);
        let share = sender.run(&mut link, 20.0 * round);
        assert!(share > 0.9, "{path:?}: {share}");
    }
}

#[test]
fn a_transfer_with_nothing_to_send_does_not_grow() {
    let mut scavenger = ScavengerControl::new(Span::from_millis(50), ByteCount::new(1448));
    let mut rate = BitRate::ZERO;
    for tick in 1..400 {
        let sample = StreamsSample {
            acknowledged: ByteCount::new(tick * 1000),
            retransmitted: SegCount::ZERO,
            rtt: Some(Span::from_millis(50)),
            mss: ByteCount::new(1448),
        };
        rate = scavenger.add_sample(Time::from_nanos(tick * 50_000_000), &sample);
    }
    assert!(rate < BitRate::from_mbps(4), "{rate}");
}

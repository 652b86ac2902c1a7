//! Throughput of a sender that halves its window at a loss, in virtual time: any change of
//! behaviour shows in the table, and formulas check it where there are any.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::burst::{Burst, fast_ethernet};
use fullpipe_link::LinkDirection;
use fullpipe_record::{Codel, Effects, PathDirection, Queueing};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

/// Propagation, there and back.
const RTT: Span = Span::from_millis(20);
const LASTS: Span = Span::from_secs(60);

/// A sender of full packets that knows of each arrival an RTT's half later. It doubles its window
/// each RTT until the first loss, then adds a packet each RTT, and halves it at most once a window.
/// What is lost is not sent again.
struct Sender {
    link: LinkDirection<Burst>,
    /// When each acknowledgement comes, and of which packet.
    acknowledgements: VecDeque<(Time, u64)>,
    window: f64,
    slow_start: bool,
    next: u64,
    /// The first that is not acknowledged.
    expected: u64,
    /// Losses before this packet belong to a window that was halved.
    halved_until: u64,
    /// When nothing has come back for too long.
    gives_up: Time,
}

impl Sender {
    /// Runs the sender over `path` and returns what arrived.
    fn run(path: &PathDirection) -> Row {
        let mut sender = Self {
            link: LinkDirection::new(path, 1),
            acknowledgements: VecDeque::new(),
            window: 10.0,
            slow_start: true,
            next: 0,
            expected: 0,
            halved_until: 0,
            gives_up: Time::ZERO,
        };
        let mut now = Time::ZERO;
        while now < Time::ZERO + LASTS {
            sender.act(now);
            let acknowledged = sender.acknowledgements.front().map(|(time, _)| *time);
            let events = [
                sender.link.next_deadline(),
                acknowledged,
                Some(sender.gives_up),
            ];
            now = events.into_iter().flatten().min().unwrap();
        }
        let counters = sender.link.counters_at(now);
        Row {
            rate: BitRate::from_bytes_in(
                counters.delivered.segments.of_size(ByteCount::new(1500)),
                LASTS,
            ),
            lost: counters.lost.segments.get(),
            dropped: (counters.overflowed.segments + counters.aqm_dropped.segments).get(),
            backlog: counters.max_backlog,
        }
    }

    fn act(&mut self, now: Time) {
        while let Some(delivery) = self.link.pop_arrived(now) {
            self.acknowledgements
                .push_back((delivery.due + RTT / 2, delivery.train.first));
        }
        while let Some((_, number)) = self.acknowledgements.pop_front_if(|(time, _)| *time <= now) {
            self.acknowledge(now, number);
        }
        if now >= self.gives_up {
            (self.window, self.expected) = (1.0, self.next);
            self.gives_up = now + RTT * 20;
        }
        while self.next - self.expected < self.window as u64 {
            self.link.offer_train(now, Burst::packet(self.next, 1500));
            self.next += 1;
        }
    }

    fn acknowledge(&mut self, now: Time, number: u64) {
        self.gives_up = now + RTT * 20;
        if number > self.expected && number >= self.halved_until {
            self.window = (self.window / 2.0).max(1.0);
            self.slow_start = false;
            self.halved_until = self.next;
        } else {
            self.window += if self.slow_start {
                1.0
            } else {
                1.0 / self.window
            };
        }
        self.expected = self.expected.max(number + 1);
    }
}

struct Row {
    rate: BitRate,
    lost: u64,
    dropped: u64,
    backlog: ByteCount,
}

fn path(loss: &str, bdps: f64, queueing: Queueing) -> PathDirection {
    let plain = fast_ethernet();
    let bdp = plain.rate.map(|rate| rate.bytes_in(RTT));
    PathDirection {
        delay: RTT / 2,
        queue: bdp.map(|bdp| bdp.scale_by(bdps)),
        loss: loss.parse().ok(),
        effects: Effects {
            queueing,
            ..Effects::default()
        },
        ..plain
    }
}

#[test]
fn rates_over_loss_and_queue() {
    let managed = [
        ("drop-tail", Queueing::DropTail),
        ("codel", Queueing::Codel(Codel::default())),
        ("fq-codel", Queueing::FqCodel(Codel::default())),
    ];
    let mut table =
        String::from("  loss   BDPs     queue      Mbit/s    lost  dropped  max backlog B\n");
    for loss in ["0", "1e-5", "1e-4", "1e-3", "1e-2"] {
        for bdps in [0.1, 0.5, 1.0, 4.0] {
            for (name, queueing) in managed {
                let Row {
                    rate,
                    lost,
                    dropped,
                    backlog,
                } = Sender::run(&path(loss, bdps, queueing));
                let (rate, backlog) = (rate.as_mbps(), backlog.get());
                let _ = writeln!(
                    table,
                    "{loss:>6} {bdps:>6} {name:>9} {rate:>11.3} {lost:>7} {dropped:>8} {backlog:>14}"
                );
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// Mathis, Semke, Mahdavi and Ott (Computer Communication Review 27, 1997), eq. 3 with every packet
/// acknowledged: a window of √(3 ÷ 2p) packets on average.
#[test]
fn random_loss_leaves_what_mathis_says() {
    for loss in ["1e-3", "3e-3", "1e-2"] {
        let p = loss.parse::<Ratio>().unwrap().get();
        let window = (1.5 / p).sqrt() * 1500.0 * 8.0;
        let expected = window / RTT.as_secs_f64();
        let got = Sender::run(&path(loss, 4.0, Queueing::DropTail))
            .rate
            .as_f64();
        assert!(
            (got / expected - 1.0).abs() < 0.15,
            "{got} bit/s at {loss}, not {expected}"
        );
    }
}

/// A queue of a BDP keeps the link busy while the window is halved; a tenth of one does not: the
/// window then saws between half of 1.1 BDP and all of it, 0.75 × 1.1 at most on average.
#[test]
fn a_queue_of_a_bdp_fills_the_link() {
    let most = 100e6 * 1500.0 / 1538.0;
    let share = |bdps| {
        Sender::run(&path("0", bdps, Queueing::DropTail))
            .rate
            .as_f64()
            / most
    };
    assert!(share(1.0) > 0.99, "{}", share(1.0));
    assert!((0.75..0.90).contains(&share(0.1)), "{}", share(0.1));
}

//! The rate of several connections that count as one user.
//!
//! Of n connections under CUBIC only some lose packets when a queue overflows, so that all together
//! give way less than one would, and grow n times as fast. From the first overflow on, their sum is
//! bounded by the window that a single connection would have under CUBIC (RFC 9438), but for its
//! growth, which is that of two: one that comes later takes minutes to its share, and in the end
//! two take √2 times as much as one, at most. Loss without a queue is not taken for one.

use fullpipe_record::packets_wait;
use fullpipe_units::{BitRate, Span, Time};

use super::rounds::{FinishedRound, RoundTracker, StreamsSample};

/// Constants of CUBIC: C in segments ÷ s³, β, and the growth of Reno with the same β (RFC 9438,
/// sections 4.1 to 4.6).
const C: f64 = GROWTH * 0.4;
const BETA: f64 = 0.7;
const RENO_GROWTH: f64 = GROWTH * 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Connections whose growth the sum has.
const GROWTH: f64 = 2.0;

/// Rounds for which segments that one overflow has dropped are retransmitted.
const ROUNDS_OF_RECOVERY: u32 = 2;

/// Decides the rate of a transfer from its samples, one each 50 ms or so.
pub(crate) struct CoupledRate {
    rounds: RoundTracker,
    last: Option<FinishedRound>,
    course: Option<CubicWindow>,
    since_overflow: u32,
}

/// The window of a connection from an overflow on, in segments.
#[derive(Clone, Copy)]
struct CubicWindow {
    began: Time,
    /// The window that overflowed the queue, and the one behind that.
    most: f64,
    first: f64,
}

impl CoupledRate {
    /// Returns a coupling for a path of this round-trip time.
    pub(crate) fn new(rtt: Span) -> Self {
        Self {
            rounds: RoundTracker::new(rtt),
            last: None,
            course: None,
            since_overflow: ROUNDS_OF_RECOVERY,
        }
    }

    /// Takes a sample. Returns the rate that all connections together may have until the next one,
    /// if it is bounded.
    pub(crate) fn add_sample(&mut self, at: Time, sample: &StreamsSample) -> Option<BitRate> {
        if let Some(seen) = self.rounds.add_sample(at, sample) {
            let last = self.last.replace(seen).unwrap_or(seen);
            self.since_overflow += 1;
            let rtt = seen.most.max(last.most);
            let overflowed = seen.lost && packets_wait(rtt, self.rounds.base_rtt());
            if overflowed && self.since_overflow > ROUNDS_OF_RECOVERY {
                let window =
                    seen.delivered.max(last.delivered) * rtt.as_secs_f64() / seen.mss.max(1.0);
                self.course = Some(CubicWindow::after_overflow(at, window, self.course));
                self.since_overflow = 0;
            }
        }
        self.bounded_rate(at, sample)
    }

    /// Forgets the overflows up to now: no other flow competes any more.
    pub(crate) fn reset_overflows(&mut self) {
        self.course = None;
    }

    fn bounded_rate(&self, at: Time, sample: &StreamsSample) -> Option<BitRate> {
        let rtt = self.rounds.last_rtt().as_secs_f64();
        let window = self.course?.window_at(at, rtt) * sample.mss.as_f64();
        Some(BitRate::from_bps_f64(8.0 * window / rtt))
    }
}

impl CubicWindow {
    fn after_overflow(at: Time, window: f64, before: Option<Self>) -> Self {
        // Fast convergence (section 4.7): one that has less than before leaves more to others.
        let shrinks = before.is_some_and(|before| window < before.most);
        let most = if shrinks {
            window * f64::midpoint(1.0, BETA)
        } else {
            window
        };
        Self {
            began: at,
            most,
            first: BETA * window,
        }
    }

    /// Returns the window at a time, with round trips of so many seconds.
    fn window_at(&self, at: Time, rtt: f64) -> f64 {
        let time = at.duration_since(self.began).as_secs_f64();
        let plateau = ((self.most - self.first).max(0.0) / C).cbrt();
        let cubic = C * (time - plateau).powi(3) + self.most;
        cubic.max(self.first + RENO_GROWTH * time / rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::fluid_test::{Cubic, Link, PATHS};

    /// Connections under CUBIC, coupled or not.
    struct Streams {
        all: Vec<Cubic>,
        coupling: Option<CoupledRate>,
        bound: Option<f64>,
    }

    impl Streams {
        fn on(link: &Link, count: usize, are_coupled: bool) -> Self {
            let coupling = are_coupled.then(|| CoupledRate::new(Span::from_secs_f64(link.rtt())));
            Self {
                all: (0..count).map(|_| Cubic::new()).collect(),
                coupling,
                bound: None,
            }
        }

        /// Sends for so many seconds. Returns the streams' share of the link.
        fn run(&mut self, link: &mut Link, seconds: f64) -> f64 {
            link.run(seconds, |link, sample, overflows| {
                if let (Some(coupling), Some(sample)) = (&mut self.coupling, sample) {
                    self.bound = coupling
                        .add_sample(link.time(), &sample)
                        .map(|rate| rate.as_f64() / 8.0);
                }
                let each = self
                    .bound
                    .map_or(f64::INFINITY, |bound| bound / self.all.len() as f64);
                let rate = |stream: &mut Cubic| {
                    // A window grows only if it is full.
                    if overflows || stream.window / link.rtt() < each {
                        stream.step(link.now, link.rtt(), overflows);
                    }
                    (stream.window / link.rtt()).min(each)
                };
                self.all.iter_mut().map(rate).sum()
            })
        }
    }

    fn share(path: (f64, f64, f64), are_coupled: bool) -> f64 {
        let mut link = Link::new(path);
        link.other = Some(Cubic::new());
        link.run(10.0, |_, _, _| 0.0);
        let mut streams = Streams::on(&link, 6, are_coupled);
        streams.run(&mut link, 30.0);
        streams.run(&mut link, 60.0)
    }

    #[test]
    fn several_connections_have_the_share_of_one_user() {
        for path in PATHS {
            let (coupled, apart) = (share(path, true), share(path, false));
            // Jain's index of both users is 0.86 or more.
            assert!(
                (0.3..0.7).contains(&coupled) && coupled < apart,
                "{path:?}: {coupled} in place of {apart}"
            );
        }
    }

    #[test]
    fn alone_they_fill_the_link_as_one_would() {
        for path in PATHS {
            let mut link = Link::new(path);
            let mut streams = Streams::on(&link, 6, true);
            streams.run(&mut link, 10.0);
            let share = streams.run(&mut link, 60.0);
            assert!(share > 0.9, "{path:?}: {share}");
        }
    }

    #[test]
    fn loss_without_a_queue_binds_nobody() {
        let mut coupling = CoupledRate::new(Span::from_millis(50));
        for tick in 1..400 {
            let sample = StreamsSample {
                acknowledged: fullpipe_units::ByteCount::new(tick * 100_000),
                retransmitted: fullpipe_units::SegCount::new(tick),
                rtt: Some(Span::from_millis(50 + tick % 3)),
                mss: fullpipe_units::ByteCount::new(1448),
            };
            assert_eq!(
                coupling.add_sample(Time::from_nanos(tick * 50_000_000), &sample),
                None
            );
        }
    }
}

//! The rate of connections under BBR that leave no queue to others.
//!
//! Over a path that loses packets without a queue, a connection under CUBIC next to this transfer
//! has little, and needs little: its window follows from the loss, and its rate from that and the
//! round-trip time. BBR keeps up to a bandwidth-delay product in the queue (its window is two of
//! them) and overflows shorter queues, both of which take from the other what the loss has left to
//! it. So the sum of the connections is bounded by delay: it grows while packets wait for less than
//! a small target (after LEDBAT, RFC 6817), and shrinks to what arrives without more.
//!
//! Others may fill the queue nevertheless, where the loss permits that. Delay alone would then
//! leave everything to them. So for as long as queues overflow, nothing shrinks below the window
//! that a connection under CUBIC would have from the last overflow on ([`CoupledRate`]), and before
//! the first one not below half of what this transfer has had.

use fullpipe_units::{BitRate, Span, Time};

use super::coupling::CoupledRate;
use super::rounds::{FinishedRound, MIN_ROUND, RoundTracker, StreamsSample};

/// Multiple of what arrived in a round that may be sent in the next one, until a queue shows or
/// nothing more arrives; near the gain with which BBR starts (2.89), so that it finds its rate.
const START: f64 = 2.5;

/// Growth of what arrives without which a round adds nothing, and such rounds after which the path
/// is full. BBR has the same rule.
const STILL_GROWS: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;

/// Share of the target at which the start ends.
const START_ENDS: f64 = 0.75;

/// Share by which the window grows in a round without a queue, which doubles in so many of them,
/// and its most.
const GROWTH: f64 = 1.0 / 32.0;
const DOUBLING: f64 = 8.0;
const MAX_GROWTH: f64 = 0.25;

/// Share of the window that must be used for it to grow: BBR sends a quarter more in one of eight
/// round trips only.
const USED: f64 = 0.5;

/// Rounds in a row above the target until the window shrinks: one may be the delay of a busy host,
/// and only then the effect of the last time is seen.
const ROUNDS_TO_SHRINK: u32 = 2;

/// Rounds in a row without a queue after which no other flow competes for it.
const QUIET_WITHOUT_OTHERS: u32 = 5;

/// Part of the highest rate up to now that is left to this transfer while queues stand, before they
/// overflow.
const KEPT: f64 = 0.5;

/// Segments in each [`MIN_ROUND`] that are sent in any case.
const MIN_SEGMENTS: f64 = 4.0;

/// Decides the rate of a transfer from its samples, one each 50 ms or so.
pub(crate) struct DelayBound {
    rounds: RoundTracker,
    coupling: CoupledRate,
    /// Bytes that all connections together may have on their way, once a round is over.
    window: Option<f64>,
    /// Rounds of the start without growth; `None` behind it.
    start: Option<u32>,
    /// Bytes per second that arrived in the last round, and the most in two rounds after each
    /// other.
    delivered: f64,
    most: f64,
    /// Rounds in a row without a queue, and with one above the target.
    quiet: u32,
    above: u32,
}

impl DelayBound {
    /// Returns a delay bound for a path of this round-trip time.
    pub(crate) fn new(rtt: Span) -> Self {
        Self {
            rounds: RoundTracker::new(rtt),
            coupling: CoupledRate::new(rtt),
            window: None,
            start: Some(0),
            delivered: 0.0,
            most: 0.0,
            quiet: 0,
            above: 0,
        }
    }

    /// Takes a sample. Returns the rate that all connections together may have until the next one,
    /// once it is known.
    pub(crate) fn add_sample(&mut self, at: Time, sample: &StreamsSample) -> Option<BitRate> {
        if let Some(seen) = self.rounds.add_sample(at, sample) {
            self.end_round(&seen);
        }
        let as_one = self.coupling.add_sample(at, sample);
        let kept = as_one.map_or(KEPT * self.most, |rate| rate.as_f64() / 8.0);
        let least = MIN_SEGMENTS * sample.mss.as_f64()
            / self.rounds.last_rtt().max(MIN_ROUND).as_secs_f64();
        let rate = self.window? / self.rounds.last_rtt().as_secs_f64();
        Some(BitRate::from_bps_f64(8.0 * rate.max(kept).max(least)))
    }

    fn end_round(&mut self, seen: &FinishedRound) {
        let last = std::mem::replace(&mut self.delivered, seen.delivered);
        self.most = self.most.max(last.min(seen.delivered));
        // In multiples of the target.
        let target = self.rounds.target_delay();
        let delay = seen
            .rtt
            .saturating_sub(self.rounds.base_rtt())
            .as_secs_f64()
            / target.as_secs_f64();
        self.above = if delay > 1.0 { self.above + 1 } else { 0 };
        self.quiet = if delay <= 0.5 { self.quiet + 1 } else { 0 };
        if self.quiet >= QUIET_WITHOUT_OTHERS {
            self.coupling.reset_overflows();
        }
        let arrives = seen.delivered.max(last)
            * (self.rounds.base_rtt() + target.scale_by(0.5)).as_secs_f64();
        match (self.start, self.window) {
            (Some(_), _) if delay > START_ENDS => (self.start, self.window) = (None, Some(arrives)),
            (Some(rounds), _) => {
                let rounds = if seen.delivered > STILL_GROWS * last {
                    0
                } else {
                    rounds + 1
                };
                self.start = Some(rounds).filter(|rounds| *rounds < ROUNDS_WITHOUT_GROWTH);
                self.window = Some(START * seen.delivered * seen.rtt.as_secs_f64());
            }
            (None, Some(window)) => self.window = Some(self.adapted_window(window, seen, delay)),
            (None, None) => {}
        }
    }

    /// Returns the window after a round, at a delay in multiples of the target.
    fn adapted_window(&mut self, window: f64, seen: &FinishedRound, delay: f64) -> f64 {
        let used = seen.delivered * seen.rtt.as_secs_f64();
        if self.above >= ROUNDS_TO_SHRINK {
            self.above = 0;
            let most = (self.rounds.base_rtt() + self.rounds.target_delay()).as_secs_f64();
            window.min(used) * most / seen.rtt.as_secs_f64()
        } else if delay <= 1.0 && used > USED * window {
            let growth = (GROWTH * (f64::from(self.quiet) / DOUBLING).exp2()).min(MAX_GROWTH);
            window + (growth * window).max(seen.mss) * (1.0 - delay)
        } else {
            window
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::fluid_test::{Cubic, Link, MSS};
    use std::collections::VecDeque;

    /// Rates, round-trip times and queues in Mbit/s, ms and BDP, and the share of packets lost
    /// without a queue.
    const LOSSY: [((f64, f64, f64), f64); 9] = [
        ((20.0, 30.0, 1.0), 1e-2),
        ((20.0, 200.0, 2.0), 1e-3),
        ((50.0, 120.0, 0.5), 1e-3),
        ((100.0, 30.0, 2.0), 1e-3),
        ((100.0, 80.0, 0.5), 1e-2),
        ((200.0, 60.0, 1.0), 1e-3),
        ((300.0, 150.0, 1.0), 1e-4),
        ((1000.0, 40.0, 0.5), 1e-4),
        ((1000.0, 200.0, 1.0), 1e-2),
    ];

    /// Connections under BBR (draft-ietf-ccwg-bbr, as Linux has version 1).
    struct Bbr {
        bound: Option<DelayBound>,
        rate: Option<f64>,
        delivered: VecDeque<(f64, f64)>,
        acknowledged: f64,
        sampled: f64,
        starts: bool,
        full: (f64, f64),
    }

    impl Bbr {
        const CONNECTIONS: u32 = 4;

        fn on(link: &Link, is_bounded: bool) -> Self {
            let bound = is_bounded.then(|| DelayBound::new(Span::from_secs_f64(link.rtt())));
            Self {
                bound,
                rate: None,
                delivered: VecDeque::new(),
                acknowledged: 0.0,
                sampled: link.now,
                starts: true,
                full: (0.0, link.now),
            }
        }

        /// Sends for so many seconds. Returns the shares of these connections and of the other one.
        fn run(&mut self, link: &mut Link, seconds: f64) -> (f64, f64) {
            link.run_both(seconds, |link, sample, _| {
                if let Some(sample) = sample {
                    self.sample(link, &sample);
                }
                self.send(link).min(self.rate.unwrap_or(f64::INFINITY))
            })
        }

        fn sample(&mut self, link: &Link, sample: &StreamsSample) {
            if let Some(bound) = &mut self.bound {
                self.rate = bound
                    .add_sample(link.time(), sample)
                    .map(|rate| rate.as_f64() / 8.0);
            }
            let acknowledged = sample.acknowledged.as_f64();
            let time = link.now - self.sampled;
            if time > 0.0 {
                self.delivered
                    .push_back((link.now, (acknowledged - self.acknowledged) / time));
            }
            (self.acknowledged, self.sampled) = (acknowledged, link.now);
            while self
                .delivered
                .front()
                .is_some_and(|(at, _)| at + 10.0 * link.rtt() < link.now)
            {
                self.delivered.pop_front();
            }
            if self.bandwidth() > STILL_GROWS * self.full.0 {
                self.full = (self.bandwidth(), link.now);
            }
            self.starts &= link.now < self.full.1 + 3.0 * link.rtt();
        }

        fn bandwidth(&self) -> f64 {
            self.delivered
                .iter()
                .map(|(_, rate)| *rate)
                .fold(100.0 * MSS, f64::max)
        }

        /// Returns the pace of the connections, within a window of two bandwidth-delay products.
        fn send(&self, link: &Link) -> f64 {
            let gain = |connection: u32| match (link.now / link.rtt() + 3.0 * f64::from(connection))
                % 8.0
            {
                _ if self.starts => 2.89,
                phase if phase < 1.0 => 1.25,
                phase if phase < 2.0 => 0.75,
                _ => 1.0,
            };
            let mean = (0..Self::CONNECTIONS).map(gain).sum::<f64>() / f64::from(Self::CONNECTIONS);
            let window = if self.starts { 2.89 } else { 2.0 } * self.bandwidth() * link.base;
            (mean * self.bandwidth()).min(window / link.rtt())
        }
    }

    fn lossy((path, loss): ((f64, f64, f64), f64)) -> Link {
        let mut link = Link::new(path);
        link.loss = loss;
        link
    }

    /// Returns the shares of both, with the other one there before, and what it has alone.
    fn shares(path: ((f64, f64, f64), f64), is_bounded: bool) -> (f64, f64, f64) {
        let mut link = lossy(path);
        link.other = Some(Cubic::new());
        link.run(20.0, |_, _, _| 0.0);
        let (_, alone) = link.run_both(60.0, |_, _, _| 0.0);
        let mut connections = Bbr::on(&link, is_bounded);
        connections.run(&mut link, 5.0);
        let (ours, theirs) = connections.run(&mut link, 60.0);
        (ours, theirs, alone)
    }

    #[test]
    fn alone_they_fill_the_link_with_a_short_queue() {
        for path in LOSSY {
            let mut link = lossy(path);
            let mut connections = Bbr::on(&link, true);
            connections.run(&mut link, 5.0);
            let (share, _) = connections.run(&mut link, 60.0);
            let queue = link.queue / link.capacity;
            assert!(
                share > 0.93 * (1.0 - path.1) && queue < 0.02,
                "{path:?}: {share}, {queue} s"
            );
        }
    }

    #[test]
    fn a_connection_under_cubic_keeps_what_the_loss_has_left_to_it() {
        for path in LOSSY {
            let (ours, theirs, alone) = shares(path, true);
            assert!(
                theirs > 0.6 * alone.min(0.7) && ours + theirs > 0.9,
                "{path:?}: {ours}, {theirs} of {alone}"
            );
            let (_, unbounded, _) = shares(path, false);
            assert!(
                theirs > unbounded,
                "{path:?}: {theirs}, and {unbounded} without a bound"
            );
        }
    }

    #[test]
    fn next_to_one_that_fills_the_queue_they_keep_their_part() {
        // In longer queues BBR itself gives way: its window is two of its bandwidth-delay products.
        for path in crate::rate::fluid_test::PATHS
            .into_iter()
            .filter(|(_, _, queue)| *queue <= 1.0)
        {
            let mut link = Link::new(path);
            let mut connections = Bbr::on(&link, true);
            connections.run(&mut link, 10.0);
            link.other = Some(Cubic::new());
            connections.run(&mut link, 40.0);
            let (ours, theirs) = connections.run(&mut link, 60.0);
            assert!(
                (0.25..0.75).contains(&ours) && theirs > 0.25,
                "{path:?}: {ours}, {theirs}"
            );
        }
    }

    #[test]
    fn nothing_is_bounded_before_a_round_is_over_and_one_without_data_is_not_for_long() {
        let mut bound = DelayBound::new(Span::from_millis(50));
        let mut follow = |tick: u64| {
            let sample = StreamsSample {
                acknowledged: fullpipe_units::ByteCount::new(tick * 1000),
                retransmitted: fullpipe_units::SegCount::ZERO,
                rtt: Some(Span::from_millis(50)),
                mss: fullpipe_units::ByteCount::new(1448),
            };
            bound.add_sample(Time::from_nanos(tick * 50_000_000), &sample)
        };
        assert_eq!((follow(0), follow(1)), (None, None));
        let rate = (2..400).filter_map(&mut follow).last();
        assert!(
            rate.is_some_and(|rate| rate < BitRate::from_mbps(4)),
            "{rate:?}"
        );
    }
}

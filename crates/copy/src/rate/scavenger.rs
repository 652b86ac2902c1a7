//! The rate of a transfer that gives way to all other traffic.
//!
//! After LEDBAT (RFC 6817) and LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): the queue that the
//! transfer adds is held at a target far below what others make of it. Growth from little is
//! exponential, and ended by delay. More delay than the target shrinks the window; much more, for
//! two round trips, is the queue of others, and then next to nothing is sent until it has gone.
//! What LEDBAT++ does to see the base round-trip time, slowing down, happens only if nothing else
//! has shown it for a while, and does not empty the path. A LEDBAT that begins next to others takes
//! their queue for the path; here the changes of that queue end its growth.

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};

use super::rounds::{FinishedRound, MIN_ROUND, RoundTracker, StreamsSample};

/// Segments that cross in each [`MIN_ROUND`] while others load the path: without any, this end
/// would not see that they stop.
const MIN_SEGMENTS: f64 = 4.0;

/// Segments of the first window (RFC 6928).
const FIRST_SEGMENTS: u64 = 10;

/// Share by which the window grows in a round while no queue does, at first, and the share of the
/// target that halves it. So many of those rounds in a row end the start, or so many in all: one
/// may be the delay of a busy host, and growth from little by [`GENTLE_GROWTH`] takes seconds.
const GROWTH: f64 = 0.5;
const GROWTH_HALVES: f64 = 0.75;
const ROUNDS_OF_QUEUE: u32 = 2;
const HALVINGS: u32 = 3;

/// Share by which the window grows in a round next to a queue below the target. It doubles in so
/// many rounds without a queue: the path then carries more than it did.
const GENTLE_GROWTH: f64 = 1.0 / 64.0;
const QUIET_DOUBLING: f64 = 8.0;

/// Rounds in a row above the target until the window shrinks: one may be the delay of a busy host,
/// and only then the effect of the last time is seen.
const ROUNDS_TO_DECREASE: u32 = 2;

/// Multiples of the target that are the queue of others, and rounds in a row with them until this
/// one yields.
const QUEUE_OF_OTHERS: f64 = 2.0;
const ROUNDS_OF_OTHERS: u32 = 2;

/// Rounds after a change for which its own queue and losses last.
const ROUNDS_TO_SETTLE: u32 = 3;

/// Rounds in a row without a queue after which more is tried after yielding.
const QUIET_AFTER_YIELD: u32 = 3;

/// Rounds of a steady state after which others did not drive this one away from the beginning, and
/// multiples of the time to wait if they did.
const LASTING: u32 = 30;
const MAX_BACKOFF: u32 = 8;

/// Time without a round-trip time near the base after which a slowdown shows it, its rounds, and
/// its rate.
const SLOWDOWN_INTERVAL: Span = Span::from_secs(10);
const SLOWDOWN_ROUNDS: u32 = 2;
const SLOWDOWN: f64 = 0.5;

/// Multiples of a queue of its own that drain in a round at a lower rate.
const DRAINED: f64 = 1.5;

/// Decides the rate of a transfer from its samples, one each 50 ms or so.
pub(crate) struct ScavengerControl {
    phase: ScavengerPhase,
    /// Bytes that all connections together may have on their way.
    window: f64,
    rounds: RoundTracker,
    base_seen: Time,
    /// Rounds in a row without a queue, with one of others, and with one above the target.
    quiet: u32,
    of_others: u32,
    /// The round-trip time of what may be the queue of others: it has slowed down to see whether it
    /// is its own.
    suspected: Option<Span>,
    above: u32,
    /// Rounds since the last large change.
    settled: u32,
    /// Times that this start has halved its growth, and rounds in a row that would.
    halvings: u32,
    delayed: u32,
    /// Rounds for which it sends only this part of its rate.
    slowdown: u32,
    factor: f64,
    backoff: u32,
    total: Span,
    yielding: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScavengerPhase {
    Start,
    Steady,
    Yield,
}

impl ScavengerControl {
    /// Returns a scavenger for a path of this round-trip time and connections with segments of this
    /// payload.
    pub(crate) fn new(rtt: Span, mss: ByteCount) -> Self {
        Self {
            phase: ScavengerPhase::Start,
            window: SegCount::new(FIRST_SEGMENTS).of_size(mss).as_f64(),
            rounds: RoundTracker::new(rtt),
            base_seen: Time::default(),
            quiet: 0,
            of_others: 0,
            suspected: None,
            settled: 0,
            halvings: 0,
            delayed: 0,
            above: 0,
            slowdown: 0,
            factor: SLOWDOWN,
            backoff: 1,
            total: Span::ZERO,
            yielding: Span::ZERO,
        }
    }

    /// Takes a sample. Returns the rate that all connections together may have until the next one.
    pub(crate) fn add_sample(&mut self, at: Time, sample: &StreamsSample) -> BitRate {
        let (base, target) = (self.rounds.base_rtt(), self.rounds.target_delay());
        let seen = self.rounds.add_sample(at, sample);
        if base.saturating_sub(self.rounds.base_rtt()) > target.scale_by(0.5) {
            // A part of what seemed to be the path was the queue of others, and that has gone.
            self.backoff = 1;
            if self.phase != ScavengerPhase::Yield {
                self.enter_phase(ScavengerPhase::Start);
            }
        }
        if let Some(seen) = seen {
            self.total += seen.length;
            if self.phase == ScavengerPhase::Yield {
                self.yielding += seen.length;
            }
            self.end_round(at, &seen);
        }
        self.current_rate(sample.mss)
    }

    /// Returns the part of the time for which it sent next to nothing, because others loaded the
    /// path.
    pub(crate) fn gave_way(&self) -> Ratio {
        Ratio::from_quotient(self.yielding.as_secs_f64(), self.total.as_secs_f64())
    }

    /// Returns the window that the connections together must be able to reach soon, whatever they
    /// have lost before; `None` while it gives way.
    pub(crate) fn reachable_window(&self) -> Option<ByteCount> {
        (self.phase != ScavengerPhase::Yield).then(|| ByteCount::from_f64(self.window))
    }

    fn current_rate(&self, mss: ByteCount) -> BitRate {
        let rtt = self.rounds.last_rtt();
        let least = MIN_SEGMENTS * mss.as_f64() / rtt.max(MIN_ROUND).as_secs_f64();
        let factor = if self.slowdown > 0 { self.factor } else { 1.0 };
        let rate = (factor * self.window / self.damped_seconds(rtt)).max(least);
        BitRate::from_bps_f64(8.0 * rate)
    }

    /// Returns the queue of this round-trip time in multiples of the target.
    fn in_targets(&self, rtt: Span) -> f64 {
        rtt.saturating_sub(self.rounds.base_rtt()).as_secs_f64()
            / self.rounds.target_delay().as_secs_f64()
    }

    /// Returns the longer of a round's queue and the newest, in multiples of the target. Over short
    /// paths the shortest round-trip time of a round is from before the effect of the last growth.
    fn recent_delay(&self, seen: &FinishedRound) -> f64 {
        self.in_targets(seen.rtt.max(self.rounds.last_rtt()))
    }

    /// Returns the seconds in which a window is sent at this round-trip time. What a rate does to
    /// the queue is seen a round-trip time and a sample later: over short paths the whole of a
    /// queue would make it swing.
    fn damped_seconds(&self, rtt: Span) -> f64 {
        let base = self.rounds.base_rtt();
        let part = base.as_secs_f64() / (base + MIN_ROUND).as_secs_f64();
        (base + rtt.saturating_sub(base).scale_by(part)).as_secs_f64()
    }

    fn end_round(&mut self, at: Time, seen: &FinishedRound) {
        let delay = self.in_targets(seen.rtt);
        self.settled += 1;
        self.above = if delay > 1.0 { self.above + 1 } else { 0 };
        self.quiet = if !seen.lost && self.recent_delay(seen) <= 0.5 {
            self.quiet + 1
        } else {
            0
        };
        self.of_others = if delay > QUEUE_OF_OTHERS {
            self.of_others + 1
        } else {
            0
        };
        if let Some(rtt) = self.suspected.take_if(|_| delay <= QUEUE_OF_OTHERS) {
            self.fit_target(rtt);
        }
        if delay <= 0.25 {
            self.base_seen = at;
        }
        self.slowdown = self.slowdown.saturating_sub(1);
        match self.phase {
            ScavengerPhase::Start => self.continue_start(seen),
            ScavengerPhase::Steady => self.continue_steady(at, seen, delay),
            ScavengerPhase::Yield => self.give_way(seen, delay),
        }
        let least =
            MIN_SEGMENTS * seen.mss * (seen.rtt.as_secs_f64() / MIN_ROUND.as_secs_f64()).min(1.0);
        self.window = self.window.max(least);
    }

    fn continue_start(&mut self, seen: &FinishedRound) {
        if !seen.lost && self.recent_delay(seen) <= GROWTH_HALVES {
            self.delayed = 0;
            // No faster than what was sent arrives: there may be nothing more to send.
            let most = self
                .window
                .max(2.0 * seen.delivered * seen.rtt.as_secs_f64());
            let growth = GROWTH / f64::from(self.halvings).exp2();
            self.window = (self.window + growth * self.window).min(most);
            return;
        }
        self.delayed += 1;
        if self.delayed == 1 {
            self.halvings += 1;
            let arrives = seen.delivered
                * self.damped_seconds(
                    self.rounds.base_rtt() + self.rounds.target_delay().scale_by(0.5),
                );
            self.window = arrives.min(self.window);
        }
        if seen.lost || self.delayed == ROUNDS_OF_QUEUE || self.halvings == HALVINGS {
            self.enter_phase(ScavengerPhase::Steady);
            self.drain_queue(seen);
        }
    }

    fn continue_steady(&mut self, at: Time, seen: &FinishedRound, delay: f64) {
        let has_settled = self.settled > ROUNDS_TO_SETTLE;
        if has_settled && self.of_others >= ROUNDS_OF_OTHERS {
            self.meet_others(seen);
        } else if seen.lost && has_settled {
            self.window /= 2.0;
            self.enter_phase(ScavengerPhase::Steady);
        } else if delay > 1.0 && has_settled {
            self.decrease_window(seen);
        } else if delay <= 1.0 && self.slowdown == 0 {
            self.grow_gently(at, seen);
        }
    }

    /// Suspects the queue of others, and gives way to it if it is still there once its own would
    /// have drained.
    fn meet_others(&mut self, seen: &FinishedRound) {
        if self.suspected.is_none() {
            (self.suspected, self.of_others) = (Some(seen.rtt), 0);
            return self.drain_queue(seen);
        }
        self.backoff = if self.settled < LASTING {
            (2 * self.backoff).min(MAX_BACKOFF)
        } else {
            1
        };
        self.window /= 2.0;
        self.enter_phase(ScavengerPhase::Yield);
    }

    /// Takes away what makes its own queue longer than the target.
    fn decrease_window(&mut self, seen: &FinishedRound) {
        if self.above >= ROUNDS_TO_DECREASE {
            self.fit_target(seen.rtt);
        }
    }

    /// Makes the window so small that its queue is the target, where it makes one of this
    /// round-trip time.
    fn fit_target(&mut self, rtt: Span) {
        self.above = 0;
        self.window *= self.damped_seconds(self.rounds.base_rtt() + self.rounds.target_delay())
            / self.damped_seconds(rtt);
    }

    /// Sends so much less that a queue of its own is gone soon.
    fn drain_queue(&mut self, seen: &FinishedRound) {
        let queue = seen.rtt.saturating_sub(self.rounds.base_rtt());
        self.slow_down(1.0 - DRAINED * queue.as_secs_f64() / seen.length.as_secs_f64());
    }

    /// Sends this part of its rate for two rounds, or half of it if that is more.
    fn slow_down(&mut self, factor: f64) {
        (self.slowdown, self.factor) = (SLOWDOWN_ROUNDS, factor.max(SLOWDOWN));
    }

    fn grow_gently(&mut self, at: Time, seen: &FinishedRound) {
        if seen.delivered * seen.rtt.as_secs_f64() > 0.7 * self.window {
            let growth =
                (GENTLE_GROWTH * (f64::from(self.quiet) / QUIET_DOUBLING).exp2()).min(GROWTH);
            self.window +=
                (growth * self.window).max(seen.mss) * (1.0 - self.recent_delay(seen)).max(0.0);
        }
        if at.duration_since(self.base_seen) >= SLOWDOWN_INTERVAL {
            self.base_seen = at;
            self.slow_down(SLOWDOWN);
        }
    }

    fn give_way(&mut self, seen: &FinishedRound, delay: f64) {
        if seen.lost || delay > 0.5 {
            self.window /= 2.0;
        }
        if self.quiet >= QUIET_AFTER_YIELD * self.backoff {
            self.enter_phase(ScavengerPhase::Start);
        }
    }

    fn enter_phase(&mut self, phase: ScavengerPhase) {
        (self.phase, self.settled, self.quiet, self.of_others) = (phase, 0, 0, 0);
        (self.halvings, self.delayed, self.suspected) = (0, 0, None);
    }
}

#[cfg(test)]
mod tests;

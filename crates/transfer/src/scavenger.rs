//! The rate of a transfer that gives way to all other traffic.
//!
//! After LEDBAT (RFC 6817) and LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): the queue that the transfer adds is held
//! at a target far below what others make of it. Growth from little is exponential, and ended by delay. More delay than
//! the target shrinks the window; much more, for two round trips, is the queue of others, and then next to nothing is
//! sent until it has gone. What LEDBAT++ does to see the base round-trip time, slowing down, happens only if nothing
//! else has shown it for a while, and does not empty the path. A LEDBAT that begins next to others takes their queue
//! for the path; here the changes of that queue end its growth.

use std::collections::VecDeque;

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, Time};

/// Share of the base round-trip time that the queue of this transfer may add, and its bounds. RFC 6817 permits 100 ms
/// at most, which is the whole queue of many paths.
const TARGET: f64 = 0.1;
const TARGETS: (Span, Span) = (Span::from_millis(3), Span::from_millis(15));

/// The shortest time between two decisions. Over longer paths it is a round-trip time.
const MIN_ROUND: Span = Span::from_millis(100);

/// Round-trip times below this one are those of a host, not of a path.
const MIN_RTT: Span = Span::from_micros(100);

/// Segments that cross in each [`MIN_ROUND`] while others load the path: without any, nobody would see that they stop.
const MIN_SEGMENTS: f64 = 4.0;

/// Segments of the first window (RFC 6928).
const FIRST_SEGMENTS: u64 = 10;

/// Factor by which the window grows in a round while no queue does, and the share of the target that ends that.
const GROWTH: f64 = 1.5;
const GROWTH_ENDS: f64 = 0.75;

/// Share by which the window grows in a round next to a queue below the target.
const GENTLE_GROWTH: f64 = 1.0 / 64.0;

/// Multiples of the target that are the queue of others, and rounds in a row with them until this one yields.
const QUEUE_OF_OTHERS: f64 = 2.0;
const ROUNDS_OF_OTHERS: u32 = 2;

/// Rounds after a change for which its own queue and losses last.
const ROUNDS_TO_SETTLE: u32 = 3;

/// Rounds in a row without a queue after which more is tried: after yielding, and in a steady state.
const QUIET_AFTER_YIELD: u32 = 3;
const QUIET_IN_STEADY: u32 = 10;

/// Rounds of a steady state after which others did not drive this one away from the beginning, and multiples of the
/// time to wait if they did.
const LASTING: u32 = 30;
const MAX_BACKOFF: u32 = 8;

/// Time without a round-trip time near the base after which a slowdown shows it, its rounds, and its rate.
const SLOWDOWN_INTERVAL: Span = Span::from_secs(10);
const SLOWDOWN_ROUNDS: u32 = 2;
const SLOWDOWN: f64 = 0.5;

/// Length and number of the periods of which the base is the least round-trip time: paths change.
const PERIOD: Span = Span::from_secs(30);
const PERIODS: u64 = 10;

/// Weight of one acknowledgement in the kernel's smoothed round-trip time (RFC 6298).
const SMOOTHING: f64 = 1.0 / 8.0;

/// A sample of the connections of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScavengerSample {
    /// Bytes that were acknowledged so far, on all connections together.
    pub acknowledged: ByteCount,
    /// Segments that were sent again so far.
    pub retransmitted: SegCount,
    /// The shortest round-trip time of the connections since the last sample; `None` if nothing was acknowledged.
    pub rtt: Option<Span>,
    /// Payload of a full segment.
    pub mss: ByteCount,
}

/// Decides the rate of a transfer from its samples, one each 50 ms or so.
#[derive(Debug)]
pub struct Scavenger {
    phase: Phase,
    /// Bytes that all connections together may have on their way.
    window: f64,
    /// Window at which a queue grew or packets were lost: growth up to it is fast.
    known: f64,
    rtt: Span,
    base: BaseRtt,
    base_seen: Time,
    round: Option<Round>,
    /// Rounds in a row without a queue, and with one of others.
    quiet: u32,
    of_others: u32,
    /// Rounds since the last large change.
    settled: u32,
    slowdown: u32,
    backoff: u32,
    total: Span,
    yielding: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Steady,
    Yield,
}

/// A round as it began, and its least round-trip time up to now.
#[derive(Debug)]
struct Round {
    began: Time,
    acknowledged: ByteCount,
    retransmitted: SegCount,
    rtt: Option<Span>,
}

/// A round that is over.
struct Seen {
    /// Round-trip time in seconds.
    rtt: f64,
    /// Delay above the base ÷ the target.
    delay: f64,
    /// Bytes per second that arrived.
    delivered: f64,
    lost: bool,
    mss: f64,
}

impl Scavenger {
    /// Returns one for a path of this round-trip time and connections with segments of this payload.
    pub fn new(rtt: Span, mss: ByteCount) -> Self {
        let rtt = rtt.max(MIN_RTT);
        Self {
            phase: Phase::Start,
            window: SegCount::new(FIRST_SEGMENTS).of_size(mss).as_f64(),
            known: f64::INFINITY,
            rtt,
            base: BaseRtt::of(rtt),
            base_seen: Time::default(),
            round: None,
            quiet: 0,
            of_others: 0,
            settled: 0,
            slowdown: 0,
            backoff: 1,
            total: Span::ZERO,
            yielding: Span::ZERO,
        }
    }

    /// Takes a sample. Returns the rate that all connections together may have until the next one.
    pub fn follow(&mut self, at: Time, sample: &ScavengerSample) -> BitRate {
        let target = self.target();
        if let Some(rtt) = sample.rtt.map(|rtt| rtt.max(MIN_RTT)) {
            self.rtt = rtt;
            if self.base.add(at, rtt) > target.scaled(0.5) {
                // A part of what seemed to be the path was the queue of others.
                self.backoff = 1;
            }
        }
        let round = self.round.get_or_insert(Round::begin(at, sample));
        if let Some(rtt) = sample.rtt {
            round.rtt = Some(round.rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let length = at.since(round.began);
        if length >= self.rtt.max(MIN_ROUND)
            && let Some(rtt) = round.rtt
        {
            let delivered = sample.acknowledged.saturating_sub(round.acknowledged).as_f64() / length.as_secs_f64();
            let seen = Seen {
                rtt: rtt.as_secs_f64(),
                delay: rtt.saturating_sub(self.base.least()).as_secs_f64() / target.as_secs_f64(),
                delivered,
                lost: sample.retransmitted > round.retransmitted,
                mss: sample.mss.as_f64(),
            };
            self.round = Some(Round::begin(at, sample));
            self.total += length;
            if self.phase == Phase::Yield {
                self.yielding += length;
            }
            self.decide(at, &seen);
        }
        self.rate(sample.mss)
    }

    /// Returns the part of the time for which it sent next to nothing, because others loaded the path.
    pub fn gave_way(&self) -> Ratio {
        Ratio::of(self.yielding.as_secs_f64(), self.total.as_secs_f64())
    }

    /// Returns the window to which the connections together must be able to grow without a delay of their own; `None`
    /// unless it grows fast.
    pub fn growing_to(&self) -> Option<ByteCount> {
        (self.phase == Phase::Start).then(|| ByteCount::from_f64(GROWTH * self.window))
    }

    fn target(&self) -> Span {
        self.base.least().scaled(TARGET).clamp(TARGETS.0, TARGETS.1)
    }

    fn rate(&self, mss: ByteCount) -> BitRate {
        let least = MIN_SEGMENTS * mss.as_f64() / self.rtt.max(MIN_ROUND).as_secs_f64();
        let factor = if self.slowdown > 0 { SLOWDOWN } else { 1.0 };
        let rate = (factor * self.window / self.rtt.as_secs_f64()).max(least);
        BitRate::from_bps_f64(8.0 * rate)
    }

    fn decide(&mut self, at: Time, seen: &Seen) {
        self.settled += 1;
        self.quiet = if !seen.lost && seen.delay <= 0.5 { self.quiet + 1 } else { 0 };
        self.of_others = if seen.delay > QUEUE_OF_OTHERS { self.of_others + 1 } else { 0 };
        if seen.delay <= 0.25 {
            self.base_seen = at;
        }
        self.slowdown = self.slowdown.saturating_sub(1);
        match self.phase {
            Phase::Start => self.start(seen),
            Phase::Steady => self.stay(at, seen),
            Phase::Yield => self.give_way(seen),
        }
        let least = MIN_SEGMENTS * seen.mss * (seen.rtt / MIN_ROUND.as_secs_f64()).min(1.0);
        self.window = self.window.max(least);
    }

    fn start(&mut self, seen: &Seen) {
        if seen.lost {
            self.settle(self.window / 2.0);
        } else if seen.delay > GROWTH_ENDS {
            let arrives = seen.delivered * (self.base.least() + self.target().scaled(0.5)).as_secs_f64();
            self.settle(arrives.min(self.window));
        } else if self.window >= self.known {
            self.enter(Phase::Steady);
        } else {
            // No faster than what was sent arrives: there may be nothing more to send.
            let most = self.window.max(2.0 * seen.delivered * seen.rtt);
            self.window = (GROWTH * self.window).min(most).min(self.known);
        }
    }

    fn stay(&mut self, at: Time, seen: &Seen) {
        let has_settled = self.settled > ROUNDS_TO_SETTLE;
        if has_settled && self.of_others >= ROUNDS_OF_OTHERS {
            self.backoff = if self.settled < LASTING { (2 * self.backoff).min(MAX_BACKOFF) } else { 1 };
            self.window /= 2.0;
            self.enter(Phase::Yield);
        } else if seen.lost && has_settled {
            self.settle(self.window / 2.0);
        } else if seen.delay > 1.0 && has_settled {
            self.window *= 1.0 - ((seen.delay - 1.0) / 2.0).min(0.5);
        } else if seen.delay <= 1.0 && self.slowdown == 0 {
            self.grow_gently(at, seen);
        }
    }

    fn grow_gently(&mut self, at: Time, seen: &Seen) {
        let is_used = seen.delivered * seen.rtt > 0.7 * self.window;
        if self.quiet >= QUIET_IN_STEADY && is_used {
            self.known = f64::INFINITY;
            return self.enter(Phase::Start);
        }
        if is_used {
            self.window += (GENTLE_GROWTH * self.window).max(seen.mss) * (1.0 - seen.delay);
        }
        if at.since(self.base_seen) >= SLOWDOWN_INTERVAL {
            (self.base_seen, self.slowdown) = (at, SLOWDOWN_ROUNDS);
        }
    }

    fn give_way(&mut self, seen: &Seen) {
        if seen.lost || seen.delay > 0.5 {
            self.window /= 2.0;
        }
        if self.quiet >= QUIET_AFTER_YIELD * self.backoff {
            self.known = f64::INFINITY;
            self.enter(Phase::Start);
        }
    }

    /// Goes on with a window at which neither a queue grew nor packets were lost.
    fn settle(&mut self, window: f64) {
        (self.window, self.known) = (window, window);
        self.enter(Phase::Steady);
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.settled, self.quiet, self.of_others) = (phase, 0, 0, 0);
    }
}

impl Round {
    const fn begin(at: Time, sample: &ScavengerSample) -> Self {
        let ScavengerSample { acknowledged, retransmitted, .. } = *sample;
        Self { began: at, acknowledged, retransmitted, rtt: None }
    }
}

/// The least round-trip time of each of the last periods.
#[derive(Debug)]
struct BaseRtt(VecDeque<(u64, Span)>);

impl BaseRtt {
    fn of(rtt: Span) -> Self {
        Self(VecDeque::from([(0, rtt)]))
    }

    /// Adds a round-trip time. Returns by how much it is below all others.
    fn add(&mut self, at: Time, rtt: Span) -> Span {
        let below = self.least().saturating_sub(rtt);
        let period = at.as_nanos() / PERIOD.as_nanos();
        match self.0.back_mut() {
            Some((last, least)) if *last == period => *least = (*least).min(rtt),
            _ => self.0.push_back((period, rtt)),
        }
        self.0.retain(|(of, _)| of + PERIODS > period);
        below
    }

    fn least(&self) -> Span {
        self.0.iter().map(|(_, least)| *least).min().unwrap_or(MIN_RTT)
    }
}

/// Returns the mean round-trip time of the last acknowledgements, from the kernel's smoothed one before and behind
/// them. That one remembers those before for eight acknowledgements, which is long where little is sent. `None` if
/// there was none.
pub fn unsmoothed(before: Span, behind: Span, acknowledgements: u64) -> Option<Span> {
    let rest = (1.0 - SMOOTHING).powi(i32::try_from(acknowledgements).unwrap_or(i32::MAX));
    let change = (behind.as_secs_f64() - before.as_secs_f64()) / (1.0 - rest);
    (acknowledgements > 0).then(|| Span::from_secs_f64((before.as_secs_f64() + change).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1448.0;
    const STEP: f64 = 0.01;
    const SAMPLE_STEPS: u64 = 5;

    /// A connection under CUBIC as a fluid (RFC 9438), with slow start.
    struct Cubic {
        window: f64,
        most: f64,
        epoch: f64,
        is_starting: bool,
        cut: f64,
    }

    impl Cubic {
        fn new() -> Self {
            Self { window: 10.0 * MSS, most: 0.0, epoch: 0.0, is_starting: true, cut: f64::NEG_INFINITY }
        }

        fn step(&mut self, now: f64, rtt: f64, lost: bool) {
            if lost && now > self.cut + rtt {
                (self.most, self.window, self.cut) = (self.window, 0.7 * self.window, now);
                (self.epoch, self.is_starting) = (now, false);
            } else if self.is_starting {
                self.window *= 2_f64.powf(STEP / rtt);
            } else {
                let most = self.most / MSS;
                let plateau = (0.3 * most / 0.4).cbrt();
                let cubic = 0.4 * (now - self.epoch - plateau).powi(3) + most;
                let reno = 0.7 * most + 0.53 * (now - self.epoch) / rtt;
                self.window = self.window.max(cubic.max(reno) * MSS);
            }
        }
    }

    /// A bottleneck with a drop-tail queue, which a scavenger shares with another connection.
    struct Link {
        capacity: f64,
        base: f64,
        most: f64,
        queue: f64,
        now: f64,
        other: Option<Cubic>,
        scavenger: Option<Scavenger>,
        rate: f64,
        acknowledged: f64,
        dropped: f64,
        /// Arrivals of the scavenger, queues and drops, as they become known a round-trip time later.
        on_their_way: VecDeque<(f64, f64, f64)>,
        steps: u64,
    }

    impl Link {
        /// A link of so many Mbit/s and ms, with a queue of so many BDP.
        fn new(mbps: f64, rtt: f64, queue: f64) -> Self {
            let (capacity, base) = (mbps * 1e6 / 8.0, rtt / 1e3);
            Self {
                capacity,
                base,
                most: queue * capacity * base,
                queue: 0.0,
                now: 0.0,
                other: None,
                scavenger: None,
                rate: 0.0,
                acknowledged: 0.0,
                dropped: 0.0,
                on_their_way: VecDeque::new(),
                steps: 0,
            }
        }

        fn rtt(&self) -> f64 {
            self.base + self.queue / self.capacity
        }

        fn begin(&mut self) {
            let rtt = Span::from_secs_f64(self.rtt());
            self.scavenger = Some(Scavenger::new(rtt, ByteCount::from_f64(MSS)));
            self.on_their_way.clear();
        }

        /// Goes on for so many seconds. Returns the scavenger's share of the link.
        fn run(&mut self, seconds: f64) -> f64 {
            let (until, before) = (self.now + seconds, self.acknowledged);
            while self.now < until {
                self.step();
            }
            (self.acknowledged - before) / (seconds * self.capacity)
        }

        fn step(&mut self) {
            self.now += STEP;
            self.steps += 1;
            let rtt = self.rtt();
            let (ours, theirs) = (self.rate, self.other.as_ref().map_or(0.0, |other| other.window / rtt));
            let arriving = ours + theirs;
            self.queue += (arriving - self.capacity) * STEP;
            let drops = (self.queue - self.most).max(0.0);
            self.queue = self.queue.clamp(0.0, self.most);
            if let Some(other) = &mut self.other {
                other.step(self.now, rtt, drops > 0.0);
            }
            let share = if arriving > 0.0 { ours / arriving } else { 0.0 };
            let carried = if self.queue > 0.0 { share * self.capacity } else { ours };
            self.on_their_way.push_back((carried * STEP, self.queue, drops * share));
            self.inform();
        }

        /// Gives the scavenger what is known a base round-trip time later.
        fn inform(&mut self) {
            let late = (self.base / STEP) as usize;
            let Some(scavenger) = &mut self.scavenger else { return };
            if self.on_their_way.len() <= late {
                self.rate = if self.rate == 0.0 { 10.0 * MSS / self.base } else { self.rate };
                return;
            }
            let (arrived, queue, dropped) = self.on_their_way.pop_front().unwrap_or_default();
            self.acknowledged += arrived;
            self.dropped += dropped;
            if self.steps.is_multiple_of(SAMPLE_STEPS) {
                let sample = ScavengerSample {
                    acknowledged: ByteCount::from_f64(self.acknowledged),
                    retransmitted: SegCount::new((self.dropped / MSS) as u64),
                    rtt: Some(Span::from_secs_f64(self.base + queue / self.capacity)),
                    mss: ByteCount::from_f64(MSS),
                };
                self.rate = scavenger.follow(Time::from_nanos((self.now * 1e9) as u64), &sample).as_f64() / 8.0;
            }
        }
    }

    /// Rates, round-trip times and queues in Mbit/s, ms and BDP.
    const PATHS: [(f64, f64, f64); 9] = [
        (100.0, 100.0, 0.3),
        (100.0, 100.0, 1.0),
        (100.0, 100.0, 3.0),
        (100.0, 50.0, 0.3),
        (100.0, 50.0, 1.0),
        (20.0, 40.0, 1.0),
        (1000.0, 98.0, 1.0),
        (1000.0, 98.0, 0.3),
        (50.0, 300.0, 1.0),
    ];

    #[test]
    fn alone_it_fills_the_link_with_a_short_queue() {
        for (mbps, rtt, queue) in PATHS {
            let mut link = Link::new(mbps, rtt, queue);
            link.begin();
            link.run(8.0);
            let share = link.run(60.0);
            let gave_way = link.scavenger.as_ref().unwrap().gave_way();
            let delay = link.queue / link.capacity;
            assert!(share > 0.94 && delay < 0.02 && gave_way.get() < 0.02, "{mbps} {rtt} {queue}: {share} {gave_way}");
        }
    }

    #[test]
    fn next_to_a_connection_that_was_there_before_it_takes_little_and_all_when_that_ends() {
        for (mbps, rtt, queue) in PATHS {
            let mut link = Link::new(mbps, rtt, queue);
            link.other = Some(Cubic::new());
            link.run(25.0);
            link.begin();
            let during = link.run(40.0);
            link.other = None;
            link.run(5.0);
            let behind = link.run(20.0);
            assert!(during < 0.1 && behind > 0.9, "{mbps} {rtt} {queue}: {during}, then {behind}");
        }
    }

    #[test]
    fn it_leaves_the_link_to_a_connection_that_comes_later() {
        for (mbps, rtt, queue) in PATHS {
            let mut link = Link::new(mbps, rtt, queue);
            link.begin();
            link.run(20.0);
            link.other = Some(Cubic::new());
            link.run(5.0);
            let during = link.run(40.0);
            let gave_way = link.scavenger.as_ref().unwrap().gave_way();
            assert!(during < 0.1 && gave_way.get() > 0.4, "{mbps} {rtt} {queue}: {during}, gave way {gave_way}");
        }
    }

    #[test]
    fn a_transfer_with_nothing_to_send_does_not_grow() {
        let mut scavenger = Scavenger::new(Span::from_millis(50), ByteCount::new(1448));
        let mut rate = BitRate::ZERO;
        for tick in 1..400 {
            let sample = ScavengerSample {
                acknowledged: ByteCount::new(tick * 1000),
                retransmitted: SegCount::ZERO,
                rtt: Some(Span::from_millis(50)),
                mss: ByteCount::new(1448),
            };
            rate = scavenger.follow(Time::from_nanos(tick * 50_000_000), &sample);
        }
        assert!(rate < BitRate::from_mbps(4), "{rate}");
    }

    #[test]
    fn smoothing_is_undone() {
        let (mut smoothed, steps) = (0.1, [0.1, 0.15, 0.2]);
        for rtt in steps {
            let before = Span::from_secs_f64(smoothed);
            (0..3).for_each(|_| smoothed += (rtt - smoothed) / 8.0);
            let found = unsmoothed(before, Span::from_secs_f64(smoothed), 3).unwrap();
            assert!((found.as_secs_f64() - rtt).abs() < 1e-6, "{found}");
        }
        assert_eq!(unsmoothed(Span::from_millis(1), Span::from_millis(2), 0), None);
        assert_eq!(unsmoothed(Span::from_millis(100), Span::ZERO, 1), Some(Span::ZERO));
        let long = Span::from_millis(7);
        assert_eq!(unsmoothed(Span::from_millis(100), long, u64::MAX), Some(long));
    }
}

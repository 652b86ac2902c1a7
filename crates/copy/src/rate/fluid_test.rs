//! A bottleneck with connections as fluids, to test what decides rates in virtual time.

use std::collections::VecDeque;

use fullpipe_units::{ByteCount, SegCount, Span, Time};

use super::rounds::StreamsSample;

pub(crate) const MSS: f64 = 1448.0;
pub(crate) const STEP: f64 = 0.01;

/// Steps between two samples.
const SAMPLE_STEPS: u64 = 5;

/// Rates, round-trip times and queues in Mbit/s, ms and BDP.
pub(crate) const PATHS: [(f64, f64, f64); 9] = [
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

/// A connection under CUBIC (RFC 9438), with slow start.
#[derive(Debug)]
pub(crate) struct Cubic {
    pub window: f64,
    most: f64,
    epoch: f64,
    is_starting: bool,
    cut: f64,
}

impl Cubic {
    pub(crate) fn new() -> Self {
        Self {
            window: 10.0 * MSS,
            most: 0.0,
            epoch: 0.0,
            is_starting: true,
            cut: f64::NEG_INFINITY,
        }
    }

    pub(crate) fn step(&mut self, now: f64, rtt: f64, lost: bool) {
        if lost && now > self.cut + rtt {
            self.most = if self.window < self.most {
                0.85 * self.window
            } else {
                self.window
            };
            (self.window, self.cut) = (0.7 * self.window, now);
            (self.epoch, self.is_starting) = (now, false);
        } else if self.is_starting {
            self.window *= 2_f64.powf(STEP / rtt);
        } else {
            let (most, begin) = (self.most / MSS, 0.7 * self.most.max(self.window) / MSS);
            let plateau = ((most - begin).max(0.0) / 0.4).cbrt();
            let cubic = 0.4 * (now - self.epoch - plateau).powi(3) + most;
            let reno = begin + 0.53 * (now - self.epoch) / rtt;
            self.window = self.window.max(cubic.max(reno) * MSS);
        }
    }
}

/// A bottleneck with a drop-tail queue, which a transfer shares with another connection.
pub(crate) struct Link {
    pub capacity: f64,
    pub base: f64,
    most: f64,
    pub queue: f64,
    pub now: f64,
    pub other: Option<Cubic>,
    /// Share of segments that are lost without a queue, and segments of the other connection until
    /// the next loss.
    pub loss: f64,
    /// Seconds for which the hosts delay acknowledgements.
    pub host_delay: f64,
    other_lost: f64,
    /// Bytes of the other connection that arrived.
    other_arrived: f64,
    acknowledged: f64,
    dropped: f64,
    /// Bytes of the transfer that arrived and were dropped, and the queue, as they become known a
    /// round-trip time later.
    on_their_way: VecDeque<(f64, f64, f64)>,
    steps: u64,
}

impl Link {
    /// Returns a link of so many Mbit/s and ms, with a queue of so many BDP.
    pub(crate) fn new((mbps, rtt, queue): (f64, f64, f64)) -> Self {
        let (capacity, base) = (mbps * 1e6 / 8.0, rtt / 1e3);
        Self {
            capacity,
            base,
            most: queue * capacity * base,
            queue: 0.0,
            now: 0.0,
            other: None,
            loss: 0.0,
            host_delay: 0.0,
            other_lost: 0.0,
            other_arrived: 0.0,
            acknowledged: 0.0,
            dropped: 0.0,
            on_their_way: VecDeque::new(),
            steps: 0,
        }
    }

    pub(crate) fn rtt(&self) -> f64 {
        self.base + self.queue / self.capacity
    }

    pub(crate) fn time(&self) -> Time {
        Time::from_nanos((self.now * 1e9) as u64)
    }

    /// Goes on for so many seconds with the rate that `send` decides in each step, with a sample if
    /// there is one and whether the queue has overflowed. Returns the transfer's share of the link.
    pub(crate) fn run(
        &mut self,
        seconds: f64,
        mut send: impl FnMut(&Self, Option<StreamsSample>, bool) -> f64,
    ) -> f64 {
        let (until, before) = (self.now + seconds, self.acknowledged);
        let mut overflows = false;
        while self.now < until {
            let sample = self.sample();
            let rate = send(self, sample, overflows);
            overflows = self.step(rate);
        }
        (self.acknowledged - before) / (seconds * self.capacity)
    }

    /// Goes on as [`Link::run`] does. Returns the other connection's share of the link, too.
    pub(crate) fn run_both(
        &mut self,
        seconds: f64,
        send: impl FnMut(&Self, Option<StreamsSample>, bool) -> f64,
    ) -> (f64, f64) {
        let before = self.other_arrived;
        let ours = self.run(seconds, send);
        (
            ours,
            (self.other_arrived - before) / (seconds * self.capacity),
        )
    }

    fn step(&mut self, ours: f64) -> bool {
        self.now += STEP;
        self.steps += 1;
        let rtt = self.rtt();
        let theirs = self.other.as_ref().map_or(0.0, |other| other.window / rtt);
        let arriving = ours + theirs;
        self.queue += (arriving - self.capacity) * STEP;
        let drops = (self.queue - self.most).max(0.0);
        self.queue = self.queue.clamp(0.0, self.most);
        self.other_lost += theirs * STEP / MSS * self.loss;
        let is_lost = self.other_lost >= 1.0;
        self.other_lost = self.other_lost.fract();
        if let Some(other) = &mut self.other {
            other.step(self.now, rtt, drops > 0.0 || is_lost);
        }
        let share = if arriving > 0.0 { ours / arriving } else { 0.0 };
        let carried = if self.queue > 0.0 {
            share * self.capacity
        } else {
            ours
        };
        self.other_arrived += if self.queue > 0.0 {
            self.capacity - carried
        } else {
            theirs
        } * STEP;
        // No connection loses less than a segment.
        let dropped = if drops > 0.0 && share > 0.0 {
            (drops * share).max(MSS)
        } else {
            0.0
        };
        let (dropped, carried) = (
            dropped + carried * STEP * self.loss,
            carried * (1.0 - self.loss),
        );
        self.on_their_way
            .push_back((carried * STEP, dropped, self.queue));
        drops > 0.0
    }

    fn sample(&mut self) -> Option<StreamsSample> {
        if self.on_their_way.len() <= (self.base / STEP) as usize {
            return None;
        }
        let (arrived, dropped, queue) = self.on_their_way.pop_front()?;
        self.acknowledged += arrived;
        self.dropped += dropped;
        self.steps
            .is_multiple_of(SAMPLE_STEPS)
            .then(|| StreamsSample {
                acknowledged: ByteCount::from_f64(self.acknowledged),
                retransmitted: SegCount::new((self.dropped / MSS) as u64),
                rtt: Some(Span::from_secs_f64(
                    self.base + queue / self.capacity + self.host_delay,
                )),
                mss: ByteCount::from_f64(MSS),
            })
    }
}

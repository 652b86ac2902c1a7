//! A congestion control for paths that lose packets without a queue, after the ideas of BBR: the
//! window is that which the path has on its way, the rate at which data arrives × the shortest
//! round-trip time. Loss alone changes nothing.
//!
//! The library's own BBR takes its rate from two acknowledgements that follow each other, which is
//! far too much where they come in batches; measured, it lost a third of what it sent. Here a rate
//! is what arrives in a whole round trip. The library paces 1.25 × window ÷ RTT, so the window is
//! the only thing that is set:
//!
//! * At first it grows by half in each round trip, until either round trips get longer by a quarter
//!   or the rate has not grown in three of them.
//! * Then it is 1.05 × that product, with a round trip of 1.25 × every eighth, to find out whether
//!   there is more, and one of 0.8 × after it, in which a queue drains and the shortest round-trip
//!   time shows.
//! * To that product the most that was acknowledged at once in the last rounds is added. On a host
//!   whose threads wait for a processor that is much, and round trips of microseconds say little.

use std::time::{Duration, Instant};

/// Rounds for which the highest rate counts: one of them probes.
const ROUNDS: usize = 10;

/// Rounds between two that probe.
const CRUISE: u8 = 6;

/// Growth of the rate in a round from which there may be more, at first and when it probes.
const GROWTH: f64 = 1.2;
const MORE: f64 = 1.1;

/// Rounds without growth after which the path is full.
const STALLED: u8 = 3;

/// Round trips that are longer by so much wait in a queue.
const QUEUED: f64 = 1.25;
const MIN_QUEUED: Duration = Duration::from_millis(4);

/// Acknowledgements after each other that came through a queue, until the path counts as full.
const QUEUED_ACKS: u32 = 16;

/// Time for which the shortest round trip counts, once or twice.
const MIN_RTT_TIME: Duration = Duration::from_secs(10);

/// Time for which threads of a host wait for a processor; what is acknowledged at once after more
/// is not made up for, unless round trips are longer.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Packets of the smallest window.
const MIN_PACKETS: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BbrPhase {
    Startup,
    Probe,
    Drain,
    /// With the rounds that have passed.
    Cruise(u8),
}

/// The state of the model.
#[derive(Debug, Clone)]
pub(super) struct BbrModel {
    phase: BbrPhase,
    window: u64,
    mtu: u64,
    /// Bytes per second that arrived in each of the last rounds, the last one first.
    rates: [f64; ROUNDS],
    /// The most bytes that were acknowledged at once in each of these rounds.
    bursts: [u64; ROUNDS],
    /// The bytes that were acknowledged at the last time, and that time.
    burst: u64,
    acknowledged: Instant,
    /// The highest of the rates before the path was probed.
    before: f64,
    stalled: u8,
    queued: u32,
    /// The round: a packet that is sent in it ends it when it arrives.
    began: Instant,
    arrived: u64,
    was_limited: bool,
    /// The shortest round trips of the last two times.
    min_rtts: [Duration; 2],
    min_rtt_began: Instant,
}

impl BbrModel {
    /// Returns a model that begins with a window.
    pub(super) fn new(now: Instant, window: u64, mtu: u16, min_rtt: Duration) -> Self {
        Self {
            phase: BbrPhase::Startup,
            window,
            mtu: mtu.into(),
            rates: [0.0; ROUNDS],
            bursts: [0; ROUNDS],
            burst: 0,
            acknowledged: now,
            before: 0.0,
            stalled: 0,
            queued: 0,
            began: now,
            arrived: 0,
            was_limited: false,
            min_rtts: [min_rtt; 2],
            min_rtt_began: now,
        }
    }

    /// Forgets the path: nothing has arrived for a while.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        *self = Self::new(now, 0, self.mtu as u16, self.min_rtt());
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
    }

    /// Returns the bytes that may be on their way.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window.max(MIN_PACKETS * self.mtu)
    }

    /// Takes in that a packet has arrived. `is_limited` means that there was nothing more to send.
    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, is_limited: bool) {
        let rtt = now.saturating_duration_since(sent);
        self.note_rtt(now, rtt);
        self.arrived += bytes;
        self.burst = if now == self.acknowledged {
            self.burst + bytes
        } else {
            bytes
        };
        self.acknowledged = now;
        self.bursts[0] = self.bursts[0].max(self.burst);
        self.was_limited |= is_limited;
        if self.phase == BbrPhase::Startup {
            self.window = self.window_bytes() + if is_limited { 0 } else { bytes / 2 };
            let is_queued = rtt
                > self
                    .min_rtt()
                    .mul_f64(QUEUED)
                    .max(self.min_rtt() + MIN_QUEUED);
            self.queued = if is_queued { self.queued + 1 } else { 0 };
        }
        if sent >= self.began {
            self.end_round(now);
        }
    }

    fn note_rtt(&mut self, now: Instant, rtt: Duration) {
        if now.saturating_duration_since(self.min_rtt_began) > MIN_RTT_TIME {
            self.min_rtts = [rtt, self.min_rtts[0]];
            self.min_rtt_began = now;
        }
        self.min_rtts[0] = self.min_rtts[0].min(rtt);
    }

    fn min_rtt(&self) -> Duration {
        self.min_rtts[0].min(self.min_rtts[1])
    }

    fn max_rate(&self) -> f64 {
        self.rates.into_iter().fold(0.0, f64::max)
    }

    fn end_round(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.began).as_secs_f64();
        let rate = self.arrived as f64 / took.max(1e-6);
        let highest = self.max_rate();
        // One that had nothing to send says little of the path.
        let counts = !self.was_limited || rate > highest;
        if counts {
            self.rates.rotate_right(1);
            self.rates[0] = rate;
            self.stalled = if rate > highest * GROWTH {
                0
            } else {
                self.stalled.saturating_add(1)
            };
        }
        (self.began, self.arrived, self.was_limited) = (now, 0, false);
        self.phase = self.next_phase(rate);
        if self.phase != BbrPhase::Startup {
            let min_rtt = self.min_rtt();
            let [bdp, most] =
                [min_rtt, min_rtt.max(MAX_WAIT)].map(|time| self.max_rate() * time.as_secs_f64());
            let burst = self.bursts.into_iter().fold(0, u64::max) as f64;
            self.window = (self.window_gain() * (bdp + burst.min(most))) as u64;
        }
        self.bursts.rotate_right(1);
        self.bursts[0] = 0;
    }

    fn next_phase(&mut self, rate: f64) -> BbrPhase {
        match self.phase {
            BbrPhase::Startup if self.stalled < STALLED && self.queued < QUEUED_ACKS => {
                BbrPhase::Startup
            }
            BbrPhase::Startup => {
                self.before = f64::INFINITY;
                BbrPhase::Drain
            }
            BbrPhase::Cruise(rounds) if rounds < CRUISE => BbrPhase::Cruise(rounds + 1),
            BbrPhase::Cruise(_) => {
                self.before = self.max_rate();
                BbrPhase::Probe
            }
            BbrPhase::Probe => BbrPhase::Drain,
            // What was sent while it probed has arrived by now.
            BbrPhase::Drain if rate > self.before * MORE => {
                self.before = rate;
                BbrPhase::Probe
            }
            BbrPhase::Drain => BbrPhase::Cruise(1),
        }
    }

    const fn window_gain(&self) -> f64 {
        match self.phase {
            BbrPhase::Startup | BbrPhase::Probe => 1.25,
            BbrPhase::Drain => 0.8,
            BbrPhase::Cruise(_) => 1.05,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MTU: u16 = 1452;

    /// A path in virtual time: a rate, a delay there and back, a queue that holds so many packets,
    /// loss of one in so many.
    struct Path {
        bytes_per_second: f64,
        delay: Duration,
        queue: usize,
        one_in: u64,
        /// Time between two moments at which the sender has a processor.
        waits: Duration,
    }

    impl Path {
        /// Returns the time from which the sender can know of what happened at `at`.
        fn noticed(&self, began: Instant, at: Instant) -> Instant {
            let waits = self.waits.as_nanos().max(1);
            let passed = at.duration_since(began).as_nanos();
            began + Duration::from_nanos((passed.div_ceil(waits) * waits) as u64)
        }
    }

    /// Figures that a sender achieved over the last half of the time.
    struct Achieved {
        /// Part of the rate that arrived.
        rate: f64,
        /// Part of what was sent that was lost.
        lost: f64,
        /// Mean of round trip ÷ delay.
        rtt: f64,
    }

    /// Sends for a time with always something to send. A packet is on its way until it arrives or,
    /// one round trip after it was sent, is known to be lost.
    fn send(path: &Path, time: Duration) -> Achieved {
        let began = Instant::now();
        let mut bbr = BbrModel::new(began, 20_000, MTU, path.delay);
        let packet = u64::from(MTU);
        let service = Duration::from_secs_f64(packet as f64 / path.bytes_per_second);
        let (mut now, mut link_free, mut in_flight) = (began, began, 0_u64);
        // When, sent, lost.
        let mut events: VecDeque<(Instant, Instant, bool)> = VecDeque::new();
        let (mut sent, mut arrived, mut lost, mut rtts) = (0_u64, 0_u64, 0_u64, 0.0);
        let half = began + time / 2;
        while now < began + time {
            // Paced as the library does.
            let gap = path
                .delay
                .div_f64(1.25 * bbr.window_bytes() as f64 / packet as f64);
            if in_flight + packet <= bbr.window_bytes() {
                sent += 1;
                in_flight += packet;
                let waiting = link_free.saturating_duration_since(now);
                let is_full = waiting.as_secs_f64() > service.as_secs_f64() * path.queue as f64;
                let is_lost = is_full || sent % path.one_in == 0;
                if !is_full {
                    link_free = link_free.max(now) + service;
                }
                let back = if is_full {
                    now + path.delay * 2
                } else {
                    link_free + path.delay
                };
                let back = path.noticed(began, back);
                let at = events.partition_point(|event| event.0 <= back);
                events.insert(at, (back, now, is_lost));
                now += gap;
            } else {
                now = events.front().map_or(now + gap, |event| event.0.max(now));
            }
            while let Some((at, of, is_lost)) =
                events.front().copied().filter(|event| event.0 <= now)
            {
                events.pop_front();
                in_flight -= packet;
                if at > half {
                    arrived += u64::from(!is_lost);
                    lost += u64::from(is_lost);
                }
                if !is_lost {
                    if at > half {
                        rtts += (at - of).as_secs_f64() / path.delay.as_secs_f64();
                    }
                    bbr.on_ack(at.max(now), of, packet, false);
                }
            }
        }
        let half = time.as_secs_f64() / 2.0;
        Achieved {
            rate: (arrived * packet) as f64 / half / path.bytes_per_second,
            lost: lost as f64 / (lost + arrived) as f64,
            rtt: rtts / arrived as f64,
        }
    }

    #[test]
    fn random_loss_slows_it_down_by_no_more_than_that_loss() {
        for (mbps, one_in, queue) in [
            (100, 100, 860),
            (500, 1000, 4300),
            (500, 100, 4300),
            (20, 10_000, 50),
        ] {
            let delay = Duration::from_millis(100);
            let waits = Duration::from_micros(200);
            let path = Path {
                bytes_per_second: f64::from(mbps) * 1e6 / 8.0,
                delay,
                queue,
                one_in,
                waits,
            };
            let achieved = send(&path, Duration::from_secs(20));
            let share = achieved.rate / (1.0 - 1.0 / one_in as f64);
            assert!(share > 0.93, "{mbps} {one_in}: {share}");
            assert!(
                achieved.rtt < 1.3,
                "{mbps} {one_in}: its queue makes round trips {} times as long",
                achieved.rtt
            );
            assert!(
                achieved.lost < 0.04 + 1.0 / one_in as f64,
                "{mbps} {one_in}: {} lost",
                achieved.lost
            );
        }
    }

    #[test]
    fn a_host_whose_threads_wait_for_longer_than_a_round_trip_fills_a_short_path() {
        let (delay, waits) = (Duration::from_micros(100), Duration::from_millis(10));
        let path = Path {
            bytes_per_second: 12.5e6,
            delay,
            queue: 1000,
            one_in: 100,
            waits,
        };
        let achieved = send(&path, Duration::from_secs(5));
        assert!(achieved.rate > 0.85, "{}", achieved.rate);
    }

    #[test]
    fn a_path_that_gets_longer_is_found_out() {
        let mut bbr = BbrModel::new(Instant::now(), 100_000, MTU, Duration::from_millis(10));
        let mut now = Instant::now();
        // A window arrives in each round trip, which is now ten times as long, at 100 Mbit/s at
        // most.
        for _ in 0..400 {
            let sent = now;
            now += Duration::from_millis(100);
            let window = bbr.window_bytes().min(1_250_000);
            bbr.on_ack(now, sent, window, false);
        }
        assert!(
            bbr.min_rtt() == Duration::from_millis(100) && bbr.window_bytes() > 1_000_000,
            "{bbr:?}"
        );
    }

    #[test]
    fn a_sender_with_nothing_to_send_keeps_its_rate() {
        let (mut bbr, mut now) = (
            BbrModel::new(Instant::now(), 1 << 20, MTU, Duration::from_millis(100)),
            Instant::now(),
        );
        let mut round = |bbr: &mut BbrModel, bytes, is_limited| {
            let sent = now;
            now += Duration::from_millis(100);
            bbr.on_ack(now, sent, bytes, is_limited);
        };
        for _ in 0..20 {
            round(&mut bbr, 1 << 20, false);
        }
        let before = bbr.max_rate();
        for _ in 0..30 {
            round(&mut bbr, 1000, true);
        }
        assert!((bbr.max_rate() - before).abs() < 1.0);
        bbr.begin_anew(now);
        assert_eq!(bbr.window_bytes(), MIN_PACKETS * u64::from(MTU));
    }
}

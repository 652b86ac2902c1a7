//! The round trips of a sender: the most that it had in flight in each, and the least time that one
//! took.

use fullpipe_record::QuietRounds;
use fullpipe_units::{Ratio, Span, Time};

/// Maximum number of round trips that are kept. Beyond it every second one is left out.
const MAX_ROUNDS: usize = 1024;

/// Part of a round trip by which one may take longer that had no queue on its way; and its least.
const FREE_SHARE: f64 = 0.1;
const MIN_FREE: Span = Span::from_micros(300);

/// Multiple of the time of the handshake from which the least round trip of data met a queue: small
/// packets are sooner on the line, but not by so much.
const QUEUED: f64 = 1.5;

/// Growth of what is in flight in a round trip, from which a sender is still ramping up.
const GROWTH: f64 = 1.25;

/// One round trip.
#[derive(Debug, Clone, Copy, Default)]
struct RoundTripRecord {
    most: u64,
    least_rtt: Option<Span>,
    /// True if something was retransmitted.
    repairs: bool,
}

/// The round trips so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoundTripHistory {
    began: Option<Time>,
    now: RoundTripRecord,
    /// Round trips since the last one that was kept, and those of which one is kept, as a power of
    /// two.
    passed: u32,
    stride: u32,
    all: Vec<RoundTripRecord>,
    /// Round trips, and those with much more in flight than ever before.
    count: u32,
    grew: u32,
    most: u64,
}

impl RoundTripHistory {
    /// Takes note of what is in flight at `at`, after a packet that repairs a loss if `repairs`.
    /// `round_trip` is the least time of a round trip.
    pub(crate) fn record_sent_segment(
        &mut self,
        flight: u64,
        repairs: bool,
        at: Time,
        round_trip: Span,
    ) {
        let began = *self.began.get_or_insert(at);
        if round_trip > Span::ZERO && at.duration_since(began) >= round_trip {
            self.end_round();
            self.began = Some(at);
        }
        self.now.most = self.now.most.max(flight);
        self.now.repairs |= repairs;
    }

    /// Takes note of the time that a round trip took.
    pub(crate) fn record_rtt(&mut self, rtt: Span) {
        self.now.least_rtt = Some(self.now.least_rtt.map_or(rtt, |least| least.min(rtt)));
    }

    fn end_round(&mut self) {
        self.count += 1;
        self.grew += u32::from(self.now.most as f64 >= self.most as f64 * GROWTH);
        self.most = self.most.max(self.now.most);
        self.passed += 1;
        if self.passed >> self.stride == 0 {
            // A loss in a round trip that is left out counts in the next.
            self.now = RoundTripRecord {
                repairs: self.now.repairs,
                ..RoundTripRecord::default()
            };
            return;
        }
        self.passed = 0;
        self.all.push(std::mem::take(&mut self.now));
        if self.all.len() >= MAX_ROUNDS {
            self.halve_rounds();
        }
    }

    fn halve_rounds(&mut self) {
        let mut is_second = false;
        self.all.dedup_by(|later, earlier| {
            is_second = !is_second;
            if is_second {
                *earlier = RoundTripRecord {
                    repairs: earlier.repairs || later.repairs,
                    ..*later
                };
            }
            is_second
        });
        self.stride += 1;
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.all.capacity() * size_of::<RoundTripRecord>()
    }

    /// Leaves out round trips until there are few.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 2;
        while self.all.len() > KEPT {
            self.halve_rounds();
        }
        self.all.shrink_to_fit();
    }

    /// Returns the round trips since the last loss; `None` without any. `rest` is the part of each
    /// on the other side of the capture, and `handshake` the time that the handshake took.
    pub(crate) fn quiet_rounds(&self, rest: Span, handshake: Option<Span>) -> Option<QuietRounds> {
        let since = self
            .all
            .iter()
            .rposition(|round| round.repairs)
            .map_or(0, |last| last + 1);
        let quiet = &self.all[since..];
        let later = &quiet[quiet.len() / 2..];
        let mut most: Vec<u64> = later.iter().map(|round| round.most).collect();
        most.sort_unstable();
        let [tenth, p95] = [10, 95].map(|percent| {
            most.get(most.len() * percent / 100)
                .map_or(0.0, |bytes| *bytes as f64)
        });
        let least = self.all.iter().filter_map(|round| round.least_rtt).min()?;
        // A queue that others fill stands from the first data on.
        let least = handshake
            .filter(|idle| least + rest > idle.scale_by(QUEUED))
            .map_or(least, |idle| idle.saturating_sub(rest));
        let limit = least + (least + rest).scale_by(FREE_SHARE).max(MIN_FREE);
        let measured: Vec<Span> = self.all[self.all.len() / 2..]
            .iter()
            .filter_map(|round| round.least_rtt)
            .collect();
        let free = measured.iter().filter(|rtt| **rtt <= limit).count();
        Some(QuietRounds {
            share: Ratio::from_quotient(quiet.len() as f64, self.all.len() as f64),
            level: Ratio::from_quotient(tenth, p95.max(1.0)),
            of_most: Some(Ratio::from_quotient(p95, self.most.max(1) as f64)),
            growing: Ratio::from_quotient(f64::from(self.grew), f64::from(self.count)),
            free: Ratio::from_quotient(free as f64, measured.len().max(1) as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(10);

    /// Sends for `count` round trips, with `most` in flight in each.
    fn rounds(
        count: u64,
        most: impl Fn(u64) -> u64,
        repairs: impl Fn(u64) -> bool,
    ) -> RoundTripHistory {
        let mut rounds = RoundTripHistory::default();
        for round in 0..count {
            let at = Time::ZERO + RTT * round;
            for part in 0..5_u64 {
                let flight = if part == 2 {
                    most(round)
                } else {
                    most(round) / 2
                };
                rounds.record_sent_segment(
                    flight,
                    part == 3 && repairs(round),
                    at + RTT * part / 5,
                    RTT,
                );
                // The first packet of a round trip meets no queue, the others that of those before.
                rounds.record_rtt(RTT + Span::from_millis(part));
            }
        }
        rounds
    }

    #[test]
    fn a_level_shows_since_the_last_loss_though_each_round_trip_swings() {
        let quiet = rounds(200, |_| 100_000, |round| round < 50)
            .quiet_rounds(Span::ZERO, None)
            .unwrap();
        assert!((quiet.share.get() - 0.75).abs() < 0.02, "{quiet:?}");
        assert!(
            quiet.level.get() > 0.99 && quiet.free.get() > 0.99 && quiet.growing.get() < 0.01,
            "{quiet:?}"
        );
        assert!(quiet.of_most.unwrap().get() > 0.99, "{quiet:?}");
        let swings = rounds(200, |round| 50_000 + 1_000 * (round % 50), |_| false)
            .quiet_rounds(Span::ZERO, None)
            .unwrap();
        assert!(
            swings.level.get() < 0.65 && (swings.share.get() - 1.0).abs() < 1e-9,
            "{swings:?}"
        );
    }

    #[test]
    fn what_was_in_flight_before_a_loss_is_known_after_it() {
        let quiet = rounds(
            200,
            |round| if round < 50 { 160_000 } else { 100_000 },
            |round| round == 50,
        );
        let quiet = quiet.quiet_rounds(Span::ZERO, None).unwrap();
        assert!(
            (quiet.of_most.unwrap().get() - 0.625).abs() < 0.01 && quiet.level.get() > 0.99,
            "{quiet:?}"
        );
    }

    #[test]
    fn few_round_trips_that_double_grow() {
        let quiet = rounds(8, |round| 14_480 << round, |_| false)
            .quiet_rounds(Span::ZERO, None)
            .unwrap();
        assert!(quiet.growing.get() > 0.9, "{quiet:?}");
    }

    #[test]
    fn many_round_trips_take_no_more_memory_and_a_loss_in_one_left_out_counts() {
        let long = rounds(20_000, |_| 100_000, |round| round == 10_001);
        assert!(long.all.len() <= MAX_ROUNDS && long.all.capacity() <= MAX_ROUNDS * 2);
        let share = long.quiet_rounds(Span::ZERO, None).unwrap().share.get();
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }
}

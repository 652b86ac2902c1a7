//! The number of connections that a path needs, from what arrives on them: the receiving end does
//! not see the windows of the server.

use fullpipe_units::BitRate;

/// Growth of the rate from which more connections have helped.
const MIN_GAIN: f64 = 1.1;

/// Growth of the rate from which more connections have brought back some of what others lost, and
/// the least factor by which there are more of them then.
const MIN_RESTORED: f64 = 1.03;
const MIN_MORE: f64 = 1.25;

/// Part of the highest rate below which connections are missing: packets that were lost without a
/// queue have made their windows small.
const MIN_SHARE: f64 = 0.95;

/// Judgements at most for which the number stays after more connections have not helped.
const MAX_HOLD: u32 = 16;

/// Finds the number of connections from the rate in successive intervals.
pub(crate) struct ConnectionGrowth {
    active: usize,
    most: usize,
    /// The rate of the last interval. What waited for a lost packet arrives with it: only two
    /// intervals together show the rate of the path.
    last: BitRate,
    /// The highest rate that the path was seen to carry.
    best: BitRate,
    trial: Option<GrowthTrial>,
    /// Intervals in which new connections find their rate.
    settling: u32,
    hold: u32,
    next_hold: u32,
}

/// More connections than before, until it is known what they bring.
#[derive(Clone, Copy)]
struct GrowthTrial {
    before: usize,
    rate: BitRate,
    /// The connections replace what others have lost, and do not seek a higher rate.
    restores: bool,
}

impl ConnectionGrowth {
    /// Returns the rule for `active` connections at first, and `most` at most.
    pub(crate) const fn new(active: usize, most: usize) -> Self {
        Self {
            active,
            most,
            last: BitRate::ZERO,
            best: BitRate::ZERO,
            trial: None,
            settling: 1,
            hold: 0,
            next_hold: 1,
        }
    }

    /// Returns the number of connections.
    pub(crate) const fn active(&self) -> usize {
        self.active
    }

    /// Takes note that the server permits no more than `most` connections.
    pub(crate) fn bound(&mut self, most: usize) {
        self.most = most.max(1).min(self.most);
        self.active = self.active.min(self.most);
    }

    /// Takes in the rate of an interval, and whether packets waited in a queue at its end. Returns
    /// the number of connections from then on.
    pub(crate) fn add_rate(&mut self, rate: BitRate, has_queue: bool) -> usize {
        let last = std::mem::replace(&mut self.last, rate);
        let rate = BitRate::from_bps(last.bps().midpoint(rate.bps()));
        self.best = self.best.max(rate);
        if self.settling > 0 {
            self.settling -= 1;
            return self.active;
        }
        if let Some(trial) = self.trial.take() {
            self.end_trial(trial, rate, has_queue);
        }
        let is_low = rate < self.best.scale_by(MIN_SHARE);
        if self.hold > 0 && !is_low {
            self.hold -= 1;
        } else if !has_queue {
            self.start_trial(rate, is_low);
        }
        self.active
    }

    fn end_trial(&mut self, trial: GrowthTrial, rate: BitRate, has_queue: bool) {
        let min_gain = if trial.restores {
            MIN_RESTORED
        } else {
            MIN_GAIN
        };
        if rate >= trial.rate.scale_by(min_gain) {
            self.next_hold = 1;
            return;
        }
        self.hold = self.next_hold;
        self.next_hold = (self.next_hold * 2).min(MAX_HOLD);
        if trial.restores {
            // The path, or the server, may not carry that any more.
            self.best = self.best.scale_by(MIN_SHARE).max(rate);
        }
        if has_queue || !trial.restores {
            self.active = trial.before.min(self.most);
        }
    }

    fn start_trial(&mut self, rate: BitRate, restores: bool) {
        let factor = if restores {
            self.best.relative_to(rate).clamp(MIN_MORE, 2.0)
        } else {
            2.0
        };
        let wanted = ((self.active as f64 * factor).ceil() as usize).min(self.most);
        if wanted > self.active && rate > BitRate::ZERO {
            let before = std::mem::replace(&mut self.active, wanted);
            self.trial = Some(GrowthTrial {
                before,
                rate,
                restores,
            });
            self.settling = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of connections over so many intervals, where the path carries what
    /// `path` says of that number.
    fn numbers(intervals: u32, path: impl Fn(u32, usize) -> (f64, bool)) -> Vec<usize> {
        let mut growth = ConnectionGrowth::new(4, 64);
        let follow = |interval| {
            let (mbps, has_queue) = path(interval, growth.active());
            growth.add_rate(BitRate::from_bps((mbps * 1e6) as u64), has_queue)
        };
        (0..intervals).map(follow).collect()
    }

    #[test]
    fn a_path_that_loses_packets_gets_as_many_as_fill_it() {
        let seen = numbers(20, |_, active| ((active as f64 * 22.0).min(300.0), false));
        assert!(seen[8] >= 13, "{seen:?}");
        assert!(
            seen[10..].iter().all(|active| (13..=32).contains(active)),
            "{seen:?}"
        );
    }

    #[test]
    fn windows_that_shrink_later_are_replaced() {
        let path = |interval, active| {
            let each = if interval < 3 { 75.0 } else { 22.0 };
            ((active as f64 * each).min(300.0), false)
        };
        let seen = numbers(30, path);
        assert!(seen[12] >= 13, "{seen:?}");
    }

    #[test]
    fn no_connection_is_added_to_a_queue() {
        let seen = numbers(20, |_, _| (300.0, true));
        assert_eq!(seen, [4; 20]);
        let shallow = numbers(60, |_, _| (300.0, false));
        let more = shallow.iter().filter(|active| **active > 4).count();
        assert!(
            more < 20 && shallow.iter().all(|active| *active <= 8),
            "{shallow:?}"
        );
    }

    #[test]
    fn a_path_that_carries_less_than_before_is_left_alone_in_the_end() {
        let path = |interval, _| (if interval < 5 { 300.0 } else { 30.0 }, interval > 30);
        let seen = numbers(40, path);
        assert_eq!(seen[39], seen[33], "{seen:?}");
    }

    #[test]
    fn a_server_bounds_the_number() {
        let mut growth = ConnectionGrowth::new(4, 64);
        growth.bound(2);
        assert_eq!(growth.active(), 2);
        growth.bound(9);
        for mbps in 1..20 {
            assert_eq!(growth.add_rate(BitRate::from_mbps(mbps), false), 2);
        }
        growth.bound(0);
        assert_eq!(growth.active(), 1);
    }
}

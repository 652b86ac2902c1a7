use fullpipe_units::{Ratio, SegCount};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// An event that each packet suffers with probability p, independently of every other.
///
/// The number of packets that pass before one is hit is geometric, P(k) = p (1 − p)ᵏ, so one random
/// number per hit is enough (inversion: k = ⌊ln u ÷ ln(1 − p)⌋ for u uniform in (0, 1]; Devroye,
/// Non-Uniform Random Variate Generation, 1986, X.2). The logarithms are `libm`'s, so that a seed
/// means the same packets on every platform.
#[derive(Debug)]
pub(crate) struct HitChance {
    random: Pcg64Mcg,
    /// ln(1 − p), which is zero where nothing is hit and −∞ where everything is.
    log_pass: f64,
    /// Packets that pass before the next one is hit; [`u64::MAX`] where none ever is.
    gap: u64,
}

impl HitChance {
    /// Hits with `probability`, of which anything above one counts as one.
    pub(crate) fn new(probability: Ratio, seed: u64) -> Self {
        let mut chance = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            log_pass: 0.0,
            gap: 0,
        };
        chance.set_probability(probability);
        chance
    }

    /// Hits with `probability` from the next packet on.
    pub(crate) fn set_probability(&mut self, probability: Ratio) {
        self.log_pass = log_pass(probability);
        self.gap = draw_gap(&mut self.random, self.log_pass);
    }

    /// Returns the number of packets that pass before the next one is hit.
    pub(crate) fn packets_before_hit(&self) -> u64 {
        self.gap
    }

    /// Returns the number of the next `segments` that pass before one is hit. If that is not all of
    /// them, the one after them is hit, and the next call is about those after it.
    #[inline]
    pub(crate) fn passing_segments(&mut self, segments: SegCount) -> SegCount {
        if self.gap >= segments.get() {
            // A gap without end stays one.
            if self.gap != u64::MAX {
                self.gap -= segments.get();
            }
            return segments;
        }
        SegCount::new(self.take_gap())
    }

    /// Returns the packets before the one that is hit now, and draws those before the next.
    #[inline(never)]
    fn take_gap(&mut self) -> u64 {
        let passing = self.gap;
        self.gap = draw_gap(&mut self.random, self.log_pass);
        passing
    }

    /// Another random number.
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random.next_u64()
    }
}

/// ln(1 − p).
pub(crate) fn log_pass(probability: Ratio) -> f64 {
    libm::log1p(-probability.get().min(1.0))
}

/// Draws the number of packets that pass before one is hit, each with the probability of
/// `log_pass`; [`u64::MAX`] if none ever is.
pub(crate) fn draw_gap(random: &mut Pcg64Mcg, log_pass: f64) -> u64 {
    if log_pass == 0.0 {
        return u64::MAX;
    }
    (libm::log(draw_uniform(random)) / log_pass) as u64
}

/// Uniform in (0, 1].
pub(crate) fn draw_uniform(random: &mut Pcg64Mcg) -> f64 {
    // 53 random bits, the precision of a double, shifted by one so that zero is out and one is in.
    ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the packets that are lost, of the first `packets`.
    fn lost(loss: &mut HitChance, packets: u64) -> Vec<u64> {
        (0..packets)
            .filter(|_| loss.passing_segments(SegCount::new(1)) == SegCount::ZERO)
            .collect()
    }

    /// A binomial count lies within five standard deviations of its mean but once in 1.7 million.
    #[test]
    fn the_number_of_losses_is_binomial() {
        const PACKETS: u64 = 1_000_000;
        for probability in [1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9] {
            for seed in 1..=3 {
                let lost =
                    lost(&mut HitChance::new(Ratio::new(probability), seed), PACKETS).len() as f64;
                let mean = PACKETS as f64 * probability;
                let sigma = (mean * (1.0 - probability)).sqrt();
                assert!(
                    (lost - mean).abs() <= 5.0 * sigma,
                    "p = {probability}, seed {seed}: {lost} lost, not {mean}"
                );
            }
        }
    }

    /// Independence: after a loss the next packet is lost as often as any other.
    #[test]
    fn a_loss_says_nothing_of_the_next_packet() {
        let lost = lost(&mut HitChance::new(Ratio::new(0.1), 4), 1_000_000);
        let pairs = lost
            .windows(2)
            .filter(|pair| pair[1] == pair[0] + 1)
            .count() as f64;
        let mean = lost.len() as f64 * 0.1;
        assert!(
            (pairs - mean).abs() <= 5.0 * (mean * 0.9).sqrt(),
            "{pairs} pairs, not {mean}"
        );
    }

    #[test]
    fn a_seed_means_the_same_losses_everywhere() {
        let lost = |seed| lost(&mut HitChance::new(Ratio::new(0.01), seed), 1000);
        assert_eq!(lost(1), [15, 213, 289, 321, 420, 479, 573, 604, 789, 878]);
        assert_ne!(lost(2), lost(1));
    }

    #[test]
    fn nothing_everything_and_almost_nothing() {
        assert!(lost(&mut HitChance::new(Ratio::ZERO, 1), 100_000).is_empty());
        assert_eq!(lost(&mut HitChance::new(Ratio::ONE, 1), 1000).len(), 1000);
        assert_eq!(
            lost(&mut HitChance::new(Ratio::new(7.0), 1), 1000).len(),
            1000
        );
        assert!(lost(&mut HitChance::new(Ratio::new(1e-300), 1), 100_000).is_empty());
    }

    #[test]
    fn a_train_loses_what_its_packets_would_lose() {
        let singly = lost(&mut HitChance::new(Ratio::new(0.05), 9), 10_000);
        let mut loss = HitChance::new(Ratio::new(0.05), 9);
        let mut in_trains = Vec::new();
        for first in (0..10_000).step_by(40) {
            let mut next = 0;
            while next < 40 {
                next += loss.passing_segments(SegCount::new(40 - next)).get();
                if next < 40 {
                    in_trains.push(first + next);
                    next += 1;
                }
            }
        }
        assert_eq!(in_trains, singly);
    }
}

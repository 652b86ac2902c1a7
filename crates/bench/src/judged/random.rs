//! Random values, the same from the same seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A source of random values.
pub(crate) struct Random {
    random: Pcg64Mcg,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.random.next_u64() as f64 / u64::MAX as f64)
    }

    /// Returns a value whose logarithm is uniform.
    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[(self.random.next_u64() % from.len() as u64) as usize].clone()
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.uniform(0.0, 1.0) < probability
    }
}

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Random numbers from a seed.
pub(crate) struct SeededRandom(Pcg64Mcg);

impl SeededRandom {
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn next_unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn next_between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.next_unit()
    }

    /// Returns a number with the standard normal distribution (Box and Muller, 1958).
    pub(crate) fn next_normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.next_unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.next_unit())
    }
}

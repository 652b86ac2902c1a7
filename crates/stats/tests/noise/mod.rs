//! Noise of simulated runs, as logarithms of rates.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

pub struct Random(Pcg64Mcg);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    pub fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Normal (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.share())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.share())
    }

    /// Student's t with three degrees of freedom, scaled to the variance 1.
    pub fn heavy(&mut self) -> f64 {
        let square: f64 = (0..3).map(|_| self.normal()).map(|value| value * value).sum();
        self.normal() / square.sqrt()
    }
}

/// A kind of noise: what single runs do, and what all runs of a while have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// Normal.
    Normal,
    /// 4 % of the runs meet a burst that takes 10 to 45 %; drift of 3 %.
    Bursts,
    /// Bursts that last for three runs in the mean.
    LongBursts,
    /// Student's t with three degrees of freedom.
    Heavy,
    /// Drift by 12 % from the first run to the last, and a wave.
    Drift,
    /// Half of each run's noise is that of the run before it (first-order autoregression).
    Alike,
    /// Day and night differ by a fifth, with runs every hour.
    DayNight,
    /// The path's capacity holds the rate from above: hardly any noise, but bursts.
    Saturated,
    /// The noise triples for a third of the time.
    Restless,
}

pub const ALL: [Noise; 9] = [
    Noise::Normal,
    Noise::Bursts,
    Noise::LongBursts,
    Noise::Heavy,
    Noise::Drift,
    Noise::Alike,
    Noise::DayNight,
    Noise::Saturated,
    Noise::Restless,
];

impl Noise {
    /// Returns the logarithms of the rates of `count` runs whose own noise has the standard deviation `deviation`.
    /// `per_day` are the runs of a day.
    pub fn runs(self, count: usize, deviation: f64, per_day: f64, random: &mut Random) -> Vec<f64> {
        let phase = random.share();
        let (mut last, mut burst, mut depth) = (random.normal(), false, 0.0);
        let sign = if random.share() < 0.5 { 1.0 } else { -1.0 };
        let wave = |turns: f64| libm::sin(std::f64::consts::TAU * (turns + phase));
        let mut run = |index: usize| {
            let part = index as f64 / count as f64;
            let normal = random.normal();
            match self {
                Self::Normal => deviation * normal,
                Self::Bursts => deviation * normal + burst_of(0.04, random) + 0.03 * wave(part),
                Self::LongBursts => {
                    if burst {
                        burst = random.share() < 0.667;
                    } else {
                        burst = random.share() < 0.015;
                        depth = libm::log(random.within(0.55, 0.9));
                    }
                    deviation * normal + if burst { depth } else { 0.0 }
                }
                Self::Heavy => deviation * random.heavy(),
                Self::Drift => deviation * normal + sign * 0.12 * part + 0.03 * wave(3.0 * part),
                Self::Alike => {
                    last = 0.5 * last + 0.75_f64.sqrt() * normal;
                    deviation * last
                }
                Self::DayNight => deviation * normal + 0.1 * wave(index as f64 / per_day),
                Self::Saturated => 0.05 * deviation * normal + burst_of(0.08, random),
                Self::Restless => deviation * normal * if (0.3..0.63).contains(&part) { 3.0 } else { 1.0 },
            }
        };
        (0..count).map(&mut run).collect()
    }
}

fn burst_of(chance: f64, random: &mut Random) -> f64 {
    if random.share() < chance { libm::log(random.within(0.55, 0.9)) } else { 0.0 }
}

//! Noise of simulated runs, as logarithms of rates.

use std::f64::consts::TAU;

use fullpipe_units::BitRate;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Random numbers that follow from a seed.
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        self.share() < chance
    }

    /// Normal (Box and Muller, Annals of Mathematical Statistics 29, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.share())).sqrt();
        radius * libm::cos(TAU * self.share())
    }

    /// Student's t with three degrees of freedom, scaled to the variance 1.
    fn heavy(&mut self) -> f64 {
        let square: f64 = (0..3)
            .map(|_| self.normal())
            .map(|value| value * value)
            .sum();
        self.normal() / square.sqrt()
    }

    /// The loss of a burst: 10 to 45 %.
    fn burst(&mut self) -> f64 {
        libm::log(0.55 + 0.35 * self.share())
    }
}

/// A kind of noise: of single runs, and common to the runs of a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Normal.
    Normal,
    /// Bursts in 5 % of the runs, and 10 % between day and night.
    Bursts,
    /// Bursts that last for three runs in the mean, and begin with 1 % of the runs.
    LongBursts,
    /// Student's t with three degrees of freedom.
    Heavy,
    /// Drift by 6 % from the first run to the last.
    Drift,
    /// A slow wave, one turn, of 3 % up and down.
    Wave,
    /// Each run is half like the one before it (autoregression).
    Alike,
    /// 30 % between day and night, and weekends 8 % slower.
    Week,
    /// The capacity holds the rate from above: hardly any noise, but bursts.
    Saturated,
    /// The noise doubles for a third of the time.
    Restless,
}

impl Noise {
    pub(crate) const ALL: [Self; 10] = [
        Self::Normal,
        Self::Bursts,
        Self::LongBursts,
        Self::Heavy,
        Self::Drift,
        Self::Wave,
        Self::Alike,
        Self::Week,
        Self::Saturated,
        Self::Restless,
    ];

    /// Returns the logarithms of the rates of `count` runs, of which `per_day` are in a day and
    /// each has noise of its own with the standard deviation `deviation`.
    pub(crate) fn runs(
        self,
        count: usize,
        deviation: f64,
        per_day: f64,
        random: &mut Random,
    ) -> Vec<f64> {
        let phase = random.share();
        let wave = |turns: f64| libm::sin(TAU * (turns + phase));
        let sign = if random.happens(0.5) { 1.0 } else { -1.0 };
        let (mut before, mut burst) = (random.normal(), None);
        let run = |index: usize| {
            let (part, days, own) = (
                index as f64 / count as f64,
                index as f64 / per_day,
                random.normal(),
            );
            let common = match self {
                Self::Bursts => {
                    0.05 * wave(days)
                        + if random.happens(0.05) {
                            random.burst()
                        } else {
                            0.0
                        }
                }
                Self::LongBursts => {
                    let goes_on = burst.filter(|_| random.happens(2.0 / 3.0));
                    burst = goes_on.or_else(|| random.happens(0.01).then(|| random.burst()));
                    burst.unwrap_or(0.0)
                }
                Self::Heavy => return deviation * random.heavy(),
                Self::Drift => sign * 0.06 * part,
                Self::Wave => 0.03 * wave(part),
                Self::Alike => {
                    before = 0.5 * before + 0.75_f64.sqrt() * own;
                    return deviation * before;
                }
                Self::Week => 0.15 * wave(days) - if days % 7.0 < 2.0 { 0.08 } else { 0.0 },
                Self::Saturated if random.happens(0.08) => random.burst(),
                Self::Saturated => return 0.05 * deviation * own,
                Self::Restless if (0.3..0.63).contains(&part) => deviation * own,
                Self::Normal | Self::Restless => 0.0,
            };
            deviation * own + common
        };
        (0..count).map(run).collect()
    }
}

/// Returns the rate with the logarithm `log`, 100 Mbit/s where it is 0.
pub(crate) fn rate(log: f64) -> BitRate {
    BitRate::from_mbps(100).scale_by(libm::exp(log))
}

/// Returns the share of the seeds below `trials` for which something `holds`, in percent.
pub(crate) fn percent(trials: u64, holds: impl Fn(u64) -> bool) -> f64 {
    100.0 * (0..trials).filter(|seed| holds(*seed)).count() as f64 / trials as f64
}

use fullpipe_record::{Distribution, Jitter as Parameters};
use fullpipe_units::Span;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::chance::draw_uniform;

/// Delays drawn one by one. The formulas use `libm`, so that a seed means the same delays on every
/// platform.
#[derive(Debug)]
pub(crate) struct JitterSampler {
    pub(crate) reorders: bool,
    distribution: Distribution,
    random: Pcg64Mcg,
}

/// Longer delays are this one: heavy tails would hold a packet for days.
const MAX_DELAY: Span = Span::from_secs(10);

impl JitterSampler {
    pub(crate) fn new(parameters: &Parameters, seed: u64) -> Self {
        let Parameters {
            distribution,
            reorders,
        } = parameters.clone();
        Self {
            reorders,
            distribution,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    pub(crate) fn draw_delay(&mut self) -> Span {
        let random = &mut self.random;
        let delay = match &self.distribution {
            Distribution::Uniform(most) => most.scale_by(draw_uniform(random)),
            Distribution::Normal { mean, deviation } => {
                // Box and Muller, Annals of Mathematical Statistics 29 (1958), 610.
                let radius = libm::sqrt(-2.0 * libm::log(draw_uniform(random)));
                let normal = radius * libm::cos(std::f64::consts::TAU * draw_uniform(random));
                Span::from_secs_f64(mean.as_secs_f64() + normal * deviation.as_secs_f64())
            }
            Distribution::Exponential(mean) => mean.scale_by(-libm::log(draw_uniform(random))),
            Distribution::Pareto { least, shape } => {
                least.scale_by(libm::pow(draw_uniform(random), -1.0 / shape.get()))
            }
            Distribution::Listed(delays) => pick_delay(delays, random),
        };
        delay.min(MAX_DELAY)
    }
}

/// One of `delays`, each as often; none where there is none.
fn pick_delay(delays: &[Span], random: &mut Pcg64Mcg) -> Span {
    let index = (u128::from(random.next_u64()) * delays.len() as u128) >> 64;
    delays.get(index as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Ratio;

    const DRAWS: usize = 200_000;

    fn draws(distribution: &Distribution) -> Vec<f64> {
        let parameters = Parameters {
            distribution: distribution.clone(),
            reorders: false,
        };
        let mut jitter = JitterSampler::new(&parameters, 3);
        (0..DRAWS)
            .map(|_| jitter.draw_delay().as_secs_f64() * 1e3)
            .collect()
    }

    fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    /// The largest distance between the distribution of the draws and `below`, which shows how
    /// probable a smaller value is. By chance it exceeds 2.2 ÷ √n once in eight thousand times
    /// (Kolmogorov).
    fn follows(distribution: &Distribution, below: impl Fn(f64) -> f64) {
        let mut draws = draws(distribution);
        draws.sort_unstable_by(f64::total_cmp);
        let distance =
            |(rank, value): (usize, &f64)| (below(*value) - rank as f64 / DRAWS as f64).abs();
        let worst = draws.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(
            worst < 2.2 / (DRAWS as f64).sqrt(),
            "{distribution:?}: {worst}"
        );
    }

    #[test]
    fn delays_follow_their_distribution() {
        follows(&Distribution::Uniform(millis(8)), |x| {
            (x / 8.0).clamp(0.0, 1.0)
        });
        follows(&Distribution::Exponential(millis(2)), |x| {
            1.0 - (-x / 2.0).exp()
        });
        let pareto = Distribution::Pareto {
            least: millis(1),
            shape: Ratio::new(3.0),
        };
        follows(&pareto, |x| 1.0 - x.max(1.0).powi(-3));
        let normal = Distribution::Normal {
            mean: millis(10),
            deviation: millis(2),
        };
        follows(&normal, |x| {
            0.5 * libm::erfc((10.0 - x) / 2.0 / std::f64::consts::SQRT_2)
        });
    }

    #[test]
    fn listed_delays_come_equally_often() {
        let draws = draws(&Distribution::Listed(vec![
            millis(1),
            millis(2),
            millis(2),
            millis(7),
        ]));
        for (value, share) in [(1.0, 0.25), (2.0, 0.5), (7.0, 0.25)] {
            let count = draws
                .iter()
                .filter(|draw| (**draw - value).abs() < 1e-9)
                .count() as f64;
            let sigma = (DRAWS as f64 * share * (1.0 - share)).sqrt();
            assert!(
                (count - DRAWS as f64 * share).abs() < 5.0 * sigma,
                "{value} ms: {count}"
            );
        }
    }

    #[test]
    fn delays_are_neither_negative_nor_endless() {
        let extremes = [
            Distribution::Normal {
                mean: Span::ZERO,
                deviation: millis(1),
            },
            Distribution::Normal {
                mean: Span::MAX,
                deviation: Span::MAX,
            },
            Distribution::Pareto {
                least: Span::MAX,
                shape: Ratio::ZERO,
            },
            Distribution::Exponential(Span::MAX),
            Distribution::Listed(vec![]),
        ];
        for distribution in extremes {
            assert!(
                draws(&distribution)
                    .iter()
                    .all(|delay| (0.0..=10_000.0).contains(delay))
            );
        }
    }
}
